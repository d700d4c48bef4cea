"""Files of corpora with counts of their unusable lines, fields of JSON objects, and conversations.

A line has a maximum length. Unusable lines are counted by reason (`CountedFile`). A truncated or
damaged archive gives the lines before the damage.
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

from convert_tf.readers.files import TableFile, UnusableError, json_in_line, lines_in, read_lines
from convert_tf.storage.folders import OutputFolder
from convert_tf.storage.json_text import whole_characters
from convert_tf.storage.lines import COMPRESSED_SUFFIXES, read_pieces, zst_written
from convert_tf.storage.progress import Progress

_MAX_USED_OF_BAD = 0.1  # a file with fewer usable turns per bad line is mostly bad
_NUM_FIRST_BAD = 5  # bad lines named in messages and reports
MAX_NAME_LENGTH = 200


class Turn(NamedTuple):
    """One utterance of a speaker. `author` is empty if the corpus does not name it."""

    text: str
    author: str = ""


class Conversation(NamedTuple):
    """Consecutive turns, the oldest first, from a corpus that is not a tree of comments.

    `id` decides the split (md5, as for a Reddit thread). It must not depend on where or in which
    order the corpus is stored. Conversations with the same id are in the same split. `source` names
    the corpus. Turn number `first_answer` and those after it answer the turn before them; earlier
    turns are only context.
    """

    id: str
    source: str
    turns: tuple[Turn, ...]
    first_answer: int = 1


def hash_of(texts: Iterable[str]) -> str:
    """Return the md5 of texts in their order, as 32 hexadecimal digits."""
    joined = "\0".join(texts)
    return hashlib.md5(joined.encode("utf-8", "surrogatepass")).hexdigest()


def base_name(path: str) -> str:
    """Return the name of a file without its folder and the suffix of its compression."""
    name = os.path.basename(path)
    stem, suffix = os.path.splitext(name)
    return stem if suffix.lower() in COMPRESSED_SUFFIXES else name


def corpus_name(path: str) -> str:
    """Return the name of a file without folder and suffixes: `chats` for `data/chats.jsonl.zst`."""
    return whole_characters(os.path.splitext(base_name(path))[0])


def text_field(fields: Mapping[str, Any], name: str) -> str:
    """Return a field that must be a text.

    Raises:
      UnusableError: if it is not a text; the reason is `missing_` or `wrong_type_` and the name.
    """
    value = fields.get(name)
    if isinstance(value, str):
        return value
    raise UnusableError(f"missing_{name}" if value is None else f"wrong_type_{name}")


def name_field(fields: Mapping[str, Any], name: str, *, kinds: Any = str) -> str:
    """Return an optional short text, such as an author; empty if the field is missing or empty.

    Args:
      fields: the object.
      name: name of the field.
      kinds: allowed types. Values of other types than `str` are returned as texts.

    Raises:
      UnusableError: if it is unusable; the reason is `wrong_type_` or `too_long_` and the name.
    """
    value = fields.get(name)
    if not value:
        return ""
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise UnusableError(f"wrong_type_{name}")
    text = whole_characters(str(value))
    if len(text) > MAX_NAME_LENGTH:
        raise UnusableError(f"too_long_{name}")
    return text


@dataclass
class BadLines:
    """The number of unusable lines in all files of a run, and the places of the first ones.

    Args:
      limit: the largest allowed number; None for any.
    """

    limit: int | None = None
    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, later: "BadLines") -> None:
        """Add the lines of later files.

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
    """A file with counts of the lines that were read, and of the others by reason.

    Attributes:
      bad_lines: the malformed lines of all files of a run.
      skipped: number of unused lines and turns by reason.
      warnings: messages about the whole file.
      num_bad: number of malformed lines.
      first_bad: place of the first malformed line, and its reason.
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
          detail: not used here.

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

    def check_readable(self, num_used: int) -> None:
        """Check a file after it was read, unless the user allows a number of bad lines.

        Args:
          num_used: number of turns from the file.

        Raises:
          ValueError: if hardly any of its lines could be used.
        """
        is_bad = self.num_bad > 0 and 2 * self.num_bad >= self.lines
        if is_bad and num_used <= _MAX_USED_OF_BAD * self.num_bad:
            reasons = ", ".join(f"{n:,} {reason}" for reason, n in self.skipped.most_common())
            remedy = "Check that it is the right kind of file"
            if self.skipped.most_common(1)[0][0] == "invalid_utf8":
                remedy = "Convert it to UTF-8, for example with iconv -f WINDOWS-1252 -t UTF-8"
            raise ValueError(
                f"Hardly any line of {self.name} can be used: {reasons} in {self.lines:,} lines. "
                f"The first is {self.first_bad}. {remedy}. To skip such lines, pass "
                "--max_bad_lines."
            )
        if not num_used and not self.warnings:
            self.warn("nothing in it could be used")

    def warn(self, message: str) -> None:
        """Record a message about the whole file."""
        self.warnings.append(f"{self.name}: {message}")

    def print_warnings(self) -> None:
        """Print the messages about the whole file on standard error."""
        for warning in self.warnings:
            print(f"warning: {warning}", file=sys.stderr)

    def note(self, problem: str, reason: str = "") -> None:
        """Count the damage of an archive as an unused line, and warn of it."""
        self.problem = problem
        if not self.is_cut_off:
            self.warn("the file is empty")
            return
        self.skip(f"{problem}_archive" if self.kind != "plain" else "truncated_file")
        what = f"this is {self.damage}{reason and ', '}{reason}"
        self.warn(f"{what}; kept the {self.lines} lines before")


def find_files(patterns: Sequence[str]) -> list[str]:
    """Return the distinct files of names and glob patterns, sorted.

    Raises:
      ValueError: if a pattern matches no file.
    """
    files: set[str] = set()
    for pattern in patterns:
        # A file name may have brackets, which are special in patterns.
        names = [pattern] if os.path.isfile(pattern) else glob.glob(pattern, recursive=True)
        matches = [*filter(os.path.isfile, names)]
        if not matches:
            raise ValueError(
                f"No file matches {pattern!r}. Check the folder (relative to {os.getcwd()!r}), and "
                "put patterns in quotes."
            )
        files.update(matches)
    return sorted(files)


def read_objects(file: CountedFile) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a dump file. Other lines are counted by reason."""
    for line in read_lines(file):
        with file.skipping():
            value = json_in_line(line, is_dump=True)
            if not isinstance(value, dict):
                raise UnusableError("not_an_object")
            yield value


def split_dump(path: str, output: str, *, part_bytes: int, overwrite: bool = False) -> list[str]:
    """Write the lines of a dump to several compressed files, so that many tasks can read it.

    The parts are complete or do not exist. Memory holds one line and the window of the archive,
    which is 2 GiB for monthly Reddit dumps. Parts have windows of a few MiB.

    Args:
      path: a dump, compressed or not.
      output: folder of the parts. It may hold other files, such as parts of other dumps.
      part_bytes: size of a part before compression; the last line of a part may exceed it.
      overwrite: whether to replace earlier parts of this dump.

    Returns:
      The names of the parts.

    Raises:
      ValueError: if the dump has no line, or parts of it exist.
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
