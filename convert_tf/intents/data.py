"""Read labelled texts from tables and Rasa's YAML, draw few-shot samples and make folds."""

import csv
import functools
import io
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

_BYTE_ORDER_MARK = "\ufeff"  # the first character of UTF-8 files for Excel

_YAML = (".yml", ".yaml")

_FORMULA = ("=", "+", "-", "@")  # first characters of formulas in spreadsheets

# The place in the file, the text and the label. The text and the label may be empty.
_Row = tuple[str, str, str]

# Columns with these names contain the same thing, unless a row has different values in them.
_PLAIN_TEXT = ("text", "utterance", "sentence")
_PLAIN_LABEL = ("label", "intent")

_NUMBER = re.compile(r"-?\d+(\.0*)?")  # pandas writes whole numbers as 1.0 if a number is missing


class _Fields(NamedTuple):
    """The fields of a table row that may contain its text or its label.

    Attributes:
      place: the row's line or entry, for messages.
      names: the names of the columns in order of preference. Rows with the same keys share them.
      values: the value in each of these columns; None if it is missing or empty. Only the first
        text is kept: True stands for a text in another column.
    """

    place: str
    names: columns.Names
    values: tuple[Any, ...]

    def value(self, name: str) -> Any:
        """Return the value in a column; None if it is missing or empty."""
        return self.values[self.names.index(name)] if name in self.names else None


class _Choice(NamedTuple):
    """The columns that rows with the same keys are read from; empty if there is no such column.

    Attributes:
      text: the column with texts.
      label: the column with labels.
      names: the column that names the labels if the labels are numbers.
    """

    text: str
    label: str
    names: str


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
        without a header, the column with repeated values is read as the labels. If a column
        numbers the labels and another one names them (`label` and `label_text`), the names are
        read. Columns that are empty in all rows are ignored. `label` and `intent` are read as one
        column if no row has different values in them. So are `text`, `utterance` and `sentence` if
        no row has more than one of them.
      needs_labels: whether a row without a label raises an error. A row whose label is only in a
        column that is not read always raises an error, and so does a number without a name.

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
    drops. If the CSV is not ASCII, it starts with a byte order mark. Without it, Excel would read
    the file in the system's encoding.
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
    text = file.getvalue()
    return text if text.isascii() else f"{_BYTE_ORDER_MARK}{text}"


def is_labelled_csv(path: str) -> bool:
    """Return whether a file's first line names the columns `text` and `label`."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return {"text", "label"} <= {*re.findall(r"\w+", file.readline(1000))}


def _rows(path: str) -> list[_Row]:
    """Return the rows of a file, whose format is recognised from its content."""
    file = TableFile(path)
    if is_parquet_file(file):
        return _labelled([_fields(row, file) for row in read_rows(file, _COLUMNS)], path)
    with open_decompressed(file) as stream:
        formats = (JSON, RASA_MARKDOWN, RASA_YAML)
        kind = check_format(path, stream.peek()[:HEAD_BYTES], read=formats)
        if kind == RASA_MARKDOWN:
            raise _of_rasa(path, kind, " of Rasa 2")
        if suffix(path) not in _YAML and kind != RASA_YAML:
            rows = rows_in(stream, file, _COLUMNS, kind == JSON)
            return _labelled([_fields(row, file) for row in rows], path)
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


def _fields(value: Any, file: TableFile) -> _Fields:
    """Return the fields of a table row that may contain its text or its label."""
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
    names, filled = _names_among(tuple(value)), columns.filled(value)
    values: list[Any] = []
    has_text = False
    for name in names:
        field = _stripped(filled.get(name))
        if name in columns.TEXT and field is not None:
            # A less preferred text is never read. It may be long, so it is not kept.
            field, has_text = True if has_text else field, True
        values.append(field)
    return _Fields(place, names, tuple(values))


@functools.lru_cache(2**10)  # the rows of a file usually have the same keys
def _names_among(keys: columns.Names) -> columns.Names:
    """Return the keys that may name texts or labels, in order of preference."""
    return tuple(name for name in (*columns.TEXT, *columns.LABEL) if name in keys)


def _stripped(value: Any) -> Any:
    return value.strip() or None if isinstance(value, str) else value


def _labelled(rows: Sequence[_Fields], path: str) -> list[_Row]:
    """Choose the columns with the texts and labels of a table, and return its rows."""
    choices = _choices(rows)
    numbered = _numbered(rows, choices)
    same_texts, same_labels = (_same(rows, names) for names in (_PLAIN_TEXT, _PLAIN_LABEL))
    labelled: list[_Row] = []
    unclear: list[str] = []
    for row in rows:
        choice = choices[row.names]
        # If the text is empty, `query` is not read: it may mean something else.
        text, label = row.value(choice.text), row.value(choice.label)
        if text is None and choice.text in same_texts:
            text = _first_value(row, same_texts)
        if choice.label in numbered and (label is None or _is_number(label)):
            # The column with names may be missing in JSON rows.
            names = choice.names or numbered[choice.label]
            number, label = label, row.value(names)
            if label is None and number is not None:
                unclear.append(f"{row.place} has a number ({number}) but no name in {names!r}")
                continue
        elif label is None and choice.label in same_labels:
            label = _first_value(row, same_labels)
        if not isinstance(text, str | None):
            shown = shown_value(text)
            raise ValueError(f"{path}, {row.place}, has {shown} as its text. Repair it.")
        if text is None:
            unclear += _only_elsewhere(row, "text", columns.TEXT, choice.text)
        if label is None:
            unclear += _only_elsewhere(row, "label", columns.LABEL, choice.label)
        labelled.append((row.place, text or "", _label(label, path, row.place)))
    if unclear:
        raise ValueError(
            f"Some rows of {path} are unclear: {listed(unclear)}. Complete or remove these rows, "
            "or rename the columns that must not be read."
        )
    return labelled


def _same(rows: Iterable[_Fields], names: columns.Names) -> columns.Names:
    """Return the names if no row contains different values in these columns, otherwise none."""
    for row in rows:
        values = [value for name in names if (value := row.value(name)) is not None]
        if any(value != values[0] for value in values[1:]):
            return ()
    return names


def _first_value(row: _Fields, names: columns.Names) -> Any:
    """Return the first value in these columns; None if all of them are missing or empty."""
    return next((value for name in names if (value := row.value(name)) is not None), None)


def _only_elsewhere(row: _Fields, kind: str, names: columns.Names, chosen: str) -> Iterator[str]:
    """Yield a message if a row has its text or label only in a column that is not read."""
    if other := next((name for name in names if row.value(name) is not None), None):
        yield (
            f"{row.place} has a {kind} only in {other!r}, but the {kind}s are read from {chosen!r}"
        )


def _choices(rows: Sequence[_Fields]) -> dict[columns.Names, _Choice]:
    """Return the columns to read, by the names of the columns in a row.

    Objects in JSON lines may have different keys, so there may be several columns with labels.
    """
    used: set[str] = set()
    in_words: set[str] = set()
    for row in rows:
        for name, value in zip(row.names, row.values, strict=True):
            if value is not None:
                used.add(name)
            if isinstance(value, str):
                in_words.add(name)
    return {
        names: _Choice(
            columns.first_of(columns.TEXT, used.intersection(names)) or "",
            columns.first_of(columns.LABEL, used.intersection(names)) or "",
            columns.first_of(columns.LABEL_NAMES, in_words.intersection(names)) or "",
        )
        for names in {row.names for row in rows}
    }


def _numbered(rows: Iterable[_Fields], choices: Mapping[columns.Names, _Choice]) -> dict[str, str]:
    """Return the columns of labels whose numbers stand for names, with the columns of the names.

    If at least half of the labels in the column are words, and one of them differs from its name in
    the other column, the numbers are labels too. An example is 404 in a column that also contains
    `not_found`.
    """
    numbers: Counter[str] = Counter()
    words: Counter[str] = Counter()
    differing: set[str] = set()
    names: dict[str, str] = {}
    for row in rows:
        choice = choices[row.names]
        if not choice.names or (label := row.value(choice.label)) is None:
            continue
        names.setdefault(choice.label, choice.names)
        (numbers if _is_number(label) else words)[choice.label] += 1
        if not _is_number(label) and row.value(choice.names) not in (None, label):
            differing.add(choice.label)
    worded = {name for name in differing if words[name] >= numbers[name]}
    return {name: names[name] for name in numbers if name not in worded}


def _is_number(label: Any) -> bool:
    """Return whether a label is a whole number, which may stand for a name."""
    if isinstance(label, int):  # including False and True
        return True
    return isinstance(label, float | str) and _NUMBER.fullmatch(str(label).strip()) is not None


def _label(label: Any, path: str, place: str) -> str:
    """Return a label as text; empty if it is missing."""
    if label is None:
        return ""
    if isinstance(label, bool) or not isinstance(label, str | int | float):
        remedy = "Write the label as a string."
        if isinstance(label, list):
            remedy = (
                "Write several labels as one string: join them with the label separator "
                "(--label_separator of intent train)."
            )
        raise ValueError(
            f"{path}, {place}, has {shown_value(label)} as its label, which is not a string. "
            f"{remedy}"
        )
    return str(label)


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


def distinct_examples(texts: Iterable[str], labels: Iterable[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Find the copies among examples, so that all copies of an example can be in the same fold.

    If copies were in different folds, held-out texts would also be used for training.

    Args:
      texts: the texts. Texts that differ only in case, white space or invisible characters count as
        equal.
      labels: the intent of each text, or its intents as a tuple. A text with two different labels
        is two distinct examples.

    Returns:
      A tuple of two arrays: the position of the first copy of each distinct example, in increasing
      order, int `[distinct]`, and for each text the index of its example in that array, int
      `[texts]`.
    """
    numbers: dict[Any, int] = {}
    keys = zip((fold(text).casefold() for text in texts), labels, strict=True)
    copy_of = np.array([numbers.setdefault(key, len(numbers)) for key in keys], int)
    return np.unique(copy_of, return_index=True)[1], copy_of


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
