"""What a ranker is made of."""

import dataclasses

from convert_tf.config.bert import BertConfig
from convert_tf.config.head import AUTO, HeadConfig
from convert_tf.config.model import ModelConfig
from convert_tf.storage.json_text import parsed_json, written_json

# The configuration of each kind of trunk.
TRUNKS: dict[str, type[ModelConfig] | type[BertConfig]] = {
    "convert": ModelConfig,
    "bert": BertConfig,
}


@dataclasses.dataclass(frozen=True)
class RankerConfig:
    """What a ranker is, as `config.json` of its checkpoint has it.

    Attributes:
      model: of the trunk.
      head: of the head, with the scale that is used in place of 0, and what `auto` stands for.
      trunk: kind of trunk: `convert`, a dual encoder, or `bert`.
    """

    model: ModelConfig | BertConfig
    head: HeadConfig
    trunk: str = "convert"

    def __post_init__(self) -> None:
        has_start = self.trunk == "bert" or self.head.head == "cross"
        if self.head.reduction == "mean_without_first" and not has_start:
            raise ValueError(
                "The mean without the first output is for trunks that put [S] before a text. "
                "Received: mean_without_first on ConveRT's trunk. Choose mean."
            )
        if self.head.reduction == AUTO:
            reduction = "first" if self.trunk == "bert" else "sqrt_n"
            object.__setattr__(self, "head", dataclasses.replace(self.head, reduction=reduction))

    @property
    def tokenizer(self) -> str:
        """Kind of the vocabulary."""
        return self.model.tokenizer

    @classmethod
    def from_json(cls, text: str) -> "RankerConfig":
        """What `to_json` wrote.

        Raises:
          ValueError: the text is something else.
        """
        values = parsed_json(text)
        if not isinstance(values, dict) or set(values) != {"trunk", "model", "head"}:
            raise ValueError(
                "A ranker's configuration has the keys head, model and trunk. Received: "
                f"{text[:80]!r}. Name a checkpoint that convert-tf train --head wrote."
            )
        if values["trunk"] not in TRUNKS:
            raise ValueError(
                f"A trunk must be one of {', '.join(TRUNKS)}. Received: {values['trunk']!r}."
            )
        return cls(
            TRUNKS[values["trunk"]].from_dict(values["model"]),
            HeadConfig.from_dict(values["head"]),
            values["trunk"],
        )

    def to_json(self) -> str:
        values = {"trunk": self.trunk, "model": self.model.to_dict(), "head": self.head.to_dict()}
        return written_json(values)
