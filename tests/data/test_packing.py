import itertools

import numpy as np
import pytest
from support.model_cases import texts_in

from convert_tf.data.packing import (
    ROW_TOKENS,
    SEGMENTS_PER_ROW,
    TokenIds,
    assign_rows,
    compiled_row_multiple,
    pack_batch,
    pack_micro_batches,
    packed_places,
)


def _random_lengths(seed: int, *, longest: int = 20) -> np.ndarray:
    random = np.random.RandomState(seed)
    return random.randint(0, longest + 1, size=random.randint(0, 60))


def _packed(lengths, *, row_tokens: int = 20) -> tuple[TokenIds, dict]:
    splits = np.cumsum([0, *lengths])
    texts = TokenIds(np.arange(splits[-1]), splits)  # every token is another id
    return texts, pack_batch(texts, ["text"], row_tokens=row_tokens, padding_id=-1)


@pytest.mark.parametrize("seed", range(30))
def test_every_text_is_where_its_slot_says(seed):
    lengths = _random_lengths(seed, longest=seed)
    texts, batch = _packed(lengths, row_tokens=max(seed, 1))
    assert {value.dtype for value in batch.values()} == {np.dtype("int32")}
    assert len(set(batch["text_slots"])) == len(lengths)
    bounds = itertools.pairwise(texts.row_splits)
    assert texts_in(batch, "text") == [tuple(texts.flat[start:stop]) for start, stop in bounds]
    # Nothing else is there: all other places are padding, at the ends of the rows.
    assert batch["segment_lengths"].sum() == lengths.sum()
    for row, own in zip(batch["token_ids"], batch["segment_lengths"], strict=True):
        assert (row[: own.sum()] >= 0).all()
        assert (row[own.sum() :] == -1).all()


@pytest.mark.parametrize("seed", range(10))
def test_rows_keep_their_limits(seed):
    lengths = _random_lengths(seed, longest=2)
    rows, segments, starts = assign_rows(lengths, 20)
    for row in set(rows.tolist()):
        assert lengths[rows == row].sum() <= 20
        assert sorted(segments[rows == row]) == list(range((rows == row).sum()))
        assert (rows == row).sum() <= SEGMENTS_PER_ROW
        assert (starts[rows == row] + lengths[rows == row] <= 20).all()


def _naive_best_fit(lengths, row_tokens: int) -> list[int]:
    """Tokens of the rows when each text, longest first, goes to the fullest row it fits in."""
    free: list[int] = []
    for length in sorted(map(int, lengths), reverse=True):
        fitting = [row for row in range(len(free)) if free[row] >= length]
        if fitting:
            row = min(fitting, key=lambda r: free[r])
            free[row] -= length
        else:
            free.append(row_tokens - length)
    return sorted(row_tokens - f for f in free)


@pytest.mark.parametrize("seed", range(10))
def test_rows_are_as_full_as_those_of_a_naive_best_fit(seed):
    lengths = np.maximum(_random_lengths(seed), 2)  # at most ten texts in a row
    rows, _, _ = assign_rows(lengths, 20)
    tokens = [int(lengths[rows == row].sum()) for row in set(rows.tolist())]
    assert sorted(tokens) == _naive_best_fit(lengths, 20)


def test_little_padding_at_lengths_like_reddits():
    """A log-normal with a median of 18 tokens, cut at 60, as the comments of 2015 have."""
    random = np.random.RandomState(0)
    lengths = np.clip(random.lognormal(np.log(18), 0.8, 512), 2, 60).astype(int)
    rows, _, _ = assign_rows(lengths, 64)
    assert lengths.sum() / (64 * (rows.max() + 1)) > 0.9


def test_nothing_and_only_empty_texts():
    _, batch = _packed(np.zeros(0, int))
    assert [batch[name].shape for name in ("token_ids", "segment_lengths", "text_slots")] == [
        (0, 20), (0, 16), (0,)
    ]  # fmt: skip
    _, batch = _packed(np.zeros(33, int))
    assert batch["token_ids"].shape == (3, 20)  # sixteen texts to a row
    assert (batch["token_ids"] == -1).all()
    assert len(set(batch["text_slots"])) == 33


def test_a_text_longer_than_a_row_is_an_error():
    with pytest.raises(ValueError, match=r"has 21 tokens, and a row holds 20"):
        assign_rows(np.array([3, 21]), 20)


def test_micro_batches_hold_the_texts_of_every_nth_example():
    """Each with as many rows as the fullest; k texts of an example stay together."""
    names = ["context", "response", "negative", "negative"]
    lengths = np.random.RandomState(0).randint(0, 21, size=(4, 12))
    lengths[:, 1::3] = 20  # the second micro-batch has the most rows
    splits = np.cumsum([0, *lengths.ravel()])
    texts = TokenIds(np.arange(splits[-1]), splits)
    options = {"row_tokens": 20, "padding_id": -1}
    whole = pack_batch(texts, names, **options)
    batch = pack_micro_batches(texts, names, micro_batches=3, **options)
    assert batch["token_ids"].shape == (16, 3, 20)
    assert batch["segment_lengths"].shape == (16, 3, 16)
    for name, k in (("context", 1), ("response", 1), ("negative", 2)):
        assert batch[f"{name}_slots"].shape == (4 * k, 3)
        assert texts_in(batch, name) == texts_in(whole, name)
    assert batch["segment_lengths"].sum() == whole["segment_lengths"].sum()
    assert (batch["token_ids"] >= 0).sum() == splits[-1]
    more = pack_micro_batches(texts, names, micro_batches=3, row_multiple=10, **options)
    assert more["token_ids"].shape == (20, 3, 20)


def test_batches_of_any_size_meet_few_shapes_where_each_is_compiled():
    """Lengths as of Reddit's comments; a multiple is little of a batch."""
    rng = np.random.default_rng(0)
    for texts in (64, 1024, 8192):
        multiple = compiled_row_multiple(texts)
        rows = []
        for _ in range(12):
            lengths = np.clip(rng.lognormal(2.6, 0.7, texts), 1, 60).astype(np.int64)
            found = packed_places(lengths, ROW_TOKENS, row_multiple=multiple)
            rows.append(len(found.segment_lengths))
        assert len({*rows}) <= 3
        assert multiple <= max(32, min(rows) // 8)
    assert [compiled_row_multiple(texts) for texts in (1, 512, 1024, 8192)] == [32, 32, 32, 128]
