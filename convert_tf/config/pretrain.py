"""Options of the pre-training of BERT-like trunks.

Reference: arXiv 1905.01969 §4.1.
"""

import dataclasses
from typing import Any, ClassVar

from convert_tf.config.base import DATA, changed, option
from convert_tf.config.train import Training


@dataclasses.dataclass(frozen=True)
class Pretraining(Training):
    """Options of pre-training. The defaults are those of arXiv 1905.01969 §4.1.

    The paper does not give the length of the warm-up; 4,000 steps are those of XLM. After the
    warm-up, the learning rate falls with the inverse square root of the step.
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
        "Use all turns as the context, the oldest first, as rankers do. With token ids, the "
        "context is always the last turn, because token ids do not mark where turns end.",
        group=DATA,
    )
    max_tokens: int = option(
        128,
        "Texts are cut to this many tokens. A context of all turns keeps its last tokens.",
        group=DATA,
        at_least=1,
    )
    shuffle_buffer: int = option(
        20_000,
        "Examples in memory, from which batches of similar length are made.",
        group=DATA,
        at_least=4,  # two pairs for each objective
    )
    steps: int = changed(
        Training,
        "steps",
        100_000,
        text="Optimizer steps. Masked tokens and next utterances are predicted in turns.",
    )
    batch_tokens: int = option(
        32_000,
        "Tokens per batch, including special tokens and padding.",
        is_common=True,
        at_least=1,
    )
    learning_rate: float = changed(
        Training, "learning_rate", 2e-4, text="Peak learning rate of Adam."
    )
    warmup_steps: int = changed(Training, "warmup_steps", 4_000, at_least=1)
    dropout: float = option(0.1, "Drop rate in all layers.", at_least=0, below=1)
    eval_examples: int = changed(Training, "eval_examples", 2_000)

    def changes_since(self, before: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
        # Runs without this field used only the last turn as the context.
        return super().changes_since({"all_turns": False, **before})
