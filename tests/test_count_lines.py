"""`scripts/count_lines.py`: which lines are code."""

import importlib.util

from support.documents import ROOT

SOURCE = '''"""The file.

In two lines.
"""

# a comment
import os  # this line counts


class A:
    """A docstring."""

    text = """a string
    of two lines, which is code"""

    def f(self):
        return (
            # a comment

            os.name
        )
'''


def test_blank_lines_comments_and_docstrings_do_not_count():
    path = ROOT / "scripts" / "count_lines.py"
    spec = importlib.util.spec_from_file_location("count_lines", path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.code_lines(SOURCE) == 8
    assert script.code_lines("") == 0
