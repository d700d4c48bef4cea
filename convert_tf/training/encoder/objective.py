"""A dual encoder with its training objective.

Reference: arXiv 1911.03688 §2.1 ("Input-Response Interaction", "Quantization"), §2.2, §3.1.
"""

import math
from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

from convert_tf.config.train import EncoderTraining
from convert_tf.data.schema import PAIR
from convert_tf.models.distillation import vector_losses
from convert_tf.models.encoder import DualEncoder
from convert_tf.models.losses import (
    annealed_scale,
    distinct_responses,
    intent_losses,
    softmax_losses,
    taught_ranking_losses,
)
from convert_tf.numerics.initializers import glorot_uniform
from convert_tf.training.encoder.micro_batches import encode_micro_batches, is_in_micro_batches
from convert_tf.training.objective import Objective, compile_with, make_optimizer

EMBEDDING_CLIP = 1.0  # arXiv 1911.03688 §3.1
# Of what encoding responses are ranked, all three by a multi-context model.
OBJECTIVES = ("context", "extra_context", "both")


def _prefix(objective: str) -> str:
    """Return what the names of an objective's metrics begin with."""
    return "" if objective == OBJECTIVES[0] else f"{objective}_"


class ResponseRanking(Objective):
    """A dual encoder with its training objective: pick the response of each context from the batch.

    A multi-context model adds up three objectives: given the context (as for a single-context
    model), given only the earlier turns, and given both. An example without earlier turns only has
    the first objective. Its response is still a negative for the other examples.

    Args:
      encoder: the dual encoder.
      config: scales, label smoothing, l2, and the weights of the losses.
      teacher_dim: width of the teacher's vectors; 0 without a teacher.

    Call arguments:
      inputs: the packed batch that `DualEncoder` takes. Optional entries: `response_groups`, int32
        `[batch]`: responses with equal numbers are not negatives of one another. `negative_slots`,
        int32 `[batch × k]`: further responses, which are negatives of every context, with
        `negative_groups` as `response_groups`. `teacher_context` and `teacher_response`, float16
        `[batch, teacher_dim]`: vectors to distil. `ranking_teacher_context` and
        `ranking_teacher_response`, float16 `[batch, dim]`, of length 1: vectors of a teacher whose
        ranking is learnt. `utterance_slots`, int32 `[batch × k]`: single texts, with `teacher_text`
        float16 `[batch × k, teacher_dim]`, and `intent_groups` and `intent_names` as for
        `intent_losses`.

    Returns:
      dict of the encoder's outputs and the `scale` of the cosines, a scalar.

    Reference: arXiv 1911.03688 §2.1 equation 1, §2.2, §3.1. J in equation 1 is a sum over examples.
    So each objective is a sum over the examples that have it, divided by the batch size. The paper
    does not say how the three are combined.
    """

    def __init__(
        self, encoder: DualEncoder, config: EncoderTraining, *, teacher_dim: int = 0, **kwargs: Any
    ):
        objectives = OBJECTIVES if encoder.config.multi_context else OBJECTIVES[:1]
        names = ("batch_accuracy", "ranking_loss")
        means = [_prefix(objective) + name for name in names for objective in objectives]
        super().__init__(encoder, means, l2=config.l2, **kwargs)
        self.objectives = objectives
        self.config = config
        self.scale_end = config.scale_end or math.sqrt(encoder.config.encoding_dim)
        self.distillation = config.distillation if teacher_dim else 0.0
        if self.distillation:
            self.teacher_projection = keras.layers.Dense(
                teacher_dim,
                use_bias=False,
                kernel_initializer=glorot_uniform(),
                dtype=encoder.dtype_policy,
                name="teacher_projection",
            )
            self.teacher_projection.build((None, encoder.config.reduced_dim))
        self.built = True

    def outputs_of(self, inputs: dict[str, Any], training: bool) -> dict[str, Any]:
        if is_in_micro_batches(inputs):
            encodings = encode_micro_batches(self.encoder, inputs, training=training)
        else:
            encodings = self.encoder(inputs, training=training)
        scale = annealed_scale(
            ops.convert_to_tensor(self.steps_done),
            start=self.config.scale_start,
            end=self.scale_end,
            anneal_steps=self.config.scale_anneal_steps,
        )
        return {**encodings, "scale": scale}

    def loss_of(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
        is_candidate = self._is_candidate(inputs)
        loss = sum(
            ops.mean(self._ranking_losses(outputs, cosines, is_candidate) * counts)
            for _, cosines, counts in self._objectives(outputs)
        )
        loss = self.config.ranking * loss + self._taught_ranking_loss(inputs, outputs, is_candidate)
        return loss + self._distillation_loss(inputs, outputs) + self._intent_loss(inputs, outputs)

    def measures_of(
        self, inputs: dict[str, Any], outputs: dict[str, Any]
    ) -> Iterator[tuple[str, Any, Any]]:
        is_candidate = self._is_candidate(inputs)
        for name, cosines, counts in self._objectives(outputs):
            losses = self._ranking_losses(outputs, cosines, is_candidate)
            own = ops.diagonal(cosines)[:, None]
            # Without mined negatives, so that the share compares with that of runs without them.
            cosines = cosines[:, : ops.shape(cosines)[0]]
            is_first = ops.sum(ops.cast(cosines >= own, "int32"), axis=1) == 1
            yield f"{_prefix(name)}batch_accuracy", ops.cast(is_first, "float32"), counts
            yield f"{_prefix(name)}ranking_loss", losses, counts

    def _ranking_losses(self, y_pred: dict[str, Any], cosines: Any, is_candidate: Any) -> Any:
        return softmax_losses(
            y_pred["scale"] * cosines, self.config.label_smoothing, is_candidate=is_candidate
        )

    def _is_candidate(self, inputs: dict[str, Any]) -> Any:
        """Return the candidates of each context, bool `[batch, columns]`; None for all."""
        if "response_groups" not in inputs:
            return None
        own = inputs["response_groups"]
        groups = own
        if "negative_groups" in inputs:
            groups = ops.concatenate([own, inputs["negative_groups"]])
        return distinct_responses(own, groups)

    def _taught_ranking_loss(
        self, inputs: dict[str, Any], y_pred: dict[str, Any], is_candidate: Any
    ) -> Any:
        """Return the distance from the teacher's choice of a response, without mined negatives."""
        if not self.config.ranking_distillation:
            return 0.0
        taught = [ops.cast(inputs[f"ranking_teacher_{name}"], "float32") for name in PAIR]
        own = [y_pred[f"{name}_encoding"] for name in PAIR]
        scores, teacher_scores = (
            y_pred["scale"] * ops.matmul(contexts, ops.transpose(responses))
            for contexts, responses in (own, taught)
        )
        if is_candidate is not None:
            is_candidate = is_candidate[:, : ops.shape(scores)[0]]
        losses = taught_ranking_losses(scores, teacher_scores, is_candidate=is_candidate)
        return self.config.ranking_distillation * ops.mean(losses)

    def _distillation_loss(self, inputs: dict[str, Any], y_pred: dict[str, Any]) -> Any:
        """Return the angular distance of the mapped encodings r from the teacher's vectors.

        For each example, it is summed over the texts of the pair and over its single texts.
        """
        if not self.distillation:
            return 0.0
        encodings = [(f"reduced_{name}", f"teacher_{name}") for name in PAIR]
        encodings.append(("reduced_utterance", "teacher_text"))
        losses = [
            vector_losses(self.teacher_projection(y_pred[reduced]), inputs[teacher])
            for reduced, teacher in encodings
            if teacher in inputs
        ]
        if not losses:
            raise ValueError(
                f"The batches have no teacher's vectors, only {', '.join(sorted(inputs))}. Pass "
                "the teacher to the function that makes the batches."
            )
        of_example = (ops.shape(y_pred["reduced_context"])[0], -1)
        return self.distillation * sum(
            ops.mean(ops.sum(ops.reshape(loss, of_example), axis=1)) for loss in losses
        )

    def _intent_loss(self, inputs: dict[str, Any], y_pred: dict[str, Any]) -> Any:
        """Return the mean contrastive loss of single texts with and without the same intent."""
        if not self.config.intent_contrast:
            return 0.0
        losses, has_loss = intent_losses(
            y_pred["reduced_utterance"],
            inputs["intent_groups"],
            inputs["intent_names"],
            scale=y_pred["scale"],
        )
        number = ops.maximum(ops.sum(ops.cast(has_loss, "float32")), 1.0)
        return self.config.intent_contrast * ops.sum(losses) / number

    def _objectives(self, y_pred: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
        """Yield the name, the cosines and the mask of each objective.

        Cosines are `[batch, batch]`, or `[batch, batch + batch × k]` with mined negatives. The mask
        is `[batch]`: 1 if the example has the objective, else 0.
        """
        encoded = [y_pred[n] for n in ("response_encoding", "negative_encoding") if n in y_pred]
        responses = ops.transpose(ops.concatenate(encoded))
        for name in self.objectives:
            encoding = y_pred[f"{name}_encoding"]
            if name in ("extra_context", "both"):
                counts = ops.cast(y_pred["has_extra_context"], "float32")
            else:
                counts = ops.ones_like(encoding[:, 0])
            yield name, ops.matmul(encoding, responses), counts


def make_ranking_model(
    encoder: DualEncoder, config: EncoderTraining, *, precision: str, teacher_dim: int = 0
) -> ResponseRanking:
    """Return `encoder` with its objective, compiled with its optimizer.

    Args:
      encoder: the dual encoder.
      config: options of the objective and of the optimizer.
      precision: name of a dtype policy.
      teacher_dim: width of the teacher's vectors; 0 without a teacher.
    """
    encoder.trunk.jit_compile_feed_forward()
    model = ResponseRanking(encoder, config, teacher_dim=teacher_dim)
    optimizer = make_optimizer(
        config,
        embedding_table=encoder.trunk.embedding.table,
        embedding_clip=EMBEDDING_CLIP,
        precision=precision,
    )
    compile_with(model, optimizer)
    return model
