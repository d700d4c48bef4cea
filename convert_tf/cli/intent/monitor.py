"""Report on the messages from a period, and on changes since an earlier period.

```
convert-tf intent monitor --model model/ --input week2.txt --output week2.json --since week1.json
```

The report shows the share of each intent and the share of unsure answers. A statistical test shows
whether the messages are farther from the examples than the examples are from each other. Messages
with unsure answers are grouped. With `--since`, the report also shows which shares have changed:
the shares of unsure messages, of messages far from the examples, of intents and of groups. If the
earlier report was made with another classifier, the command compares nothing and says so.

Flags:
  output: JSON file to write. For a later period, pass this file as --since.
  since: JSON file that this command wrote for an earlier period.
  overwrite: Replace an existing report.
"""

import os
from collections.abc import Sequence
from typing import Any

from convert_tf.checkpoints.identity import EncoderIdentity, identity_from_json
from convert_tf.cli.flags import NEEDED, Define, define_groups, define_log, loaded_classifier, same
from convert_tf.cli.printing import printed_after_writing
from convert_tf.storage.files import check_replaceable, write_file
from convert_tf.storage.json_text import json_file, written_json


def define_flags(define: Define) -> None:
    define_log(define, NEEDED)
    define("output", NEEDED)
    define("since", None)
    define_groups(define)
    define("overwrite", False)


def run(values: Any) -> None:
    from convert_tf.intents.encodings import identities_of
    from convert_tf.intents.monitor import monitor_messages, monitoring_text
    from convert_tf.readers.texts import Texts

    check_replaceable(values.output, _is_report, overwrite=values.overwrite)
    os.makedirs(os.path.dirname(os.path.realpath(values.output)), exist_ok=True)
    since = None if values.since is None else json_file(values.since)
    classifier = loaded_classifier(values)
    encoders = identities_of(classifier.encoder)
    if since is not None and encoders:
        check_same_encoders(since, encoders, values.since)
    report = monitor_messages(
        Texts(values.input),
        classifier,
        since=since,
        **same(values, "mask min_size min_confidence seed"),
    )
    with printed_after_writing(monitoring_text(report, shown=values.top_k)):
        report["encoders"] = [identity.to_json() for identity in encoders]
        content = written_json(report, ensure_ascii=False)
        write_file(values.output, content, follows_links=True)
    print(f"wrote {values.output}")


def check_same_encoders(since: Any, encoders: Sequence[EncoderIdentity], path: str) -> None:
    """Raise `ValueError` if an earlier report was written with other encoders."""
    described = since.get("encoders") if isinstance(since, dict) else None
    described = described if isinstance(described, list) else []
    former = [identity_from_json(identity) for identity in described]
    if former and former != [*encoders]:
        raise ValueError(
            f"{path} was written with {', '.join(map(str, former))}, and the classifier uses "
            f"{', '.join(map(str, encoders))}. Run intent monitor again on the earlier messages, "
            "or omit --since."
        )


def _is_report(path: str) -> bool:
    try:
        report = json_file(path)
    except ValueError:
        return False
    return isinstance(report, dict) and {"messages", "intents", "groups"} <= {*report}
