"""The loss for learning how a teacher ranks the responses in a batch."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from convert_tf.config.base import Config, check, option
from convert_tf.data.schema import PAIR, Addition
from convert_tf.training.encoder.losses.base import Loss
from convert_tf.training.encoder.losses.ranking import candidates_of

if TYPE_CHECKING:
    from convert_tf.training.encoder.data import EncoderData


@dataclasses.dataclass(frozen=True)
class TaughtRankingOptions(Config):
    """Options for learning a teacher's ranking.

    Attributes:
      ranking_teacher: Folder of teacher vectors from convert-tf teach --sides, for
        --ranking_distillation.
      ranking_distillation: Weight of the loss for learning how the teacher of --ranking_teacher
        ranks the responses in a batch.
    """

    heading: ClassVar[str] = "Taught ranking loss"

    ranking_teacher: str = ""
    ranking_distillation: float = option(0.0, at_least=0)


class TaughtRanking(Loss):
    """Cross-entropy between the teacher's and the model's choice of response.

    The loss of a context is −Σ_j softmax_j(scale · cos(X, Y_j)) log softmax_j(scale · cos(x, y_j)).
    Here x is the model's encoding of the context, and y_j the model's encoding of the j-th response
    in the batch. X and Y_j are the teacher's vectors for the same texts. Mined negatives are not
    used.

    Reference: arXiv 1503.02531 §2, with temperature 1.

    Example:
      options = {"data": "ids/", "ranking_teacher": "vectors/", "ranking_distillation": 0.5}
      train("convert_small", options, output="runs/taught")
    """

    name = "ranking_distillation"
    Options = TaughtRankingOptions

    def check(self, losses: Sequence[Loss]) -> None:
        check(
            bool(self.options.ranking_teacher) == bool(self.weight),
            "ranking_teacher and ranking_distillation must be set together.",
            (self.options.ranking_teacher, self.weight),
        )

    def open(self, data: "EncoderData") -> Sequence[Addition]:
        path = self.options.ranking_teacher
        self.vectors = data.teacher_vectors(path, flag="ranking_teacher", is_for_all=True)
        return (self.vectors,)

    def __call__(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
        from keras import ops

        from convert_tf.models.losses import taught_ranking_losses

        taught = [ops.cast(inputs[f"ranking_teacher_{name}"], "float32") for name in PAIR]
        encoded = [outputs[f"{name}_encoding"] for name in PAIR]
        scores, teacher_scores = (
            outputs["scale"] * ops.matmul(contexts, ops.transpose(responses))
            for contexts, responses in (encoded, taught)
        )
        is_candidate = candidates_of(inputs)
        if is_candidate is not None:
            is_candidate = is_candidate[:, : ops.shape(scores)[0]]
        return taught_ranking_losses(scores, teacher_scores, is_candidate=is_candidate)

    def facts(self) -> dict[str, Any]:
        return {"ranking_teacher": self.vectors.teacher}
