"""Fuzz every reader of text files with damaged files and with files of other formats.

```
python benchmarks/fuzz_readers.py --minutes 60  # of CPU time, of each reader
python benchmarks/fuzz_readers.py --minutes 5 --readers pairs,candidates
```

A reader must either read a file and count its bad lines, or refuse it with a `ValueError` of one
line that names the file. It must not raise another error or drop content silently. Hypothesis
generates the files: texts of a format, compressed or in another encoding, and cut or changed in a
byte or a line. For each reader, the script prints how many files were tried, read and refused. Its
exit status is 1 if a rule was broken.
"""

import bz2
import gzip
import json
import lzma
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import zstandard
from absl import app, flags
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from convert_tf.corpora.comments import Rules, parse_comment
from convert_tf.corpora.dumps import CountedFile, read_objects
from convert_tf.corpora.options import CORPORA
from convert_tf.corpora.vocabulary import read_sentences
from convert_tf.data.candidates import read_candidates
from convert_tf.data.utterances import UtteranceFiles
from convert_tf.intents.data import read_labelled
from convert_tf.readers.texts import Texts
from convert_tf.text.vocabulary import read_vocabulary

_MINUTES = flags.DEFINE_float("minutes", 60.0, "Minutes of CPU time to fuzz each reader.")
_READERS = flags.DEFINE_list("readers", [], "Names of readers to fuzz; all by default.")
_SEED = flags.DEFINE_integer("seed", 0, "Seed of the generated files.")

SUFFIXES = ("", ".csv", ".jsonl", ".yml", ".gz", ".srt", ".zst", ".tsv")
_FILES_PER_SEED = 200
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
_HUGE = st.sampled_from([10**400, -1, 0, 1e308, "1", True])
_VALUE = st.recursive(
    _TEXT | st.none() | st.booleans() | st.integers() | st.floats() | _HUGE,
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


_EXTRA = (
    b"\0", b"\xff", b"\n", b"\r", b'"', b"{", b"[" * 3000, b"\xed\xa0\xbd", b",", b"\t", b"null",
    b"1e999", b"-0", b"\\ud83d", b"\xe2\x80\xa8", b"\xef\xbb\xbf", b"<!--", b"]]>", b"&#0;",
    b" --> ",
)  # fmt: skip


def _damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Damage a file as disks and editors do: cut it, swap its parts, or change a byte or a line."""
    damage = draw(st.sampled_from(
        ["none", "none", "cut", "byte", "insert", "double", "swap", "line", "twice", "type"]
    ))  # fmt: skip
    place = draw(st.integers(0, max(0, len(data) - 1)))
    lines = data.split(b"\n")
    if damage == "cut":
        return data[:place]
    if damage == "byte" and data:
        return data[:place] + bytes([draw(st.integers(0, 255))]) + data[place + 1 :]
    if damage == "insert":
        return data[:place] + draw(st.sampled_from(_EXTRA)) + data[place:]
    if damage == "double":
        return data + data
    if damage == "swap":
        return data[place:] + data[:place]
    if damage in ("line", "twice"):
        line = place % len(lines)
        return b"\n".join([*lines[:line], *lines[line:][damage == "line" :], *lines[line:][:2]])
    if damage == "type":
        old, new = draw(st.permutations([b'"', b": ", b"[", b"]", b"{", b",", b"1", b"<", b"-"]))[
            :2
        ]
        return data.replace(old, new, draw(st.integers(1, 3)))
    return data


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Draw the bytes of a file: text in a format, packed, and damaged before or after packing."""
    data = draw(_CONTENT).encode("utf-8", "replace")
    if is_early := draw(st.booleans()):
        data = _damaged(draw, data)
    data = PACKERS[draw(st.sampled_from([*PACKERS]))](data)
    return data if is_early else _damaged(draw, data)


def _corpus(name):
    def read(path):
        file = CountedFile(path)
        number = sum(len(one.turns) for one in CORPORA[name].read(file))
        file.check_readable(number)
        return number or file.skipped.total() or file.warnings or not file.lines

    return read


def _comments(path):
    file = CountedFile(path)
    number = 0
    for fields in read_objects(file):
        with file.skipping():
            parse_comment(fields, Rules(), changed=Counter())
            number += 1
    file.check_readable(number)
    return True


READERS: dict[str, Callable[[str], object]] = {
    **{name: _corpus(name) for name in CORPORA},
    "comments": _comments,
    "labelled texts": read_labelled,
    "candidates": lambda path: list(read_candidates(path)),
    "utterances": lambda path: [list(UtteranceFiles([path]))],
    "lines": lambda path: [list(Texts(path))],
    "sentences": lambda path: [[one.decode() for one in read_sentences([path])]],
    "a vocabulary": read_vocabulary,
}


def check(name: str, path: str) -> str:
    """Read a file with a reader, and return `"read"` or `"refused"`.

    Args:
      name: name of the reader, a key of `READERS`.
      path: the file.

    Raises:
      AssertionError: if the message of a refusal is not one line that names the file, or if the
        reader ignores the content of a file silently.
      Exception: any exception of the reader other than `ValueError`.
    """
    try:
        found = READERS[name](path)
    except ValueError as error:
        assert Path(path).name in str(error) and "\n" not in str(error), str(error)
        assert not isinstance(error, UnicodeError), error
        return "refused"
    assert found or not Path(path).read_bytes().strip(), (
        "the reader read nothing and reported nothing"
    )
    json.dumps(found, ensure_ascii=False).encode("utf-8")
    return "read"


def fuzz(name: str, path: str, number: int, first: int, outcomes: Counter[str]) -> None:
    """Let a reader read generated files. Raises what `check` raises.

    Args:
      name: name of the reader, a key of `READERS`.
      path: where the files are written, one after the other.
      number: number of files.
      first: seed of the files.
      outcomes: counts of outcomes; updated.
    """

    @seed(first)
    @settings(
        max_examples=number, deadline=None, database=None, suppress_health_check=[*HealthCheck],
        phases=[Phase.generate, Phase.shrink],
    )  # fmt: skip
    @given(data=files())
    def fuzzed(data: bytes) -> None:
        Path(path).write_bytes(data)
        outcomes["tried"] += 1
        outcomes[check(name, path)] += 1

    fuzzed()


def main(argv: list[str]) -> None:
    if unknown := {*_READERS.value} - READERS.keys():
        raise app.UsageError(f"Unknown reader {min(unknown)!r}. Known: {', '.join(READERS)}.")
    warnings.simplefilter("ignore")
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in _READERS.value or READERS:
            outcomes: Counter[str] = Counter()
            rounds, end = 0, time.process_time() + 60 * _MINUTES.value
            while time.process_time() < end:
                path = str(Path(folder) / f"any{SUFFIXES[rounds % len(SUFFIXES)]}")
                try:
                    fuzz(name, path, _FILES_PER_SEED, _SEED.value + rounds, outcomes)
                except Exception as error:  # any exception is a fault
                    faults += 1
                    content = Path(path).read_bytes()[:300]
                    print(f"  {name}: {type(error).__name__}: {str(error)[:300]} on {content!r}")
                Path(path).unlink(missing_ok=True)
                rounds += 1
            counts = ", ".join(f"{number:,} {what}" for what, number in outcomes.items())
            print(f"{name}: {counts}", flush=True)
    print(f"{faults} faults")
    if faults:
        sys.exit(1)


if __name__ == "__main__":
    app.run(main)
