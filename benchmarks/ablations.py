"""Train the ablations of ConveRT's Table 4 on equal steps, seeds and examples.

```
python benchmarks/ablations.py --data ids/ --output runs/ablations --steps 1000
python benchmarks/ablations.py --data data/ --vocab vocab.txt --output runs/ablations \
    --embedding_dim 512 --max_relative_attention 3,5,48,48,48,48 -- --batch_size=256
```

Each variant is a run of `train.py` in a separate folder. If you repeat the command, finished runs
are read, and an interrupted run is resumed. Flags after `--` are passed to `train.py` and override
the flags that this script sets. The script prints a table and writes `ablations.json` and
`ablations.png`.

Variant D needs token ids with a single out-of-vocabulary (OOV) bucket. Records are tokenized with
one bucket during training. For a folder of token ids, the script writes a copy in which all unknown
characters have the same id, as `convert-tf tokenize --num_oov_buckets=1` would write. The name of
the copy depends on the path and the content of the folder.

CPU time is the time of all threads, averaged over the steps after the first evaluation. Reference:
arXiv 1911.03688 §4.2, Table 4, whose runs had 966,000 steps of 512 pairs.
"""

import json
import math
import os
import shutil
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import app, flags
from training_runs import check_choice, cost, data_options, mean_and_deviation, model_options, train

from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.data.token_arrays import FORMAT, ArrayFolder, dtype_of_ids
from convert_tf.figures import BLUE, GREY, picture, write_picture
from convert_tf.storage.checksums import CHECKSUMS_FILE, checksum, file_checksum
from convert_tf.storage.files import write_file
from convert_tf.storage.lines import file_state
from convert_tf.storage.messages import as_markdown

_DATA = flags.DEFINE_string(
    "data", None, "Folder of token ids, or of records with --vocab.", required=True
)
_VOCAB = flags.DEFINE_string("vocab", None, "Vocabulary for records.")
_OUTPUT = flags.DEFINE_string("output", None, "Folder for the runs.", required=True)
_VARIANTS = flags.DEFINE_list("variants", None, "Variants to train, as in A,D+E+F; all by default.")
_SEEDS = flags.DEFINE_integer("seeds", 1, "Number of seeds, starting at 0.")
_STEPS = flags.DEFINE_integer("steps", 1000, "Training steps of each run.")
_DIM = flags.DEFINE_integer(
    "embedding_dim", 128, "Width; the other widths keep the paper's ratios."
)
_SPANS = flags.DEFINE_list("max_relative_attention", ["3", "5", "48"], "Span of each block.")
_SPLIT = flags.DEFINE_string("split", "dev", "Split to evaluate on.")
_EXAMPLES = flags.DEFINE_integer("examples", 10_000, "Evaluate the first N examples of the split.")

BASELINE = "ConveRT"
ONE_BUCKET_FOLDER = "ids_one_bucket"


class Reported(NamedTuple):
    """A row of Table 4."""

    description: str
    r100_1: float
    steps_per_second: float
    dollars: int


TABLE_4 = {
    BASELINE: Reported("", 68.2, 14.7, 85),
    "A": Reported("8 attention heads", 68.5, 12.2, 102),
    "B": Reported("no relative position bias", 67.8, 14.7, 85),
    "C": Reported("no growing span", 67.7, 14.7, 85),
    "D": Reported("1 OOV bucket", 68.0, 14.8, 84),
    "E": Reported("1-headed reduction", 67.7, 15.0, 83),
    "F": Reported("no skips in the side networks", 67.8, 14.8, 84),
    "D+E+F": Reported("", 66.7, 15.0, 83),
    "B+C+D+E+F": Reported("", 66.6, 15.0, 83),
}


def switches(variant: str, spans: Sequence[str]) -> dict[str, Any]:
    """Return the `train.py` flags that define a variant of the model with these spans."""
    longest = str(max(map(int, spans)))
    known: dict[str, dict[str, Any]] = {
        "A": {"num_heads": 8},
        "B": {"use_relative_bias": False},
        "C": {"max_relative_attention": ",".join([longest] * len(spans))},
        "D": {"num_oov_buckets": 1},
        "E": {"reduction_heads": 1},
        "F": {"use_side_skip": False},
    }
    letters = [] if variant == BASELINE else variant.split("+")
    return {name: value for letter in letters for name, value in known[letter].items()}


def write_with_one_bucket(data: str, output: Path) -> None:
    """Write a copy of token ids in which all unknown characters have the same id.

    Args:
      data: folder of token ids.
      output: folder to write. An existing folder of token ids is not changed.
    """
    if kind_of(output) is Kind.TOKEN_IDS:
        return
    folder = ArrayFolder(data)
    padding_id = folder.vocab_size + 1
    new = output.with_name(output.name + ".tmp")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    for path in map(Path, FORMAT.files(data)):
        if path.name.endswith("-ids.npy"):
            ids = np.minimum(np.load(path, mmap_mode="r"), folder.vocab_size)
            np.save(new / path.name, ids.astype(dtype_of_ids(padding_id)))
        elif path.name == CHECKSUMS_FILE:
            continue
        elif path.suffix == ".json":
            changed = {"num_oov_buckets": 1, "padding_id": padding_id}
            changed["dtype"] = dtype_of_ids(padding_id)
            facts = {**json.loads(path.read_text()), **changed}
            (new / path.name).write_text(json.dumps(facts, indent=2) + "\n")
        else:
            shutil.copyfile(path, new / path.name)
    os.rename(new, output)


def digest_of(data: str) -> str:
    """Return a short digest of the path and the content of a folder of token ids."""
    sums = Path(data) / CHECKSUMS_FILE
    content = file_checksum(sums) if sums.is_file() else str([*map(file_state, FORMAT.files(data))])
    return checksum([os.path.abspath(data).encode(), content.encode()])[:12]


def data_of(variant: str) -> dict[str, Any]:
    """Return the `train.py` flags for the data that a variant is trained on."""
    if kind_of(_DATA.value) is Kind.TOKEN_IDS and "num_oov_buckets" in switches(
        variant, _SPANS.value
    ):
        name = f"{ONE_BUCKET_FOLDER}-{digest_of(_DATA.value)}"
        copy = Path(_OUTPUT.value).absolute() / name
        write_with_one_bucket(_DATA.value, copy)
        return {"data": copy}
    return data_options(_DATA.value, _VOCAB.value)


def run(variant: str, seed: int, more: Sequence[str]) -> dict[str, Any]:
    """Train a variant unless its run has finished, and return its results."""
    folder = Path(_OUTPUT.value).absolute() / f"{variant}-seed{seed}"
    interval = math.ceil(_STEPS.value / 2)  # steps are timed between the two evaluations
    options = {
        **model_options(_DIM.value, _SPANS.value),
        **data_of(variant),
        **switches(variant, _SPANS.value),
        "recipe": "small",
        "learning_rate": 1e-3,
        "final_learning_rate": 1e-5,
        "warmup_steps": _STEPS.value // 10,
        "embedding_dropout": 0,  # each pair is seen at most once
        "attention_dropout": 0,
        "steps": _STEPS.value,
        "eval_splits": _SPLIT.value,
        "eval_examples": _EXAMPLES.value,
        "eval_every": interval,
        "checkpoint_every": interval,
        "keep_checkpoints": 1,
        "seed": seed,
    }
    rows = train(folder, options, more)
    seconds, cpu_seconds = cost(rows)
    last = rows[-1]
    facts = json.loads((folder / "training.json").read_text())
    return {
        "variant": variant,
        "seed": seed,
        "r100_1": 100 * last[_SPLIT.value]["R100@1"],
        "mrr": last[_SPLIT.value]["MRR"],
        "examples": last[_SPLIT.value]["examples"],
        "pairs": last["pairs"],
        "steps": last["step"],
        "steps_per_second": 1 / seconds,
        "cpu_ms_per_step": 1000 * cpu_seconds,
        "network_parameters": facts["parameters"]["network"],
        "precision": facts["precision"],
    }


def table(results: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return the table: means over seeds, and mean differences from the baseline's same seed."""
    paper = TABLE_4[BASELINE]
    by_seed = {r["seed"]: r for r in results if r["variant"] == BASELINE}
    head = [
        "", "R100@1, %", "difference", "MRR", "CPU ms a step", "cost", "steps/s", "network, M",
        "paper: R100@1", "difference", "cost", "steps/s",
    ]  # fmt: skip
    rows = [head]
    for variant in dict.fromkeys(r["variant"] for r in results):
        own = [r for r in results if r["variant"] == variant]
        pairs = [(r, by_seed[r["seed"]]) for r in own]
        reported = TABLE_4[variant]
        cells = [
            mean_and_deviation([r["r100_1"] for r in own], 2),
            mean_and_deviation([r["r100_1"] - base["r100_1"] for r, base in pairs], 2),
            mean_and_deviation([r["mrr"] for r in own], 4),
            f"{statistics.mean(r['cpu_ms_per_step'] for r in own):.1f}",
            f"{statistics.mean(r['cpu_ms_per_step'] / b['cpu_ms_per_step'] for r, b in pairs):.2f}",
            f"{statistics.mean(r['steps_per_second'] for r in own):.2f}",
            f"{own[0]['network_parameters'] / 1e6:.2f}",
            f"{reported.r100_1}",
            f"{reported.r100_1 - paper.r100_1:.1f}",
            f"{reported.dollars / paper.dollars:.2f}",
            f"{reported.steps_per_second}",
        ]
        if variant == BASELINE:
            cells[1] = cells[8] = ""
        name = f"{variant}: {reported.description}" if reported.description else variant
        rows.append([name, *cells])
    return rows


@picture
def draw(rows: Sequence[tuple[str, float, float]], spread: Sequence[float] = ()) -> Any:
    """Draw each variant's difference from the baseline, in points of R100@1.

    Each variant has two bars: the difference measured here and the paper's.

    Args:
      rows: for each variant except the baseline: name, difference measured here, the paper's.
      spread: standard deviations over seeds of the measured differences; empty for one seed.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 1 + 0.45 * len(rows)))
    panel = figure.add_subplot()
    places = np.arange(len(rows))
    names, ours, papers = zip(*rows, strict=True)
    panel.barh(places - 0.2, ours, 0.38, xerr=spread or None, color=BLUE, label="here")
    panel.barh(places + 0.2, papers, 0.38, color=GREY, label="paper, Table 4")
    panel.axvline(0, color="black", linewidth=0.8)
    panel.set_yticks(places, names)
    panel.invert_yaxis()
    panel.set_xlabel("points of R100@1 from the baseline")
    panel.legend(loc="best")
    return figure


def differences(results: Sequence[dict[str, Any]]) -> tuple[list[tuple[str, float, float]], list]:
    """Return the arguments of `draw`; the deviations are empty if there is one seed."""
    by_seed = {r["seed"]: r for r in results if r["variant"] == BASELINE}
    rows, spread = [], []
    for variant in dict.fromkeys(r["variant"] for r in results if r["variant"] != BASELINE):
        own = [
            r["r100_1"] - by_seed[r["seed"]]["r100_1"] for r in results if r["variant"] == variant
        ]
        reported = TABLE_4[variant]
        name = f"{variant}: {reported.description}" if reported.description else variant
        rows.append((name, statistics.mean(own), reported.r100_1 - TABLE_4[BASELINE].r100_1))
        spread.append(statistics.stdev(own) if len(own) > 1 else 0.0)
    return rows, spread if any(spread) else []


def unknown_share(data: str) -> float:
    """Return the share of the training tokens in a folder that are hashed."""
    folder = ArrayFolder(data)
    ids = [np.load(Path(data) / f"train-{name}-ids.npy") for name in ("context", "response")]
    return float(np.mean(np.concatenate(ids) >= folder.vocab_size))


def main(argv: list[str]) -> None:
    chosen = _VARIANTS.value or list(TABLE_4)
    check_choice("variant", chosen, TABLE_4)
    results = []
    try:
        for seed in range(_SEEDS.value):
            for variant in [BASELINE, *(name for name in chosen if name != BASELINE)]:
                results.append(run(variant, seed, argv[1:]))
                print(json.dumps(results[-1]), file=sys.stderr, flush=True)
    except ValueError as error:
        sys.exit(f"ablations.py: {error}")
    write_file(Path(_OUTPUT.value) / "ablations.json", json.dumps(results, indent=2) + "\n")
    rows, spread = differences(results)
    if rows:
        write_picture(Path(_OUTPUT.value) / "ablations.png", lambda: draw(rows, spread))
    print(as_markdown([table(results)]))
    share, examples = results[0]["r100_1"] / 100, results[0]["examples"]
    error = 100 * math.sqrt(share * (1 - share) / examples)
    print(
        f"Each run took {results[0]['pairs']:,} pairs and was evaluated on {examples:,} examples "
        f"of {_SPLIT.value}. The standard error of one run is {error:.2f} points."
    )
    if kind_of(_DATA.value) is Kind.TOKEN_IDS:
        print(f"{100 * unknown_share(_DATA.value):.3f} % of the training tokens are hashed.")


if __name__ == "__main__":
    app.run(main)
