"""Sampling and creating mutants with `scripts/mutate.py`."""

import ast

import pytest
from support.commands import ROOT
from support.script_calls import script_with_flags

SOURCE = """
def f(x: int = 3) -> int:
    if x < 2 and not x:
        raise ValueError("no" + str(4))
    print(x)
    return x + 0.5 if x else True
"""


@pytest.fixture
def mutate(monkeypatch):
    return script_with_flags(monkeypatch, ROOT / "scripts" / "mutate.py")[0]


def test_each_kind_of_change_is_made_once(mutate):
    changes = {
        (mutant.before, mutant.after): mutate.mutated(SOURCE, mutant)
        for mutant in mutate.mutants_of("f.py", SOURCE)
    }
    assert {*changes} == {
        ("3", "4"), ("x < 2 and (not x)", "x < 2 or not x"), ("x < 2", "x <= 2"), ("2", "3"),
        ("not x", "x"), ("print(x)", "pass"), ("x + 0.5", "x - 0.5"), ("0.5", "5.0"),
        ("True", "False"), ("x + 0.5 if x else True", "True if x else x + 0.5"),
    }  # fmt: skip
    whole = ast.unparse(ast.parse(SOURCE))
    for (before, after), source in changes.items():
        lines = [
            (old, new)
            for old, new in zip(whole.splitlines(), source.splitlines(), strict=True)
            if old != new
        ]
        assert len(lines) == 1
        assert before in lines[0][0]
        assert after in lines[0][1]


@pytest.mark.parametrize(
    ("before", "lines"),
    [
        ("3", None),  # defaults are evaluated at import
        ("x < 2", range(3, 4)),  # the condition of an `if`, without its body
        ("print(x)", range(5, 6)),
        ("True", range(6, 7)),
    ],
)
def test_lines_of_a_mutant(mutate, before, lines):
    (mutant,) = (m for m in mutate.mutants_of("f.py", SOURCE) if m.before == before)
    assert mutate.executed_lines(SOURCE, mutant) == lines


def test_tests_that_reach_a_mutant_are_selected_by_speed(mutate):
    seconds = {"a.py::slow": 3.0, "a.py::fast": 1.0, "b.py::other": 2.0, "c.py::far": 0.1}
    reached = {5: {"a.py::slow", "a.py::fast", "b.py::other"}, 6: {"b.py::other"}}
    recording = mutate.Recording(seconds, {"f.py": reached})
    mutants = {mutant.before: mutant for mutant in mutate.mutants_of("f.py", SOURCE)}
    names = ["b.py::other", "a.py::fast", "a.py::slow"]
    assert mutate.selected(recording, SOURCE, mutants["print(x)"]) == names
    assert mutate.selected(recording, SOURCE, mutants["True"]) == ["b.py::other"]
    # A default may affect everything, and a line without tests may run in another process.
    for before in ("3", "x < 2"):
        assert mutate.selected(recording, SOURCE, mutants[before]) == [*names, "c.py::far"]


SMALL_TESTS = """
import importlib.util, pathlib, pytest

@pytest.fixture(scope="session")
def module():
    path = pathlib.Path(__file__).parents[1] / "convert_tf" / "small.py"
    spec = importlib.util.spec_from_file_location("small", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.LOADED = module.loaded()
    return module

def test_sum(module):
    assert module.increased(1) == 2

def test_fixture(module):
    assert module.LOADED == 7

def test_unrelated():
    pass
"""
SMALL = """
def increased(x):
    return x + 1

def loaded():
    return 7

def unused():
    return 8
"""


def test_a_mutant_is_killed_by_tests_that_reach_it(monkeypatch, tmp_path):
    pytest.importorskip("coverage")
    mutate, values = script_with_flags(monkeypatch, ROOT / "scripts" / "mutate.py")
    values(["mutate", "--output=unused.json"])
    monkeypatch.setitem(mutate.TESTED, "small", "tests")
    for path, text in {
        "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--import-mode=importlib'\n",
        "convert_tf/small.py": SMALL,
        "tests/test_small.py": SMALL_TESTS,
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    recording = mutate.recorded(tmp_path, "small")
    assert {test.split("::")[1] for test in recording.seconds} == {
        "test_sum", "test_fixture", "test_unrelated",
    }  # fmt: skip
    mutants = {m.before: m for m in mutate.mutants_of("convert_tf/small.py", SMALL)}
    for before, names in {
        "x + 1": ["test_sum"],
        "7": ["test_fixture", "test_sum"],  # from a fixture that both use
        "8": ["test_fixture", "test_sum", "test_unrelated"],  # not recorded in any test
    }.items():
        tests = mutate.selected(recording, SMALL, mutants[before])
        assert sorted(test.split("::")[1] for test in tests) == names
    with_sum, with_fixture = (
        ["tests/test_small.py::test_sum"],
        ["tests/test_small.py::test_fixture"],
    )
    assert mutate.is_killed(tmp_path, mutants["x + 1"], with_sum, 60)
    assert not mutate.is_killed(tmp_path, mutants["x + 1"], with_fixture, 60)
    assert (tmp_path / "convert_tf" / "small.py").read_text() == SMALL


def test_a_draw_has_as_many_of_each_entry_and_stays_the_same(mutate):
    pairs = mutate.drawn(10, 0, ["layers", "text"])
    assert [entry for entry, _ in pairs] == 5 * ["layers"] + 5 * ["text"]
    assert pairs == mutate.drawn(10, 0, ["layers", "text"])
    assert pairs != mutate.drawn(10, 1, ["layers", "text"])
    assert pairs[5:] == mutate.drawn(5, 0, ["text"])
    assert len({mutant for _, mutant in pairs}) == 10


def test_entries_and_their_tests_exist(mutate):
    for entry, tests in mutate.TESTED.items():
        assert (ROOT / "convert_tf" / entry).exists()
        assert (ROOT / tests).exists()
