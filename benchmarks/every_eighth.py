"""Write every eighth row of a table of texts and labels, for validation.

```
python benchmarks/every_eighth.py --input banking77.train.csv \\
    --without banking77.train_10shot.csv --output banking77.valid.csv
```

The output contains the first, ninth, … row of the input. Rows whose text is in the file
`--without`, in upper or lower case, are left out. So the texts for validation are not among the
training texts. Both files are read as by `convert-tf intent`: they may be compressed, and spaces
around a text are dropped.
"""

from pathlib import Path

from absl import app, flags

from convert_tf.intents.data import labelled_csv, read_labelled

_INPUT = flags.DEFINE_string("input", None, "CSV file with the columns text and label.")
_WITHOUT = flags.DEFINE_string("without", None, "CSV file whose texts are left out.")
_OUTPUT = flags.DEFINE_string("output", None, "CSV file to write.")


def main(argv: list[str]) -> None:
    del argv
    left_out = {text.lower() for text in read_labelled(_WITHOUT.value).texts}
    eighth = [*zip(*read_labelled(_INPUT.value), strict=True)][::8]
    rows = [(text, label) for text, label in eighth if text.lower() not in left_out]
    path = Path(_OUTPUT.value)
    path.write_text(labelled_csv(rows), encoding="utf-8", newline="")
    print(f"{path}: {len(rows):,} texts")


if __name__ == "__main__":
    flags.mark_flags_as_required(["input", "without", "output"])
    app.run(main)
