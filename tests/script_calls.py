"""Runs a command in this process, with flags of its own."""

import functools
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from absl import flags

KINDS = ("string", "multi_string", "list", "integer", "float", "bool", "boolean", "enum")


def call_script(
    monkeypatch: pytest.MonkeyPatch, script: ModuleType | Path, *arguments: str
) -> None:
    """Calls `main` of a script, or `_run` of a module with flags in `_define_flags`."""
    values = flags.FlagValues()
    for name in (f"DEFINE_{kind}" for kind in KINDS):
        define = functools.partial(getattr(flags, name), flag_values=values)
        monkeypatch.setattr(flags, name, define)
    monkeypatch.setattr(flags, "FLAGS", values)
    if isinstance(script, Path):
        spec = importlib.util.spec_from_file_location(f"script_{script.stem}", script)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        run = module.main
    else:
        script._define_flags()
        run = script._run
    run(values(["script", *arguments]))
