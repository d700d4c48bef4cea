"""Dumps for tests, and a fixture that writes dump files."""

import bz2
import gzip
import hashlib
import json
import lzma
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import zstandard

COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    ".zst": lambda data: zstandard.ZstdCompressor().compress(data),
    ".bz2": bz2.compress,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    "": lambda data: data,
}


def comment(
    comment_id: str, parent: str, body: str, *, link: str = "t3_5h6yvl", **fields: Any
) -> dict[str, Any]:
    """Return a comment as a line of a dump stores it."""
    return {
        "id": comment_id,
        "link_id": link,
        "parent_id": parent,
        "body": body,
        "author": f"author of {comment_id}",
        "subreddit": "tests",
        **fields,
    }


def json_lines(objects: Iterable[Any]) -> bytes:
    """Return objects as the lines of a dump."""
    return "".join(json.dumps(one) + "\n" for one in objects).encode("utf-8")


def random_dump(num_threads: int, seed: int = 0) -> tuple[list[dict], list[dict]]:
    """Return the comments of random threads, and the submissions of most of them."""
    rng = random.Random(seed)
    comments: list[dict] = []
    submissions = []
    for thread in range(num_threads):
        link = f"t3_thread{thread}"
        if rng.random() < 0.7:
            submissions.append({"id": link[3:], "title": f"what about number {thread}?"})
        parents = [link]
        for _ in range(rng.randrange(1, 12)):
            name = f"c{len(comments)}"
            comments.append(comment(name, rng.choice(parents), f"remark number {name}", link=link))
            parents.append(f"t1_{name}")
    return comments, submissions


def digests(folder: str | Path) -> dict[str, str]:
    """Return the SHA-256 of each file in a folder, by file name."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in Path(folder).iterdir()
    }


@pytest.fixture
def write_dump(tmp_path: Path) -> Callable[[str, Iterable[Any] | bytes], str]:
    """Return a function that writes objects or bytes to a dump, compressed as its name says."""

    def write(name: str, lines: Iterable[Any] | bytes) -> str:
        data = lines if isinstance(lines, bytes) else json_lines(lines)
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(COMPRESSORS[path.suffix if path.suffix in COMPRESSORS else ""](data))
        return str(path)

    return write
