"""Dump files for the tests of the data package."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from support.dump_files import COMPRESSORS, json_lines


@pytest.fixture
def write_dump(tmp_path: Path) -> Callable[[str, Iterable[Any] | bytes], str]:
    """Writes a dump file, compressed as its name says; takes objects or raw bytes."""

    def write(name: str, lines: Iterable[Any] | bytes) -> str:
        data = lines if isinstance(lines, bytes) else json_lines(lines)
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(COMPRESSORS[path.suffix if path.suffix in COMPRESSORS else ""](data))
        return str(path)

    return write
