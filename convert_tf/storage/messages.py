"""Format users' texts for messages, and tables for a terminal or Markdown."""

from collections.abc import Iterable, Sequence


def shortened(text: str, max_characters: int) -> str:
    """Return a text as one line, cut to `max_characters` if it is too long."""
    text = " ".join(text.split())
    return text if len(text) <= max_characters else f"{text[: max_characters - 1]}…"


def listed(parts: Sequence[object], *, shown: int = 5, separator: str = ", ") -> str:
    """Join the first parts of a list, and say how many more there are.

    Args:
      parts: the parts, which are converted to strings.
      shown: maximum number of parts to show.
      separator: text between two parts.
    """
    more = f"{separator.rstrip(', ')} and {len(parts) - shown} more" if len(parts) > shown else ""
    return separator.join(map(str, parts[:shown])) + more


def aligned(tables: Iterable[Sequence[Sequence[str]]]) -> str:
    """Return tables for a terminal, in which only the first column is left-aligned.

    The other columns are right-aligned. Empty tables are omitted.
    """
    lines: list[str] = []
    for rows in filter(None, tables):
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines += [""] if lines else []
        for first, *others in rows:
            cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
            lines.append("  ".join([first.ljust(widths[0]), *cells]))
    return "\n".join(lines)


def as_markdown(tables: Iterable[Sequence[Sequence[str]]]) -> str:
    """Return tables as Markdown, with the first row as the header. Empty tables are omitted."""
    lines: list[str] = []
    for rows in filter(None, tables):
        lines += [""] if lines else []
        lines += [f"| {' | '.join(rows[0])} |", "|" + "---|" * len(rows[0])]
        lines += [f"| {' | '.join(row)} |" for row in rows[1:]]
    return "\n".join(lines) + "\n"
