"""What messages say of a user's text."""


def shortened(text: str, max_characters: int) -> str:
    """A text on one line, cut at its end where it is longer."""
    text = " ".join(text.split())
    return text if len(text) <= max_characters else f"{text[: max_characters - 1]}…"
