"""A pre-training run of a BERT-shaped trunk, as `convert-tf pretrain` starts it.

Reference: arXiv 1905.01969 §4.1 ("Pre-training Procedure").
"""

import collections
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from convert_tf.checkpoints import folder as checkpoint
from convert_tf.checkpoints.bert import load_bert
from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.checkpoints.vocabulary import check_same_vocabulary
from convert_tf.config.bert import BertConfig, bert_preset
from convert_tf.config.pretrain import Pretraining
from convert_tf.data.batches import Examples
from convert_tf.data.pretraining_batches import (
    START,
    Position,
    PretrainingBatches,
    evaluation_batches,
)
from convert_tf.models.bert import BertTrunk
from convert_tf.numerics.devices import choose_precision
from convert_tf.numerics.initializers import set_seed
from convert_tf.training.encoder.sources import Folder, open_folder
from convert_tf.training.kind import RunKind
from convert_tf.training.optimizers import InverseSquareRoot
from convert_tf.training.pretraining.evaluation import Averages, draw_curve, evaluate_pretraining
from convert_tf.training.pretraining.objective import PretrainingObjective, make_pretraining
from convert_tf.training.run import carry_out, only_run_in

POSITION_KEY = "position"
LOSSES = ("masked_loss", "next_loss")


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
    with only_run_in(Path(output)):
        set_seed(config.seed)
        precision = choose_precision(config.precision)
        if init_from is not None:
            if model is not None or overrides:
                raise ValueError(
                    "A trunk is new or one that was trained. Received: both --init_from and a "
                    "model. Leave one of them away."
                )
            trunk, own = load_bert(init_from, dropout=config.dropout, dtype=precision)
            vocabulary, num_oov_buckets = vocabulary or str(own), trunk.config.num_oov_buckets
            check_same_vocabulary(
                vocabulary,
                own,
                rule="A trained trunk keeps its vocabulary",
                remedy="Leave --vocab away.",
            )
            folder = open_folder(config.data, vocabulary, num_oov_buckets)
        elif model is None:
            raise ValueError(
                "Pre-training needs a model. Received: none. Give --model or --init_from."
            )
        else:
            folder = open_folder(config.data, vocabulary, num_oov_buckets)
            trunk_config = _trunk_config(folder, model, overrides or {})
            trunk = BertTrunk(trunk_config, dropout=config.dropout, dtype=precision)
        return carry_out(PretrainingRun(trunk, folder, config, output=output))


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


class PretrainingRun(RunKind[PretrainingObjective]):
    """The run of a trunk.

    The best weights are those of the lowest sum of both losses on the evaluation split.

    Args:
      trunk: with its initial weights.
      folder: what is trained on.
      config: how.
      output: the run's folder.
    """

    config: Pretraining
    run_file = "pretrain_config.json"
    decides_order = frozenset(
        ("seed", "data", "shuffle_buffer", "batch_tokens", "max_tokens", "all_turns")
    )
    unit = "tokens"
    varies_in_width = True

    def __init__(self, trunk: BertTrunk, folder: Folder, config: Pretraining, *, output: str):
        super().__init__(
            output,
            config,
            {"model": trunk.config, "train": config},
            vocabulary=folder.vocabulary,
            tokenizer=folder.tokenizer_name,
        )
        self.trunk = trunk
        self.data = folder
        self.precision = trunk.dtype_policy.name
        self.learning_rate = InverseSquareRoot(config.learning_rate, config.warmup_steps)
        self.position = START
        self.averages = Averages()
        self.recent = Averages()  # since the last line of progress
        # Batches that were made but not trained on yet, and the positions behind them.
        self._ahead: collections.deque[tuple[dict[str, np.ndarray], Position]]

    def changes_of_model(self, folder: Path) -> dict[str, tuple[Any, Any]]:
        before = BertConfig.from_json((folder / checkpoint.CONFIG_FILE).read_text())
        return before.differences(self.trunk.config)

    def make_model(self) -> PretrainingObjective:
        parameters = sum(math.prod(v.shape) for v in self.trunk.trainable_variables)
        print(f"precision {self.precision}; {parameters / 1e6:.1f} M parameters in the trunk")
        self.facts = {"precision": self.precision, "parameters": parameters,
                      "pretrain": self.config.to_dict()}  # fmt: skip
        return make_pretraining(self.trunk, self.config, precision=self.precision)

    def resume(self, facts: dict[str, Any]) -> None:
        self.position = Position(*facts[POSITION_KEY])

    def open_batches(self) -> None:
        if self.config.all_turns and kind_of(self.config.data) is Kind.TOKEN_IDS:
            print("token ids do not say where a turn ends: a context is its last turn")
        config, bert = self.config, self.trunk.config
        self.batches = PretrainingBatches(
            self._open("train"),
            bert,
            shuffle_buffer=config.shuffle_buffer,
            seed=config.seed,
            batch_tokens=config.batch_tokens,
        )
        self.eval_batches = evaluation_batches(
            self._open("dev"),
            bert,
            max_examples=config.eval_examples,
            batch_tokens=config.batch_tokens,
        )

    def _open(self, split: str) -> Examples:
        joins = self.config.all_turns and kind_of(self.config.data) is not Kind.TOKEN_IDS
        return self.data.open(split, max_tokens=self.config.max_tokens, joins_turns=joins)

    def batches_from(self, step: int) -> Iterator[dict[str, np.ndarray]]:
        self._ahead = collections.deque()
        self.batches.position = self.position
        for batch, position in self.batches:
            self._ahead.append((batch, position))
            yield batch

    def count_step(self, logs: dict[str, Any]) -> int:
        batch, self.position = self._ahead.popleft()
        self.facts[POSITION_KEY] = list(self.position)
        for averages in (self.averages, self.recent):
            averages.add(logs, batch)
        return int(batch["mask"].sum())

    def evaluate(
        self,
        model: PretrainingObjective,
        step: int,
        logs: dict[str, Any],
        rows: list[dict[str, Any]],
    ) -> dict[str, Any]:
        trained, self.averages = self.averages.means(), Averages()
        found = evaluate_pretraining(model, self.eval_batches)
        self.say(f"step {step}  dev {_line(found)}")
        return {"train": trained, "eval": found}

    def score(self, row: dict[str, Any]) -> float:
        return -sum(row["eval"].get(name, 0.0) for name in LOSSES)

    def curve(self, rows: list[dict[str, Any]]) -> bytes:
        return draw_curve(rows)

    def shown(self, logs: dict[str, Any]) -> str:
        means, self.recent = self.recent.means(), Averages()
        return _line(means)


def _line(means: dict[str, float]) -> str:
    return "  ".join(
        f"{name} {means[f'{name}_loss']:.3f} nats {100 * means[f'{name}_accuracy']:.1f} %"
        for name in ("masked", "next")
        if f"{name}_loss" in means
    )
