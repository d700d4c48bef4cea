"""Turn token ids into the inputs of an exported ONNX graph (`convert_tf.export.onnx.graph`)."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from convert_tf.data.packing import ROW_TOKENS, assign_rows, joined_ranges

# Texts of similar length, as in sorted batches, have a row each. Others share rows.
LEAST_FILL = 0.9
# The network needs about 30 kB for each token that is read at once. 256 to 512 tokens are fastest:
# fewer need more ops, and more do not fit into the caches.
_TOKENS_PER_RUN = 256


def assign_places(lengths: np.ndarray) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """Assign texts to rows.

    Args:
      lengths: int `[texts]`, lengths in tokens. There must be at least one text.

    Returns:
      `(tokens, rows, segments, starts)`: the tokens in a row; and int32 `[texts]` each, the row of
      a text, its number in the row, and the position of its first token.
    """
    longest = max(int(lengths.max()), 1)
    if lengths.mean() >= LEAST_FILL * longest:
        none = np.zeros(len(lengths), np.int32)
        return longest, np.arange(len(lengths), dtype=np.int32), none, none
    tokens = max(ROW_TOKENS, longest)
    return tokens, *assign_rows(lengths, tokens)


def graph_inputs(flat_ids: np.ndarray, row_splits: np.ndarray) -> dict[str, np.ndarray]:
    """Pack texts into rows.

    Args:
      flat_ids: int32 `[all tokens]`, the texts one after the other.
      row_splits: int `[texts + 1]`, where texts start and end. There must be at least one text.

    Returns:
      `token_ids`, `positions` and `segment_ids`, int32 `[rows, tokens]`; `pooling`, float32
      `[rows, segments, tokens]`; and `slots`, int32 `[texts]`. Positions count from the start of
      each text. Segment ids are s for the s-th text of a row and 0 for padding. `pooling` is 1/√N
      for the N tokens of a text. Text i is segment `slots[i] % segments` of row `slots[i] //
      segments`, from 0.
    """
    lengths = np.diff(row_splits)
    if len(lengths) == 1:
        return _one_text(flat_ids)
    tokens, rows, segments, starts = assign_places(lengths)
    num_rows, num_segments = int(rows.max()) + 1, int(segments.max()) + 1
    shape = (num_rows, tokens)
    token_ids, positions, segment_ids = (np.zeros(shape, np.int32) for _ in range(3))
    pooling = np.zeros((num_rows, num_segments, tokens), np.float32)

    columns = joined_ranges(starts, lengths)
    places = np.repeat(rows, lengths) * tokens + columns
    own_segment = np.repeat(segments, lengths)
    token_ids.reshape(-1)[places] = flat_ids
    positions.reshape(-1)[places] = columns - np.repeat(starts, lengths)
    segment_ids.reshape(-1)[places] = own_segment + 1
    spread = np.float32(1) / np.sqrt(np.maximum(lengths, 1).astype(np.float32))
    pooling[np.repeat(rows, lengths), own_segment, columns] = np.repeat(spread, lengths)
    return {
        "token_ids": token_ids,
        "positions": positions,
        "segment_ids": segment_ids,
        "pooling": pooling,
        "slots": (rows * num_segments + segments).astype(np.int32),
    }


def no_texts(session: Any) -> dict[str, np.ndarray]:
    """Return empty inputs for the outputs that are not needed.

    Args:
      session: session of ONNX Runtime with an exported graph.
    """
    names = {each.name for each in session.get_inputs()}
    inputs: dict[str, np.ndarray] = {
        name: np.zeros(0, np.int32) for name in names if name.endswith("slots")
    }
    if "has_extra_context" in names:
        inputs["has_extra_context"] = np.zeros((0, 1), np.float32)
    return inputs


def sorted_rows(
    ids: np.ndarray, row_splits: np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sort rows of `width` texts by their number of tokens: `(order, ids, row_splits)`.

    Texts of equal length need no padding and no shared rows. Texts come sorted by bytes, which only
    estimates the tokens.
    """
    number = (len(row_splits) - 1) // width
    if number < 2:
        return np.arange(number), ids, row_splits
    order = np.argsort(np.diff(row_splits[::width]), kind="stable")
    texts = (order[:, None] * width + np.arange(width)).ravel()
    lengths = np.diff(row_splits)[texts]
    ids = ids[joined_ranges(row_splits[texts], lengths)]
    return order, ids, np.concatenate([[0], np.cumsum(lengths)])


def pieces(row_splits: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield `(first, end)` of rows that are computed at once, at least one row."""
    start, number = 0, len(row_splits) - 1
    while start < number:
        limit = row_splits[start] + _TOKENS_PER_RUN
        end = max(int(np.searchsorted(row_splits, limit, side="right")) - 1, start + 1)
        # Texts without tokens count too, because they have a row in the result.
        end = min(end, number, start + _TOKENS_PER_RUN)
        yield start, end
        start = end


def _one_text(ids: np.ndarray) -> dict[str, np.ndarray]:
    """Return the inputs for a single text. A text without tokens has one padded position."""
    length = len(ids)
    tokens = max(length, 1)
    token_ids = np.zeros((1, tokens), np.int32)
    token_ids[0, :length] = ids
    return {
        "token_ids": token_ids,
        "positions": np.arange(tokens, dtype=np.int32)[None],
        "segment_ids": np.full((1, tokens), int(length > 0), np.int32),
        "pooling": np.full((1, 1, tokens), length and length**-0.5, np.float32),
        "slots": np.zeros(1, np.int32),
    }
