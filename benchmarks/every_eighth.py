"""Write every eighth row of a table of texts and labels for validation, or the other rows.

```
python benchmarks/every_eighth.py --input banking77.train.csv \\
    --without banking77.train_10shot.csv --output banking77.valid.csv
python benchmarks/every_eighth.py --input banking77.train.csv --output eighth.csv
python benchmarks/every_eighth.py --input banking77.train.csv --every 1 --without eighth.csv \\
    --output rest.csv
```

The output contains the first, ninth, … row of the input. Rows whose text is in the file
`--without`, in upper or lower case, are left out. So the texts for validation are not among the
training texts. With `--every 1`, all other rows are written. Both files are read as by `convert-tf
intent`: they may be compressed, and spaces around a text are dropped.
"""

from pathlib import Path

from absl import app, flags

from convert_tf.intents.data import labelled_csv, read_labelled

_INPUT = flags.DEFINE_string("input", None, "CSV file with the columns text and label.")
_WITHOUT = flags.DEFINE_string("without", None, "CSV file whose texts are left out.")
_EVERY = flags.DEFINE_integer("every", 8, "Write the first of every so many rows.", lower_bound=1)
_OUTPUT = flags.DEFINE_string("output", None, "CSV file to write.")


def main(argv: list[str]) -> None:
    del argv
    other_texts = read_labelled(_WITHOUT.value).texts if _WITHOUT.value else ()
    left_out = {text.lower() for text in other_texts}
    drawn = [*zip(*read_labelled(_INPUT.value), strict=True)][:: _EVERY.value]
    rows = [(text, label) for text, label in drawn if text.lower() not in left_out]
    path = Path(_OUTPUT.value)
    path.write_text(labelled_csv(rows), encoding="utf-8", newline="")
    print(f"{path}: {len(rows):,} texts")


if __name__ == "__main__":
    flags.mark_flags_as_required(["input", "output"])
    app.run(main)
