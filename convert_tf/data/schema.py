"""Types for examples and collections of examples, and the names of features in records."""

from typing import NamedTuple, Protocol

import numpy as np

from convert_tf.data.packing import TokenIds

SPLITS = ("train", "dev", "test")
MAX_EXTRA_CONTEXTS = 10
PAIR = ("context", "response")  # the two texts in every example
PAIR_AND_EXTRA_CONTEXT = (*PAIR, "extra_context")
EXTRA_FEATURES = tuple(f"context/{index}" for index in range(MAX_EXTRA_CONTEXTS))


class Example(NamedTuple):
    """A context with its response and up to ten earlier turns, most recent first.

    `is_additional` is true if other examples contain the same turns. Records do not store it.
    """

    thread_id: str
    response_id: str
    subreddit: str
    context: str
    response: str
    extra_contexts: tuple[str, ...]
    context_author: str
    response_author: str
    source: str = "reddit"
    is_additional: bool = False


class TurnExample(NamedTuple):
    """A conversation up to a response.

    Attributes:
      turns: the turns before the response, oldest first; the last one is the record's `context`.
      response: the next turn.
      source: name of the corpus; `""` if the record does not give it.
    """

    turns: tuple[str, ...]
    response: str
    source: str


class CandidateExample(NamedTuple):
    """A context and the candidates to rank for it.

    Attributes:
      turns: turns of the context, oldest first; an empty context has no turns.
      candidates: at least one candidate; a text may occur several times.
      labels: indices of the correct candidates, ascending; at least one.
    """

    turns: tuple[str, ...]
    candidates: tuple[str, ...]
    labels: tuple[int, ...]


class Examples(Protocol):
    """One split of the examples, from records (`RecordExamples`) or token ids (`ArrayExamples`).

    Attributes:
      names: names of the texts in each example, such as `("context", "response")`.
      num_examples: number of examples in the split.
      padding_id: token id for padding.
    """

    names: tuple[str, ...]
    num_examples: int
    padding_id: int

    def load(self, numbers: np.ndarray) -> np.ndarray:
        """Read examples.

        Args:
          numbers: int64 `[examples]`, the numbers of the examples to read. Consecutive examples are
            read together.

        Returns:
          An array `[examples]` to pass to `token_ids`. Its elements may be selected and reordered
          first.

        Raises:
          ValueError: if the stored data are damaged.
        """

    def token_ids(self, loaded: np.ndarray) -> TokenIds:
        """Return the texts of loaded examples: all with the first name, then the second, ….

        Raises:
          ValueError: if the stored data are damaged.
        """


class Addition(Protocol):
    """Further texts and columns for each batch, such as mined negatives or a teacher's vectors.

    Attributes:
      names: names of the texts. If a name occurs k times, each example has k texts with this name.
        The batch column `{name}_slots` locates these texts in the packed rows.
    """

    names: tuple[str, ...]

    def of_batch(
        self, numbers: np.ndarray, positions: np.ndarray, epochs: np.ndarray
    ) -> tuple[TokenIds | None, dict[str, np.ndarray]]:
        """Return the texts and the columns for some examples.

        The result depends only on the arguments, so a resumed run sees the same batches.

        Args:
          numbers: `[examples]`, the result of `Examples.load`; for token ids, int64 numbers of
            examples.
          positions: int64 `[examples]`, the examples' positions in the endless order of the run.
          epochs: int64 `[examples]`, how often each example was seen before.

        Returns:
          A tuple `(texts, columns)`. `texts` has all texts with the first name, then all with the
          second, and so on; it is None if there are no texts. `columns` maps names to arrays whose
          first axis counts examples or texts.
        """


class SelectedExamples:
    """A selection from the examples of a split; implements `Examples`.

    Args:
      examples: the split.
      numbers: the numbers of the selected examples in the split, int64 `[selected]` or a range.
    """

    def __init__(self, examples: Examples, numbers: np.ndarray | range) -> None:
        self._examples = examples
        self.numbers = numbers
        self.names = examples.names
        self.padding_id = examples.padding_id
        self.num_examples = len(numbers)

    def load(self, numbers: np.ndarray) -> np.ndarray:
        """Read examples by their numbers within the selection."""
        if isinstance(self.numbers, range):
            return self._examples.load(numbers + self.numbers.start)
        return self._examples.load(self.numbers[numbers])

    def token_ids(self, loaded: np.ndarray) -> TokenIds:
        """Return the texts of loaded examples."""
        return self._examples.token_ids(loaded)
