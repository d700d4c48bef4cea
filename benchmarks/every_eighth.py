"""Write every eighth row of a table of texts and labels, for validation.

```
python benchmarks/every_eighth.py --input banking77.train.csv \\
    --without banking77.train_10shot.csv --output banking77.valid.csv
```

The output contains the first, ninth, … row of the input. Rows whose text is in the file
`--without`, in upper or lower case, are left out. So the texts for validation are not among the
training texts.
"""

import csv
from pathlib import Path

from absl import app, flags

_INPUT = flags.DEFINE_string("input", None, "CSV file with the columns text and label.")
_WITHOUT = flags.DEFINE_string("without", None, "CSV file whose texts are left out.")
_OUTPUT = flags.DEFINE_string("output", None, "CSV file to write.")


def _rows(path: str) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file)]


def main(argv: list[str]) -> None:
    del argv
    left_out = {row["text"].lower() for row in _rows(_WITHOUT.value)}
    rows = [row for row in _rows(_INPUT.value)[::8] if row["text"].lower() not in left_out]
    path = Path(_OUTPUT.value)
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["text", "label"], lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: row[name] for name in ("text", "label")} for row in rows)
    print(f"{path}: {len(rows):,} texts")


if __name__ == "__main__":
    flags.mark_flags_as_required(["input", "without", "output"])
    app.run(main)
