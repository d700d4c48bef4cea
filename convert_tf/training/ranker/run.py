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
from convert_tf.config.head import HeadConfig, head_train_defaults
from convert_tf.config.train import TrainConfig
from convert_tf.data.ranking_batches import (
    RankingBatches,
    RankingExamples,
    Tokenize,
    tokenize_examples,
)
from convert_tf.numerics.devices import choose_precision
from convert_tf.numerics.initializers import set_seed
from convert_tf.ranking.checkpoint import make_tokenize, ranking_report, score_lists
from convert_tf.training.curve import ranking_curve
from convert_tf.training.kind import RunKind
from convert_tf.training.optimizers import learning_rate_schedule
from convert_tf.training.ranker.objective import (
    RankerTraining,
    make_ranker_training,
    rescale_outputs,
)
from convert_tf.training.ranker.sources import open_sampler, read_examples, with_dev_candidates
from convert_tf.training.run import carry_out, only_run_in

# What must stay when a run resumes: the shapes of the head, and what its weights were trained to.
_HEAD_OF_A_RUN = (
    "head", "reduction", "reduction_tokens", "poly_codes", "poly_variant", "learn_scale",
    "separate_trunks", "freeze", "trainable_blocks",
)  # fmt: skip
_UNREAD = {
    "scale_start", "scale_end", "scale_anneal_steps", "history_only", "mask_duplicates",
    "ranking", "ranking_distillation", "distillation", "intent_contrast", "start_from_teacher",
    "loss_reduction",
}  # fmt: skip


def train_ranker(
    head: HeadConfig,
    train_options: dict[str, Any],
    *,
    data: str,
    dev_data: str,
    init_from: str,
    output: str,
) -> Path:
    """Fine-tunes a ranker, or goes on with a run that was stopped.

    Args:
      head: the head, its negatives, what is frozen, and for how many epochs it is trained.
      train_options: fields of `TrainConfig` that are not `head_train_defaults`; `steps` in place of
        epochs, `eval_every` in place of evaluations per epoch.
      data: folder of records, whose train split is read, or a candidates file.
      dev_data: folder of records, whose dev split is read, or a candidates file.
      init_from: model directory of a dual encoder or a ranker, a module of the former, or its name.
      output: the run's folder. When it holds checkpoints, training goes on from the newest.

    Returns:
      `output`, a ranker's model directory with the best weights on the dev data.

    Raises:
      ValueError: bad data or options, another run in this folder, or checkpoints that do not match.
      FloatingPointError: the loss or a weight became NaN; the last checkpoint is kept.
      OSError: a file cannot be read or written.
    """
    unread = sorted(_UNREAD & set(train_options))
    if unread:
        raise ValueError(
            "A head's factor is --scale and --learn_scale, and it reads no earlier turns apart. "
            f"Received: {', '.join(unread)}, which it does not read. Leave them out."
        )
    if train_options.get("micro_batch"):
        raise ValueError(
            "A head is trained on whole batches. Received: micro_batch "
            f"{train_options['micro_batch']}. Leave --micro_batch out, or lower --batch_size."
        )
    with only_run_in(Path(output)):
        set_seed(int(train_options.get("seed", 0)))
        return carry_out(
            RankerRun(
                head,
                head_train_defaults(head.head, weights=_weights_of(init_from), **train_options),
                data=data,
                dev_data=dev_data,
                init_from=model_path(init_from),
                output=output,
            )
        )


class RankerRun(RunKind[RankerTraining]):
    """The run of a ranker; see `train_ranker` for its arguments.

    The best weights are those of the highest R@1 on the dev data; the learning rate falls whenever
    the loss there is not the lowest so far.
    """

    config: TrainConfig
    keeps = "model and its head"
    decides_order = frozenset(("batch_size", "seed", "data", "max_examples"))

    def __init__(
        self,
        head: HeadConfig,
        options: dict[str, Any],
        *,
        data: str,
        dev_data: str,
        init_from: str,
        output: str,
    ):
        precision = choose_precision(options.get("precision", "auto"))
        rates = {
            name: options[name]
            for name in ("embedding_dropout", "attention_dropout", "quantizer_update_steps")
            if name in options
        }
        self.ranker, vocabulary = initial_ranker(init_from, head, dtype=precision, **rates)
        self.head = head = self.ranker.config.head
        tokenize = make_tokenize(vocabulary, self.ranker.config)
        self.examples = _examples(data, "train", head, tokenize, head.max_examples or None)
        self.dev = with_dev_candidates(
            _examples(dev_data, "dev", head, tokenize, options["eval_examples"]),
            is_joint=self.ranker.is_joint,
        )
        self.sampler = open_sampler(self.examples, head, init_from)
        config = _train_config(options, head, self.examples.num_examples)
        started = {"precision": precision, "init_from": init_from, "data": data,
                   "dev_data": dev_data, "train": config}  # fmt: skip
        super().__init__(
            output,
            config,
            {**started, "head": head},
            vocabulary=vocabulary,
            tokenizer=self.ranker.config.tokenizer,
        )
        self.precision = precision
        self.learning_rate = learning_rate_schedule(config)
        self.facts = {**started, "train": config.to_dict()}

    def changes_of_model(self, checkpoint: Path) -> dict[str, tuple[Any, Any]]:
        before, now = load_ranker_config(checkpoint), self.ranker.config
        heads = before.head.differences(now.head).items()
        changes = {name: change for name, change in heads if name in _HEAD_OF_A_RUN}
        if before.model != now.model:
            changes["model"] = (before.model, now.model)
        return changes

    def make_model(self) -> RankerTraining:
        return make_ranker_training(self.ranker, self.config, self.head, precision=self.precision)

    def begin(self, model: RankerTraining) -> None:
        if self.head.output_std:
            factor = rescale_outputs(self.ranker, self.examples.contexts, self.head.output_std)
            print(
                f"outputs rescaled by {factor:.4g} to a standard deviation of "
                f"{self.head.output_std}"
            )

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
        self, model: RankerTraining, step: int, logs: dict[str, Any], rows: list[dict[str, Any]]
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
            model.optimizer.decay(self.head.plateau_decay)
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
    """What `head_train_defaults` calls the weights in a folder."""
    kind = kind_of(folder)
    if kind is Kind.RANKER:
        model = load_ranker_config(folder).model
        if isinstance(model, BertConfig):
            return "published_bert" if model.is_published else "bert"
        return "convert"
    return {Kind.BERT: "bert", Kind.HUGGING_FACE: "published_bert"}.get(kind, "convert")


def _examples(
    data: str, split: str, head: HeadConfig, tokenize: Tokenize, max_examples: int | None
) -> RankingExamples:
    return tokenize_examples(
        read_examples(data, split, max_examples=max_examples),
        tokenize,
        max_context_tokens=head.max_context_tokens,
        max_candidate_tokens=head.max_candidate_tokens,
    )


def _train_config(options: dict[str, Any], head: HeadConfig, num_examples: int) -> TrainConfig:
    """Steps from epochs, and evaluations so many times an epoch, where nothing else is said."""
    batch_size = min(options["batch_size"], num_examples)
    per_epoch = num_examples // batch_size
    evaluated = max(1, per_epoch // head.evaluations_per_epoch)
    steps = max(1, round(head.epochs * per_epoch))
    return TrainConfig(
        **{"steps": steps, "eval_every": evaluated, "checkpoint_every": evaluated, **options}
    )


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
