"""Report the messages of a period, and what has changed since an earlier period.

```
convert-tf intent monitor --model model/ --input week2.txt --output week2.json --since week1.json
```

The report shows the share of each intent and the share of unsure answers. A statistical test shows
whether the messages are farther from the examples than the examples are from each other. Messages
with unsure answers are grouped. With `--since` the report also shows which shares have changed.
"""

from typing import Any

from convert_tf.cli.flags import NEEDED, Define, define_log, loaded_classifier
from convert_tf.storage.files import write_file
from convert_tf.storage.json_text import json_file, written_json


def define_flags(define: Define) -> None:
    from convert_tf.intents.discovery import MIN_CONFIDENCE, MIN_SIZE

    define_log(define, NEEDED)
    define("output", NEEDED, "JSON file to write, for --since of a later period.")
    define("since", None, "JSON file of an earlier period.")
    define("min_size", MIN_SIZE, "Smallest number of messages in a group.", lower_bound=1)
    define(
        "min_confidence", MIN_CONFIDENCE, "Answers with a lower probability are unsure.",
        lower_bound=0.0, upper_bound=1.0,
    )  # fmt: skip
    define("top_k", 10, "Number of intents and groups to print.", lower_bound=1)
    define("seed", 0, "Seed of the samples of messages.", lower_bound=0)


def run(values: Any) -> None:
    from convert_tf.intents.monitoring import monitor_messages, monitoring_text
    from convert_tf.storage.lines import TextLines

    since = None if values.since is None else _earlier(values.since)
    found = monitor_messages(
        TextLines(values.input),
        loaded_classifier(values),
        since=since,
        min_size=values.min_size,
        min_confidence=values.min_confidence,
        masks=values.mask,
        seed=values.seed,
    )
    print(monitoring_text(found, shown=values.top_k))
    write_file(values.output, written_json(found, ensure_ascii=False))
    print(f"wrote {values.output}")


def _earlier(path: str) -> Any:
    found = json_file(path)
    if not isinstance(found, dict) or not {"messages", "intents", "groups"} <= {*found}:
        raise ValueError(
            f"{path} was not written by convert-tf intent monitor. Pass a file that was."
        )
    return found
