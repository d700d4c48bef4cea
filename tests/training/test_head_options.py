"""Every option of a head, given two values, changes what a run does; what cannot go together."""

import functools
import json
from pathlib import Path

import pytest
from support.commands import call_command
from support.ranker_steps import write_candidates
from support.tiny_checkpoint import write_checkpoint
from support.two_steps import observed_steps

from convert_tf.config.head import HeadConfig, RankerTraining, ranker_recipe
from convert_tf.config.train import EncoderTraining
from convert_tf.training.ranker import run as ranker_training

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
POLY = {"head": "poly", "poly_variant": "first_m", "poly_codes": 4}

# Another value for each field, and what else must be set for the field to be read.
OTHER_VALUES = {
    "head": ("poly", {}),
    "reduction": ("mean", {}),
    "poly_codes": (2, POLY),
    "poly_variant": ("last_m", POLY),
    "scale": (2.0, {}),
    "learn_scale": (True, {}),
    "separate_trunks": (True, {}),
    "max_context_tokens": (4, {}),
    "max_candidate_tokens": (2, {}),
    "negatives": (1, {}),
    "negatives_from": ("in_batch", {}),
    "freeze": ("embeddings", {}),
    "trainable_blocks": (0, {"freeze": "all_but_top_k"}),
    "max_examples": (9, {}),
}
BASE = {
    "batch_size": 4, "learning_rate": 0.01, "warmup_steps": 0, "precision": "float32",
    "negatives_from": "given", "negatives": 3, "max_context_tokens": 30,
}  # fmt: skip


def test_every_field_is_tried():
    own = RankerTraining.defaults().keys() - EncoderTraining.defaults().keys()
    # See test_ranker_training.py and test_hard_negatives.py.
    elsewhere = {"dev_data"}
    assert set(OTHER_VALUES) | elsewhere == own | HeadConfig.defaults().keys()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("head_options")
    write_checkpoint(root / "trunk", side_layers=1)
    write_candidates(root, train=12, dev=4)
    return root


_DATA = {"data": "train", "dev_data": "dev"}


def _observe(folder, output, values: dict) -> dict:
    """What `train_ranker` hands to the loop, and what two steps make of it."""
    values = {**BASE, **values}
    head = {name: values.pop(name) for name in HeadConfig.defaults() if name in values}
    data = {name: str(folder / f"{split}.jsonl") for name, split in _DATA.items()}

    def train():
        ranker_training.train_ranker(
            HeadConfig(**head),
            {**data, **values},
            init_from=str(folder / "trunk"),
            output=str(output),
        )

    return observed_steps(train, lambda run: {"steps": (run.config.steps, run.config.eval_every)})


@pytest.fixture(scope="module")
def base(folder, tmp_path_factory):
    """What a run with given further options, as JSON, does; each run once."""
    return functools.cache(
        lambda values: _observe(folder, tmp_path_factory.mktemp("base"), json.loads(values))
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHER_VALUES)
def test_every_option_changes_something(folder, base, tmp_path, name):
    value, needs = OTHER_VALUES[name]
    assert _observe(folder, tmp_path, {**needs, name: value}) != base(json.dumps(needs))


@pytest.mark.slow
def test_without_another_option_nothing_changes(folder, base, tmp_path):
    assert _observe(folder, tmp_path, {}) == base("{}")


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"head": "cross", "separate_trunks": True}, "separate_trunks"),
        ({"negatives_from": "mined"}, "hard_negatives must name a folder"),
        ({"hard_negatives": "negatives"}, "hard_negatives must name a folder"),
    ],
)
def test_values_that_cannot_be_are_named(values, rule):
    config = RankerTraining if values.keys() <= RankerTraining.defaults().keys() else HeadConfig
    with pytest.raises(ValueError, match=rule):
        config(**values)


def test_a_cross_encoder_has_no_negatives_in_its_batch():
    with pytest.raises(ValueError, match="negatives_from must not be in_batch"):
        ranker_recipe("cross")


@pytest.mark.parametrize(
    ("values", "ignored"),
    [
        ({"head": "bi", "poly_codes": 3}, ["poly_codes"]),
        ({"negatives": 4}, ["negatives"]),
        ({"head": "poly", "poly_codes": 3, "scale": 2.0}, []),
        ({"head": "cross", "scale": 2.0}, ["scale"]),
        ({"freeze": "embeddings", "trainable_blocks": 2}, ["trainable_blocks"]),
    ],
)
def test_options_that_nothing_reads_are_found(values, ignored):
    config = HeadConfig if "head" in values else RankerTraining
    assert list(config(**values).unread(list(values))) == ignored


def _call(monkeypatch, *arguments) -> dict:
    called = {}

    def train_ranker(head, train, **kwargs):
        called.update(head=head, train=train, **kwargs)

    monkeypatch.setattr(ranker_training, "train_ranker", train_ranker)
    call_command("train", "--output=run", *arguments)
    return called


def test_flags_reach_the_run(folder, monkeypatch):
    head = {"head": "poly", "poly_codes": 16, "poly_variant": "first_m"}
    train = {
        "data": "a.jsonl", "dev_data": "b.jsonl", "negatives_from": "given", "negatives": 3,
        "freeze": "all_but_top_k", "trainable_blocks": 2, "learning_rate": 0.001, "steps": 7,
    }  # fmt: skip
    flags = [f"--{name}={value}" for name, value in {**head, **train}.items()]
    called = _call(monkeypatch, *flags, "--init_from=runs/x")
    assert called["head"] == HeadConfig(**head)
    assert called["train"] == train
    assert called["init_from"] == "runs/x"


def test_a_cross_encoders_negatives_come_from_its_data(folder, monkeypatch):
    common = ("--head=cross", "--init_from=runs/x")
    given = _call(monkeypatch, *common, "--data=a.jsonl", "--dev_data=b.jsonl")
    assert given["train"]["negatives_from"] == "given"
    sampled = _call(monkeypatch, *common, f"--data={folder}")
    assert sampled["train"]["negatives_from"] == "sampled"
    assert sampled["train"]["dev_data"] == str(folder)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--poly_codes=3", "--data=x"], "--poly_codes has no effect without --head"),
        (["--head=bi", "--model=tiny", "--data=x"], "--model has no effect with --head"),
        (["--head=bi", "--data=x.jsonl"], "A head is trained with --init_from"),
        (
            ["--head=bi", "--poly_codes=3", "--data=x", "--dev_data=x", "--init_from=x"],
            "--poly_codes has no effect with --head=bi",
        ),
    ],
)
def test_flags_that_do_not_go_together_are_named(monkeypatch, arguments, said):
    with pytest.raises(SystemExit, match=said):
        _call(monkeypatch, *arguments)
