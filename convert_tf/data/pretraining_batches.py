"""Batches of the pre-training objectives of BERT-shaped trunks, with numpy alone.

Batches of masked language modelling and of next-utterance prediction take turns. Both hold
[S] context [S] [S] response [S] in rows of similar length (`BertConfig.surrounds_each`):

- masked: 15 % of the text's tokens are predicted; 80 % of those are replaced by [MASK], 10 % by a
  random token, 10 % stay. [S] and padding are never masked.
- next utterance: half of the responses are those of another context.

Reference: arXiv 1905.01969 §4.1; arXiv 1810.04805 §3.1.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from convert_tf.config.bert import BertConfig
from convert_tf.data.order import ExampleOrder, Group
from convert_tf.data.packing import TokenIds
from convert_tf.data.schema import Examples

WIDTH_MULTIPLE = 8
MASK_RATE = 0.15  # share of the tokens that are predicted (arXiv 1905.01969 §4.1)
MASKED_MULTIPLE = 64  # so that a compiler sees few shapes
MASK_SHARE, RANDOM_SHARE = 0.8, 0.1


class Position(NamedTuple):
    """Where in the endless order a batch ends; a run goes on from there.

    Attributes:
      groups: groups of the order that are done.
      batches: batches done of the group after those.
    """

    groups: int
    batches: int


START = Position(0, 0)


class Rows(NamedTuple):
    """[S] context [S] [S] response [S] in rows.

    Attributes:
      rows: int32 `[batch, tokens]`, rows of the token table, 0 for padding.
      segment_ids: int32 `[batch, tokens]`.
      mask: bool `[batch, tokens]`.
      is_text: bool `[batch, tokens]`, false for [S] and padding.
    """

    rows: np.ndarray
    segment_ids: np.ndarray
    mask: np.ndarray
    is_text: np.ndarray


def _text(texts: TokenIds, number: int) -> np.ndarray:
    return texts.flat[texts.row_splits[number] : texts.row_splits[number + 1]]


def row_lengths(
    texts: TokenIds, contexts: np.ndarray, responses: np.ndarray, config: BertConfig
) -> np.ndarray:
    """Tokens of the rows that `arranged` makes, padding not counted: int64 `[batch]`."""
    lengths = np.diff(texts.row_splits)
    tokens = lengths[contexts] + lengths[responses] + config.num_special
    return np.minimum(tokens, config.max_positions)


def arranged(
    texts: TokenIds, contexts: np.ndarray, responses: np.ndarray, config: BertConfig
) -> Rows:
    """Pairs of texts in rows; where both are too long, the context loses its oldest tokens.

    Args:
      texts: of which pairs are made.
      contexts, responses: int64 `[batch]`, numbers of texts.
      config: reads the special ids and `max_positions`.

    Returns:
      Rows of a multiple of 8 tokens, where `max_positions` allows that.
    """
    room = config.max_positions - config.num_special
    lengths = np.diff(texts.row_splits)
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
    for row, (context, response) in enumerate(zip(contexts, responses, strict=True)):
        a, b = int(first[row]), int(second[row])
        rows[row, 1 : 1 + a] = _text(texts, context)[lengths[context] - a :]
        rows[row, 1 + between + a : 1 + between + a + b] = _text(texts, response)[:b]
    is_between = (places >= boundary) & (places < begin)
    is_text = mask & (places > 0) & ~is_between & (places != end)
    rows[is_between] = config.start_id
    rows[(places == boundary) | (places == end)] = config.separator_id
    rows[:, 0] = config.start_id
    return Rows(rows, (mask & (places > boundary)).astype(np.int32), mask, is_text)


def _batch(
    rows: Rows, ids: np.ndarray, masked: dict[str, Any], next_utterance: dict[str, Any]
) -> dict[str, np.ndarray]:
    return {
        "rows": ids,
        "segment_ids": rows.segment_ids,
        "mask": rows.mask,
        **masked,
        **next_utterance,
    }


def masked_batch(
    rows: Rows, config: BertConfig, *, mask_rate: float = MASK_RATE, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """A batch of masked language modelling.

    Args:
      rows: what is masked.
      config: reads `mask_id` and `num_ids`.
      mask_rate: share of the text's tokens that are predicted.
      rng: draws them, and what stands in their places.

    Returns:
      dict of `rows`, `segment_ids`, `mask` `[batch, tokens]`; `masked_slots` int32 `[M]`, the
      token n of row b has the slot `b * tokens + n`; `masked_targets` int32 `[M]`;
      `masked_weights` float32 `[M]`, 0 where M was rounded up; `next_labels`, `next_weights`
      float32 `[batch]`, 0.

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
    padding = (0, -len(slots) % MASKED_MULTIPLE or (0 if len(slots) else MASKED_MULTIPLE))
    return _batch(
        rows,
        ids,
        {
            "masked_slots": np.pad(slots, padding).astype(np.int32),
            "masked_targets": np.pad(targets, padding).astype(np.int32),
            "masked_weights": np.pad(np.ones(len(slots), np.float32), padding),
        },
        _no_labels(len(ids)),
    )


def _no_labels(size: int) -> dict[str, np.ndarray]:
    return {"next_labels": np.zeros(size, np.float32), "next_weights": np.zeros(size, np.float32)}


def next_utterance_batch(rows: Rows, is_next: np.ndarray) -> dict[str, np.ndarray]:
    """A batch of next-utterance prediction, with the keys of `masked_batch`.

    Args:
      rows: pairs, some of which belong together.
      is_next: bool `[batch]`, which.
    """
    nothing = np.zeros(MASKED_MULTIPLE, np.int32)
    return _batch(
        rows,
        rows.rows,
        {
            "masked_slots": nothing,
            "masked_targets": nothing,
            "masked_weights": nothing.astype(np.float32),
        },
        {
            "next_labels": is_next.astype(np.float32),
            "next_weights": np.ones(len(is_next), np.float32),
        },
    )


def random_responses(number: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Which response each of `number` contexts gets, its own or, half of the time, another's.

    Returns:
      int64 `[number]` and whether it is its own, bool `[number]`.
    """
    own = np.arange(number)
    is_next = rng.random(number) < 0.5
    others = (own + rng.integers(1, max(number, 2), number)) % number
    return np.where(is_next, own, others), is_next | (others == own)


def batches_by_length(lengths: np.ndarray, batch_tokens: int) -> list[np.ndarray]:
    """Cuts examples, the shortest first, into batches of at most `batch_tokens` padded tokens.

    Args:
      lengths: int64 `[examples]`, tokens of each row.
      batch_tokens: of a batch; one that is longer is a batch by itself.

    Returns:
      The numbers of the examples of each batch.
    """
    order = np.argsort(lengths, kind="stable")
    padded = -(-lengths[order] // WIDTH_MULTIPLE) * WIDTH_MULTIPLE
    batches, start = [], 0
    for i in range(1, len(order) + 1):
        if i == len(order) or (i + 1 - start) * padded[i] > batch_tokens:
            batches.append(order[start:i])
            start = i
    return batches


class PretrainingBatches:
    """Endless batches of both objectives in turn, a function of the seed and the data alone.

    A group of the order is halved: one half is masked, of the other half some responses are
    exchanged within the half. Each half is cut into batches of similar length, and the batches are
    shuffled. Where the halves give unequal numbers of batches the last ones are left out.

    Args:
      examples: contexts and responses.
      config: the trunk.
      batch_tokens: tokens of a batch, padding counted.
      shuffle_buffer: examples of a group.
      seed: not negative.
      position: where to go on; nothing before its group is read.

    Yields:
      A batch (see `masked_batch`), and the position behind it.
    """

    def __init__(
        self,
        examples: Examples,
        config: BertConfig,
        *,
        batch_tokens: int,
        shuffle_buffer: int,
        seed: int,
        position: Position = START,
    ):
        self.examples = examples
        self.config = config
        self.batch_tokens = batch_tokens
        self.seed = seed
        self.position = position
        self._order = ExampleOrder(examples.num_examples, shuffle_buffer=shuffle_buffer, seed=seed)

    def __iter__(self) -> Iterator[tuple[dict[str, np.ndarray], Position]]:
        order = self._order
        chunks = -(-order.num_examples // order.chunk_size)
        groups_per_epoch = -(-chunks // order.chunks_per_group)
        number, done = self.position
        epoch, skipped = divmod(number, groups_per_epoch)
        groups = order.groups(epoch * order.num_examples)
        for group in itertools.islice(groups, skipped, None):
            for batches, make_batch in enumerate(self._batches_of(group, number), start=1):
                if batches > done:
                    yield make_batch(), Position(number, batches)
            number, done = number + 1, 0

    def _batches_of(
        self, group: Group, group_number: int
    ) -> Iterator[Callable[[], dict[str, np.ndarray]]]:
        loaded = self.examples.load(group.starts, group.stops)[group.permutation]
        number = len(loaded)
        texts = self.examples.token_ids(loaded)  # all contexts, then all responses
        rng = np.random.default_rng([self.seed, group_number])
        half = number // 2
        other_half = np.arange(half, number)
        responses, is_next = random_responses(number - half, rng)
        sides = [
            (np.arange(half), number + np.arange(half)),
            (other_half, number + half + responses),
        ]
        cut = []
        for contexts, replies in sides:
            batches = batches_by_length(
                row_lengths(texts, contexts, replies, self.config), self.batch_tokens
            )
            cut.append([batches[i] for i in rng.permutation(len(batches))])

        def rows(side: int, chosen: np.ndarray) -> Rows:
            contexts, replies = sides[side]
            return arranged(texts, contexts[chosen], replies[chosen], self.config)

        def masked(chosen: np.ndarray, number: int) -> dict[str, np.ndarray]:
            own_rng = np.random.default_rng([self.seed, group_number, number])
            return masked_batch(rows(0, chosen), self.config, rng=own_rng)

        for i, (first, second) in enumerate(zip(*cut, strict=False)):
            yield functools.partial(masked, first, i)
            yield functools.partial(
                lambda chosen: next_utterance_batch(rows(1, chosen), is_next[chosen]), second
            )


def evaluation_batches(
    examples: Examples, config: BertConfig, *, max_examples: int, batch_tokens: int
) -> list[dict[str, np.ndarray]]:
    """Batches of both objectives for the first examples, the same at every call.

    Half of the examples are masked, half are for next-utterance prediction.
    """
    number = min(max_examples, examples.num_examples)
    texts = examples.token_ids(examples.load(np.array([0]), np.array([number])))
    rng = np.random.default_rng(0)
    half = number // 2
    responses, is_next = random_responses(number - half, rng)
    found = []
    for contexts, replies, labels in (
        (np.arange(half), number + np.arange(half), None),
        (np.arange(half, number), number + half + responses, is_next),
    ):
        lengths = row_lengths(texts, contexts, replies, config)
        for chosen in batches_by_length(lengths, batch_tokens):
            rows = arranged(texts, contexts[chosen], replies[chosen], config)
            found.append(
                masked_batch(rows, config, rng=rng)
                if labels is None
                else next_utterance_batch(rows, labels[chosen])
            )
    return found
