"""One pre-training run: data, trunk, resume and steps, as `convert_tf.pretrain` starts it.

Reference: arXiv 1905.01969 §4.1 ("Pre-training Procedure").
"""

import io
import json
import math
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import keras
import numpy as np

from convert_tf import checkpoint
from convert_tf.bert import BertTrunk
from convert_tf.bert_checkpoint import load_bert
from convert_tf.bert_config import BertConfig, PretrainConfig, bert_preset
from convert_tf.callbacks import CURVE_FILE, METRICS_FILE
from convert_tf.data.arrays import ArrayFolder, is_array_folder
from convert_tf.data.prefetch import Prefetch
from convert_tf.data.pretraining_batches import (
    START,
    Position,
    PretrainingBatches,
    evaluation_batches,
)
from convert_tf.files import write_file
from convert_tf.pretraining import make_pretraining
from convert_tf.termination import Termination, termination_noted
from convert_tf.trainer import choose_precision
from convert_tf.training import only_run_in, set_seed
from convert_tf.training_data import Folder
from convert_tf.training_state import load_training_state, newest_checkpoint, save_training_state

RUN_FILE = "pretrain_config.json"
POSITION_KEY = "position"
LOSSES = ("masked_loss", "next_loss")
SECONDS_BETWEEN_LINES = 10.0


class Averages:
    """Weighted means of what the steps report, of each objective over its own batches."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._weights: dict[str, float] = {}

    def add(self, logs: dict[str, Any], batch: dict[str, np.ndarray]) -> None:
        for name, value in logs.items():
            objective = name.partition("_")[0]
            if f"{objective}_weights" in batch:
                weight = float(batch[f"{objective}_weights"].sum())
                self._sums[name] = self._sums.get(name, 0.0) + weight * float(value)
                self._weights[name] = self._weights.get(name, 0.0) + weight

    def means(self) -> dict[str, float]:
        return {
            name: total / self._weights[name]
            for name, total in self._sums.items()
            if self._weights[name]
        }


def evaluate(model: keras.Model, batches: Iterable[dict[str, np.ndarray]]) -> dict[str, float]:
    """Loss and accuracy of both objectives, with the names of the model's metrics."""
    averages = Averages()
    for batch in batches:
        averages.add(model.test_on_batch(batch, return_dict=True), batch)
    return averages.means()


def draw_curve(rows: list[dict[str, Any]]) -> bytes:
    """Both losses on the evaluation split over steps, as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
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
        axis.grid(alpha=0.3)
        axis.legend()
    png = io.BytesIO()
    figure.savefig(png, dpi=120)
    return png.getvalue()


def _open(config: PretrainConfig, vocabulary: str | None, num_oov_buckets: int) -> Folder:
    """The folder that is trained on, of records or of token ids."""
    if is_array_folder(config.data):
        folder = ArrayFolder(config.data)
        if vocabulary and Path(vocabulary).read_bytes() != folder.vocabulary.read_bytes():
            raise ValueError(
                "Token ids are trained on with the vocabulary that made them. Received: "
                f"{vocabulary!r}, which differs from {str(folder.vocabulary)!r}. "
                "Leave --vocab away."
            )
        return folder
    if vocabulary is None:
        raise ValueError(
            "Pre-training on records needs a vocabulary. Received: none. Give --vocab, or "
            "--init_from."
        )
    from convert_tf.data.pipeline import RecordFolder

    return RecordFolder(config.data, vocabulary=vocabulary, num_oov_buckets=num_oov_buckets)


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


def pretrain(
    config: PretrainConfig,
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
    set_seed(config.seed)
    precision = choose_precision(config.precision)
    if init_from is not None:
        if model is not None or overrides:
            raise ValueError(
                "A trunk is new or one that was trained. Received: both --init_from and a model. "
                "Leave one of them away."
            )
        trunk, own = load_bert(init_from, dropout=config.dropout, dtype=precision)
        vocabulary, num_oov_buckets = vocabulary or str(own), trunk.config.num_oov_buckets
        if Path(vocabulary).read_bytes() != own.read_bytes():
            raise ValueError(
                "A trained trunk keeps its vocabulary. Received: "
                f"{vocabulary!r}, which differs from {str(own)!r}. Leave --vocab away."
            )
        folder = _open(config, vocabulary, num_oov_buckets)
    elif model is None:
        raise ValueError("Pre-training needs a model. Received: none. Give --model or --init_from.")
    else:
        folder = _open(config, vocabulary, num_oov_buckets)
        trunk_config = _trunk_config(folder, model, overrides or {})
        trunk = BertTrunk(trunk_config, dropout=config.dropout, dtype=precision)
    run = Path(output)
    with only_run_in(run), termination_noted() as termination:
        training = make_pretraining(trunk, config, precision=precision)
        step, position = _resume(run, training, folder.vocabulary)
        write_file(
            run / RUN_FILE,
            json.dumps({"model": trunk.config.to_dict(), "train": config.to_dict()}, indent=2)
            + "\n",
        )
        parameters = sum(math.prod(v.shape) for v in trunk.trainable_variables)
        print(f"precision {precision}; {parameters / 1e6:.1f} M parameters in the trunk")
        facts = {"precision": precision, "parameters": parameters, "pretrain": config.to_dict()}
        _Run(training, config, run, folder, facts, step=step, position=position).fit(termination)
    return run


def _resume(run: Path, model: keras.Model, vocabulary: Path) -> tuple[int, Position]:
    """Reads the newest checkpoint of the run: steps done and the position in the data."""
    newest, config = newest_checkpoint(run), model.encoder.config
    if newest is None:
        return 0, START
    before = BertConfig.from_json((newest / checkpoint.CONFIG_FILE).read_text())
    own = newest / checkpoint.VOCABULARY_FILES[before.tokenizer]
    if before != config or own.read_bytes() != vocabulary.read_bytes():
        raise checkpoint.CheckpointError(
            "A resumed run must keep its model and its vocabulary. Received: "
            f"{before.differences(config) or str(vocabulary)}, other than in {str(newest)!r}. "
            "Choose another --output."
        )
    step = load_training_state(newest, model)
    print(f"resuming at step {step} from {newest}")
    return step, Position(*checkpoint.training_facts(newest)[POSITION_KEY])


class _Run:
    """The steps of a run, and what happens between them."""

    def __init__(
        self,
        model: keras.Model,
        config: PretrainConfig,
        run: Path,
        folder: Folder,
        facts: dict[str, Any],
        *,
        step: int,
        position: Position,
    ):
        self.model = model
        self.config = config
        self.run = run
        self.vocabulary = folder.vocabulary
        self.facts = facts
        self.step = step
        self.rows = _rows_up_to(run, step)
        bert = model.encoder.config
        options: dict[str, Any] = {
            "batch_tokens": config.batch_tokens, "mask_rate": config.mask_rate
        }  # fmt: skip
        self.batches = PretrainingBatches(
            folder.open(config.train_split, max_tokens=config.max_tokens),
            bert,
            shuffle_buffer=config.shuffle_buffer,
            seed=config.seed,
            position=position,
            **options,
        )
        self.eval_batches = evaluation_batches(
            folder.open(config.eval_split, max_tokens=config.max_tokens),
            bert,
            max_examples=config.eval_examples,
            **options,
        )

    def fit(self, termination: Termination) -> None:
        config = self.config
        if self.step == 0:
            self._evaluate(Averages(), 0.0)
        averages, recent, tokens = Averages(), Averages(), 0
        start = printed = time.perf_counter()
        first_step = self.step
        with Prefetch(self.batches) as prefetched:
            while self.step < config.steps:
                batch, position = next(prefetched)
                logs = self.model.train_on_batch(batch, return_dict=True)
                self.step += 1
                if not math.isfinite(float(logs["loss"])):
                    raise FloatingPointError(
                        f"Training needs finite numbers. Received: a loss of {logs['loss']} at "
                        f"step {self.step}. The checkpoints written so far are kept; lower "
                        "--learning_rate or change --precision."
                    )
                averages.add(logs, batch)
                recent.add(logs, batch)
                tokens += int(batch["mask"].sum())
                now = time.perf_counter()
                speed = tokens / (now - start)
                if now - printed >= SECONDS_BETWEEN_LINES or self.step == config.steps:
                    printed = now
                    left = int(
                        (now - start) * (config.steps - self.step) / (self.step - first_step)
                    )
                    print(
                        f"step {self.step}/{config.steps}  {_line(recent.means())}  "
                        f"{speed:.0f} tokens/s  "
                        f"{left // 3600}:{left // 60 % 60:02d}:{left % 60:02d} left",
                        file=sys.stderr,
                        flush=True,
                    )
                    recent = Averages()
                if self._is_due(config.eval_every):
                    self._evaluate(averages, speed)
                    averages = Averages()
                is_ending = termination.is_requested and self.step < config.steps
                if self._is_due(config.checkpoint_every) or is_ending:
                    self._checkpoint(position)
                if is_ending:
                    print(
                        f"told to end: saved step {self.step}; the same command goes on from there",
                        file=sys.stderr,
                    )
                    return

    def _is_due(self, interval: int) -> bool:
        return self.step % interval == 0 or self.step == self.config.steps

    def _evaluate(self, averages: Averages, speed: float) -> None:
        row: dict[str, Any] = {
            "step": self.step,
            "tokens_per_second": round(speed, 1),
            "train": averages.means(),
            "eval": evaluate(self.model, self.eval_batches),
        }
        print(f"step {self.step}  {self.config.eval_split} {_line(row['eval'])}", file=sys.stderr)
        is_best = all(_total(row) < _total(earlier) for earlier in self.rows)
        self.rows.append(row)
        write_file(self.run / METRICS_FILE, "".join(json.dumps(r) + "\n" for r in self.rows))
        write_file(self.run / CURVE_FILE, draw_curve(self.rows))
        if is_best:
            checkpoint.save_checkpoint(
                self.run,
                self.model.encoder,
                vocabulary=self.vocabulary,
                training={**self.facts, "evaluation": row},
            )

    def _checkpoint(self, position: Position) -> None:
        save_training_state(
            self.run,
            self.model,
            step=self.step,
            vocabulary=self.vocabulary,
            training={**self.facts, POSITION_KEY: list(position)},
            config=self.config,  # type: ignore[arg-type]
        )


def _total(row: dict[str, Any]) -> float:
    return sum(row["eval"].get(name, 0.0) for name in LOSSES)


def _line(means: dict[str, float]) -> str:
    parts = []
    if "masked_loss" in means:
        parts.append(
            f"masked {means['masked_loss']:.3f} nats {100 * means['masked_accuracy']:.1f} %"
        )
    if "next_loss" in means:
        parts.append(f"next {means['next_loss']:.3f} nats {100 * means['next_accuracy']:.1f} %")
    return "  ".join(parts)


def _rows_up_to(run: Path, step: int) -> list[dict[str, Any]]:
    path = run / METRICS_FILE
    if step == 0 or not path.is_file():
        return []
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [row for row in rows if row["step"] <= step]
