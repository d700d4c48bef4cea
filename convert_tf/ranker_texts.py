"""A trained ranker for texts: tokenized, in batches of similar length."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from convert_tf.data.candidates import joined_context
from convert_tf.data.packing import TokenIds
from convert_tf.data.ranking_batches import Tokenize
from convert_tf.ranker_checkpoint import load_ranker
from convert_tf.ranker_scoring import encode_context_vectors, encode_pool, score_lists
from convert_tf.rankers import RankerConfig

Turns = Sequence[str]


def make_tokenize(vocabulary: str | os.PathLike, config: RankerConfig) -> Tokenize:
    """The function from texts to token ids that fits a ranker.

    Raises:
      CheckpointError: the vocabulary is not the model's.
    """
    from convert_tf.checkpoint import check_vocabulary
    from convert_tf.text.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(vocabulary, num_oov_buckets=config.model.num_oov_buckets)
    check_vocabulary(tokenizer, config.model)

    def tokenize(texts: Sequence[str], max_tokens: int, keeps_last: bool) -> TokenIds:
        flat, lengths = [], [np.zeros(0, np.int64)]
        for start in range(0, len(texts), 4096):
            ids: Any = tokenizer.token_ids(list(texts[start : start + 4096]))
            ids = ids[:, -max_tokens:] if keeps_last else ids[:, :max_tokens]
            flat.append(ids.flat_values.numpy())
            lengths.append(ids.row_lengths().numpy())
        splits = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
        return TokenIds(np.concatenate([np.zeros(0, np.int32), *flat]), splits)

    return tokenize


class RankerTexts:
    """Ranks texts with a ranker's checkpoint; a `convert_tf.text_ranker.TextRanker`.

    A context is its turns, the oldest first, which are joined; where that is longer than the ranker
    reads, the oldest tokens are left out.

    Args:
      folder: a ranker's model directory.
      name: of its row in a table; the folder's unless told else.
      dtype: precision policy of its computations.

    Raises:
      CheckpointError: the folder is incomplete or damaged.

    Example:
      ranker = RankerTexts("runs/poly")
      scores = ranker.scores([("hello", "how are you?")], ["fine", "a fish"])  # [1, 2]
    """

    def __init__(
        self, folder: str | os.PathLike, *, name: str | None = None, dtype: str = "float32"
    ):
        self.name = name or os.path.basename(os.path.normpath(folder))
        self.ranker, vocabulary = load_ranker(folder, dtype=dtype)
        self._head = self.ranker.config.head
        self._tokenize = make_tokenize(vocabulary, self.ranker.config)

    def _contexts(self, contexts: Sequence[Turns | str]) -> TokenIds:
        texts = [c if isinstance(c, str) else joined_context(c) for c in contexts]
        return self._tokenize(texts, self._head.max_context_tokens, True)

    def _candidates(self, texts: Sequence[str]) -> TokenIds:
        return self._tokenize(texts, self._head.max_candidate_tokens, False)

    def encode_candidates(self, texts: Sequence[str]) -> np.ndarray:
        """Candidate vectors: float32 `[len(texts), dim]`; not for a cross-encoder."""
        return encode_pool(self.ranker, self._candidates(texts))

    def encode_contexts(self, contexts: Sequence[Turns | str]) -> tuple[np.ndarray, np.ndarray]:
        """Context vectors: float32 `[B, M, dim]` and bool `[B, M]`; not for a cross-encoder."""
        return encode_context_vectors(self.ranker, self._contexts(contexts))

    def score_encoded(self, vectors: Any, vector_mask: Any, candidates: Any) -> np.ndarray:
        """Scores of encoded candidates: float32 `[B, C]`; see `Ranker.score_encoded`."""
        return np.asarray(self.ranker.score_encoded(vectors, vector_mask, candidates))

    def scores(self, contexts: Sequence[Turns | str], candidates: Sequence[str]) -> np.ndarray:
        """Every candidate for every context: float32 `[len(contexts), len(candidates)]`."""
        every = np.arange(len(candidates))
        pool = self._candidates(candidates)
        return np.stack(
            score_lists(self.ranker, self._contexts(contexts), pool, [every] * len(contexts))
        )

    def candidate_scores(
        self, contexts: Sequence[Turns | str], candidate_lists: Sequence[Sequence[str]]
    ) -> list[np.ndarray]:
        """Each context's own candidates: for context i, float32 `[len(candidate_lists[i])]`."""
        places: dict[str, int] = {}
        own = [
            np.array([places.setdefault(text, len(places)) for text in texts], np.int64)
            for texts in candidate_lists
        ]
        pool = self._candidates(list(places))
        return score_lists(self.ranker, self._contexts(contexts), pool, own)

    score_texts = candidate_scores
