import errno
import json

import pytest
import tensorflow as tf
from support.record_files import read_examples, read_pairs

from convert_tf.corpora.local import prepare
from convert_tf.corpora.options import PrepareOptions
from convert_tf.data.records import write_shards
from convert_tf.data.schema import Example
from convert_tf.data.shards import list_shards


def _example(number, num_extra=0):
    return Example(
        thread_id=f"thread {number}",
        response_id=str(number),
        subreddit="tests",
        context=f"context {number} é😀",
        response=f"response {number}",
        extra_contexts=tuple(f"extra {index} of {number}" for index in range(num_extra)),
        context_author="",
        response_author="someone",
    )


def _write(folder, split="train", num_shards=3, number=7):
    placed = ((split, n * num_shards // number, _example(n, n % 11)) for n in range(number))
    return write_shards(str(folder), placed, num_shards={split: num_shards})


def test_round_trip(tmp_path):
    assert _write(tmp_path, number=22) == {"train": 22}
    paths = list_shards(str(tmp_path), "train")
    assert paths == [str(tmp_path / f"train-{n:05d}-of-00003.tfrecord") for n in range(3)]
    read = read_examples(paths)
    assert len(read) == 22
    for n, one in enumerate(read):
        expected = _example(n, num_extra=n % 11)
        assert one["context"].decode() == expected.context
        assert one["response"].decode() == expected.response
        assert one["thread_id"].decode() == expected.thread_id
        extra = [text.decode() for text in one["extra_contexts"]]
        assert extra == [*expected.extra_contexts, *[""] * (10 - n % 11)]


def test_only_splits_with_examples_have_files_and_then_all_of_them(tmp_path):
    examples = [("train", 1, _example(0)), ("test", 2, _example(1)), ("test", 2, _example(2))]
    shards = {"train": 2, "dev": 1, "test": 4}
    written = write_shards(str(tmp_path), iter(examples), num_shards=shards)
    assert written == {"train": 1, "dev": 0, "test": 2}
    assert not list(tmp_path.glob("dev-*"))
    for split in ("train", "test"):
        paths = list_shards(str(tmp_path), split)
        assert len(paths) == shards[split]
        assert len(read_examples(paths)) == written[split]


class _FullDiskWriter(tf.io.TFRecordWriter):
    """On a disk that has room for one record."""

    room = 1

    def write(self, record):
        self.room -= 1
        if self.room < 0:
            raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")


class _FullAtCloseWriter(tf.io.TFRecordWriter):
    def close(self):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")


@pytest.mark.parametrize("writer", [_FullDiskWriter, _FullAtCloseWriter])
def test_a_full_disk_is_an_error_of_the_system(tmp_path, monkeypatch, writer):
    monkeypatch.setattr(tf.io, "TFRecordWriter", writer)
    with pytest.raises(OSError, match="No space left") as caught:
        _write(tmp_path, num_shards=1)
    assert caught.value.errno == errno.ENOSPC


def test_folder_without_the_split(tmp_path):
    _write(tmp_path, split="train")
    with pytest.raises(ValueError, match="of the split test") as caught:
        list_shards(str(tmp_path), "test")
    assert str(tmp_path) in str(caught.value)
    assert "convert-tf prepare" in str(caught.value)


def test_incomplete_and_mixed_sets_are_refused(tmp_path):
    _write(tmp_path, num_shards=3)
    lost = tmp_path / "train-00001-of-00003.tfrecord"
    lost.unlink()
    with pytest.raises(ValueError, match=f"are missing.*{lost.name}"):
        list_shards(str(tmp_path), "train")
    lost.touch()
    _write(tmp_path, num_shards=2)
    with pytest.raises(ValueError, match="left over"):
        list_shards(str(tmp_path), "train")


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


def test_polyai_records_are_read(tmp_path):
    for shard in range(2):
        path = str(tmp_path / f"train-0000{shard}-of-00002.tfrecord")
        with tf.io.TFRecordWriter(path) as writer:
            for number in range(6):
                writer.write(_polyai_record(10 * shard + number, num_extra=2 * number))
    contexts, responses = read_pairs(str(tmp_path), "train")
    numbers = [*range(6), *range(10, 16)]
    assert [one.decode() for one in contexts] == [f"context {n} é" for n in numbers]
    assert [one.decode() for one in responses] == [f"response {n} 😀" for n in numbers]
    for number, one in enumerate(read_examples(list_shards(str(tmp_path), "train"))[:6]):
        extra = [f"extra {n} of {number}" for n in range(2 * number)] + [""] * (10 - 2 * number)
        assert [text.decode() for text in one["extra_contexts"]] == extra
        assert (one["source"], one["subreddit"]) == (b"", b"tests")


def test_what_we_write_is_read_with_tensorflow_alone(tmp_path):
    """Nothing here is shared with the code that reads."""
    turns = [f"turn number {n:02d}" for n in range(13)]
    (tmp_path / "chats.jsonl").write_text(
        json.dumps({"turns": turns, "id": "x", "source": "chats"})
    )
    prepare(
        [],
        str(tmp_path / "data"),
        corpora={"dialogues": [str(tmp_path / "chats.jsonl")]},
        options=PrepareOptions(num_shards={"train": 1, "dev": 1, "test": 1}),
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
