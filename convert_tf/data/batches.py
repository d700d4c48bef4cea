"""From stored examples of either kind to packed batches, with numpy alone."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from convert_tf.data.negatives import HardNegatives
from convert_tf.data.order import ExampleOrder
from convert_tf.data.packing import (
    ROW_MULTIPLE,
    ROW_TOKENS,
    by_name,
    join_texts,
    pack_batch,
    pack_micro_batches,
    text_groups,
)
from convert_tf.data.schema import Examples
from convert_tf.data.teacher_vectors import TeacherVectors
from convert_tf.data.utterances import UtteranceDraws
from convert_tf.numerics.devices import compiles_shapes


@dataclasses.dataclass
class TrainingBatches:
    """Endless packed batches in the order of `ExampleOrder`, which only the seed decides.

    Batches continue over the ends of epochs, so each example is seen equally often. Memory holds
    one group of the order. Each iteration starts at `skip_batches`.

    Args:
      examples: the examples to train on.
      batch_size: examples of a batch.
      row_tokens: tokens of a packed row.
      shuffle_buffer: examples in memory together, from which batches are drawn.
      seed: seed of the order.
      skip_batches: batches that the run has already seen. They are not read.
      row_multiple: batches have a multiple of this many rows.
      micro_batches: number of parts of a packed batch that are encoded one after another.
      part: `(i, n)` packs the i-th of n equal parts of each batch.
      marks_duplicates: whether to mark equal responses of a batch.
      teachers: vectors of other encoders, for token ids.
      negatives: chooses k examples for each example, whose responses are encoded with the batch;
        for token ids. None for none.
      utterances: k single texts for each example, which are encoded with the batch; None for none.

    Yields:
      The dicts of `packing.pack_batch`, or with several micro-batches `packing.pack_micro_batches`.
      With `marks_duplicates`, they have `response_groups` int32 `[batch]`, equal numbers for equal
      responses. With teachers, they have their columns. With negatives, they have `negative_slots`
      int32 `[batch × k]`, in the order of the examples, and `negative_groups` int32
      `[batch × k]` next to `response_groups`. With utterances, they have `utterance_slots` and the
      columns of the utterances.
    """

    examples: Examples
    _: dataclasses.KW_ONLY
    batch_size: int
    row_tokens: int
    shuffle_buffer: int
    seed: int
    skip_batches: int = 0
    row_multiple: int = 1
    micro_batches: int = 1
    part: tuple[int, int] = (0, 1)
    marks_duplicates: bool = False
    teachers: Sequence[TeacherVectors] = ()
    negatives: HardNegatives | None = None
    utterances: UtteranceDraws | None = None

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        size = self.batch_size
        index, parts = self.part
        own = slice(index * size // parts, (index + 1) * size // parts)
        position = self.skip_batches * size
        left: np.ndarray | None = None
        order = ExampleOrder(
            self.examples.num_examples, shuffle_buffer=self.shuffle_buffer, seed=self.seed
        )
        for group in order.groups(position):
            loaded = self.examples.load(group.numbers)[group.permutation]
            if left is not None:
                loaded = np.concatenate([left, loaded])
            end = len(loaded) // size * size
            for start in range(0, end, size):
                positions = np.arange(position, position + size)[own]
                yield self._batch(loaded[start : start + size][own], positions)
                position += size
            left = loaded[end:].copy()  # a view would keep the whole group in memory
            del loaded

    def _batch(self, loaded: np.ndarray, positions: np.ndarray) -> dict[str, np.ndarray]:
        names = self.examples.names
        token_ids = self.examples.token_ids(loaded)
        columns: dict[str, np.ndarray] = {}
        if self.negatives is not None:
            drawn = self.negatives.draw(loaded, positions // self.examples.num_examples)
            names = (*names, *["negative"] * drawn.shape[1])
            token_ids = join_texts([token_ids, self.negatives.responses(drawn.T.ravel())])
        if self.utterances is not None:
            texts = self.utterances.draw(positions)
            names = (*names, *["utterance"] * texts.shape[1])
            token_ids = join_texts([token_ids, self.utterances.token_ids(texts.T.ravel())])
            columns = self.utterances.columns(texts.ravel())
        pack: Callable[..., dict[str, np.ndarray]] = pack_batch
        if self.micro_batches > 1:
            pack = functools.partial(pack_micro_batches, micro_batches=self.micro_batches)
        batch = pack(
            token_ids,
            names,
            row_tokens=self.row_tokens,
            padding_id=self.examples.padding_id,
            row_multiple=self.row_multiple,
        )
        if self.marks_duplicates:
            groups = by_name(text_groups(token_ids), names)
            for name in ("response", "negative")[: 1 if self.negatives is None else 2]:
                batch[f"{name}_groups"] = groups[name]
        for teacher in self.teachers:
            batch |= teacher.columns(loaded)
        return batch | columns


class EvaluationBatches:
    """Packed batches of the first examples, in order, with few shapes if these are compiled.

    Each iteration reads the examples again.

    Args:
      examples: the examples to encode.
      max_tokens: length of the longest text.
      max_examples: largest number of examples; None for all.
      batch_size: examples of a batch; the last one may be smaller.

    Yields:
      The dicts of `packing.pack_batch`.
    """

    def __init__(
        self,
        examples: Examples,
        max_tokens: int,
        *,
        max_examples: int | None = None,
        batch_size: int = 128,
    ):
        self._examples = examples
        self._row_tokens = max(ROW_TOKENS, max_tokens)
        self._batch_size = batch_size
        self.num_examples = min(max_examples or examples.num_examples, examples.num_examples)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        for start in range(0, self.num_examples, self._batch_size):
            stop = min(start + self._batch_size, self.num_examples)
            loaded = self._examples.load(np.arange(start, stop))
            yield pack_batch(
                self._examples.token_ids(loaded),
                self._examples.names,
                row_tokens=self._row_tokens,
                padding_id=self._examples.padding_id,
                row_multiple=ROW_MULTIPLE if compiles_shapes() else 1,
            )
