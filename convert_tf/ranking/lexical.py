"""Rankers that compare words: TF-IDF and BM25, as in PolyAI's conversational-datasets.

A word consists of two or more letters, digits or underscores, and is lower-cased. Both rankers are
fitted on the contexts and responses of a few thousand training examples, where each text is a
document. They read one text per context.

Reference: arXiv 1904.06472 §4.1.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from convert_tf.data.candidates import last_turn
from convert_tf.ranking.protocol import TextRanker, Turns, runs_of_lists

_COLUMNS = 2**20  # words are hashed to so many columns, as in PolyAI's code
_K1 = 2.0  # of BM25: the larger it is, the more repetitions of a word add to the score
_B = 0.75  # of BM25: penalty for long texts, from 0 to 1


class TfIdfRanker(TextRanker):
    """Rank by the cosine of TF-IDF vectors.

    Words that are not in the fitted texts have the largest weight.

    Args:
      contexts, responses: texts to fit on.
      read_context: function from the turns of a context to one text.

    Attributes:
      settings: facts for the row of a report.

    Raises:
      ValueError: if no text has a word.

    Example:
      TfIdfRanker(["where is it?"], ["it is here"]).scores([("it is late",)], ["late", "no"])
    """

    name = "TF-IDF"

    def __init__(
        self,
        contexts: Iterable[str],
        responses: Iterable[str],
        *,
        read_context: Callable[[Turns], str] = last_turn,
    ):
        # Imported here because it takes a second, which other commands do not need.
        from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

        self.read_context = read_context
        texts = [*contexts, *responses]
        self.settings: dict[str, Any] = {"fitted_on_texts": len(texts)}
        self._words = HashingVectorizer(
            token_pattern=r"\w\w+", n_features=_COLUMNS, alternate_sign=False, norm=None
        )
        self._counts = self._words.transform(texts)
        if not self._counts.nnz:
            raise ValueError(
                f"{self.name} needs training texts with words. Received: {len(texts)} texts "
                "without any. Pass other training examples."
            )
        # A word in n of N documents weighs count · (ln((1 + N) / (1 + n)) + 1). Rows have length 1.
        self._weigh = TfidfTransformer().fit(self._counts).transform

    def vectors(self, texts: Sequence[str]) -> Any:
        """Return sparse vectors `[texts, columns]`, whose dot products are the scores."""
        return self._weigh(self._words.transform(texts))

    def candidate_scores(
        self, contexts: Sequence[Turns], candidate_lists: Sequence[Sequence[str]]
    ) -> list[np.ndarray]:
        rows = self.vectors([self.read_context(turns) for turns in contexts])
        return [
            row
            for run in runs_of_lists(candidate_lists)
            for row in (rows[run] @ self.vectors(candidate_lists[run.start]).T).toarray()
        ]


class Bm25Ranker(TfIdfRanker):
    """Rank by the dot product of BM25 vectors of the context and the response.

    A word of weight w in a text of length l (the sum of its weights) has the component
    ln((N − n + 0.5) / (n + 0.5)) · w · (k1 + 1) / (w + k1 · (1 − b + b · l / mean length)). As in
    PolyAI's code, the weights are those of TF-IDF instead of counts, and words in more than half of
    the documents lower the score. Words that are not in the fitted texts are ignored.

    Args:
      *args, **kwargs: arguments of `TfIdfRanker`.
    """

    name = "BM25"

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.settings |= {"k1": _K1, "b": _B}
        documents, found = len(self._counts.indptr) - 1, np.bincount(self._counts.indices)
        self._frequencies = np.pad(found, (0, _COLUMNS - len(found)))
        self._idf = np.log((documents - self._frequencies + 0.5) / (self._frequencies + 0.5))
        self._mean_length = float(self._weigh(self._counts).sum(axis=1).mean())

    def vectors(self, texts: Sequence[str]) -> Any:
        counts = self._words.transform(texts)
        counts.data *= self._frequencies[counts.indices] > 0
        weights = self._weigh(counts)
        lengths = np.asarray(weights.sum(axis=1)).ravel() / self._mean_length
        damping = _K1 * (1 - _B + _B * np.repeat(lengths, np.diff(weights.indptr)))
        weights.data *= (_K1 + 1) / (weights.data + damping) * self._idf[weights.indices]
        return weights
