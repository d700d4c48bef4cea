"""Every reader of text files, on files of every format that were damaged or exchanged.

A file is read, its bad lines are counted, or it is refused by a `ValueError` of one line that names
it: no other error, and nothing lost without a word. `FUZZ_EXAMPLES` says how many files are made.
"""

import bz2
import gzip
import json
import lzma
import os

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from convert_tf.corpora.comments import Rules, UnusableLineError, parse_comment
from convert_tf.corpora.dumps import DumpStats, read_objects
from convert_tf.corpora.registry import CORPORA
from convert_tf.corpora.vocabulary import read_sentences
from convert_tf.data.candidates import read_candidates
from convert_tf.data.utterances import read_utterances
from convert_tf.intents.data import read_labelled
from convert_tf.storage.lines import TextLines
from convert_tf.text.vocabulary import read_vocabulary

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "60"))
PACKERS = {
    "plain": bytes,
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda data: zstandard.ZstdCompressor().compress(data),
    "utf-16": lambda data: data.decode("utf-8", "replace").encode("utf-16"),
    "utf-16-le": lambda data: data.decode("utf-8", "replace").encode("utf-16-le"),
    "bom": lambda data: b"\xef\xbb\xbf" + data,
    "crlf": lambda data: data.replace(b"\n", b"\r\n"),
}
WORDS = ("hi", "", " ", "where is my card?", 'a "b", c', "é 😊", "\ud83d", "a\tb", "x\ny", "0", "{")
_TEXT = st.sampled_from(WORDS) | st.text(max_size=12)
_VALUE = st.recursive(
    _TEXT | st.none() | st.booleans() | st.integers() | st.floats(),
    lambda values: (
        st.lists(values, max_size=3)
        | st.dictionaries(
            st.sampled_from(["text", "content", "role", "from", "value", "speaker", "input"]),
            values,
            max_size=3,
        )
    ),
    max_leaves=6,
)
_KEYS = (
    "text", "label", "intent", "context", "response", "question", "answer", "answers", "query",
    "pos", "instruction", "input", "output", "messages", "conversations", "turns", "data", "id",
    "source", "candidates", "asin", "questions", "body", "link_id", "parent_id", "history",
    "prompt", "completion", "rasa_nlu_data", "utterances",
)  # fmt: skip
_OBJECT = st.dictionaries(st.sampled_from(_KEYS), _VALUE, max_size=5)
_GOOD = st.sampled_from(
    [
        {"text": "hi", "label": "greet"},
        {"question": "is it open?", "answer": "until nine"},
        {"turns": ["is it open?", "until nine", "thanks"]},
        {"messages": [{"role": "user", "content": "a?"}, {"role": "assistant", "content": "b"}]},
        {"context": ["hi"], "candidates": ["a", "b"], "label": 1},
        {"asin": "B1", "question": "does it fit mine", "answer": "yes it does fit"},
        {"id": "c1", "link_id": "t3_a", "parent_id": "t3_a", "body": "a remark"},
    ]
)


def _json(objects, form):
    if form == "lines":
        return "".join(json.dumps(one) + "\n" for one in objects)
    if form == "python":
        return "".join(f"{one!r}\n" for one in objects)
    return json.dumps(objects if form == "list" else {"data": objects}, indent=len(objects) % 2)


_JSON = st.builds(
    _json,
    st.lists(_GOOD | _OBJECT, max_size=5),
    st.sampled_from(["lines", "lines", "list", "inside", "python"]),
)
_TABLE = st.builds(
    lambda head, rows, mark: "\n".join(
        [mark.join(head), *(mark.join(row) for row in rows)]
    ),
    st.sampled_from([("text", "label"), ("question", "answer"), ("a", "b", "c")]),
    st.lists(st.lists(_TEXT | st.just('"'), max_size=3), max_size=5),
    st.sampled_from([",", ";", "\t", ", "]),
)  # fmt: skip
_TIMES = "00:00:0{},000 --> 00:00:0{},500"
_SUBTITLES = st.builds(
    lambda start, texts, gap: (
        start + gap.join(f"{n}\n{_TIMES.format(n, n)}\n{text}\n" for n, text in enumerate(texts))
    ),
    st.sampled_from(["", "WEBVTT\n\n", "\ufeff"]),
    st.lists(_TEXT, max_size=4),
    st.sampled_from(["\n", "", "\n\n"]),
)
_DOCTYPE = '<!DOCTYPE d [<!ENTITY a "b">]>'
_MARKUP = st.builds(
    lambda start, texts: (
        f"{start}<document>{''.join(f'<s><w>{text}</w></s>' for text in texts)}</document>"
    ),
    st.sampled_from(["", '<?xml version="1.0"?>\n', _DOCTYPE]),
    st.lists(_TEXT, max_size=4),
)
_NLU = st.builds(
    lambda start, name, texts: (
        f"{start}- intent: {name}\n  examples: |\n" + "".join(f"    - {one}\n" for one in texts)
    ),
    st.sampled_from(['version: "3.1"\nnlu:\n', "nlu:\n", "## intent:a\n"]),
    _TEXT,
    st.lists(_TEXT, max_size=3),
)
_ENTRIES = ("﹏a", "a", "﹏", "##s", "a b", "▁x\t-1.0", "[PAD]", "[UNK]")
_WORDS = st.builds("\n".join, st.lists(st.sampled_from(_ENTRIES)))
_CONTENT = _JSON | _TABLE | _SUBTITLES | _MARKUP | _NLU | _WORDS


@st.composite
def files(draw):
    """The bytes of a file: a format, packed, and then damaged in one of the ways of disks."""
    text = draw(_CONTENT)
    data = PACKERS[draw(st.sampled_from([*PACKERS]))](text.encode("utf-8", "replace"))
    damage = draw(st.sampled_from(["none", "none", "cut", "byte", "insert", "double", "swap"]))
    place = draw(st.integers(0, max(0, len(data) - 1)))
    if damage == "cut":
        data = data[:place]
    elif damage == "byte" and data:
        data = data[:place] + bytes([draw(st.integers(0, 255))]) + data[place + 1 :]
    elif damage == "insert":
        extra = st.sampled_from([b"\0", b"\xff", b"\n", b'"', b"{", b"[" * 3000, b"\xed\xa0\xbd"])
        data = data[:place] + draw(extra) + data[place:]
    elif damage == "double":
        data = data + data
    elif damage == "swap":
        data = data[place:] + data[:place]
    return data


def _corpus(name):
    def read(path):
        stats = DumpStats(path)
        number = sum(len(one.turns) for one in CORPORA[name].read(path, stats))
        stats.check_readable(number)
        return number or stats.skipped.total() or stats.warnings or not stats.lines

    return read


def _comments(path):
    stats = DumpStats(path)
    number = 0
    for fields in read_objects(path, stats):
        try:
            parse_comment(fields, Rules(), changed=stats.changed)
            number += 1
        except UnusableLineError as error:
            stats.skip(error.reason, is_bad=error.is_bad)
    stats.check_readable(number)
    return True


READERS = {
    **{name: _corpus(name) for name in CORPORA},
    "comments": _comments,
    "labelled texts": read_labelled,
    "candidates": lambda path: list(read_candidates(path)),
    "utterances": lambda path: [list(read_utterances([path]))],
    "lines": lambda path: [list(TextLines(path))],
    "sentences": lambda path: [[one.decode() for one in read_sentences([path])]],
    "a vocabulary": read_vocabulary,
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("suffix", ["", ".csv", ".jsonl", ".yml", ".gz"])
def test_files_are_read_or_refused_by_name(tmp_path_factory, name, suffix):
    path = str(tmp_path_factory.mktemp("fuzzed") / f"any{suffix}")

    @settings(
        max_examples=EXAMPLES // 5, deadline=None, suppress_health_check=[*HealthCheck],
    )  # fmt: skip
    @given(data=files())
    def check(data):
        with open(path, "wb") as file:
            file.write(data)
        try:
            found = READERS[name](path)
        except ValueError as error:
            assert "any" in str(error) and "\n" not in str(error), str(error)
            assert not isinstance(error, UnicodeError), error
        else:
            assert found or not data.strip(), "nothing was read, and nothing said"
            json.dumps(found, ensure_ascii=False).encode("utf-8")

    check()
