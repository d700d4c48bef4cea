"""Turn stored examples, as records or token ids, into packed batches, with numpy alone.

The training order is computed from a seed, without reading the examples. Examples are numbered
consecutively across all shards of a split. They are stored in the order of a hash, so neighbouring
examples are unrelated.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from convert_tf.data import packing
from convert_tf.data.schema import Addition, Examples
from convert_tf.numerics.devices import compiles_shapes

CHUNK_SIZE = 1024  # maximum number of consecutive examples that are read as one chunk
CHUNKS_PER_BUFFER = 16  # a small buffer gets smaller chunks, so that it still holds this many


class Group(NamedTuple):
    """Examples that are in memory at the same time.

    Attributes:
      numbers: int64 `[examples]`, the numbers of the examples in the split, in the order in which
        they are read: one chunk after another.
      permutation: int64 `[examples]`, indices into `numbers`, in training order.
    """

    numbers: np.ndarray
    permutation: np.ndarray


class ExampleOrder:
    """An endless order in which each example occurs once per epoch.

    Each epoch permutes chunks of up to 1,024 consecutive examples. As many chunks as fit into the
    buffer are read as one group, and the examples within each group are permuted. If the buffer
    holds all examples, all orders are equally likely.

    The order depends only on the arguments below. The kind of storage, the machine, the numpy
    version and the position where reading began do not matter.

    Args:
      num_examples: number of examples in the split.
      shuffle_buffer: maximum number of examples per group.
      seed: a non-negative integer that determines the order.

    Raises:
      ValueError: if there are no examples.

    Example:
      order = ExampleOrder(10_000, shuffle_buffer=1_000, seed=0)
      for group in order.groups(position=123_456): ...
    """

    def __init__(self, num_examples: int, *, shuffle_buffer: int, seed: int) -> None:
        if num_examples < 1:
            raise ValueError("The split has no examples. Choose a split with examples.")
        self.num_examples = num_examples
        self.seed = seed
        self.chunk_size = min(CHUNK_SIZE, max(1, shuffle_buffer // CHUNKS_PER_BUFFER))
        self.num_chunks = -(-num_examples // self.chunk_size)
        self.chunks_per_group = max(1, shuffle_buffer // self.chunk_size)
        self.groups_per_epoch = -(-self.num_chunks // self.chunks_per_group)

    def groups(self, position: int = 0) -> Iterator[Group]:
        """Yield groups endlessly, starting at a position in the endless order.

        The permutation of the first group omits the examples before that position.

        Args:
          position: number of examples to skip, which may exceed an epoch.
        """
        epoch, within = divmod(position, self.num_examples)
        while True:
            starts = self._permutation(self.num_chunks, epoch, 0) * self.chunk_size
            stops = np.minimum(starts + self.chunk_size, self.num_examples)
            ends = np.cumsum(stops - starts)
            first = int(np.searchsorted(ends, within, side="right")) // self.chunks_per_group
            for group in range(first, self.groups_per_epoch):
                begin = group * self.chunks_per_group
                chunks = slice(begin, begin + self.chunks_per_group)
                before = int(ends[begin - 1]) if begin else 0
                size = int(ends[chunks][-1]) - before
                permutation = self._permutation(size, epoch, 1 + group)
                numbers = packing.joined_ranges(starts[chunks], (stops - starts)[chunks])
                yield Group(numbers, permutation[max(within - before, 0) :])
            epoch, within = epoch + 1, 0

    def _permutation(self, size: int, epoch: int, stream: int) -> np.ndarray:
        # The raw output of a bit generator is the same in all numpy versions. The permutations of a
        # Generator are not.
        keys = np.random.PCG64([self.seed, epoch, stream]).random_raw(size)
        return np.argsort(keys, kind="stable")


@dataclasses.dataclass
class TrainingBatches:
    """Endless packed batches in the order of `ExampleOrder`.

    A batch may span two epochs, so all examples are seen equally often. One group of the order is
    in memory at a time. Each iteration starts after the first `skip_batches` batches.

    Args:
      examples: the examples to train on.
      batch_size: number of examples per batch.
      row_tokens: number of tokens per packed row.
      shuffle_buffer: maximum number of examples in memory at once. Batches are drawn from these.
      seed: a non-negative integer that determines the order.
      skip_batches: number of batches that the run has already seen. These batches are not read.
      row_multiple: empty rows are added until the number of rows per batch is a multiple of this.
      micro_batches: number of parts that each batch is divided into. The parts are encoded one
        after another.
      part: with `(i, n)`, only the i-th of n equal parts of each batch is packed, counted from 0.
      marks_duplicates: whether to add columns that mark equal responses within a batch.
      additions: sources of further texts and columns for each batch, such as mined negatives.

    Yields:
      Dicts as returned by `packing.pack_batch`, or by `packing.pack_micro_batches` for several
      micro-batches. With `marks_duplicates`, each dict also has `response_groups` int32 `[batch]`,
      in which equal responses have equal numbers, and, for batches with negatives,
      `negative_groups` int32 `[batch × k]`. Each added kind of text has `{name}_slots` int32
      `[batch × k]`, in the order of the examples.
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
    additions: Sequence[Addition] = ()

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        size = self.batch_size
        index, parts = self.part
        share = slice(index * size // parts, (index + 1) * size // parts)
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
                positions = np.arange(position, position + size)[share]
                yield self._batch(loaded[start : start + size][share], positions)
                position += size
            left = loaded[end:].copy()  # a view would keep the whole group in memory
            del loaded

    def _batch(self, loaded: np.ndarray, positions: np.ndarray) -> dict[str, np.ndarray]:
        names = self.examples.names
        token_ids = self.examples.token_ids(loaded)
        columns: dict[str, np.ndarray] = {}
        epochs = positions // self.examples.num_examples
        for addition in self.additions:
            texts, added = addition.of_batch(loaded, positions, epochs)
            names = (*names, *addition.names)
            if texts is not None:
                token_ids = packing.join_texts([token_ids, texts])
            columns |= added
        pack: Callable[..., dict[str, np.ndarray]] = packing.pack_batch
        if self.micro_batches > 1:
            pack = functools.partial(packing.pack_micro_batches, micro_batches=self.micro_batches)
        batch = pack(
            token_ids,
            names,
            row_tokens=self.row_tokens,
            padding_id=self.examples.padding_id,
            row_multiple=self.row_multiple,
        )
        if self.marks_duplicates:
            groups = packing.by_name(packing.text_groups(token_ids), names)
            batch |= {f"{n}_groups": groups[n] for n in ("response", "negative") if n in groups}
        return batch | columns


@dataclasses.dataclass
class EvaluationBatches:
    """Packed batches of the first examples of a split, in stored order.

    Each iteration reads the examples again. If steps are compiled for each shape, empty rows are
    added to the batches so that few shapes occur.

    Args:
      examples: the examples to encode.
      max_tokens: maximum number of tokens per text.
      max_examples: maximum number of examples; None for all.
      batch_size: number of examples per batch. The last batch may be smaller.
      marks_duplicates: whether to add a column that marks equal responses.

    Attributes:
      num_examples: number of examples in all batches.

    Yields:
      Dicts as returned by `packing.pack_batch`. With `marks_duplicates`, each dict also has
      `response_groups` int32 `[batch]`. Equal responses have equal numbers, also across batches.
    """

    examples: Examples
    max_tokens: int
    _: dataclasses.KW_ONLY
    max_examples: int | None = None
    batch_size: int = 128
    marks_duplicates: bool = False

    def __post_init__(self) -> None:
        number = self.examples.num_examples
        self.num_examples = min(self.max_examples or number, number)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        for start in range(0, self.num_examples, self.batch_size):
            stop = min(start + self.batch_size, self.num_examples)
            token_ids = self.examples.token_ids(self.examples.load(np.arange(start, stop)))
            names = self.examples.names
            batch = packing.pack_batch(
                token_ids,
                names,
                row_tokens=max(packing.ROW_TOKENS, self.max_tokens),
                padding_id=self.examples.padding_id,
                row_multiple=packing.ROW_MULTIPLE if compiles_shapes() else 1,
            )
            if self.marks_duplicates:
                groups = packing.by_name(packing.text_groups(token_ids), names)
                batch["response_groups"] = groups["response"]
            yield batch
