"""Show a user's text in messages."""


def shortened(text: str, max_characters: int) -> str:
    """Return a text on one line, cut if it is too long."""
    text = " ".join(text.split())
    return text if len(text) <= max_characters else f"{text[: max_characters - 1]}…"
