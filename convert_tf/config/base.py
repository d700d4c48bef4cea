"""What all configurations are: frozen dataclasses with strict JSON."""

import dataclasses
import inspect
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from convert_tf.storage.json_text import parsed_json, written_json

TOKENIZERS = ("subword", "sentencepiece")
PRECISIONS = ("auto", "float32", "mixed_bfloat16", "mixed_float16")
ConfigT = TypeVar("ConfigT", bound="Config")


def _typed(name: str, value: Any, default: Any) -> Any:
    """`value` in the type of the field's default: JSON knows no tuples, and 1 stands for 1.0."""
    if isinstance(default, tuple) and isinstance(value, list | tuple):
        kind = default[0] if default else ""
        return tuple(_typed(name, item, kind) for item in value)
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if type(value) is not type(default):
        raise ValueError(
            f"{name} must be of type {type(default).__name__}, as {default!r} is. "
            f"Received: {value!r}. Correct it."
        )
    return value


# No network that is trained comes near; beyond, TensorFlow ends with an error of its own.
_MAX_SIZE, _MAX_ENTRIES, _MAX_LAYERS = 2**24, 2**30, 1_000


def check_sizes(sizes: Mapping[str, int], *, matrices: Mapping[str, int], layers: int) -> None:
    """Refuses sizes that no machine computes with.

    Args:
      sizes: widths and numbers of rows, by the names of fields; each is 1 at least.
      matrices: entries of the largest weights, by the names of the fields that make them.
      layers: how many there are.

    Raises:
      ValueError: one is too large, or a size is less than 1.
    """
    for name, size in sizes.items():
        check(size >= 1, f"{name} must be at least 1.", size)
        check(size <= _MAX_SIZE, f"{name} must be at most {_MAX_SIZE:,}.", size)
    for name, entries in matrices.items():
        check(entries <= _MAX_ENTRIES,
              f"{name} must make at most {_MAX_ENTRIES:,} weights.", entries)  # fmt: skip
    check(layers <= _MAX_LAYERS, f"There must be at most {_MAX_LAYERS:,} layers.", layers)


def check(condition: bool, rule: str, received: object) -> None:
    if not condition:
        raise ValueError(f"{rule} Received: {received!r}. Choose a value that keeps this rule.")


@dataclasses.dataclass(frozen=True)
class Config:
    """JSON in and out; unknown keys are an error that lists the valid ones."""

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def to_json(self) -> str:
        return written_json(self.to_dict())

    @classmethod
    def from_dict(cls: type[ConfigT], values: dict[str, Any]) -> ConfigT:
        names = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - names)
        if unknown:
            raise ValueError(
                f"Every key of a {cls.__name__} must be one of its fields. Received: {unknown}. "
                f"Valid keys: {sorted(names)}."
            )
        defaults = {field.name: field.default for field in dataclasses.fields(cls)}
        return cls(**{k: _typed(k, v, defaults[k]) for k, v in values.items()})

    @classmethod
    def explanations(cls) -> dict[str, str]:
        """What each field means: its entry under `Args` in the docstring."""
        entries = inspect.cleandoc(cls.__doc__ or "").partition("Args:\n")[2]
        found = re.findall(r"^  (\w[\w, ]*): (.*(?:\n    .*)*)", entries, re.MULTILINE)
        return {name: " ".join(text.split()) for names, text in found for name in names.split(", ")}

    @classmethod
    def from_json(cls: type[ConfigT], text: str) -> ConfigT:
        try:
            values = parsed_json(text)
        except ValueError as error:
            raise ValueError(
                f"A {cls.__name__} file must hold JSON. Received: {text[:80]!r} ({error})."
            ) from error
        if not isinstance(values, dict):
            raise ValueError(
                f"A {cls.__name__} file must hold one JSON object. Received: {text[:80]!r}."
            )
        return cls.from_dict(values)

    def changes_since(self, before: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
        """Fields that another version may have written, with rules of its own, and that differ.

        Args:
          before: of `to_json`; fields that are not there have their defaults.

        Returns:
          name → (value before, value here), as JSON has them.
        """
        old, new = (parsed_json(each.to_json()) for each in (type(self)(), self))
        old |= before
        return {name: (old[name], new[name]) for name in new if old[name] != new[name]}

    def differences(self: ConfigT, other: ConfigT) -> dict[str, tuple[Any, Any]]:
        """Fields whose values differ: name → (value here, value in `other`)."""
        return {
            field.name: (getattr(self, field.name), getattr(other, field.name))
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != getattr(other, field.name)
        }
