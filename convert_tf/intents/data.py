"""Read labelled texts from tables and Rasa's YAML, draw few-shot samples and make folds."""

import csv
import io
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from convert_tf.readers import columns
from convert_tf.readers.delimited import quoted, shown_value, suffix
from convert_tf.readers.files import TableFile, decoded_lines
from convert_tf.readers.tables import is_parquet_file, read_rows, rows_in
from convert_tf.storage.content import (
    HEAD_BYTES,
    JSON,
    RASA_MARKDOWN,
    RASA_YAML,
    ContentError,
    check_format,
)
from convert_tf.storage.lines import open_decompressed
from convert_tf.storage.messages import listed
from convert_tf.text.characters import fold

_YAML = (".yml", ".yaml")

_FORMULA = ("=", "+", "-", "@")  # first characters of formulas in spreadsheets

# The place in the file, the text and the label. The text and the label may be empty.
_Row = tuple[str, str, str]


class LabelledTexts(NamedTuple):
    """Texts and the intent of each text."""

    texts: list[str]
    labels: list[str]


def read_labelled(path: str | os.PathLike[str], *, needs_labels: bool = True) -> LabelledTexts:
    """Read labelled texts.

    Args:
      path: a file, or a folder with `nlu*.yml` files. A file must be a table
        (`convert_tf.readers.tables`) with the columns `text` and `label`, or Rasa training data
        (`nlu.yml`). Rasa's entity annotations are replaced by the text that they mark. In a table
        without a header, the column with repeated values is read as the labels.
      needs_labels: whether a row without a label raises an error.

    Returns:
      The texts and labels in the order of the file.

    Raises:
      ValueError: if a file has another format, is not UTF-8 or has no rows; a column is missing
        or occurs twice; a row has no text, no label or too many fields; or Rasa would ignore a
        line. Texts and labels that contain only white space and invisible characters count
        as missing.
      OSError: if the file cannot be read.
    """
    path = os.fspath(path)
    if os.path.isdir(path):
        return read_files(_nlu_files(path), needs_labels=needs_labels)
    rows = _rows(path)
    if not rows:
        raise ValueError(f"{path} has no rows with a text and a label.")
    empty = [f"{place} without text" for place, text, _ in rows if not fold(text)]
    if needs_labels:
        empty += [f"{place} without label" for place, _, label in rows if not fold(label)]
    if empty:
        raise ValueError(
            f"Some rows of {path} are incomplete: {listed(empty)}. Complete them, or remove them."
        )
    return LabelledTexts([text for _, text, _ in rows], [label for _, _, label in rows])


def read_files(paths: Sequence[str], *, needs_labels: bool = True) -> LabelledTexts:
    """Read several files, one after another; see `read_labelled` for the arguments.

    Raises:
      ValueError: if a file is unusable; see `read_labelled`.
    """
    joined = LabelledTexts([], [])
    for path in paths:
        texts, labels = read_labelled(path, needs_labels=needs_labels)
        joined.texts.extend(texts)
        joined.labels.extend(labels)
    return joined


def labelled_csv(rows: Iterable[tuple[str, str]]) -> str:
    """Return a CSV with texts and labels.

    Cells that a spreadsheet would read as formulas get a leading space, which `read_labelled`
    drops.
    """
    file = io.StringIO()
    cells = ([f" {cell}" if cell.startswith(_FORMULA) else cell for cell in row] for row in rows)
    plain, quoting = (
        csv.writer(file, lineterminator="\n", quoting=rule)
        for rule in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL)
    )
    for row in [("text", "label"), *cells]:
        # Python before 3.13 does not quote a carriage return, which readers take for a line end.
        (quoting if any("\r" in cell for cell in row) else plain).writerow(row)
    return file.getvalue()


def is_labelled_csv(path: str) -> bool:
    """Return whether a file's first line names the columns `text` and `label`."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return {"text", "label"} <= {*re.findall(r"\w+", file.readline(1000))}


def _rows(path: str) -> list[_Row]:
    """Return the rows of a file, whose format is recognised from its content."""
    file = TableFile(path)
    if is_parquet_file(file):
        return [_row(row, file) for row in read_rows(file, _COLUMNS)]
    with open_decompressed(file) as stream:
        formats = (JSON, RASA_MARKDOWN, RASA_YAML)
        kind = check_format(path, stream.peek()[:HEAD_BYTES], read=formats)
        if kind == RASA_MARKDOWN:
            raise _of_rasa(path, kind, " of Rasa 2")
        if suffix(path) not in _YAML and kind != RASA_YAML:
            return [_row(row, file) for row in rows_in(stream, file, _COLUMNS, kind == JSON)]
        from convert_tf.intents.rasa import read_nlu

        text = "\n".join(decoded_lines(stream, file))
    return [(f"line {line}", example, intent) for line, example, intent in read_nlu(text, path)]


def _nlu_files(folder: str) -> list[str]:
    """Return the files in a Rasa project that may contain intents."""
    files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    files = [path for path in files if "nlu" in (path.name[:3].lower(), path.parent.name.lower())]
    # If a file has an older format, reading it raises an error that says how to convert it.
    for suffixes in (_YAML, (".md", ".json")):
        if names := [str(path) for path in files if suffix(path.name) in suffixes]:
            return names
    raise ContentError(
        f"The folder {folder} contains no nlu*.yml. Pass a file: a CSV with the columns 'text' "
        "and 'label', JSON lines, or Rasa's nlu.yml."
    )


def _of_rasa(path: str, name: str, version: str = "") -> ContentError:
    return ContentError(
        f"{path} is {name}. Convert it with the command{version}: rasa data convert nlu -f yaml "
        f"--data {path} --out nlu.yml, and pass nlu.yml."
    )


def _is_labelled(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return columns.first_of(columns.TEXT, columns.column_names([*value])) is not None


def _row(value: Any, file: TableFile) -> _Row:
    """Return the place, the text and the label of a table row."""
    if isinstance(value, dict) and "rasa_nlu_data" in value:
        raise _of_rasa(file.name, "Rasa's JSON")
    place = f"{file.unit} {file.lines:,}"
    if not _is_labelled(value):
        shown = f"a value that is not an object ({shown_value(value)})"
        if isinstance(value, dict):
            shown = f"the keys {quoted(value)}"
        raise ContentError(
            f"{file.name} has {shown} in {place}. Labelled texts are objects with the keys 'text' "
            "and 'label'."
        )
    filled = columns.filled(value)
    text, label = (
        filled[name] if (name := columns.first_of(names, filled)) else ""
        for names in (columns.TEXT, columns.LABEL)
    )
    if isinstance(label, int) or (isinstance(label, str) and label.strip().isdecimal()):
        names = (filled[key] for key in columns.LABEL_NAMES if isinstance(filled.get(key), str))
        label = next(names, label)
    if not isinstance(text, str):
        raise ValueError(f"{file.place} has {shown_value(text)} as its text. Repair it.")
    if isinstance(label, bool) or not isinstance(label, str | int | float):
        remedy = "Write the label as a string."
        if isinstance(label, list):
            remedy = (
                "Write several labels as one string: join them with the label separator "
                "(--label_separator of intent train)."
            )
        raise ValueError(
            f"{file.place} has {shown_value(label)} as its label, which is not a string. {remedy}"
        )
    return place, text.strip(), str(label).strip()


def _without_header(
    file: TableFile, first: columns.Cells, rest: Iterator[columns.Cells]
) -> tuple[Sequence[str], Iterator[columns.Cells]] | None:
    """Read two columns without a header, unless it is unclear which column has the labels.

    Labels are repeated. So if the label in the first row occurs again, this row is an example and
    not a header.
    """
    numbered = [(file.lines, first), *((file.lines, row) for row in rest)]
    if any(len(row) != 2 for _, row in numbered):
        return None

    def rows() -> Iterator[columns.Cells]:
        for file.lines, row in numbered:
            yield row

    texts, labels = ([row[place].strip() for _, row in numbered] for place in (0, 1))
    for names in (("text", "label"), ("label", "text")):
        if labels.count(labels[0]) > 1 and len({*labels}) < len({*texts}):
            return names, rows()
        texts, labels = labels, texts
    return None


_COLUMNS = columns.Columns(
    "texts and labels",
    names=("text", "label"),
    find=columns.names_of_labelled,
    is_row=_is_labelled,
    without_header=_without_header,
)


def few_shot(data: LabelledTexts, shots: int, *, seed: int) -> LabelledTexts:
    """Draw `shots` examples of each intent without replacement.

    Args:
      data: the examples to draw from.
      shots: number of examples per intent.
      seed: seed for the draw.

    Raises:
      ValueError: if an intent has fewer than `shots` examples.
    """
    rng = np.random.default_rng(seed)
    chosen: list[int] = []
    for label, places in _places(data.labels).items():
        if len(places) < shots:
            raise ValueError(
                f"{label!r} has only {len(places)} examples, fewer than {shots}. Use fewer shots."
            )
        chosen += rng.choice(places, shots, replace=False).tolist()
    return LabelledTexts([data.texts[i] for i in chosen], [data.labels[i] for i in chosen])


def fold_numbers(labels: Sequence[Any], folds: int, *, seed: int) -> np.ndarray:
    """Assign a fold to each example. The examples of an intent are spread evenly over the folds.

    Args:
      labels: the intent of each example.
      folds: the number of folds.
      seed: seed for the assignment.

    Returns:
      The number of each example's fold, int `[len(labels)]`. The only example of an intent is never
      held out and gets -1.
    """
    rng = np.random.default_rng(seed)
    numbers = np.full(len(labels), -1)
    first = 0
    for places in _places(labels).values():
        if len(places) > 1:
            numbers[rng.permutation(places)] = (first + np.arange(len(places))) % folds
            first += len(places)  # otherwise the first folds would get all small intents
    return numbers


def held_out(labels: Sequence[Any], fraction: float, *, seed: int) -> np.ndarray:
    """Choose examples of each intent for validation.

    At least one example of each intent is chosen, except for intents with a single example.

    Args:
      labels: the intent of each example.
      fraction: share of the examples to choose.
      seed: seed for the draw.

    Returns:
      Whether each example is chosen, bool `[len(labels)]`.
    """
    rng = np.random.default_rng(seed)
    chosen = np.zeros(len(labels), bool)
    for places in _places(labels).values():
        if len(places) > 1:
            number = min(max(1, round(fraction * len(places))), len(places) - 1)
            chosen[rng.permutation(places)[:number]] = True
    return chosen


def _places(labels: Sequence[Any]) -> dict[Any, list[int]]:
    places: dict[Any, list[int]] = {}
    for index, label in enumerate(labels):
        places.setdefault(label, []).append(index)
    return places
