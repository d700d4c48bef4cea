"""Group the messages in a log that no intent answers, to find new intents.

```
convert-tf intent discover --input log.txt --model model/ --output groups/
convert-tf intent discover --input log.txt --encoder convert_small --output groups/
```

With `--model`, only the messages that the classifier rejects or answers with a low probability are
grouped. The command writes four files to `--output`. `groups.html` is a page to read. `groups.csv`
contains the groups: correct its column `label`, and pass the file to `convert-tf intent train`.
`leftovers.csv` contains messages of groups smaller than `--min_size`, without labels.
`groups.csv.json` contains the name of the encoder, and the number and the central messages of each
group.

`--earlier` keeps numbers and labels from week to week. If a group is the same as one of last week's
groups, it keeps the number of that group and the label that you corrected. New groups get new
numbers.

Flags:
  earlier: groups.csv of an earlier period. Groups that still exist keep their numbers and labels.
    With --mask, the earlier messages are masked too. If they were masked then, --mask is required.
  output: Folder for the results.
  groups: Number of groups. Default: chosen automatically.
  overwrite: Replace existing results, including labels that you corrected.
"""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from convert_tf.checkpoints.identity import EncoderIdentity, identity_from_json
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
from convert_tf.cli.printing import printed_after_writing
from convert_tf.storage.checksums import checksum, file_checksum
from convert_tf.storage.files import check_replaceable, write_results
from convert_tf.storage.json_text import json_file, written_json

_TABLE, _PAGE, _LEFTOVERS = "groups.csv", "groups.html", "leftovers.csv"
_DESCRIPTION_SUFFIX = ".json"  # suffix of the description, which is a file next to the table
_TABLE_CHECKSUM = "table_sha256"  # key of the table's checksum in the description
_GROUPS = "groups"  # key of the groups in the description
_MASK = "mask"  # key that says whether the messages were masked; earlier versions wrote none
_KEPT_TEXTS = 20  # number of texts per group in the description
_DESCRIPTION = f"{_TABLE}{_DESCRIPTION_SUFFIX}"
REPLACED = (_TABLE, _PAGE, _LEFTOVERS, _DESCRIPTION)


def define_flags(define: Define) -> None:
    define_log(define, None)
    define("output", NEEDED)
    define("groups", None, kind=int, lower_bound=2)
    define("earlier", None)
    define_groups(define)
    define("overwrite", False)


def run(values: Any) -> None:
    from convert_tf.intents.data import is_labelled_csv
    from convert_tf.intents.discover import discover_intents, discovery_text
    from convert_tf.intents.encodings import identities_of
    from convert_tf.readers.texts import Texts

    classifier = None if values.model is None else loaded_classifier(values)
    check_read(values, {"without --model": () if values.model else ("min_confidence",)})
    tables = ((name, is_labelled_csv) for name in (_TABLE, _LEFTOVERS))
    for name, is_own in (*tables, (_PAGE, os.path.isfile), (_DESCRIPTION, _is_description)):
        path = os.path.join(values.output, name)
        check_replaceable(path, is_own, overwrite=values.overwrite)
    earlier = None if values.earlier is None else _earlier_groups(values.earlier, mask=values.mask)
    encoder = values.encoder or [DEFAULT_ENCODER]
    discovery = discover_intents(
        Texts(values.input),
        encoder,
        classifier=classifier,
        num_groups=values.groups,
        earlier=earlier,
        **same(values, "mask min_size min_confidence seed"),
    )
    with printed_after_writing(discovery_text(discovery, shown=values.top_k)):
        encoders = identities_of(encoder if classifier is None else classifier.encoder)
        contents = _contents(discovery, encoders, mask=values.mask)
        write_results(values.output, contents)
    print(f"wrote {values.output}: {', '.join(contents)}")


def _contents(
    discovery: dict[str, Any], encoders: Sequence[EncoderIdentity], *, mask: bool
) -> dict[str, str]:
    """Return the contents of the files to write, by file name."""
    from convert_tf.intents.data import labelled_csv
    from convert_tf.intents.report_page import discovery_page

    rows = [(text, row["label"]) for row in discovery["groups"] for text in row["texts"]]
    leftovers = labelled_csv((text, "") for text in discovery["leftovers"])
    table = labelled_csv(rows)
    described = {
        "encoders": [identity.to_json() for identity in encoders],
        # The checksum shows whether the labels in the table have been corrected. Corrected labels
        # do not depend on the encoder.
        _TABLE_CHECKSUM: checksum([table.encode()]),
        _MASK: mask,
        _GROUPS: [_described(row) for row in [*discovery["groups"], *discovery.get("gone", ())]],
    }
    return {
        _TABLE: table,
        _PAGE: discovery_page(discovery),
        _LEFTOVERS: leftovers,
        _DESCRIPTION: written_json(described),
    }


def _described(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry for a group in `groups.csv.json`. A group that is gone has size 0."""
    names = {name: row[name] for name in ("group", "label")}
    return {**names, "size": row.get("size", 0), "texts": row["texts"][:_KEPT_TEXTS]}


def _earlier_groups(path: str, *, mask: bool) -> list[dict[str, Any]]:
    """Return the groups of an earlier result, with the labels that people gave to the groups.

    Args:
      path: the earlier `groups.csv`. A group gets the most common label of its central messages in
        this table. If these messages have no labels, or the group was already gone, it keeps the
        label in the description.
      mask: whether the new messages are masked.

    Raises:
      ValueError: if the table does not exist, or the description next to the table does not contain
        groups; or if the earlier messages are masked and the new ones are not.
    """
    from convert_tf.intents.data import read_labelled

    if not os.path.isfile(path):
        raise ValueError(f"{path} is not a file. Pass a {_TABLE} that intent discover wrote.")
    file = f"{path}{_DESCRIPTION_SUFFIX}"
    described = json_file(file) if _is_description(file) else {}
    groups = described.get(_GROUPS)
    if not isinstance(groups, list) or not all(map(_is_group, groups)):
        raise ValueError(
            f"{file} does not contain the groups of {path}. Pass a {_TABLE} whose "
            f"{_DESCRIPTION_SUFFIX} file is next to it, unedited and written by this version of "
            "intent discover."
        )
    if described.get(_MASK) and not mask:
        raise ValueError(
            f"{path} was made with --mask. Its masked messages cannot be compared with unmasked "
            "ones. Pass --mask, or omit --earlier."
        )
    # If all groups are gone, the table has no texts.
    are_there = any(row["size"] for row in groups)
    label_of = {}
    if are_there:
        label_of = dict(zip(*read_labelled(path, needs_labels=False), strict=True))
    for row in groups:
        if not row.pop("size"):
            continue  # the group is gone, and its texts may be in another group now
        given = Counter(label_of[text] for text in row["texts"] if label_of.get(text))
        if given:
            row["label"] = given.most_common(1)[0][0]
    return groups


def _is_group(row: Any) -> bool:
    if not isinstance(row, dict) or not isinstance(row.get("label"), str):
        return False
    texts = row.get("texts")
    has_texts = isinstance(texts, list) and all(isinstance(text, str) and text for text in texts)
    numbers = type(row.get("group")), type(row.get("size"))
    return numbers == (int, int) and has_texts and bool(texts)


def check_corrected(path: str, encoders: Sequence[EncoderIdentity]) -> None:
    """Raise an error for groups made with another encoder, unless their labels were corrected.

    Encoders count as the same if their weights and vocabularies are equal. An `.onnx` file counts
    as the module that it was exported from.

    Args:
      path: a file of examples, which may be a table of groups from `intent discover`.
      encoders: the encoders to train with.

    Raises:
      ValueError: if the file is a table of groups that were made with other encoders, and nobody
        has corrected the labels.
    """
    file = f"{path}{_DESCRIPTION_SUFFIX}"
    if not _is_description(file):
        return
    described = json_file(file)
    former = [identity_from_json(identity) for identity in described["encoders"]]
    if not former or None in former or described[_TABLE_CHECKSUM] != file_checksum(path):
        return
    checksums = [identity.checksum for identity in former if identity is not None]
    if checksums != [identity.checksum for identity in encoders]:
        raise ValueError(
            f"{path} contains groups made with {', '.join(map(str, former))}, and its labels have "
            f"not been corrected. This classifier uses {', '.join(map(str, encoders))}. Correct "
            "the labels, or run intent discover with the encoder of this classifier."
        )


def _is_description(path: str) -> bool:
    try:
        described = json_file(path) if os.path.isfile(path) else None
    except ValueError:
        return False
    if not isinstance(described, dict) or not isinstance(described.get("encoders"), list):
        return False
    return isinstance(described.get(_TABLE_CHECKSUM), str)
