"""Show the progress of long work: one line that is updated on a terminal, or lines in a log."""

import datetime
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

_SECONDS_ON_TERMINAL = 0.2
_SECONDS_IN_LOG = 30.0


def _size(num_bytes: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if num_bytes < 1000:
            return f"{num_bytes:.0f} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.1f} GB"


class Progress:
    """Prints the number of processed items, the rate and the time left to standard error.

    ```
    with Progress("comments", total_bytes=sizes) as progress:
        for item in items:
            progress.add(1, bytes_done=position)
    ```

    Args:
      what: plural name of the items, such as "comments".
      total: number of items; 0 if it is unknown.
      total_bytes: size of the input in bytes; 0 if progress is measured in items.
    """

    def __init__(self, what: str, *, total: int = 0, total_bytes: int = 0) -> None:
        self.what = what
        self.total = total
        self.total_bytes = total_bytes
        self.count = 0
        self.bytes_done = 0
        self._is_terminal = sys.stderr.isatty()
        self._pause = _SECONDS_ON_TERMINAL if self._is_terminal else _SECONDS_IN_LOG
        self._started = self._printed = time.monotonic()
        self._is_line_open = False

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_line_open:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def add(self, number: int = 1, *, bytes_done: int = 0) -> None:
        """Count `number` more items, and record the position in the input, in bytes."""
        self.count += number
        self.bytes_done = bytes_done
        now = time.monotonic()
        if now - self._printed >= self._pause:
            self._printed = now
            line = self.line(now - self._started)
            if self._is_terminal:
                print(f"\r{line}\033[K", end="", file=sys.stderr, flush=True)
                self._is_line_open = True
            else:
                print(line, file=sys.stderr, flush=True)

    def counted(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the items, counting each of them."""
        for item in items:
            self.add()
            yield item

    def line(self, seconds: float) -> str:
        """Return the progress line after a number of seconds."""
        parts = [f"{self.count:,} {self.what}", f"{self.count / max(seconds, 1e-9):,.0f}/s"]
        done = 0.0
        if self.total:
            parts[0] = f"{self.count:,} of {self.total:,} {self.what}"
            done = self.count / self.total
        if self.total_bytes:
            left = max(self.total_bytes - self.bytes_done, 0)
            parts.append(f"{_size(left)} of {_size(self.total_bytes)} left")
            done = self.bytes_done / self.total_bytes
        if done:
            seconds_left = int(seconds * (1 - min(done, 1)) / done)
            parts.append(f"{datetime.timedelta(seconds=seconds_left)} left")
        return ", ".join(parts)
