"""What ranks texts: the one interface that evaluation and search have with every model.

A context is a sequence of turns, the oldest first (`convert_tf.data.candidates` says how they
become one text). Whoever ranks may read all turns or only the newest.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

Turns = Sequence[str]


def checked_contexts(contexts: Sequence[str | Turns]) -> list[Turns]:
    """Contexts as their turns: a text is one turn.

    Raises:
      ValueError: what is given is one text or no list, or one of them is neither a text nor texts.
    """
    if isinstance(contexts, str | bytes) or not isinstance(contexts, Iterable):
        raise ValueError(f"Contexts must be a list. Received: {contexts!r}. Pass [context].")
    turns = [(context,) if isinstance(context, str) else context for context in contexts]
    for each in turns:
        if not are_texts(each):
            raise ValueError(
                "A context must be a text, or a list of turns, the oldest first. "
                f"Received: {each!r}."
            )
    return turns


def checked_candidates(candidates: Any) -> Sequence[str]:
    """Candidates of all contexts of a call, from a list, an array or a column of a table.

    Raises:
      ValueError: they are no list of texts.
    """
    if hasattr(candidates, "__array__"):
        candidates = np.asarray(candidates).tolist()
    if are_texts(candidates):
        return candidates
    if isinstance(candidates, str | bytes) or not isinstance(candidates, Sequence):
        raise ValueError(
            f"Candidates must be a list of strings. Received: {candidates!r}. Put texts in a list."
        )
    index, wrong = next(
        (index, text) for index, text in enumerate(candidates) if not isinstance(text, str)
    )
    remedy = "Pass strings."
    if are_texts(wrong):
        remedy = "Pass candidates of each context's own to candidate_scores."
    raise ValueError(
        f"Candidates must be a list of strings. Received: {wrong!r} at index {index}. {remedy}"
    )


def are_texts(value: Any) -> bool:
    """Whether something is several texts in order."""
    is_list = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)
    return is_list and all(isinstance(text, str) for text in value)


@runtime_checkable
class TextRanker(Protocol):
    """Scores candidate texts for contexts: the higher, the better.

    A score depends on its context and its candidate alone, not on the other texts of a call.

    Attributes:
      name: of a row in a table of results.
    """

    name: str

    def scores(self, contexts: Sequence[Turns], candidates: Sequence[str]) -> np.ndarray:
        """Every candidate for every context: float `[len(contexts), len(candidates)]`."""
        ...

    def candidate_scores(
        self, contexts: Sequence[Turns], candidate_lists: Sequence[Sequence[str]]
    ) -> list[np.ndarray]:
        """Each context's own candidates: for context i, float `[len(candidate_lists[i])]`.

        Contexts that share candidates stand together and have the very same list object, so that
        what can be done once for a list is done once (`runs_of_lists`).
        """
        ...


def runs_of_lists(candidate_lists: Sequence[Sequence[str]]) -> Iterator[slice]:
    """The slices of neighbouring contexts whose candidates are one and the same object."""
    start = 0
    for i in range(1, len(candidate_lists) + 1):
        if i == len(candidate_lists) or candidate_lists[i] is not candidate_lists[start]:
            yield slice(start, i)
            start = i
