"""What the commands' flags share: a flag for each field of a dataclass, and refusals."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from absl import flags

DEFAULT_ENCODER = "convert_small"
FLAGS = "Flags"  # heading of those that have no other
NEEDED = object()  # the default of a flag that must be given

# What `define_flags` of a command is given: `define_flag` with the command's flags.
Define = Callable[..., None]

_DEFINE: dict[type, Callable[..., Any]] = {
    bool: flags.DEFINE_boolean,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
    list: flags.DEFINE_list,
    tuple: flags.DEFINE_list,
}


class UsageError(Exception):
    """A command was not called as its help says; the exit status is 2."""


def define_flag(
    values: flags.FlagValues,
    name: str,
    default: Any,
    text: str,
    *,
    kind: type | None = None,
    choices: Sequence[str] | None = None,
    repeats: bool = False,
    group: str = FLAGS,
    is_common: bool = False,
    **bounds: float,
) -> None:
    """Defines one flag.

    Args:
      values: where it is defined.
      name: without dashes.
      default: its value where it is not given; `NEEDED` where it must be.
      text: its line of help.
      kind: type of its values; by default that of `default`, and `str` where that tells none.
      choices: the values that it may have.
      repeats: whether it may be given several times, for a list of strings.
      group: heading under which the help lists it.
      is_common: whether `--help` lists it where a command has too many flags for one screen.
      **bounds: `lower_bound` and `upper_bound` of a number.
    """
    is_needed = default is NEEDED
    default = None if is_needed else default
    if choices:
        flags.DEFINE_enum(name, default, choices, text, values, module_name=group)
    elif repeats:
        flags.DEFINE_multi_string(name, default, text, values, module_name=group)
    else:
        define = _DEFINE.get(kind or type(default), flags.DEFINE_string)
        define(name, default, text, flag_values=values, module_name=group, **bounds)
    flag: Any = values[name]
    flag.is_needed, flag.is_common = is_needed, is_common


def define_fields(define: Define, *configs: Any, leave_out: Collection[str] = ()) -> None:
    """Defines a flag for each field of dataclasses whose fields are `config.base.option`s.

    The flags are None where they are not given.

    Args:
      define: see `Define`.
      *configs: dataclasses; a field that several have is one flag.
      leave_out: fields that get no flag.
    """
    fields: dict[str, list[dataclasses.Field]] = {}
    headings: dict[str, str] = {}
    for config in configs:
        for field in dataclasses.fields(config):
            if field.name not in leave_out:
                fields.setdefault(field.name, []).append(field)
                headings.setdefault(field.name, getattr(config, "heading", FLAGS))
    for name, (field, *others) in fields.items():
        text = field.metadata["text"]
        # 0 and "" say that another flag decides, or the model.
        later = [other.default for other in others if other.default not in (0, "", field.default)]
        if field.default or later:
            text += f" Default: {' or '.join(map(_as_flag, (field.default, *later)))}."
        define(
            name,
            None,
            text,
            kind=int if field.default is None else type(field.default),
            choices=list(dict.fromkeys(c for f in (field, *others) for c in f.metadata["choices"])),
            group=field.metadata["group"] or headings[name],
            is_common=field.metadata["is_common"],
        )


def _as_flag(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def given_fields(
    values: flags.FlagValues, config: Any, *, leave_out: Collection[str] = ()
) -> dict[str, Any]:
    """The fields of a dataclass whose flags were given, with lists as tuples of the field's type.

    Raises:
      ValueError: an item of a list is not of that type.
    """
    given = {}
    for field in dataclasses.fields(config):
        value = None if field.name in leave_out else values[field.name].value
        if value is None:
            continue
        if isinstance(field.default, tuple):
            kind = type(field.default[0]) if field.default else str
            value = tuple(kind(item) for item in value)
        given[field.name] = value
    return given


# Flags whose values are models; each may be the name of a released one.
MODEL_FLAGS = ("encoder", "init_from", "rerank_checkpoint", "mined_with")


def resolve_names(values: flags.FlagValues) -> None:
    """Puts paths in the place of the names of released modules.

    Raises:
      ValueError: a module is not here and could not be downloaded.
    """
    from convert_tf.checkpoints.released import model_path

    for name in set(values) & {*MODEL_FLAGS}:
        flag = values[name]
        if isinstance(flag.value, list):
            flag.value = [model_path(each) for each in flag.value]
        elif flag.value:
            flag.value = model_path(flag.value)


def define_encoder(
    define: Define,
    default: Any = DEFAULT_ENCODER,
    *,
    text: str = "a released name, the folder of a run or of a module, or an .onnx file.",
    repeats: bool = False,
) -> None:
    """Defines `--encoder`, the model that a command uses.

    Args:
      define: see `Define`.
      default: of the flag.
      text: what it may be.
      repeats: whether there may be several.
    """
    text = f"Encoder: {text}"
    define("encoder", default, text, repeats=repeats)


def define_search_kind(define: Define) -> None:
    """Defines `--kind` of an index."""
    define(
        "kind",
        "response",
        "response: candidates are answers to queries; similarity: texts like them. That of the "
        "cache.",
        choices=["response", "similarity"],
    )


def check_queries(values: Any) -> None:
    """Refuse queries that ask for nothing.

    Raises:
      UsageError: one of `--queries` has nothing but white space.
    """
    if empty := [query for query in values.queries if not query.strip()]:
        raise UsageError(
            f"--queries must hold more than white space. Received: {empty[0]!r}. Leave it out, or "
            "ask for something."
        )


def define_model(define: Define) -> None:
    """Defines the flags of `loaded_classifier`."""
    define(
        "model",
        NEEDED,
        "Classifier: folder that convert-tf intent train wrote, or x.onnx that convert-tf intent "
        "export wrote.",
    )
    define("encoder", [], "Where the classifier's encoder is now, if it was moved.", repeats=True)


def loaded_classifier(values: Any) -> Any:
    """The `IntentClassifier`, the `MultiIntentClassifier` or the `IntentFile` of `--model`."""
    encoders = list(values.encoder)
    if values.model.endswith(".onnx"):
        from convert_tf.intents.one_file import IntentFile

        if encoders:
            raise UsageError(f"{values.model} holds its encoder. Leave --encoder out.")
        return IntentFile(values.model)
    from convert_tf.intents.loading import load_classifier

    return load_classifier(values.model, encoder=one_or_list(encoders) if encoders else None)


def one_or_list(encoders: Sequence[str]) -> str | list[str]:
    """The encoder, or several whose vectors are joined."""
    return encoders[0] if len(encoders) == 1 else list(encoders)


def same(values: Any, names: str) -> dict[str, Any]:
    """The values of flags, for arguments of the same names, which spaces separate."""
    return {name: values[name].value for name in names.split()}


def check_read(values: flags.FlagValues, unread: Mapping[str, Collection[str]]) -> None:
    """Refuses flags that were given and would change nothing.

    Args:
      values: the flags.
      unread: under each reason, as `"with --candidates"`, the flags that nothing reads for it.

    Raises:
      ValueError: there is one.
    """
    for reason, names in unread.items():
        if found := sorted(f"--{name}" for name in {*names} & {*values} if values[name].present):
            raise ValueError(
                f"Each flag must have an effect. Received: {', '.join(found)} {reason}. Leave "
                f"{'it' if len(found) == 1 else 'them'} out."
            )
