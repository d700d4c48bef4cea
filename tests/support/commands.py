"""Calls of `convert-tf`, in this process or in one of its own."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

from convert_tf.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
# What says how loud TensorFlow is, and which devices it looks for.
_OF_TENSORFLOW = ("TF_CPP_MIN_LOG_LEVEL", "CUDA_VISIBLE_DEVICES")


def call_command(*arguments: object, program: str = "convert-tf") -> None:
    """Runs a command in this process.

    Raises:
      SystemExit: its status is not 0; the code is what it said last, behind lines of progress.
    """
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        status = main([str(argument) for argument in arguments], program=program)
    sys.stderr.write(errors.getvalue())
    if status:
        said = re.search(rf"^{re.escape(program)}.*", errors.getvalue(), re.MULTILINE | re.DOTALL)
        raise SystemExit(said[0].removesuffix("\n"))


def run_command(*arguments: object, **options) -> subprocess.CompletedProcess:
    """Runs a command as a user does, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "convert_tf", *map(str, arguments)],
        env={**own_environment(), **options.pop("env", {})},
        **{"capture_output": True, "text": True, "cwd": ROOT, **options},
    )


def own_environment() -> dict[str, str]:
    """The environment without what the tests set for TensorFlow."""
    kept = {name: value for name, value in os.environ.items() if name not in _OF_TENSORFLOW}
    return {**kept, "PYTHONPATH": str(ROOT)}
