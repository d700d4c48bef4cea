"""Packing several texts into one row, so that few padded positions are computed.

A batch of texts is drawn uniformly and packed as it is: which texts are negatives of which does not
depend on their lengths, as it would if batches were made of texts of one length.
"""

import itertools
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

SEGMENTS_PER_ROW = 16
ROW_TOKENS = 64  # of a packed row, where no text is longer
ROW_MULTIPLE = 32  # rows of a batch, where the step is compiled for each shape
_TEXTS_OF_MULTIPLE = 1024  # in a batch that meets few shapes with it


class TokenIds(NamedTuple):
    """Ragged texts.

    Attributes:
      flat: int `[all tokens]`, the texts one after another.
      row_splits: int `[texts + 1]`, where each text begins and ends in `flat`.
    """

    flat: np.ndarray
    row_splits: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each text, int `[texts]`."""
        return np.diff(self.row_splits)

    def take(self, numbers: np.ndarray) -> "TokenIds":
        """Return some of the texts, int `[n]`, in this order."""
        lengths = self.lengths[numbers]
        flat = self.flat[joined_ranges(self.row_splits[numbers], lengths)]
        return TokenIds(flat, np.concatenate([[0], np.cumsum(lengths)]))


def compiled_row_multiple(texts: int) -> int:
    """Return the multiple of rows in a batch if its step is compiled for each shape.

    Rows vary with the square root of the texts, and so does this, in powers of 2: a batch of any
    size meets one to three shapes, and compiling one takes up to a minute on a GPU.

    Args:
      texts: that are encoded at once.
    """
    doublings = max(0, round(math.log2(texts / _TEXTS_OF_MULTIPLE) / 2))
    return int(ROW_MULTIPLE * 2**doublings)


def partly_compiled_row_multiple(pairs: int) -> int:
    """Return the multiple of rows in a batch if only parts of its step are compiled.

    Args:
      pairs: that are encoded at once.

    Returns:
      A tenth of the rows that turns take, or less: there are a handful of shapes then.
    """
    return min(max(pairs // 16, 1), 16)


def joined_ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """`starts[0]`, `starts[0] + 1`, … (`lengths[0]` of them), then those of `starts[1]`, ….

    Args:
      starts: int `[ranges]`.
      lengths: int `[ranges]`, not negative.

    Returns:
      int64 `[sum of lengths]`.
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(total)


def join_texts(parts: Sequence[TokenIds]) -> TokenIds:
    """Concatenate the texts of several parts."""
    lengths = [part.lengths for part in parts]
    return TokenIds(
        np.concatenate([part.flat for part in parts]), np.cumsum(np.concatenate([[0], *lengths]))
    )


def by_name(values: np.ndarray, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Values of texts, split by what the texts are.

    Args:
      values: `[names × examples]`: those of the texts of the first name, then of the second, ….
      names: what the texts are. One that is there k times names k texts of each example.

    Returns:
      For each name `[examples]`, or `[examples × k]`: those of the first example come first.
    """
    rows = values.reshape(len(names), -1)
    return {
        name: rows[[other == name for other in names]].T.ravel() for name in dict.fromkeys(names)
    }


def text_groups(texts: TokenIds) -> np.ndarray:
    """Return a checksum of each text, int32 `[texts]`, to find equal texts.

    Two different texts have the same one once in four billion pairs. Unlike the place of the first
    equal text it is the same in every process, whichever texts are with it.
    """
    flat = np.asarray(texts.flat, np.int32).tobytes()
    bounds = (4 * texts.row_splits).tolist()
    own = (zlib.crc32(flat[start:stop]) for start, stop in itertools.pairwise(bounds))
    return np.fromiter(own, np.uint32, len(bounds) - 1).view(np.int32)


def assign_rows(lengths: np.ndarray, row_tokens: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Best-fit decreasing: each text goes to the fullest row that still has room for it.

    A row has at most 16 texts.

    Args:
      lengths: int `[texts]`, tokens of each text.
      row_tokens: tokens of a row.

    Returns:
      `(rows, segments, starts)`, int32 `[texts]` each: the row of a text, its place among the texts
      of the row, its first token's place.

    Raises:
      ValueError: a text is longer than a row.
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    if len(lengths) and lengths.max() > row_tokens:
        raise ValueError(
            f"A text has {lengths.max()} tokens, and a row holds {row_tokens}. Truncate the text "
            "or use longer rows."
        )
    rows, segments, starts = (np.zeros(len(lengths), np.int32) for _ in range(3))
    rows_with_room: list[list[int]] = [[] for _ in range(row_tokens + 1)]  # by free tokens
    has_room = 0  # bit f is set where rows_with_room[f] is not empty
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
    """Positions of texts in rows.

    Attributes:
      segment_lengths: int32 `[rows, 16]`, tokens of each text of a row.
      slots: int32 `[texts]`: text i is segment `slots[i] % 16` of row `slots[i] // 16`.
      tokens: int64 `[all tokens]`, positions of the texts' tokens in the flattened rows.
    """

    segment_lengths: np.ndarray
    slots: np.ndarray
    tokens: np.ndarray


def packed_places(lengths: np.ndarray, row_tokens: int, *, row_multiple: int = 1) -> Places:
    """Pack texts into rows.

    Args:
      lengths: int `[texts]`, tokens of each text.
      row_tokens: tokens of a row.
      row_multiple: empty rows are added up to a multiple of this, because compilers want few
        different shapes.
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
    )


def pack_batch(
    token_ids: TokenIds,
    names: Sequence[str],
    *,
    row_tokens: int,
    padding_id: int,
    row_multiple: int = 1,
) -> dict[str, np.ndarray]:
    """Return a batch as `DualEncoder` takes it.

    Args:
      token_ids: the texts of the first name, then equally many of the second, ….
      names: what the texts are, as `("context", "response")`; see `by_name`.
      row_tokens, row_multiple: see `packed_places`.
      padding_id: id of padding.

    Returns:
      int32: `token_ids` `[rows, row_tokens]`, `segment_lengths` `[rows, 16]`, and for each name
      `{name}_slots` `[examples]`, or `[examples × k]` of a name that is there k times.
    """
    places = packed_places(token_ids.lengths, row_tokens, row_multiple=row_multiple)
    packed = np.full(len(places.segment_lengths) * row_tokens, padding_id, np.int32)
    packed[places.tokens] = token_ids.flat
    return {
        "token_ids": packed.reshape(-1, row_tokens),
        "segment_lengths": places.segment_lengths,
        **{f"{name}_slots": own for name, own in by_name(places.slots, names).items()},
    }


def pack_micro_batches(
    token_ids: TokenIds,
    names: Sequence[str],
    *,
    micro_batches: int,
    padding_id: int,
    **packing: int,
) -> dict[str, np.ndarray]:
    """Return a batch as `encode_micro_batches` takes it: each part is packed by itself.

    Example e is in micro-batch e mod their number. Their axis is the second, so that the first one
    is that of rows or examples, as without them.

    Args:
      token_ids, names, padding_id: see `pack_batch`.
      micro_batches: number of parts; it divides the number of examples.
      **packing: further arguments of `pack_batch`.

    Returns:
      int32: `token_ids` `[rows, micro_batches, row_tokens]`, `segment_lengths` `[rows,
      micro_batches, 16]`, of as many rows as the largest micro-batch needs, and for each name
      `{name}_slots` `[examples / micro_batches, micro_batches]`, or that times k.
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
    """Share of the token positions of packed batches that hold padding."""
    positions = real = 0
    for batch in batches:
        positions += int(np.prod(batch["token_ids"].shape))
        real += int(np.sum(batch["segment_lengths"]))
    return 1.0 - real / positions
