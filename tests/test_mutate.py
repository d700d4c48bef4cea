"""Mutants are drawn and made as `scripts/mutate.py` says."""

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


def test_a_draw_has_as_many_of_each_entry_and_stays_the_same(mutate):
    pairs = mutate.drawn(10, 0, ["layers", "text"])
    assert [entry for entry, _ in pairs] == 5 * ["layers"] + 5 * ["text"]
    assert pairs == mutate.drawn(10, 0, ["layers", "text"])
    assert pairs != mutate.drawn(10, 1, ["layers", "text"])
    assert len({mutant for _, mutant in pairs}) == 10


def test_entries_and_their_tests_exist(mutate):
    for entry, tests in mutate.TESTED.items():
        assert (ROOT / "convert_tf" / entry).exists()
        assert (ROOT / tests).exists()
