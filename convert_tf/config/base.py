"""Base class of configurations: frozen dataclasses, written as JSON and set by flags."""

import contextlib
import dataclasses
import inspect
import operator
import os
import re
from collections.abc import Container, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from convert_tf.storage.json_text import parsed_json, whole_characters, written_json
from convert_tf.storage.messages import shortened

TOKENIZERS = ("subword", "sentencepiece")
PRECISIONS = ("auto", "float32", "mixed_bfloat16", "mixed_float16")
# Headings in the help of the commands.
DATA, MODEL, OPTIMISATION, OUTPUT = "Data", "Model", "Optimisation", "Output"
_MAX_SHOWN = 200  # maximum number of characters of a received value in a message
ConfigT = TypeVar("ConfigT", bound="Config")


def _typed(name: str, value: Any, default: Any) -> Any:
    """Convert a JSON value to the type of the field's default, such as a list to a tuple."""
    if isinstance(default, tuple) and isinstance(value, list | tuple):
        kind = default[0] if default else ""
        return tuple(_typed(name, item, kind) for item in value)
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if type(value) is not type(default):
        raise ValueError(
            f"{name} must be of type {type(default).__name__}, for example {default!r}. "
            f"Received: {shortened(repr(value), _MAX_SHOWN)}."
        )
    return value


def _plain(value: Any) -> Any:
    """Convert a NumPy number or boolean to its Python type, and a path to a string.

    Lists become tuples. The items of lists and tuples are converted too. Other values do not
    change.
    """
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return value.item()
    if hasattr(value, "__index__") and not isinstance(value, int):  # a boolean stays one
        with contextlib.suppress(TypeError):  # an array of several numbers
            return operator.index(value)
    return value


# Far above the sizes of real networks. TensorFlow crashes on much larger ones.
MAX_SIZE, _MAX_ENTRIES, _MAX_LAYERS = 2**24, 2**30, 1_000


def check_weights(matrices: Mapping[str, int], *, layers: int) -> None:
    """Check that the weights of a network are not absurdly large.

    Args:
      matrices: number of entries in each of the largest weight matrices. A key names the fields
        that determine the size of its matrix.
      layers: number of layers in the network.

    Raises:
      ValueError: if a matrix is too large, or there are too many layers.
    """
    for name, entries in matrices.items():
        check(entries <= _MAX_ENTRIES,
              f"{name} must give at most {_MAX_ENTRIES:,} weights.", entries)  # fmt: skip
    check(layers <= _MAX_LAYERS, f"A network must have at most {_MAX_LAYERS:,} layers.", layers)


def check(condition: bool, rule: str, received: object) -> None:
    """Raise a `ValueError` that states `rule` and the received value if the condition is false."""
    if not condition:
        raise ValueError(f"{rule} Received: {shortened(repr(received), _MAX_SHOWN)}.")


def option(
    default: Any,
    *,
    group: str | None = None,
    is_common: bool | None = None,
    choices: Sequence[str] | None = None,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    read_with: tuple[str, Any] | None = None,
    is_kept: bool | None = None,
) -> Any:
    """Return a dataclass field with settings, which `options_of` reads.

    Args:
      default: default value.
      group: heading under which the help lists the field; by default the heading of the class.
      is_common: whether the short help lists the field; false by default.
      choices: allowed values. `"none"` means None.
      at_least, above, at_most, below: bounds for the value of a number.
      read_with: name of another field, and the values of it for which this field takes effect. If
        the values are None, this field takes effect for any value except "" and 0.
      is_kept: whether a resumed run must have the same value as before; false by default.
    """
    settings = {
        name: value for name, value in locals().items() if name != "default" and value is not None
    }
    return dataclasses.field(default=default, metadata=settings)


def size(default: int) -> Any:
    """Return a field for a size in a network, such as a width or a number of layers."""
    return option(default, at_least=1, at_most=MAX_SIZE)


def options_of(config: Any) -> dict[str, dict[str, Any]]:
    """Return the settings of all fields of a class, by the name of the field.

    The settings of a field are the arguments of `option`, and `text`, the help text. The help text
    is the entry for the field under `Attributes:` in the docstring of the class; under `python -OO`
    it is empty. A subclass that redefines a field inherits the settings that it does not change.
    """
    unset = {"text": "", "is_common": False, "choices": (), "read_with": None, "is_kept": False}
    options: dict[str, dict[str, Any]] = {}
    bases: list[Any] = [base for base in config.__mro__ if dataclasses.is_dataclass(base)]
    for base in reversed(bases):
        texts = entries(base.__doc__, "Attributes")
        for field in dataclasses.fields(base):
            inherited = options.get(field.name, {"group": base.heading, **unset})
            text = texts.get(field.name, inherited["text"])
            options[field.name] = {**inherited, **field.metadata, "text": text}
    return options


def entries(docstring: str | None, heading: str) -> dict[str, str]:
    """Return the entries under a heading of a docstring, as a dict from name to text."""
    section = inspect.cleandoc(docstring or "").partition(f"\n{heading}:\n")[2].partition("\n\n")[0]
    pairs = re.findall(r"^  (\w+): (.*(?:\n {4}.*)*)", section, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in pairs}


def preset(presets: Mapping[str, dict[str, Any]], name: str) -> dict[str, Any]:
    """Return the fields of a preset. Raise `ValueError` if no preset has this name."""
    if name not in presets:
        raise ValueError(f"{name!r} is not a preset. Choose one of {', '.join(sorted(presets))}.")
    return presets[name]


_BOUNDS = {
    "at_least": ("at least", lambda value, bound: value >= bound),
    "above": ("greater than", lambda value, bound: value > bound),
    "at_most": ("at most", lambda value, bound: value <= bound),
    "below": ("less than", lambda value, bound: value < bound),
}


def check_field(name: str, value: Any, settings: Mapping[str, Any]) -> None:
    """Check the value of a field against its choices and bounds.

    Args:
      name: name of the field, for the error message.
      value: value of the field. It may be None if `"none"` is one of the choices.
      settings: settings of the field, from `options_of`.

    Raises:
      ValueError: if the value is not one of the choices, or is out of bounds.
    """
    if choices := settings["choices"]:
        values = [None if choice == "none" else choice for choice in choices]
        listed = ", ".join(map(str, values))
        check(value in values, f"{name} must be one of {listed}.", value)
    bounds = {kind: settings[kind] for kind in _BOUNDS if kind in settings}
    range_text = " and ".join(f"{_BOUNDS[kind][0]} {bound}" for kind, bound in bounds.items())
    try:
        is_within = all(_BOUNDS[kind][1](value, bound) for kind, bound in bounds.items())
    except TypeError:  # for example, a string
        is_within = False
    check(is_within, f"{name} must be {range_text}.", value)


@dataclasses.dataclass(frozen=True)
class Config:
    """Base class of configurations, which are written to and read from JSON.

    A field that a file lacks gets its default, for example if the field is newer than the file.
    NumPy numbers and booleans become Python ones, paths become strings, and lists become tuples.

    Raises:
      ValueError: if a value is out of bounds or not one of the choices.

    Attributes:
      heading: heading in the help for fields without a `group`.
      former: fields of earlier versions, each with the only value that this version still accepts
        in a file. If this value is None, any value is accepted.
    """

    heading: ClassVar[str] = ""
    former: ClassVar[Mapping[str, Any]] = {}

    def __post_init__(self) -> None:
        options = options_of(type(self))
        for field in dataclasses.fields(self):
            value = _plain(getattr(self, field.name))
            object.__setattr__(self, field.name, value)  # a frozen class has no other way
            if value is not None or field.default is not None:
                is_number = isinstance(value, int) and not isinstance(value, bool)
                is_integer = type(field.default) is not int or is_number
                check(is_integer, f"{field.name} must be a whole number.", value)
                check_field(field.name, value, options[field.name])

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        return {field.name: field.default for field in dataclasses.fields(cls)}

    def group(self, name: str) -> dict[str, Any]:
        """Return the names and values of the fields that the help lists under a heading."""
        options = options_of(type(self))
        names = [field for field, settings in options.items() if settings["group"] == name]
        return {field: getattr(self, field) for field in names}

    def check_effect(self, names: Container[str]) -> None:
        """Raise `ValueError` if a named field has no effect, given the values of other fields."""
        for name, settings in options_of(type(self)).items():
            if name in names and settings["read_with"]:
                other, values = settings["read_with"]
                value = getattr(self, other)
                if not value if values is None else value not in values:
                    raise ValueError(
                        f"--{name} has no effect with --{other}={value}. Omit it, or change "
                        f"--{other}."
                    )

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def to_json(self) -> str:
        return written_json(self.to_dict())

    def to_plain(self) -> dict[str, Any]:
        """Return the fields as JSON values: tuples become lists. `from_dict` reads the result."""
        return parsed_json(self.to_json())

    @classmethod
    def from_dict(cls: type[ConfigT], values: dict[str, Any]) -> ConfigT:
        """Return the configuration with these values from a JSON file.

        Raises:
          ValueError: if the values are not a dict, or do not fit the fields of the class.
        """
        check(isinstance(values, dict), f"A stored {cls.__name__} must be a JSON object.", values)
        for name in values.keys() & cls.former.keys():
            if cls.former[name] not in (None, values[name]):
                raise ValueError(
                    f"{name}={values[name]!r} is an option of an earlier version of convert_tf. "
                    f"This version only supports {cls.former[name]!r}. Train the model again, or "
                    "use the earlier version."
                )
        values = {name: value for name, value in values.items() if name not in cls.former}
        defaults = cls.defaults()
        unknown = sorted(set(values) - set(defaults))
        if unknown:
            names = shortened(whole_characters(" or ".join(unknown)), _MAX_SHOWN)
            raise ValueError(
                f"{cls.__name__} has no field {names}. "
                f"Its fields are {', '.join(sorted(defaults))}."
            )
        return cls(**{k: _typed(k, v, defaults[k]) for k, v in values.items()})

    @classmethod
    def from_json(cls: type[ConfigT], text: str) -> ConfigT:
        try:
            values = parsed_json(text)
        except ValueError:
            values = text
        return cls.from_dict(values)

    def changes_since(self, before: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
        """Compare this configuration with a stored one, which may come from an earlier version.

        Args:
          before: the stored configuration, parsed from JSON. Fields that it lacks have their
            defaults, and fields that this class lacks are ignored.

        Returns:
          The fields that differ: name → (stored value, value in this configuration), as in JSON.
        """
        old, new = type(self)().to_plain(), self.to_plain()
        old |= before
        return {name: (old[name], new[name]) for name in new if old[name] != new[name]}

    def only_kept(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return only the changes to fields that must stay the same when a run is resumed."""
        options = options_of(type(self))
        return {name: change for name, change in changes.items() if options[name]["is_kept"]}

    def differences(self: ConfigT, other: ConfigT) -> dict[str, tuple[Any, Any]]:
        """Return the fields that differ: name → (value in this configuration, value in `other`)."""
        fields, others = self.to_dict(), other.to_dict()
        return {
            name: (fields[name], others[name]) for name in fields if fields[name] != others[name]
        }
