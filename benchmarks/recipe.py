"""Compare optimizers, learning rates and batch sizes at equal CPU time.

```
python benchmarks/recipe.py --data ids/ --output runs/recipe --cpu_minutes 5
```

Each of `RUNS` is a run of `train.py` in a separate folder. It takes as many steps as fit into
`--cpu_minutes`, and its learning rate decays over these steps. A short calibration run for each
optimizer and batch size determines the number of steps. CPU time is the time of all threads during
training steps, so other programs on the machine hardly affect it. Evaluations are not counted.

If you repeat the command, finished runs are read, and an interrupted run is resumed. Flags after
`--` are passed to `train.py` and override the flags that this script sets. The script prints a
table, writes the figures to `recipe.json`, and draws the curves in `recipe.png`.
"""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import app, flags
from training_runs import check_choice, cost, data_options, model_options, train

from convert_tf.checkpoints.facts import training_facts
from convert_tf.figures import picture, write_picture
from convert_tf.storage.files import write_file
from convert_tf.storage.messages import as_markdown
from convert_tf.training.encoder.options import train_recipe

_DATA = flags.DEFINE_string(
    "data", None, "Folder of token ids, or of records with --vocab.", required=True
)
_VOCAB = flags.DEFINE_string("vocab", None, "Vocabulary for records.")
_OUTPUT = flags.DEFINE_string("output", None, "Folder for the runs.", required=True)
_RUNS = flags.DEFINE_list("runs", None, "Names of runs; all by default.")
_MINUTES = flags.DEFINE_float("cpu_minutes", 5.0, "CPU minutes per run, summed over all cores.")
_CALIBRATION = flags.DEFINE_integer("calibration_steps", 20, "Steps to time for calibration.")
_DIM = flags.DEFINE_integer(
    "embedding_dim", 128, "Width; the other widths keep the paper's ratios."
)
_SPANS = flags.DEFINE_list("max_relative_attention", ["3", "5", "48"], "Span of each block.")
_EXAMPLES = flags.DEFINE_integer(
    "examples", 5_000, "Evaluate the first N examples of the dev split."
)
_EVALUATIONS = flags.DEFINE_integer("evaluations", 8, "Points per curve.")
_SEED = flags.DEFINE_integer("seed", 0, "As in train.py.")

_PAPER = {"recipe": "paper"}
# Dropout is off, because it helps only when examples are seen more than once.
_SMALL = {"recipe": "small", "embedding_dropout": 0.0, "attention_dropout": 0.0}


def _with_rate(rate: float, **options: Any) -> dict[str, Any]:
    return {**_SMALL, "learning_rate": rate, "final_learning_rate": rate / 100, **options}


RUNS: dict[str, dict[str, Any]] = {
    "adam-1e-3-batch-128": _with_rate(1e-3),
    "adadelta-paper": _PAPER,
    "adam-3e-4-batch-128": _with_rate(3e-4),
    "adam-3e-3-batch-128": _with_rate(3e-3),
    "adam-1e-3-batch-64": _with_rate(1e-3, batch_size=64),
    "adam-1e-3-batch-512": _with_rate(1e-3, batch_size=512),
    "adadelta-1-scale-20-batch-128": _with_rate(
        1.0, final_learning_rate=1e-3, optimizer="adadelta"
    ),
}


def with_steps(name: str, steps: int) -> dict[str, Any]:
    """Return the `train.py` flags of a run with this number of steps."""
    options = {
        **data_options(_DATA.value, _VOCAB.value),
        **model_options(_DIM.value, _SPANS.value),
        **RUNS[name],
    }
    if RUNS[name]["recipe"] == "small":
        options["warmup_steps"] = steps // 10
    return {**options, "steps": steps, "keep_checkpoints": 1, "seed": _SEED.value}


def cpu_seconds_per_step(name: str, more: Sequence[str]) -> float:
    """Measure the CPU seconds per step with a run's optimizer and batch size.

    Runs with the same optimizer and batch size share a calibration, so they take equally many
    steps. It has the other options of the first of them in `RUNS`.

    Raises:
      ValueError: if the calibration was run with other flags before, or it fails.
    """
    optimizer, batch_size = _optimizer_and_batch(name)
    first = next(n for n in RUNS if _optimizer_and_batch(n) == (optimizer, batch_size))
    half = _CALIBRATION.value
    options = {
        **with_steps(first, 2 * half),
        "eval_every": half,
        "eval_examples": 100,
        "checkpoint_every": 2 * half,
    }
    folder = Path(_OUTPUT.value).absolute() / f"calibration-{optimizer}-batch-{batch_size}"
    return cost(train(folder, options, more))[1]


def _optimizer_and_batch(name: str) -> tuple[str, int]:
    options = dict(RUNS[name])
    config = train_recipe(options.pop("recipe"), **options)
    return config.optimizer, config.batch_size


def run(name: str, more: Sequence[str]) -> dict[str, Any]:
    """Train a run unless it has finished, and return its results."""
    steps = max(4, round(60 * _MINUTES.value / cpu_seconds_per_step(name, more)))
    interval = math.ceil(steps / _EVALUATIONS.value)
    options = {
        **with_steps(name, steps),
        "eval_examples": _EXAMPLES.value,
        "eval_every": interval,
        "checkpoint_every": interval,
    }
    folder = Path(_OUTPUT.value).absolute() / name
    rows = train(folder, options, more)
    # Flags after -- override those of the run.
    return {"name": name, "rows": rows, **training_facts(folder)["train"]}


def table(results: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return a table of the results at the end of each run."""
    head = ["", "rate", "batch", "steps", "pairs", "CPU minutes", "R100@1, %", "MRR", "loss"]
    rows = [head]
    for result in results:
        last = result["rows"][-1]
        rows.append(
            [
                result["name"],
                f"{result['learning_rate']:g}",
                f"{result['batch_size']}",
                f"{last['step']:,}",
                f"{last['pairs']:,}",
                f"{last['cpu_seconds'] / 60:.2f}",
                f"{100 * last['dev']['R100@1']:.2f}",
                f"{last['dev']['MRR']:.4f}",
                f"{last['ranking_loss']:.3f}",
            ]
        )
    return rows


@picture
def draw(results: Sequence[Mapping[str, Any]]) -> Any:
    """Draw R100@1 on the dev split against CPU minutes, one line per run."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5))
    axis = figure.add_subplot()
    for result in results:
        points = [(r["cpu_seconds"] / 60, 100 * r["dev"]["R100@1"]) for r in result["rows"]]
        axis.plot(*zip(*points, strict=True), marker="o", label=result["name"])
    axis.set_xlabel("CPU minutes of training")
    axis.set_ylabel("R100@1 on dev, %")
    axis.set_ylim(bottom=0)
    axis.grid()
    figure.legend(loc="outside upper center", ncols=2)
    return figure


def main(argv: list[str]) -> None:
    chosen = _RUNS.value or list(RUNS)
    check_choice("run", chosen, RUNS)
    results = []
    try:
        for name in chosen:
            results.append(run(name, argv[1:]))
            print(json.dumps(results[-1]["rows"][-1]), file=sys.stderr, flush=True)
    except ValueError as error:
        sys.exit(f"recipe.py: {error}")
    output = Path(_OUTPUT.value)
    write_file(output / "recipe.json", json.dumps(results, indent=2) + "\n")
    write_picture(output / "recipe.png", lambda: draw(results))
    print(as_markdown([table(results)]))


if __name__ == "__main__":
    app.run(main)
