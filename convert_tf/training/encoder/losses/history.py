"""Two ranking losses for models that read earlier turns."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from convert_tf.config.base import check
from convert_tf.config.model import ModelConfig
from convert_tf.data.schema import Addition
from convert_tf.training.encoder.losses.base import Loss
from convert_tf.training.encoder.losses.ranking import Ranking, RankingOptions

if TYPE_CHECKING:
    from convert_tf.training.encoder.data import EncoderData


@dataclasses.dataclass(frozen=True)
class HistoryOptions(RankingOptions):
    """Options for the losses on earlier turns. These losses have the weight of the ranking loss.

    Attributes:
      history_only: Train only those side networks of a multi-context model that read earlier turns.
    """

    history_only: bool = False


class History(Ranking):
    """Ranking losses for the two encodings of a multi-context model that include earlier turns.

    In one loss, responses are ranked by the encoding of the earlier turns; in the other, by the
    encoding of context and earlier turns together. Both are computed as in `Ranking`, with this
    encoding in place of the context's. An example without earlier turns adds nothing to these
    losses, but its response is a negative for the other examples. Each loss is a sum over the
    examples with earlier turns, divided by the batch size. The paper does not say how to combine
    the losses.

    Reference: arXiv 1911.03688 §2.2.

    Example:
      train(
          None, {"data": "data/", "history_only": True},
          init_from="convert_multi_context", output="runs/history",
      )
    """

    name = "history"
    weight_option = "ranking"
    Options = HistoryOptions
    objectives = ("extra_context", "both")

    def applies_to(self, model: ModelConfig) -> bool:
        return model.multi_context or self.options.history_only

    def check(self, losses: Sequence[Loss]) -> None:
        others = [loss.name for loss in losses if not isinstance(loss, Ranking) and loss.weight]
        check(
            not self.options.history_only or not others,
            "history_only cannot be combined with losses other than the ranking loss.",
            others,
        )

    def open(self, data: "EncoderData") -> Sequence[Addition]:
        if not self.options.history_only:
            return ()
        from convert_tf.checkpoints.configs import load_config
        from convert_tf.training.encoder.data import reads_no_turns

        if not data.model.multi_context:
            raise ValueError(reads_no_turns("history_only"))
        if not data.is_resumed:
            blocks = len(data.model.max_relative_attention)
            initial = 0
            if data.init_from is not None:
                initial = len(load_config(data.init_from).max_relative_attention)
            if initial != blocks:
                raise ValueError(
                    "history_only trains only the networks for earlier turns, so --init_from "
                    f"must be an encoder with {blocks} blocks. Received: {data.init_from!r}, which "
                    f"has {initial} blocks. Change --init_from, or omit --history_only."
                )
        return ()

    def build(self, model: Any) -> None:
        super().build(model)
        if self.options.history_only:
            model.encoder.freeze_all_but_history()

    def facts_to_keep(self) -> Sequence[str]:
        # r does not change, so earlier measurements of the similarity map remain valid.
        return ("teacher", "similarity", "opposites") if self.options.history_only else ()
