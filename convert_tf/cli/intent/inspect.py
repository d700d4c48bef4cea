"""Look for overlaps, likely errors and duplicates in labelled examples.

```
convert-tf intent inspect --data train.csv --output inspection/
```

An example is suspicious if the three nearest examples of another intent are nearer than the three
nearest of its own intent. The report goes to `inspection.json` in `--output`.
"""

from pathlib import Path
from typing import Any

from convert_tf.cli.flags import DEFAULT_ENCODER, NEEDED, Define, define_encoder
from convert_tf.storage.files import write_file
from convert_tf.storage.json_text import written_json

REPORT_FILE = "inspection.json"


def define_flags(define: Define) -> None:
    define_encoder(
        define,
        [DEFAULT_ENCODER],
        text="a released name, the folder of a run or of a module, or an .onnx file. The vectors "
        "of several are joined.",
        repeats=True,
    )
    define("data", NEEDED, "CSV files or nlu.yml.", kind=list)
    define("output", None, "Folder of the results.")
    define(
        "duplicate_cosine", 0.95, "From which texts of two intents are near duplicates.",
        lower_bound=0.0, upper_bound=1.0,
    )  # fmt: skip
    define(
        "label_separator",
        None,
        "Texts may have several intents, or none, with this character between their labels.",
    )
    define("top_k", 10, "How many of each kind are printed.", lower_bound=1)


def run(values: Any) -> None:
    from convert_tf.intents.data import read_files
    from convert_tf.intents.encodings import IntentEncodings
    from convert_tf.intents.inspection import inspect_examples, inspection_text

    separator = values.label_separator
    data = read_files(values.data, needs_labels=separator is None)
    encodings = IntentEncodings(list(values.encoder))
    report = inspect_examples(
        encodings, data, duplicate_cosine=values.duplicate_cosine, label_separator=separator
    )
    print(inspection_text(report, shown=values.top_k))
    if values.output is None:
        return
    output = Path(values.output)
    output.mkdir(parents=True, exist_ok=True)
    write_file(output / REPORT_FILE, written_json(report, ensure_ascii=False))
    print(f"wrote {values.output}: {REPORT_FILE}")
