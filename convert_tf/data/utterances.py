"""Single texts on disk, some with a label: what is distilled beside pairs.

They come as files of JSON objects, one a line, compressed or not; `source` and `label` may be
missing, and further fields are ignored:

```
{"text": "where is my card?", "source": "bank", "label": "card_arrival"}
```

A folder that `convert-tf tokenize --utterances` wrote is one of token ids
(`convert_tf.data.token_arrays`) whose examples have one text, `text`, and holds besides

- `utterances` in `arrays.json`: the `labels`;
- for each split `{split}-labels.npy`, int32 `[examples]`: places in these labels, −1 for none; a
  label is one of its source, `greet` of one bot need not be that of another.
"""

import glob
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from convert_tf.data.token_arrays import ArrayExamples, ArrayFolder
from convert_tf.storage.checksums import short_digest
from convert_tf.storage.content import JSON
from convert_tf.storage.json_text import json_of_texts

TEXT = ("text",)
FURTHER = ("source", "label")
NO_LABEL = -1


class Utterance(NamedTuple):
    """A text, where it is from, and its label; `""` where there is none."""

    text: str
    source: str = ""
    label: str = ""


def read_utterances(patterns: Sequence[str]) -> Iterator[Utterance]:
    """The texts of files, each once: in the order of the patterns, and for each of the names.

    White space around a text is dropped. Takes some 100 bytes of memory for each text.

    Args:
      patterns: of the files.

    Raises:
      ValueError: there is no file, or a line is no object with a `text`.
    """
    # Which needs zstandard; training reads token ids alone, where that may be missing.
    from convert_tf.storage.lines import TextLines

    paths = dict.fromkeys(path for pattern in patterns for path in sorted(glob.glob(pattern)))
    if not paths:
        raise ValueError(
            f"No file matches {', '.join(map(repr, patterns))}. Name files of JSON lines; put "
            "patterns in quotes."
        )
    seen: set[bytes] = set()
    for path in paths:
        lines = TextLines(path, formats=[JSON])
        for line in lines:
            if not line.strip():
                continue
            utterance = _parsed(line, f"line {lines.number:,} of {path}")
            digest = short_digest(utterance.text.encode())
            if utterance.text and digest not in seen:
                seen.add(digest)
                yield utterance


def _parsed(line: str, where: str) -> Utterance:
    try:
        fields = json_of_texts(line)
        values = [fields[name] for name in TEXT]
        values += [fields.get(name) if fields.get(name) is not None else "" for name in FURTHER]
    except (ValueError, AttributeError, KeyError, TypeError):
        values = [None]
    if not all(isinstance(value, str) for value in values):
        raise ValueError(
            f"{line[:60]!r} is not an utterance, {where}. It must be a JSON object with a "
            '"text", and a "source" and a "label" if there are any, each a text. Repair the '
            "line, or remove it."
        )
    return Utterance(values[0].strip(), *values[1:])


def is_held_out(utterance: Utterance, dev_fraction: float) -> bool:
    """Whether a text is in the split `dev`: all texts of its intent are, or none.

    So whoever tunes on `dev` sees intents that were never trained on.
    """
    key = f"{utterance.source}\n{utterance.label or utterance.text}"
    return int.from_bytes(short_digest(key.encode()), "big") < dev_fraction * 2**64


class Utterances:
    """A split of a folder of single texts.

    Args:
      folder: token ids that `convert-tf tokenize --utterances` wrote.
      split: which one.
      max_tokens: longer texts are cut to this many tokens.

    Attributes:
      examples: the token ids, as `convert_tf.data.schema.Examples` with the name `text`.
      intents: int64 `[examples]`: equal where source and label are; −1 for no label.
      label_names: int64 `[examples]`: equal where labels are called the same, in any source.

    Raises:
      ValueError: the folder holds pairs, or is damaged.
    """

    def __init__(self, folder: ArrayFolder, split: str, *, max_tokens: int):
        self.examples: ArrayExamples = folder.open_utterances(split, max_tokens=max_tokens)
        number = self.examples.num_examples
        labels = folder.mapped(f"{split}-labels.npy", "int32", number).checked()
        self.label_names = labels.astype(np.int64)
        intents = self.label_names * len(folder.sources) + self.examples.sources()
        self.intents = np.where(labels == NO_LABEL, NO_LABEL, intents)
