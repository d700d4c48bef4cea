import io
import time

import pytest

from convert_tf.storage.progress import Progress


@pytest.mark.parametrize(
    ("options", "count", "bytes_done", "seconds", "expected"),
    [
        ({}, 1_000, 0, 2.0, "1,000 lines, 500/s"),
        ({"total": 4_000}, 1_000, 0, 2.0, "1,000 of 4,000 lines, 500/s, 0:00:06 left"),
        ({"total_bytes": 3_000_000_000}, 500_000, 1_000_000_000, 3600.0,
         "500,000 lines, 139/s, 2.0 GB of 3.0 GB left, 2:00:00 left"),
        ({"total_bytes": 5_000}, 7, 4_500, 1.0,
         "7 lines, 7/s, 500 bytes of 5 kB left, 0:00:00 left"),
        ({"total_bytes": 5_000}, 7, 6_000, 1.0,
         "7 lines, 7/s, 0 bytes of 5 kB left, 0:00:00 left"),  # the file grew while it was read
        ({}, 1, 0, 0.5, "1 lines, 2/s"),
        ({"total_bytes": 10}, None, None, 1.0, "0 lines, 0/s, 10 bytes of 10 bytes left"),
    ],
)  # fmt: skip
def test_line(options, count, bytes_done, seconds, expected):
    progress = Progress("lines", **options)
    if count is not None:
        progress.add(count, bytes_done=bytes_done)
    assert progress.line(seconds) == expected


def test_a_log_gets_a_line_now_and_then(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with Progress("lines") as progress:
        for _ in range(10):
            now[0] += 8.0
            progress.add(1_000)
    printed = capsys.readouterr().err.splitlines()
    assert printed == ["4,000 lines, 125/s", "8,000 lines, 125/s"]


def test_a_terminal_gets_one_line_that_goes_away(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with Progress("lines") as progress:
        progress._printed -= 1.0
        progress.add(1_000)
    printed = capsys.readouterr().err
    assert printed.startswith("\r1,000 lines, ")
    assert printed.endswith("\r\033[K")
    assert "\n" not in printed


def test_the_line_is_gone_before_the_next_output(monkeypatch):
    """The output is flushed, because the next output may bypass Python's buffer."""
    written = io.BytesIO()
    terminal = io.TextIOWrapper(written, encoding="utf-8")
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr", terminal)
    with Progress("lines") as progress:
        progress._printed -= 1.0
        progress.add(1_000)
        assert written.getvalue().startswith(b"\r1,000 lines, ")
    assert written.getvalue().endswith(b"\r\033[K")


def test_a_terminal_where_nothing_was_printed_stays_empty(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with Progress("lines") as progress:
        assert list(progress.counted("abc")) == ["a", "b", "c"]
    assert progress.count == 3
    assert not capsys.readouterr().err
