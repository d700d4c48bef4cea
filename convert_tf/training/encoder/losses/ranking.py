"""The ranking loss: pick the correct response to each context from the batch."""

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar

from convert_tf.config.base import Config, option
from convert_tf.config.model import ModelConfig
from convert_tf.training.encoder.losses.base import Loss


@dataclasses.dataclass(frozen=True)
class RankingOptions(Config):
    """Options for the ranking loss.

    Attributes:
      ranking: Weight of the ranking loss. With 0, only the other losses are trained.
    """

    heading: ClassVar[str] = "Ranking loss"

    ranking: float = option(1.0, at_least=0)


class Ranking(Loss):
    """Cross-entropy of picking the correct response to each context.

    For a context x and the responses y_j in its batch, the loss is −Σ_j t_j log softmax_j(scale ·
    cos(x, y_j)). The target t_j is 1 − `label_smoothing` for the correct response, and
    `label_smoothing` is spread evenly over the other responses. The objective in equation 1 is a
    sum over examples, whereas the loss here is the mean. Mined negatives are candidates for every
    context. Responses with equal `response_groups` are not negatives for one another.

    Reference: arXiv 1911.03688 §2.1 equation 1, §3.1.

    Example:
      train("tiny", {"data": "faq.csv", "ranking": 1.0}, output="runs/faq")
    """

    name = "ranking"
    Options = RankingOptions
    objectives: ClassVar[tuple[str, ...]] = ("context",)

    def __init__(self, options: Any = None, *, weight: float | None = None) -> None:
        kinds = ("batch_accuracy", "ranking_loss")
        self.metrics = tuple(
            self._prefix(objective) + kind for kind in kinds for objective in self.objectives
        )
        super().__init__(options, weight=weight)

    def applies_to(self, model: ModelConfig) -> bool:
        return True  # this loss is measured even if only other losses are trained

    def __call__(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
        return sum(
            self._losses(inputs, outputs, cosines) * counts
            for _, cosines, counts in self._ranked(outputs)
        )

    def measures(
        self, inputs: dict[str, Any], outputs: dict[str, Any]
    ) -> Iterator[tuple[str, Any, Any]]:
        from keras import ops

        is_candidate = candidates_of(inputs)
        for objective, cosines, counts in self._ranked(outputs):
            prefix, losses = self._prefix(objective), self._losses(inputs, outputs, cosines)
            # Mined negatives are left out, so that the accuracy is comparable with runs without
            # them.
            size = ops.shape(cosines)[0]
            is_ahead = cosines[:, :size] >= ops.diagonal(cosines)[:, None]
            if is_candidate is not None:
                is_ahead = ops.logical_and(is_ahead, is_candidate[:, :size])
            is_first = ops.sum(ops.cast(is_ahead, "int32"), axis=1) == 1
            yield f"{prefix}batch_accuracy", ops.cast(is_first, "float32"), counts
            yield f"{prefix}ranking_loss", losses, counts

    def _prefix(self, objective: str) -> str:
        return "" if objective == "context" else f"{objective}_"

    def _losses(self, inputs: dict[str, Any], outputs: dict[str, Any], cosines: Any) -> Any:
        from convert_tf.models.losses import softmax_losses

        return softmax_losses(
            outputs["scale"] * cosines,
            self.options.label_smoothing,
            is_candidate=candidates_of(inputs),
        )

    def _ranked(self, outputs: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
        """Yield a name, cosines and a mask for each ranking objective.

        The cosines are `[batch, batch]`, or `[batch, batch + batch × k]` with mined negatives. The
        mask, `[batch]`, is 0 if the objective needs earlier turns and the example has none, and
        otherwise 1.
        """
        from keras import ops

        encoded = [outputs[n] for n in ("response_encoding", "negative_encoding") if n in outputs]
        responses = ops.transpose(ops.concatenate(encoded))
        for name in self.objectives:
            encoding = outputs[f"{name}_encoding"]
            counts = ops.ones_like(encoding[:, 0])
            if name != "context":
                counts = ops.cast(outputs["has_extra_context"], "float32")
            yield name, ops.matmul(encoding, responses), counts


def candidates_of(inputs: dict[str, Any]) -> Any:
    """Return which responses are candidates for each context, or None if all of them are.

    Args:
      inputs: a batch. Copies of the correct response are excluded from the candidates only if the
        batch has `response_groups`, int32 `[batch]`, and, with mined negatives, `negative_groups`,
        int32 `[batch × k]`.

    Returns:
      None, or a mask, bool `[batch, columns]`. It has a column for each response in the batch,
      followed by a column for each mined negative.
    """
    from keras import ops

    from convert_tf.models.losses import distinct_responses

    if "response_groups" not in inputs:
        return None
    groups = positive_groups = inputs["response_groups"]
    if "negative_groups" in inputs:
        groups = ops.concatenate([groups, inputs["negative_groups"]])
    return distinct_responses(positive_groups, groups)
