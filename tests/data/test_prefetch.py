import threading

import pytest

from convert_tf.data.prefetch import Prefetch


def test_items_come_in_their_order_and_end():
    with Prefetch(iter(range(100)), depth=3) as prefetched:
        assert list(prefetched) == list(range(100))
        assert next(prefetched, "ended") == "ended"


def test_it_works_ahead_and_no_further_than_it_is_told():
    started = [threading.Event() for _ in range(10)]

    def items():
        for event in started:
            event.set()
            yield event

    with Prefetch(items(), depth=2) as prefetched:
        # Two wait to be taken, and a third is made.
        assert all(event.wait(10) for event in started[:3])
        assert not started[3].wait(0.1)
        next(prefetched)
        assert started[3].wait(10)
        assert not started[4].wait(0.1)


def test_an_error_comes_behind_the_items_before_it():
    def items():
        yield 1
        yield 2
        raise ValueError("broken")

    with Prefetch(items()) as prefetched:
        assert next(prefetched) == 1
        assert next(prefetched) == 2
        for _ in range(2):
            with pytest.raises(ValueError, match="broken"):
                next(prefetched)
        assert str(prefetched.error) == "broken"


def test_leaving_ends_the_thread_and_whoever_waits():
    before = threading.active_count()
    is_waiting, go_on = threading.Event(), threading.Event()
    got: list[object] = []

    def items():
        is_waiting.set()
        go_on.wait(10)
        yield 1

    prefetched = Prefetch(items())
    consumer = threading.Thread(target=lambda: got.append(next(prefetched, "ended")))
    with prefetched:
        consumer.start()
        assert is_waiting.wait(10)
        closer = threading.Timer(0.1, go_on.set)
        closer.start()
    consumer.join(10)
    closer.join()
    assert got in (["ended"], [1])
    assert threading.active_count() == before


def test_leaving_early_ends_a_thread_that_has_no_room():
    before = threading.active_count()
    with Prefetch(iter(int, 1), depth=2) as prefetched:  # endless
        assert next(prefetched) == 0
    assert threading.active_count() == before
    assert next(prefetched, "ended") == "ended"
