"""Training data for rankers: contexts and candidates as token ids, in padded batches."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from convert_tf.data.candidates import joined_context
from convert_tf.data.packing import TokenIds, joined_ranges
from convert_tf.data.schema import CandidateExample

PAD_MULTIPLE = 8
SORTED_BATCHES = 16  # examples are sorted by length within this many batches

# Arguments: texts, the maximum number of tokens, and whether to keep the last tokens of long texts.
Tokenize = Callable[[Sequence[str], int, bool], TokenIds]


class RankingExamples(NamedTuple):
    """Contexts and candidates as token ids.

    Attributes:
      contexts: the contexts, with their turns joined.
      pool: the distinct candidate texts.
      candidates: for each context, the indices of its candidates in the pool, int64.
      labels: for each context, the indices of the correct candidates among its candidates, int64.
    """

    contexts: TokenIds
    pool: TokenIds
    candidates: list[np.ndarray]
    labels: list[np.ndarray]

    @property
    def num_examples(self) -> int:
        return len(self.candidates)

    def right(self, example: int) -> np.ndarray:
        """Return an example's correct candidates, as int64 indices into the pool."""
        return self.candidates[example][self.labels[example]]


def tokenize_examples(
    examples: Iterable[CandidateExample],
    tokenize: Tokenize,
    *,
    max_context_tokens: int,
    max_candidate_tokens: int,
) -> RankingExamples:
    """Tokenize examples. Long contexts keep their last tokens, long candidates their first.

    Args:
      examples: contexts with candidates. All turns of a context are joined.
      tokenize: function that returns the token ids of texts.
      max_context_tokens: maximum number of tokens per context.
      max_candidate_tokens: maximum number of tokens per candidate.

    Raises:
      ValueError: if there are no examples.
    """
    places: dict[str, int] = {}
    contexts, candidates, labels = [], [], []
    shared: tuple[str, ...] | None = None  # candidates that consecutive examples share
    for example in examples:
        contexts.append(joined_context(example.turns))
        if example.candidates is not shared:
            shared = example.candidates
            numbers = [places.setdefault(text, len(places)) for text in shared]
            indices = np.array(numbers, np.int64)
        candidates.append(indices)
        labels.append(np.array(example.labels, np.int64))
    if not contexts:
        raise ValueError("The data has no examples to train a ranker on. Choose other data.")
    return RankingExamples(
        tokenize(contexts, max_context_tokens, True),
        tokenize(list(places), max_candidate_tokens, False),
        candidates,
        labels,
    )


def padded(
    token_ids: TokenIds, texts: np.ndarray, padding_id: int, *, multiple: int = PAD_MULTIPLE
) -> np.ndarray:
    """Return the selected texts as padded rows.

    Args:
      token_ids: the token ids of the texts.
      texts: int `[n]`, indices of the texts to select; −1 gives a row of padding.
      padding_id: token id for padding.
      multiple: padding is added until the width of the rows is a multiple of this.

    Returns:
      int32 `[n, tokens]`, right-padded.
    """
    texts = np.asarray(texts, np.int64)
    indices = np.maximum(texts, 0)
    starts = token_ids.row_splits[indices].astype(np.int64)
    lengths = np.where(texts < 0, 0, token_ids.row_splits[indices + 1] - starts)
    longest = int(lengths.max(initial=1))
    width = -(-max(longest, 1) // multiple) * multiple
    rows = np.full(len(texts) * width, padding_id, np.int32)
    places = joined_ranges(np.arange(len(texts)) * width, lengths)
    rows[places] = token_ids.flat[joined_ranges(starts, lengths)]
    return rows.reshape(len(texts), width)


@dataclasses.dataclass
class NegativeSampler:
    """Draws wrong candidates for each example.

    Args:
      examples: the training examples.
      source: where wrong candidates come from. `given` draws from the example's candidates,
        `sampled` from the correct candidates of other examples, and `mined` from the indices in the
        argument `mined`.
      count: number of candidates to draw. With `given`, fewer are drawn if the example has fewer
        wrong candidates. With `mined`, missing candidates are sampled.
      mined: int `[examples, n]`, indices of mined candidates in the pool, −1 for missing ones. Only
        for the source `mined`.

    Attributes:
      most: the maximum number of candidates drawn per example.

    Raises:
      ValueError: if an example has no wrong candidate.
    """

    examples: RankingExamples
    _: dataclasses.KW_ONLY
    source: str
    count: int
    mined: np.ndarray | None = None

    def __post_init__(self) -> None:
        rights = [self.examples.right(i) for i in range(self.examples.num_examples)]
        self._all_right = np.unique(np.concatenate(rights))
        numbers = np.array([len(np.unique(right)) for right in rights])
        available = len(self._all_right) - numbers
        if self.source == "given":
            available = np.array([len(self._given(i)) for i in range(len(rights))])
        if not available.all():
            raise ValueError(
                f"Context {available.argmin()} has no wrong candidate with "
                f"negatives_from={self.source}, but training needs at least one. Use data with "
                "wrong candidates, another --negatives_from, or more data."
            )
        self.most = min(self.count, int(available.max()))

    def draw(self, example: int, random: np.random.Generator) -> np.ndarray:
        """Draw wrong candidates for an example, at most `count`: int64 indices into the pool."""
        if self.source == "given":
            return random.permutation(self._given(example))[: self.count]
        left_out = self.examples.right(example)
        chosen = np.zeros(0, np.int64)
        if self.mined is not None:
            mined = self.mined[example]
            mined = mined[(mined >= 0) & ~np.isin(mined, left_out)]
            chosen = random.permutation(mined)[: self.count]
            left_out = np.concatenate([left_out, chosen])
        wanted = self.count - len(chosen)
        drawn = random.choice(
            self._all_right, min(wanted + len(left_out), len(self._all_right)), replace=False
        )
        return np.concatenate([chosen, drawn[~np.isin(drawn, left_out)][:wanted]])

    def _given(self, example: int) -> np.ndarray:
        choices = self.examples.candidates[example]
        return choices[~np.isin(choices, self.examples.right(example))]


@dataclasses.dataclass
class RankingBatches:
    """Endless padded batches. A batch depends only on the data, the seed and its number.

    In each epoch, the examples are permuted. Then the examples of every 16 batches are sorted by
    context length, divided into batches again, and the batches are permuted. The last partial batch
    of an epoch is dropped.

    Args:
      examples: the training examples.
      batch_size: number of contexts per batch. If there are fewer contexts, a batch has all of
        them.
      padding_id: token id for padding.
      seed: a non-negative integer that determines the order and the negatives.
      sampler: draws the negatives. If None, the negatives are the correct candidates of the other
        contexts in the batch.
      skip_batches: number of batches to skip when a run resumes.
      pad_multiple: the widths of the arrays of token ids are padded to multiples of this.

    Attributes:
      batches_per_epoch: number of batches per epoch.

    Yields:
      A dict with
      - `context_ids`, int32 `[B, T]`;
      - `candidate_ids`, int32 `[B, T]`, or `[B, K, T]` with a sampler;
      - `labels`, int32 `[B]`: for each context, the column of the correct candidate;
      - `candidate_mask`, bool `[B, B]`, or `[B, K]` with a sampler: false for padding and for
        further correct candidates.
    """

    examples: RankingExamples
    _: dataclasses.KW_ONLY
    batch_size: int
    padding_id: int
    seed: int
    sampler: NegativeSampler | None = None
    skip_batches: int = 0
    pad_multiple: int = PAD_MULTIPLE

    def __post_init__(self) -> None:
        self.batch_size = min(self.batch_size, self.examples.num_examples)
        self.batches_per_epoch = self.examples.num_examples // self.batch_size

    def __iter__(self) -> Iterator[dict[str, Any]]:
        number = self.skip_batches
        while True:
            epoch, first = divmod(number, self.batches_per_epoch)
            for batch in self._epoch(epoch)[first:]:
                yield self._batch(batch, np.random.default_rng([self.seed, number]))
                number += 1

    def _epoch(self, epoch: int) -> np.ndarray:
        """Return the batches of an epoch: int64 `[batches, batch_size]`, numbers of examples."""
        random = np.random.default_rng([self.seed, 1 << 32, epoch])
        order = random.permutation(self.examples.num_examples)
        order = order[: self.batches_per_epoch * self.batch_size]
        lengths = self.examples.contexts.lengths
        size = SORTED_BATCHES * self.batch_size
        groups = [order[start : start + size] for start in range(0, len(order), size)]
        by_length = [group[np.argsort(lengths[group], kind="stable")] for group in groups]
        batches = np.concatenate(by_length).reshape(-1, self.batch_size)
        return batches[random.permutation(len(batches))]

    def _padded(self, token_ids: TokenIds, texts: np.ndarray) -> np.ndarray:
        return padded(token_ids, texts, self.padding_id, multiple=self.pad_multiple)

    def _batch(self, batch: np.ndarray, random: np.random.Generator) -> dict[str, np.ndarray]:
        examples, size = self.examples, len(batch)
        right = np.array([random.choice(examples.right(i)) for i in batch])
        result = {"context_ids": self._padded(examples.contexts, batch)}
        if self.sampler is None:
            is_right = np.array([np.isin(right, examples.right(i)) for i in batch])
            result["candidate_ids"] = self._padded(examples.pool, right)
            result["labels"] = np.arange(size, dtype=np.int32)
            result["candidate_mask"] = ~is_right | np.eye(size, dtype=bool)
            return result
        columns = 1 + self.sampler.most
        candidates = np.full((size, columns), -1, np.int64)
        for row, example in enumerate(batch):
            negatives = self.sampler.draw(example, random)
            candidates[row, 0] = right[row]
            candidates[row, 1 : 1 + len(negatives)] = negatives
        # The candidates are permuted, so that their order does not show which one is correct.
        order = random.permuted(np.tile(np.arange(columns), (size, 1)), axis=1)
        candidates = np.take_along_axis(candidates, order, axis=1)
        flat = self._padded(examples.pool, candidates.ravel())
        result["candidate_ids"] = flat.reshape(size, columns, -1)
        result["labels"] = np.argmin(order, axis=1).astype(np.int32)
        result["candidate_mask"] = candidates >= 0
        return result


def length_batches(lengths: np.ndarray, batch_size: int) -> Iterator[np.ndarray]:
    """Yield the indices of texts in batches of similar `lengths`, the shortest texts first."""
    order = np.argsort(lengths, kind="stable")
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]
