"""The counts of `scripts/count_lines.py`."""

from pathlib import Path

import pytest
from support.script_calls import script_module

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "count_lines.py"
CODE = "def double(x, y):\n    return 2 * x\n"
TOKENS = 11  # def double ( x y ) : return 2 * x


@pytest.fixture(scope="module")
def counting():
    return script_module(SCRIPT)


@pytest.mark.parametrize(
    "source",
    [
        CODE,
        f"'''A module.'''\n\n{CODE}",
        'def double(x, y):  # why\n    """Return twice x.\n\n    In two lines.\n    """\n'
        "    return 2 * x\n",
        "def double(\n    x,\n    y,\n):\n\n    return 2 * x\n",
    ],
)
def test_layout_comments_and_docstrings_do_not_count(counting, source):
    assert counting.code_tokens(source) == TOKENS


def test_texts_that_are_no_docstrings_count(counting):
    assert counting.code_tokens(f"{CODE}name = 'text'\n") == TOKENS + 3


def test_functions_are_long_without_their_docstring(counting):
    docstring = '    """Many.\n\n' + "    Lines.\n" * 70 + '    """\n'
    short, long = ("    x = 1\n" * (counting.MAX_LINES + more) for more in (-1, 0))
    source = f"def short():\n{docstring}{short}\nclass A:\n def long(self):\n{docstring}{long}"
    assert [*counting.long_functions(source)] == [("long", counting.MAX_LINES + 1)]
