"""Vocabulary files can contain any subword, and invalid files are rejected."""

import collections
import gzip
import os
import random

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from support.commands import call_command

from convert_tf.corpora import vocabulary
from convert_tf.corpora.vocabulary import (
    in_graph,
    learn,
    read_sentences,
    sample_sentences,
    train_sentencepiece,
)
from convert_tf.data.records import write_shards
from convert_tf.data.schema import Example
from convert_tf.storage.lines import FileChangedError
from convert_tf.text.counting import WordCounter
from convert_tf.text.subwords import WORD_START, SubwordConfig
from convert_tf.text.tokenizer import load_tokenizer
from convert_tf.text.vocabulary import (
    VocabularyError,
    escape,
    parse_vocabulary,
    read_vocabulary,
    unescape,
    write_vocabulary,
)

TRICKY = "\\\n\r\t\0\x0b\x0c\x1c\x85\u2028\u2029 nu\U0001f600"


def complete(characters):
    return [f"{start}{character}" for character in characters for start in ("", WORD_START)]


@given(st.text(st.characters(codec="utf-8") | st.sampled_from(TRICKY)))
def test_lines_hold_any_text(text):
    assert unescape(escape(text)) == text
    assert len(escape(text).splitlines()) <= 1


def test_file_round_trip(tmp_path):
    subwords = [*complete(TRICKY), "\\n", "a\nb", WORD_START + "\r\n", "\\u0041"]
    subwords += [f"{WORD_START}a", "a", f"{WORD_START}b", "b"]
    write_vocabulary(tmp_path / "vocab.txt", subwords)
    assert read_vocabulary(tmp_path / "vocab.txt") == subwords
    assert len((tmp_path / "vocab.txt").read_text("utf-8").splitlines()) == len(subwords)
    assert os.listdir(tmp_path) == ["vocab.txt"]


def test_golden_bytes(tmp_path):
    write_vocabulary(tmp_path / "v", ["the", "\n", WORD_START + "\n", "\\", WORD_START + "\\"])
    expected = "the\n\\n\n\ufe4f\\n\n\\\\\n\ufe4f\\\\\n"
    assert (tmp_path / "v").read_bytes() == expected.encode("utf-8")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"vocab\.txt is empty"),
        ("﹏the\n\nof\n".encode(), "Line 2 of .* is not a subword: ''"),
        ("﹏the\nof\n﹏the\n".encode(), "'﹏the' twice, on lines 1 and 3"),
        (b"the\n\xff\xfe\n", "not UTF-8 text .*position 4"),
        ("﹏\n".encode(), "Line 1 of .* is not a subword: '\ufe4f'"),
        ("a﹏b\n﹏b\n".encode(), "Line 1 of .* is not a subword: 'a\ufe4fb'"),
        ("﹏ab\na\n".encode(), r"'a' \(line 2\) but not '\ufe4fa'"),
        ("﹏a\nb\\ud83d\n".encode(), r"Line 2 of .* is not a subword: 'b\\ud83d'"),
        ("﹏a\nb\\x".encode(), r"Line 2 of .*vocab\.txt: 'b\\\\x' contains a backslash"),
        ("▁the\n▁of\n".encode(), r"None of the 2 lines .*another tokenizer.*its \.model file"),
        (gzip.compress("﹏a\na\n".encode(), mtime=0), r"is compressed \(\.gz\)\. Decompress it"),
        (b"{\0}\0\n\0", "None of the 2 lines"),
    ],
)
def test_refuses_other_files(tmp_path, content, message):
    (tmp_path / "vocab.txt").write_bytes(content)
    with pytest.raises(VocabularyError, match=message):
        read_vocabulary(tmp_path / "vocab.txt")


@pytest.mark.parametrize("line", ["x" * 9_000 + "\\", "x" * 9_000 + "﹏", "x" * 9_000])
def test_long_lines_are_shortened_in_messages(line):
    with pytest.raises(VocabularyError, match=r"v\.txt") as caught:
        parse_vocabulary(f"﹏a\n{line}\n{line}\n", source="v.txt")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("change", [b"\r\n", b"\r", b"\xef\xbb\xbf"])
def test_line_ends_and_marks_of_other_systems_are_read(tmp_path, change):
    subwords = ["﹏the", "\ufeff", "﹏\ufeff", "\r", "﹏\r", "﹏ ", " "]
    write_vocabulary(tmp_path / "vocab.txt", subwords)
    content = (tmp_path / "vocab.txt").read_bytes()
    assert not content.count(b"\r") and not content.count(b"\xef\xbb\xbf")
    is_mark = change.startswith(b"\xef")
    (tmp_path / "other.txt").write_bytes(
        change + content if is_mark else content.replace(b"\n", change)
    )
    assert read_vocabulary(tmp_path / "other.txt") == subwords


def test_subwords_that_are_refused_leave_the_old_file(tmp_path):
    path = tmp_path / "vocab.txt"
    write_vocabulary(path, ["﹏old"])
    with pytest.raises(VocabularyError, match="'new' twice"):
        write_vocabulary(path, ["new", "new"])
    assert read_vocabulary(path) == ["﹏old"]
    assert os.listdir(tmp_path) == ["vocab.txt"]


SENTENCES = ["The cat sat", "the CAT ran!", "a dog, a cat", "it's 20155 now"] * 5
CONFIG = SubwordConfig(min_count=5, alphabet_min_count=1)


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "in" / "text.txt"
    path.parent.mkdir()
    path.write_text("\n".join(SENTENCES) + "\n", "utf-8")
    return str(path)


def test_text_file(text_file, tmp_path):
    output = tmp_path / "new" / "vocab.txt"
    line = learn([text_file], str(output), config=CONFIG)
    subwords = read_vocabulary(output)
    assert {"﹏the", "﹏cat", "﹏2015"} <= set(subwords)
    assert "﹏The" not in subwords
    assert line == f"wrote {output}: 20 sentences, 13 words, {len(subwords)} subwords"
    assert os.listdir(output.parent) == ["vocab.txt"]
    assert "10 sentences" in learn([text_file], str(output), config=CONFIG, max_sentences=10)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b'id,text\n7,"Hi, you"\n8,\n'),
        ("a.csv.gz", gzip.compress(b'id,text\n7,"Hi, you"\n', mtime=0)),
        ("a.txt", b"label;text;id\n7;Hi, you;7\n"),
    ],
)
def test_a_table_gives_its_text_column(tmp_path, capsys, name, content):
    (tmp_path / name).write_bytes(content)
    assert [*sample_sentences([str(tmp_path / name)], 9)] == [b"Hi, you"]
    assert capsys.readouterr().err.count("is a table; reading its column 'text'") == 1


def test_a_table_without_texts_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("frage,antwort\nWo?,Hier.\n")
    with pytest.raises(ValueError, match=r"a\.csv has no columns for texts"):
        [*read_sentences([str(tmp_path / "a.csv")])]


@pytest.mark.parametrize("tokenizer", ["subword", "sentencepiece"])
def test_vocabularies_are_learnt_from_folded_texts(tmp_path, tokenizer):
    plain = ["le café est fermé", "hello world!"] * 20
    other = ["le cafe\u0301  est\u00a0ferme\u0301", "ｈｅｌｌｏ　ｗｏｒｌｄ！"] * 20
    contents = []
    for name, texts in (("plain", plain), ("other", other)):
        (tmp_path / f"{name}.txt").write_text("\n".join(texts), "utf-8")
        output = tmp_path / name
        learn([f"{output}.txt"], str(output), tokenizer=tokenizer, config=CONFIG, vocab_size=20)
        contents.append(output.read_bytes())
        ids, _ = load_tokenizer(output).flat_ids(other, 99)
        assert load_tokenizer(output).count_unknown(ids) == 0
    assert contents[0] == contents[1]


def test_records_give_each_text_of_a_thread_once(tmp_path):
    pairs = [
        ("train", "t1", "root", "reply one"),
        ("train", "t1", "root", "reply two"),
        ("train", "t1", "reply one", "reply three"),
        ("train", "t2", "root", "reply one"),
        ("test", "t3", "hidden", "hidden"),
    ]
    examples = (
        (split, 0, Example(thread, "", "", context, response, ("older",), "", ""))
        for split, thread, context, response in pairs
    )
    write_shards(str(tmp_path), examples, num_shards={"train": 1, "test": 1})
    texts = [text.decode() for text in read_sentences([str(tmp_path)])]
    assert sorted(texts) == [
        "reply one", "reply one", "reply three", "reply two", "root", "root",
    ]  # fmt: skip


def test_batches_keep_their_order():
    texts = [f"Text {number}".encode() for number in range(7500)]
    found = [row for rows in in_graph(tf.strings.lower, texts) for row in rows]
    assert found == [text.lower() for text in texts]


def test_sentencepiece_is_deterministic_and_its_size_is_kept(text_file, tmp_path):
    texts = [text.encode() for text in SENTENCES]
    models = [train_sentencepiece(texts, vocab_size=size) for size in (22, 22, 24)]
    assert models[0] == models[1]
    line = learn([text_file], str(tmp_path / "m"), tokenizer="sentencepiece", vocab_size=24)
    assert line == f"wrote {tmp_path / 'm'}: 20 sentences, 24 subwords"
    assert (tmp_path / "m").read_bytes() == models[2]
    assert load_tokenizer(tmp_path / "m").vocab_size == 24


def test_sentencepiece_refuses_too_few_pieces(text_file, tmp_path):
    with pytest.raises(ValueError, match="cannot learn 3 pieces"):
        learn([text_file], str(tmp_path / "m"), tokenizer="sentencepiece", vocab_size=3)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("tokenizer", ["subword", "sentencepiece"])
def test_no_text_is_an_error(tmp_path, tokenizer):
    (tmp_path / "empty.txt").write_bytes(b"")
    with pytest.raises(ValueError, match=r"There is no text in .*empty\.txt"):
        learn([str(tmp_path / "empty.txt")], str(tmp_path / "v"), tokenizer=tokenizer)
    assert not (tmp_path / "v").exists()


def test_of_many_sentences_a_sample_is_learnt_from(tmp_path):
    """Sentences are sampled from the whole file, because the first ones may all be of one kind."""
    (tmp_path / "text.txt").write_text("".join(f"{number}\n" for number in range(2000)))
    paths = [str(tmp_path / "text.txt")]
    drawn = [int(text) for text in sample_sentences(paths, 500)]
    assert len(drawn) == 500
    assert drawn == sorted({*drawn}) == [int(text) for text in sample_sentences(paths, 500)]
    # Each quarter should give 125 sentences, with a standard deviation of 8.
    assert all(85 < n < 165 for n in np.histogram(drawn, bins=4, range=(0, 2000))[0])
    assert len([*sample_sentences(paths, 2000)]) == len([*sample_sentences(paths, 9999)]) == 2000


@pytest.mark.parametrize("when", ["counted", "read"])
@pytest.mark.parametrize("change", ["grows", "shrinks", "is_replaced"])
def test_files_that_change_while_they_are_sampled_are_an_error(tmp_path, monkeypatch, when, change):
    path = tmp_path / "text.txt"
    lines = [f"{number}\n" for number in range(200)]
    path.write_text("".join(lines))
    after = {"grows": lines * 2, "shrinks": lines[:50], "is_replaced": lines[::-1]}[change]
    num_passes = 0

    def changing(paths):
        nonlocal num_passes
        num_passes += 1
        yield from read_sentences(paths)
        if num_passes == ["counted", "read"].index(when) + 1:
            path.write_text("".join(after))

    monkeypatch.setattr(vocabulary, "read_sentences", changing)
    drawn = []
    with pytest.raises(FileChangedError, match=r"text\.txt was changed or replaced"):
        drawn.extend(sample_sentences([str(path)], 10))
    assert len(drawn) <= 10


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_an_output_that_is_no_file_is_refused_before_the_work(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(vocabulary, "sample_sentences", lambda *_: pytest.fail("texts are read"))
    output = tmp_path / "output"
    (os.mkdir if kind == "folder" else os.mkfifo)(output)
    with pytest.raises(ValueError, match=r"output' exists and is not a file. Choose another"):
        learn([str(tmp_path / "text.txt")], str(output))
    assert not output.is_file()


@pytest.mark.parametrize("tokenizer", ["subword", "sentencepiece"])
def test_an_output_that_is_a_link_is_followed(text_file, tmp_path, tokenizer):
    shared, link = tmp_path / "shared", tmp_path / "link"
    shared.write_text("old")
    link.symlink_to(shared)
    learn([text_file], str(link), tokenizer=tokenizer, config=CONFIG, vocab_size=100)
    assert link.is_symlink()
    assert load_tokenizer(shared).vocab_size > 10


@pytest.mark.parametrize(
    "options",
    [["--min_count=5", "--alphabet_min_count=1"], ["--tokenizer=sentencepiece", "--vocab_size=24"]],
    ids=["subword", "sentencepiece"],
)
def test_the_command_replaces_only_vocabularies_and_only_on_request(text_file, tmp_path, options):
    output, texts = tmp_path / "vocab.txt", f"--input={text_file}"
    call_command("vocabulary", texts, f"--output={output}", *options)
    learnt = output.read_bytes()
    for former in ("﹏edited\n".encode(), learnt):
        output.write_bytes(former)
        with pytest.raises(SystemExit, match=r"vocab\.txt' already exists\. Pass --overwrite"):
            call_command("vocabulary", texts, f"--output={output}", *options)
        assert output.read_bytes() == former
        call_command("vocabulary", texts, f"--output={output}", *options, "--overwrite")
        assert output.read_bytes() == learnt
    for former in (b"written by hand\n", b"[PAD]\n[UNK]\nhello\n"):  # notes, BERT's vocabulary
        output.write_bytes(former)
        for more, message in (([], "already exists"), (["--overwrite"], "did not write")):
            with pytest.raises(SystemExit, match=message):
                call_command("vocabulary", texts, f"--output={output}", *options, *more)
            assert output.read_bytes() == former


def test_texts_that_are_given_twice_are_read_once(tmp_path):
    for name in "ba":
        (tmp_path / f"{name}.txt").write_text(f"{name}\n")
    (tmp_path / "link").symlink_to(tmp_path / "a.txt")
    example = Example("t", "", "", "context", "response", (), "", "")
    (tmp_path / "data").mkdir()
    write_shards(str(tmp_path / "data"), [("train", 0, example)], num_shards={"train": 1})
    data = [f"{tmp_path}/data", f"{tmp_path}/data/"]
    paths = [f"{tmp_path}/b.txt", f"{tmp_path}/*.txt", f"{tmp_path}/link", *data]
    texts = [b"b", b"a", b"context", b"response"]
    assert [*read_sentences(paths)] == [*sample_sentences(paths, 99)] == texts


def zipf_words(size=5000):
    generator = random.Random(0)
    return [f"w{int(generator.paretovariate(0.7)) % 3000}" for _ in range(size)]


def counted(words, size, **limits):
    counter = WordCounter()
    for name, limit in limits.items():
        setattr(counter, name, limit)
    for start in range(0, len(words), size):
        counter.add(words[start : start + size])
    return counter


def test_spilled_counts_are_exact():
    words = zipf_words()
    counter = counted(words, 50, max_table=100)
    assert len(counter._parts) > 3
    assert counter.counts() == collections.Counter(words)


def test_rarest_words_are_dropped_whatever_the_order():
    words = zipf_words()
    exact = collections.Counter(words)
    results = []
    for seed in range(3):
        random.Random(seed).shuffle(words)
        counter = counted(words, 25, max_words=40, max_table=60)
        results.append(counter.counts())
    assert results[0] == results[1] == results[2]
    lowest = min(results[0].values())
    assert results[0] == {word: count for word, count in exact.items() if count >= lowest}
    assert 0 < len(results[0]) <= 40
    assert sum(count >= lowest - 1 for count in exact.values()) > 40


def test_bytes_are_decoded_and_long_words_cut():
    counter = counted(["éabc".encode(), "éabd".encode(), b"xy"], 3, max_word_length=3)
    assert counter.counts() == {"éab": 2, "xy": 1}
