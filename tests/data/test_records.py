import errno

import pytest
import tensorflow as tf
from support.record_files import read_examples

from convert_tf.data.records import ExampleWriter, write_shards
from convert_tf.data.schema import Example
from convert_tf.data.shards import list_shards, record_files


def _example(name, num_extra=0):
    return Example(
        thread_id=f"thread {name}",
        response_id=name,
        subreddit="tests",
        context=f"context {name} é😀",
        response=f"response {name}",
        extra_contexts=tuple(f"extra {index} of {name}" for index in range(num_extra)),
        context_author="",
        response_author="someone",
    )


def _write(folder, split="train", num_shards=3, number=7):
    with ExampleWriter(str(folder), split, num_shards=num_shards) as writer:
        for n in range(number):
            writer.write(n * num_shards // number, _example(str(n), num_extra=n % 11))
    return [f"{split}-{n:05d}-of-{num_shards:05d}.tfrecord" for n in range(num_shards)]


def test_round_trip(tmp_path):
    names = _write(tmp_path, number=22)
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    paths = list_shards(str(tmp_path), "train")
    assert paths == [str(tmp_path / name) for name in names]
    read = read_examples(paths)
    assert len(read) == 22
    for n, one in enumerate(read):
        expected = _example(str(n), num_extra=n % 11)
        assert one["context"].decode() == expected.context
        assert one["response"].decode() == expected.response
        assert one["thread_id"].decode() == expected.thread_id
        extra = [text.decode() for text in one["extra_contexts"]]
        assert extra == [*expected.extra_contexts, *[""] * (10 - n % 11)]


def test_schema_is_that_of_polyai_and_a_source(tmp_path):
    _write(tmp_path, num_shards=1, number=11)
    serialized = list(tf.data.TFRecordDataset(list_shards(str(tmp_path), "train")))
    present = [set(tf.train.Example.FromString(one.numpy()).features.feature) for one in serialized]
    always = {
        "context",
        "response",
        "subreddit",
        "thread_id",
        "context_author",
        "response_author",
        "source",
    }
    assert present == [always | {f"context/{index}" for index in range(n)} for n in range(11)]
    spec = {
        "context": tf.io.FixedLenFeature([], tf.string),
        "context/0": tf.io.FixedLenFeature([], tf.string),
        "context/9": tf.io.FixedLenFeature([], tf.string),
    }
    parsed = tf.io.parse_single_example(serialized[10], spec)
    assert parsed["context"].numpy().decode() == "context 10 é😀"
    assert parsed["context/0"].numpy() == b"extra 0 of 10"
    assert parsed["context/9"].numpy() == b"extra 9 of 10"


def test_shards_without_examples_are_written_too(tmp_path):
    with ExampleWriter(str(tmp_path), "dev", num_shards=4) as writer:
        writer.write(2, _example("only"))
    paths = list_shards(str(tmp_path), "dev")
    assert len(paths) == 4
    assert len(read_examples(paths)) == 1


def test_split_without_examples_has_no_files(tmp_path):
    with ExampleWriter(str(tmp_path), "dev", num_shards=4):
        pass
    assert list(tmp_path.iterdir()) == []


def test_nothing_has_its_final_name_before_the_end(tmp_path):
    with ExampleWriter(str(tmp_path), "train", num_shards=2) as writer:
        writer.write(0, _example("a"))
        writer.write(1, _example("b"))
        assert record_files(str(tmp_path)) == []
    assert len(record_files(str(tmp_path))) == 2


def test_failure_leaves_no_file(tmp_path):
    with (
        pytest.raises(KeyError),
        ExampleWriter(str(tmp_path), "train", num_shards=2) as writer,
    ):
        writer.write(1, _example("a"))
        raise KeyError
    assert list(tmp_path.iterdir()) == []


class _FullDiskWriter:
    """A TFRecordWriter on a disk that has room for one record, or for none at close."""

    room = 1

    def __init__(self, path):
        self.left = self.room
        open(path, "wb").close()

    def write(self, record):
        self.left -= 1
        if self.left < 0:
            raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    def close(self):
        if self.left < 0 or self.room == 0:
            raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")


class _FullAtCloseWriter(_FullDiskWriter):
    room = 0

    def write(self, record):
        pass


@pytest.mark.parametrize("writer", [_FullDiskWriter, _FullAtCloseWriter])
def test_full_disk_leaves_no_file(tmp_path, monkeypatch, writer):
    monkeypatch.setattr(tf.io, "TFRecordWriter", writer)
    examples = [("train", 0, _example("a")), ("train", 0, _example("b"))]
    with pytest.raises(OSError, match="No space left") as caught:
        write_shards(str(tmp_path), iter(examples), num_shards={"train": 2})
    assert caught.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("shard", [0, 3])
def test_shards_come_in_order(tmp_path, shard):
    with (
        pytest.raises(ValueError, match=rf"Received: shard {shard} after shard 1"),
        ExampleWriter(str(tmp_path), "train", num_shards=3) as writer,
    ):
        writer.write(1, _example("a"))
        writer.write(shard, _example("b"))


def test_write_shards_counts_by_split(tmp_path):
    examples = [
        ("train", 0, _example("a")),
        ("train", 1, _example("b")),
        ("test", 0, _example("c")),
    ]
    written = write_shards(
        str(tmp_path), iter(examples), num_shards={"train": 2, "dev": 1, "test": 1}
    )
    assert written == {"train": 2, "dev": 0, "test": 1}
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "test-00000-of-00001.tfrecord",
        "train-00000-of-00002.tfrecord",
        "train-00001-of-00002.tfrecord",
    ]


def test_folder_without_the_split(tmp_path):
    _write(tmp_path, split="train")
    with pytest.raises(ValueError, match="of the split test") as caught:
        list_shards(str(tmp_path), "test")
    assert str(tmp_path) in str(caught.value)
    assert "convert-tf prepare" in str(caught.value)
    with pytest.raises(ValueError, match="There is no split 'valid'"):
        list_shards(str(tmp_path), "valid")


def test_incomplete_and_mixed_sets_are_refused(tmp_path):
    names = _write(tmp_path, num_shards=3)
    (tmp_path / names[1]).unlink()
    with pytest.raises(ValueError, match=f"{names[1]} is missing"):
        list_shards(str(tmp_path), "train")
    _write(tmp_path, num_shards=3)
    assert len(list_shards(str(tmp_path), "train")) == 3
    _write(tmp_path, num_shards=2)
    with pytest.raises(ValueError, match="left over"):
        list_shards(str(tmp_path), "train")
