"""The record format as others see it: nothing here is shared with the code that writes or reads."""

import json

import pytest
import tensorflow as tf
from support.record_files import read_pairs

from convert_tf.corpora.local import PrepareOptions, prepare
from convert_tf.data.records import parse_examples
from convert_tf.data.shards import list_shards


def _feature(text):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode("utf-8")]))


def _polyai_record(number, num_extra):
    """A record as PolyAI's scripts write them: with features of theirs, without `source`."""
    features = {
        "context": _feature(f"context {number} é"),
        "response": _feature(f"response {number} 😀"),
        "subreddit": _feature("tests"),
        "thread_id": _feature(f"thread{number}"),
        "context_author": _feature("a"),
        "response_author": _feature("b"),
        "file_id": _feature("lines-aaa"),
        "score": tf.train.Feature(int64_list=tf.train.Int64List(value=[7])),
    }
    features.update({f"context/{n}": _feature(f"extra {n} of {number}") for n in range(num_extra)})
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


@pytest.fixture
def polyai_folder(tmp_path):
    for shard in range(2):
        path = str(tmp_path / f"train-0000{shard}-of-00002.tfrecord")
        with tf.io.TFRecordWriter(path) as writer:
            for number in range(6):
                writer.write(_polyai_record(10 * shard + number, num_extra=2 * number))
    return tmp_path


def test_polyai_records_are_read(polyai_folder):
    contexts, responses = read_pairs(str(polyai_folder), "train")
    numbers = [*range(6), *range(10, 16)]
    assert [one.decode() for one in contexts] == [f"context {n} é" for n in numbers]
    assert [one.decode() for one in responses] == [f"response {n} 😀" for n in numbers]


@pytest.mark.parametrize("number", [0, 3, 5])
def test_extra_contexts_of_polyai_records(polyai_folder, number):
    serialized = list(tf.data.TFRecordDataset(list_shards(str(polyai_folder), "train")))[number]
    parsed = parse_examples(tf.stack([serialized]))
    expected = [f"extra {n} of {number}" for n in range(2 * number)] + [""] * (10 - 2 * number)
    assert [one.decode() for one in parsed["extra_contexts"][0].numpy()] == expected
    assert (parsed["source"].numpy()[0], parsed["subreddit"].numpy()[0]) == (b"", b"tests")


def test_what_we_write_is_read_with_tensorflow_alone(tmp_path):
    turns = [f"turn number {n:02d}" for n in range(13)]
    (tmp_path / "chats.jsonl").write_text(
        json.dumps({"turns": turns, "id": "x", "source": "chats"})
    )
    shards = {"train": 1, "dev": 1, "test": 1}
    prepare(
        [],
        str(tmp_path / "data"),
        corpora={"dialogues": [str(tmp_path / "chats.jsonl")]},
        options=PrepareOptions(num_shards=shards),
    )
    (path,) = (tmp_path / "data").glob("*-00000-of-00001.tfrecord")
    text = tf.io.FixedLenFeature([], tf.string)
    optional = tf.io.FixedLenFeature([], tf.string, default_value="")
    names = ["context", "response", "subreddit", "thread_id", "context_author", "response_author"]
    spec = dict.fromkeys(names, text) | {"context/0": optional, "context/9": optional}
    found = {}
    for record in tf.data.TFRecordDataset(str(path)):
        parsed = {name: t.numpy() for name, t in tf.io.parse_single_example(record, spec).items()}
        found[parsed["response"].decode()] = parsed
    assert sorted(found) == turns[1:]
    assert found[turns[1]]["context/0"] == b""
    last = found[turns[12]]
    assert (last["context"], last["context/0"]) == (turns[11].encode(), turns[10].encode())
    assert last["context/9"] == turns[1].encode()
    assert last["thread_id"] == b"chats/x"
