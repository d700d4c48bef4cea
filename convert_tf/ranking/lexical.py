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
from convert_tf.ranking.protocol import Turns, runs_of_lists

_COLUMNS = 2**20  # words are hashed to so many columns, as in PolyAI's code


class LexicalRanker:
    """Rank by the dot product of sparse word vectors.

    Args:
      name: name of the row in a report.
      contexts, responses: texts to fit on.
      read_context: function from the turns of a context to one text.

    Attributes:
      settings: facts for the row of a report.

    Raises:
      ValueError: if no text has a word.
    """

    def __init__(
        self,
        name: str,
        contexts: Iterable[str],
        responses: Iterable[str],
        *,
        read_context: Callable[[Turns], str] = last_turn,
    ):
        # Imported here because it takes a second, which other commands do not need.
        from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

        self.name = name
        self.read_context = read_context
        texts = [*contexts, *responses]
        self.settings: dict[str, Any] = {"fitted_on_texts": len(texts)}
        self._words = HashingVectorizer(
            token_pattern=r"\w\w+", n_features=_COLUMNS, alternate_sign=False, norm=None
        )
        self._counts = self.counts(texts)
        if not self._counts.nnz:
            raise ValueError(
                f"{name} needs training texts with words. Received: {len(texts)} texts without "
                "any. Pass other training examples."
            )
        # A word in n of N documents weighs count · (ln((1 + N) / (1 + n)) + 1). Rows have length 1.
        self._weigh = TfidfTransformer().fit(self._counts).transform

    def counts(self, texts: Sequence[str]) -> Any:
        """Count the words of each text: a sparse matrix `[texts, columns]`."""
        return self._words.transform(texts)

    def vectors(self, texts: Sequence[str]) -> Any:
        """Return sparse vectors `[texts, columns]`, whose dot products are the scores."""
        return self._weigh(self.counts(texts))

    def scores(self, contexts: Sequence[Turns], candidates: Sequence[str]) -> np.ndarray:
        rows = self.vectors([self.read_context(turns) for turns in contexts])
        return (rows @ self.vectors(candidates).T).toarray()

    def candidate_scores(
        self, contexts: Sequence[Turns], candidate_lists: Sequence[Sequence[str]]
    ) -> list[np.ndarray]:
        rows = self.vectors([self.read_context(turns) for turns in contexts])
        return [
            row
            for run in runs_of_lists(candidate_lists)
            for row in (rows[run] @ self.vectors(candidate_lists[run.start]).T).toarray()
        ]


class TfIdfRanker(LexicalRanker):
    """Rank by the cosine of TF-IDF vectors.

    Words that are not in the fitted texts have the largest weight.

    Args:
      contexts, responses: texts to fit on.
      read_context: function from the turns of a context to one text.

    Example:
      TfIdfRanker(["where is it?"], ["it is here"]).scores([("it is late",)], ["late", "no"])
    """

    def __init__(self, contexts: Iterable[str], responses: Iterable[str], **kwargs: Any):
        super().__init__("TF-IDF", contexts, responses, **kwargs)


class Bm25Ranker(LexicalRanker):
    """Rank by the dot product of BM25 vectors of the context and the response.

    A word of weight w in a text of length l (the sum of its weights) has the component
    ln((N − n + 0.5) / (n + 0.5)) · w · (k1 + 1) / (w + k1 · (1 − b + b · l / mean length)). As in
    PolyAI's code, the weights are those of TF-IDF instead of counts, and words in more than half of
    the documents lower the score. Words that are not in the fitted texts are ignored.

    Args:
      contexts, responses: texts to fit on.
      k1: the larger it is, the more repetitions of a word add to the score.
      b: penalty for long texts, from 0 to 1.
      read_context: function from the turns of a context to one text.
    """

    def __init__(
        self,
        contexts: Iterable[str],
        responses: Iterable[str],
        *,
        k1: float = 2.0,
        b: float = 0.75,
        **kwargs: Any,
    ):
        super().__init__("BM25", contexts, responses, **kwargs)
        self.k1 = k1
        self.b = b
        self.settings |= {"k1": k1, "b": b}
        documents, found = len(self._counts.indptr) - 1, np.bincount(self._counts.indices)
        self._frequencies = np.pad(found, (0, _COLUMNS - len(found)))
        self._idf = np.log((documents - self._frequencies + 0.5) / (self._frequencies + 0.5))
        self._mean_length = float(self._weigh(self._counts).sum(axis=1).mean())

    def vectors(self, texts: Sequence[str]) -> Any:
        counts = self.counts(texts)
        counts.data *= self._frequencies[counts.indices] > 0
        weights = self._weigh(counts)
        lengths = np.asarray(weights.sum(axis=1)).ravel() / self._mean_length
        damping = self.k1 * (1 - self.b + self.b * np.repeat(lengths, np.diff(weights.indptr)))
        weights.data *= (self.k1 + 1) / (weights.data + damping) * self._idf[weights.indices]
        return weights
