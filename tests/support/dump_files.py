"""What the tests of the data package write dumps with."""

import bz2
import gzip
import json
import lzma
from collections.abc import Callable, Iterable
from typing import Any

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
    """A comment as a dump line holds it."""
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
    """Objects as the lines of a dump."""
    return "".join(json.dumps(one) + "\n" for one in objects).encode("utf-8")
