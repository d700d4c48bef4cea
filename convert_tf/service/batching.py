"""Compute requests that arrive at the same time in one batch."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

Compute = Callable[[list[Any]], Sequence[Any]]


class BusyError(Exception):
    """The queue is full, or the batcher does not run. The caller should try again later."""


class _Job(NamedTuple):
    what: str
    items: list[Any]
    answer: "asyncio.Future[list[Any]]"

    def succeed(self, results: list[Any]) -> None:
        if not self.answer.done():  # its caller may be gone
            self.answer.set_result(results)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class Batcher:
    """Computes the items of several callers in one call, and returns each caller its results.

    Items do not wait to fill a batch: the next batch collects the items that arrive while one is
    computed. So a single caller is served at once, and many callers share few calls. One thread
    computes, because a function uses all cores. Callers whose tasks were cancelled are left out. If
    a batch fails, the items of each caller are computed again on their own, so that only callers
    with bad items get an error.

    Args:
      functions: functions by name, from items to one result for each item.
      max_batch: largest number of items of several callers in a batch. The items of one caller are
        never split.
      max_queued: largest number of waiting items of all callers.
      on_batch: called after each batch with the name of the function, the number of items and the
        seconds.

    Example:
      async with Batcher({"sentence": encoder.encode}) as batcher:
          vectors = await batcher("sentence", ["where is my card?"])
    """

    def __init__(
        self,
        functions: Mapping[str, Compute],
        *,
        max_batch: int = 256,
        max_queued: int = 10_000,
        on_batch: Callable[[str, int, float], None] = lambda what, items, seconds: None,
    ):
        self._functions = dict(functions)
        self._max_batch = max_batch
        self._max_queued = max_queued
        self._on_batch = on_batch
        self._waiting: deque[_Job] = deque()
        self.queued = 0  # items that wait
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="encoder")
        self._has_work = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Batcher":
        self._worker = asyncio.create_task(self._work())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        self._thread.shutdown()
        while self._waiting:
            self._waiting.popleft().fail(_not_running())

    @property
    def is_running(self) -> bool:
        """Whether what is queued will be computed."""
        return self._worker is not None and not self._worker.done()

    async def __call__(self, what: str, items: Sequence[Any]) -> list[Any]:
        """The results of items, in their order.

        Args:
          what: name of a function.
          items: what it computes.

        Raises:
          BusyError: too many items wait already, or this is not in the `async with` block.
        """
        if not items:
            return []
        if not self.is_running:
            raise _not_running()
        if self.queued and self.queued + len(items) > self._max_queued:
            raise BusyError(
                f"The queue is full: {self.queued:,} of {self._max_queued:,} texts wait, and "
                f"this request has {len(items):,}. Try again in a second."
            )
        job = _Job(what, list(items), asyncio.get_running_loop().create_future())
        self._waiting.append(job)
        self.queued += len(job.items)
        self._has_work.set()
        try:
            return await job.answer
        except asyncio.CancelledError:
            if job in self._waiting:  # make room for others at once
                self._waiting.remove(job)
                self.queued -= len(job.items)
            raise

    async def _work(self) -> None:
        while True:
            await self._has_work.wait()
            jobs = self._next_jobs()
            if not jobs:
                self._has_work.clear()
                continue
            try:
                await self._answer(jobs)
            except asyncio.CancelledError:
                for job in jobs:
                    job.fail(_not_running())
                raise

    async def _answer(self, jobs: Sequence[_Job]) -> None:
        """Compute jobs of one function."""
        items = [item for job in jobs for item in job.items]
        started = time.perf_counter()
        try:
            results = await asyncio.get_running_loop().run_in_executor(
                self._thread, self._computed, jobs[0].what, items
            )
        except Exception as error:
            if len(jobs) == 1:
                jobs[0].fail(error)
                return
            for job in jobs:
                if not job.answer.done():
                    await self._answer([job])
            return
        start = 0
        for job in jobs:
            job.succeed(results[start : start + len(job.items)])
            start += len(job.items)
        self._on_batch(jobs[0].what, len(items), time.perf_counter() - started)

    def _computed(self, what: str, items: list[Any]) -> list[Any]:
        results = list(self._functions[what](items))
        if len(results) != len(items):
            raise ValueError(f"{what} gave {len(results)} results for {len(items)} items")
        return results

    def _next_jobs(self) -> list[_Job]:
        """Take the oldest job from the queue, and jobs of the same function that fit."""
        taken: list[_Job] = []
        kept: deque[_Job] = deque()
        size = 0
        while self._waiting:
            job = self._waiting.popleft()
            if job.answer.done():  # its caller is gone
                self.queued -= len(job.items)
            elif not taken or (
                job.what == taken[0].what and size + len(job.items) <= self._max_batch
            ):
                taken.append(job)
                size += len(job.items)
            else:
                kept.append(job)
        self._waiting = kept
        self.queued -= size
        return taken


def _not_running() -> BusyError:
    return BusyError(
        "The service is starting or stopping, and computes nothing. Try again in a second."
    )
