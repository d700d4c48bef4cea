import numpy as np
import pytest
import tensorflow as tf

from convert_tf.data.shards import MARK_EVERY, RecordIndex


def _write(path, number: int, *, first: int = 0) -> str:
    """Records of different lengths that say their number."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for index in range(first, first + number):
            writer.write(b"%d " % index + b"x" * (index * 7 % 50))
    return str(path)


@pytest.fixture
def paths(tmp_path):
    """Seven records and none, then as many as there is one mark for, and many."""
    numbers = [7, 0, MARK_EVERY, 3 * MARK_EVERY + 5]
    firsts = np.cumsum([0, *numbers])
    return [
        _write(tmp_path / f"{i}.tfrecord", number, first=int(first))
        for i, (number, first) in enumerate(zip(numbers, firsts, strict=False))
    ]


def _read(paths, extents) -> list[int]:
    """The numbers of the records, read one file after the other from its start."""
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
    ranges = [(0, 3), (5, 9), (6, 8), (index.num_records - 1, index.num_records), (4, 4), (0, 140)]
    starts, stops = np.array(ranges).T
    expected = [number for start, stop in ranges for number in range(start, min(stop, 140))]
    assert _read(paths, index.locate(starts, stops)) == expected


def test_nothing_is_found_for_nothing(paths):
    extents = RecordIndex(paths).locate(np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert [len(column) for column in extents] == [0, 0, 0, 0]


def test_file_that_ends_within_a_record_is_refused(tmp_path):
    path = _write(tmp_path / "a.tfrecord", 3)
    content = (tmp_path / "a.tfrecord").read_bytes()
    ends = [0]  # of the records: 16 bytes around each
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
