"""Read corpus files: conversations, fields of JSON objects, and files that count unusable lines.

Lines above a maximum length are not used. `CountedFile` counts unusable lines by reason. If an
archive is truncated or damaged, the lines before the damage are read.
"""

import glob
import hashlib
import itertools
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from convert_tf.readers.delimited import TABLE_SUFFIXES
from convert_tf.readers.files import TableFile, UnusableError, json_in_line, lines_in, read_lines
from convert_tf.readers.tables import JSON_SUFFIXES
from convert_tf.storage.folders import OutputFolder
from convert_tf.storage.json_text import whole_characters
from convert_tf.storage.lines import COMPRESSED_SUFFIXES, distinct_files, read_pieces, zst_written
from convert_tf.storage.progress import Progress

_MAX_USED_OF_BAD = 0.1  # a file with at most this many usable turns per bad line is mostly bad
_NUM_FIRST_BAD = 5  # number of bad lines named in messages and reports
MAX_NAME_LENGTH = 200
_SUFFIXES = (*TABLE_SUFFIXES, *JSON_SUFFIXES, ".parquet", ".txt")


class Turn(NamedTuple):
    """One utterance by a speaker. `author` is empty if the corpus does not name the speaker."""

    text: str
    author: str = ""


class Conversation(NamedTuple):
    """Consecutive turns, oldest first, from a corpus that is not a tree of comments.

    The md5 of `split_id` decides the split. If it is empty, the md5 of `id` does, as for a Reddit
    thread. Conversations with the same `split_id` are in the same split. The id that decides the
    split must not depend on where the corpus is stored, or on the order of its conversations.
    `source` is the name of the corpus. Starting at index `first_answer`, each turn answers the turn
    before it. Earlier turns are only context.
    """

    id: str
    source: str
    turns: tuple[Turn, ...]
    first_answer: int = 1
    split_id: str = ""


def hash_of(texts: Iterable[str]) -> str:
    """Return the md5 of a sequence of texts, as 32 hexadecimal digits."""
    joined = "\0".join(texts)
    return hashlib.md5(joined.encode("utf-8", "surrogatepass")).hexdigest()


def base_name(path: str) -> str:
    """Return a file name without its folder and compression suffix."""
    name = os.path.basename(path)
    stem, suffix = os.path.splitext(name)
    return stem if suffix.lower() in COMPRESSED_SUFFIXES else name


def corpus_name(path: str) -> str:
    """Return a file name without folder and known suffixes.

    For example, `chats` for `data/chats.jsonl.zst`, and `RC_2023.01` for `RC_2023.01.zst`.
    """
    name = base_name(path)
    stem, suffix = os.path.splitext(name)
    return whole_characters(stem if suffix.lower() in _SUFFIXES else name)


def text_field(fields: Mapping[str, Any], name: str) -> str:
    """Return a field that must be a string.

    Raises:
      UnusableError: if the field is not a string. The reason is `missing_` or `wrong_type_` with
        the field's name.
    """
    value = fields.get(name)
    if isinstance(value, str):
        return value
    raise UnusableError(f"missing_{name}" if value is None else f"wrong_type_{name}")


def name_field(fields: Mapping[str, Any], name: str, *, kinds: Any = str) -> str:
    """Return an optional short text, such as an author; `""` if the field is missing or empty.

    pandas writes NaN for missing values, so NaN counts as missing. In a column with missing values,
    it writes the integer 1 as `1.0`, which is read as 1.

    Args:
      fields: the fields of an object, by name.
      name: name of the field.
      kinds: allowed types. Values that are not strings are converted to strings.

    Raises:
      UnusableError: if the value is unusable. The reason is `wrong_type_` or `too_long_` with the
        field's name.
    """
    value = fields.get(name)
    if not value or value != value:
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise UnusableError(f"wrong_type_{name}")
    text = whole_characters(str(value))
    if len(text) > MAX_NAME_LENGTH:
        raise UnusableError(f"too_long_{name}")
    return text


@dataclass
class BadLines:
    """The number of unusable lines in all files of a run, and the places of the first few.

    Args:
      limit: maximum number of unusable lines; None for no limit.
    """

    limit: int | None = None
    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, later: "BadLines") -> None:
        """Add the unusable lines in files that were read later.

        Raises:
          ValueError: if there are more unusable lines than `limit`.
        """
        self.count += later.count
        self.first = (self.first + later.first)[:_NUM_FIRST_BAD]
        if self.limit is not None and self.count > self.limit:
            raise ValueError(
                f"More than {self.limit:,} lines cannot be used; the first are "
                f"{', '.join(self.first)}. Repair the files, or raise --max_bad_lines."
            )


@dataclass
class CountedFile(TableFile):
    """A file that counts the lines that were read and, by reason, the lines that were not used.

    Attributes:
      bad_lines: number and places of the malformed lines in all files of a run.
      skipped: number of unused lines and turns, by reason.
      warnings: messages about the file as a whole.
      num_bad: number of malformed lines in this file.
      first_bad: place of the first malformed line, with the reason.
    """

    bad_lines: BadLines = field(default_factory=BadLines)
    skipped: Counter[str] = field(default_factory=Counter)
    warnings: list[str] = field(default_factory=list)
    num_bad: int = 0
    first_bad: str = ""
    _last_bad: int = -1

    @property
    def repairs(self) -> bool:
        return True

    def skip(self, reason: str, *, is_bad: bool = True, detail: str = "") -> None:
        """Count the current line as unused.

        Args:
          reason: name of the counter.
          is_bad: whether the line is malformed, rather than excluded by a rule.
          detail: ignored.

        Raises:
          ValueError: if there are more malformed lines than `bad_lines` allows.
        """
        self.skipped[reason] += 1
        if is_bad:
            self.num_bad += self.lines != self._last_bad
            self._last_bad = self.lines
            place = f"{self.name}:{self.lines} ({reason})"
            self.first_bad = self.first_bad or place
            self.bad_lines.add(BadLines(count=1, first=[place]))

    def check_readable(self, num_used: int, *, has_limit: bool = False) -> None:
        """After a file was read, check that enough of its lines could be used.

        Args:
          num_used: number of turns that could be used.
          has_limit: whether the command has the flag `--max_bad_lines`, which the error then names.

        Raises:
          ValueError: if hardly any line could be used.
        """
        is_bad = self.num_bad > 0 and 2 * self.num_bad >= self.lines
        if is_bad and num_used <= _MAX_USED_OF_BAD * self.num_bad:
            reasons = ", ".join(f"{n:,} {reason}" for reason, n in self.skipped.most_common())
            remedy = "Check that it is the right kind of file"
            if self.skipped.most_common(1)[0][0] == "invalid_utf8":
                remedy = "Convert it to UTF-8, for example with iconv -f WINDOWS-1252 -t UTF-8"
            skipping = " To skip such lines, pass --max_bad_lines." if has_limit else ""
            raise ValueError(
                f"Hardly any line of {self.name} can be used: {reasons} in {self.lines:,} lines. "
                f"The first is {self.first_bad}. {remedy}.{skipping}"
            )
        if not num_used and not self.warnings:
            self.warn("nothing in this file could be used")

    def warn(self, message: str) -> None:
        """Record a message about the file as a whole."""
        self.warnings.append(f"{self.name}: {message}")

    def print_warnings(self) -> None:
        """Print the messages about the file as a whole to standard error."""
        for warning in self.warnings:
            print(f"warning: {warning}", file=sys.stderr)

    def note(self, problem: str, reason: str = "") -> None:
        """Record a warning that the file is damaged or empty. Damage counts as one unused line."""
        self.problem = problem
        if not self.is_cut_off:
            self.warn("the file is empty")
            return
        self.skip(f"{problem}_archive" if self.kind != "plain" else "truncated_file")
        what = f"this is {self.damage}{reason and ', '}{reason}"
        self.warn(f"{what}; kept the {self.lines} lines before the damage")


def find_files(patterns: Sequence[str]) -> list[str]:
    """Return the paths of the files that match names or glob patterns, sorted, each file once.

    Raises:
      ValueError: if a pattern matches no file.
    """
    files: set[str] = set()
    for pattern in patterns:
        # File names may contain brackets, which have a special meaning in patterns.
        names = [pattern] if os.path.isfile(pattern) else glob.glob(pattern, recursive=True)
        matches = [*filter(os.path.isfile, names)]
        if not matches:
            raise ValueError(
                f"No file matches {pattern!r}. Check the folder (relative to {os.getcwd()!r}), and "
                "put patterns in quotes."
            )
        files.update(matches)
    return distinct_files(sorted(files))


def read_objects(file: CountedFile) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in a dump file. The file counts other lines by reason."""
    for line in read_lines(file):
        with file.skipping():
            value = json_in_line(line, is_dump=True)
            if not isinstance(value, dict):
                raise UnusableError("not_an_object")
            yield value


def split_dump(path: str, output: str, *, part_bytes: int, overwrite: bool = False) -> list[str]:
    """Split a dump into several compressed files, so that many tasks can read it at once.

    Either all parts are written or none. One line and the decompression window of the archive are
    in memory at a time. The window takes 2 GiB for monthly Reddit dumps, but only a few MiB for the
    parts.

    Args:
      path: a dump, compressed or not.
      output: folder for the parts. It may contain other files, such as parts of other dumps.
      part_bytes: size of each part before compression, in bytes. A part may exceed it by up to one
        line.
      overwrite: whether to replace earlier parts of this dump, or of another dump with the same
        name (`corpus_name`).

    Returns:
      The file names of the parts.

    Raises:
      ValueError: if the dump has no lines, or parts of it already exist.
      OSError: if a file cannot be read or written.
    """
    pattern = f"{glob.escape(corpus_name(path))}-part-*.zst"

    def parts(folder: str | Path) -> list[str]:
        return sorted(map(str, Path(folder).glob(pattern)))

    file = CountedFile(path, max_line_bytes=sys.maxsize)
    target = OutputFolder(output, data_files=parts, overwrite=overwrite)
    with target.open() as folder, Progress("lines", total_bytes=os.path.getsize(path)) as progress:
        lines = (line + b"\n" for line in lines_in(read_pieces(file), file))
        for number, first in enumerate(lines):
            name = f"{corpus_name(path)}-part-{number:05d}.zst"
            num_bytes = 0
            with zst_written(str(folder / name)) as part:
                for line in itertools.chain([first], lines):
                    part.write(line)
                    progress.add(bytes_done=file.compressed_bytes)
                    num_bytes += len(line)
                    if num_bytes >= part_bytes:
                        break
        file.print_warnings()
        names = [os.path.basename(part) for part in parts(folder)]
        if not names:
            raise ValueError(f"{path} has no lines.")
    return names
