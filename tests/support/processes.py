"""Run code in a separate process: on JAX, or without convert_tf."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from support.commands import ROOT

# PYTHONPATH of these programs: convert_tf and the modules that the tests share.
_PATHS = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
PROBE = ROOT / "tests" / "clients" / "contract_probe.py"
ON_JAX = {
    "KERAS_BACKEND": "jax",
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_backend_optimization_level=0",  # compiles faster
}


def printed_by(program: str, *arguments: object, **environment: str) -> str:
    """Run a Python program in a separate process, and return its output.

    Raises:
      AssertionError: the program failed; the message is the end of its stderr.
    """
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": _PATHS, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def results_on_jax(script: str, folder: Path) -> Mapping[str, np.ndarray]:
    """Run a script on JAX's CPU backend with `folder`, and return the arrays in its `jax.npz`."""
    printed_by(script, folder, **ON_JAX)
    return np.load(folder / "jax.npz")


def answer_of_probe(
    request: Mapping[str, Any], folder: Path
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the facts and arrays that `contract_probe.py` computes without convert_tf."""
    (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-I", str(PROBE), "request.json", "answer.npz"],
        cwd=folder,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    arrays = dict(np.load(folder / "answer.npz"))
    return json.loads(str(arrays.pop("facts"))), arrays
