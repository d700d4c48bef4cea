"""A ranker's fine-tuning run, as `train.py --head` starts it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.checkpoints.ranker import initial_ranker, load_ranker_config
from convert_tf.checkpoints.released import model_path
from convert_tf.config.bert import BertConfig
from convert_tf.config.head import HeadConfig, RankerTraining, ranker_recipe
from convert_tf.data.ranking_batches import RankingBatches, RankingExamples
from convert_tf.numerics.devices import choose_precision
from convert_tf.numerics.initializers import set_seed
from convert_tf.ranking.checkpoint import ranking_report, score_lists
from convert_tf.training.curve import ranking_curve
from convert_tf.training.kind import RunKind
from convert_tf.training.optimizers import learning_rate_schedule
from convert_tf.training.ranker.objective import CandidateRanking, make_ranker_training
from convert_tf.training.ranker.sources import open_examples, open_sampler, with_dev_candidates
from convert_tf.training.run import carry_out, only_run_in, options_before

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
    with only_run_in(Path(output)):
        set_seed(config.seed)
        return carry_out(RankerRun(head, config, init_from=model_path(init_from), output=output))


class RankerRun(RunKind[CandidateRanking]):
    """The run of a ranker; see `train_ranker` for its arguments.

    The best weights are those of the highest R@1 on the dev data; the learning rate falls whenever
    the loss there is not the lowest so far.
    """

    config: RankerTraining
    keeps = "model and its head"
    decides_order = frozenset(("batch_size", "seed", "data", "max_examples"))

    def __init__(
        self,
        head: HeadConfig,
        config: RankerTraining,
        *,
        init_from: str,
        output: str,
    ):
        precision = choose_precision(config.precision)
        self.ranker, vocabulary = initial_ranker(
            init_from,
            head,
            dtype=precision,
            embedding_dropout=config.embedding_dropout,
            attention_dropout=config.attention_dropout,
        )
        self.head = head = self.ranker.config.head

        def opened(data: str, split: str, max_examples: int | None) -> RankingExamples:
            return open_examples(
                data, split, self.ranker.config, vocabulary=vocabulary, max_examples=max_examples
            )

        self.examples = opened(config.data, "train", config.max_examples or None)
        self.dev = with_dev_candidates(
            opened(config.dev_data, "dev", config.eval_examples), is_joint=self.ranker.is_joint
        )
        self.sampler = open_sampler(self.examples, config, init_from)
        config = config.of_examples(self.examples.num_examples)
        started = {"precision": precision, "init_from": init_from}
        super().__init__(
            output,
            config,
            {**started, "train": config, "head": head},
            vocabulary=vocabulary,
            tokenizer=self.ranker.config.tokenizer,
        )
        self.precision = precision
        self.learning_rate = learning_rate_schedule(config)
        self.facts = {
            **started,
            "data": config.data,
            "dev_data": config.dev_data,
            "train": config.to_dict(),
        }

    def changes_of_model(self, checkpoint: Path) -> dict[str, tuple[Any, Any]]:
        before, now = load_ranker_config(checkpoint), self.ranker.config
        heads = before.head.differences(now.head).items()
        changes = {name: change for name, change in heads if name in _KEPT_OF_HEAD}
        options = self.config.changes_since(options_before(self)).items()
        changes |= {name: change for name, change in options if name in _KEPT_OF_TRAINING}
        if before.model != now.model:
            changes["model"] = (before.model, now.model)
        return changes

    def make_model(self) -> CandidateRanking:
        return make_ranker_training(self.ranker, self.config, precision=self.precision)

    def open_batches(self) -> None:
        self.batches = RankingBatches(
            self.examples,
            batch_size=self.config.batch_size,
            padding_id=self.ranker.padding_id,
            seed=self.config.seed,
            sampler=self.sampler,
        )
        print(
            f"{self.head.head} on {self.examples.num_examples} examples in batches of "
            f"{self.batches.batch_size}, {self.config.steps} steps; precision {self.precision} "
            f"(backend {keras.backend.backend()})"
        )

    def batches_from(self, step: int) -> Iterator[dict[str, np.ndarray]]:
        self.batches.skip_batches = step
        return _unlike_widths(iter(self.batches), self.ranker.padding_id)

    def count_step(self, logs: dict[str, Any]) -> int:
        return self.batches.batch_size

    def evaluate(
        self, model: CandidateRanking, step: int, logs: dict[str, Any], rows: list[dict[str, Any]]
    ) -> dict[str, Any]:
        dev = self.dev
        factor = float(np.asarray(model.optimizer.plateau_factor))
        scores = score_lists(model.encoder, dev.contexts, dev.pool, dev.candidates)
        found = ranking_report(scores, dev)
        self.say(
            f"step {step}  dev loss {found['loss']:.4f}  R@1 {100 * found['R@1']:.2f} %  "
            f"MRR {found['MRR']:.4f}  ({found['examples']} examples)"
        )
        if rows and found["loss"] >= min(row["dev"]["loss"] for row in rows):
            model.optimizer.decay(_PLATEAU_DECAY)
        return {
            "pairs": step * self.config.batch_size,
            "ranking_loss": logs.get("ranking_loss"),
            "batch_accuracy": logs.get("batch_accuracy"),
            "plateau_factor": factor,
            "dev": found,
        }

    def score(self, row: dict[str, Any]) -> float:
        return row["dev"]["R@1"]

    def curve(self, rows: list[dict[str, Any]]) -> bytes:
        return ranking_curve(rows, ["dev"], ["R@1"])


def _weights_of(folder: str) -> str:
    """What `ranker_recipe` calls the weights in a folder."""
    kind = kind_of(folder)
    if kind is Kind.RANKER:
        model = load_ranker_config(folder).model
        if isinstance(model, BertConfig):
            return "published_bert" if model.is_published else "bert"
        return "convert"
    return {Kind.BERT: "bert", Kind.HUGGING_FACE: "published_bert"}.get(kind, "convert")


def _unlike_widths(
    batches: Iterator[dict[str, np.ndarray]], padding_id: int
) -> Iterator[dict[str, np.ndarray]]:
    """The batches, the first one with more padding than the second.

    Keras takes a dimension in which its first two batches agree for one that never changes.
    """
    first, second = next(batches), next(batches)
    for name in ("context_ids", "candidate_ids"):
        missing = second[name].shape[-1] + 1 - first[name].shape[-1]
        if missing > 0:
            widths = [(0, 0)] * (first[name].ndim - 1) + [(0, missing)]
            first[name] = np.pad(first[name], widths, constant_values=padding_id)
    yield first
    yield second
    yield from batches
