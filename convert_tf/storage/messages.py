"""Show a user's texts in messages."""

from collections.abc import Sequence


def shortened(text: str, max_characters: int) -> str:
    """Return a text on one line, cut if it is too long."""
    text = " ".join(text.split())
    return text if len(text) <= max_characters else f"{text[: max_characters - 1]}…"


def listed(parts: Sequence[object], *, shown: int = 5, separator: str = ", ") -> str:
    """Return the first parts of a list, and how many more there are."""
    more = f"{separator.rstrip(', ')} and {len(parts) - shown} more" if len(parts) > shown else ""
    return separator.join(map(str, parts[:shown])) + more
