"""What a service counts, in the text format that Prometheus reads."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Counters:
    """Counts of requests, batches and texts since the service started; for several threads.

    Args:
      queued: tells how many texts are waiting.

    Reference: Prometheus, "Exposition formats", text format 0.0.4.
    """

    def __init__(self, queued: Callable[[], int] = lambda: 0):
        self._lock = threading.Lock()
        self._queued = queued
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets: dict[str, Counter[float]] = {}
        self._seconds: dict[str, float] = {}
        self._batches: Counter[str] = Counter()
        self._texts: Counter[str] = Counter()
        self._busy_seconds = 0.0

    def request(self, path: str, status: int, seconds: float) -> None:
        """Counts an answer."""
        with self._lock:
            self._requests[path, status] += 1
            self._seconds[path] = self._seconds.get(path, 0.0) + seconds
            buckets = self._buckets.setdefault(path, Counter())
            buckets.update(bound for bound in _SECONDS if seconds <= bound)

    def batch(self, what: str, texts: int, seconds: float) -> None:
        """Counts a call of the model."""
        with self._lock:
            self._batches[what] += 1
            self._texts[what] += texts
            self._busy_seconds += seconds

    def text(self) -> str:
        """All counts, a line each."""
        with self._lock:
            return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        yield "# TYPE convert_tf_requests_total counter"
        for (path, status), number in sorted(self._requests.items()):
            yield f'convert_tf_requests_total{{path="{path}",status="{status}"}} {number}'
        yield "# TYPE convert_tf_request_seconds histogram"
        for path, buckets in sorted(self._buckets.items()):
            total = sum(n for (own, _), n in self._requests.items() if own == path)
            name = "convert_tf_request_seconds"
            for bound in _SECONDS:
                yield f'{name}_bucket{{path="{path}",le="{bound:g}"}} {buckets[bound]}'
            yield f'{name}_bucket{{path="{path}",le="+Inf"}} {total}'
            yield f'{name}_sum{{path="{path}"}} {self._seconds[path]:.6f}'
            yield f'{name}_count{{path="{path}"}} {total}'
        for name, counts in (("batches", self._batches), ("texts", self._texts)):
            yield f"# TYPE convert_tf_{name}_total counter"
            for what, number in sorted(counts.items()):
                yield f'convert_tf_{name}_total{{kind="{what}"}} {number}'
        yield "# TYPE convert_tf_model_seconds_total counter"
        yield f"convert_tf_model_seconds_total {self._busy_seconds:.6f}"
        yield "# TYPE convert_tf_queued_texts gauge"
        yield f"convert_tf_queued_texts {self._queued()}"
