"""The flags of `Rules`, for every command that makes examples."""

import dataclasses
from typing import Any

from absl import flags

from convert_tf.data.comments import PRESETS, Rules

# What PolyAI's rules leave out is a flag each; these two set the limits of both roles.
_BOTH = ("min_length", "max_length")


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
    flags.DEFINE_integer("min_length", None, "Sets --min_context_length, --min_response_length.")
    flags.DEFINE_integer("max_length", None, "Sets --max_context_length, --max_response_length.")
    explained = Rules.explanations()
    for field in dataclasses.fields(Rules):
        default = getattr(defaults, field.name)
        text = f"{explained[field.name]} Default: {default!r}."
        if isinstance(default, bool):
            flags.DEFINE_bool(field.name, None, text)
        elif isinstance(default, tuple):
            flags.DEFINE_list(field.name, None, text)
        else:
            flags.DEFINE_integer(field.name, None, text)


def given_rules(values: flags.FlagValues) -> dict[str, Any]:
    """The fields of `Rules` that the preset and the flags set, flags last."""
    given: dict[str, Any] = dict(PRESETS[values.preset])
    for name in _BOTH:
        if values[name].value is not None:
            for role in ("context", "response"):
                given[name.replace("_", f"_{role}_")] = values[name].value
    for field in dataclasses.fields(Rules):
        value = values[field.name].value
        if value is not None:
            given[field.name] = tuple(value) if isinstance(value, list) else value
    return given
