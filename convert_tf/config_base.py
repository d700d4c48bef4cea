"""What all configurations are: frozen dataclasses with strict JSON."""

import dataclasses
import inspect
import json
import re
from typing import Any, TypeVar

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


def check(condition: bool, rule: str, received: object) -> None:
    if not condition:
        raise ValueError(f"{rule} Received: {received!r}. Choose a value that keeps this rule.")


@dataclasses.dataclass(frozen=True)
class Config:
    """JSON in and out; unknown keys are an error that lists the valid ones."""

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2) + "\n"

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
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(
                f"A {cls.__name__} file must hold JSON. Received: {text[:80]!r} ({error})."
            ) from error
        if not isinstance(values, dict):
            raise ValueError(
                f"A {cls.__name__} file must hold one JSON object. Received: {text[:80]!r}."
            )
        return cls.from_dict(values)

    def differences(self: ConfigT, other: ConfigT) -> dict[str, tuple[Any, Any]]:
        """Fields whose values differ: name → (value here, value in `other`)."""
        return {
            field.name: (getattr(self, field.name), getattr(other, field.name))
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != getattr(other, field.name)
        }
