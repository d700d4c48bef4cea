"""Choose the messages in a log that are most useful to label.

```
convert-tf intent suggest --input log.txt --model model/ --budget 100 --output to_label.csv
```

With `--model`, the command chooses different kinds of messages that the classifier is unsure of.
Without `--model`, it groups the messages and chooses a typical message of each group, for a first
set of examples. `--output` is a CSV file with the columns `text` and `label`. Fill in the labels,
then pass the file to `convert-tf intent train`.

Flags:
  budget: Number of messages to choose.
  output: CSV file to write.
  seed: Seed for random choices.
  overwrite: Replace an existing file, including labels that you filled in.
"""

import os
from typing import Any

from convert_tf.cli.flags import (
    DEFAULT_ENCODER,
    NEEDED,
    Define,
    define_log,
    loaded_classifier,
    same,
)
from convert_tf.storage.files import check_replaceable, write_file


def define_flags(define: Define) -> None:
    from convert_tf.intents.suggest import BUDGET

    define_log(define, None)
    define("budget", BUDGET, lower_bound=1)
    define("output", NEEDED)
    define("seed", 0, lower_bound=0)
    define("overwrite", False)


def run(values: Any) -> None:
    from convert_tf.intents.data import is_labelled_csv, labelled_csv
    from convert_tf.intents.suggest import suggest_messages
    from convert_tf.readers.texts import Texts

    check_replaceable(values.output, is_labelled_csv, overwrite=values.overwrite)
    os.makedirs(os.path.dirname(os.path.realpath(values.output)), exist_ok=True)
    suggestions = suggest_messages(
        Texts(values.input),
        values.encoder or [DEFAULT_ENCODER],
        classifier=None if values.model is None else loaded_classifier(values),
        **same(values, "mask budget seed"),
    )
    table = labelled_csv((text, "") for text in suggestions)
    write_file(values.output, table, follows_links=True)
    print(f"wrote {values.output}: {len(suggestions)} messages to label")
