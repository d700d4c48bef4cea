"""List the public interface: names, methods, fields, flags, HTTP requests and signatures.

    python -m scripts.list_surface > docs/surface.txt

`tests/test_surface.py` compares this list with docs/surface.txt, so that every change is visible in
a diff. docs/stability.md describes what is promised.
"""

import dataclasses
import functools
import importlib
import inspect
import re
import typing
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

from absl import flags

import convert_tf
from convert_tf.cli.flags import define_flag
from convert_tf.cli.main import COMMANDS
from convert_tf.encoding.sentence_encoder import SentenceEncoder
from convert_tf.encoding.signatures import SIGNATURES


def _parameters(function: Any) -> str:
    """Return the parameters of a function without types, as in `(texts, *, kind='sentence')`."""
    signature = inspect.signature(function)
    plain = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
        if parameter.name not in ("self", "cls")
    ]
    return str(inspect.Signature(plain))


def names() -> Iterator[str]:
    """Yield what `from convert_tf import …` offers.

    These are configurations with their fields, classes with their public methods, and functions.
    """
    for name in sorted(convert_tf.__all__):
        value = getattr(convert_tf, name)
        if name.startswith("__"):
            continue
        if not inspect.isclass(value):
            yield f"{name}{_parameters(value)}"
            continue
        fields = {f.name: f for f in dataclasses.fields(value)} if is_dataclass(value) else {}
        yield name if fields else f"{name}{_parameters(value)}"
        yield from (f"{name}.{field.name} {_default(field)}" for field in fields.values())
        for member, method in sorted(inspect.getmembers(value)):
            if not member.startswith("_") and member not in fields and _is_ours(value, member):
                yield f"{name}.{member}{_parameters(method) if callable(method) else ''}"


def _default(field: dataclasses.Field) -> str:
    """Return the default of a field, as in `= 512`, or `(needed)`."""
    if field.default_factory is not dataclasses.MISSING:
        return f"= {field.default_factory()!r}"
    return "(needed)" if field.default is dataclasses.MISSING else f"= {field.default!r}"


def _is_ours(owner: type, member: str) -> bool:
    """Return whether convert_tf defines a member, other than those that all configurations have."""
    defining = next(base for base in owner.__mro__ if member in vars(base))
    written = getattr(getattr(owner, member), "__module__", defining.__module__)
    return written.startswith("convert_tf.") and not written.startswith("convert_tf.config.")


def commands() -> Iterator[str]:
    """Yield the flags of each command with their defaults, or `(needed)` if a flag has none."""
    for command in sorted(COMMANDS):
        values = flags.FlagValues()
        module = command.replace(" ", ".").replace("-", "_")
        importlib.import_module(f"convert_tf.cli.{module}").define_flags(
            functools.partial(define_flag, values)
        )
        for name in sorted(values):
            flag: Any = values[name]
            default = "(needed)" if flag.is_needed else repr(flag.default)
            if flag.default is None and (said := re.search(r"Default: (.+)\.$", flag.text)):
                default = said[1]
            choices = getattr(flag.parser, "enum_values", None)
            yield f"{command} --{name} {default}{' of ' + ', '.join(choices) if choices else ''}"


def requests() -> Iterator[str]:
    """Yield the paths of the service and the fields of its JSON objects."""
    from convert_tf.service.application import Model, make_application

    class NoModel:
        """An encoder without signatures, which suffices to describe the service."""

        outputs: typing.ClassVar[dict[str, int]] = {}
        reads_history = False

        def run(self, name: str, inputs: Any) -> Any:
            raise NotImplementedError

    schema = make_application(Model(SentenceEncoder(NoModel()), "none")).openapi()
    for path, methods in sorted(schema["paths"].items()):
        for method in sorted(methods):
            yield f"{method.upper()} {path}"
    for name, described in sorted(schema["components"]["schemas"].items()):
        needed = described.get("required", ())
        for field, facts in described.get("properties", {}).items():
            default = "(needed)" if field in needed else repr(facts.get("default"))
            yield f"{name}.{field} {default}"


def signatures() -> Iterator[str]:
    """Yield the signature of modules and the output of `.onnx` files for each kind of encoding."""
    for kind, signature in SIGNATURES.items():
        yield f"{kind}: {signature.name}, {signature.output}"


def surface() -> str:
    """Return the whole list: a heading for each part, and one entry per line."""
    parts = {"Python": names, "Commands": commands, "HTTP": requests, "Signatures": signatures}
    return "\n\n".join("\n".join((f"# {title}", *part())) for title, part in parts.items()) + "\n"


if __name__ == "__main__":
    print(surface(), end="")
