"""Find overlapping intents, wrong labels and duplicates in labelled examples.

```
convert-tf intent inspect --data train.csv --output inspection/
```

A label is probably wrong if the three nearest examples of another intent are nearer than the three
nearest examples of the same intent. The report is written to `--output` as `inspection.json`.

Flags:
  encoder: Encoder: a released name, the folder of a run or module, or an .onnx file. Repeat the
    flag to concatenate the vectors from several encoders.
  data: Examples: CSV files or nlu.yml.
  output: Folder for the results.
  label_separator: Character between the labels, if texts may have several intents or none.
  top_k: Number of results of each kind to print.
  overwrite: Replace the results in --output.
"""

import os
from typing import Any

from convert_tf.cli.flags import (
    DEFAULT_ENCODER,
    NEEDED,
    Define,
    check_read,
    define_encoder,
    split_names,
)
from convert_tf.cli.printing import printed_after_writing
from convert_tf.storage.files import check_replaceable, write_results
from convert_tf.storage.json_text import json_file, written_json

REPLACED = ("inspection.json",)


def define_flags(define: Define) -> None:
    define_encoder(define, [DEFAULT_ENCODER], repeats=True)
    define("data", NEEDED, repeats=True)
    define("output", None)
    define("label_separator", None)
    define("top_k", 10, lower_bound=1)
    define("overwrite", False)


def run(values: Any) -> None:
    from convert_tf.intents.data import read_files
    from convert_tf.intents.encodings import IntentEncodings
    from convert_tf.intents.inspection import inspect_examples, inspection_text

    if values.output is not None:
        path = os.path.join(values.output, "inspection.json")
        check_replaceable(path, _is_report, overwrite=values.overwrite)
    check_read(values, {"without --output": () if values.output else ["overwrite"]})
    separator = values.label_separator
    data = read_files(split_names(values.data, os.path.exists), needs_labels=separator is None)
    encodings = IntentEncodings(list(values.encoder))
    report = inspect_examples(encodings, data, label_separator=separator)
    with printed_after_writing(inspection_text(report, shown=values.top_k)):
        if values.output is not None:
            content = written_json(report, ensure_ascii=False)
            write_results(values.output, {"inspection.json": content})
    if values.output is not None:
        print(f"wrote {values.output}: inspection.json")


def _is_report(path: str) -> bool:
    try:
        report = json_file(path)
    except ValueError:
        return False
    return isinstance(report, dict) and {"intents", "overlaps", "suspects"} <= {*report}
