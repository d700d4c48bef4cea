"""Every option of training, given two values, changes what a run does.

`train` is run whole but for its loop: the model takes two steps here, untraced.
"""

import dataclasses
import functools

import pytest
from support.model_cases import SMALL
from support.token_corpus import write_corpus
from support.two_steps import observed_steps

from convert_tf.config.train import EncoderTraining
from convert_tf.training.encoder import run as training

SMALL_MODEL = dataclasses.replace(SMALL, max_relative_attention=(3,), side_layers=1, max_tokens=60)
BASE = {
    "steps": 40,
    "batch_size": 8,
    "eval_examples": 100,
    "precision": "float32",
    "learning_rate": 0.5,
    "scale_anneal_steps": 2,
}

# Another value for each field.
OTHER_VALUES = {
    "steps": 80, "batch_size": 7, "micro_batch": 4, "optimizer": "adam", "learning_rate": 0.4,
    "final_learning_rate": 0.1, "warmup_steps": 3, "ranking": 0.5, "scale_start": 2.0,
    "scale_end": 30.0, "scale_anneal_steps": 20, "label_smoothing": 0.0, "l2": 0.01,
    "embedding_dropout": 0.5, "attention_dropout": 0.5, "precision": "mixed_bfloat16",
    "eval_examples": 200, "seed": 1, "data": "other", "train_examples": 30,
    "first_train_example": 30, "eval_splits": ("dev", "train"), "shuffle_buffer": 1,
    "turn_prefixes": True,
}  # fmt: skip
# Options whose effect other files of this folder show.
ELSEWHERE = {
    "eval_every", "checkpoint_every", "keep_checkpoints", "source_shares", "hard_negatives",
    "negatives_per_pair", "teacher", "ranking_teacher", "ranking_distillation", "distillation",
    "start_from_teacher", "mask_duplicates", "utterances", "utterance_teacher",
    "utterances_per_pair", "intent_contrast", "history_only",
}  # fmt: skip


def test_every_field_is_tried():
    fields = {field.name for field in dataclasses.fields(EncoderTraining)}
    assert {*OTHER_VALUES} | ELSEWHERE == fields


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two folders of records, and the vocabulary of both."""
    root = tmp_path_factory.mktemp("options")
    for name, number in (("data", 110), ("other", 111)):
        (root / name).mkdir()
        write_corpus(root / name, num_train=number, num_dev=200)
    return root


def _observe(folder, output, *, multi_context=False, data="data", **options) -> dict:
    """What `train` hands to the loop, and what two steps make of it."""

    def train():
        training.train(
            dataclasses.replace(SMALL_MODEL, multi_context=multi_context),
            EncoderTraining(**{**BASE, **options}, data=str(folder / data / "records")),
            output=str(output),
            vocabulary=str(folder / "data" / "vocab.txt"),
        )

    def observe(run):
        row = run.evaluate(0, {}, [])
        precision = run.model.encoder.dtype_policy.name
        return {"evaluated": row, "precision": precision}

    return observed_steps(train, observe)


@pytest.fixture(scope="module")
def base(folder, tmp_path_factory):
    """What a run without another option does, of a single- and of a multi-context model."""
    return functools.cache(
        lambda multi_context: _observe(
            folder, tmp_path_factory.mktemp("base"), multi_context=multi_context
        )
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:mixed_float16")
@pytest.mark.parametrize("name", OTHER_VALUES)
def test_every_option_changes_something(folder, base, tmp_path, name):
    multi_context = name == "turn_prefixes"
    options = {name: OTHER_VALUES[name], "multi_context": multi_context}
    assert _observe(folder, tmp_path, **options) != base(multi_context)


@pytest.mark.slow
def test_without_another_option_nothing_changes(folder, base, tmp_path):
    """Two runs with one seed do the same, so that the differences above mean something."""
    assert _observe(folder, tmp_path) == base(False)


def test_history_alone_is_trained_only_where_there_are_networks_of_it(folder, tmp_path):
    with pytest.raises(ValueError, match=r"come from --init_from, .* Received: None"):
        _observe(folder, tmp_path, history_only=True, multi_context=True)
    with pytest.raises(ValueError, match=r"history_only cannot be combined.*\(0.0, 1.0, 0.0\)"):
        EncoderTraining(history_only=True, distillation=1.0)
