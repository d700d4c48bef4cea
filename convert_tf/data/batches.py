"""From stored examples of either kind to packed batches, with numpy alone."""

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from convert_tf.data.order import ExampleOrder
from convert_tf.data.packing import TokenIds, pack_batch, text_groups

PAIR = ("context", "response")
PAIR_AND_EXTRA_CONTEXT = (*PAIR, "extra_context")


class Examples(Protocol):
    """A split of records (`pipeline.RecordExamples`) or of token ids (`arrays.ArrayExamples`).

    Attributes:
      names: the texts of an example, as `("context", "response")`.
      num_examples: how many there are.
      padding_id: id of padding.
    """

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def num_examples(self) -> int: ...

    @property
    def padding_id(self) -> int: ...

    def load(self, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
        """Examples from `starts[i]` to before `stops[i]`, for each i, in a form of its own.

        Args:
          starts, stops: int64 `[ranges]`.

        Returns:
          Array `[examples]` whose elements `token_ids` takes in any order.

        Raises:
          ValueError: what is stored is damaged.
        """

    def token_ids(self, loaded: np.ndarray) -> TokenIds:
        """The texts of loaded examples: all of the first name, then all of the second, ….

        Raises:
          ValueError: what is stored is damaged.
        """


class TeacherColumns(Protocol):
    """`teacher_vectors.TeacherVectors`, which goes with token ids."""

    def columns(self, examples: np.ndarray) -> dict[str, np.ndarray]:
        """Arrays `[batch, …]` of examples, given their numbers, int64 `[batch]`."""


class TrainingBatches:
    """Endless packed batches in the order of `ExampleOrder`, which the seed alone decides.

    Batches run on over the ends of epochs, so each example is seen equally often. Memory holds one
    group of the order. Each iteration begins anew at `skip_batches`.

    Args:
      examples: what is trained on.
      batch_size: examples of a batch.
      row_tokens: tokens of a packed row.
      shuffle_buffer: examples in memory together, from which batches are drawn.
      seed: seed of the order.
      skip_batches: batches that a run before this one has seen. They are not read.
      row_multiple: batches have a multiple of this many rows.
      marks_duplicates: whether equal responses of a batch are told from others.
      teacher: what another encoder makes of token ids; None for none.

    Yields:
      The dicts of `packing.pack_batch`, with `response_groups` int32 `[batch]`, equal where the
      responses are, and the columns of the teacher, where these are wanted.
    """

    def __init__(
        self,
        examples: Examples,
        *,
        batch_size: int,
        row_tokens: int,
        shuffle_buffer: int,
        seed: int,
        skip_batches: int = 0,
        row_multiple: int = 1,
        marks_duplicates: bool = False,
        teacher: TeacherColumns | None = None,
    ):
        self.examples = examples
        self.batch_size = batch_size
        self.row_tokens = row_tokens
        self.skip_batches = skip_batches
        self.row_multiple = row_multiple
        self.marks_duplicates = marks_duplicates
        self.teacher = teacher
        self._order = ExampleOrder(examples.num_examples, shuffle_buffer=shuffle_buffer, seed=seed)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        size = self.batch_size
        left: np.ndarray | None = None
        for group in self._order.groups(self.skip_batches * size):
            loaded = self.examples.load(group.starts, group.stops)[group.permutation]
            if left is not None:
                loaded = np.concatenate([left, loaded])
            end = len(loaded) // size * size
            for start in range(0, end, size):
                yield self._batch(loaded[start : start + size])
            left = loaded[end:].copy()  # a view would keep the whole group in memory
            del loaded

    def _batch(self, loaded: np.ndarray) -> dict[str, np.ndarray]:
        names = self.examples.names
        token_ids = self.examples.token_ids(loaded)
        batch = pack_batch(
            token_ids,
            names,
            row_tokens=self.row_tokens,
            padding_id=self.examples.padding_id,
            row_multiple=self.row_multiple,
        )
        if self.marks_duplicates:
            groups = text_groups(token_ids).reshape(len(names), -1)
            batch["response_groups"] = groups[names.index("response")]
        if self.teacher is not None:
            batch |= self.teacher.columns(loaded)
        return batch


class EvaluationBatches:
    """Packed batches of the first examples, in order, read anew at every iteration.

    Args:
      examples: what is evaluated on.
      max_examples: stop after this many.
      row_tokens: tokens of a packed row.
      batch_size: examples of a batch; the last one may be smaller.
      row_multiple: batches have a multiple of this many rows.

    Yields:
      The dicts of `packing.pack_batch`.
    """

    def __init__(
        self,
        examples: Examples,
        *,
        max_examples: int,
        row_tokens: int,
        batch_size: int = 128,
        row_multiple: int = 1,
    ):
        self.examples = examples
        self.num_examples = min(max_examples, examples.num_examples)
        self.row_tokens = row_tokens
        self.batch_size = batch_size
        self.row_multiple = row_multiple

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        for start in range(0, self.num_examples, self.batch_size):
            stop = min(start + self.batch_size, self.num_examples)
            loaded = self.examples.load(np.array([start]), np.array([stop]))
            yield pack_batch(
                self.examples.token_ids(loaded),
                self.examples.names,
                row_tokens=self.row_tokens,
                padding_id=self.examples.padding_id,
                row_multiple=self.row_multiple,
            )
