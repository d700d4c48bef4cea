"""What the workers of a test run took at most, and the tests that raised it: in the summary."""

import heapq

import pytest


def _peak_bytes() -> int:
    """Of this process since it began; 0 where Linux does not tell.

    `getrusage` would count what a worker was before it became one.
    """
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return 0


class _Peak:
    """What each test added to the peak of this worker."""

    def __init__(self, config):
        self._config = config
        self._rises = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        before = _peak_bytes()
        done = yield
        self._rises.append((_peak_bytes() - before, item.nodeid))
        return done

    def pytest_sessionfinish(self):
        self._config.workeroutput["peak_bytes"] = (_peak_bytes(), heapq.nlargest(3, self._rises))


class _Report:
    """The peaks of all workers, in the summary."""

    def __init__(self):
        self._peaks = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        peak, largest = getattr(node, "workeroutput", {}).get("peak_bytes", (0, []))
        if peak:
            self._peaks.append((node.gateway.id, peak, largest))

    def pytest_terminal_summary(self, terminalreporter):
        if not self._peaks:
            return
        terminalreporter.section("memory")
        for worker, peak, largest in sorted(self._peaks):
            rises = ", ".join(f"{name} +{rise / 1e9:.2f}" for rise, name in largest)
            terminalreporter.line(f"{worker} {peak / 1e9:.2f} GB at most, of it by {rises}")


def pytest_configure(config):
    """Registers the half that belongs to this process."""
    if hasattr(config, "workeroutput"):
        config.pluginmanager.register(_Peak(config))
    else:
        config.pluginmanager.register(_Report())
