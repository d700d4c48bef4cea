"""Run train.py in separate processes and folders, for scripts that compare runs."""

import ctypes
import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.data.token_arrays import ArrayFolder

ROOT = Path(__file__).resolve().parents[1]
COMMAND_FILE = "command.json"
LOG_FILE = "train.log"
_PR_SET_PDEATHSIG = 1


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Return the rows that a run has written to `metrics.jsonl`."""
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def train(folder: Path, options: Mapping[str, Any], more: Sequence[str]) -> list[dict[str, Any]]:
    """Start or resume a run of train.py, unless it has taken all its steps.

    The output of train.py goes to `train.log` in the folder.

    Args:
      folder: folder of the run.
      options: flags of train.py by name, including `steps`.
      more: further flags, as on a command line. They override `options`.

    Returns:
      The rows of `metrics.jsonl`.

    Raises:
      ValueError: if the folder has a run with other flags, the run fails, or `more` sets the steps.
    """
    if any(flag.lstrip("-").partition("=")[0] == "steps" for flag in more):
        raise ValueError(
            "--steps is given after --, but all runs must take the same number of steps. Use the "
            "flag of this script instead."
        )
    command = [f"--{name}={value}" for name, value in options.items()] + list(more)
    folder.mkdir(parents=True, exist_ok=True)
    known = folder / COMMAND_FILE
    if known.is_file() and json.loads(known.read_text()) != command:
        raise ValueError(
            f"The run in {str(folder)!r} was started with other flags: "
            f"{' '.join(json.loads(known.read_text()))}. Now they are {' '.join(command)}. Choose "
            "another --output, or remove this folder."
        )
    known.write_text(json.dumps(command))
    steps = int(options["steps"])
    if not _has_ended(folder, steps):
        _run([sys.executable, "-m", "convert_tf", "train", f"--output={folder}", *command], folder)
    if not _has_ended(folder, steps):
        raise ValueError(
            f"The run in {str(folder)!r} was interrupted before its last step, {steps}. Repeat the "
            "same command to resume it."
        )
    return rows_of(folder)


def _has_ended(folder: Path, steps: int) -> bool:
    rows = rows_of(folder)
    return bool(rows) and rows[-1]["step"] >= steps


def _run(command: Sequence[str], folder: Path) -> None:
    with open(folder / LOG_FILE, "a") as log:
        done = subprocess.run(
            command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, preexec_fn=_end_with_parent
        )
    if done.returncode:
        last = (folder / LOG_FILE).read_text().splitlines()[-3:]
        raise ValueError(
            f"The run in {str(folder)!r} failed with status {done.returncode}: {' / '.join(last)}. "
            f"Read its {LOG_FILE}, then repeat the same command to resume it."
        )


def _end_with_parent() -> None:
    """Let the run receive SIGTERM when this script dies, so that it saves its state and ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def check_choice(what: str, chosen: Sequence[str], known: Collection[str]) -> None:
    """Exit with an error if a chosen name is unknown.

    Args:
      what: what the names stand for, as in `"variant"`.
      chosen: the names to check.
      known: the allowed names.
    """
    unknown = sorted(set(chosen) - set(known))
    if unknown:
        sys.exit(f"Unknown {what}: {', '.join(unknown)}. Choose from {', '.join(known)}.")


def data_options(data: str, vocabulary: str | None) -> dict[str, Any]:
    """Return `train.py` flags for a folder of token ids, or of records with a vocabulary."""
    path = os.path.abspath(data)
    if kind_of(path) is Kind.TOKEN_IDS:
        return {"data": path, "num_oov_buckets": ArrayFolder(path).num_oov_buckets}
    if not vocabulary:
        sys.exit(f"{data!r} contains records, which need a vocabulary. Set --vocab.")
    return {"data": path, "vocab": os.path.abspath(vocabulary)}


def cost(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Return seconds and CPU seconds per step.

    Steps before the first evaluation are left out, because they include the tracing of the graph.

    Args:
      rows: rows of a run's `metrics.jsonl`, with at least two evaluations after step 0.
    """
    first, last = next(row for row in rows if row["step"]), rows[-1]
    steps = last["step"] - first["step"]
    seconds, cpu_seconds = (
        (last[name] - first[name]) / steps for name in ("seconds", "cpu_seconds")
    )
    return seconds, cpu_seconds


def mean_and_deviation(values: Sequence[float], digits: int) -> str:
    """Format the mean, followed by ± the standard deviation if there are several values."""
    text = f"{statistics.mean(values):.{digits}f}"
    return text if len(values) == 1 else f"{text} ± {statistics.stdev(values):.{digits}f}"


def model_options(embedding_dim: int, spans: Sequence[str]) -> dict[str, Any]:
    """Return `train.py` flags for a `convert` model with another width and number of blocks.

    The ratios between widths are those of the paper.

    Args:
      embedding_dim: width; 512 in the paper.
      spans: maximum relative attention of each block.
    """
    return {
        "model": "convert",
        "embedding_dim": embedding_dim,
        "feed_forward_dim": 4 * embedding_dim,
        "side_hidden_dim": 2 * embedding_dim,
        "encoding_dim": embedding_dim,
        "max_relative_attention": ",".join(spans),
    }
