"""Options of the pre-training of BERT-shaped trunks.

Reference: arXiv 1905.01969 §4.1.
"""

import dataclasses
from typing import Any, ClassVar

from convert_tf.config.base import DATA, changed, option
from convert_tf.config.train import Training


@dataclasses.dataclass(frozen=True)
class Pretraining(Training):
    """How a BERT-shaped trunk is pre-trained. The defaults are those of arXiv 1905.01969 §4.1.

    The paper does not say how many steps the warm-up has; XLM has 4,000. After it the rate falls
    with the inverse square root of the steps.
    """

    former: ClassVar[dict[str, Any]] = {
        "train_split": "train",
        "eval_split": "dev",
        "mask_rate": 0.15,
        "beta_1": 0.9,
        "beta_2": 0.98,
        "loss_scale": 128.0,
    }

    data: str = changed(Training, "data", "", text="Folder of records, or of token ids.")
    all_turns: bool = option(
        True,
        "A context is all turns, the oldest first, as rankers read them. Token ids do not say "
        "where a turn ends: with them it is always the last turn.",
        group=DATA,
    )
    max_tokens: int = option(
        128,
        "Longer texts are cut to this many tokens; a context of all turns keeps its last tokens.",
        group=DATA,
        at_least=1,
    )
    shuffle_buffer: int = option(
        20_000,
        "Examples in memory together, from which batches of similar length are made.",
        group=DATA,
        at_least=4,  # two pairs for each objective
    )
    steps: int = changed(
        Training,
        "steps",
        100_000,
        text="Optimizer steps; masked language model and next utterance take turns.",
    )
    batch_tokens: int = option(
        32_000, "Tokens of a batch, special tokens and padding counted.", is_common=True, at_least=1
    )
    learning_rate: float = changed(
        Training, "learning_rate", 2e-4, text="Peak learning rate of Adam."
    )
    warmup_steps: int = changed(Training, "warmup_steps", 4_000, at_least=1)
    dropout: float = option(0.1, "Drop rate on all layers.", at_least=0, below=1)
    eval_examples: int = changed(Training, "eval_examples", 2_000)

    def changes_since(self, before: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
        # Runs that do not say it began when a context was the last turn.
        return super().changes_since({"all_turns": False, **before})
