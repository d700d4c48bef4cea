"""Run a script from benchmarks/ in this process, with its own flags."""

import functools
import importlib.util
import types
from pathlib import Path

import absl.app  # noqa: F401  # defines flags, which must not be a script's
import pytest
from absl import flags

KINDS = ("string", "multi_string", "list", "integer", "float", "bool", "boolean", "enum")


def script_module(script: Path) -> types.ModuleType:
    """Return a script from benchmarks/ as a module."""
    spec = importlib.util.spec_from_file_location(f"script_{script.stem}", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def script_with_flags(
    monkeypatch: pytest.MonkeyPatch, script: Path
) -> tuple[types.ModuleType, flags.FlagValues]:
    """Return a script as a module, and its flags separate from those of other scripts."""
    values = flags.FlagValues()
    monkeypatch.setattr(flags, "FLAGS", values)
    monkeypatch.syspath_prepend(script.parent)  # scripts import each other
    with monkeypatch.context() as context:
        for name in (f"DEFINE_{kind}" for kind in KINDS):
            define = functools.partial(getattr(flags, name), flag_values=values)
            context.setattr(flags, name, define)
        return script_module(script), values


def call_script(monkeypatch: pytest.MonkeyPatch, script: Path, *arguments: str) -> None:
    """Call `main` of a script with these arguments."""
    module, values = script_with_flags(monkeypatch, script)
    module.main(values(["script", *arguments]))
