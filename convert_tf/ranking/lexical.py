"""Rankers that compare words: TF-IDF and BM25, as PolyAI's conversational-datasets defines them.

A word is two or more letters, digits or underscores, in lower case. Both are fitted on the contexts
and the responses of a few thousand training examples, each text a document, and read one text of a
context.

Reference: arXiv 1904.06472 §4.1.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from convert_tf.data.candidates import last_turn
from convert_tf.ranking.protocol import Turns, runs_of_lists

_WORD = re.compile(r"\w\w+")


class SparseRows(NamedTuple):
    """Texts as rows of a sparse matrix with a column for each word.

    Attributes:
      rows, columns: int64 `[entries]`, by row.
      values: float64 `[entries]`.
      num_rows: texts.
    """

    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    num_rows: int

    def sums(self) -> np.ndarray:
        """float64 `[num_rows]`."""
        return np.bincount(self.rows, self.values, minlength=self.num_rows)

    def normalized(self) -> "SparseRows":
        """Each row with length 1; rows of zeros stay."""
        squares = self._replace(values=self.values**2).sums()
        lengths = np.sqrt(np.where(squares > 0, squares, 1.0))
        return self._replace(values=self.values / lengths[self.rows])

    def part(self, start: int, stop: int) -> "SparseRows":
        """The rows from `start` to before `stop`."""
        first, last = np.searchsorted(self.rows, [start, stop])
        rows, columns, values = (array[first:last] for array in self[:3])
        return SparseRows(rows - start, columns, values, stop - start)


def dot_products(left: SparseRows, right: SparseRows) -> np.ndarray:
    """Of each row of `left` with each of `right`: float64 `[left.num_rows, right.num_rows]`."""
    columns = np.unique(left.columns)
    if not len(columns):
        return np.zeros((left.num_rows, right.num_rows))

    def dense(part: SparseRows) -> np.ndarray:
        places = np.searchsorted(columns, part.columns).clip(max=len(columns) - 1)
        is_shared = columns[places] == part.columns
        matrix = np.zeros((part.num_rows, len(columns)))
        matrix[part.rows[is_shared], places[is_shared]] = part.values[is_shared]
        return matrix

    return dense(left) @ dense(right).T


class _Words:
    """Numbers words; those of the fit first, so that `document_frequencies` has their rows.

    Args:
      texts: documents.
    """

    def __init__(self, texts: Sequence[str]):
        self._places: dict[str, int] = {}
        self.counts = self.count(texts)
        self.num_documents = len(texts)
        self.document_frequencies = np.bincount(self.counts.columns, minlength=len(self._places))

    def count(self, texts: Sequence[str]) -> SparseRows:
        """How often each word is in each text; words that are new get the next numbers."""
        entries = [
            (row, self._places.setdefault(word, len(self._places)), count)
            for row, text in enumerate(texts)
            for word, count in Counter(_WORD.findall(text.lower())).items()
        ]
        rows, columns, counts = np.array(entries, np.int64).reshape(-1, 3).T
        return SparseRows(rows, columns, counts.astype(np.float64), len(texts))

    def known(self, counts: SparseRows) -> SparseRows:
        """Without the words that no document of the fit has."""
        is_known = counts.columns < len(self.document_frequencies)
        rows, columns, values = (array[is_known] for array in counts[:3])
        return SparseRows(rows, columns, values, counts.num_rows)

    def tf_idf(self, counts: SparseRows) -> SparseRows:
        """count · (ln((1 + N) / (1 + n)) + 1) of a word in n of N documents, rows of length 1."""
        found = np.zeros(len(self._places))
        found[: len(self.document_frequencies)] = self.document_frequencies
        idf = np.log((1 + self.num_documents) / (1 + found)) + 1
        return counts._replace(values=counts.values * idf[counts.columns]).normalized()


class LexicalRanker:
    """Ranks by the dot product of sparse vectors of words.

    Args:
      name: of its row.
      contexts, responses: texts of the fit.
      read_context: which text of a context is read.

    Attributes:
      settings: what the row was made with.

    Raises:
      ValueError: no text of the fit has a word.
    """

    def __init__(
        self,
        name: str,
        contexts: Iterable[str],
        responses: Iterable[str],
        *,
        read_context: Callable[[Turns], str] = last_turn,
    ):
        self.name = name
        self.read_context = read_context
        texts = [*contexts, *responses]
        self.words = _Words(texts)
        self.settings: dict[str, Any] = {"fitted_on_texts": len(texts)}
        if not len(self.words.counts.rows):
            raise ValueError(
                f"{name} needs training texts with words. Received: {len(texts)} texts without "
                "any. Pass other training examples."
            )

    def vectors(self, texts: Sequence[str]) -> SparseRows:
        """The vectors whose dot products are the scores, of contexts and candidates alike."""
        raise NotImplementedError

    def scores(self, contexts: Sequence[Turns], candidates: Sequence[str]) -> np.ndarray:
        left = self.vectors([self.read_context(turns) for turns in contexts])
        return dot_products(left, self.vectors(candidates))

    def candidate_scores(
        self, contexts: Sequence[Turns], candidate_lists: Sequence[Sequence[str]]
    ) -> list[np.ndarray]:
        left = self.vectors([self.read_context(turns) for turns in contexts])
        return [
            row
            for run in runs_of_lists(candidate_lists)
            for row in dot_products(
                left.part(run.start, run.stop), self.vectors(candidate_lists[run.start])
            )
        ]


class TfIdfRanker(LexicalRanker):
    """Cosine of TF-IDF vectors; a word that the fit has not seen has the largest weight.

    Args:
      contexts, responses: texts of the fit.
      read_context: which text of a context is read.

    Example:
      TfIdfRanker(["where is it?"], ["it is here"]).scores([("it is late",)], ["late", "no"])

    Differs from PolyAI's in that words are not hashed to 2^20 columns: none collide.
    """

    def __init__(self, contexts: Iterable[str], responses: Iterable[str], **kwargs: Any):
        super().__init__("TF-IDF", contexts, responses, **kwargs)

    def vectors(self, texts: Sequence[str]) -> SparseRows:
        return self.words.tf_idf(self.words.count(texts))


class Bm25Ranker(LexicalRanker):
    """Dot product of BM25 vectors: of the context as of the response.

    A word of weight w in a text of length l (the sum of its weights) has the component
    ln((N − n + 0.5) / (n + 0.5)) · w · (k1 + 1) / (w + k1 · (1 − b + b · l / mean length)). The
    weights are those of TF-IDF, not counts, and words in more than half of the documents count
    against a response; both as in PolyAI's. Words that the fit has not seen are left out.

    Args:
      contexts, responses: texts of the fit.
      k1: how late repeated words stop to add to the score.
      b: how much long texts are held back, from 0 to 1.
      read_context: which text of a context is read.
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
        found = self.words.document_frequencies
        self._idf = np.log((self.words.num_documents - found + 0.5) / (found + 0.5))
        self._mean_length = float(self.words.tf_idf(self.words.counts).sums().mean())

    def vectors(self, texts: Sequence[str]) -> SparseRows:
        weights = self.words.tf_idf(self.words.known(self.words.count(texts)))
        relative_lengths = weights.sums()[weights.rows] / self._mean_length
        damping = self.k1 * (1 - self.b + self.b * relative_lengths)
        saturated = weights.values * (self.k1 + 1) / (weights.values + damping)
        return weights._replace(values=saturated * self._idf[weights.columns])
