"""What `keras.Model.fit` trains of a ranker: its objective, what is frozen, its optimizer.

Reference: arXiv 1905.01969 §4.2 to §4.4, §5.1, §5.3.
"""

from typing import Any

import keras
from keras import ops

from convert_tf.config.head import RankerTraining
from convert_tf.models.losses import candidate_softmax_loss
from convert_tf.models.ranker import RankerModel
from convert_tf.training.objective import Objective
from convert_tf.training.optimizers import compile_with, decaying_on_plateau, make_optimizer


class CandidateRanking(Objective):
    """A ranker under its objective: pick each context's right candidate.

    Args:
      encoder: the ranker; named as the checkpoints' functions name what they save.
      config: label smoothing and l2.

    Call arguments:
      inputs: a batch of `RankingBatches`.

    Returns:
      float32 `[batch, candidates]`, the scores.

    Reference: arXiv 1905.01969 §4.2, §4.3.
    """

    def __init__(self, encoder: RankerModel, config: RankerTraining):
        super().__init__(encoder, l2=config.l2)
        self.label_smoothing = config.label_smoothing
        self.accuracy = keras.metrics.Mean(name="batch_accuracy")
        self.ranking_loss = keras.metrics.Mean(name="ranking_loss")
        self.built = True

    def call(self, inputs: dict[str, Any], training: bool = False) -> Any:
        if training:
            self.steps_done.assign(self.steps_done + 1)
        return self.encoder.score(inputs["context_ids"], inputs["candidate_ids"], training=training)

    def compute_loss(self, x: Any, y: Any = None, y_pred: Any = None, *_: Any) -> Any:
        return self.with_l2(self._ranking_loss(x, y_pred))

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


def freeze(ranker: RankerModel, how: str, *, trainable_blocks: int = 1) -> None:
    """Takes a part of the trunk out of training.

    Args:
      ranker: changed in place, before its optimizer is built.
      how: `nothing`, `embeddings` (the tables of tokens, positions and segments, and the norm), or
        `all_but_top_k` (these and all blocks but the last ones).
      trainable_blocks: k.

    Raises:
      ValueError: the trunk has fewer blocks than that.

    Reference: arXiv 1905.01969 §5.1, Table 3.
    """
    if how == "nothing":
        return
    for trunk in (ranker.trunk, ranker.candidate_trunk):
        if trunk is None:
            continue
        trunk.embedding.trainable = False
        if how == "embeddings":
            continue
        if trainable_blocks > len(trunk.blocks):
            raise ValueError(
                f"trainable_blocks must be at most {len(trunk.blocks)}, the blocks of the trunk. "
                f"Received: {trainable_blocks}."
            )
        for block in trunk.blocks[: len(trunk.blocks) - trainable_blocks]:
            block.trainable = False


def make_ranker_training(
    ranker: RankerModel, config: RankerTraining, *, precision: str
) -> CandidateRanking:
    """`ranker` under its objective, compiled with its optimizer, ready for `fit`."""
    freeze(ranker, config.freeze, trainable_blocks=config.trainable_blocks)
    model = CandidateRanking(ranker, config)
    optimizer = make_optimizer(
        config,
        embedding_table=ranker.trunk.embedding_table,
        embedding_clip=0.0,
        precision=precision,
        extend=decaying_on_plateau,
    )
    if config.weight_decay:  # not of biases and norms, as BERT's
        vectors = [v for v in model.trainable_variables if len(v.shape) < 2]
        optimizer.exclude_from_weight_decay(var_list=vectors)
    compile_with(model, optimizer)
    return model
