"""Examples, the names of their features in records, and collections of examples."""

from typing import NamedTuple, Protocol

import numpy as np

from convert_tf.data.packing import TokenIds

SPLITS = ("train", "dev", "test")
MAX_EXTRA_CONTEXTS = 10
PAIR = ("context", "response")  # texts of an example
PAIR_AND_EXTRA_CONTEXT = (*PAIR, "extra_context")
EXTRA_FEATURES = tuple(f"context/{index}" for index in range(MAX_EXTRA_CONTEXTS))


class Example(NamedTuple):
    """A context, its response and up to ten earlier turns, most recent first.

    `is_additional` says that it is made of turns that other examples are made of, too; records do
    not hold it.
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
      turns: what was said before, oldest first; the last one is the record's `context`.
      response: the next turn.
      source: the corpus; `""` where the record does not say.
    """

    turns: tuple[str, ...]
    response: str
    source: str


class CandidateExample(NamedTuple):
    """A context and the candidates to rank for it.

    Attributes:
      turns: of the context, oldest first; none for an empty context.
      candidates: at least one; the same text may be there more than once.
      labels: places of the right candidates, ascending; at least one.
    """

    turns: tuple[str, ...]
    candidates: tuple[str, ...]
    labels: tuple[int, ...]


class Examples(Protocol):
    """A split of records (`RecordExamples`) or of token ids (`ArrayExamples`).

    Attributes:
      names: the texts of an example, as `("context", "response")`.
      num_examples: how many there are.
      padding_id: id of padding.
    """

    names: tuple[str, ...]
    num_examples: int
    padding_id: int

    def load(self, numbers: np.ndarray) -> np.ndarray:
        """Read examples.

        Args:
          numbers: int64 `[examples]`. Consecutive ones are read together.

        Returns:
          Array `[examples]` whose elements `token_ids` takes in any order.

        Raises:
          ValueError: if what is stored is damaged.
        """

    def token_ids(self, loaded: np.ndarray) -> TokenIds:
        """Return the texts of loaded examples: all of the first name, then of the second, ….

        Raises:
          ValueError: if what is stored is damaged.
        """


class Addition(Protocol):
    """Further texts and columns of each batch, such as mined negatives or vectors of a teacher.

    Attributes:
      names: what the texts are. A name that occurs k times names k texts of each example; a batch
        has their places as `{name}_slots`.
    """

    names: tuple[str, ...]

    def of_batch(
        self, numbers: np.ndarray, positions: np.ndarray, epochs: np.ndarray
    ) -> tuple[TokenIds | None, dict[str, np.ndarray]]:
        """Return the texts and the columns for some examples.

        The result depends on the arguments alone, so that a run that resumes sees the same batches.

        Args:
          numbers: `[examples]`, as `Examples.load` returns them; of token ids their numbers, int64.
          positions: int64 `[examples]`, their positions in the endless order of the run.
          epochs: int64 `[examples]`, how often each example was seen before.

        Returns:
          The texts: all of the first name, then of the second, …; None for no texts. And the
          columns by name, arrays whose first axis is that of the examples or of the texts.
        """


class SelectedExamples:
    """Some of the examples of a split, as `Examples`.

    Args:
      examples: the split.
      numbers: which of its examples, int64 `[selected]`, or a range of them.
    """

    def __init__(self, examples: Examples, numbers: np.ndarray | range) -> None:
        self._examples = examples
        self.numbers = numbers
        self.names = examples.names
        self.padding_id = examples.padding_id
        self.num_examples = len(numbers)

    def load(self, numbers: np.ndarray) -> np.ndarray:
        """Read examples by their numbers among the selected ones."""
        if isinstance(self.numbers, range):
            return self._examples.load(numbers + self.numbers.start)
        return self._examples.load(self.numbers[numbers])

    def token_ids(self, loaded: np.ndarray) -> TokenIds:
        """Return the texts of loaded examples."""
        return self._examples.token_ids(loaded)
