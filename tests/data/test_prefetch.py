import threading

import pytest

from convert_tf.data.prefetch import prefetched


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
    with prefetched(iter(int, 1)) as ready:  # endless
        assert next(ready) == 0
    assert threading.active_count() == before
