"""The command that learns a vocabulary, on records and on text files."""

import os

import numpy as np
import pytest
import tensorflow as tf

from convert_tf.corpora.vocabulary import (
    in_graph,
    learn,
    read_sentences,
    sample_sentences,
    train_sentencepiece,
)
from convert_tf.text.loading import load_tokenizer
from convert_tf.text.subwords import SubwordConfig
from convert_tf.text.vocabulary import read_vocabulary

SENTENCES = ["The cat sat", "the CAT ran!", "a dog, a cat", "it's 20155 now"] * 5
CONFIG = SubwordConfig(min_count=5, alphabet_min_count=1)


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "in" / "text.txt"
    path.parent.mkdir()
    path.write_text("\n".join(SENTENCES) + "\n", "utf-8")
    return str(path)


def write_records(folder, split, rows):
    with tf.io.TFRecordWriter(str(folder / f"{split}-00000-of-00001.tfrecord")) as writer:
        for row in rows:
            example = tf.train.Example()
            for name, value in row.items():
                example.features.feature[name].bytes_list.value.append(value.encode())
            writer.write(example.SerializeToString())


def test_text_file(text_file, tmp_path):
    output = tmp_path / "new" / "vocab.txt"
    line = learn([text_file], str(output), config=CONFIG)
    subwords = read_vocabulary(output)
    assert {"﹏the", "﹏cat", "﹏2015"} <= set(subwords)
    assert "﹏The" not in subwords
    assert line == f"wrote {output}: 20 sentences, 13 words, {len(subwords)} subwords"
    assert os.listdir(output.parent) == ["vocab.txt"]


def test_records_give_each_text_of_a_thread_once(tmp_path):
    rows = [
        {"thread_id": "t1", "context": "root", "response": "reply one", "context/0": "older"},
        {"thread_id": "t1", "context": "root", "response": "reply two"},
        {"thread_id": "t1", "context": "reply one", "response": "reply three"},
        {"thread_id": "t2", "context": "root", "response": "reply one"},
    ]
    write_records(tmp_path, "train", rows)
    write_records(tmp_path, "test", [{"context": "hidden", "response": "hidden", "thread_id": "t"}])
    texts = [text.decode() for text in read_sentences([str(tmp_path)])]
    assert sorted(texts) == [
        "reply one", "reply one", "reply three", "reply two", "root", "root",
    ]  # fmt: skip


def test_max_sentences_is_kept(text_file, tmp_path):
    lines = [
        learn([text_file], str(tmp_path / "v"), config=CONFIG, max_sentences=number)
        for number in (10, 15)
    ]
    assert "10 sentences" in lines[0]
    assert "15 sentences" in lines[1]


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
    """Of a corpus that is sorted, the first ones are of one kind."""
    (tmp_path / "text.txt").write_text("".join(f"{number}\n" for number in range(2000)))
    paths = [str(tmp_path / "text.txt")]
    drawn = [int(text) for text in sample_sentences(paths, 500)]
    assert len(drawn) == 500
    assert drawn == sorted({*drawn}) == [int(text) for text in sample_sentences(paths, 500)]
    # Of each quarter 125 are expected, with a standard deviation of 8.
    assert all(85 < n < 165 for n in np.histogram(drawn, bins=4, range=(0, 2000))[0])
    assert len([*sample_sentences(paths, 2000)]) == len([*sample_sentences(paths, 9999)]) == 2000
