"""The loss for moving a text closer to its paraphrases than to its opposites."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from convert_tf.config.base import Config, check, option
from convert_tf.data.schema import Addition
from convert_tf.training.encoder.losses.base import Loss

if TYPE_CHECKING:
    from convert_tf.training.encoder.data import EncoderData


@dataclasses.dataclass(frozen=True)
class OppositesOptions(Config):
    """Options for the opposites loss.

    Attributes:
      triplets: Folder of token ids from convert-tf tokenize --triplets.
      triplets_per_pair: Number of triplets per pair.
      opposites: Weight of the loss that moves texts closer to their paraphrases than to their
        opposites.
    """

    heading: ClassVar[str] = "Opposites loss"

    triplets: str = ""
    triplets_per_pair: int = option(1, at_least=1, read_with=("triplets", None))
    opposites: float = option(0.0, at_least=0)


class Opposites(Loss):
    """Cross-entropy of picking a text's paraphrase among all paraphrases and opposites in a batch.

    Triplet i has an anchor a_i, a paraphrase p_i and an opposite o_i. The loss of the triplet is
    −log softmax_i(scale · cos(v(a_i), v(c))) over the candidates c = p_1, …, p_n, o_1, …, o_n.
    Candidates equal to the anchor or its paraphrase are not counted as wrong. With distillation, v
    is the mapped encoding that it trains (`EncoderObjective.similarity`). Otherwise, v is the
    reduced encoding r.

    The metric `opposites_accuracy` is the share of triplets in which the paraphrase is closer to
    the anchor than the opposite is.

    Reference: arXiv 1705.00652 §4.4, with hard negatives as in arXiv 2104.08821 §4.

    Example:
      options = {"data": "ids/", "triplets": "triplet_ids/", "opposites": 1.0}
      train("convert_small", options, init_from="convert_small", output="runs/opposites")
    """

    name = "opposites"
    Options = OppositesOptions

    def __init__(self, options: Any = None, *, weight: float | None = None) -> None:
        super().__init__(options, weight=weight)
        if self.weight > 0:
            self.metrics = ("opposites_loss", "opposites_accuracy")

    def check(self, losses: Sequence[Loss]) -> None:
        check(
            bool(self.options.triplets) == bool(self.weight),
            "triplets and opposites must be set together.",
            (self.options.triplets, self.weight),
        )

    def open(self, data: "EncoderData") -> Sequence[Addition]:
        from convert_tf.data.triplets import TripletDraws

        examples = data.open_texts(self.options.triplets, "triplets")
        draws = TripletDraws(
            examples, per_pair=self.options.triplets_per_pair, seed=self.options.seed
        )
        return (draws,)

    def __call__(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
        from convert_tf.models.losses import opposite_losses, paraphrase_candidates

        is_candidate = paraphrase_candidates(
            *(inputs[f"{name}_groups"] for name in ("anchor", "paraphrase", "opposite"))
        )
        vectors = self._vectors(outputs)
        return opposite_losses(*vectors, scale=outputs["scale"], is_candidate=is_candidate)

    def _vectors(self, outputs: dict[str, Any]) -> list[Any]:
        """Return the vectors of the anchors, paraphrases and opposites, float `[triplets, dim]`."""
        names = ("anchor", "paraphrase", "opposite")
        return [self.model.similarity(outputs[f"reduced_{name}"]) for name in names]

    def measures(
        self, inputs: dict[str, Any], outputs: dict[str, Any]
    ) -> Iterator[tuple[str, Any, Any]]:
        from keras import ops

        from convert_tf.layers.side_network import l2_normalize

        if not self.metrics:
            return
        yield "opposites_loss", self(inputs, outputs), None
        anchor, paraphrase, opposite = map(l2_normalize, self._vectors(outputs))
        margin = ops.sum(anchor * (paraphrase - opposite), axis=-1)
        yield "opposites_accuracy", ops.cast(margin > 0, "float32"), None
