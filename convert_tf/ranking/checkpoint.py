"""Score candidates with a trained ranker, in batches of texts with similar lengths.

Each candidate text is encoded only once.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from convert_tf.checkpoints.loading import load_ranker
from convert_tf.checkpoints.vocabulary import plain_tokenizer
from convert_tf.config.ranker import RankerConfig
from convert_tf.data.candidates import joined_context
from convert_tf.data.packing import TokenIds, join_texts
from convert_tf.data.ranking_batches import (
    PAD_MULTIPLE,
    RankingExamples,
    Tokenize,
    length_batches,
    padded,
)
from convert_tf.encoding.text_batches import text_bytes
from convert_tf.metrics import ranking_metrics, right_ranks
from convert_tf.models.ranker import RankerModel
from convert_tf.numerics.devices import compiles_shapes
from convert_tf.numerics.forks import check_not_forked
from convert_tf.ranking.protocol import TextRanker, Turns, pool_of_lists

_COMPILED_PAD_MULTIPLE = 32


def make_tokenize(vocabulary: str | os.PathLike, config: RankerConfig) -> Tokenize:
    """Return a function that turns texts into token ids for a ranker.

    Raises:
      CheckpointError: if the vocabulary does not belong to the ranker.
    """
    tokenizer = plain_tokenizer(vocabulary, config.model)

    def tokenize(texts: Sequence[str], max_tokens: int, keeps_last: bool) -> TokenIds:
        parts = [TokenIds(np.zeros(0, np.int32), np.zeros(1, np.int64))]
        for start in range(0, len(texts), 4096):
            some = [*text_bytes(texts[start : start + 4096])]
            ids = tokenizer.flat_ids(some, max_tokens, keeps_last=keeps_last)
            parts.append(TokenIds(*ids))
        return join_texts(parts)

    return tokenize


class TrainedRanker(TextRanker):
    """A ranker in the folder of a run: the network and its tokenizer.

    Args:
      folder: folder of the run.

    Attributes:
      name: path of the folder.
      settings: facts for the ranker's row in a report.
      model: the network.

    Raises:
      CheckpointError: if the folder is incomplete or damaged.
      ForkedError: if the process was forked after a model had been opened. Every call may raise
        this error too.
    """

    def __init__(self, folder: str | os.PathLike) -> None:
        self.name = os.fspath(folder)
        check_not_forked(self.name)
        self.settings = {"checkpoint": self.name}
        self.model, vocabulary = load_ranker(folder)
        self._head = self.model.config.head
        self._tokenize = make_tokenize(vocabulary, self.model.config)

    def _contexts(self, contexts: Sequence[Turns]) -> TokenIds:
        check_not_forked(self.name)
        texts = [joined_context(turns) for turns in contexts]
        return self._tokenize(texts, self._head.max_context_tokens, True)

    def _candidates(self, texts: Sequence[str]) -> TokenIds:
        check_not_forked(self.name)
        return self._tokenize(texts, self._head.max_candidate_tokens, False)

    def encode_candidates(self, texts: Sequence[str]) -> np.ndarray:
        """Return candidate vectors, float32 `[len(texts), dim]`; not for cross-encoders."""
        return _encode_pool(self.model, self._candidates(texts))

    def encode_contexts(self, contexts: Sequence[Turns]) -> tuple[np.ndarray, np.ndarray]:
        """Return context vectors, float32 `[B, M, dim]`, and their mask, bool `[B, M]`.

        M is the largest number of vectors for a context. The mask is true for vectors that exist.
        Cross-encoders have no context vectors.
        """
        parts = list(_predicted(self.model, "context_ids", self._contexts(contexts), 128))
        most = max(mask.shape[1] for _, (_, mask) in parts)
        all_vectors = np.zeros((len(contexts), most, parts[0][1][0].shape[2]), np.float32)
        all_masks = np.zeros((len(contexts), most), bool)
        for batch, (vectors, mask) in parts:
            all_vectors[batch, : mask.shape[1]] = vectors
            all_masks[batch, : mask.shape[1]] = mask
        return all_vectors, all_masks

    def candidate_scores(
        self, contexts: Sequence[Turns], candidate_lists: Sequence[Sequence[str]]
    ) -> list[np.ndarray]:
        texts, places = pool_of_lists(candidate_lists)
        return score_lists(self.model, self._contexts(contexts), self._candidates(texts), places)


def pad_multiple() -> int:
    """Return the padding unit: texts are padded to a multiple of this number of tokens.

    The unit is larger if each shape must be compiled, so that fewer shapes occur.
    """
    return _COMPILED_PAD_MULTIPLE if compiles_shapes() else PAD_MULTIPLE


def _predicted(
    ranker: RankerModel, name: str, texts: TokenIds, batch_size: int
) -> Iterator[tuple[np.ndarray, Any]]:
    """Yield the indices of texts with similar lengths, and the network's outputs for them."""
    for batch in length_batches(texts.lengths, batch_size):
        ids = padded(texts, batch, ranker.padding_id, multiple=pad_multiple())
        yield batch, ranker.predict_on_batch({name: ids})


def _encode_pool(ranker: RankerModel, pool: TokenIds) -> np.ndarray:
    """Return the vectors of the candidates in the pool, float32 `[texts, dim]`."""
    encoded = np.zeros((0, 0), np.float32)
    for batch, vectors in _predicted(ranker, "candidate_ids", pool, 128):
        if not encoded.size:
            encoded = np.empty((len(pool.lengths), vectors.shape[1]), np.float32)
        encoded[batch] = vectors
    return encoded


def score_lists(
    ranker: RankerModel, contexts: TokenIds, pool: TokenIds, candidates: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Score each context's own candidates.

    Args:
      ranker: the ranker's network; it may have any head.
      contexts: token ids of the contexts.
      pool: token ids of the candidates of all contexts.
      candidates: for each context, the indices of its candidates in the pool. Each context must
        have at least one candidate.

    Returns:
      For each context, the scores of its candidates, float32 `[candidates]`.
    """
    if ranker.is_joint:
        return _score_pairs(ranker, contexts, pool, candidates)
    encoded = _encode_pool(ranker, pool)
    scores = [np.zeros(len(places), np.float32) for places in candidates]
    for batch, (vectors, mask) in _predicted(ranker, "context_ids", contexts, 64):
        counts = np.array([len(candidates[i]) for i in batch])
        all_places = np.concatenate([candidates[i] for i in batch])
        used, flat_columns = np.unique(all_places, return_inverse=True)
        if len(used) <= 2 * counts.max():  # contexts share candidates
            matrix = np.asarray(ranker.score_encoded(vectors, mask, encoded[used]))
            columns = np.split(flat_columns, np.cumsum(counts)[:-1])
        else:
            places = np.zeros((len(batch), counts.max()), np.int64)
            for row, i in enumerate(batch):
                places[row, : counts[row]] = candidates[i]
            matrix = np.asarray(ranker.score_encoded(vectors, mask, encoded[places]))
            columns = [np.arange(count) for count in counts]
        for i, row_scores, row_columns in zip(batch, matrix, columns, strict=True):
            scores[i] = row_scores[row_columns]
    return scores


def _score_pairs(
    ranker: RankerModel, contexts: TokenIds, pool: TokenIds, candidates: Sequence[np.ndarray]
) -> list[np.ndarray]:
    counts = [len(places) for places in candidates]
    of_context = np.repeat(np.arange(len(candidates)), counts)
    of_pool = np.concatenate([np.asarray(places, np.int64) for places in candidates])
    scores = np.zeros(len(of_pool), np.float32)
    total = contexts.lengths[of_context] + pool.lengths[of_pool]
    shape = {"padding_id": ranker.padding_id, "multiple": pad_multiple()}
    for batch in length_batches(total, 128):
        inputs = {
            "context_ids": padded(contexts, of_context[batch], **shape),
            "candidate_ids": padded(pool, of_pool[batch], **shape)[:, None],
        }
        scores[batch] = np.asarray(ranker.predict_on_batch(inputs))[:, 0]
    return np.split(scores, np.cumsum(counts)[:-1])


def ranking_report(scores: Sequence[np.ndarray], examples: RankingExamples) -> dict[str, Any]:
    """Return loss, R@1, R@2 and MRR for scored examples.

    The highest-scoring correct candidate is ranked among the wrong ones; a tie counts as a miss.
    The loss is the negative logarithm of the total probability of all correct candidates.

    Args:
      scores: for each example, the scores of its candidates.
      examples: examples with the labels of their candidates.

    Returns:
      A dict of the metrics and the loss, as JSON values.
    """
    ranks, losses = [], []
    for row, labels in zip(scores, examples.labels, strict=True):
        if not np.isfinite(row).all():
            raise ValueError("Some scores are NaN or infinite. Lower the learning rate.")
        is_right = np.isin(np.arange(len(row)), labels)
        ranks.append(right_ranks(row, is_right))
        logits = row.astype(np.float64)
        losses.append(np.logaddexp.reduce(logits) - np.logaddexp.reduce(logits[is_right]))
    report: dict[str, Any] = ranking_metrics(np.array(ranks), block_size=None, ks=(1, 2))
    return {
        **report,
        "loss": float(np.mean(losses)),
        "candidates": round(float(np.mean([len(row) for row in scores])), 1),
    }
