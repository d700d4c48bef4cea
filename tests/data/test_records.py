import errno
import json

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from support.record_files import read_examples, read_pairs

from convert_tf.corpora.local import prepare
from convert_tf.corpora.options import PrepareOptions
from convert_tf.data.records import write_shards
from convert_tf.data.schema import EXTRA_FEATURES, Example
from convert_tf.data.shards import (
    MARK_EVERY,
    RecordIndex,
    in_record_file,
    list_shards,
    serialize_example,
)


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
    write_shards(str(folder), placed, num_shards={split: num_shards})


def test_round_trip(tmp_path):
    _write(tmp_path, number=22)
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
    write_shards(str(tmp_path), iter(examples), num_shards=shards)
    assert not list(tmp_path.glob("dev-*"))
    for split, number in (("train", 1), ("test", 2)):
        paths = list_shards(str(tmp_path), split)
        assert len(paths) == shards[split]
        assert len(read_examples(paths)) == number


class _FullDiskWriter(tf.io.TFRecordWriter):
    """Simulates a disk with room for one record."""

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


def test_examples_that_are_not_sorted_by_shard_are_refused(tmp_path):
    shards = [("train", shard, _example(shard)) for shard in (0, 1, 0)]
    with pytest.raises(ValueError, match="an example for shard 0 of train"):
        write_shards(str(tmp_path), shards, num_shards={"train": 2})


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
    """Return a record as PolyAI's scripts write it, with their features and no `source`."""
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
    """The records can be parsed with TensorFlow, without code from the reader."""
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


def _write_lengths(path, number: int, *, first: int = 0) -> str:
    """Write records of different lengths that contain their number."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for index in range(first, first + number):
            writer.write(b"%d " % index + b"x" * (index * 7 % 50))
    return str(path)


@pytest.fixture
def paths(tmp_path):
    """Files with seven records, none, as many as there are between marks, and many."""
    numbers = [7, 0, MARK_EVERY, 3 * MARK_EVERY + 5]
    firsts = np.cumsum([0, *numbers])
    return [
        _write_lengths(tmp_path / f"{i}.tfrecord", number, first=int(first))
        for i, (number, first) in enumerate(zip(numbers, firsts, strict=False))
    ]


def _read(paths, extents) -> list[int]:
    """Return the numbers of the records in these extents, read with TensorFlow."""
    found = []
    for file, offset, skip, count in zip(*extents, strict=True):
        with open(paths[file], "rb") as source, open(f"{paths[file]}.rest", "wb") as rest:
            source.seek(offset)
            rest.write(source.read())
        records = list(tf.data.TFRecordDataset(f"{paths[file]}.rest").as_numpy_iterator())
        found += [int(record.split()[0]) for record in records[skip : skip + count]]
    return found


def test_records_are_counted_and_found(paths):
    index = RecordIndex(paths)
    assert index.num_records == 7 + 4 * MARK_EVERY + 5
    assert index.locate(np.zeros(0, np.int64), np.zeros(0, np.int64)).shape == (4, 0)
    ranges = [(0, 3), (5, 9), (6, 8), (index.num_records - 1, index.num_records), (4, 4), (0, 140)]
    starts, stops = np.array(ranges).T
    expected = [number for start, stop in ranges for number in range(start, min(stop, 140))]
    assert _read(paths, index.locate(starts, stops)) == expected


def test_file_that_ends_within_a_record_is_refused(tmp_path):
    path = _write_lengths(tmp_path / "a.tfrecord", 3)
    content = (tmp_path / "a.tfrecord").read_bytes()
    ends = [0]  # of the records, each with 16 more bytes
    for index in range(3):
        ends.append(ends[-1] + 16 + len(b"%d " % index) + index * 7 % 50)
    assert ends[-1] == len(content)
    for size in range(len(content)):
        (tmp_path / "a.tfrecord").write_bytes(content[:size])
        if size in ends:
            assert RecordIndex([path]).num_records == ends.index(size)
        else:
            with pytest.raises(ValueError, match=rf"a.tfrecord' is incomplete: its {size} bytes"):
                RecordIndex([path])


@pytest.mark.parametrize("content", [b"no record at all", b"\xff" * 40, b"\0", b"\xff" * 8])
def test_what_is_no_record_is_refused(tmp_path, content):
    (tmp_path / "a.tfrecord").write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.tfrecord.*incomplete"):
        RecordIndex([str(tmp_path / "a.tfrecord")])


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


@given(st.tuples(*[TEXT] * 5), st.lists(TEXT, max_size=10))
def test_an_example_is_serialised_as_by_tensorflow(texts, extra_contexts):
    context, response, subreddit, thread_id, author = texts
    example = Example(
        thread_id, "id", subreddit, context, response, tuple(extra_contexts), author, "b", "source"
    )
    record = tf.train.Example()
    feature = record.features.feature
    for name, text in zip(EXTRA_FEATURES, extra_contexts, strict=False):
        feature[name].bytes_list.value.append(text.encode())
    for name in ("context", "response", "subreddit", "thread_id", "source"):
        feature[name].bytes_list.value.append(getattr(example, name).encode())
    feature["context_author"].bytes_list.value.append(author.encode())
    feature["response_author"].bytes_list.value.append(b"b")
    assert serialize_example(example) == record.SerializeToString(deterministic=True)


def test_a_file_is_framed_as_by_tensorflow(tmp_path):
    pytest.importorskip("google_crc32c")
    records = [b"", b"a", bytes(range(256)) * 300]
    with tf.io.TFRecordWriter(str(tmp_path / "file")) as writer:
        for record in records:
            writer.write(record)
    assert (tmp_path / "file").read_bytes() == b"".join(map(in_record_file, records))
