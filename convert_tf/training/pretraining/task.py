"""Pre-train BERT-like trunks by masked language modelling and next-utterance prediction.

Reference: arXiv 1905.01969 §4.1 ("Pre-training Procedure").
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from convert_tf.checkpoints import folder as checkpoint
from convert_tf.checkpoints.bert import load_bert
from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.checkpoints.vocabulary import check_same_vocabulary
from convert_tf.config.bert import BertConfig, bert_preset
from convert_tf.config.train import Pretraining
from convert_tf.data.pretraining_batches import Position, PretrainingBatches, evaluation_batches
from convert_tf.layers.bert import INITIAL_STDDEV, dense
from convert_tf.models.bert import BertTrunk
from convert_tf.numerics.devices import choose_precision
from convert_tf.numerics.initializers import set_seed
from convert_tf.training.encoder.data import (
    Folder,
    check_same_buckets,
    open_folder,
    share_of_unknown,
)
from convert_tf.training.loop import carry_out, only_run_in
from convert_tf.training.optimizers import LOSS_SCALE, InverseSquareRoot
from convert_tf.training.step import Objective, compile_with
from convert_tf.training.summaries import curves
from convert_tf.training.task import Batch, Task, Tracker, short_checksum

_MEANS = ("masked_loss", "masked_accuracy", "next_loss", "next_accuracy")
POSITION_KEY = "position"
ADAM_BETAS = (0.9, 0.98)  # arXiv 1905.01969 §4.1
LOSSES = ("masked_loss", "next_loss")
_PANELS = {
    "masked language model, nats per token": [("train", "masked_loss"), ("eval", "masked_loss")],
    "next utterance, nats per pair": [("train", "next_loss"), ("eval", "next_loss")],
}


def _objective_of(metric: str) -> str:
    return metric.partition("_")[0]


def _weighted_mean(values: Any, weights: Any) -> Any:
    """Return Σ values·weights / Σ weights, `[n]` → `[]`, or 0 if all weights are 0."""
    return ops.sum(values * weights) / ops.maximum(ops.sum(weights), 1.0)


class PretrainingObjective(Objective):
    """A trunk with two pre-training objectives. Each batch is for only one of them.

    The language model passes the vectors of masked tokens through a dense layer, GELU and layer
    norm. It then scores all tokens with the trunk's token table and a bias for each token. Whether
    a response belongs to its context is predicted from the vector of the first [S], after a dense
    layer and tanh.

    Args:
      trunk: the trunk to train.

    Call arguments:
      inputs: a batch as returned by `data.pretraining_batches.masked_batch`.

    Returns:
      A dict with `token_logits`, float32 `[masked tokens, num_rows]`, and `next_logits`, float32
      `[batch]`.

    Reference: arXiv 1905.01969 §4.1; arXiv 1810.04805 §3.1.
    """

    def __init__(self, trunk: BertTrunk, **kwargs: Any) -> None:
        super().__init__(trunk, _MEANS, dtype=trunk.dtype_policy, **kwargs)
        dim, num_rows = trunk.config.dim, trunk.config.num_rows
        weights: dict[str, Any] = {
            "initializer": keras.initializers.TruncatedNormal(stddev=INITIAL_STDDEV)
        }
        self.token_kernel = self.add_weight(shape=(dim, dim), name="token_kernel", **weights)
        self.token_bias = self.add_weight(shape=(dim,), initializer="zeros", name="token_bias")
        self.token_norm = keras.layers.LayerNormalization(
            epsilon=trunk.config.layer_norm_epsilon, dtype=self.dtype_policy, name="token_norm"
        )
        self.token_norm.build((None, dim))
        self.output_bias = self.add_weight(
            shape=(num_rows,), initializer="zeros", autocast=False, name="output_bias"
        )
        self.pooler_kernel = self.add_weight(shape=(dim, dim), name="pooler_kernel", **weights)
        self.pooler_bias = self.add_weight(shape=(dim,), initializer="zeros", name="pooler_bias")
        self.next_kernel = self.add_weight(shape=(dim, 1), name="next_kernel", **weights)
        self.next_bias = self.add_weight(shape=(1,), initializer="zeros", name="next_bias")
        self.built = True

    def outputs_of(self, inputs: dict[str, Any], training: bool) -> dict[str, Any]:
        sequence = self.encoder(
            inputs["rows"], inputs["segment_ids"], inputs["mask"], training=training
        )
        flat = ops.reshape(sequence, (-1, sequence.shape[-1]))
        masked = ops.take(flat, inputs["masked_slots"], axis=0)
        hidden = ops.gelu(dense(masked, self.token_kernel, self.token_bias), approximate=False)
        table = ops.cast(self.encoder.embedding.table, self.compute_dtype)
        logits = ops.matmul(self.token_norm(hidden), ops.transpose(table))
        pooled = ops.tanh(dense(sequence[:, 0], self.pooler_kernel, self.pooler_bias))
        next_logits = dense(pooled, self.next_kernel, self.next_bias)[:, 0]
        return {
            "token_logits": ops.cast(logits, "float32") + self.output_bias,
            "next_logits": ops.cast(next_logits, "float32"),
        }

    def loss_of(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
        masked, following = self._cross_entropies(inputs, outputs)
        return _weighted_mean(masked, inputs["masked_weights"]) + _weighted_mean(
            following, inputs["next_weights"]
        )

    def measures_of(
        self, inputs: dict[str, Any], outputs: dict[str, Any]
    ) -> Iterator[tuple[str, Any, Any]]:
        predicted = ops.cast(ops.argmax(outputs["token_logits"], axis=-1), "int32")
        is_found = ops.cast(predicted == ops.cast(inputs["masked_targets"], "int32"), "float32")
        is_next = inputs["next_labels"] > 0.5
        is_right = ops.cast((outputs["next_logits"] > 0.0) == is_next, "float32")
        masked, following = self._cross_entropies(inputs, outputs)
        weights = [inputs[f"{_objective_of(name)}_weights"] for name in _MEANS]
        yield from zip(_MEANS, (masked, is_found, following, is_right), weights, strict=True)

    def _cross_entropies(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> tuple[Any, Any]:
        """Return the cross-entropies, in nats, for masked tokens and for pairs.

        Their shapes are `[masked tokens]` and `[batch]`.
        """
        masked = keras.losses.sparse_categorical_crossentropy(
            inputs["masked_targets"], outputs["token_logits"], from_logits=True
        )
        logits = outputs["next_logits"]
        # For a logit z, the loss of a pair is log(1 + e^−z) if its texts belong together, and
        # log(1 + e^z) otherwise.
        return masked, ops.softplus(ops.where(inputs["next_labels"] > 0.5, -logits, logits))


def make_pretraining(
    trunk: BertTrunk, config: Pretraining, *, precision: str
) -> PretrainingObjective:
    """Return the trunk with its objectives, compiled with Adam.

    Args:
      trunk: the trunk to train.
      config: training options. Only the learning rate and the warm-up are used.
      precision: name of a dtype policy. `mixed_float16` turns on the static loss scale.
    """
    model = PretrainingObjective(trunk, name="pretraining")
    optimizer = keras.optimizers.Adam(
        InverseSquareRoot(config.learning_rate, config.warmup_steps),
        beta_1=ADAM_BETAS[0],
        beta_2=ADAM_BETAS[1],
        loss_scale_factor=LOSS_SCALE if precision == "mixed_float16" else None,
    )
    compile_with(model, optimizer)
    return model


def pretrain(
    config: Pretraining,
    *,
    output: str,
    model: str | None = None,
    overrides: dict[str, Any] | None = None,
    vocabulary: str | None = None,
    num_oov_buckets: int = 1_000,
    init_from: str | None = None,
    trackers: Sequence[Tracker] = (),
) -> Path:
    """Pre-train a trunk, or resume a run that was stopped.

    Args:
      config: options for training and for the data.
      output: folder of the run. If it has checkpoints, training resumes from the newest one.
      model: name of a preset for the trunk. If None, the trunk of `init_from` is used.
      overrides: values that replace fields of the preset.
      vocabulary: vocabulary file. If None, the vocabulary of `init_from` or of the folder of token
        ids is used.
      num_oov_buckets: number of ids that unknown tokens share. Ignored for WordPiece.
      init_from: trunk to start from: a model directory of a BERT-like trunk, or a Hugging Face
        folder.
      trackers: functions that receive the measured values; see `Task`.

    Returns:
      The path `output`, which is now a model directory.

    Raises:
      ValueError: if the data is unusable, `output` contains a different run, or a vocabulary, a
        number of hash buckets or a model does not match.
      FloatingPointError: if the loss or a weight became NaN or infinite. The last checkpoint is
        kept.
      OSError: if a file cannot be read or written.
      NotFinishedError: on SIGTERM, after saving the state. It is a `SystemExit` with status 75.
    """
    run_folder = Path(output)
    with only_run_in(run_folder):
        set_seed(config.seed)
        precision = choose_precision(config.precision)
        if init_from is not None:
            if model is not None or overrides:
                raise ValueError(
                    "--init_from cannot be combined with a new model (--model or options of the "
                    "model). Omit one of them."
                )
            trunk, stored = load_bert(init_from, dropout=config.dropout, dtype=precision)
            vocabulary, num_oov_buckets = vocabulary or str(stored), trunk.config.num_oov_buckets
            check_same_vocabulary(
                vocabulary,
                stored,
                rule="A trained trunk must keep its vocabulary",
                remedy="Omit --vocab.",
            )
            folder = open_folder(config.data, vocabulary, num_oov_buckets)
            check_same_buckets(folder, trunk.config)
        elif model is None:
            raise ValueError("Pre-training needs a model. Pass --model or --init_from.")
        else:
            folder = open_folder(config.data, vocabulary, num_oov_buckets)
            trunk_config = _trunk_config(folder, model, overrides or {})
            trunk = BertTrunk(trunk_config, dropout=config.dropout, dtype=precision)
        task = PretrainingTask(trunk, folder, config, run_folder)
        task.trackers = trackers
        return carry_out(task)


def _trunk_config(folder: Folder, model: str, overrides: dict[str, Any]) -> BertConfig:
    """Return a preset adapted to the folder's vocabulary, including WordPiece's special tokens."""
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


class PretrainingTask(Task):
    """The task of pre-training a trunk.

    The weights with the lowest sum of both losses on the dev split are kept.

    Args:
      trunk: the trunk to train. Its weights must already be initialised.
      data: folder of the training data.
      config: training options.
      folder: folder of the run.

    Attributes:
      trunk, config, folder: the arguments of the same names.
      precision: name of the dtype policy.
      parameters: number of trainable parameters in the trunk.
      unknown_share: share of unknown tokens in the first examples.
    """

    run_file = "pretrain_config.json"
    unit = "tokens"

    def __init__(self, trunk: BertTrunk, data: Folder, config: Pretraining, folder: Path) -> None:
        self.trunk, self.config, self.folder = trunk, config, folder
        self.vocabulary = data.vocabulary
        self.precision = trunk.dtype_policy.name
        self.parameters = sum(math.prod(v.shape) for v in trunk.trainable_variables)
        print(f"precision {self.precision}; {self.parameters / 1e6:.1f} M parameters in the trunk")
        self.model = make_pretraining(trunk, config, precision=self.precision)
        joins_turns = config.all_turns and kind_of(config.data) is not Kind.TOKEN_IDS
        if config.all_turns and not joins_turns:
            print("token ids do not record where turns end: only the last turn is the context")
        options: dict[str, Any] = {"joins_turns": True} if joins_turns else {}
        examples = data.open("train", max_tokens=config.max_tokens, **options)
        self._batches = PretrainingBatches(
            examples,
            trunk.config,
            shuffle_buffer=config.shuffle_buffer,
            seed=config.seed,
            batch_tokens=config.batch_tokens,
        )
        dev = data.open("dev", max_tokens=config.max_tokens, **options)
        self._evaluation_batches = evaluation_batches(
            dev, trunk.config, max_examples=config.eval_examples, batch_tokens=config.batch_tokens
        )
        # The checksum is not that of the batches, because they depend on --batch_tokens.
        numbers = np.arange(min(config.eval_examples, dev.num_examples))
        self.evaluated_on = short_checksum(dev.token_ids(dev.load(numbers)))
        self.unknown_share = share_of_unknown(data, examples, config.data)

    def options(self) -> dict[str, Any]:
        return {"model": self.trunk.config, "train": self.config}

    def start(self, resumed: dict[str, Any] | None) -> None:
        self._batches.position = Position(*resumed[POSITION_KEY]) if resumed else Position()

    def batches(self, step: int) -> Iterator[Batch]:
        for inputs, position in self._batches:
            yield Batch(inputs, int(inputs["mask"].sum()), {POSITION_KEY: list(position)})

    def evaluate(
        self, step: int, logs: dict[str, float], rows: list[dict[str, Any]]
    ) -> dict[str, Any]:
        measured = evaluate_pretraining(self.model, self._evaluation_batches)
        return {"train": _trained_means(logs), "eval": measured}

    def score(self, row: dict[str, Any]) -> float:
        return -sum(row["eval"].get(name, 0.0) for name in LOSSES)

    def curve(self, rows: list[dict[str, Any]]) -> bytes:
        return curves(rows, _PANELS, horizontal="step")

    def facts(self) -> dict[str, Any]:
        return {
            "precision": self.precision,
            "parameters": self.parameters,
            "pretrain": self.config.to_dict(),
            "unknown_tokens": self.unknown_share,
        }

    def model_changes(self, earlier: Path) -> dict[str, tuple[Any, Any]]:
        before = BertConfig.from_json((earlier / checkpoint.CONFIG_FILE).read_text())
        return before.differences(self.trunk.config)


def _trained_means(logs: dict[str, float]) -> dict[str, float]:
    """Return the metrics of the objectives that had at least one batch.

    Args:
      logs: mean of each metric of `PretrainingObjective`. A loss of 0 means that there was no batch
        for its objective.
    """
    return {name: logs[name] for name in _MEANS if logs.get(f"{_objective_of(name)}_loss")}


def evaluate_pretraining(
    model: PretrainingObjective, batches: Iterable[dict[str, np.ndarray]]
) -> dict[str, float]:
    """Return the losses and accuracies of both objectives, as a dict from metric to value.

    The values are means over all masked tokens or over all pairs.
    """
    sums, weights = dict.fromkeys(_MEANS, 0.0), dict.fromkeys(_MEANS, 0.0)
    for batch in batches:
        measured = model.test_on_batch(batch, return_dict=True)
        for name in _MEANS:
            weight = float(batch[f"{_objective_of(name)}_weights"].sum())
            sums[name] += weight * float(measured[name])
            weights[name] += weight
    return {name: total / weights[name] for name, total in sums.items() if weights[name]}
