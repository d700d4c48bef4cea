"""The code blocks, links and commands of the documentation, for tests that run and check them."""

import functools
import importlib
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from convert_tf.cli.flags import define_flag
from convert_tf.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
README = "README.md"
LAB = "docs/lab/README.md"  # links to the other pages in its folder
PAGES = [
    README,
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "hub_modules/README.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")),
]
_SCRIPTS = {"train.py": "train", "export.py": "export"}
_SEPARATORS = re.compile(r"[;&|]+")


class Block(NamedTuple):
    """A fenced block of a page.

    Attributes:
      page: path relative to the repository root.
      section: the heading above the block.
      number: index among the blocks of the same language on the page, starting at 0.
      language: the language named after the opening fence.
      text: the lines of the block.
    """

    page: str
    section: str
    number: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}, {self.language} {self.number}"


class Command(NamedTuple):
    """A call of `convert-tf`, or of a script for one of its commands.

    Attributes:
      name: command name, as in `convert_tf.cli.main.COMMANDS`.
      arguments: the arguments after the name.
      stdin: text that `echo` pipes into the command.
    """

    name: str
    arguments: list[str]
    stdin: str = ""


def page_text(page: str) -> str:
    """Return the text of a page."""
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, *, language: str | None = None, section: str | None = None) -> list[Block]:
    """Return the fenced blocks of a page in order, optionally only one language or section."""
    found: list[Block] = []
    heading, language_of_block, lines = "", None, []
    for line in page_text(page).splitlines():
        if line.startswith("```") and language_of_block is None:
            language_of_block, lines = line[3:], []
        elif line.startswith("```"):
            number = sum(block.language == language_of_block for block in found)
            text = "\n".join(lines) + "\n"
            found.append(Block(page, heading, number, language_of_block or "", text))
            language_of_block = None
        elif language_of_block is not None:
            lines.append(line)
        elif match := re.match(r"#+ (.*)", line):
            heading = match[1]
    return [
        block
        for block in found
        if language in (None, block.language) and section in (None, block.section)
    ]


def prose(page: str) -> str:
    """Return a page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page_text(page), flags=re.DOTALL | re.MULTILINE)


def headings(page: str) -> list[str]:
    """Return the link anchors of a page's headings."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]


def run_block(block: Block, names: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run a Python block, with some of its paths replaced, and return its variables."""
    source = block.text
    for path, other in (names or {}).items():
        assert path in source
        source = source.replace(path, other)
    found: dict[str, Any] = {}
    exec(compile(source, str(block), "exec"), found)
    return found


def commands(lines: str, known: Mapping[str, str]) -> Iterator[Command]:
    """Yield the calls of this project's commands in a shell block.

    Args:
      lines: the block; `…` stands for more arguments, `$NAME` for a variable set in the block.
      known: the commands, as in `convert_tf.cli.main.COMMANDS`.

    Raises:
      ValueError: a line calls `convert-tf` with an unknown command.
    """
    lines = lines.replace("\\\n", " ")
    for name, value in re.findall(r'^([A-Z]+)="(.*?)"$', lines, re.MULTILINE):
        lines = lines.replace(f"${name}", value)
    for line in lines.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&")
        lexer.whitespace_split = True
        call: list[str] = []
        stdin = ""
        for word in [*lexer, ";"]:
            if not _SEPARATORS.fullmatch(word):
                call.append(word)
                continue
            stdin = " ".join(call[1:]) if call[:1] == ["echo"] else stdin
            if found := _command(call, known):
                yield found._replace(stdin=stdin)
            call = []


def parse(line: str) -> None:
    """Parse the flags of a command, or check that a script exists and defines them."""
    if script := re.match(r"python (\S+\.py)", line):
        source = (ROOT / script[1]).read_text(encoding="utf-8")
        names = re.findall(r"--(\w+)", line)
        assert all(f'"{name}"' in source or f'"--{name}"' in source for name in names), line
        return
    (command,) = commands(line, COMMANDS)
    module = importlib.import_module(f"convert_tf.cli.{command.name.replace(' ', '.')}")
    values = flags.FlagValues()
    module.define_flags(functools.partial(define_flag, values))
    assert values([command.name, *command.arguments]) == [command.name], line


def _command(call: list[str], known: Mapping[str, str]) -> Command | None:
    """Return the command in one call, skipping variables and launchers such as srun."""
    for place, word in enumerate(call):
        rest = [each for each in call[place + 1 :] if each != "…"]
        if word in _SCRIPTS:
            return Command(_SCRIPTS[word], rest)
        if word == "convert-tf" or call[place : place + 2] == ["-m", "convert_tf"]:
            rest = rest if word == "convert-tf" else rest[1:]
            for name in (" ".join(rest[:2]), *rest[:1]):
                if name in known:
                    return Command(name, rest[len(name.split()) :])
            raise ValueError(f"no command of convert-tf: {' '.join(call)}")
    return None
