"""What all configurations are: frozen dataclasses with strict JSON, whose fields are flags."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from convert_tf.storage.json_text import parsed_json, written_json

TOKENIZERS = ("subword", "sentencepiece")
PRECISIONS = ("auto", "float32", "mixed_bfloat16", "mixed_float16")
# Headings of the help.
DATA, MODEL, OPTIMISATION, OUTPUT = "Data", "Model", "Optimisation", "Output"
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


def option(
    default: Any,
    text: str,
    *,
    group: str = "",
    is_common: bool = False,
    choices: Sequence[str] = (),
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    read_with: tuple[str, Any] | None = None,
) -> Any:
    """A field of a `Config`.

    Args:
      default: its value where none is given.
      text: what it is, for the help.
      group: heading under which the help lists it, if it is not the class's.
      is_common: whether the short help lists it too.
      choices: the values it may have.
      at_least, above, at_most, below: bounds of a number.
      read_with: another field and the values with which this one has an effect; None stands for
        any value but "" and 0.
    """
    metadata = {name: value for name, value in locals().items() if name != "default"}
    return dataclasses.field(default=default, metadata=metadata)


def changed(config: type["Config"], name: str, default: Any, **changes: Any) -> Any:
    """A field of a base class with another default, and with changes of its other arguments."""
    (field,) = (field for field in dataclasses.fields(config) if field.name == name)
    return option(default, **{**field.metadata, **changes})


_BOUNDS = {
    "at_least": ("at least", lambda value, bound: value >= bound),
    "above": ("greater than", lambda value, bound: value > bound),
    "at_most": ("at most", lambda value, bound: value <= bound),
    "below": ("less than", lambda value, bound: value < bound),
}


def _check_field(name: str, value: Any, metadata: Mapping[str, Any]) -> None:
    if choices := metadata.get("choices"):
        check(value in choices, f"{name} must be one of {', '.join(choices)}.", value)
    bounds = {kind: metadata[kind] for kind in _BOUNDS if metadata.get(kind) is not None}
    words = " and ".join(f"{_BOUNDS[kind][0]} {bound}" for kind, bound in bounds.items())
    is_within = all(_BOUNDS[kind][1](value, bound) for kind, bound in bounds.items())
    check(is_within, f"{name} must be {words}.", value)


@dataclasses.dataclass(frozen=True)
class Config:
    """JSON in and out; unknown keys are an error that lists the valid ones.

    Attributes:
      heading: under which the help lists the fields that have no `group`.
      former: fields that earlier versions had, and the value with which a file that has them is
        still read; None where any value is.
    """

    heading: ClassVar[str] = ""
    former: ClassVar[Mapping[str, Any]] = {}

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _check_field(field.name, getattr(self, field.name), field.metadata)

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        return {field.name: field.default for field in dataclasses.fields(cls)}

    def group(self, name: str) -> dict[str, Any]:
        """The fields that the help lists under one heading, with their values."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if (field.metadata["group"] or self.heading) == name
        }

    def unread(self, names: Sequence[str]) -> dict[str, str]:
        """Which of the named fields have no effect: name → the field that decides it."""
        found = {}
        for field in dataclasses.fields(self):
            if field.name not in names or not field.metadata["read_with"]:
                continue
            other, values = field.metadata["read_with"]
            value = getattr(self, other)
            if not value if values is None else value not in values:
                found[field.name] = other
        return found

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def to_json(self) -> str:
        return written_json(self.to_dict())

    @classmethod
    def from_dict(cls: type[ConfigT], values: dict[str, Any]) -> ConfigT:
        defaults = cls.defaults()
        values = cls._without_former(values)
        unknown = sorted(set(values) - set(defaults))
        if unknown:
            raise ValueError(
                f"Every key of a {cls.__name__} must be one of its fields. Received: {unknown}. "
                f"Valid keys: {sorted(defaults)}."
            )
        return cls(**{k: _typed(k, v, defaults[k]) for k, v in values.items()})

    @classmethod
    def _without_former(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values without those of former fields; `ValueError` where one had an effect."""
        for name in values.keys() & cls.former.keys():
            if cls.former[name] not in (None, values[name]):
                raise ValueError(
                    f"{name}={values[name]!r} is an option of an earlier version of convert_tf; "
                    f"this version only has {cls.former[name]!r}. Train the model again, or use "
                    "that version."
                )
        return {name: value for name, value in values.items() if name not in cls.former}

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

        Raises:
          ValueError: it has an option that is gone.
        """
        old, new = (parsed_json(each.to_json()) for each in (type(self)(), self))
        old |= self._without_former(before)
        return {name: (old[name], new[name]) for name in new if old[name] != new[name]}

    def differences(self: ConfigT, other: ConfigT) -> dict[str, tuple[Any, Any]]:
        """Fields whose values differ: name → (value here, value in `other`)."""
        return {
            field.name: (getattr(self, field.name), getattr(other, field.name))
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != getattr(other, field.name)
        }
