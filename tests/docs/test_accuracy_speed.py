"""The figure in docs/results.md is drawn from the table on that page."""

import sys

from support.documents import ROOT, page_text

sys.path.insert(0, str(ROOT / "benchmarks"))

import accuracy_speed


def test_the_table_of_the_page_is_drawn():
    rows = accuracy_speed.read_table(page_text("docs/results.md"))
    assert [row.name for row in rows] == ["convert_small", "MiniLM", "TF-IDF"]
    assert all(len(row.scores) == 2 for row in rows)
    assert [row.milliseconds is None for row in rows] == [False, False, True]
    assert accuracy_speed.draw(rows).startswith(b"\x89PNG")
