"""Worker processes that answer each line with a line, for benchmarks that alternate programs."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


class WorkerProcess:
    """A script that prints one line of JSON when it is ready, and one for each line that it reads.

    Args:
      name: how it is called where it ends too early.
      command: the script and its arguments.
      python: what runs it; another one than this does not see the project.
      package: folder of the project that this one's Python imports.
      log: file of what it prints to standard error.
      environment: variables beyond those of this process.

    Attributes:
      facts: what it printed when it was ready.

    Raises:
      RuntimeError: it ended.
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
        """What it answers to a line; `RuntimeError` where it ends."""
        assert self._process.stdin
        print(line, file=self._process.stdin, flush=True)
        return self._answer()

    def end(self) -> None:
        """Closes what it reads, and waits for its end."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended: {self._log.read_text()[-2000:]}")
        return json.loads(line)
