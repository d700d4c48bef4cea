"""List the messages of a log whose labels teach a classifier most.

```
convert-tf intent suggest --input log.txt --model model/ --budget 100 --output to_label.csv
```

They are messages that `--model` is unsure of, and differ from one another. Without `--model` they
are central messages of groups, to begin with. `--output` is a CSV with the columns `text` and
`label`. Fill the labels in, and pass the file to `convert-tf intent train`.
"""

from typing import Any

from convert_tf.cli.flags import (
    DEFAULT_ENCODER,
    NEEDED,
    Define,
    define_log,
    loaded_classifier,
    one_or_list,
)
from convert_tf.storage.files import write_file


def define_flags(define: Define) -> None:
    from convert_tf.intents.suggestion import BUDGET

    define_log(define, None)
    define("budget", BUDGET, "How many messages are suggested.", lower_bound=1)
    define("output", NEEDED, "The CSV file.")
    define("seed", 0, "Seed of the draw.", lower_bound=0)


def run(values: Any) -> None:
    from convert_tf.intents.labelled_files import labelled_csv
    from convert_tf.intents.suggestion import suggest_messages
    from convert_tf.storage.lines import TextLines

    found = suggest_messages(
        TextLines(values.input),
        one_or_list(values.encoder or [DEFAULT_ENCODER]),
        classifier=None if values.model is None else loaded_classifier(values),
        budget=values.budget,
        masks=values.mask,
        seed=values.seed,
    )
    write_file(values.output, labelled_csv((text, "") for text in found))
    print(f"wrote {values.output}: {len(found)} messages to label")
