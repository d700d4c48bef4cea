"""The training of a ranker as `keras.Model.fit` takes it: objective, frozen parts, optimizer.

Reference: arXiv 1905.01969 §4.2 to §4.4, §5.1, §5.3.
"""

from collections.abc import Iterator
from typing import Any

from keras import ops

from convert_tf.config.head import RankerTraining
from convert_tf.models.losses import softmax_losses
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
        super().__init__(encoder, ("batch_accuracy", "ranking_loss"), l2=config.l2)
        self.label_smoothing = config.label_smoothing
        self.built = True

    def outputs_of(self, inputs: dict[str, Any], training: bool) -> Any:
        return self.encoder.score(inputs["context_ids"], inputs["candidate_ids"], training=training)

    def loss_of(self, inputs: dict[str, Any], outputs: Any) -> Any:
        losses = softmax_losses(
            outputs,
            self.label_smoothing,
            labels=inputs["labels"],
            is_candidate=inputs["candidate_mask"],
        )
        return ops.mean(losses)

    def measures_of(self, inputs: dict[str, Any], outputs: Any) -> Iterator[tuple[str, Any, Any]]:
        right = ops.take_along_axis(outputs, ops.cast(inputs["labels"], "int32")[:, None], axis=1)
        is_ahead = ops.logical_and(outputs >= right, inputs["candidate_mask"])
        is_first = ops.sum(ops.cast(is_ahead, "int32"), axis=1) == 1
        yield "batch_accuracy", ops.cast(is_first, "float32"), None
        yield "ranking_loss", self.loss_of(inputs, outputs), None


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
        embedding_table=ranker.trunk.embedding.table,
        embedding_clip=0.0,
        precision=precision,
        extend=decaying_on_plateau,
    )
    if config.optimizer == "adamw":  # no decay of biases and norms, as BERT's
        vectors = [v for v in model.trainable_variables if len(v.shape) < 2]
        optimizer.exclude_from_weight_decay(var_list=vectors)
    compile_with(model, optimizer)
    return model
