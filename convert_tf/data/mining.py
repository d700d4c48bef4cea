"""Find the highest-ranked wrong responses for each context, with numpy."""

from collections.abc import Callable

import numpy as np

from convert_tf.data.packing import joined_ranges

BLOCK_SIZE = 131_072  # examples per block; negatives come from the same block
_GROUP = 64  # columns per group; `top_columns` finds the highest score of each group first
_SCORE_BYTES = 64 << 20  # bytes of scores in memory at a time


def top_columns(scores: np.ndarray, k: int) -> np.ndarray:
    """Return the columns with the highest scores in each row.

    Columns are divided into groups. A row's k highest scores are in the k groups with the highest
    maxima, so most columns are read only once and never sorted.

    Args:
      scores: float32 `[rows, columns]`; the number of columns is a multiple of 64.
      k: number of columns to return per row.

    Returns:
      int64 `[rows, min(k, columns)]`, column indices, the highest score first.
    """
    rows, columns = scores.shape
    k = min(k, columns)
    width = _GROUP if columns >= 4 * k * _GROUP else 1
    groups = columns // width
    maxima = scores.reshape(rows, width, groups).max(axis=1)
    best = np.argpartition(maxima, groups - k, axis=1)[:, groups - k :]
    places = (best[:, None, :] + groups * np.arange(width)[None, :, None]).reshape(rows, -1)
    places.sort(axis=1)  # so that columns with equal scores stay in order
    values = np.take_along_axis(scores, places, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(places, order, axis=1)


def hard_negatives(
    contexts: np.ndarray,
    responses: np.ndarray,
    *,
    context_groups: np.ndarray,
    response_groups: np.ndarray,
    negatives: int,
    skip_top: int,
    margin: float | None = None,
    count: Callable[[int], None] = lambda searched: None,
) -> np.ndarray:
    """Return the highest-ranked wrong responses for each context in a block.

    Equal responses are ranked as one. A response does not count as wrong if it answers an equal
    context anywhere in the block. The computation takes contexts × distinct responses × dim
    multiplications.

    Args:
      contexts, responses: float32 `[examples, dim]`, encodings normalised to length 1.
      context_groups, response_groups: int32 `[examples]`, equal numbers for equal texts.
      negatives: maximum number of responses per context.
      skip_top: number of top-ranked wrong responses to skip.
      margin: a wrong response is skipped if its cosine with the context exceeds the cosine of the
        correct response by more than this. If None, no response is skipped because of its cosine.
      count: function that is called with the number of contexts that were searched since the
        previous call.

    Returns:
      int32 `[examples, negatives]`. Each entry is the number of an example in the block whose
      response is a negative, the highest-ranked first. Missing negatives are −1.

    Reference: arXiv 2007.00808 (negatives that the model itself mines); arXiv 2010.08191 (false
    negatives among the top ranks).
    """
    examples, dim = contexts.shape
    _, columns, column_of = np.unique(response_groups, return_index=True, return_inverse=True)
    # `top_columns` needs a multiple of `_GROUP` columns, so vectors of zeros are added.
    table = np.zeros((-(-len(columns) // _GROUP) * _GROUP, dim), np.float32)
    table[: len(columns)] = responses[columns]
    by_context = np.argsort(context_groups, kind="stable")
    starts, stops = (
        np.searchsorted(context_groups[by_context], context_groups, side=side)
        for side in ("left", "right")
    )
    rows = max(1, _SCORE_BYTES // (4 * len(table)))
    buffer = np.empty((min(rows, examples), len(table)), np.float32)
    mined = np.full((examples, negatives), -1, np.int32)
    for start in range(0, examples, rows):
        part = slice(start, min(start + rows, examples))
        rows_of_part = np.arange(part.stop - start)
        scores = np.matmul(contexts[part], table.T, out=buffer[: len(rows_of_part)])
        limits = scores[rows_of_part, column_of[part]] + np.float32(margin or 0.0)
        scores[:, len(columns) :] = -np.inf
        lengths = stops[part] - starts[part]
        right = column_of[by_context[joined_ranges(starts[part], lengths)]]
        scores[np.repeat(rows_of_part, lengths), right] = -np.inf
        if skip_top:
            np.put_along_axis(scores, top_columns(scores, skip_top), -np.inf, axis=1)
        if margin is not None:
            np.copyto(scores, -np.inf, where=scores > limits[:, None])
        best = top_columns(scores, negatives)
        is_found = np.take_along_axis(scores, best, axis=1) > -np.inf
        numbers = columns[np.minimum(best, len(columns) - 1)]
        mined[part, : best.shape[1]] = np.where(is_found, numbers, -1)
        count(len(rows_of_part))
    return mined
