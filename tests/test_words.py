"""Checks that uninformative variable names become fewer, and of docstring indentation."""

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# How many variables or arguments in convert_tf have each of these names. Lower a number when you
# rename some, and name new variables after their content.
ALLOWED = {"own": 0, "found": 0, "kept": 5, "known": 16, "each": 0, "there": 0}


def bound_names(source: str) -> Counter[str]:
    """Count the names bound by assignments, loops, comprehensions and arguments."""
    names: Counter[str] = Counter()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names[node.id] += 1
        elif isinstance(node, ast.arg):
            names[node.arg] += 1
    return names


def test_every_way_to_bind_a_name_is_counted():
    source = """
def f(own, *each):
    found = own
    return [own for own in each]
for each in ():
    own.x = 1
"""
    assert bound_names(source) == Counter({"own": 2, "each": 2, "found": 1})


def test_empty_names_become_fewer():
    names: Counter[str] = Counter()
    for path in (ROOT / "convert_tf").rglob("*.py"):
        names += bound_names(path.read_text(encoding="utf-8"))
    counts = {name: names[name] for name in ALLOWED}
    more = {name: number for name, number in counts.items() if number > ALLOWED[name]}
    assert not more, f"{more}: name variables after what they hold"


def wide_sections(source: str) -> list[str]:
    """Return docstring sections, such as Args, whose entries are not indented by two spaces."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    parts = [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]
    docstrings = [ast.get_docstring(part) or "" for part in parts]
    entries = [re.findall(r"^([A-Z][a-z ]+):\n( +)", text, re.MULTILINE) for text in docstrings]
    return [heading for pairs in entries for heading, indent in pairs if len(indent) != 2]


def test_entries_of_docstrings_are_indented_by_two():
    four = 'def f(x):\n    """One.\n\n    Args:\n        x: two.\n\n    Returns:\n      y.\n    """'
    assert wide_sections(four) == ["Args"]
    files = [*(ROOT / "convert_tf").rglob("*.py"), *(ROOT / "benchmarks").glob("*.py")]
    wide = {path.name: wide_sections(path.read_text(encoding="utf-8")) for path in files}
    assert not any(wide.values()), {name: headings for name, headings in wide.items() if headings}
