"""The interface of rankers, through which evaluation and search use every model.

A context is a sequence of turns, the oldest first. `convert_tf.data.candidates` joins turns. A
ranker may read all turns or only the newest one.
"""

from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence, Set
from typing import Any, Protocol

import numpy as np

from convert_tf.encoding.text_batches import items_in_order

Turns = Sequence[str]


def checked_contexts(contexts: Sequence[str | Turns]) -> list[Turns]:
    """Return contexts as tuples of turns. A context that is a text becomes a single turn.

    Args:
      contexts: a list, a column of a table, or an array whose rows are turns.

    Raises:
      ValueError: if the contexts are not a list (for example, a mapping, a set or a table), or an
        item is neither a text nor a list of texts.
    """
    is_iterable = isinstance(contexts, Iterable) and not isinstance(contexts, Mapping | Set)
    if isinstance(contexts, str | bytes) or not (is_iterable or isinstance(contexts, KeysView)):
        raise ValueError(f"Contexts must be a list. Received: {contexts!r}. Pass [context].")
    is_array = isinstance(contexts, np.ndarray)
    items = contexts if is_array else items_in_order(contexts, what="Contexts")
    turns = [(context,) if isinstance(context, str) else context for context in items]
    for context in turns:
        if not are_texts(context):
            raise ValueError(
                "A context must be a text, or a list of turns, the oldest first. "
                f"Received: {context!r}."
            )
    return [tuple(context) for context in turns]


def checked_candidates(candidates: Any) -> Sequence[str]:
    """Return the candidates of a context as a sequence of strings.

    Args:
      candidates: a list or an array of texts, or a column of a table.

    Raises:
      ValueError: if `candidates` is not a list of texts.
    """
    if hasattr(candidates, "__array__"):
        candidates = np.asarray(candidates).tolist()
    if not are_texts(candidates):
        raise ValueError(
            f"Candidates must be a list of strings. Received: {candidates!r:.200}. Pass the "
            "strings in a list. For a different list for each context, use candidate_scores."
        )
    return candidates


def checked_lists(
    contexts: Sequence[str | Turns], candidate_lists: Sequence[Sequence[str]]
) -> tuple[list[Turns], list[Sequence[str]]]:
    """Return contexts as tuples of turns, and the candidates of each context.

    Contexts that share a list of candidates share the returned list too.

    Raises:
      ValueError: if the contexts or the candidates of a context are not a list of texts (a context
        may also be a list of turns), or if there is not one list of candidates for each context.
    """
    turns, given = checked_contexts(contexts), list(candidate_lists)
    if len(given) != len(turns):
        raise ValueError(
            "candidate_lists must contain a list of strings for each context. Received: "
            f"{len(given)} lists for {len(turns)} contexts. Pass [] for a context without "
            "candidates."
        )
    lists: list[Sequence[str]] = []
    for run in runs_of_lists(given):  # a list that contexts share is checked only once
        lists += [checked_candidates(given[run.start])] * (run.stop - run.start)
    return turns, lists


def are_texts(value: Any) -> bool:
    """Return whether a value is a sequence of texts."""
    is_list = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)
    return is_list and all(isinstance(text, str) for text in value)


class TextRanker(Protocol):
    """Scores candidate texts for contexts. Better candidates get higher scores.

    A score depends only on the context and the candidate, not on other texts in the same call.

    Attributes:
      name: name of the ranker's row in a table of results.
      settings: facts for the ranker's row in a report, a dict of JSON values.
    """

    name: str
    settings: dict[str, Any]

    def candidate_scores(
        self, contexts: Sequence[Turns], candidate_lists: Sequence[Sequence[str]]
    ) -> list[np.ndarray]:
        """Score each context's own candidates: for context i, float `[len(candidate_lists[i])]`.

        Contexts that share candidates must be consecutive and have the same list object, so that
        rankers can process a shared list only once (`runs_of_lists`).
        """
        ...

    def scores(self, contexts: Sequence[str | Turns], candidates: Sequence[str]) -> np.ndarray:
        """Score every candidate for every context: float `[len(contexts), len(candidates)]`.

        Raises:
          ValueError: if the contexts or the candidates are not a list of texts; a context may also
            be a list of turns.
        """
        turns, texts = checked_contexts(contexts), checked_candidates(candidates)
        if not turns:
            return np.zeros((0, len(texts)), np.float32)
        return np.stack(self.candidate_scores(turns, [texts] * len(turns)))


def runs_of_lists(lists: Sequence[Any]) -> Iterator[slice]:
    """Yield slices of consecutive contexts that share the same list object."""
    start = 0
    for i in range(1, len(lists) + 1):
        if i == len(lists) or lists[i] is not lists[start]:
            yield slice(start, i)
            start = i


def pool_of_lists(candidate_lists: Sequence[Sequence[str]]) -> tuple[list[str], list[np.ndarray]]:
    """Return the distinct candidates of all contexts, and where each context's candidates are.

    Returns:
      A list of the distinct candidates, and for each context the indices of its candidates in this
      list, int64 `[candidates]`. Contexts that share a list of candidates share the array of
      indices.
    """
    places: dict[str, int] = {}
    places_of_lists: list[np.ndarray] = []
    for run in runs_of_lists(candidate_lists):
        texts = candidate_lists[run.start]
        shared = np.array([places.setdefault(text, len(places)) for text in texts], np.int64)
        places_of_lists += [shared] * (run.stop - run.start)
    return list(places), places_of_lists
