"""Evaluate an intent classifier and show which intents it confuses.

```
convert-tf intent evaluate --model model/ --data test.csv --precision 0.95 --output results/
```

The data are CSV files with `text` and `label` columns, or Rasa's `nlu.yml`. The report shows how
the accuracy depends on the share of texts that are answered. With `--precision`, it recommends a
confidence threshold. It also lists intents in the data that the classifier was not trained on. The
command writes `evaluation.json` and `confusions.png` to `--output`. Classifiers that predict
several intents per text are evaluated by F1.

For checks in CI, the exit status is 1 if a measure is below `--at_least`, or if the classifier is
significantly worse than `--against` (exact McNemar test, p < 0.05). The report is written even if a
check fails.

Flags:
  against: An earlier classifier, or its evaluation.json on the same --data. Fail if --model is
    significantly worse.
  at_least: Minimum for a measure, such as accuracy=0.9. Fail if the measure is below the minimum.
  data: Labelled texts: CSV files or nlu.yml.
  precision: Recommend a threshold above which this share of answers is correct.
  untrained: How to count texts with intents that the model was not trained on: as wrong, or as
    out_of_scope.
  output: Folder for the results.
  overwrite: Replace the results in --output.
"""

import os
from pathlib import Path
from typing import Any

from convert_tf.cli.flags import (
    NEEDED,
    Define,
    UsageError,
    check_read,
    define_model,
    loaded_classifier,
    split_names,
)
from convert_tf.cli.printing import printed_after_writing
from convert_tf.figures import write_picture
from convert_tf.intents.options import UNTRAINED
from convert_tf.storage.files import check_replaceable, write_results
from convert_tf.storage.json_text import written_json

REPLACED = ("evaluation.json", "confusions.png")


def define_flags(define: Define) -> None:
    define_model(define)
    define("data", NEEDED, repeats=True)
    define("precision", None, kind=float, lower_bound=0.0, upper_bound=1.0)
    define("untrained", UNTRAINED[0], choices=UNTRAINED)
    define("at_least", [], repeats=True)
    define("against", None)
    define("output", None)
    define("overwrite", False)


def run(values: Any) -> None:
    from convert_tf.intents.data import read_files
    from convert_tf.intents.guard import (
        check_evaluation,
        compared,
        earlier_evaluation,
        parsed_minimum,
    )
    from convert_tf.intents.report import confusion_chart, evaluate_classifier, report_text

    try:
        at_least = dict(map(parsed_minimum, split_names(values.at_least, lambda _: False)))
    except ValueError as error:
        raise UsageError(str(error)) from error
    classifier = loaded_classifier(values)
    has_several = classifier.decision.has_several
    # Classifiers with several intents per text have no picture.
    for name in REPLACED[: 1 if has_several else None] if values.output is not None else ():
        path = os.path.join(values.output, name)
        check_replaceable(path, os.path.isfile, overwrite=values.overwrite)
    check_read(
        values,
        {
            "with several intents per text": ["precision", "untrained"] if has_several else (),
            "without --output": () if values.output else ["overwrite"],
        },
    )
    data = read_files(split_names(values.data, os.path.exists), needs_labels=not has_several)
    earlier = None
    if values.against is not None:
        earlier = earlier_evaluation(
            values.against, data, untrained=values.untrained, encoder=values.encoder
        )
    report = evaluate_classifier(
        classifier, data, precision=values.precision, untrained=values.untrained
    )
    if earlier is not None:
        report["against"] = {"name": values.against, **compared(report, earlier)}
    with printed_after_writing(report_text(report)):
        if values.output is not None:
            write_results(values.output, {"evaluation.json": written_json(report)})
    if values.output is not None:
        names = ["evaluation.json"]
        chart = Path(values.output, "confusions.png")
        if not has_several and write_picture(chart, lambda: confusion_chart(report)):
            names.append(chart.name)
        print(f"wrote {values.output}: {', '.join(names)}")
    check_evaluation(report, at_least)
