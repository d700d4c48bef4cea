"""What the parts of a search are to each other."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from convert_tf.encoding.text_batches import is_count
from convert_tf.ranking.protocol import Turns
from convert_tf.search.cache import CandidateCache


class BestCandidates(NamedTuple):
    """Candidates of each context, best first.

    Attributes:
      ids: int64 `[B, k]`; of equal scores the lower id comes first.
      scores: float32 `[B, k]`.
    """

    ids: np.ndarray
    scores: np.ndarray

    def best(self, k: int) -> "BestCandidates":
        """The first `k` of candidates in any order."""
        order = np.lexsort((self.ids, -self.scores), axis=-1)[:, :k]
        return BestCandidates(*(np.take_along_axis(each, order, axis=1) for each in self))

    @staticmethod
    def of_blocks(blocks: Sequence["BestCandidates"], k: int) -> "BestCandidates":
        """The results of blocks of contexts as one, `[contexts, k]`."""
        return BestCandidates(
            np.concatenate([np.zeros((0, k), np.int64), *(block.ids for block in blocks)]),
            np.concatenate([np.zeros((0, k), np.float32), *(block.scores for block in blocks)]),
        )


def checked_top_k(top_k: int, cache: CandidateCache) -> int:
    """How many candidates of a cache can be returned.

    Raises:
      ValueError: `top_k` is no positive whole number.
    """
    if not is_count(top_k):
        raise ValueError(f"top_k must be a whole number of at least 1. Received: top_k={top_k!r}.")
    return min(top_k, cache.count)


class CandidateEncoder(Protocol):
    """What encodes the contexts and the candidates of an index.

    A score is the dot product of a context's vector and a candidate's; with several context vectors
    it is the poly-encoder's (`convert_tf.search.scoring.attended_scores`). Factors of the scores
    are part of the context vectors.

    Attributes:
      fingerprint: differs between encoders whose candidate vectors differ.
    """

    fingerprint: str

    def encode_candidates(self, texts: Sequence[str]) -> np.ndarray:
        """float32 `[len(texts), dim]`."""
        ...

    def encode_contexts(self, contexts: Sequence[Turns]) -> tuple[np.ndarray, np.ndarray | None]:
        """Vectors float32 `[B, M, dim]` and which are real, bool `[B, M]`; None if all are."""
        ...


class Index(Protocol):
    """What finds the best candidates of a cache."""

    cache: CandidateCache

    def search(self, contexts: Sequence[str | Turns], *, top_k: int = 10) -> BestCandidates:
        """The best candidates of each context."""
        ...


class CandidateScorer(Protocol):
    """What scores given candidates of a cache."""

    cache: CandidateCache

    def score(self, contexts: Sequence[Turns], ids: np.ndarray) -> np.ndarray:
        """int64 `[B, n]` → float32 `[B, n]`."""
        ...
