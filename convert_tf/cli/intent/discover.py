"""Group the messages of a log that no intent answers, to find new intents.

```
convert-tf intent discover --input log.txt --model model/ --output groups/
convert-tf intent discover --input log.txt --encoder convert_small --output groups/
```

With `--model`, only messages are grouped that the classifier rejects or answers with a low
probability. `--output` gets `groups.html`, a page to read, and `groups.csv`. Correct the column
`label` of this file and pass it to `convert-tf intent train`. Messages of groups smaller than
`--min_size` are in `leftovers.csv`, without labels.

Flags:
  output: Folder for the results.
  groups: Number of groups. Default: chosen for the messages.
  overwrite: Replace existing results, also labels that you corrected.
"""

import os
from typing import Any

from convert_tf.cli.flags import (
    DEFAULT_ENCODER,
    NEEDED,
    Define,
    check_read,
    define_groups,
    define_log,
    loaded_classifier,
    same,
)
from convert_tf.storage.files import check_replaceable, write_results

_TABLE, _PAGE, _LEFTOVERS = REPLACED = ("groups.csv", "groups.html", "leftovers.csv")


def define_flags(define: Define) -> None:
    define_log(define, None)
    define("output", NEEDED)
    define("groups", None, kind=int, lower_bound=2)
    define_groups(define)
    define("overwrite", False)


def run(values: Any) -> None:
    from convert_tf.intents.data import is_labelled_csv, labelled_csv
    from convert_tf.intents.discover import discover_intents, discovery_text
    from convert_tf.intents.report_page import discovery_page
    from convert_tf.readers.texts import Texts

    classifier = None if values.model is None else loaded_classifier(values)
    check_read(values, {"without --model": () if values.model else ("min_confidence",)})
    tables = ((name, is_labelled_csv) for name in (_TABLE, _LEFTOVERS))
    for name, is_own in (*tables, (_PAGE, os.path.isfile)):
        path = os.path.join(values.output, name)
        check_replaceable(path, is_own, overwrite=values.overwrite)
    found = discover_intents(
        Texts(values.input),
        values.encoder or [DEFAULT_ENCODER],
        classifier=classifier,
        num_groups=values.groups,
        **same(values, "mask min_size min_confidence seed"),
    )
    print(discovery_text(found, shown=values.top_k))
    rows = [(text, row["label"]) for row in found["groups"] for text in row["texts"]]
    leftovers = labelled_csv((text, "") for text in found["leftovers"])
    contents = {_TABLE: labelled_csv(rows), _PAGE: discovery_page(found), _LEFTOVERS: leftovers}
    write_results(values.output, contents)
    print(f"wrote {values.output}: {', '.join(contents)}")
