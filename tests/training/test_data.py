"""Training on records and token ids, without TensorFlow, and with data damaged during a run."""

import dataclasses
import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.commands import ROOT
from support.damage import flip_a_bit
from support.encoder_runs import CONFIG, MODEL, STANDING_STILL, rows_of, run
from support.full_disk import room_for
from support.token_corpus import NUM_OOV_BUCKETS
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from convert_tf.checkpoints import folder as checkpoint
from convert_tf.checkpoints.configs import load_config
from convert_tf.config.model import model_preset
from convert_tf.config.ranker import RankerTraining
from convert_tf.data import batches as batches_module
from convert_tf.data.records import RecordFolder
from convert_tf.data.shards import RecordIndex, list_shards
from convert_tf.data.token_arrays import ArrayFolder
from convert_tf.models.encoder import DualEncoder
from convert_tf.storage.files import FileWriteError
from convert_tf.training.encoder import data
from convert_tf.training.encoder.data import EncoderData, trained_examples
from convert_tf.training.encoder.evaluation import evaluate_encoder
from convert_tf.training.encoder.options import EncoderTraining
from convert_tf.training.mining import _opened, mine
from convert_tf.training.ranker.data import _mined_places
from convert_tf.training.summaries import EventFile

NUM_TRAIN = 80

# These runs take a few steps, for which tracing takes longer than computing.
pytestmark = pytest.mark.usefixtures("no_graphs")


def test_shares_of_sources_that_cannot_be_are_refused(corpus, tmp_path):
    with pytest.raises(ValueError, match=r"need token ids.*tokenize"):
        run(corpus.records, tmp_path / "run", vocabulary=corpus.vocabulary,
            source_shares=("forum=0",))  # fmt: skip
    with pytest.raises(ValueError, match=r"at least 30 examples, .* leaves 20\. Raise"):
        run(corpus.arrays, tmp_path / "run", batch_size=30, source_shares=("forum=0", "chat=0.0"))
    for wrong in ("forum", "=0.2", "forum=2", "forum=-1", "forum=x"):
        with pytest.raises(ValueError, match=r"numbers from 0 to 1, like forum=0\.5"):
            EncoderTraining(source_shares=(wrong,))
    with pytest.raises(ValueError, match=r"source_shares contains 'forum' twice"):
        EncoderTraining(source_shares=("forum=0.5", "forum=0.1"))


def test_what_is_trained_on_is_a_part_of_the_split(corpus):
    def numbers(**fields):
        config = dataclasses.replace(CONFIG, data=corpus.arrays, **fields)
        own = trained_examples(examples, config)
        return own.load(np.arange(own.num_examples)).tolist()

    examples = ArrayFolder(corpus.arrays).open("train", max_tokens=60)
    assert numbers() == list(range(80))
    assert numbers(train_examples=50) == list(range(50))
    assert numbers(train_examples=200) == list(range(80))
    assert numbers(first_train_example=30) == list(range(30, 80))
    assert numbers(first_train_example=30, train_examples=40) == list(range(30, 70))
    # The first and third of every four examples are from the forum.
    some = numbers(first_train_example=30, train_examples=40, source_shares=("forum=0.5",))
    assert len(some) == 30 and set(some) < set(range(30, 70))
    assert [k for k in some if k % 2] == list(range(31, 70, 2))


def test_token_ids_refuse_what_they_were_not_made_for(corpus, tmp_path):
    other = tmp_path / "vocab.txt"
    other.write_bytes(Path(corpus.vocabulary).read_bytes() + "﹏ab\n".encode())
    with pytest.raises(ValueError, match=r"vocabulary they were made with.*Omit --vocab"):
        run(corpus.arrays, tmp_path / "run", vocabulary=str(other))
    with pytest.raises(ValueError, match=r"Pass --num_oov_buckets=5"):
        run(corpus.arrays, tmp_path / "run", model=model_preset("tiny", num_oov_buckets=6))
    with pytest.raises(ValueError, match=r"cut to 60 tokens\. Tokenize again .* at least 64\. If"):
        run(corpus.arrays, tmp_path / "run", model=dataclasses.replace(MODEL, max_tokens=64))
    with pytest.raises(ValueError, match="no model to train"):
        run(corpus.arrays, tmp_path / "run", model=None)
    assert not (tmp_path / "run").exists()


def test_data_that_a_killed_run_moved_aside_are_named(tmp_path):
    folder = tmp_path / "data"
    work = tmp_path / ".data.new"
    (work / "replaced").mkdir(parents=True)
    (work / "moves.json").touch()
    ranker = RankerTraining(data=str(folder), negatives_from="mined", hard_negatives="x")
    for use in (
        lambda: list_shards(str(folder), "train"),
        lambda: data.open_folder(str(folder), "vocab.txt", 1),
        lambda: _opened(str(folder), "checkpoint"),
        lambda: _mined_places(None, ranker),
    ):
        with pytest.raises(ValueError, match="A killed run left the previous contents"):
            use()
    folder.mkdir()
    (folder / "train-00000-of-00002.tfrecord").touch()
    with pytest.raises(ValueError, match=r"left over .* A killed run left the previous"):
        list_shards(str(folder), "train")


def test_a_trained_model_keeps_its_hash_buckets(corpus, tmp_path):
    start = str(tmp_path / "start")
    model = model_preset("tiny", vocab_size=52, num_oov_buckets=6)
    checkpoint.save_checkpoint(start, DualEncoder(model), vocabulary=corpus.vocabulary, training={})
    again = r"have 5\. Write the token ids again .* tokenize --num_oov_buckets=6`"
    for given in (None, model, model_preset("tiny", num_oov_buckets=5)):
        with pytest.raises(ValueError, match=again):
            data.open_data(corpus.arrays, None, given, start)
    with pytest.raises(ValueError, match=again):
        mine(start, corpus.arrays, str(tmp_path / "negatives"))


@pytest.mark.slow
def test_fine_tuning_on_token_ids_keeps_the_vocabulary_and_starts_from_the_weights(
    corpus, tmp_path
):
    first = run(corpus.arrays, tmp_path / "first", vocabulary=corpus.vocabulary)
    tuned = run(corpus.arrays, tmp_path / "tuned", model=None, init_from=first, **STANDING_STILL)
    assert load_config(tuned) == load_config(first)
    start, end = (checkpoint.load_checkpoint(each)[0] for each in (first, tuned))
    for a, b in zip(start.trainable_variables, end.trainable_variables, strict=True):
        np.testing.assert_array_equal(np.array(a), np.array(b))
    assert checkpoint.training_facts(tuned)["initial_weights"] == str(first)
    copy = shutil.copytree(first, tmp_path / "copy")
    with open(copy / "vocab.txt", "ab") as file:
        file.write("﹏ab\n".encode())
    with pytest.raises(ValueError, match=r"vocabulary they were made with"):
        run(corpus.arrays, tmp_path / "other", model=None, init_from=copy)


@pytest.mark.parametrize("is_masked", [False, True])
def test_evaluation_leaves_out_copies_as_the_loss_does(corpus, is_masked):
    config = dataclasses.replace(CONFIG, data=corpus.arrays, mask_duplicates=is_masked)
    opened = EncoderData(MODEL, config, vocabulary=corpus.vocabulary, init_from=None)
    batches = opened.evaluation_batches()["dev"]
    assert [("response_groups" in batch) for batch in batches] == [is_masked] * len([*batches])
    assert 0 <= evaluate_encoder(DualEncoder(MODEL), batches)["R100@1"] <= 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["records", "arrays"])
def test_few_shapes_are_made_where_steps_are_compiled_for_each(corpus, tmp_path, monkeypatch, kind):
    for module in (data, batches_module):
        monkeypatch.setattr(module, "compiles_shapes", lambda: True)
    config = dataclasses.replace(CONFIG, data=getattr(corpus, kind), batch_size=30)
    opened = EncoderData(MODEL, config, vocabulary=corpus.vocabulary, init_from=None)
    batches, eval_sets = opened.batches(), opened.evaluation_batches()
    shapes = {batch["token_ids"].shape for batch in itertools.islice(batches, 20)}
    assert shapes == {(32, 64)}  # 60 texts of about 20 tokens
    assert all(len(batch["token_ids"]) % 32 == 0 for batch in eval_sets["dev"])


WITHOUT_TENSORFLOW = """
import runpy, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tensorflow", "tensorflow_text", "tf_keras", {also!r}):
            print("refused", name, file=sys.stderr)
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refuse())
runpy.run_path({script!r}, run_name="__main__")
"""


def _train_without_tensorflow(*arguments: str, also: str = "") -> subprocess.CompletedProcess:
    code = WITHOUT_TENSORFLOW.format(script=str(ROOT / "train.py"), also=also)
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "KERAS_BACKEND": "jax", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_jax_trains_evaluates_and_resumes_without_tensorflow(corpus, tmp_path):
    """TensorFlow is not even imported if installed, because it would reserve the GPU's memory."""
    arguments = [f"--data={corpus.arrays}", f"--output={tmp_path / 'run'}", "--model=tiny",
                 f"--num_oov_buckets={NUM_OOV_BUCKETS}", "--batch_size=20", "--eval_every=2",
                 "--checkpoint_every=2", "--eval_examples=100", "--precision=float32",
                 "--shuffle_buffer=32", "--max_relative_attention=3"]  # fmt: skip
    done = _train_without_tensorflow(*arguments, "--steps=2")
    assert done.returncode == 0, done.stderr
    assert "backend jax" in done.stdout
    assert "refused" not in done.stderr
    more = ("--steps=4", "--micro_batch=10")
    again = _train_without_tensorflow(*arguments, *more, also="tensorboard")
    assert again.returncode == 0, again.stderr
    assert "resuming with changed micro_batch: 0 → 10" in again.stdout
    assert "resuming at step 2" in again.stdout
    assert "no summaries are written" in again.stdout
    assert [row["step"] for row in rows_of(tmp_path / "run")] == [0, 2, 4]
    assert len(list((tmp_path / "run" / "logs").iterdir())) == 1
    # The run's result is an ordinary model.
    checkpoint.load_checkpoint(tmp_path / "run")


def test_records_without_tensorflow_are_refused_with_the_remedy(corpus, tmp_path):
    failed = _train_without_tensorflow(
        f"--data={corpus.records}", f"--output={tmp_path / 'run'}", "--model=tiny",
        f"--vocab={corpus.vocabulary}",
    )  # fmt: skip
    assert failed.returncode == 1
    assert "train.py: Cannot read the records in" in failed.stderr
    assert "convert-tf tokenize" in failed.stderr
    assert "Traceback" not in failed.stderr


NUM_TRAIN = 80

SHARD = "train-00002-of-00003.tfrecord"
IDS = "train-response-ids.npy"


@pytest.fixture
def copy(corpus, tmp_path):
    """A copy of the records and token ids, for tests that damage it."""
    return corpus._replace(
        records=shutil.copytree(corpus.records, tmp_path / "records"),
        arrays=shutil.copytree(corpus.arrays, tmp_path / "ids"),
    )


def _cut(path: Path, share: float) -> None:
    with open(path, "r+b") as file:
        file.truncate(int(share * path.stat().st_size))


def _drop_the_last_records(path: Path) -> None:
    """Remove records from the end, as if the shard had been rewritten from fewer pairs."""
    _, offsets, _, _ = RecordIndex([str(path)]).locate(np.array([32]), np.array([33]))
    with open(path, "r+b") as file:
        file.truncate(int(offsets[0]))


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (Path.unlink, "No such file"),
        (lambda path: _cut(path, 0.5), "truncated record|corrupted record"),
        (lambda path: _cut(path, 0.0), "while they were read"),
        (flip_a_bit, "corrupted record"),
        (_drop_the_last_records, "while they were read. Restore the files"),
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
    """A truncated array raises an error with its name instead of ending the process with SIGBUS."""
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
    """The event file reports a full disk, simulated by a real limit on file sizes."""
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
