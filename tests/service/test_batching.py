"""Concurrent callers share calls of the model, and each gets its own results."""

import asyncio
import threading

import pytest

from convert_tf.service.batching import Batcher, BusyError, Limits

pytest.importorskip("anyio")
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Doubles:
    """Doubles numbers when allowed to, and records its inputs; strings raise errors."""

    def __init__(self):
        self.calls = []
        self.may_go = threading.Event()

    def __call__(self, items):
        assert self.may_go.wait(5)
        self.calls.append(list(items))
        return [2 * (item + 0) for item in items]


@pytest.fixture
def function():
    return Doubles()


async def asked(batcher, *calls):
    """Return waiting tasks for these calls."""
    tasks = [asyncio.create_task(batcher("double", items)) for items in calls]
    await asyncio.sleep(0.02)
    return tasks


async def test_callers_that_wait_share_the_next_call(function):
    async with Batcher({"double": function}) as batcher:
        first = await asked(batcher, [1])
        others = await asked(batcher, [10, 11], [20, 21], [30, 31])
        assert batcher.queued == 6
        function.may_go.set()
        assert await asyncio.gather(*first, *others) == [[2], [20, 22], [40, 42], [60, 62]]
        assert batcher.queued == 0
    assert function.calls == [[1], [10, 11, 20, 21, 30, 31]]


async def test_batches_are_of_one_function_and_not_too_large():
    calls = []
    functions = {
        name: lambda items, name=name: calls.append((name, len(items))) or items for name in "ab"
    }
    async with Batcher(functions, Limits(batch_size=5)) as batcher:
        jobs = [batcher("ab"[n % 2], [n] * 2) for n in range(8)]
        found = await asyncio.gather(*jobs, batcher("a", [9] * 50))
        assert found == [[n] * 2 for n in range(8)] + [[9] * 50]
    assert sum(size for _, size in calls) == 66
    assert max(size for _, size in calls if size != 50) <= 5
    assert ("a", 50) in calls  # the items of one caller are not split


async def test_too_much_is_refused_and_the_rest_is_answered(function):
    async with Batcher({"double": function}, Limits(max_queue=3)) as batcher:
        (running,) = await asked(batcher, [0])
        (waiting,) = await asked(batcher, [1, 2])
        with pytest.raises(BusyError, match=r"2 of at most 3 texts .* request has 2"):
            await batcher("double", [3, 4])
        function.may_go.set()
        assert await waiting == [2, 4]
        # An empty queue accepts any number.
        assert await batcher("double", [3, 4, 5, 6]) == [6, 8, 10, 12]
        await running


async def test_those_who_share_a_batch_with_an_error_are_answered(function):
    async with Batcher({"double": function}) as batcher:
        tasks = await asked(batcher, [0]) + await asked(batcher, [1, 2], ["bad"], [3])
        function.may_go.set()
        first, one, bad, other = await asyncio.gather(*tasks, return_exceptions=True)
    assert (first, one, other) == ([0], [2, 4], [6])
    assert isinstance(bad, TypeError)
    assert function.calls == [[0], [1, 2, "bad", 3], [1, 2], ["bad"], [3]]


async def test_nobody_waits_for_what_does_not_run(function):
    batcher = Batcher({"double": function})
    with pytest.raises(BusyError, match=r"starting or stopping"):
        await asyncio.wait_for(batcher("double", [1]), 5)
    async with batcher:
        tasks = await asked(batcher, [1]) + await asked(batcher, [2])
        threading.Timer(0.1, function.may_go.set).start()
    for call in (*tasks, batcher("double", [1])):
        with pytest.raises(BusyError):
            await asyncio.wait_for(call, 5)


async def test_a_function_gives_a_result_for_each_item():
    async with Batcher({"short": lambda items: items[1:]}) as batcher:
        with pytest.raises(ValueError, match="1 results for 2 items"):
            await batcher("short", [1, 2])


async def test_callers_that_are_gone_are_left_out(function):
    async with Batcher({"double": function}) as batcher:
        (running,) = await asked(batcher, [1])
        (gone,) = await asked(batcher, [2, 3])
        gone.cancel()
        (last,) = await asked(batcher, [4])
        assert batcher.queued == 1
        function.may_go.set()
        assert (await running, await last) == ([2], [8])
        assert batcher.queued == 0
    assert function.calls == [[1], [4]]
