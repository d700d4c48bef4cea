"""What `keras.Model.fit` trains of a ranker: its objective, its optimizer, its evaluations.

Reference: arXiv 1905.01969 §4.2 to §4.4, §5.1, §5.3.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from convert_tf.callbacks import CURVE_FILE, METRICS_FILE, Progress, RunRecorder, draw_curve
from convert_tf.checkpoint import save_checkpoint
from convert_tf.data.packing import TokenIds
from convert_tf.data.ranking_batches import RankingExamples, padded
from convert_tf.files import write_file
from convert_tf.head_config import HeadConfig
from convert_tf.losses import candidate_softmax_loss
from convert_tf.plateau import decaying_on_plateau
from convert_tf.ranker_scoring import ranking_report, score_lists
from convert_tf.rankers import Ranker
from convert_tf.train_config import TrainConfig
from convert_tf.trainer import compiles_shapes, make_optimizer


class RankerTraining(keras.Model):
    """A ranker under its objective: pick each context's right candidate.

    Args:
      encoder: the ranker; named as the checkpoints' functions name what they save.
      label_smoothing: probability spread over the wrong candidates.
      l2: factor of the sum of squared matrix weights.

    Call arguments:
      inputs: a batch of `RankingBatches`.

    Returns:
      float32 `[batch, candidates]`, the scores.

    Reference: arXiv 1905.01969 §4.2, §4.3.
    """

    def __init__(
        self, encoder: Ranker, *, label_smoothing: float = 0.0, l2: float = 0.0, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.encoder = encoder
        self.label_smoothing = label_smoothing
        self.l2 = l2
        self.steps_done = self.add_weight(
            shape=(), initializer="zeros", dtype="int32", trainable=False, name="steps_done"
        )
        self.accuracy = keras.metrics.Mean(name="batch_accuracy")
        self.ranking_loss = keras.metrics.Mean(name="ranking_loss")
        self.built = True

    def call(self, inputs: dict[str, Any], training: bool = False) -> Any:
        if training:
            self.steps_done.assign(self.steps_done + 1)
        return self.encoder.score(inputs["context_ids"], inputs["candidate_ids"], training=training)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        loss = self._ranking_loss(x, y_pred)
        if self.l2:
            matrices = [v for v in self.encoder.trainable_variables if len(v.shape) > 1]
            loss = loss + self.l2 * sum(
                ops.sum(ops.square(ops.convert_to_tensor(v))) for v in matrices
            )
        return loss

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        own = ops.take_along_axis(y_pred, ops.cast(x["labels"], "int32")[:, None], axis=1)
        is_ahead = ops.logical_and(y_pred >= own, x["candidate_mask"])
        is_first = ops.sum(ops.cast(is_ahead, "int32"), axis=1) == 1
        self.accuracy.update_state(ops.cast(is_first, "float32"))
        self.ranking_loss.update_state(self._ranking_loss(x, y_pred))
        return self.get_metrics_result()

    def _ranking_loss(self, x: dict[str, Any], scores: Any) -> Any:
        return candidate_softmax_loss(
            scores, x["labels"], x["candidate_mask"], self.label_smoothing
        )


def freeze(ranker: Ranker, how: str, *, trainable_blocks: int = 1) -> None:
    """Takes a part of the trunk out of training.

    Args:
      ranker: changed in place, before its optimizer is built.
      how: `nothing`, `embeddings` (token and position tables), or `all_but_top_k` (these and all
        blocks but the last ones).
      trainable_blocks: k.

    Raises:
      ValueError: the trunk has fewer blocks than that.

    Reference: arXiv 1905.01969 §5.1, Table 3.
    """
    if how == "nothing":
        return
    for trunk in filter(None, (ranker.trunk, ranker.candidate_trunk)):
        trunk.embedding.trainable = False
        if how == "embeddings":
            continue
        if trainable_blocks > len(trunk.blocks):
            raise ValueError(
                "trainable_blocks must not be more than the trunk has. "
                f"Received: {trainable_blocks} of {len(trunk.blocks)} blocks. Lower it."
            )
        for block in trunk.blocks[: len(trunk.blocks) - trainable_blocks]:
            block.trainable = False


def rescale_outputs(ranker: Ranker, contexts: TokenIds, output_std: float) -> float:
    """Gives the trunk's outputs a standard deviation, by one constant factor.

    Outputs of large size saturate the softmaxes of a poly-encoder and of every in-batch loss. The
    paper rescales its last linear layer; a factor behind the last layer is the same at that moment,
    and needs no knowledge of which layer is the last.

    Args:
      ranker: changed in place.
      contexts: texts to measure with; the first 256 are read.
      output_std: the standard deviation, over all entries of all real outputs.

    Returns:
      The factor.

    Reference: arXiv 1905.01969 §5.3.
    """
    number = min(256, len(contexts.row_splits) - 1)
    ids = padded(contexts, np.arange(number), ranker.padding_id)
    entries = []
    for start in range(0, number, 32):
        sequence, mask = ranker.trunk.sequence(ids[start : start + 32])
        sequence = ops.convert_to_numpy(ops.cast(sequence, "float32"))
        entries.append(sequence[ops.convert_to_numpy(mask)])
    factor = output_std / max(float(np.concatenate(entries).std()), 1e-12)
    ranker.output_factor.assign(factor)
    return factor


def make_ranker_training(
    ranker: Ranker, train: TrainConfig, head: HeadConfig, *, precision: str
) -> RankerTraining:
    """`ranker` under its objective, compiled with its optimizer, ready for `fit`."""
    freeze(ranker, head.freeze, trainable_blocks=head.trainable_blocks)
    model = RankerTraining(ranker, label_smoothing=train.label_smoothing, l2=train.l2)
    table = getattr(ranker.trunk, "embedding_table", None)
    optimizer = make_optimizer(
        train, embedding_table=table, precision=precision, extend=decaying_on_plateau
    )
    optimizer.build(model.trainable_variables)
    model.compile(optimizer=optimizer, auto_scale_loss=False, jit_compile=compiles_shapes())
    return model


class RankerRecorder(RunRecorder):
    """Evaluates a ranker, keeps the best weights, lets the learning rate fall on plateaus.

    The best weights are those of the highest R@1 on the first evaluation set; the learning rate
    falls whenever its loss is not the lowest so far.

    Args:
      run, config, vocabulary, progress, facts: see `RunRecorder`.
      eval_sets: name → examples.
      head: reads `plateau_decay`.
    """

    def __init__(
        self,
        run: Path,
        config: TrainConfig,
        *,
        vocabulary: Path,
        eval_sets: dict[str, RankingExamples],
        progress: Progress,
        facts: dict[str, Any],
        head: HeadConfig,
    ):
        sets: dict[str, Iterable[Any]] = dict(eval_sets)
        super().__init__(
            run, config, vocabulary=vocabulary, eval_sets=sets, progress=progress, facts=facts
        )
        self.examples = eval_sets
        self.head = head

    def _evaluate(self, logs: dict[str, Any]) -> None:
        row: dict[str, Any] = {
            "step": self.progress.step,
            "pairs": self.progress.step * self.config.batch_size,
            "pairs_per_second": round(self.progress.pairs_per_second, 1),
            **self._time(),
            "ranking_loss": logs.get("ranking_loss"),
            "batch_accuracy": logs.get("batch_accuracy"),
            "plateau_factor": float(np.asarray(self.model.optimizer.plateau_factor)),
        }
        for name, examples in self.examples.items():
            scores = score_lists(
                self.model.encoder, examples.contexts, examples.pool, examples.candidates
            )
            row[name] = ranking_report(scores, examples)
            print(
                f"step {row['step']}  {name} loss {row[name]['loss']:.4f}  "
                f"R@1 {100 * row[name]['R@1']:.2f} %  MRR {row[name]['MRR']:.4f}  "
                f"({row[name]['examples']} examples)",
                file=sys.stderr,
                flush=True,
            )
        first = next(iter(self.examples))
        before = [r[first] for r in self.rows]
        if before and row[first]["loss"] >= min(r["loss"] for r in before):
            self.model.optimizer.decay(self.head.plateau_decay)
        is_best = all(row[first]["R@1"] > r["R@1"] for r in before)
        self.rows.append(row)
        write_file(self.run / METRICS_FILE, "".join(json.dumps(r) + "\n" for r in self.rows))
        write_file(self.run / CURVE_FILE, draw_curve(self.rows, list(self.examples), ("R@1",)))
        if is_best:
            save_checkpoint(
                self.run,
                self.model.encoder,
                vocabulary=self.vocabulary,
                training=self._training_facts(),
            )
