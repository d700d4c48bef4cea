"""Making the next items while one is used."""

import collections
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def in_order(
    function: Callable[[_Item], _Result], items: Iterable[_Item], *, at_once: int
) -> Iterator[_Result]:
    """Call a function on each item, in threads, and yield the results in the items' order.

    Args:
      function: what to call.
      items: its arguments; at most `at_once` of them are taken ahead.
      at_once: calls at the same time; with 1 the caller's thread makes each call.
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


class Prefetch(Iterator[Any]):
    """Iterates in a thread of its own, a few items ahead of whoever takes them.

    The items come in the order of the iterable. What it raises is raised again when the items
    before it have been taken. Leaving the `with` block ends the thread.

    Args:
      items: what to iterate over.
      depth: items that are made ahead.

    Attributes:
      error: what the iterable raised, or None.

    Example:
      with Prefetch(batches) as prefetched:
          for batch in prefetched: ...
    """

    def __init__(self, items: Iterable[Any], *, depth: int = 2):
        self.error: BaseException | None = None
        self._items = items
        self._depth = depth
        self._ready: collections.deque[Any] = collections.deque()
        self._is_closed = False
        self._has_ended = False
        self._changed = threading.Condition()
        # A daemon: a caller that never closes it does not keep the process from ending.
        self._thread = threading.Thread(target=self._fill, name="prefetch", daemon=True)

    def __enter__(self) -> "Prefetch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_closed = True
            self._ready.clear()
            self._changed.notify_all()
        self._thread.join()

    def __next__(self) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._has_ended or self._is_closed)
            if self._ready:
                item = self._ready.popleft()
                self._changed.notify_all()
                return item
        if self.error is not None and not self._is_closed:
            raise self.error
        raise StopIteration

    def _fill(self) -> None:
        try:
            for item in self._items:
                with self._changed:
                    self._changed.wait_for(
                        lambda: len(self._ready) < self._depth or self._is_closed
                    )
                    if self._is_closed:
                        return
                    self._ready.append(item)
                    self._changed.notify_all()
        except BaseException as error:  # of any kind: the caller is to see it, not the thread
            self.error = error
        finally:
            with self._changed:
                self._has_ended = True
                self._changed.notify_all()
