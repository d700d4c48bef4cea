"""The loss for pulling together single texts with the same label."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from convert_tf.config.base import Config, option
from convert_tf.data.schema import Addition
from convert_tf.training.encoder.losses.base import Loss

if TYPE_CHECKING:
    from convert_tf.training.encoder.data import EncoderData


@dataclasses.dataclass(frozen=True)
class IntentContrastOptions(Config):
    """Options for the loss on labelled texts.

    Attributes:
      intent_contrast: Weight of the loss that pulls together --utterances with the same label.
    """

    heading: ClassVar[str] = "Intent loss"

    intent_contrast: float = option(0.0, at_least=0)


class IntentContrast(Loss):
    """Supervised contrastive loss on single texts, some of which have an intent.

    The loss of a text i is the mean of −log softmax_j(scale · cos(r_i, r_j)) over the other texts j
    with the same intent. The softmax runs over these texts and over the texts with other intents.
    The loss of a batch is the mean over all texts that share their intent with another text.

    Reference: arXiv 2004.11362 §3.2.2 equation 2 (L_out).

    Example:
      options = {"data": "ids/", "utterances": "single/", "utterances_per_pair": 2}
      train("tiny", {**options, "intent_contrast": 0.3}, output="runs/intents")
    """

    name = "intent_contrast"
    Options = IntentContrastOptions

    @property
    def reads_utterances(self) -> bool:
        return bool(self.weight)

    def open(self, data: "EncoderData") -> Sequence[Addition]:
        data.utterances.draw_in_pairs()
        return (data.utterances,)

    def __call__(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
        from keras import ops

        from convert_tf.models.losses import intent_losses

        losses, has_loss = intent_losses(
            outputs["reduced_utterance"],
            inputs["intent_groups"],
            inputs["intent_names"],
            scale=outputs["scale"],
        )
        return ops.sum(losses) / ops.maximum(ops.sum(ops.cast(has_loss, "float32")), 1.0)
