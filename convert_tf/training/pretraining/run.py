"""A pre-training run of a BERT-shaped trunk, as `convert-tf pretrain` starts it.

Reference: arXiv 1905.01969 §4.1 ("Pre-training Procedure").
"""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from convert_tf.checkpoints import folder as checkpoint
from convert_tf.checkpoints.bert import load_bert
from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.checkpoints.vocabulary import check_same_vocabulary
from convert_tf.config.bert import BertConfig, bert_preset
from convert_tf.config.pretrain import Pretraining
from convert_tf.data.pretraining_batches import (
    START,
    Position,
    PretrainingBatches,
    evaluation_batches,
)
from convert_tf.data.schema import Examples
from convert_tf.figures import picture
from convert_tf.models.bert import BertTrunk
from convert_tf.numerics.devices import choose_precision
from convert_tf.numerics.initializers import set_seed
from convert_tf.training.encoder.sources import Folder, open_folder, share_of_unknown
from convert_tf.training.loop import Batch, Run
from convert_tf.training.pretraining.objective import PretrainingObjective, make_pretraining
from convert_tf.training.processes import ALONE
from convert_tf.training.run import carry_out, only_run_in

POSITION_KEY = "position"
LOSSES = ("masked_loss", "next_loss")
_DECIDES_ORDER = frozenset(
    ("seed", "data", "shuffle_buffer", "batch_tokens", "max_tokens", "all_turns")
)


def pretrain(
    config: Pretraining,
    *,
    output: str,
    model: str | None = None,
    overrides: dict[str, Any] | None = None,
    vocabulary: str | None = None,
    num_oov_buckets: int = 1_000,
    init_from: str | None = None,
) -> Path:
    """Pre-trains a trunk, or goes on with a run that was stopped.

    Args:
      config: how, and on what.
      output: the run's folder. When it holds checkpoints, training goes on from the newest.
      model: preset of the trunk; None takes the trunk of `init_from`.
      overrides: other fields of the preset.
      vocabulary: vocabulary file; None takes the one of `init_from` or of a folder of token ids.
      num_oov_buckets: ids that unknown tokens share; WordPiece has none.
      init_from: a BERT-shaped model directory, or a Hugging Face folder.

    Returns:
      `output`, a model directory.

    Raises:
      ValueError: bad data, another run in this folder, a vocabulary or model that does not match.
      FloatingPointError: the loss became NaN; the last checkpoint is kept.
      OSError: a file cannot be read or written.
    """
    run_folder = Path(output)
    with only_run_in(run_folder):
        set_seed(config.seed)
        precision = choose_precision(config.precision)
        if init_from is not None:
            if model is not None or overrides:
                raise ValueError(
                    "--init_from and a new model (--model or its options) cannot be combined. Omit "
                    "one of them."
                )
            trunk, own = load_bert(init_from, dropout=config.dropout, dtype=precision)
            vocabulary, num_oov_buckets = vocabulary or str(own), trunk.config.num_oov_buckets
            check_same_vocabulary(
                vocabulary,
                own,
                rule="A trained trunk keeps its vocabulary",
                remedy="Omit --vocab.",
            )
            folder = open_folder(config.data, vocabulary, num_oov_buckets)
        elif model is None:
            raise ValueError("Pre-training needs a model. Give --model or --init_from.")
        else:
            folder = open_folder(config.data, vocabulary, num_oov_buckets)
            trunk_config = _trunk_config(folder, model, overrides or {})
            trunk = BertTrunk(trunk_config, dropout=config.dropout, dtype=precision)
        return carry_out(make_run(trunk, folder, config, run_folder))


def _trunk_config(folder: Folder, model: str, overrides: dict[str, Any]) -> BertConfig:
    """The preset for the folder's vocabulary; WordPiece brings its special tokens."""
    if folder.tokenizer_name == "wordpiece":
        lines = folder.vocabulary.read_text(encoding="utf-8").split("\n")
        for field, token in (
            ("start_id", "[CLS]"), ("separator_id", "[SEP]"), ("mask_id", "[MASK]")
        ):  # fmt: skip
            overrides = {field: lines.index(token), **overrides}
    return bert_preset(
        model,
        vocab_size=folder.vocab_size,
        num_oov_buckets=folder.num_oov_buckets,
        tokenizer=folder.tokenizer_name,
        **overrides,
    )


def make_run(trunk: BertTrunk, data: Folder, config: Pretraining, folder: Path) -> Run:
    """The run of a trunk.

    The best weights are those of the lowest sum of both losses on the evaluation split.

    Args:
      trunk: with its initial weights.
      data: what is trained on.
      config: how.
      folder: the run's folder.
    """
    precision = trunk.dtype_policy.name
    parameters = sum(math.prod(v.shape) for v in trunk.trainable_variables)
    print(f"precision {precision}; {parameters / 1e6:.1f} M parameters in the trunk")
    model = make_pretraining(trunk, config, precision=precision)
    joins_turns = config.all_turns and kind_of(config.data) is not Kind.TOKEN_IDS
    if config.all_turns and not joins_turns:
        print("token ids do not say where a turn ends: a context is its last turn")

    def opened(split: str) -> Examples:
        options = {"joins_turns": True} if joins_turns else {}
        return data.open(split, max_tokens=config.max_tokens, **options)

    examples = opened("train")
    batches = PretrainingBatches(
        examples,
        trunk.config,
        shuffle_buffer=config.shuffle_buffer,
        seed=config.seed,
        batch_tokens=config.batch_tokens,
    )
    eval_batches = evaluation_batches(
        opened("dev"),
        trunk.config,
        max_examples=config.eval_examples,
        batch_tokens=config.batch_tokens,
    )

    def start(resumed: dict[str, Any] | None) -> None:
        batches.position = Position(*resumed[POSITION_KEY]) if resumed else START

    def batches_from(step: int) -> Iterator[Batch]:
        for inputs, position in batches:
            yield Batch(inputs, int(inputs["mask"].sum()), {POSITION_KEY: list(position)})

    def evaluate(step: int, logs: dict[str, float], rows: Any) -> dict[str, Any]:
        measured = evaluate_pretraining(model, eval_batches)
        ALONE.say(f"step {step}  dev {_line(measured)}")
        return {"train": trained_means(logs), "eval": measured}

    def model_changes(checkpoint_folder: Path) -> dict[str, tuple[Any, Any]]:
        before = BertConfig.from_json((checkpoint_folder / checkpoint.CONFIG_FILE).read_text())
        return before.differences(trunk.config)

    return Run(
        folder=folder,
        config=config,
        options={"model": trunk.config, "train": config},
        vocabulary=data.vocabulary,
        tokenizer=data.tokenizer_name,
        model=model,
        facts={
            "precision": precision,
            "parameters": parameters,
            "pretrain": config.to_dict(),
            "unknown_tokens": share_of_unknown(data, examples, config.data),
        },
        batches_from=batches_from,
        evaluate=evaluate,
        score=lambda row: -sum(row["eval"].get(name, 0.0) for name in LOSSES),
        curve=draw_curve,
        shown=lambda logs: _line(trained_means(logs)),
        model_changes=model_changes,
        start=start,
        run_file="pretrain_config.json",
        decides_order=_DECIDES_ORDER,
        unit="tokens",
    )


def _line(means: dict[str, float]) -> str:
    return "  ".join(
        f"{name} {means[f'{name}_loss']:.3f} nats {100 * means[f'{name}_accuracy']:.1f} %"
        for name in ("masked", "next")
        if f"{name}_loss" in means
    )


def trained_means(logs: dict[str, float]) -> dict[str, float]:
    """The metrics of training, without those of an objective that had no batch yet.

    Args:
      logs: means of the metrics of `PretrainingObjective`; a loss is 0 where nothing was counted.
    """
    return {
        f"{objective}_{metric}": logs[f"{objective}_{metric}"]
        for objective in ("masked", "next")
        for metric in ("loss", "accuracy")
        if logs.get(f"{objective}_loss")
    }


def evaluate_pretraining(
    model: PretrainingObjective, batches: Iterable[dict[str, np.ndarray]]
) -> dict[str, float]:
    """Loss and accuracy of both objectives, with the names of the model's metrics.

    Means over all masked tokens and all pairs.
    """
    sums: dict[str, float] = {}
    weights: dict[str, float] = {}
    for batch in batches:
        for name, value in model.test_on_batch(batch, return_dict=True).items():
            counted = batch.get(f"{name.partition('_')[0]}_weights")
            if counted is not None:
                weight = float(counted.sum())
                sums[name] = sums.get(name, 0.0) + weight * float(value)
                weights[name] = weights.get(name, 0.0) + weight
    return {name: total / weights[name] for name, total in sums.items() if weights[name]}


@picture
def draw_curve(rows: list[dict[str, Any]]) -> Any:
    """Both losses on the evaluation split over steps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots(1, 2)
    for axis, (name, label) in zip(
        axes,
        (
            ("masked_loss", "masked language model, nats per token"),
            ("next_loss", "next utterance, nats per pair"),
        ),
        strict=True,
    ):
        for source, style in (("train", "--"), ("eval", "-")):
            points = [(r["step"], r[source][name]) for r in rows if name in r.get(source, {})]
            if points:
                axis.plot(*zip(*points, strict=True), ls=style, marker=".", label=source)
        axis.set_xlabel("steps")
        axis.set_ylabel(label)
        axis.grid()
        axis.legend()
    return figure
