"""Every option of encoders and rankers changes the behaviour of a run.

The runs are complete except for the training loop: the model takes two steps without a graph.
"""

import dataclasses
import functools
import re
from pathlib import Path

import pytest
from support import task_files
from support.commands import call_command
from support.model_cases import SMALL
from support.ranker_steps import write_candidates
from support.tiny_checkpoint import write_checkpoint
from support.token_corpus import write_corpus
from support.two_steps import observed_steps

from convert_tf.config.ranker import HeadConfig, RankerTraining, ranker_recipe
from convert_tf.training.encoder.losses import LOSSES
from convert_tf.training.encoder.options import EncoderTraining
from convert_tf.training.encoder.task import train
from convert_tf.training.ranker import task as ranker_training

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore:mixed_float16")

MODEL = dataclasses.replace(SMALL, max_relative_attention=(3,), side_layers=1, max_tokens=60)
BASE = {
    "encoder": {
        "steps": 40, "batch_size": 8, "eval_examples": 100, "precision": "float32",
        "learning_rate": 0.5, "scale_anneal_steps": 2,
    },
    "ranker": {
        "batch_size": 4, "learning_rate": 0.01, "warmup_steps": 0, "precision": "float32",
        "negatives_from": "given", "negatives": 3, "max_context_tokens": 30,
    },
}  # fmt: skip
POLY = {"head": "poly", "poly_variant": "first_m", "poly_codes": 4}
# Another value for each field, and the other options without which the field is not read.
OTHER_VALUES = {
    "encoder": {
        "steps": 80, "batch_size": 7, "micro_batch": 4, "optimizer": "adam", "learning_rate": 0.4,
        "final_learning_rate": 0.1, "warmup_steps": 3, "ranking": 0.5, "scale_start": 2.0,
        "scale_end": 30.0, "scale_anneal_steps": 20, "label_smoothing": 0.0, "l2": 0.01,
        "embedding_dropout": 0.5, "attention_dropout": 0.5, "precision": "mixed_bfloat16",
        "eval_examples": 200, "seed": 1, "data": "other", "train_examples": 30,
        "first_train_example": 30, "eval_splits": ("dev", "train"), "shuffle_buffer": 1,
        "turn_prefixes": True,
    },
    "ranker": {
        "head": "poly", "reduction": "mean", "reduction_tokens": 2, "poly_codes": 2,
        "poly_variant": "last_m", "scale": 2.0, "learn_scale": True, "separate_trunks": True,
        "max_context_tokens": 4, "max_candidate_tokens": 2, "negatives": 1,
        "negatives_from": "in_batch", "freeze": "embeddings", "trainable_blocks": 0,
        "max_examples": 9, "output_std": 0.3,
    },
}  # fmt: skip
NEEDS = {
    "turn_prefixes": {"multi_context": True},
    "poly_codes": POLY,
    "poly_variant": POLY,
    "trainable_blocks": {"freeze": "all_but_top_k"},
    "reduction_tokens": {"reduction": "first_m_mean"},
    "output_std": POLY,
}
# Options that other files in this folder test. The options of losses have their own files.
ELSEWHERE = {
    "eval_every", "checkpoint_every", "keep_checkpoints", "source_shares", "dev_data",
    "hard_negatives", "negatives_per_pair", "mask_duplicates", "utterances", "utterances_per_pair",
}  # fmt: skip
OF_LOSSES = {name for loss in LOSSES for name in loss.Options.defaults()}


def test_every_field_is_tried():
    fields = {*EncoderTraining.defaults(), *RankerTraining.defaults(), *HeadConfig.defaults()}
    tried = {*OTHER_VALUES["encoder"], *OTHER_VALUES["ranker"]}
    assert tried | ELSEWHERE | OF_LOSSES == fields


def test_the_options_of_losses_are_tried():
    files = {*Path(__file__).parent.glob("test_*.py")} - {Path(__file__)}
    words = {word for file in files for word in re.findall(r"\w+", file.read_text())}
    assert OF_LOSSES - {*OTHER_VALUES["encoder"]} <= words


def test_a_resumed_ranker_keeps_what_its_weights_were_trained_to():
    kept = [
        name
        for config in (HeadConfig(), RankerTraining())
        for name in config.only_kept(dict.fromkeys(config.defaults()))
    ]
    assert kept == [
        "head", "reduction", "reduction_tokens", "poly_codes", "poly_variant", "learn_scale",
        "separate_trunks", "optimizer", "freeze", "trainable_blocks", "output_std",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def observed(tmp_path_factory):
    """Return a function that observes data and two steps of a run; it does each run once."""
    root = tmp_path_factory.mktemp("options")
    for name, number in (("data", 110), ("other", 111)):
        (root / name).mkdir()
        write_corpus(root / name, num_train=number, num_dev=200)
    write_checkpoint(root / "trunk", side_layers=1)
    write_candidates(root, train=12, dev=4)

    def train_encoder(output, *, multi_context=False, data="data", **options):
        train(
            dataclasses.replace(MODEL, multi_context=multi_context),
            EncoderTraining(**options, data=str(root / data / "records")),
            output=output,
            vocabulary=str(root / "data" / "vocab.txt"),
        )

    def train_ranker(output, **options):
        head = {name: options.pop(name) for name in HeadConfig.defaults() if name in options}
        data = {"data": str(root / "train.jsonl"), "dev_data": str(root / "dev.jsonl")}
        trunk = str(root / "trunk")
        if options["negatives_from"] == "in_batch":
            del options["negatives"]  # an option that these runs do not read
        ranker_training.train_ranker(
            HeadConfig(**head), {**data, **options}, init_from=trunk, output=output
        )

    def observe(run):
        return {
            "evaluated": run.evaluate(0, {}, []),
            "precision": run.model.encoder.dtype_policy.name,
            "steps": (run.config.steps, run.config.eval_every),
        }

    @functools.cache
    def run(kind, **options):
        start = train_encoder if kind == "encoder" else train_ranker
        output = str(tmp_path_factory.mktemp("run"))
        return observed_steps(lambda: start(output, **{**BASE[kind], **options}), observe)

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, values in OTHER_VALUES.items() for name in values]
)
def test_every_option_changes_something(observed, kind, name):
    needs = NEEDS.get(name, {})
    changed = observed(kind, **{**needs, name: OTHER_VALUES[kind][name]})
    assert changed != observed(kind, **needs)


@pytest.mark.slow
@pytest.mark.parametrize("kind", BASE)
def test_without_another_option_nothing_changes(observed, kind):
    """Runs with the same seed are equal, so the differences found above come from the options."""
    assert observed.__wrapped__(kind) == observed(kind)


def test_history_alone_is_trained_only_where_there_are_networks_of_it(observed):
    with pytest.raises(ValueError, match=r"--init_from must be an encoder .* Received: None"):
        observed("encoder", history_only=True, multi_context=True)


@pytest.mark.parametrize(
    ("make", "values", "rule"),
    [
        (EncoderTraining, {"batch_size": 8, "micro_batch": 3}, "micro_batch must divide"),
        (EncoderTraining, {"batch_size": 8, "micro_batch": 16}, "micro_batch must divide"),
        (EncoderTraining, {"ranking": 0.0}, "ranking must be greater than 0 if no other"),
        (
            EncoderTraining,
            {"history_only": True, "teacher": "x", "distillation": 1.0},
            "history_only cannot be",
        ),
        # Options that no loss reads, and a loss without the options that it needs.
        (EncoderTraining, {"ranking_teacher": "x"}, "ranking_teacher and ranking_distillation"),
        (EncoderTraining, {"ranking_distillation": 1.0}, "ranking_teacher and ranking_distil"),
        (EncoderTraining, {"teacher": "x"}, "teacher or utterance_teacher must"),
        (EncoderTraining, {"distillation": 1.0}, "teacher or utterance_teacher must"),
        (EncoderTraining, {"utterances": "x"}, "utterances must be set if"),
        (EncoderTraining, {"intent_contrast": 1.0}, "utterances must be set if"),
        (
            EncoderTraining,
            {"utterance_teacher": "x", "distillation": 1.0},
            "utterance_teacher must be set if",
        ),
        (
            EncoderTraining,
            {"utterances": "x", "teacher": "x", "distillation": 1.0},
            "utterance_teacher must be set if",
        ),
        (HeadConfig, {"head": "cross", "separate_trunks": True}, "separate_trunks"),
        (RankerTraining, {"negatives_from": "mined"}, "hard_negatives must be set if"),
        (RankerTraining, {"hard_negatives": "negatives"}, "hard_negatives must be set if"),
        (ranker_recipe, {"head": "cross"}, "negatives_from must not be in_batch"),
    ],
)
def test_values_that_cannot_be_are_named(make, values, rule):
    with pytest.raises(ValueError, match=rule):
        make(**values)


def test_options_without_effect_are_named_with_the_deciding_option():
    HeadConfig(head="poly").check_effect(["poly_codes", "scale"])
    with pytest.raises(ValueError, match="--poly_codes has no effect with --head=bi"):
        HeadConfig().check_effect(["poly_codes", "scale"])
    EncoderTraining(hard_negatives="x").check_effect(["negatives_per_pair"])
    with pytest.raises(ValueError, match=r"negatives_per_pair has no .* --hard_negatives=\."):
        EncoderTraining().check_effect(["negatives_per_pair"])


def _call(monkeypatch, *arguments) -> dict:
    called = {}

    def train_ranker(head, train, **kwargs):
        called.update(head=head, train=train, **kwargs)

    monkeypatch.setattr(ranker_training, "train_ranker", train_ranker)
    call_command("train", "--output=run", *arguments)
    return called


def test_flags_reach_the_run(monkeypatch):
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


def test_a_cross_encoders_negatives_come_from_its_data(tmp_path):
    files = {"data": "a.jsonl", "dev_data": "b.jsonl"}
    options = ranker_training.ranker_options("cross", files, init_from="runs/x")
    assert options.negatives_from == "given"
    options = ranker_training.ranker_options("cross", {"data": str(tmp_path)}, init_from="runs/x")
    assert (options.negatives_from, options.dev_data) == ("sampled", str(tmp_path))


def test_the_recipe_of_convai2_is_the_papers(monkeypatch):
    """Batches of 512, and 19 given negatives for cross-encoders (arXiv 1905.01969 §4.2, §5.1)."""
    for head, expected in (
        ("bi", (512, "in_batch", 15)),
        ("poly", (512, "in_batch", 15)),
        ("cross", (16, "given", 19)),
    ):  # fmt: skip
        config = ranker_recipe(head, recipe="convai2")
        assert (config.batch_size, config.negatives_from, config.negatives) == expected
        flags = (f"--head={head}", "--init_from=runs/x", "--data=a.jsonl", "--dev_data=b.jsonl")
        called = _call(monkeypatch, *flags, "--recipe=convai2", "--seed=3")
        assert (called["recipe"], called["train"]["seed"]) == ("convai2", 3)
        assert "negatives_from" not in called["train"]
        assert _call(monkeypatch, *flags)["recipe"] is None
    assert ranker_recipe("bi", recipe="convai2", batch_size=8).batch_size == 8


def test_the_default_warm_up_of_a_ranker_takes_at_most_a_fifth_of_one_pass():
    for head, options, number, expected in (
        ("bi", {}, 256, (1, 0)),
        ("bi", {}, 511, (1, 0)),
        ("bi", {}, 10_000, (39, 7)),
        ("bi", {}, 256_000, (1_000, 100)),
        ("cross", {"negatives_from": "given"}, 8_000, (500, 100)),
        ("bi", {"warmup_steps": 20}, 10_000, (39, 20)),
        ("bi", {"steps": 50}, 10_000, (50, 100)),
    ):
        config = ranker_recipe(head, **options)
        assert (config.warmup_steps, config.steps) == (
            options.get("warmup_steps", 1_000 if head == "cross" else 100),
            options.get("steps", 0),
        )
        config = config.of_examples(number, shortens_warmup="warmup_steps" not in options)
        assert (config.steps, config.warmup_steps) == expected
    assert ranker_recipe("bi") == RankerTraining()


TASK_FILES = {
    "convai2": task_files.convai2(),
    "dstc7": task_files.dstc7(task_files.dstc7_items()).splitlines(),
    "ubuntu": task_files.UBUNTU_TRAIN,
    "paper": task_files.wikiqa_txt(),
}


@pytest.mark.parametrize("recipe", TASK_FILES)
@pytest.mark.parametrize("head", ["bi", "poly", "cross"])
def test_a_file_of_a_task_has_its_recipe(tmp_path, head, recipe):
    path = tmp_path / "train.txt"
    path.write_text("\n".join(TASK_FILES[recipe]) + "\n", encoding="utf-8")
    files = {"data": str(path), "dev_data": "b.jsonl"}

    def options(recipe=None):
        return ranker_training.ranker_options(head, files, init_from="runs/x", recipe=recipe)

    assert options() == options(recipe)
    assert (options(recipe) != options("paper")) == (
        recipe == "convai2" or (head == "cross" and recipe != "paper")
    )


@pytest.mark.parametrize("name", ["dstc7", "ubuntu"])
def test_negatives_of_ubuntu_are_sampled_as_in_the_paper(tmp_path, name):
    """15 random negatives for cross-encoders (arXiv 1905.01969 §5.1), since train.csv has none."""
    path = tmp_path / "train.txt"
    path.write_text("\n".join(TASK_FILES[name]) + "\n", encoding="utf-8")
    files = {"data": str(path), "dev_data": "b.jsonl"}
    config = ranker_training.ranker_options("cross", files, init_from="runs/x")
    assert (config.negatives_from, config.negatives, config.batch_size) == ("sampled", 15, 16)
    given = {**files, "negatives_from": "given"}
    config = ranker_training.ranker_options("cross", given, init_from="runs/x")
    assert config.negatives_from == "given"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--head=bi", "--init_from=x", "--data=x", "--dev_data=x", "--recipe=small"],
            "not a preset",
        ),
        (["--poly_codes=3", "--data=x"], "--poly_codes has no effect without --head"),
        (["--head=bi", "--model=tiny", "--data=x"], "--model has no effect with --head"),
        (["--head=bi", "--data=x.jsonl"], "Training a head needs --init_from"),
        (
            ["--head=bi", "--poly_codes=3", "--data=x", "--dev_data=x", "--init_from=x"],
            "--poly_codes has no effect with --head=bi",
        ),
    ],
)
def test_flags_that_do_not_go_together_are_named(tmp_path, arguments, said):
    with pytest.raises(SystemExit, match=said):
        call_command("train", f"--output={tmp_path / 'run'}", *arguments)
