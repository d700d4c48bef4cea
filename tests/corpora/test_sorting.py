import errno
import json
import random
from contextlib import closing

import duckdb
import pytest
from support.processes import printed_by

from convert_tf.corpora import local
from convert_tf.corpora.local import ExternalSorter


def _sorted(folder, rows, **options):
    with closing(ExternalSorter(str(folder), name="rows", **options)) as sorter:
        for row in rows:
            sorter.add(*row)
        return list(sorter.sorted_rows())


def test_gives_rows_back_in_the_bytewise_order_of_keys(tmp_path):
    rng = random.Random(0)
    texts = ["plain", "tab\tand\nline\r\nend", '"quoted" \\ back', "é 😀 \u0000 nul", ""]
    rows = [(f"k{rng.randrange(500)}", json.dumps([n, rng.choice(texts)])) for n in range(5000)]
    rows += [
        (key, "[]") for key in ["b", "B", "a_", "a-", "A", "10", "9", "_", "nan", "null", "true"]
    ]
    result = _sorted(tmp_path, rows)
    assert [key for key, _ in result] == sorted(key for key, _ in rows)
    assert result == sorted(rows)  # as Spark sorts them
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("length", [1_999_990, 2_000_000, 40_000_000])
def test_rows_of_any_length(tmp_path, length):
    # DuckDB itself limits lines to 2,000,000 bytes.
    short = [("a", f"{n:04d}" * 50) for n in range(2000)]
    rows = _sorted(tmp_path, [("b", "x" * length), *short])
    assert rows[:-1] == short
    assert rows[-1] == ("b", "x" * length)


def test_memory_limit_must_be_understood(tmp_path):
    with pytest.raises(ValueError, match="'lots' is not a valid memory size"):
        ExternalSorter(str(tmp_path), name="rows", memory_limit="lots")


def test_memory_limit_that_is_too_low(tmp_path):
    rows = ((f"{n % 977:05d}", "x" * 1000) for n in range(20_000))
    with pytest.raises(MemoryError, match="memory_limit='1MB' is too small"):
        _sorted(tmp_path, rows, memory_limit="1MB")


@pytest.mark.parametrize(
    "message",
    [
        'IO Error: Could not write file "x": No space left on device',
        "Out of Memory Error: failed to offload data block (max_temp_directory_size 1GB)",
    ],
)
def test_full_disk_while_sorting_is_an_os_error(tmp_path, monkeypatch, message):
    class FullConnection:
        def execute(self, *_):
            raise duckdb.IOException(message)

        def close(self):
            pass

    monkeypatch.setattr(duckdb, "connect", lambda config: FullConnection())
    with pytest.raises(OSError, match="No space left") as caught:
        _sorted(tmp_path, [("a", "[]")])
    assert caught.value.errno == errno.ENOSPC


def test_lost_rows_are_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "_SORT", local._SORT + " LIMIT 2")
    with pytest.raises(OSError, match="2 of 3 rows"):
        _sorted(tmp_path, [(key, "[]") for key in "abc"])


_SORT_MORE_THAN_MEMORY = """
import contextlib, resource, sys
from convert_tf.corpora.local import ExternalSorter
with contextlib.closing(ExternalSorter(sys.argv[1], name="rows", memory_limit="300MB")) as sorter:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for n in range(800_000):
        sorter.add(f"{n * 7919 % 800_000:08d}", f"{n:08d}" + "x" * 600)
    last, number = "", 0
    for key, payload in sorter.sorted_rows():
        assert last <= key
        last, number = key, number + 1
    assert number == 800_000
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_sorts_more_rows_than_its_memory_limit(tmp_path):
    # 490 MB of rows are sorted while DuckDB is limited to 300 MB. On Linux, ru_maxrss is in kB.
    assert int(printed_by(_SORT_MORE_THAN_MEMORY, tmp_path)) < 420_000
