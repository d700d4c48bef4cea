"""Score candidates with a trained ranker, in batches of texts of similar length.

Each candidate text is encoded once.
"""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from convert_tf.checkpoints.loading import load_ranker
from convert_tf.checkpoints.vocabulary import plain_tokenizer
from convert_tf.config.ranker import RankerConfig
from convert_tf.data.candidates import joined_context
from convert_tf.data.packing import TokenIds
from convert_tf.data.ranking_batches import (
    PAD_MULTIPLE,
    RankingExamples,
    Tokenize,
    length_batches,
    padded,
)
from convert_tf.encoding.text_batches import text_bytes
from convert_tf.metrics import mean_reciprocal_rank, recall_at_k, right_ranks
from convert_tf.models.ranker import RankerModel
from convert_tf.numerics.devices import compiles_shapes
from convert_tf.numerics.forks import check_not_forked
from convert_tf.ranking.protocol import TextRanker, Turns, pool_of_lists

_COMPILED_PAD_MULTIPLE = 32


def make_tokenize(vocabulary: str | os.PathLike, config: RankerConfig) -> Tokenize:
    """Return the function from texts to token ids of a ranker.

    Raises:
      CheckpointError: if the vocabulary is not that of the model.
    """
    tokenizer = plain_tokenizer(vocabulary, config.model)

    def tokenize(texts: Sequence[str], max_tokens: int, keeps_last: bool) -> TokenIds:
        flat, lengths = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)]
        for start in range(0, len(texts), 4096):
            some = [*text_bytes(texts[start : start + 4096])]
            ids, row_splits = tokenizer.flat_ids(some, max_tokens, keeps_last=keeps_last)
            flat.append(ids)
            lengths.append(np.diff(row_splits))
        return TokenIds(np.concatenate(flat), np.cumsum(np.concatenate(lengths)))

    return tokenize


class TrainedRanker(TextRanker):
    """The ranker of a run: its network and its tokenizer.

    Args:
      folder: the run of a ranker.

    Attributes:
      name: the folder.
      settings: facts for the row of a report.
      model: the network.

    Raises:
      CheckpointError: if the folder is incomplete or damaged.
      ForkedError: if the process was forked after a model had been opened, also in each call.
    """

    def __init__(self, folder: str | os.PathLike):
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
        """Candidate vectors: float32 `[len(texts), dim]`; not for a cross-encoder."""
        return encode_pool(self.model, self._candidates(texts))

    def encode_contexts(self, contexts: Sequence[Turns]) -> tuple[np.ndarray, np.ndarray]:
        """Context vectors: float32 `[B, M, dim]` and bool `[B, M]`; not for a cross-encoder."""
        return encode_context_vectors(self.model, self._contexts(contexts))

    def candidate_scores(
        self, contexts: Sequence[Turns], candidate_lists: Sequence[Sequence[str]]
    ) -> list[np.ndarray]:
        texts, places = pool_of_lists(candidate_lists)
        return score_lists(self.model, self._contexts(contexts), self._candidates(texts), places)


def pad_multiple() -> int:
    """Return the multiple of padded widths. If shapes are compiled, there are few widths."""
    return _COMPILED_PAD_MULTIPLE if compiles_shapes() else PAD_MULTIPLE


def _lengths(token_ids: TokenIds) -> np.ndarray:
    return np.diff(token_ids.row_splits)


def encode_pool(ranker: RankerModel, pool: TokenIds, *, batch_size: int = 128) -> np.ndarray:
    """Candidate vectors: float32 `[texts, dim]`."""
    encoded: np.ndarray | None = None
    for batch in length_batches(_lengths(pool), batch_size):
        ids = padded(pool, batch, ranker.padding_id, multiple=pad_multiple())
        vectors = np.asarray(ranker.predict_on_batch({"candidate_ids": ids}), np.float32)
        if encoded is None:
            encoded = np.empty((len(pool.row_splits) - 1, vectors.shape[1]), np.float32)
        encoded[batch] = vectors
    assert encoded is not None
    return encoded


def encode_context_vectors(
    ranker: RankerModel, contexts: TokenIds, *, batch_size: int = 128
) -> tuple[np.ndarray, np.ndarray]:
    """Context vectors: float32 `[texts, M, dim]`, bool `[texts, M]`; M is the largest of any."""
    parts = []
    for batch in length_batches(_lengths(contexts), batch_size):
        ids = padded(contexts, batch, ranker.padding_id, multiple=pad_multiple())
        vectors, mask = ranker.predict_on_batch({"context_ids": ids})
        parts.append((batch, np.asarray(vectors, np.float32), np.asarray(mask)))
    number = len(contexts.row_splits) - 1
    most = max(mask.shape[1] for _, _, mask in parts)
    all_vectors = np.zeros((number, most, parts[0][1].shape[2]), np.float32)
    all_masks = np.zeros((number, most), bool)
    for batch, vectors, mask in parts:
        all_vectors[batch, : mask.shape[1]] = vectors
        all_masks[batch, : mask.shape[1]] = mask
    return all_vectors, all_masks


def score_lists(
    ranker: RankerModel,
    contexts: TokenIds,
    pool: TokenIds,
    candidates: Sequence[np.ndarray],
    *,
    batch_size: int = 64,
) -> list[np.ndarray]:
    """Scores of each context's own candidates.

    Args:
      ranker: of any head.
      contexts: ragged texts.
      pool: candidate texts.
      candidates: for each context, int places in the pool, at least one.
      batch_size: contexts of a batch; pairs of a batch are twice as many.

    Returns:
      For each context, float32 `[candidates]`.
    """
    if ranker.is_joint:
        return _score_pairs(ranker, contexts, pool, candidates, batch_size=2 * batch_size)
    encoded = encode_pool(ranker, pool)
    scores = [np.zeros(len(own), np.float32) for own in candidates]
    for batch in length_batches(_lengths(contexts), batch_size):
        ids = padded(contexts, batch, ranker.padding_id, multiple=pad_multiple())
        vectors, mask = ranker.predict_on_batch({"context_ids": ids})
        used, own = np.unique(np.concatenate([candidates[i] for i in batch]), return_inverse=True)
        counts = np.array([len(candidates[i]) for i in batch])
        if len(used) <= 2 * counts.max():  # contexts share candidates
            matrix = np.asarray(ranker.score_encoded(vectors, mask, encoded[used]))
            columns = np.split(own, np.cumsum(counts)[:-1])
            for i, row, places in zip(batch, matrix, columns, strict=True):
                scores[i] = row[places]
            continue
        places = np.zeros((len(batch), counts.max()), np.int64)
        for row, i in enumerate(batch):
            places[row, : counts[row]] = candidates[i]
        matrix = np.asarray(ranker.score_encoded(vectors, mask, encoded[places]))
        for i, row, count in zip(batch, matrix, counts, strict=True):
            scores[i] = row[:count]
    return scores


def _score_pairs(
    ranker: RankerModel,
    contexts: TokenIds,
    pool: TokenIds,
    candidates: Sequence[np.ndarray],
    *,
    batch_size: int,
) -> list[np.ndarray]:
    counts = [len(own) for own in candidates]
    of_context = np.repeat(np.arange(len(candidates)), counts)
    of_pool = np.concatenate([np.asarray(own, np.int64) for own in candidates])
    scores = np.zeros(len(of_pool), np.float32)
    total = _lengths(contexts)[of_context] + _lengths(pool)[of_pool]
    shape = {"padding_id": ranker.padding_id, "multiple": pad_multiple()}
    for batch in length_batches(total, batch_size):
        inputs = {
            "context_ids": padded(contexts, of_context[batch], **shape),
            "candidate_ids": padded(pool, of_pool[batch], **shape)[:, None],
        }
        scores[batch] = np.asarray(ranker.predict_on_batch(inputs))[:, 0]
    return np.split(scores, np.cumsum(counts)[:-1])


def ranking_report(scores: Sequence[np.ndarray], examples: RankingExamples) -> dict[str, Any]:
    """Loss, R@1, R@2 and MRR of scored examples.

    The rank is that of the best right candidate among the wrong ones, and a tie is a miss. The
    loss is the cross-entropy of the right candidates together.

    Args:
      scores: of each example's candidates.
      examples: with the labels.

    Returns:
      JSON values by name.
    """
    ranks, losses = [], []
    for own, labels in zip(scores, examples.labels, strict=True):
        is_right = np.zeros(len(own), bool)
        is_right[labels] = True
        if not np.isfinite(own).all():
            raise ValueError("Scores are NaN or infinite. Lower the learning rate.")
        ranks.append(right_ranks(own, is_right))
        shifted = own.astype(np.float64) - own.max()
        losses.append(np.log(np.exp(shifted).sum()) - np.log(np.exp(shifted[is_right]).sum()))
    ranked = np.array(ranks)
    return {
        "R@1": recall_at_k(ranked, 1),
        "R@2": recall_at_k(ranked, 2),
        "MRR": mean_reciprocal_rank(ranked),
        "loss": float(np.mean(losses)),
        "candidates": round(float(np.mean([len(own) for own in scores])), 1),
        "examples": len(ranks),
    }
