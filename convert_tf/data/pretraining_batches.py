"""Make batches for pre-training BERT-like trunks, with numpy alone.

Batches for masked language modelling alternate with batches for next-utterance prediction. Each row
is [S] context [S] [S] response [S] (`BertConfig.surrounds_each`). The rows of a batch have similar
lengths. The two objectives are:

- masked language modelling: 15 % of the text's tokens are predicted. Of these, 80 % are replaced by
  [MASK] and 10 % by a random token; 10 % are left unchanged. [S] and padding are never masked.
- next-utterance prediction: the model predicts whether a response belongs to its context. Half of
  the responses are taken from another context.

Reference: arXiv 1905.01969 §4.1; arXiv 1810.04805 §3.1.
"""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from convert_tf.config.bert import BertConfig
from convert_tf.data.batches import ExampleOrder, Group
from convert_tf.data.packing import TokenIds, joined_ranges
from convert_tf.data.schema import Examples

WIDTH_MULTIPLE = 8
MASK_RATE = 0.15  # share of tokens to predict (arXiv 1905.01969 §4.1)
MASKED_MULTIPLE = 64  # the number of predicted tokens is padded to a multiple of this
MASK_SHARE, RANDOM_SHARE = 0.8, 0.1
NEXT_SHARE = 0.5  # share of contexts that keep their own response (arXiv 1905.01969 §4.1)


class Position(NamedTuple):
    """The position after a batch in the endless order, from which a run can resume.

    Attributes:
      groups: number of finished groups of the order.
      batches: number of finished batches in the next group.
    """

    groups: int = 0
    batches: int = 0


class Rows(NamedTuple):
    """Pairs of texts as padded rows: [S] context [S] [S] response [S].

    Attributes:
      rows: int32 `[batch, tokens]`, indices into the token table, 0 for padding.
      segment_ids: int32 `[batch, tokens]`, 0 for the context with its special tokens, 1 for the
        rest of the pair.
      mask: bool `[batch, tokens]`, false for padding.
      is_text: bool `[batch, tokens]`, false for [S] and padding.
    """

    rows: np.ndarray
    segment_ids: np.ndarray
    mask: np.ndarray
    is_text: np.ndarray


def row_lengths(
    texts: TokenIds, contexts: np.ndarray, responses: np.ndarray, config: BertConfig
) -> np.ndarray:
    """Return the lengths of the rows that `arranged` returns, without padding: int64 `[batch]`."""
    tokens = texts.lengths[contexts] + texts.lengths[responses] + config.num_special
    return np.minimum(tokens, config.max_positions)


def arranged(
    texts: TokenIds, contexts: np.ndarray, responses: np.ndarray, config: BertConfig
) -> Rows:
    """Arrange pairs of texts in rows. If a pair is too long, its context's first tokens are cut.

    Args:
      texts: the contexts and responses.
      contexts, responses: int64 `[batch]`, the indices of each pair's two texts in `texts`.
      config: configuration of the trunk, which gives the special ids and `max_positions`.

    Returns:
      Rows with a length that is a multiple of 8 tokens, but at most `max_positions`.
    """
    room = config.max_positions - config.num_special
    lengths = texts.lengths
    second = np.minimum(lengths[responses], room)
    first = np.minimum(lengths[contexts], room - second)
    longest = int((first + second).max(initial=0)) + config.num_special
    width = min(-(-longest // WIDTH_MULTIPLE) * WIDTH_MULTIPLE, config.max_positions)
    rows = np.zeros((len(contexts), width), np.int32)
    places = np.arange(width)
    between = config.num_special - 2  # special tokens between the two texts
    boundary = (first + 1)[:, None]
    begin, end = boundary + between, boundary + between + second[:, None]
    mask = places <= end
    row_starts = np.arange(len(contexts)) * width
    for chosen, skipped, lengths_read, column in (
        (contexts, lengths[contexts] - first, first, 1),
        (responses, 0, second, 1 + between + first),
    ):
        tokens = texts.flat[joined_ranges(texts.row_splits[chosen] + skipped, lengths_read)]
        rows.reshape(-1)[joined_ranges(row_starts + column, lengths_read)] = tokens
    is_between = (places >= boundary) & (places < begin)
    is_text = mask & (places > 0) & ~is_between & (places != end)
    rows[is_between] = config.start_id
    rows[(places == boundary) | (places == end)] = config.separator_id
    rows[:, 0] = config.start_id
    return Rows(rows, (mask & (places > boundary)).astype(np.int32), mask, is_text)


def _batch(
    rows: Rows, ids: np.ndarray, slots: np.ndarray, targets: np.ndarray, is_next: np.ndarray | None
) -> dict[str, np.ndarray]:
    """Return a batch for one objective. In it, the weights for the other objective are 0."""
    padding = (0, -len(slots) % MASKED_MULTIPLE or (0 if len(slots) else MASKED_MULTIPLE))
    labels = np.zeros(len(ids)) if is_next is None else is_next
    return {
        "rows": ids,
        "segment_ids": rows.segment_ids,
        "mask": rows.mask,
        "masked_slots": np.pad(slots, padding).astype(np.int32),
        "masked_targets": np.pad(targets, padding).astype(np.int32),
        "masked_weights": np.pad(np.ones(len(slots), np.float32), padding),
        "next_labels": labels.astype(np.float32),
        "next_weights": np.full(len(ids), is_next is not None, np.float32),
    }


def masked_batch(
    rows: Rows, config: BertConfig, *, mask_rate: float = MASK_RATE, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Return a batch for masked language modelling.

    Args:
      rows: the rows to mask.
      config: configuration of the trunk, which gives `mask_id` and `num_ids`.
      mask_rate: share of the text's tokens to predict.
      rng: random generator that draws the tokens to predict and their replacements.

    Returns:
      A dict with
      - `rows`, `segment_ids` and `mask`, `[batch, tokens]`: see `Rows`;
      - `masked_slots`, int32 `[M]`: slots of the tokens to predict. The slot of token n in row b is
        `b * tokens + n`;
      - `masked_targets`, int32 `[M]`: the original ids of these tokens;
      - `masked_weights`, float32 `[M]`: 1, or 0 for entries that pad M to a multiple of 64;
      - `next_labels` and `next_weights`, float32 `[batch]`: 0.

    Reference: arXiv 1810.04805 §3.1 ("Masked LM").
    """
    slots = np.flatnonzero(rows.is_text & (rng.random(rows.rows.shape) < mask_rate))
    ids = rows.rows.copy()
    flat = ids.reshape(-1)
    targets = flat[slots]
    how = rng.random(len(slots))
    random_ids = rng.integers(0, config.num_ids, len(slots), dtype=np.int32)
    random_or_own = np.where(how < MASK_SHARE + RANDOM_SHARE, random_ids, targets)
    flat[slots] = np.where(how < MASK_SHARE, config.mask_id, random_or_own)
    return _batch(rows, ids, slots, targets, None)


def next_utterance_batch(rows: Rows, is_next: np.ndarray) -> dict[str, np.ndarray]:
    """Return a batch for next-utterance prediction, with the same keys as from `masked_batch`.

    Args:
      rows: pairs of texts.
      is_next: bool `[batch]`, whether the response of each pair belongs to its context.
    """
    nothing = np.zeros(0, np.int32)
    return _batch(rows, rows.rows, nothing, nothing, is_next)


def random_responses(number: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Choose a response for each context. About half of the contexts keep their own response.

    Args:
      number: number of contexts.
      rng: random generator that chooses the responses.

    Returns:
      A tuple: for each context, the number of its chosen response, int64 `[number]`, and whether
      this is the context's own response, bool `[number]`.
    """
    right = np.arange(number)
    is_next = rng.random(number) < NEXT_SHARE
    others = (right + rng.integers(1, max(number, 2), number)) % number
    return np.where(is_next, right, others), is_next | (others == right)


def batches_by_length(lengths: np.ndarray, batch_tokens: int) -> list[np.ndarray]:
    """Divide examples, the shortest first, into batches of at most `batch_tokens` padded tokens.

    Args:
      lengths: int64 `[examples]`, the number of tokens in each row.
      batch_tokens: maximum number of tokens per batch, padding included. A row that is longer than
        this becomes a batch of its own.

    Returns:
      For each batch, the indices of its examples.
    """
    order = np.argsort(lengths, kind="stable")
    padded = -(-lengths[order] // WIDTH_MULTIPLE) * WIDTH_MULTIPLE
    starts = [0]
    for i, tokens in enumerate(padded):
        if i > starts[-1] and (i + 1 - starts[-1]) * tokens > batch_tokens:
            starts.append(i)
    return np.split(order, starts[1:]) if len(order) else []


class _Halves:
    """Examples in two halves: one is masked, and in the other some responses are exchanged.

    Args:
      texts: the contexts of all examples, then the responses of all examples.
      config: configuration of the trunk.
      batch_tokens: maximum number of tokens per batch, padding included.
      rng: random generator that chooses the responses of the second half.

    Attributes:
      batches: for each half, batches of pairs of similar length, as indices into the half.
    """

    def __init__(
        self, texts: TokenIds, config: BertConfig, batch_tokens: int, rng: np.random.Generator
    ) -> None:
        self._texts, self._config = texts, config
        number = len(texts.lengths) // 2
        half = number // 2
        responses, self._is_next = random_responses(number - half, rng)
        self._pairs = (
            (np.arange(half), number + np.arange(half)),
            (np.arange(half, number), number + half + responses),
        )
        self.batches = [
            batches_by_length(row_lengths(texts, contexts, replies, config), batch_tokens)
            for contexts, replies in self._pairs
        ]

    def masked(self, chosen: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Return the masked batch with the pairs numbered `chosen` in the first half."""
        return masked_batch(self._rows(0, chosen), self._config, rng=rng)

    def next_utterance(self, chosen: np.ndarray) -> dict[str, np.ndarray]:
        """Return the next-utterance batch with the pairs numbered `chosen` in the second half."""
        return next_utterance_batch(self._rows(1, chosen), self._is_next[chosen])

    def _rows(self, half: int, chosen: np.ndarray) -> Rows:
        contexts, responses = self._pairs[half]
        return arranged(self._texts, contexts[chosen], responses[chosen], self._config)


@dataclasses.dataclass
class PretrainingBatches:
    """Endless batches, alternately for the two objectives.

    The batches depend only on the seed and the data.

    Each group of examples is divided into two halves. One half is masked. In the other half, some
    responses are exchanged. The pairs of each half are divided into batches of similar length, and
    the batches are shuffled. If one half has more batches than the other, its surplus is dropped.

    Args:
      examples: the contexts and responses to train on.
      config: configuration of the trunk.
      batch_tokens: maximum number of tokens per batch, padding included.
      shuffle_buffer: maximum number of examples per group.
      seed: a non-negative integer that determines order, masks and exchanged responses.
      position: position to resume from. Earlier groups are not read.

    Yields:
      A tuple of a batch (see `masked_batch`) and the position after this batch.

    Raises:
      ValueError: if there are fewer than two examples. One half would then be empty.
    """

    examples: Examples
    config: BertConfig
    _: dataclasses.KW_ONLY
    batch_tokens: int
    shuffle_buffer: int
    seed: int
    position: Position = dataclasses.field(default_factory=Position)

    def __post_init__(self) -> None:
        if self.examples.num_examples < 2:
            raise ValueError(
                "Pre-training needs at least two training examples, one for each objective. "
                f"Received: {self.examples.num_examples}."
            )

    def __iter__(self) -> Iterator[tuple[dict[str, np.ndarray], Position]]:
        order = ExampleOrder(
            self.examples.num_examples, shuffle_buffer=self.shuffle_buffer, seed=self.seed
        )
        number, done = self.position
        epoch, skipped = divmod(number, order.groups_per_epoch)
        groups = order.groups(epoch * order.num_examples)
        for group in itertools.islice(groups, skipped, None):
            for batch in self._batches_of(group, number, done):
                done += 1
                yield batch, Position(number, done)
            number, done = number + 1, 0

    def _batches_of(
        self, group: Group, group_number: int, done: int
    ) -> Iterator[dict[str, np.ndarray]]:
        loaded = self.examples.load(group.numbers)[group.permutation]
        rng = np.random.default_rng([self.seed, group_number])
        texts = self.examples.token_ids(loaded)
        halves = _Halves(texts, self.config, self.batch_tokens, rng)
        shuffled = [[parts[i] for i in rng.permutation(len(parts))] for parts in halves.batches]
        for i, (masked, following) in enumerate(zip(*shuffled, strict=False)):
            if 2 * i >= done:
                yield halves.masked(masked, np.random.default_rng([self.seed, group_number, i]))
            if 2 * i + 1 >= done:
                yield halves.next_utterance(following)


def evaluation_batches(
    examples: Examples, config: BertConfig, *, max_examples: int, batch_tokens: int
) -> list[dict[str, np.ndarray]]:
    """Return batches for both objectives from the first examples of a split.

    Half of the examples are masked, and the other half are for next-utterance prediction. Every
    call with the same arguments returns the same batches.
    """
    number = min(max_examples, examples.num_examples)
    texts = examples.token_ids(examples.load(np.arange(number)))
    rng = np.random.default_rng(0)
    halves = _Halves(texts, config, batch_tokens, rng)
    masked, following = halves.batches
    return [*(halves.masked(part, rng) for part in masked), *map(halves.next_utterance, following)]
