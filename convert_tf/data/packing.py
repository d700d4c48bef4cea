"""Pack several texts into one row, so that little computation is spent on padding.

The texts for a batch are drawn first and packed afterwards. If they were chosen by length, their
lengths would decide which texts serve as negatives for each other.
"""

import itertools
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

SEGMENTS_PER_ROW = 16
ROW_TOKENS = 64  # tokens per packed row if no text is longer
ROW_MULTIPLE = 32  # the number of rows is a multiple of this if steps are compiled per shape
_TEXTS_OF_MULTIPLE = 1024  # number of texts per batch for which ROW_MULTIPLE gives few shapes


class TokenIds(NamedTuple):
    """Token ids of several texts.

    Attributes:
      flat: int `[all tokens]`, the token ids of all texts, one text after another.
      row_splits: int `[texts + 1]`. Text i has the token ids `flat[row_splits[i]:row_splits[i +
        1]]`.
    """

    flat: np.ndarray
    row_splits: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens in each text, int `[texts]`."""
        return np.diff(self.row_splits)

    def take(self, numbers: np.ndarray) -> "TokenIds":
        """Return the texts with the given `numbers`, int `[n]`, in the order of the numbers."""
        lengths = self.lengths[numbers]
        flat = self.flat[joined_ranges(self.row_splits[numbers], lengths)]
        return TokenIds(flat, np.concatenate([[0], np.cumsum(lengths)]))


def compiled_row_multiple(texts: int) -> int:
    """Return the multiple that the number of rows is padded to if steps are compiled per shape.

    Between batches, the number of rows varies by about the square root of the number of texts. The
    multiple grows at the same rate, in powers of 2. Batches of any size therefore have only one to
    three shapes. Compiling one shape takes up to a minute on a GPU.

    Args:
      texts: number of texts encoded at once.
    """
    doublings = max(0, round(math.log2(texts / _TEXTS_OF_MULTIPLE) / 2))
    return int(ROW_MULTIPLE * 2**doublings)


def partly_compiled_row_multiple(pairs: int) -> int:
    """Return the multiple that the number of rows is padded to if parts of a step are compiled.

    Args:
      pairs: number of pairs encoded at once.

    Returns:
      A multiple of at most 16 and at most a tenth of the number of rows that this many pairs of
      conversational turns need. Batches then have only a handful of shapes.
    """
    return min(max(pairs // 16, 1), 16)


def joined_ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Concatenate ranges of numbers: `lengths[0]` numbers starting at `starts[0]`, and so on.

    Args:
      starts: int `[ranges]`, the first number of each range.
      lengths: int `[ranges]`, the number of values in each range; not negative.

    Returns:
      int64 `[sum of lengths]`, the numbers of all ranges.
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(total)


def join_texts(parts: Sequence[TokenIds]) -> TokenIds:
    """Concatenate several collections of texts into one."""
    lengths = [part.lengths for part in parts]
    return TokenIds(
        np.concatenate([part.flat for part in parts]), np.cumsum(np.concatenate([[0], *lengths]))
    )


def by_name(values: np.ndarray, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Split an array with one value per text into one array per name of the texts.

    Args:
      values: `[names × examples]`: the values for all texts with the first name, then for all texts
        with the second name, and so on.
      names: names of the texts. If a name occurs k times, each example has k texts with this name.

    Returns:
      A dict with an array for each name: `[examples]`, or `[examples × k]` for a name that occurs k
      times. In the second case, the values are ordered by example.
    """
    rows = values.reshape(len(names), -1)
    return {
        name: rows[[other == name for other in names]].T.ravel() for name in dict.fromkeys(names)
    }


def text_groups(texts: TokenIds) -> np.ndarray:
    """Return a checksum of each text, int32 `[texts]`. Equal texts have equal checksums.

    One in four billion pairs of different texts has equal checksums. A checksum depends on the text
    alone, so it is the same in every process.
    """
    flat = np.asarray(texts.flat, np.int32).tobytes()
    bounds = (4 * texts.row_splits).tolist()
    checksums = (zlib.crc32(flat[start:stop]) for start, stop in itertools.pairwise(bounds))
    return np.fromiter(checksums, np.uint32, len(bounds) - 1).view(np.int32)


def assign_rows(lengths: np.ndarray, row_tokens: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Assign texts to rows, the longest first, each to the fullest row that has room for it.

    A row holds at most 16 texts.

    Args:
      lengths: int `[texts]`, the number of tokens in each text.
      row_tokens: number of tokens per row.

    Returns:
      A tuple `(rows, segments, starts)` of int32 `[texts]` arrays: for each text, its row, its
      place among the texts in that row, and the position of its first token in the row.

    Raises:
      ValueError: if a text is longer than a row.
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    if len(lengths) and lengths.max() > row_tokens:
        raise ValueError(
            f"A text has {lengths.max()} tokens, but a row holds {row_tokens}. Truncate the text "
            "or use longer rows."
        )
    rows, segments, starts = (np.zeros(len(lengths), np.int32) for _ in range(3))
    rows_with_room: list[list[int]] = [[] for _ in range(row_tokens + 1)]  # rows by free tokens
    has_room = 0  # bit f is set if rows_with_room[f] is not empty
    texts_in_row: list[int] = []
    for text in np.argsort(-lengths, kind="stable"):
        length = int(lengths[text])
        fits = has_room >> length
        if fits:
            free = length + (fits & -fits).bit_length() - 1
            row = rows_with_room[free].pop()
            if not rows_with_room[free]:
                has_room &= ~(1 << free)
        else:
            free, row = row_tokens, len(texts_in_row)
            texts_in_row.append(0)
        rows[text], segments[text], starts[text] = row, texts_in_row[row], row_tokens - free
        texts_in_row[row] += 1
        if texts_in_row[row] < SEGMENTS_PER_ROW:
            rows_with_room[free - length].append(row)
            has_room |= 1 << (free - length)
    return rows, segments, starts


class Places(NamedTuple):
    """The places of packed texts in their rows.

    Attributes:
      segment_lengths: int32 `[rows, 16]`, the number of tokens in each text of a row; 0 for unused
        segments.
      slots: int32 `[texts]`: text i is segment `slots[i] % 16` of row `slots[i] // 16`.
      tokens: int64 `[all tokens]`, the position of each token in the flattened rows.
      row_tokens: number of tokens per row.
    """

    segment_lengths: np.ndarray
    slots: np.ndarray
    tokens: np.ndarray
    row_tokens: int

    def rows_of(self, values: np.ndarray, padding: np.generic) -> np.ndarray:
        """Arrange an array with one value per token into padded rows.

        Args:
          values: `[all tokens, …]`, a number or a vector for each token.
          padding: value for padded positions. It also determines the dtype.

        Returns:
          `[rows, row_tokens, …]`, the values at the positions of their tokens.
        """
        shape = (len(self.segment_lengths), self.row_tokens, *values.shape[1:])
        rows = np.full((shape[0] * shape[1], *shape[2:]), padding)
        rows[self.tokens] = values
        return rows.reshape(shape)


def packed_places(lengths: np.ndarray, row_tokens: int, *, row_multiple: int = 1) -> Places:
    """Pack texts into rows.

    Args:
      lengths: int `[texts]`, the number of tokens in each text.
      row_tokens: number of tokens per row.
      row_multiple: empty rows are added until the number of rows is a multiple of this, so that few
        shapes occur.
    """
    rows, segments, starts = assign_rows(lengths, row_tokens)
    num_rows = int(rows.max()) + 1 if len(rows) else 0
    num_rows = -(-num_rows // row_multiple) * row_multiple
    segment_lengths = np.zeros((num_rows, SEGMENTS_PER_ROW), np.int32)
    segment_lengths[rows, segments] = lengths
    return Places(
        segment_lengths,
        (rows * SEGMENTS_PER_ROW + segments).astype(np.int32),
        joined_ranges(rows.astype(np.int64) * row_tokens + starts, lengths),
        row_tokens,
    )


def pack_batch(
    token_ids: TokenIds,
    names: Sequence[str],
    *,
    row_tokens: int,
    padding_id: int,
    row_multiple: int = 1,
) -> dict[str, np.ndarray]:
    """Return a batch for `DualEncoder`.

    Args:
      token_ids: the texts with the first name, then as many texts with the second name, and so on.
      names: names of the texts, such as `("context", "response")`; see `by_name`.
      row_tokens, row_multiple: see `packed_places`.
      padding_id: token id for padding.

    Returns:
      A dict of int32 arrays: `token_ids` `[rows, row_tokens]`; `segment_lengths` `[rows, 16]`; and
      for each name, `{name}_slots` `[examples]`, or `[examples × k]` for a name that occurs k
      times. `Places` describes segments and slots.
    """
    places = packed_places(token_ids.lengths, row_tokens, row_multiple=row_multiple)
    return {
        "token_ids": places.rows_of(token_ids.flat, np.int32(padding_id)),
        "segment_lengths": places.segment_lengths,
        **{f"{name}_slots": slots for name, slots in by_name(places.slots, names).items()},
    }


def pack_micro_batches(
    token_ids: TokenIds,
    names: Sequence[str],
    *,
    micro_batches: int,
    padding_id: int,
    **packing: int,
) -> dict[str, np.ndarray]:
    """Return a batch for `encode_micro_batches`. Each micro-batch is packed separately.

    Example e is in micro-batch e mod `micro_batches`. The first axis of the arrays counts rows or
    examples, as in `pack_batch`. The second axis counts micro-batches.

    Args:
      token_ids, names, padding_id: see `pack_batch`.
      micro_batches: number of micro-batches; it must divide the number of examples.
      **packing: further arguments of `pack_batch`.

    Returns:
      A dict of int32 arrays: `token_ids` `[rows, micro_batches, row_tokens]` and `segment_lengths`
      `[rows, micro_batches, 16]`, with as many rows as the largest micro-batch needs; and for each
      name, `{name}_slots` `[examples / micro_batches, micro_batches]`. If a name occurs k times,
      the first axis of its array is k times as long.
    """
    numbers = np.arange(len(token_ids.lengths)).reshape(len(names), -1, micro_batches)
    parts = [
        pack_batch(
            token_ids.take(numbers[:, :, index].ravel()), names, padding_id=padding_id, **packing
        )
        for index in range(micro_batches)
    ]
    rows = max(len(part["token_ids"]) for part in parts)
    fills = {"token_ids": padding_id, "segment_lengths": 0}
    for part in parts:
        for name, fill in fills.items():
            missing = ((0, rows - len(part[name])), (0, 0))
            part[name] = np.pad(part[name], missing, constant_values=fill)
    return {name: np.stack([part[name] for part in parts], axis=1) for name in parts[0]}


def padding_share(batches: Iterable[Mapping[str, Any]]) -> float:
    """Return which share of the token positions in packed batches is padding, from 0 to 1."""
    positions = real = 0
    for batch in batches:
        positions += int(np.prod(batch["token_ids"].shape))
        real += int(np.sum(batch["segment_lengths"]))
    return 1.0 - real / positions
