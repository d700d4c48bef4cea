"""On every page, blocks parse, commands have their flags, and links and names exist."""

import functools
import importlib
import re

import pytest
from absl import flags
from support.documents import (
    LAB,
    PAGES,
    README,
    ROOT,
    Command,
    blocks,
    commands,
    headings,
    page_text,
    prose,
)  # fmt: skip

from convert_tf.cli.flags import COMMON_TEXTS, define_flag
from convert_tf.cli.main import COMMANDS, main
from convert_tf.config.base import entries

RECIPES = ROOT / "hub_modules" / "recipes"
# Blocks marked "text" are read or run by other programs, in versions not installed here.
LANGUAGES = {"python", "sh", "csv", "dockerfile", "text"}
# Flags of other programs that the text mentions.
FOREIGN_FLAGS = {
    "--constraint", "--flagfile", "--help", "--helpfull", "--no-compile", "--no-deps", "--only",
    "--preload",
}  # fmt: skip
BENCHMARK_FLAG = re.compile(r"DEFINE_\w+\(\s*\"(\w+)\"|add_argument\(\s*\"(--\w+)\"")


def module_of(name):
    module = name.replace(" ", ".").replace("-", "_")
    return importlib.import_module(f"convert_tf.cli.{module}")


def flags_of(name):
    """Return the flags of a command."""
    values = flags.FlagValues()
    module_of(name).define_flags(functools.partial(define_flag, values))
    return values


@pytest.mark.parametrize("name", COMMANDS)
def test_docstrings_describe_the_flags(name):
    values = flags_of(name)
    described = {*entries(module_of(name).__doc__, "Flags")}
    without_text = {flag for flag in values if not values[flag].text}
    assert described <= without_text <= described | {*COMMON_TEXTS}


@pytest.fixture
def check(monkeypatch, capsys):
    """Return a function that parses a command's flags and returns the error message, if any."""

    def call(command: Command) -> str:
        with monkeypatch.context() as patch:
            patch.setattr(module_of(command.name), "run", lambda *values: None)
            status = main([*command.name.split(), *command.arguments])
        said = capsys.readouterr().err
        return said if status else ""

    return call


@pytest.fixture(scope="module")
def known_flags():
    names = {f"--{flag}" for name in COMMANDS for flag in flags_of(name)}
    for path in (ROOT / "benchmarks").glob("*.py"):
        for flag, argument in BENCHMARK_FLAG.findall(path.read_text(encoding="utf-8")):
            names.add(argument or f"--{flag}")
    return names | FOREIGN_FLAGS | {"--version"}


@pytest.mark.parametrize("page", PAGES)
def test_blocks_have_a_language(page):
    assert {block.language for block in blocks(page)} <= LANGUAGES


@pytest.mark.parametrize("page", PAGES)
def test_commands_are_those_of_the_program(page, check):
    lines = [block.text for block in blocks(page, language="sh")]
    for command in (each for text in lines for each in commands(text, COMMANDS)):
        assert check(command) == ""
    text = page_text(page)
    assert "python -m convert_tf." not in text
    for script in re.findall(r"python (\S+\.py)", text):
        assert (ROOT / script).is_file(), script
    for words in re.findall(r"`convert-tf\s([^`]*)`", prose(page)):
        name = words.split(" --")[0]
        is_own = any(each.startswith(name) for each in COMMANDS)
        assert is_own or name in ("--help", "--version"), name


@pytest.mark.parametrize("page", PAGES)
def test_targets_are_those_of_the_makefile(page):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    lines = [*(block.text for block in blocks(page, language="sh")), prose(page)]
    named = {name for text in lines for name in re.findall(r"(?:^|`)make ([a-z-]+)", text, re.M)}
    assert named <= {*targets}


@pytest.mark.parametrize("page", PAGES)
def test_flags_in_the_text_exist(page, known_flags):
    inline = " ".join(re.findall(r"`([^`]+)`", prose(page)))
    named = {f"--{name}" for name in re.findall(r"(?<![\w-])--([a-z][\w-]*)", inline)}
    assert named - known_flags == set()


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.flags")), ids=lambda path: path.stem)
def test_recipes_are_flags_of_train(path, check, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert check(Command("train", [f"--flagfile={path}", "--output=runs/x"])) == ""


def test_commands_of_the_recipe_are_those_of_the_program(check):
    script = (RECIPES / "train.sh").read_text(encoding="utf-8")
    # The script calls the module, because the program may not be installed.
    script = script.replace('convert_tf() { python3 -m convert_tf "$@"; }', "")
    found = [*commands(script.replace("convert_tf ", "convert-tf "), COMMANDS)]
    assert [command.name for command in found] == [
        "prepare", "vocabulary", "tokenize", "tokenize", "train", "teach", "mine", "export",
    ]  # fmt: skip
    of_the_shell = ("$@", "flagfile", "${")
    for command in found:
        own = [each for each in command.arguments if not any(x in each for x in of_the_shell)]
        assert check(command._replace(arguments=own)) == ""


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (ROOT / page).parent / path if path else ROOT / page
        assert linked.exists(), target
        if anchor:
            other = linked.resolve().relative_to(ROOT).as_posix()
            assert anchor in headings(other), target


@pytest.mark.parametrize("page", PAGES)
def test_files_and_names_exist(page):
    text = page_text(page)
    for path in re.findall(r"`((?:tests|benchmarks|convert_tf|docs|scripts)/[\w./]*)`", text):
        assert (ROOT / path).exists(), path
    for name in {*re.findall(r"(?<![\w./])convert_tf(?:\.\w+)+", text)}:
        assert is_name(name), name


def is_name(name: str) -> bool:
    """Return whether the name is a module of the package, or an object in one."""
    path = ROOT.joinpath(*name.split("."))
    if path.is_dir() or path.with_suffix(".py").is_file():
        return True
    return hasattr(importlib.import_module(name.rpartition(".")[0]), path.name)


def linked_pages(page):
    """Return the files that a page links to, relative to the repository root."""
    folder = (ROOT / page).parent
    links = re.findall(r"\]\(([^)#\s]+)", prose(page))
    files = {(folder / link).resolve() for link in links if "://" not in link}
    return {path.relative_to(ROOT).as_posix() for path in files if path.is_relative_to(ROOT)}


def test_every_page_is_linked_from_the_readme_or_the_lab_notes():
    assert LAB in linked_pages("docs/results.md")
    assert {*PAGES} - {README} <= linked_pages(README) | linked_pages(LAB) | {LAB}


@pytest.mark.parametrize(
    ("page", "limit"), [(README, 200), ("docs/results.md", 250), ("docs/decisions.md", 250)]
)
def test_pages_that_grow_stay_short(page, limit):
    assert len(page_text(page).splitlines()) <= limit


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/lab/")])
def test_lab_notes_are_dated(page):
    assert re.search(r"\b20\d\d-\d\d-\d\d\b", page_text(page))


def test_the_table_of_packages_is_that_of_the_code():
    page = page_text("docs/architecture.md")
    named = re.findall(r"^\| `([a-z]+)(?:\.py)?` \|", page, re.MULTILINE)
    package = ROOT / "convert_tf"
    on_disk = {path.parent.name for path in package.glob("*/__init__.py")}
    on_disk |= {path.stem for path in package.glob("*.py") if not path.stem.startswith("__")}
    assert sorted(named) == sorted(on_disk)
