import itertools
import threading

import numpy as np
import pytest
from support.model_cases import texts_in

from convert_tf.data.batches import CHUNK_SIZE, ExampleOrder
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
from convert_tf.data.prefetch import prefetched


def _random_lengths(seed: int, *, longest: int = 20) -> np.ndarray:
    random = np.random.RandomState(seed)
    return random.randint(0, longest + 1, size=random.randint(0, 60))


def _packed(lengths, *, row_tokens: int = 20) -> tuple[TokenIds, dict]:
    splits = np.cumsum([0, *lengths])
    texts = TokenIds(np.arange(splits[-1]), splits)  # every token has a different id
    return texts, pack_batch(texts, ["text"], row_tokens=row_tokens, padding_id=-1)


@pytest.mark.parametrize("seed", range(30))
def test_every_text_is_where_its_slot_says(seed):
    lengths = _random_lengths(seed, longest=seed)
    texts, batch = _packed(lengths, row_tokens=max(seed, 1))
    assert {value.dtype for value in batch.values()} == {np.dtype("int32")}
    assert len(set(batch["text_slots"])) == len(lengths)
    bounds = itertools.pairwise(texts.row_splits)
    assert texts_in(batch, "text") == [tuple(texts.flat[start:stop]) for start, stop in bounds]
    # All other positions are padding at the ends of the rows.
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
    """Return the tokens in each row if each text, longest first, joins the fullest row it fits."""
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
    lengths = np.maximum(_random_lengths(seed), 2)  # at most ten texts per row
    rows, _, _ = assign_rows(lengths, 20)
    tokens = [int(lengths[rows == row].sum()) for row in set(rows.tolist())]
    assert sorted(tokens) == _naive_best_fit(lengths, 20)


def test_nothing_and_only_empty_texts():
    _, batch = _packed(np.zeros(0, int))
    assert [batch[name].shape for name in ("token_ids", "segment_lengths", "text_slots")] == [
        (0, 20), (0, 16), (0,)
    ]  # fmt: skip
    _, batch = _packed(np.zeros(33, int))
    assert batch["token_ids"].shape == (3, 20)  # sixteen texts per row
    assert (batch["token_ids"] == -1).all()
    assert len(set(batch["text_slots"])) == 33


def test_a_text_longer_than_a_row_is_an_error():
    with pytest.raises(ValueError, match=r"has 21 tokens, but a row holds 20"):
        assign_rows(np.array([3, 21]), 20)


def test_micro_batches_hold_the_texts_of_every_nth_example():
    """All micro-batches have equally many rows; the k texts of an example stay together."""
    names = ["context", "response", "negative", "negative"]
    lengths = np.random.RandomState(0).randint(0, 21, size=(4, 12))
    lengths[:, 1::3] = 20  # the second micro-batch needs the most rows
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
    """Texts are as long as Reddit comments, and the row multiple is small relative to a batch."""
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


def _examples_from(order: ExampleOrder, position: int, number: int) -> list[int]:
    """Return the numbers of the next examples at a position."""
    found: list[int] = []
    for group in order.groups(position):
        found.extend(group.numbers[group.permutation].tolist())
        if len(found) >= number:
            return found[:number]
    raise AssertionError("an order has no end")


SIZES = [(1, 1), (1, 100), (7, 1), (100, 10), (100, 33), (100, 100), (100, 1000), (5000, 1700),
         (5000, 40_000)]  # fmt: skip


@pytest.mark.parametrize(("num_examples", "shuffle_buffer"), SIZES)
def test_each_example_comes_once_in_every_epoch(num_examples, shuffle_buffer):
    order = ExampleOrder(num_examples, shuffle_buffer=shuffle_buffer, seed=3)
    seen = _examples_from(order, 0, 3 * num_examples)
    epochs = [seen[i : i + num_examples] for i in range(0, len(seen), num_examples)]
    assert all(sorted(epoch) == list(range(num_examples)) for epoch in epochs)
    if num_examples > 10:
        assert epochs[0] != epochs[1] != epochs[2] != list(range(num_examples))


@pytest.mark.parametrize(("num_examples", "shuffle_buffer"), SIZES)
def test_order_goes_on_at_any_position(num_examples, shuffle_buffer):
    order = ExampleOrder(num_examples, shuffle_buffer=shuffle_buffer, seed=3)
    whole = _examples_from(order, 0, 3 * num_examples + 5)
    places = {0, 1, num_examples - 1, num_examples, num_examples + 1, 2 * num_examples + 3}
    for position in places | {3 * num_examples // 2}:
        rest = whole[position:]
        assert _examples_from(order, position, len(rest)) == rest


def test_far_position_is_found_without_what_lies_before_it():
    """The order of an epoch does not depend on earlier epochs."""
    order = ExampleOrder(1000, shuffle_buffer=200, seed=0)
    assert sorted(_examples_from(order, 1000 * 10**12, 1000)) == list(range(1000))


@pytest.mark.parametrize(("num_examples", "shuffle_buffer"), SIZES)
def test_groups_keep_to_the_buffer_and_cover_only_whole_chunks(num_examples, shuffle_buffer):
    order = ExampleOrder(num_examples, shuffle_buffer=shuffle_buffer, seed=0)
    for group in itertools.islice(order.groups(), 20):
        assert len(group.permutation) == len(group.numbers) <= shuffle_buffer
        assert sorted(group.permutation) == list(range(len(group.permutation)))
        firsts = group.numbers[np.diff(group.numbers, prepend=-2) != 1]
        assert (firsts % order.chunk_size == 0).all()
        assert order.chunk_size <= CHUNK_SIZE


def test_seed_and_buffer_are_part_of_the_order():
    def order(**changes):
        options = {"shuffle_buffer": 100, "seed": 0, **changes}
        return _examples_from(ExampleOrder(300, **options), 0, 300)

    assert order() == order()
    assert order(seed=1) != order()
    assert order(shuffle_buffer=90) != order()


def test_every_order_of_a_full_buffer_is_as_likely():
    """Each of the 4! orders occurs for 2,400 seeds with probability 1/24: 100 ± 10 times."""
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(2400):
        found = tuple(_examples_from(ExampleOrder(4, shuffle_buffer=4, seed=seed), 0, 4))
        counts[found] = counts.get(found, 0) + 1
    assert len(counts) == 24
    assert max(abs(count - 100) for count in counts.values()) < 50


def test_small_buffer_still_takes_its_chunks_from_all_over_the_split():
    first = _examples_from(ExampleOrder(100_000, shuffle_buffer=1600, seed=0), 0, 1600)
    assert np.histogram(first, bins=4, range=(0, 100_000))[0].min() >= 100


def test_order_stays_what_it_is():
    """Runs started with an earlier version must resume in the same order."""
    order = ExampleOrder(10, shuffle_buffer=4, seed=7)
    assert _examples_from(order, 0, 20) == [
        *[3, 4, 6, 9, 0, 7, 2, 8, 5, 1],
        *[2, 3, 1, 7, 5, 9, 4, 8, 6, 0],
    ]


def test_nothing_has_no_order():
    with pytest.raises(ValueError, match="no examples"):
        ExampleOrder(0, shuffle_buffer=10, seed=0)


def test_items_come_in_their_order_and_end():
    with prefetched(range(100), depth=3) as ready:
        assert list(ready) == list(range(100))
        assert next(ready, "ended") == "ended"


def test_it_works_ahead_and_no_further_than_it_is_told():
    started = [threading.Event() for _ in range(10)]

    def items():
        for event in started:
            event.set()
            yield event

    with prefetched(items(), depth=2) as ready:
        assert all(event.wait(10) for event in started[:2])
        assert not started[2].wait(0.1)
        next(ready)
        assert started[2].wait(10)
        assert not started[3].wait(0.1)


def test_an_error_comes_behind_the_items_before_it():
    def items():
        yield 1
        yield 2
        raise ValueError("broken")

    with prefetched(items()) as ready:
        assert [next(ready), next(ready)] == [1, 2]
        with pytest.raises(ValueError, match="broken"):
            next(ready)


def test_leaving_early_ends_the_thread():
    before = threading.active_count()
    with prefetched(iter(int, 1)) as ready:  # infinite
        assert next(ready) == 0
    assert threading.active_count() == before
