"""The interface of rankers, which evaluation and search use for every model.

A context is a sequence of turns, the oldest first (`convert_tf.data.candidates` joins them). A
ranker may read all turns or only the newest.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

Turns = Sequence[str]


def checked_contexts(contexts: Sequence[str | Turns]) -> list[Turns]:
    """Return contexts as turns. A text is one turn.

    Raises:
      ValueError: if the argument is one text or not a list, or an item is neither a text nor texts.
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
    """Return the candidates of a call, from a list, an array or a column of a table.

    Raises:
      ValueError: if they are not a list of texts.
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
    """Return whether a value is a sequence of texts."""
    is_list = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)
    return is_list and all(isinstance(text, str) for text in value)


@runtime_checkable
class TextRanker(Protocol):
    """Scores candidate texts for contexts. Higher is better.

    A score only depends on its context and its candidate, not on other texts of a call.

    Attributes:
      name: name of the row in a table of results.
    """

    name: str

    def scores(self, contexts: Sequence[Turns], candidates: Sequence[str]) -> np.ndarray:
        """Score every candidate for every context: float `[len(contexts), len(candidates)]`."""
        ...

    def candidate_scores(
        self, contexts: Sequence[Turns], candidate_lists: Sequence[Sequence[str]]
    ) -> list[np.ndarray]:
        """Score each context's own candidates: for context i, float `[len(candidate_lists[i])]`.

        Contexts that share candidates are consecutive and have the same list object. So work for a
        list can be done once (`runs_of_lists`).
        """
        ...


def runs_of_lists(candidate_lists: Sequence[Sequence[str]]) -> Iterator[slice]:
    """Yield slices of consecutive contexts that share the same list object of candidates."""
    start = 0
    for i in range(1, len(candidate_lists) + 1):
        if i == len(candidate_lists) or candidate_lists[i] is not candidate_lists[start]:
            yield slice(start, i)
            start = i
