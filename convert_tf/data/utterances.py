"""Single texts on disk, which may have labels. Training can use them in addition to pairs.

Single texts are read from tables (`convert_tf.readers.tables`), such as JSON lines. The columns
`source` and `label` are optional, and other columns are ignored. A line looks like this:

```
{"text": "where is my card?", "source": "bank", "label": "card_arrival"}
```

`convert-tf tokenize --utterances` converts the texts into a folder of token ids
(`convert_tf.data.token_arrays`). Each example has a single text, named `text`. The folder also
contains

- the entry `utterances` in `arrays.json`, with the list `labels`;
- for each split, `{split}-labels.npy`, int32 `[examples]`: the index of each example's label in
  this list, or −1 for an example without a label.

If two sources use the same label, it counts as two intents. For example, `greet` may mean different
things in two bots.
"""

import dataclasses
import functools
import glob
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from convert_tf.data.negatives import scattered
from convert_tf.data.packing import TokenIds
from convert_tf.data.teacher_vectors import TeacherVectors
from convert_tf.data.token_arrays import ArrayExamples
from convert_tf.readers import columns
from convert_tf.readers.files import TableFile
from convert_tf.readers.tables import read_rows
from convert_tf.storage.checksums import short_digest
from convert_tf.storage.lines import distinct_files, file_state
from convert_tf.storage.messages import shortened

TEXT = ("text",)
NO_LABEL = -1
_MAX_SHOWN = 60  # maximum length of a row in a message, in characters
_COLUMNS = columns.Columns("texts", names=("text",), find=columns.name_of_text)


class Utterance(NamedTuple):
    """A text, its source and its label. A missing source or label is `""`."""

    text: str
    source: str = ""
    label: str = ""


def matching_files(patterns: Sequence[str]) -> list[str]:
    """Return the paths of the tables that match names or patterns, each file once.

    The paths are ordered by pattern and then by file name.

    Args:
      patterns: file names or patterns. In a pattern, `**` stands for any number of folders. The
        name of a file is not a pattern, even if it contains brackets.

    Raises:
      ValueError: if no file matches a name or pattern.
    """
    paths: dict[str, None] = {}
    for pattern in patterns:
        # The same rule as in `corpora.dumps.find_files`, which this package cannot import.
        names = [pattern] if os.path.isfile(pattern) else glob.glob(pattern, recursive=True)
        if names != [pattern]:  # a pattern may also match folders
            names = [*filter(os.path.isfile, names)]
        if not names:
            raise ValueError(
                f"No file matches {pattern!r}. Pass tables, such as JSON lines, and put patterns "
                "in quotes."
            )
        paths |= dict.fromkeys(sorted(names))
    return distinct_files(paths)


class UtteranceFiles:
    """The single texts in files. Each text is yielded once, ordered by pattern and file name.

    White space around texts, sources and labels is removed. If a text occurs with and without a
    label, its first copy with a label is used. To find these texts, the files are read once more
    before the first iteration. If one of the files is a pipe, which can be read only once, the
    first copy of each text is used, and a warning gives the number of texts whose label was lost.

    Finding repeated texts takes about 100 bytes of memory per text.

    Args:
      patterns: file names or patterns; see `matching_files`.
      ignored_labels: names of sources whose labels are not intents. Their texts have no label. If
        no row has one of these sources, a warning is printed once.

    Attributes:
      pipes: the paths that are not regular files and can therefore be read only once.

    Raises:
      ValueError: if there is no file; while reading, if a row has no text.
      FileChangedError: while reading, if a file changed after this object was created.
    """

    def __init__(self, patterns: Sequence[str], *, ignored_labels: Collection[str] = ()) -> None:
        self._paths = matching_files(patterns)
        self.pipes = [path for path in self._paths if not os.path.isfile(path)]
        self._states = {path: file_state(path) for path in self._paths if path not in self.pipes}
        self._ignored_labels = frozenset(ignored_labels)
        self._has_warned = False

    def __iter__(self) -> Iterator[Utterance]:
        seen: set[bytes] = set()
        unlabelled: set[bytes] = set()  # stays empty without pipes: no label is lost
        num_lost = 0
        labelled_later = frozenset() if self.pipes else self._labelled_later
        for utterance, digest in self._rows():
            if digest in seen:
                if utterance.label and digest in unlabelled:
                    unlabelled.discard(digest)
                    num_lost += 1
            elif utterance.label or digest not in labelled_later:
                seen.add(digest)
                if self.pipes and not utterance.label:
                    unlabelled.add(digest)
                yield utterance
        if num_lost:
            print(
                f"warning: texts whose label was lost: {num_lost:,}. For each of them, a copy "
                "without a label comes first. Write the texts to a file instead of a pipe.",
                file=sys.stderr,
            )

    @functools.cached_property
    def _labelled_later(self) -> frozenset[bytes]:
        """Digests of the texts with a label that have an earlier copy without a label."""
        unlabelled, labelled_later = set(), set()
        for utterance, digest in self._rows():
            if not utterance.label:
                unlabelled.add(digest)
            elif digest in unlabelled:
                labelled_later.add(digest)
        return frozenset(labelled_later)

    def _rows(self) -> Iterator[tuple[Utterance, bytes]]:
        """Yield all non-empty texts, including repeated ones, each with a digest of the text."""
        unknown = {*self._ignored_labels}
        for path in self._paths:
            file = TableFile(path, state=self._states.get(path))
            file.check_unchanged()
            for row in read_rows(file, _COLUMNS):
                utterance = _utterance(row, file)
                if utterance.source in self._ignored_labels:
                    unknown.discard(utterance.source)
                    utterance = utterance._replace(label="")
                if utterance.text:
                    yield utterance, short_digest(utterance.text.encode())
            file.check_unchanged()
        if unknown and not self._has_warned:
            self._has_warned = True
            print(
                "warning: ignored_labels names sources that no text has: "
                f"{', '.join(map(repr, sorted(unknown)))}",
                file=sys.stderr,
            )


def _utterance(row: Any, file: TableFile) -> Utterance:
    fields = columns.filled(row) if isinstance(row, dict) else {}
    # A numeric `class` or `target` is ignored, because it may only number the names in another
    # column. Values in a column named `label` must be strings.
    names = {name for name, value in fields.items() if name == "label" or isinstance(value, str)}
    wanted = (columns.TEXT, (columns.SOURCE,), [name for name in columns.LABEL if name in names])
    chosen = [columns.first_of(choices, fields) for choices in wanted]
    texts = [fields[name] if name else "" for name in chosen]
    if chosen[0] is None or not all(isinstance(text, str) for text in texts):
        raise ValueError(
            f"{file.place} is not an utterance: {shortened(repr(row), _MAX_SHOWN)}. It must have "
            "a 'text' and may have a 'source' and a 'label', which must be strings. Repair or "
            "remove it."
        )
    return Utterance(*map(str.strip, texts))


def is_held_out(utterance: Utterance, dev_fraction: float) -> bool:
    """Return whether a text belongs to the split `dev`.

    All texts with the same intent are in the same split, so `dev` only has intents that do not
    occur in training.

    Args:
      utterance: the text, with its source and label.
      dev_fraction: share of the intents, and of the texts without an intent, in `dev`.
    """
    key = f"{utterance.source}\n{utterance.label or utterance.text}"
    return int.from_bytes(short_digest(key.encode()), "big") < dev_fraction * 2**64


@dataclasses.dataclass
class UtteranceDraws:
    """Draws single texts for each pair that a run trains on.

    The draw depends on the pair's position in the endless order of pairs, so a resumed run draws
    the same texts as an uninterrupted one. Each text is drawn once before any is drawn again, apart
    from the partners that `draw_in_pairs` adds.

    Args:
      examples: the single texts to draw from.
      per_pair: number of single texts per pair.
      seed: a non-negative integer that determines the order of the texts.
      teacher: a teacher's vectors for the texts, or None.

    Attributes:
      intents: int64 `[examples]`. Texts with the same source and label have the same number; texts
        without a label have −1.
      in_pairs: whether every second text is drawn from the intent of the text before it.

    Raises:
      ValueError: if the labels are damaged.
    """

    examples: ArrayExamples
    _: dataclasses.KW_ONLY
    per_pair: int
    seed: int
    teacher: TeacherVectors | None = None

    def __post_init__(self) -> None:
        self.names = ("utterance",) * self.per_pair
        self.in_pairs = False
        number = self.examples.num_examples
        # The texts of a batch usually belong to at most two epochs, so two orders are cached.
        self._order = functools.lru_cache(maxsize=2)(
            lambda epoch: np.random.default_rng([self.seed, epoch]).permutation(number)
        )
        self._labels = self.examples.column("labels")
        sources = self.examples.sources()
        intents = self._labels.astype(np.int64) * len(self.examples.source_names) + sources
        # Consecutive numbers fit into the int32 columns of a batch.
        _, dense = np.unique(intents, return_inverse=True)
        self.intents = np.where(self._labels == NO_LABEL, NO_LABEL, dense)
        self._by_intent = np.argsort(self.intents, kind="stable")
        self._sorted_intents = self.intents[self._by_intent]

    def draw_in_pairs(self) -> None:
        """Draw texts in pairs from now on: every second text has the intent of the text before it.

        If that intent has no other text, a random other text is drawn.

        Raises:
          ValueError: if `per_pair` is odd.
        """
        if self.per_pair % 2:
            raise ValueError(
                f"utterances_per_pair is {self.per_pair}, but intent_contrast draws texts in "
                "pairs. Pass an even number."
            )
        self.in_pairs = True

    def of_batch(
        self, numbers: np.ndarray, positions: np.ndarray, epochs: np.ndarray
    ) -> tuple[TokenIds, dict[str, np.ndarray]]:
        """Return the single texts for a batch; see `convert_tf.data.schema.Addition`."""
        texts = self.draw(positions)
        return self.token_ids(texts.T.ravel()), self.columns(texts.ravel())

    def draw(self, positions: np.ndarray) -> np.ndarray:
        """Draw the texts for some pairs.

        Args:
          positions: int64 `[pairs]`, positions in the endless order of pairs.

        Returns:
          int64 `[pairs, per_pair]`, the indices of the drawn texts in `examples`.
        """
        drawn = self.per_pair // 2 if self.in_pairs else self.per_pair
        places = positions[:, None] * drawn + np.arange(drawn)
        epochs, within = np.divmod(places, self.examples.num_examples)
        numbers = np.empty_like(places)
        for epoch in np.unique(epochs).tolist():
            of_epoch = epochs == epoch
            numbers[of_epoch] = self._order(epoch)[within[of_epoch]]
        if not self.in_pairs:
            return numbers
        return np.stack([numbers, self._partners(numbers, places)], axis=2).reshape(len(places), -1)

    def token_ids(self, numbers: np.ndarray) -> TokenIds:
        """Return the token ids of the texts numbered `numbers`, int64 `[texts]`."""
        return self.examples.token_ids(numbers)

    def columns(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """Return the label columns of a batch.

        Args:
          numbers: int64 `[texts]`, the numbers of the texts in the batch.

        Returns:
          A dict of `intent_groups`, int32 `[texts]` (see the attribute `intents`), and
          `intent_names`, int32 `[texts]`. Texts with the same label share an intent name, whatever
          their source. With a teacher, the dict also has `teacher_text`, the teacher's vectors.
        """
        columns = {
            "intent_groups": self.intents[numbers].astype(np.int32),
            "intent_names": self._labels[numbers],
        }
        return columns if self.teacher is None else columns | self.teacher.columns(numbers)

    def _partners(self, numbers: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return for each text another text with its intent, or a random one if there is none."""
        keys = scattered(np.full(places.shape, self.seed, np.uint64))
        keys = scattered(keys + places.astype(np.uint64))
        intents = self.intents[numbers]
        starts = np.searchsorted(self._sorted_intents, intents, side="left")
        sizes = np.searchsorted(self._sorted_intents, intents, side="right") - starts
        has_other = (intents != NO_LABEL) & (sizes > 1)
        total = len(self._by_intent)
        starts, sizes = np.where(has_other, starts, 0), np.where(has_other, sizes, total)
        chosen = starts + (keys % sizes.astype(np.uint64)).astype(np.int64)
        is_same = self._by_intent[chosen] == numbers
        following = starts + (chosen - starts + 1) % sizes
        return self._by_intent[np.where(is_same, following, chosen)]
