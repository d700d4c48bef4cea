"""Configuration of rankers."""

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
    """Configuration of a ranker, as in the `config.json` of its folder.

    Attributes:
      model: configuration of the trunk.
      head: configuration of the head. `auto` and a scale of 0 are replaced by real values.
      trunk: kind of the trunk: `convert` for a dual encoder, or `bert`.
    """

    model: ModelConfig | BertConfig
    head: HeadConfig
    trunk: str = "convert"

    def __post_init__(self) -> None:
        has_start = self.trunk == "bert" or self.head.head == "cross"
        if self.head.reduction == "mean_without_first" and not has_start:
            raise ValueError(
                "mean_without_first is only for trunks that put [S] before a text. ConveRT's trunk "
                "does not. Choose mean."
            )
        if self.head.reduction == AUTO:
            reduction = "first" if self.trunk == "bert" else "sqrt_n"
            object.__setattr__(self, "head", dataclasses.replace(self.head, reduction=reduction))

    @property
    def tokenizer(self) -> str:
        """Kind of the tokenizer."""
        return self.model.tokenizer

    @classmethod
    def from_json(cls, text: str) -> "RankerConfig":
        """Read the result of `to_json`.

        Raises:
          ValueError: if the text is not the configuration of a ranker.
        """
        values = parsed_json(text)
        if not isinstance(values, dict) or set(values) != {"trunk", "model", "head"}:
            raise ValueError(
                "This is not the configuration of a ranker, with the keys head, model and trunk. "
                f"Received: {text[:80]!r}. Use a folder that convert-tf train --head wrote."
            )
        if values["trunk"] not in TRUNKS:
            raise ValueError(
                f"trunk must be one of {', '.join(TRUNKS)}. Received: {values['trunk']!r}."
            )
        return cls(
            TRUNKS[values["trunk"]].from_dict(values["model"]),
            HeadConfig.from_dict(values["head"]),
            values["trunk"],
        )

    def to_json(self) -> str:
        values = {"trunk": self.trunk, "model": self.model.to_dict(), "head": self.head.to_dict()}
        return written_json(values)
