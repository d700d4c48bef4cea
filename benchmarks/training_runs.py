"""Runs of train.py in separate processes and folders, for scripts that compare them."""

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
    """What a run has written to `metrics.jsonl`."""
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def train(folder: Path, options: Mapping[str, Any], more: Sequence[str]) -> list[dict[str, Any]]:
    """Runs train.py until its last step, or goes on with it, or only reads what it left.

    What it prints goes to `train.log` in its folder.

    Args:
      folder: of the run.
      options: flags of train.py by name, `steps` among them.
      more: flags as they were given; they count beyond `options`.

    Returns:
      The rows of its `metrics.jsonl`.

    Raises:
      ValueError: the folder has a run with other flags, or the run failed, or `more` has steps.
    """
    if any(flag.lstrip("-").partition("=")[0] == "steps" for flag in more):
        raise ValueError(
            "The steps of runs that are compared are the script's. Received: --steps behind --. "
            "Use the script's own flag."
        )
    command = [f"--{name}={value}" for name, value in options.items()] + list(more)
    folder.mkdir(parents=True, exist_ok=True)
    known = folder / COMMAND_FILE
    if known.is_file() and json.loads(known.read_text()) != command:
        raise ValueError(
            f"Runs that are compared keep their flags. Received: {' '.join(command)} for "
            f"{str(folder)!r}, which began with {' '.join(json.loads(known.read_text()))}. Choose "
            "another --output, or remove that folder."
        )
    known.write_text(json.dumps(command))
    steps = int(options["steps"])
    if not _has_ended(folder, steps):
        _run([sys.executable, "-m", "convert_tf", "train", f"--output={folder}", *command], folder)
    if not _has_ended(folder, steps):
        raise ValueError(
            f"A run must reach its {steps} steps. Received: {str(folder)!r}, which was told to end "
            "before. The same command goes on from there."
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
            f"A run must end with status 0. Received: {done.returncode} in {str(folder)!r}: "
            f"{' / '.join(last)}. {LOG_FILE} there has the rest; the same command goes on."
        )


def _end_with_parent() -> None:
    """A killed script leaves no run behind: the run gets SIGTERM, upon which it saves its state."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def check_choice(what: str, chosen: Sequence[str], known: Collection[str]) -> None:
    """Ends the script where a name is none of those known."""
    unknown = sorted(set(chosen) - set(known))
    if unknown:
        sys.exit(f"A {what} is one of {', '.join(known)}. Received: {', '.join(unknown)}.")


def data_options(data: str, vocabulary: str | None) -> dict[str, Any]:
    """Flags of `train.py` for a folder of token ids, or of records with a vocabulary."""
    path = os.path.abspath(data)
    if kind_of(path) is Kind.TOKEN_IDS:
        return {"data": path, "num_oov_buckets": ArrayFolder(path).num_oov_buckets}
    if not vocabulary:
        sys.exit(f"Records need --vocab. Received: none for {data!r}. Add it.")
    return {"data": path, "vocab": os.path.abspath(vocabulary)}


def cost(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Seconds and CPU seconds of a step; the steps up to the first evaluation are left out.

    They hold the tracing of the graph.

    Args:
      rows: of a run's `metrics.jsonl`, with two evaluations at least behind step 0.
    """
    first, last = next(row for row in rows if row["step"]), rows[-1]
    steps = last["step"] - first["step"]
    seconds, cpu_seconds = (
        (last[name] - first[name]) / steps for name in ("seconds", "cpu_seconds")
    )
    return seconds, cpu_seconds


def mean_and_deviation(values: Sequence[float], digits: int) -> str:
    """The mean, and ± the standard deviation where there are several."""
    text = f"{statistics.mean(values):.{digits}f}"
    return text if len(values) == 1 else f"{text} ± {statistics.stdev(values):.{digits}f}"


def model_options(embedding_dim: int, spans: Sequence[str]) -> dict[str, Any]:
    """Flags of a `convert` of another width and depth, with the paper's ratios of widths.

    Args:
      embedding_dim: width; the paper's is 512.
      spans: the maximum relative attention of each block.
    """
    return {
        "model": "convert",
        "embedding_dim": embedding_dim,
        "feed_forward_dim": 4 * embedding_dim,
        "side_hidden_dim": 2 * embedding_dim,
        "encoding_dim": embedding_dim,
        "max_relative_attention": ",".join(spans),
    }
