"""Write the tables of README.md and docs/results.md from docs/results.json.

    python -m scripts.write_results

The JSON file has three parts:

- `machines`: descriptions of the machines by short name.
- `measurements`: by name, a list of entries. An entry has `commands` (empty if they were not
  recorded), `date`, `machine`, `revision` (the commit that added the figures), an optional `note`,
  and `figures` by encoder. An encoder is a released one with its version (`convert_small/1`), or
  weights without a version, with the first digits of their checksum (`convert@854afc17`). Any other
  name stands for something whose weights do not matter.
- `tables`: by page and heading, the tables of that section, each as a list of rows. A cell refers
  to figures in the syntax of Python's `str.format`: `{ranking[convert_small][all]:.1f}`. Without a
  version, the cell shows the newest version that was measured.

To add figures for a new version, append an entry to the measurement and run the script. In tables
and paragraphs, figures measured with older weights than those of the newest version get a dagger.
`tests/docs/test_results.py` compares the pages with the file, and looks for figures in paragraphs
that are missing from the file.
"""

import json
import re
import string
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from convert_tf.checkpoints.released import RELEASED, RELEASES
from convert_tf.storage.files import write_file

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results.json"
MARK = " †"
_ENCODER = re.compile(rf"({'|'.join(RELEASES)})(?:/(\d+)|@([0-9a-f]{{8,}}))")
_PART_OF_FIELD = re.compile(r"\[([^\]]*)\]")
# A number followed by a unit of measurement, as in "21–24 s", "82.9 %" or "254 pairs a second".
_UNIT = (
    r"(?:%|points|[KMGT]i?B|ms|s|minutes|seconds|CPU hours"
    r"|(?:pairs|requests|texts|sentences) a second|texts become)(?!\w)"
)
_FIGURE = re.compile(
    rf"(?<![\w.,])\d[\d,]*\.\d+(?![\w.])|(?<![\w.,])\d[\d,]*(?=(?:–\d+)? {_UNIT})"
    rf"|(?<=\d–)\d+(?= {_UNIT})"
)


class Figure(NamedTuple):
    """A figure of the file.

    Attributes:
      encoder: the encoder that was measured, as named in the file.
      value: the measured number.
    """

    encoder: str
    value: float


class PageError(ValueError):
    """Raised if a page does not match docs/results.json."""


def is_outdated(encoder: str) -> bool:
    """Return whether an encoder's weights differ from those of its newest version."""
    match = _ENCODER.fullmatch(encoder)
    if match is None:
        return False
    name, version, digits = match.groups()
    if version:
        return int(version) < RELEASED[name]
    return not RELEASES[name][RELEASED[name]].weights.startswith(digits)


def merged(entries: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures of a measurement by encoder.

    Raises:
      PageError: if two entries have figures for the same encoder.
    """
    figures: dict[str, Any] = {}
    for entry in entries:
        if twice := figures.keys() & entry["figures"].keys():
            raise PageError(
                f"docs/results.json: a measurement has two entries with figures for {min(twice)!r}."
            )
        figures |= entry["figures"]
    return figures


def _encoder(figures: Mapping[str, Any], name: str) -> str:
    """Return the key of an encoder: its name, or the newest version that was measured."""
    versions = [key for key in figures if key.partition("/")[0] == name and "/" in key]
    if name in figures or not versions:
        return name
    return max(versions, key=lambda key: int(key.partition("/")[2]))


def filled(cell: str, measurements: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the text of a cell, with a dagger if a figure was measured with older weights.

    Args:
      cell: text with references to figures.
      measurements: figures by measurement and encoder.

    Raises:
      PageError: if the file has no such figure.
    """
    text, mark = "", ""
    for before, field, form, _ in string.Formatter().parse(cell):
        text += before
        if field is None:
            continue
        name, (encoder, *path) = field.partition("[")[0], _PART_OF_FIELD.findall(field)
        try:
            encoder = _encoder(measurements[name], encoder)
            value = measurements[name][encoder]
            for key in path:
                value = value[int(key)] if isinstance(value, list) else value[key]
        except (KeyError, IndexError) as error:
            raise PageError(f"docs/results.json has no figure {{{field}}}.") from error
        text += format(value, form or "")
        mark = MARK if is_outdated(encoder) else mark
    return text + mark


def _lines(table: list[list[str]], measurements: Mapping[str, Mapping[str, Any]]) -> list[str]:
    rows = [[filled(cell, measurements) for cell in row] for row in table]
    lines = ["|" + "".join(f" {cell} |" if cell else " |" for cell in row) for row in rows]
    return [lines[0], "|" + "---|" * len(table[0]), *lines[1:]]


def paragraphs(page: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the parts of a page in order, each as its kind and its lines.

    The kind is `"code"`, `"table"`, `"heading"`, `"text"` (a paragraph or an item of a list) or
    `""` for empty lines.
    """
    kind, lines = "", list[str]()
    is_code = False
    for line in page.splitlines():
        fence = line.startswith("```")
        if is_code or fence:
            now = "code"
        elif line.startswith("|"):
            now = "table"
        elif line.startswith("#"):
            now = "heading"
        else:
            now = "text" if line.strip() else ""
        starts = now != kind or now == "heading" or line.startswith("- ") or (fence and not is_code)
        if lines and starts:
            yield kind, lines
            lines = []
        is_code ^= fence
        kind = now
        lines.append(line)
    if lines:
        yield kind, lines


def figures_of(
    measurements: Mapping[str, Mapping[str, Any]], tables: Mapping[str, Any]
) -> list[Figure]:
    """Return all figures of the file, starting with those that no table shows."""
    shown = {name for name in measurements if f"{{{name}[" in str(tables)}

    def numbers(value: Any) -> Iterator[float]:
        if isinstance(value, dict | list):
            for part in value.values() if isinstance(value, dict) else value:
                yield from numbers(part)
        else:
            yield value

    return [
        Figure(encoder, number)
        for name in sorted(measurements, key=lambda name: name in shown)
        for encoder, values in measurements[name].items()
        for number in numbers(values)
    ]


def stated(text: str) -> list[float]:
    """Return the figures that a paragraph states: decimal numbers, and numbers with a unit."""
    without_code = re.sub(r"`[^`]*`|\]\([^)]*\)", "", text)
    return [float(number.replace(",", "")) for number in _FIGURE.findall(without_code)]


def marked(lines: list[str], figures: list[Figure]) -> list[str]:
    """Return a paragraph, with a dagger at its end if it states a figure of older weights.

    If several figures have the same value, the first one decides.

    Args:
      lines: lines of the paragraph.
      figures: all figures of the file.
    """
    bare = [*lines[:-1], lines[-1].removesuffix(MARK)]
    encoder_of = {figure.value: figure.encoder for figure in reversed(figures)}
    if any(is_outdated(encoder_of.get(number, "")) for number in stated("\n".join(bare))):
        return [*bare[:-1], bare[-1] + MARK]
    return bare


def written(page: str, name: str, results: Mapping[str, Any]) -> str:
    """Return a page with the tables and daggers that the file calls for.

    Args:
      page: content of the page.
      name: path of the page relative to the root, as in the file.
      results: content of docs/results.json.

    Raises:
      PageError: if the number of tables in a section differs from that in the file.
    """
    measurements = {key: merged(entries) for key, entries in results["measurements"].items()}
    figures = figures_of(measurements, results["tables"])
    left = {heading: [*tables] for heading, tables in results["tables"][name].items()}
    lines, heading = [], ""
    for kind, part in paragraphs(page):
        if kind == "heading":
            heading = part[0].lstrip("# ")
        if kind == "table" and heading in left:
            if not left[heading]:
                raise PageError(
                    f"{name}: docs/results.json has no figures for a table under {heading!r}."
                )
            part = _lines(left[heading].pop(0), measurements)
        lines += marked(part, figures) if kind == "text" else part
    if missing := [heading for heading, tables in left.items() if tables]:
        raise PageError(f"{name} has fewer tables under {missing[0]!r} than docs/results.json.")
    return "\n".join(lines) + "\n"


def main() -> None:
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    for name in results["tables"]:
        page = ROOT / name
        write_file(page, written(page.read_text(encoding="utf-8"), name, results))


if __name__ == "__main__":
    main()
