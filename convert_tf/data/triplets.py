"""Triplets of texts on disk: an anchor, a text that means the same, and one that does not.

Triplets are read from tables (`convert_tf.readers.tables`), such as JSON lines. The column `source`
is optional, and other columns are ignored. A line looks like this:

```
{"anchor": "turn on the light", "positive": "switch the lamp on", "negative": "turn off the light"}
```

`convert-tf tokenize --triplets` converts triplets into a folder of token ids
(`convert_tf.data.token_arrays`). Its examples have the three texts named in `TRIPLET`, and its
`arrays.json` has the entry `triplets`.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from convert_tf.data import packing
from convert_tf.data.packing import TokenIds
from convert_tf.data.token_arrays import TRIPLET, ArrayExamples
from convert_tf.data.utterances import matching_files
from convert_tf.readers import columns
from convert_tf.readers.files import TableFile
from convert_tf.readers.tables import read_rows
from convert_tf.storage.messages import shortened

_MAX_SHOWN = 60  # maximum length of a row in a message, in characters


class Triplet(NamedTuple):
    """The three texts of a triplet and their source, which is `""` if it is missing."""

    anchor: str
    positive: str
    negative: str
    source: str = ""


_TEXTS = Triplet._fields[:3]
_COLUMNS = columns.Columns(
    "triplets", names=_TEXTS, find=lambda names: _TEXTS if {*_TEXTS} <= {*names} else None
)


def read_triplets(patterns: Sequence[str]) -> Iterator[Triplet]:
    """Yield the triplets in files, ordered by pattern and then by file name.

    White space around texts is removed.

    Args:
      patterns: file names or patterns; see `matching_files`.

    Raises:
      ValueError: if there is no file, or a row lacks one of the three texts.
    """
    for path in matching_files(patterns):
        file = TableFile(path)
        for row in read_rows(file, _COLUMNS):
            yield _triplet(row, file)


def _triplet(row: Any, file: TableFile) -> Triplet:
    fields = columns.filled(row) if isinstance(row, dict) else {}
    texts = [fields.get(name, "") for name in Triplet._fields]
    if not all(isinstance(text, str) for text in texts) or not all(map(str.strip, texts[:3])):
        raise ValueError(
            f"{file.place} is not a triplet: {shortened(repr(row), _MAX_SHOWN)}. It must have an "
            "'anchor', a 'positive' and a 'negative', which must be strings. Repair or remove it."
        )
    anchor, positive, negative = map(str.strip, texts[:3])
    return Triplet(anchor, positive, negative, texts[3])


@dataclasses.dataclass
class TripletDraws:
    """Draws triplets for each pair that a run trains on.

    The draw depends on the pair's position in the endless order of pairs, so a resumed run draws
    the same triplets as an uninterrupted one. Each triplet is drawn once before any is drawn again.

    Args:
      examples: the triplets to draw from.
      per_pair: number of triplets per pair.
      seed: a non-negative integer that determines the order of the triplets.
    """

    examples: ArrayExamples
    _: dataclasses.KW_ONLY
    per_pair: int
    seed: int

    def __post_init__(self) -> None:
        number = self.examples.num_examples
        self.names = tuple(name for name in TRIPLET for _ in range(self.per_pair))
        # The triplets of a batch usually belong to at most two epochs, so two orders are cached.
        self._order = functools.lru_cache(maxsize=2)(
            lambda epoch: np.random.default_rng([self.seed, epoch]).permutation(number)
        )

    def of_batch(
        self, numbers: np.ndarray, positions: np.ndarray, epochs: np.ndarray
    ) -> tuple[TokenIds, dict[str, np.ndarray]]:
        """Return the triplets for a batch; see `convert_tf.data.schema.Addition`.

        For each name in `TRIPLET`, there is a column `{name}_groups`, int32 `[pairs × per_pair]`.
        Equal texts have equal numbers in it.
        """
        drawn = self.draw(positions)
        texts = self.examples.token_ids(drawn.T.ravel())
        groups = packing.by_name(packing.text_groups(texts), self.names)
        return texts, {f"{name}_groups": group for name, group in groups.items()}

    def draw(self, positions: np.ndarray) -> np.ndarray:
        """Draw the triplets for some pairs.

        Args:
          positions: int64 `[pairs]`, positions in the endless order of pairs.

        Returns:
          int64 `[pairs, per_pair]`, numbers of triplets.
        """
        places = positions[:, None] * self.per_pair + np.arange(self.per_pair)
        epochs, within = np.divmod(places, self.examples.num_examples)
        drawn = np.empty_like(places)
        for epoch in np.unique(epochs).tolist():
            of_epoch = epochs == epoch
            drawn[of_epoch] = self._order(epoch)[within[of_epoch]]
        return drawn
