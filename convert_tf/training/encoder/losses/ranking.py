"""The ranking loss: pick the response of each context from the batch."""

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar

from convert_tf.config.base import Config, option
from convert_tf.config.model import ModelConfig
from convert_tf.training.encoder.losses.base import Loss


@dataclasses.dataclass(frozen=True)
class RankingOptions(Config):
    """Options of the ranking loss.

    Attributes:
      ranking: Weight of the ranking loss. 0 learns only from the other losses.
    """

    heading: ClassVar[str] = "Ranking loss"

    ranking: float = option(1.0, at_least=0)


class Ranking(Loss):
    """Cross-entropy of picking the response of each context.

    For a context x and the responses y of its batch it is
    −Σ_j t_j log softmax_j(scale · cos(x, y)), where t is 1 − `label_smoothing` for the right
    response and the rest is spread evenly. J in equation 1 is a sum over examples; the loss here is
    their mean. Mined negatives are responses for every context. Responses with equal
    `response_groups` are not negatives of one another.

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
        return True  # measured even if only other losses are trained

    def __call__(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
        return sum(
            self._losses(inputs, outputs, cosines) * counts
            for _, cosines, counts in self._ranked(outputs)
        )

    def measures(
        self, inputs: dict[str, Any], outputs: dict[str, Any]
    ) -> Iterator[tuple[str, Any, Any]]:
        from keras import ops

        for objective, cosines, counts in self._ranked(outputs):
            prefix, losses = self._prefix(objective), self._losses(inputs, outputs, cosines)
            right = ops.diagonal(cosines)[:, None]
            # Mined negatives are left out, so that the share is comparable with runs without them.
            cosines = cosines[:, : ops.shape(cosines)[0]]
            is_first = ops.sum(ops.cast(cosines >= right, "int32"), axis=1) == 1
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
        """Yield the name, the cosines and the mask of each objective.

        Cosines are `[batch, batch]`, or `[batch, batch + batch × k]` with mined negatives. The mask
        is `[batch]`: 1 if the example has earlier turns or does not need them, else 0.
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
    """Return the candidates of each context, bool `[batch, columns]`; None for all.

    Args:
      inputs: a batch. With `response_groups`, int32 `[batch]`, and `negative_groups`, int32
        `[batch × k]`, copies of the right response are not candidates.
    """
    from keras import ops

    from convert_tf.models.losses import distinct_responses

    if "response_groups" not in inputs:
        return None
    groups = positive_groups = inputs["response_groups"]
    if "negative_groups" in inputs:
        groups = ops.concatenate([groups, inputs["negative_groups"]])
    return distinct_responses(positive_groups, groups)
