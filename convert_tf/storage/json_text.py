"""Read JSON, which may come from other programs or be damaged, and write JSON."""

import json
import os
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

# Escapes, tried in this order: a pair of surrogates, a lone surrogate, any other escape.
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_HALF = re.compile("[\ud800-\udfff]")


def whole_characters(text: str) -> str:
    """Return a text that can be encoded as UTF-8, with U+FFFD in place of lone surrogates."""
    return text if text.isascii() else _HALF.sub("\ufffd", text)


def joined_halves(text: str) -> str:
    """Return a text in which each pair of surrogates, as for an emoji, is one character."""
    if text.isascii() or not _HALF.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def parsed_json(text: str | bytes, **options: Any) -> Any:
    """Parse JSON. The options are those of `json.loads`, which no other function calls.

    Raises:
      ValueError: if the text is not JSON, or is nested too deeply for Python's parser.
    """
    try:
        return json.loads(text, **options)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _with_each_key_once(members: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(members)
    if len(value) < len(members):
        twice = next(
            key for key, number in Counter(key for key, _ in members).items() if number > 1
        )
        raise ValueError(f"the key {twice[:40]!r} occurs twice")
    return value


def json_of_texts(text: str | bytes, *, is_dump: bool = False) -> Any:
    r"""Parse JSON that contains people's texts. All readers of such files call this function.

    A lone surrogate such as `\ud83d` becomes U+FFFD, because it is not a valid character: neither
    TensorFlow nor a file in UTF-8 accepts it.

    Args:
      text: the JSON.
      is_dump: whether the JSON is one of the many lines in a dump. The last value of a repeated key
        is then used, which is faster than checking for repeated keys.

    Raises:
      UnicodeDecodeError: if bytes are not UTF-8.
      ValueError: as for `parsed_json`; or if an object has a key twice.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8-sig")
    if "\\ud" in text or "\\uD" in text:
        text = _ESCAPE.sub(lambda match: "\\ufffd" if match["half"] else match[0], text)
    options = {} if is_dump else {"object_pairs_hook": _with_each_key_once}
    return parsed_json(whole_characters(text), **options)


def written_json(value: Any, **options: Any) -> str:
    """Return readable JSON for a file. The options are those of `json.dumps`."""
    return json.dumps(value, indent=2, **options) + "\n"


def json_file(path: str | os.PathLike[str]) -> Any:
    """Return the parsed content of a JSON file in UTF-8.

    Raises:
      ValueError: as for `parsed_json`; the message names the file.
      OSError: if the file cannot be read.
    """
    with open(path, "rb") as file:
        content = file.read()
    try:
        return parsed_json(content.decode("utf-8"))
    except ValueError as error:
        raise ValueError(
            f"{os.fspath(path)!r} is not valid JSON: {error}. Copy it again, or repeat the command "
            "that wrote it, with a new folder."
        ) from error


def holds_one_value(first_lines: Sequence[str]) -> bool:
    """Return whether a JSON file contains one value over several lines, not one value per line.

    Args:
      first_lines: the first two non-empty lines of the file, or its only one.
    """
    start = first_lines[0].strip() if first_lines else ""
    if start.startswith("["):
        return not _is_json(start)
    # The object must continue on the next line. A line that was merely cut off does not count.
    is_open = start.startswith("{") and start.endswith((",", "{", "[", ":"))
    return is_open and (start == "{" or not any(map(_is_json, first_lines)))


def _is_json(text: str) -> bool:
    try:
        parsed_json(text)
    except ValueError:
        return False
    return True
