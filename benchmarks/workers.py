"""Start worker processes that answer each line with a line, for benchmarks that take turns."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


class WorkerProcess:
    """A script that prints a line of JSON when it is ready, and one for each line that it reads.

    Args:
      name: name of the worker in error messages.
      command: the script and its arguments.
      python: Python that runs the script. Only the current Python can import `package`.
      package: folder of the project to import.
      log: file for standard error.
      environment: environment variables to add to those of this process.

    Attributes:
      facts: the first line that the script printed.

    Raises:
      RuntimeError: if the script ends before it is ready.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        python: str = sys.executable,
        package: Path = ROOT,
        environment: Mapping[str, str] | None = None,
    ):
        self.name = name
        self._log = log
        self._process = subprocess.Popen(
            [python, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=open(log, "w"),  # noqa: SIM115
            text=True,
            env={
                **os.environ,
                "TF_CPP_MIN_LOG_LEVEL": "3",
                "CUDA_VISIBLE_DEVICES": "-1",
                "PYTHONPATH": str(package) if python == sys.executable else "",
                **(environment or {}),
            },
        )
        self.facts = self._answer()

    def ask(self, line: str) -> dict[str, Any]:
        """Send a line and return the answer.

        Raises:
          RuntimeError: if the script ends instead of answering.
        """
        assert self._process.stdin
        print(line, file=self._process.stdin, flush=True)
        return self._answer()

    def end(self) -> None:
        """Close the script's standard input, and wait until it ends."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended unexpectedly: {self._log.read_text()[-2000:]}")
        return json.loads(line)
