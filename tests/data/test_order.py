import itertools

import numpy as np
import pytest

from convert_tf.data.batches import CHUNK_SIZE, ExampleOrder


def _examples_from(order: ExampleOrder, position: int, number: int) -> list[int]:
    """The next examples at a position, by their numbers."""
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
    """An epoch's order does not depend on the epochs before it."""
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
    """4! orders, each of 2,400 seeds with probability 1/24: 100 ± 10 times."""
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
    """Runs that were begun with an earlier version go on in the same order."""
    order = ExampleOrder(10, shuffle_buffer=4, seed=7)
    assert _examples_from(order, 0, 20) == [
        *[3, 4, 6, 9, 0, 7, 2, 8, 5, 1],
        *[2, 3, 1, 7, 5, 9, 4, 8, 6, 0],
    ]


def test_nothing_has_no_order():
    with pytest.raises(ValueError, match="no examples"):
        ExampleOrder(0, shuffle_buffer=10, seed=0)
