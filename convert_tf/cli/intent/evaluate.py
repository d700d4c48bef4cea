"""Scores an intent classifier and shows what it confuses.

```
convert-tf intent evaluate --model model/ --data test.csv --output results/
```

Data are CSV files with `text` and `label` columns, or Rasa's `nlu.yml`. `--output` gets
`evaluation.json` and `confusions.png`. A model of several intents is told by F1.
"""

from pathlib import Path
from typing import Any

from convert_tf.cli.flags import NEEDED, Define, define_model, loaded_classifier
from convert_tf.figures import write_picture
from convert_tf.storage.files import write_file
from convert_tf.storage.json_text import written_json

REPORT_FILE = "evaluation.json"
CHART_FILE = "confusions.png"


def define_flags(define: Define) -> None:
    define_model(define)
    define("data", NEEDED, "CSV files or nlu.yml.", kind=list)
    define("output", None, "Folder of the results.")


def run(values: Any) -> None:
    from convert_tf.intents.data import read_files
    from convert_tf.intents.multi import MultiIntentClassifier, split_labels
    from convert_tf.intents.multi_report import evaluate_multi, multi_report_text
    from convert_tf.intents.report import confusion_chart, evaluate_classifier, report_text

    classifier = loaded_classifier(values)
    has_several = isinstance(classifier, MultiIntentClassifier)
    data = read_files(values.data, needs_labels=not has_several)
    if has_several:
        sets = split_labels(data.labels, classifier.label_separator)
        report = evaluate_multi(classifier, data.texts, sets)
        print(multi_report_text(report))
    else:
        report = evaluate_classifier(classifier, data)
        print(report_text(report))
    if values.output is not None:
        output = Path(values.output)
        output.mkdir(parents=True, exist_ok=True)
        write_file(output / REPORT_FILE, written_json(report))
        has_chart = not has_several and write_picture(
            output / CHART_FILE, lambda: confusion_chart(report)
        )
        names = [REPORT_FILE, *([CHART_FILE] if has_chart else [])]
        print(f"wrote {values.output}: {', '.join(names)}")
