"""The flags of `Rules`, for every command that makes examples."""

import dataclasses
from typing import Any

from absl import flags

from convert_tf.data.comments import DEDUPLICATE, PRESETS, Rules

# Flags that set several fields.
_TOGETHER = {
    "min_length": ("min_context_length", "min_response_length"),
    "max_length": ("max_context_length", "max_response_length", "max_extra_length"),
}


def define_rule_flags() -> None:
    """Defines `--preset` and a flag for each field of `Rules`."""
    defaults = Rules()
    flags.DEFINE_enum(
        "preset",
        "polyai",
        sorted(PRESETS),
        "Rules to start from; other flags count beyond it. clean turns on: "
        f"{', '.join(PRESETS['clean'])}.",
    )
    for name, fields in _TOGETHER.items():
        flags.DEFINE_integer(name, None, f"Sets --{', --'.join(fields)}.")
    explained = Rules.explanations()
    for field in dataclasses.fields(Rules):
        default = getattr(defaults, field.name)
        text = f"{explained[field.name]} Default: {default!r}."
        if isinstance(default, bool):
            flags.DEFINE_bool(field.name, None, text)
        elif field.name == "deduplicate":
            flags.DEFINE_enum(field.name, None, DEDUPLICATE, text)
        elif isinstance(default, tuple):
            flags.DEFINE_list(field.name, None, text)
        else:
            flags.DEFINE_integer(field.name, None, text)


def given_rules(values: flags.FlagValues) -> dict[str, Any]:
    """The fields of `Rules` that the preset and the flags set, flags last."""
    given: dict[str, Any] = dict(PRESETS[values.preset])
    for name, fields in _TOGETHER.items():
        if values[name].value is not None:
            given.update(dict.fromkeys(fields, values[name].value))
    for field in dataclasses.fields(Rules):
        value = values[field.name].value
        if value is not None:
            given[field.name] = tuple(value) if isinstance(value, list) else value
    return given
