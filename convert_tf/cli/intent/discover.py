"""Group the messages of a log that no intent answers: candidates for new intents.

```
convert-tf intent discover --input log.txt --model model/ --output groups/
convert-tf intent discover --input log.txt --encoder convert_small --output groups/
```

With `--model` only messages are grouped that it rejects, or answers with a low probability.
`--output` gets `groups.csv`, which `convert-tf intent train` reads after you have corrected its
column `label`, and `groups.html`, a page that needs no network.
"""

from pathlib import Path
from typing import Any

from convert_tf.cli.flags import (
    DEFAULT_ENCODER,
    NEEDED,
    Define,
    check_read,
    define_log,
    loaded_classifier,
    one_or_list,
)
from convert_tf.storage.files import write_file

GROUPS_FILE, PAGE_FILE = "groups.csv", "groups.html"


def define_flags(define: Define) -> None:
    from convert_tf.intents.discovery import MIN_CONFIDENCE, MIN_SIZE

    define_log(define, None)
    define("output", NEEDED, "Folder of the results.")
    define("groups", None, "How many groups; chosen by default.", kind=int, lower_bound=2)
    define("min_size", MIN_SIZE, "Groups of fewer messages are left out.", lower_bound=1)
    define(
        "min_confidence",
        MIN_CONFIDENCE,
        "Messages that --model answers with a lower probability are grouped too.",
        lower_bound=0.0,
        upper_bound=1.0,
    )
    define("top_k", 10, "How many groups are printed.", lower_bound=1)
    define("seed", 0, "Seed of the sample that is grouped.", lower_bound=0)


def run(values: Any) -> None:
    from convert_tf.intents.discovery import discover_intents, discovery_page, discovery_text
    from convert_tf.intents.labelled_files import labelled_csv
    from convert_tf.storage.lines import TextLines

    classifier = None if values.model is None else loaded_classifier(values)
    check_read(values, {"without --model": () if values.model else ("min_confidence",)})
    found = discover_intents(
        TextLines(values.input),
        one_or_list(values.encoder or [DEFAULT_ENCODER]),
        classifier=classifier,
        num_groups=values.groups,
        min_size=values.min_size,
        min_confidence=values.min_confidence,
        masks=values.mask,
        seed=values.seed,
    )
    print(discovery_text(found, shown=values.top_k))
    output = Path(values.output)
    output.mkdir(parents=True, exist_ok=True)
    rows = [(text, row["label"]) for row in found["groups"] for text in row["texts"]]
    write_file(output / GROUPS_FILE, labelled_csv(rows))
    write_file(output / PAGE_FILE, discovery_page(found))
    print(f"wrote {values.output}: {GROUPS_FILE}, {PAGE_FILE}")
