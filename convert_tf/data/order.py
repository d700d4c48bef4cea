"""The order of the examples in training, a function of a seed that needs no reading.

The examples of a split have numbers: shard after shard, and in a shard from its start. They lie on
disk in the order of a hash, so neighbours have nothing to do with each other.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from convert_tf.data.packing import joined_ranges

CHUNK_SIZE = 1024  # examples that are read in one go, where the buffer holds many times as many
CHUNKS_PER_BUFFER = 16


class Group(NamedTuple):
    """Examples that are in memory together.

    Attributes:
      numbers: int64 `[examples]`, in the order of reading: one chunk after another.
      permutation: int64 `[examples]`, indices into the examples read, in the order of training.
    """

    numbers: np.ndarray
    permutation: np.ndarray


class ExampleOrder:
    """An endless order in which each example comes once in every epoch.

    An epoch permutes the chunks of up to 1,024 consecutive examples; groups of as many chunks as
    fit into the buffer are read, and the examples of each group are permuted. Where the buffer
    holds all examples, every order of an epoch is thus as likely as any other.

    The order is a function of the number of examples, `shuffle_buffer` and `seed` alone: not of the
    kind of storage, the machine, the version of numpy, or where reading began.

    Args:
      num_examples: examples of the split.
      shuffle_buffer: most examples of a group.
      seed: not negative.

    Raises:
      ValueError: there are no examples.

    Example:
      order = ExampleOrder(10_000, shuffle_buffer=1_000, seed=0)
      for group in order.groups(position=123_456): ...
    """

    def __init__(self, num_examples: int, *, shuffle_buffer: int, seed: int):
        if num_examples < 1:
            raise ValueError(
                f"num_examples must be at least 1. Received: {num_examples}. "
                "Choose a split with examples."
            )
        self.num_examples = num_examples
        self.seed = seed
        self.chunk_size = min(CHUNK_SIZE, max(1, shuffle_buffer // CHUNKS_PER_BUFFER))
        self.chunks_per_group = max(1, shuffle_buffer // self.chunk_size)

    def groups(self, position: int = 0) -> Iterator[Group]:
        """The groups from the example at a position of the endless order on.

        Args:
          position: examples that went before. Finding it takes the permutation of one epoch's
            chunks; nothing before its group is read.

        Yields:
          Groups without end; the permutation of the first one lacks what went before.
        """
        epoch, within = divmod(position, self.num_examples)
        while True:
            starts = self._permutation(-(-self.num_examples // self.chunk_size), epoch, 0)
            starts *= self.chunk_size
            stops = np.minimum(starts + self.chunk_size, self.num_examples)
            ends = np.cumsum(stops - starts)
            first = int(np.searchsorted(ends, within, side="right")) // self.chunks_per_group
            for group in range(first, -(-len(starts) // self.chunks_per_group)):
                begin = group * self.chunks_per_group
                chunks = slice(begin, begin + self.chunks_per_group)
                before = int(ends[begin - 1]) if begin else 0
                size = int(ends[chunks][-1]) - before
                permutation = self._permutation(size, epoch, 1 + group)
                numbers = joined_ranges(starts[chunks], (stops - starts)[chunks])
                yield Group(numbers, permutation[max(within - before, 0) :])
            epoch, within = epoch + 1, 0

    def _permutation(self, size: int, epoch: int, stream: int) -> np.ndarray:
        # numpy keeps the raw numbers of a bit generator the same in all versions, and what
        # Generator.permutation makes of them not.
        keys = np.random.PCG64([self.seed, epoch, stream]).random_raw(size)
        return np.argsort(keys, kind="stable")
