"""Compute the results for simultaneous requests in one batch, within limits."""

import asyncio
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, NamedTuple

from convert_tf.config.base import Config, option

Compute = Callable[[list[Any]], Sequence[Any]]


@dataclasses.dataclass(frozen=True)
class Limits(Config):
    """Limits for requests. `convert-tf serve` has a flag for each of them.

    Attributes:
      max_texts: Maximum number of texts per request. Contexts and responses are counted separately.
      max_characters: Maximum length of a text, in characters.
      max_bytes: Maximum size of a request, in bytes.
      max_queue: Maximum number of texts that may wait. A request that would exceed this number is
        refused with status 503.
      batch_size: Maximum number of texts of several requests in one batch. The texts of a request
        are never split, so a larger request is a batch by itself.
    """

    max_texts: int = option(2048, at_least=1)
    max_characters: int = option(20_000, at_least=1)
    max_bytes: int = option(8 * 2**20, at_least=1)
    max_queue: int = option(20_000, at_least=1)
    batch_size: int = option(256, at_least=1)


class BusyError(Exception):
    """The queue is full, or the batcher is not running. The caller should try again later."""


class _Job(NamedTuple):
    what: str
    items: list[Any]
    answer: "asyncio.Future[list[Any]]"  # already done if the caller has gone away


class Batcher:
    """Computes the items of several callers in one batch, and returns each caller's results.

    Batches do not wait until they are full: the items that arrive while a batch is computed form
    the next batch. A single caller is therefore served at once, and many callers share a few
    batches. Only one thread computes, because each function uses all cores. Items of callers whose
    tasks were cancelled are left out. If a batch fails, the items of each caller are computed again
    separately, so that only callers with bad items get an error.

    Args:
      functions: functions that compute items, by name. Each takes a list of items and returns a
        result for each item.
      limits: maximum numbers of items per batch and of waiting items, or None for the defaults. The
        items of one call are never split, so they may exceed the maximum per batch.
      on_batch: function that is called after each batch with the name of the function, the number
        of items and the seconds that the batch took.

    Example:
      async with Batcher({"sentence": encoder.encode}) as batcher:
          vectors = await batcher("sentence", ["where is my card?"])
    """

    def __init__(
        self,
        functions: Mapping[str, Compute],
        limits: Limits | None = None,
        *,
        on_batch: Callable[[str, int, float], None] = lambda what, items, seconds: None,
    ) -> None:
        self._functions = functions
        self._limits = limits or Limits()
        self._on_batch = on_batch
        self._waiting: list[_Job] = []
        self._computing: list[_Job] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="encoder")
        self._has_work = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Batcher":
        self._worker = asyncio.create_task(self._work())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._worker is not None
        self._worker.cancel()
        await asyncio.gather(self._worker, return_exceptions=True)
        self._thread.shutdown()
        for job in (*self._computing, *self._waiting):
            if not job.answer.done():
                job.answer.set_exception(_not_running())

    @property
    def is_running(self) -> bool:
        """Whether the batcher is running, so that queued items will be computed."""
        return self._worker is not None and not self._worker.done()

    @property
    def queued(self) -> int:
        """Number of waiting items."""
        return sum(len(job.items) for job in self._waiting if not job.answer.done())

    async def __call__(self, what: str, items: Sequence[Any]) -> list[Any]:
        """Return the results for items, in the order of the items.

        Args:
          what: name of the function that computes the items.
          items: items to compute.

        Raises:
          BusyError: if too many items are waiting, or the call is not inside the `async with` block
            of the batcher.
        """
        if not items:
            return []
        if not self.is_running:
            raise _not_running()
        max_queue = self._limits.max_queue
        if (queued := self.queued) and queued + len(items) > max_queue:
            raise BusyError(
                f"The queue is full: {queued:,} of at most {max_queue:,} texts are waiting, and "
                f"this request has {len(items):,}. Try again in a second."
            )
        job = _Job(what, list(items), asyncio.get_running_loop().create_future())
        self._waiting.append(job)
        self._has_work.set()
        return await job.answer

    async def _work(self) -> None:
        while True:
            await self._has_work.wait()
            self._computing = self._next_jobs()
            if self._computing:
                await self._answer(self._computing)
            else:
                self._has_work.clear()

    async def _answer(self, jobs: Sequence[_Job]) -> None:
        """Compute several jobs for the same function, and answer their callers."""
        what, items = jobs[0].what, [item for job in jobs for item in job.items]
        started = time.perf_counter()
        try:
            loop = asyncio.get_running_loop()
            results = list(await loop.run_in_executor(self._thread, self._functions[what], items))
            if len(results) != len(items):
                raise ValueError(f"{what} returned {len(results)} results for {len(items)} items.")
        except Exception as error:
            for job in jobs:
                if len(jobs) > 1 and not job.answer.done():
                    await self._answer([job])
                elif not job.answer.done():
                    job.answer.set_exception(error)
            return
        remaining = iter(results)
        for job in jobs:
            own_results = list(islice(remaining, len(job.items)))
            if not job.answer.done():
                job.answer.set_result(own_results)
        self._on_batch(what, len(items), time.perf_counter() - started)

    def _next_jobs(self) -> list[_Job]:
        """Take the oldest job, and other jobs for the same function that fit into the batch."""
        taken: list[_Job] = []
        left: list[_Job] = []
        size = 0
        for job in self._waiting:
            if job.answer.done():
                continue
            total = size + len(job.items)
            if not taken or (job.what == taken[0].what and total <= self._limits.batch_size):
                taken.append(job)
                size = total
            else:
                left.append(job)
        self._waiting = left
        return taken


def _not_running() -> BusyError:
    return BusyError(
        "The service is starting or stopping, so it cannot answer now. Try again in a second."
    )
