"""Iterators whose next items are prepared in threads while the current item is used."""

import collections
import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def in_order(
    function: Callable[[_Item], _Result], items: Iterable[_Item], *, at_once: int
) -> Iterator[_Result]:
    """Call a function on each item, in threads, and yield the results in the order of the items.

    Args:
      function: the function to call.
      items: the arguments for the calls; at most `at_once` items are taken in advance.
      at_once: number of simultaneous calls. If it is 1, the caller's thread makes the calls.
    """
    if at_once == 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(at_once, "in_order") as pool:
        running: collections.deque[Future[_Result]] = collections.deque()
        for item in items:
            running.append(pool.submit(function, item))
            if len(running) > at_once:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


@contextlib.contextmanager
def prefetched(items: Iterable[_Item], *, depth: int = 2) -> Iterator[Iterator[_Item]]:
    """Iterate in a thread, a few items ahead of the `with` block that uses the items.

    The block gets the items in the order of the iterable. If the iterable raises an error, the
    block gets the earlier items first and then the error. When the block ends, the thread finishes
    its current item and stops.

    Args:
      items: the iterable to take items from.
      depth: number of items to prepare in advance.

    Example:
      with prefetched(batches) as ready:
          for batch in ready: ...
    """
    iterator = iter(items)
    end: Any = object()
    with ThreadPoolExecutor(1, "prefetch") as pool:
        ready = collections.deque(pool.submit(next, iterator, end) for _ in range(depth))

        def take() -> Iterator[_Item]:
            while (item := ready.popleft().result()) is not end:
                ready.append(pool.submit(next, iterator, end))
                yield item

        try:
            yield take()
        finally:
            pool.shutdown(cancel_futures=True)
