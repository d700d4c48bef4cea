"""Run `convert-tf` commands, in this process or in a separate one."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

from convert_tf.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
# TensorFlow's log level and visible devices, which the tests set for their own process.
_OF_TENSORFLOW = ("TF_CPP_MIN_LOG_LEVEL", "CUDA_VISIBLE_DEVICES")


def call_command(*arguments: object, program: str = "convert-tf") -> None:
    """Run a command in this process.

    Raises:
      SystemExit: the exit status is not 0; `code` is the error message, without progress lines.
    """
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        status = main([str(argument) for argument in arguments], program=program)
    sys.stderr.write(errors.getvalue())
    if status:
        said = re.search(rf"^{re.escape(program)}.*", errors.getvalue(), re.MULTILINE | re.DOTALL)
        raise SystemExit(said[0].removesuffix("\n"))


def status_without_reader(*arguments: object) -> int:
    """Run a command in this process and return its status. Nobody reads what it prints."""
    reader, writer = os.pipe()
    os.close(reader)
    unread = open(writer, "w", buffering=1, encoding="utf-8")  # noqa: SIM115 (closed below)
    with unread, contextlib.redirect_stdout(unread):
        return main([str(argument) for argument in arguments])


def run_command(*arguments: object, **options) -> subprocess.CompletedProcess:
    """Run a command as a user does, in a separate process."""
    return subprocess.run(
        [sys.executable, "-m", "convert_tf", *map(str, arguments)],
        env={**own_environment(), **options.pop("env", {})},
        **{"capture_output": True, "text": True, "cwd": ROOT, **options},
    )


def own_environment() -> dict[str, str]:
    """Return the environment without the TensorFlow settings of the tests."""
    kept = {name: value for name, value in os.environ.items() if name not in _OF_TENSORFLOW}
    return {**kept, "PYTHONPATH": str(ROOT)}
