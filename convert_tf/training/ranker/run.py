"""A ranker's fine-tuning run, as `train.py --head` starts it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.checkpoints.loading import initial_ranker, load_ranker_config
from convert_tf.checkpoints.released import model_path
from convert_tf.config.bert import BertConfig
from convert_tf.config.head import HeadConfig, RankerTraining, ranker_recipe
from convert_tf.data.ranking_batches import RankingBatches, RankingExamples
from convert_tf.data.unknown_tokens import SAMPLE, checked_share
from convert_tf.numerics.devices import choose_precision
from convert_tf.numerics.initializers import set_seed
from convert_tf.ranking.checkpoint import pad_multiple, ranking_report, score_lists
from convert_tf.training.loop import RUN_FILE, Batch, Run
from convert_tf.training.processes import ALONE
from convert_tf.training.ranker.objective import make_ranker_training
from convert_tf.training.ranker.sources import open_examples, open_sampler, with_dev_candidates
from convert_tf.training.run import carry_out, only_run_in, options_before
from convert_tf.training.summaries import ranking_curve

# What must stay when a run resumes: the shapes of the head, and what its weights were trained to.
_KEPT_OF_HEAD = (
    "head", "reduction", "poly_codes", "poly_variant", "learn_scale", "separate_trunks"
)  # fmt: skip
_KEPT_OF_TRAINING = ("freeze", "trainable_blocks")
_PLATEAU_DECAY = 0.4  # arXiv 1905.01969 §5.1


def train_ranker(
    head: HeadConfig,
    options: dict[str, Any],
    *,
    init_from: str,
    output: str,
) -> Path:
    """Fine-tunes a ranker, or goes on with a run that was stopped.

    Args:
      head: the head.
      options: fields of `RankerTraining`; the others are those of `ranker_recipe`.
      init_from: model directory of a dual encoder or a ranker, a module of the former, or its name.
      output: the run's folder. When it holds checkpoints, training goes on from the newest.

    Returns:
      `output`, a ranker's model directory with the best weights on the dev data.

    Raises:
      ValueError: bad data or options, another run in this folder, or checkpoints that do not match.
      FloatingPointError: the loss or a weight became NaN; the last checkpoint is kept.
      OSError: a file cannot be read or written.
    """
    config = ranker_recipe(head.head, weights=_weights_of(init_from), **options)
    folder = Path(output)
    with only_run_in(folder):
        set_seed(config.seed)
        return carry_out(make_run(head, config, init_from=model_path(init_from), folder=folder))


def make_run(head: HeadConfig, config: RankerTraining, *, init_from: str, folder: Path) -> Run:
    """The run of a ranker on a trained trunk; see `train_ranker`.

    The best weights are those of the highest R@1 on the dev data. The learning rate falls whenever
    the loss there is not the lowest so far.
    """
    precision = choose_precision(config.precision)
    ranker, vocabulary = initial_ranker(
        init_from,
        head,
        dtype=precision,
        embedding_dropout=config.embedding_dropout,
        attention_dropout=config.attention_dropout,
    )
    head = ranker.config.head

    def opened(data: str, split: str, max_examples: int | None) -> RankingExamples:
        return open_examples(
            data, split, ranker.config, vocabulary=vocabulary, max_examples=max_examples
        )

    examples = opened(config.data, "train", config.max_examples or None)
    dev = with_dev_candidates(
        opened(config.dev_data, "dev", config.eval_examples), is_joint=ranker.is_joint
    )
    unknown_share = checked_share(
        examples.contexts.flat[: examples.contexts.row_splits[:SAMPLE][-1]],
        vocabulary,
        tokenizer=ranker.config.tokenizer,
        vocab_size=ranker.config.model.vocab_size,
        what=f"the texts of {config.data}",
    )
    sampler = open_sampler(examples, config)
    config = config.of_examples(examples.num_examples)
    model = make_ranker_training(ranker, config, precision=precision)
    batches = RankingBatches(
        examples,
        batch_size=config.batch_size,
        padding_id=ranker.padding_id,
        seed=config.seed,
        sampler=sampler,
        pad_multiple=pad_multiple(),
    )
    print(
        f"{head.head} on {examples.num_examples} examples in batches of "
        f"{batches.batch_size}, {config.steps} steps; precision {precision} "
        f"(backend {keras.backend.backend()})"
    )
    started = {"precision": precision, "init_from": init_from}

    def batches_from(step: int) -> Iterator[Batch]:
        batches.skip_batches = step
        return (Batch(inputs, batches.batch_size) for inputs in batches)

    def evaluate(step: int, logs: dict[str, float], rows: list[dict[str, Any]]) -> dict[str, Any]:
        factor = float(np.asarray(model.optimizer.plateau_factor))
        scores = score_lists(ranker, dev.contexts, dev.pool, dev.candidates)
        measured = ranking_report(scores, dev)
        ALONE.say(
            f"step {step}  dev loss {measured['loss']:.4f}  R@1 {100 * measured['R@1']:.2f} %  "
            f"MRR {measured['MRR']:.4f}  ({measured['examples']} examples)"
        )
        if rows and measured["loss"] >= min(row["dev"]["loss"] for row in rows):
            model.optimizer.decay(_PLATEAU_DECAY)
        return {
            "pairs": step * config.batch_size,
            "ranking_loss": logs.get("ranking_loss"),
            "batch_accuracy": logs.get("batch_accuracy"),
            "plateau_factor": factor,
            "dev": measured,
        }

    def model_changes(checkpoint: Path) -> dict[str, tuple[Any, Any]]:
        before = load_ranker_config(checkpoint)
        heads = before.head.differences(head).items()
        changes = {name: change for name, change in heads if name in _KEPT_OF_HEAD}
        options = config.changes_since(options_before(folder / RUN_FILE)).items()
        changes |= {name: change for name, change in options if name in _KEPT_OF_TRAINING}
        if before.model != ranker.config.model:
            changes["model"] = (before.model, ranker.config.model)
        return changes

    return Run(
        folder=folder,
        config=config,
        options={**started, "train": config, "head": head},
        vocabulary=vocabulary,
        tokenizer=ranker.config.tokenizer,
        model=model,
        facts={
            **started,
            "data": config.data,
            "dev_data": config.dev_data,
            "train": config.to_dict(),
            "unknown_tokens": unknown_share,
        },
        batches_from=batches_from,
        evaluate=evaluate,
        score=lambda row: row["dev"]["R@1"],
        curve=lambda rows: ranking_curve(rows, ["dev"], ["R@1"]),
        shown=lambda logs: f"loss {logs['ranking_loss']:.4f}",
        model_changes=model_changes,
        keeps="model and its head",
        decides_order=frozenset(("batch_size", "seed", "data", "max_examples")),
    )


def _weights_of(folder: str) -> str:
    """Return the kind of the weights in a folder, as `ranker_recipe` names it."""
    kind = kind_of(folder)
    if kind is Kind.RANKER:
        model = load_ranker_config(folder).model
        if isinstance(model, BertConfig):
            return "published_bert" if model.is_published else "bert"
        return "convert"
    return {Kind.BERT: "bert", Kind.HUGGING_FACE: "published_bert"}.get(kind, "convert")
