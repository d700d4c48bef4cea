"""Report the messages of a period, and what has changed since an earlier period.

```
convert-tf intent monitor --model model/ --input week2.txt --output week2.json --since week1.json
```

The report shows the share of each intent and the share of unsure answers. A statistical test shows
whether the messages are farther from the examples than the examples are from each other. Messages
with unsure answers are grouped. With `--since` the report also shows which shares have changed.

Flags:
  output: JSON file to write, for --since of a later period.
  since: JSON file of an earlier period.
"""

from typing import Any

from convert_tf.cli.flags import NEEDED, Define, define_groups, define_log, loaded_classifier, same
from convert_tf.storage.files import write_file
from convert_tf.storage.json_text import json_file, written_json


def define_flags(define: Define) -> None:
    define_log(define, NEEDED)
    define("output", NEEDED)
    define("since", None)
    define_groups(define)


def run(values: Any) -> None:
    from convert_tf.intents.logs import monitor_messages, monitoring_text
    from convert_tf.readers.texts import Texts

    since = None if values.since is None else _earlier(values.since)
    found = monitor_messages(
        Texts(values.input),
        loaded_classifier(values),
        since=since,
        **same(values, "mask min_size min_confidence seed"),
    )
    print(monitoring_text(found, shown=values.top_k))
    write_file(values.output, written_json(found, ensure_ascii=False))
    print(f"wrote {values.output}")


def _earlier(path: str) -> Any:
    found = json_file(path)
    if not isinstance(found, dict) or not {"messages", "intents", "groups"} <= {*found}:
        raise ValueError(f"{path} was not written by convert-tf intent monitor. Pass one that was.")
    return found
