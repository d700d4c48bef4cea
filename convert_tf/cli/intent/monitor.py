"""Report the messages of a period, and what has changed since an earlier period.

```
convert-tf intent monitor --model model/ --input week2.txt --output week2.json --since week1.json
```

The report shows the share of each intent and the share of unsure answers. A statistical test shows
whether the messages are farther from the examples than the examples are from each other. Messages
with unsure answers are grouped. With `--since` the report also shows which shares have changed:
those of unsure messages, of messages far from the examples, of intents and of groups.

Flags:
  output: JSON file to write, for --since of a later period.
  since: JSON file of an earlier period.
  overwrite: Replace an existing report.
"""

from typing import Any

from convert_tf.cli.flags import NEEDED, Define, define_groups, define_log, loaded_classifier, same
from convert_tf.storage.files import check_replaceable, write_file
from convert_tf.storage.json_text import json_file, written_json


def define_flags(define: Define) -> None:
    define_log(define, NEEDED)
    define("output", NEEDED)
    define("since", None)
    define_groups(define)
    define("overwrite", False)


def run(values: Any) -> None:
    from convert_tf.intents.logs import monitor_messages, monitoring_text
    from convert_tf.readers.texts import Texts

    check_replaceable(values.output, _is_report, overwrite=values.overwrite)
    since = None if values.since is None else json_file(values.since)
    found = monitor_messages(
        Texts(values.input),
        loaded_classifier(values),
        since=since,
        **same(values, "mask min_size min_confidence seed"),
    )
    print(monitoring_text(found, shown=values.top_k))
    write_file(values.output, written_json(found, ensure_ascii=False))
    print(f"wrote {values.output}")


def _is_report(path: str) -> bool:
    try:
        report = json_file(path)
    except ValueError:
        return False
    return isinstance(report, dict) and {"messages", "intents", "groups"} <= {*report}
