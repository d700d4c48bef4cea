"""Data that is damaged, cut or deleted while a run reads it, and disks that fill up."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from support.damage import flip_a_bit
from support.full_disk import room_for
from support.token_corpus import NUM_OOV_BUCKETS
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from convert_tf.data.records import RecordFolder
from convert_tf.data.shards import RecordIndex
from convert_tf.data.token_arrays import ArrayFolder
from convert_tf.storage.files import FileWriteError
from convert_tf.training.summaries import EventFile

NUM_TRAIN = 80

SHARD = "train-00002-of-00003.tfrecord"
IDS = "train-response-ids.npy"


@pytest.fixture
def copy(corpus, tmp_path):
    """A copy of the records and of the token ids, to be damaged."""
    return corpus._replace(
        records=shutil.copytree(corpus.records, tmp_path / "records"),
        arrays=shutil.copytree(corpus.arrays, tmp_path / "ids"),
    )


def _cut(path: Path, share: float) -> None:
    with open(path, "r+b") as file:
        file.truncate(int(share * path.stat().st_size))


def _drop_the_last_records(path: Path) -> None:
    """As if the shard had been written anew, from fewer pairs: each record is whole."""
    _, offsets, _, _ = RecordIndex([str(path)]).locate(np.array([32]), np.array([33]))
    with open(path, "r+b") as file:
        file.truncate(int(offsets[0]))


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (Path.unlink, "No such file"),
        (lambda path: _cut(path, 0.5), "truncated record|corrupted record"),
        (lambda path: _cut(path, 0.0), "while it was read"),
        (flip_a_bit, "corrupted record"),
        (_drop_the_last_records, "while it was read. Put the files back"),
    ],
    ids=["deleted", "cut", "empty", "bit", "fewer"],
)
def test_a_shard_that_is_lost_is_refused(copy, damage, what):
    folder = RecordFolder(
        str(copy.records), vocabulary=copy.vocabulary, num_oov_buckets=NUM_OOV_BUCKETS
    )
    examples = folder.open("train", max_tokens=60)
    assert len(examples.load(np.arange(80))) == 80
    damage(copy.records / SHARD)
    with pytest.raises(ValueError, match=f"(?s){copy.records}.*({what})"):
        examples.load(np.arange(80))
    assert len(examples.load(np.arange(30))) == 30  # the other shards are whole


@pytest.mark.parametrize("name", [IDS, "train-context-offsets.npy"])
def test_an_array_that_is_cut_is_named(copy, name):
    """Reading on would end the process with SIGBUS."""
    examples = ArrayFolder(str(copy.arrays)).open("train", max_tokens=60)
    before = examples.token_ids(np.arange(80)).flat
    _cut(copy.arrays / name, 0.5)
    with pytest.raises(ValueError, match=rf"{name}.* of \d+ bytes are left.*convert-tf tokenize"):
        examples.token_ids(np.arange(80))
    assert len(before)


def test_an_array_that_is_deleted_or_replaced_is_read_to_the_end(copy):
    examples = ArrayFolder(str(copy.arrays)).open("train", max_tokens=60)
    before = examples.token_ids(np.arange(80))
    (copy.arrays / IDS).unlink()
    np.save(copy.arrays / IDS, np.zeros(3, np.uint16))
    after = examples.token_ids(np.arange(80))
    np.testing.assert_array_equal(before.flat, after.flat)
    with pytest.raises(ValueError, match="The token ids are damaged"):
        ArrayFolder(str(copy.arrays)).open("train", max_tokens=60)


def test_a_full_disk_is_said_by_whoever_writes_events(tmp_path):
    """With a real limit on the size of files."""
    events = EventFile(str(tmp_path))
    events.scalars(1, {"loss": 1.0})
    (path,) = tmp_path.iterdir()
    with (
        room_for(path.stat().st_size),
        pytest.raises(FileWriteError, match=r"Cannot write .*tfevents.*: File too large"),
    ):
        events.scalars(2, {"loss": 2.0})
    events.close()
    assert [event.step for event in EventFileLoader(str(path)).Load()] == [0, 1]
    with pytest.raises(FileWriteError, match="File exists"):
        EventFile(str(path))
