"""Fine-tuning encoders on a few examples of each intent."""

import itertools
import json
import shutil

import keras
import numpy as np
import pytest
from support.commands import call_command
from support.intent_examples import LABELS, OUTSIDE, TEXTS, write_csv
from support.tiny_checkpoint import write_checkpoint

from convert_tf.checkpoints.folder import load_checkpoint
from convert_tf.encoding.sentence_encoder import SentenceEncoder
from convert_tf.export.hub.writing import export_module
from convert_tf.intents import finetuning
from convert_tf.intents.classifier import IntentClassifier
from convert_tf.intents.encodings import encode_function
from convert_tf.intents.finetuning import (
    FewShotTuner,
    FineTuning,
    balanced_batches,
    number_of_steps,
)
from convert_tf.intents.folder import MODEL_FILE
from convert_tf.intents.head import train_logistic
from convert_tf.models.losses import intent_losses
from convert_tf.numerics import tensorflow_cpu
from convert_tf.numerics.vectors import unit_rows
from convert_tf.training import loop
from convert_tf.training.loop import NonFiniteError

Y = np.unique(LABELS, return_inverse=True)[1]
ALL = np.arange(len(TEXTS))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A checkpoint with more blocks than are trained."""
    folder = tmp_path_factory.mktemp("finetuning") / "checkpoint"
    write_checkpoint(folder, seed=0)
    return folder


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(finetuning, "_TRAINED_BLOCKS", 1)
    monkeypatch.setattr(finetuning, "_LEAST_STEPS", 30)
    monkeypatch.setattr(finetuning, "_LEARNING_RATE", 3e-3)


def make(checkpoint, precision="float32"):
    return FewShotTuner(checkpoint, TEXTS, precision=precision, seed=0)


def unit_encodings(checkpoint):
    return unit_rows(SentenceEncoder(checkpoint, compute_dtype="float32").encode(TEXTS))


def contrast(encodings):
    return float(np.mean(intent_losses(encodings, Y, Y, scale=10.0)[0]))


def test_batches_hold_as_many_examples_of_each_intent():
    labels = np.repeat(np.arange(40), np.arange(40) % 5 + 1)
    batches = [*itertools.islice(balanced_batches(labels, np.random.default_rng(0)), 50)]
    for batch in batches:
        counts = np.unique(labels[batch], return_counts=True)[1]
        assert counts.tolist() == [2] * 32
    seen = np.bincount(labels[np.concatenate(batches)])
    assert seen.max() - seen.min() <= 4, "Intents repeat only after all others were used."
    few = next(balanced_batches(labels[:3], np.random.default_rng(0)))
    assert np.bincount(labels[few]).tolist() == [32, 32]
    assert (number_of_steps(5), number_of_steps(770), number_of_steps(10**6)) == (60, 144, 1000)


@pytest.mark.slow
def test_in_16_bits_parts_of_a_step_are_compiled(checkpoint, quick, monkeypatch):
    traced, compute = [], tensorflow_cpu._silu
    monkeypatch.setattr(tensorflow_cpu, "_silu", lambda *args: traced.append(1) or compute(*args))
    exact = make(checkpoint)
    exact.train(Y, ALL)
    assert not traced
    halved = make(checkpoint, precision="mixed_bfloat16")
    halved.train(Y, ALL)
    assert traced
    cosines = np.sum(exact.encodings() * halved.encodings(), axis=1)
    moved = np.sum(exact.encodings() * unit_encodings(checkpoint), axis=1)
    assert cosines.mean() > moved.mean()  # nearer to each other than to the initial encodings


def test_frozen_encodings_are_those_of_the_checkpoint(checkpoint):
    expected = unit_encodings(checkpoint)
    np.testing.assert_allclose(make(checkpoint).encodings(), expected, atol=1e-4)


@pytest.mark.slow
def test_only_the_upper_blocks_and_the_reduction_are_trained(checkpoint, quick, tmp_path):
    encoder = make(checkpoint)
    facts = encoder.train(Y, ALL)
    assert facts["steps"] == 30
    encoder.save(tmp_path / "tuned", facts)
    old, new = (load_checkpoint(each)[0] for each in (checkpoint, tmp_path / "tuned"))
    before, after = (
        [each.trunk.embedding, *each.trunk.blocks, each.reduction, each.context_side]
        for each in (old, new)
    )
    changed = [
        any((np.array(a) != np.array(b)).any() for a, b in zip(x.weights, y.weights, strict=True))
        for x, y in zip(before, after, strict=True)
    ]
    assert changed == [False] * len(old.trunk.blocks) + [True, True, False]
    np.testing.assert_allclose(make(tmp_path / "tuned").encodings(), encoder.encodings(), atol=1e-4)
    training = json.loads((tmp_path / "tuned" / "training.json").read_text())
    assert training["intent_finetuning"] == facts


@pytest.mark.slow
def test_intents_move_apart_and_each_training_begins_anew(checkpoint, quick):
    encoder = make(checkpoint)
    first = encoder.encodings()
    encoder.train(Y, ALL)
    tuned = encoder.encodings()
    assert contrast(tuned) < 0.7 * contrast(first)
    encoder.train(Y[Y < 2], ALL[Y < 2])
    assert np.abs(encoder.encodings() - tuned).max() > 0.01
    encoder.train(Y, ALL)
    np.testing.assert_allclose(encoder.encodings(), tuned, atol=1e-4)


def test_weights_keep_a_share_of_their_way(checkpoint, quick, monkeypatch):
    def weights(share):
        monkeypatch.setattr(finetuning, "_SHARE", share)
        encoder = make(checkpoint)
        encoder.train(Y, ALL)
        return [np.array(own) for own in encoder.encoder.trainable_variables]

    for start, end, between in zip(*map(weights, (0.0, 1.0, 0.75)), strict=True):
        np.testing.assert_allclose(between, start + 0.75 * (end - start), atol=1e-5)
        assert np.abs(end - start).max() > 0


def test_a_diverging_training_stops(checkpoint, quick, monkeypatch):
    monkeypatch.setattr(finetuning, "_LEARNING_RATE", 1e30)
    with pytest.raises(NonFiniteError, match=r"step \d+\. Nothing was written\. .*--finetune"):
        make(checkpoint).train(Y, ALL)


class WithKeras(keras.Model):
    """Reference: the same network and loss with Keras's own `train_on_batch`."""

    def __init__(self, objective):
        super().__init__()
        self.objective = objective

    def call(self, inputs, training=False):
        return self.objective.outputs_of(inputs, training)

    def compute_loss(self, x=None, y=None, y_pred=None, *_, **__):
        return self.objective.loss_of(x, y_pred)


@pytest.mark.slow
def test_the_loop_takes_the_steps_of_keras(checkpoint, quick, tmp_path, monkeypatch):
    """Losses equal those of Keras, and a task in memory writes no files."""
    monkeypatch.chdir(tmp_path)
    losses, count = [], loop._Steps.count

    def noted(steps, batch, logs):
        count(steps, batch, logs)
        losses.append(float(logs["loss"]))
        steps.task.model.reset_metrics()

    monkeypatch.setattr(loop._Steps, "count", noted)
    tuner = make(checkpoint)
    tuner.train(Y, ALL)
    assert not [*tmp_path.iterdir()]
    tuner = make(checkpoint)
    task = FineTuning(tuner, Y, ALL, train_logistic(unit_rows(tuner.encodings()), Y))
    naive = WithKeras(task.model)
    rising = task.config.warmup_steps
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, len(losses) - rising, warmup_target=3e-3, warmup_steps=rising
    )
    naive.compile(optimizer=keras.optimizers.Adam(schedule), jit_compile=False)
    batches = itertools.islice(task.batches(0), len(losses))
    expected = [float(naive.train_on_batch(batch.inputs)) for batch in batches]
    np.testing.assert_allclose(losses, expected, rtol=1e-6)


def right(share):
    """Return 100 answers, of which the first `share` are correct."""
    return np.arange(100) < round(100 * share)


def give_shares(monkeypatch, *shares):
    """Replace the answers of the compared variants by these shares of correct ones, in order."""
    remaining = map(right, shares)

    def compare(tried):
        found = [next(remaining) for _ in tried]
        best = int(np.argmax([each.mean() for each in found]))
        return best, None, found[best]

    monkeypatch.setattr(finetuning, "most_right", compare)


def train(checkpoint, tmp_path, *arguments):
    data = write_csv(tmp_path / "train.csv", [*TEXTS, *OUTSIDE], [*LABELS, *["oos"] * 3])
    call_command(
        "intent", "train", "--finetune", f"--encoder={checkpoint}", f"--data={data}",
        f"--output={tmp_path / 'model'}", "--head=network", "--epochs=20", "--hidden_dim=8",
        "--precision=float32", "--out_of_scope=confidence", *arguments,
    )  # fmt: skip
    shutil.move(tmp_path / "model", tmp_path / "elsewhere")
    classifier = IntentClassifier.load(tmp_path / "elsewhere")
    assert classifier.encoder == str(tmp_path / "elsewhere" / "module")
    described = json.loads((tmp_path / "elsewhere" / MODEL_FILE).read_text())
    return classifier, described["facts"]["finetuning"]


@pytest.mark.slow
@pytest.mark.parametrize("is_validated", [False, True])
def test_a_tuned_model_holds_its_module(
    checkpoint, quick, tmp_path, capsys, monkeypatch, is_validated
):
    # For both heads with the frozen encoder, then with the fine-tuned one.
    give_shares(monkeypatch, 0.5, 0.4, 0.55, 0.6)
    arguments = [f"--validation={write_csv(tmp_path / 'dev.csv')}"] if is_validated else []
    classifier, facts = train(checkpoint, tmp_path, "--names=always", *arguments)
    printed = capsys.readouterr().out
    assert "50.00% with the frozen encoder and the network head, 60.00%" in printed
    assert "with the fine-tuned one and the logistic head" in printed
    assert "The encoder was trained in 30 steps" in printed
    assert classifier.names_ and facts["is_finetuned"]
    assert facts["examples"] == 12  # names are used for the head only
    assert classifier.head == "logistic"
    assert np.abs(classifier.encode(TEXTS) - unit_encodings(checkpoint)).max() > 0.01
    assert classifier.score(TEXTS, LABELS) > 0.7


@pytest.mark.slow
@pytest.mark.parametrize("is_module", [False, True])
def test_the_frozen_encoder_is_kept_where_it_is_better(
    checkpoint, quick, tmp_path, capsys, monkeypatch, is_module
):
    source = checkpoint
    if is_module:
        source = tmp_path / "module"
        export_module(checkpoint, source)
    give_shares(monkeypatch, 0.5, 0.6, 0.61, 0.5)  # one more in 100 is not enough
    classifier, facts = train(source, tmp_path)
    printed = capsys.readouterr().out
    assert "the frozen one is kept" in printed
    assert "was trained" not in printed
    assert not facts["is_finetuned"]
    assert classifier.head == "logistic"
    np.testing.assert_allclose(classifier.encode(TEXTS), unit_encodings(checkpoint), atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("best", "kind"),
    [
        *((5, "similarity"), (11, "similarity")),
        *((1, "sentence"), (7, "sentence")),
        *((3, "reduced"), (9, "reduced")),
    ],
)
def test_all_kinds_of_encodings_are_judged(quick, tmp_path, monkeypatch, best, kind):
    source = write_checkpoint(tmp_path / "similar", similarity_dim=9)
    # Three kinds of encodings with two heads, for the frozen and then for the fine-tuned encoder.
    give_shares(monkeypatch, *(float(place == best - 1) for place in range(12)))
    classifier, facts = train(source, tmp_path)
    assert facts["is_finetuned"] == (best > 6)
    assert (classifier.kind_, classifier.kind) == (kind, kind)
    encodings, reduced = classifier.encode(TEXTS), load_checkpoint(source)[0].config.reduced_dim
    assert encodings.shape == (len(TEXTS), 9 if kind == "similarity" else reduced)
    assert classifier.score(TEXTS, LABELS) > 0.7
    if best < 6:
        expected = unit_rows(encode_function(source, kind)(TEXTS))
        np.testing.assert_allclose(encodings, expected, atol=0.02)


@pytest.mark.slow
def test_what_is_tuned_is_what_the_saved_encoder_gives(quick, tmp_path):
    """Sentence encodings of a model with a similarity map agree before and after training."""
    source = write_checkpoint(tmp_path / "similar", similarity_dim=9)
    tuned = make(source)
    frozen = tuned.sentences(tuned.encodings())
    np.testing.assert_allclose(frozen, unit_encodings(source), atol=1e-4)
    tuned.save(tmp_path / "tuned", tuned.train(Y, ALL))
    found = tuned.sentences(tuned.encodings())
    np.testing.assert_allclose(found, unit_encodings(tmp_path / "tuned"), atol=1e-4)
    assert np.abs(found - frozen).max() > 1e-3


@pytest.mark.slow
def test_held_out_answers_are_of_encoders_that_did_not_see_them(
    checkpoint, quick, tmp_path, monkeypatch
):
    trained, judged = [], []
    train_encoder, compare = FewShotTuner.train, finetuning.most_right

    def spied_training(self, labels, places):
        trained.append(set(places.tolist()))
        return train_encoder(self, labels, places)

    def spied_comparison(tried):
        for _, _, _, folds in tried:
            judged.append([set(np.flatnonzero(fold.is_held).tolist()) for fold in folds])
        return compare(tried)

    monkeypatch.setattr(FewShotTuner, "train", spied_training)
    monkeypatch.setattr(finetuning, "most_right", spied_comparison)
    classifier, facts = train(checkpoint, tmp_path, "--names=always")
    assert classifier.names_ and facts["has_names"]
    everything = {*range(len(TEXTS))}
    assert facts["judged_examples"] == len(TEXTS)
    assert all(seen <= everything for seen in trained)  # names are not included
    assert all(parts == judged[-1] for parts in judged)
    assert set.union(*judged[-1]) == everything
    for seen, held in zip(trained, judged[-1], strict=False):
        assert seen == everything - held


@pytest.mark.parametrize("arguments", [["--tune"], ["--head=network", "--patience=5"]])
def test_choices_on_held_out_examples_are_refused(tmp_path, monkeypatch, arguments):
    """The encoder would be trained on these examples. Nothing is trained before the refusal."""

    def start(*_, **__):
        raise ValueError("The training starts.")

    monkeypatch.setattr(finetuning, "FewShotTuner", start)
    monkeypatch.setattr(finetuning, "choose_precision", str)
    (tmp_path / "run").mkdir()
    data = write_csv(tmp_path / "train.csv")
    command = (
        "intent", "train", "--finetune", f"--encoder={tmp_path / 'run'}", f"--data={data}",
        f"--output={tmp_path / 'model'}", *arguments,
    )  # fmt: skip
    with pytest.raises(SystemExit, match=r"need validation data .*Pass validation data \(--val"):
        call_command(*command)
    assert not (tmp_path / "model").exists()
    with pytest.raises(SystemExit, match="The training starts"):
        call_command(*command, f"--validation={data}")


@pytest.mark.parametrize(
    ("examples", "arguments", "message"),
    [
        (slice(None), ["--kind=similarity"], r"--kind=similarity needs an encoder with .*\. Fit a"),
        (
            slice(None),
            ["--head=network", "--learning_rate=nan"],
            r"learning_rate must be .* Received: nan",
        ),
        (slice(None, None, 4), [], "Each intent has only one distinct example"),
    ],
)
def test_what_cannot_be_tuned_is_refused(checkpoint, tmp_path, examples, arguments, message):
    data = write_csv(tmp_path / "train.csv", TEXTS[examples], LABELS[examples])
    with pytest.raises(SystemExit, match=message):
        call_command(
            "intent", "train", "--finetune", f"--encoder={checkpoint}", f"--data={data}",
            f"--output={tmp_path / 'model'}", *arguments,
        )  # fmt: skip
    assert not (tmp_path / "model").exists()
