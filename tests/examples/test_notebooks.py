"""The notebooks run from the first to the last cell and give the outputs that they show."""

import json
import re
import shutil
import subprocess
import sys

import pytest
from support.commands import own_environment
from support.documents import ROOT, page_text

from scripts import run_notebooks

FOLDER = ROOT / "notebooks"
EXAMPLES = [path for path in (ROOT / "examples").iterdir() if path.name != "__pycache__"]
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))


def cells_of(path, kind):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def shown(path):
    """Return the outputs of each cell without numbers, whose rounding depends on the processor."""
    return [
        re.sub(r"\d+", "#", json.dumps(cell["outputs"], ensure_ascii=False))
        for cell in cells_of(path, "code")
    ]


def test_there_are_three():
    assert len(NOTEBOOKS) == 3


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_small_and_was_run(name):
    path = FOLDER / name
    assert path.stat().st_size < 1_000_000
    numbers = [cell["execution_count"] for cell in cells_of(path, "code")]
    assert numbers == [*range(1, len(numbers) + 1)]
    assert sum(bool(cell["outputs"]) for cell in cells_of(path, "code")) >= 3
    assert "/home/" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_links_of_a_notebook_lead_somewhere(name):
    for cell in cells_of(FOLDER / name, "markdown"):
        for link in re.findall(r"\]\(([^)#]+)", "".join(cell["source"])):
            assert (FOLDER / link).exists(), link


def test_the_page_of_the_first_hour_lists_notebooks_and_examples():
    page = page_text("docs/first_hour.md")
    assert {*re.findall(r"\(\.\./notebooks/([\w.]+)\)", page)} == {*NOTEBOOKS}
    examples = {*re.findall(r"^\| `examples/([\w./]+)` \|", page, re.MULTILINE)}
    assert {f"{path.name}{'/' * path.is_dir()}" for path in EXAMPLES} == examples
    (steps,) = page.split("|---|---|---|")[1:]
    assert sum(map(int, re.findall(r"^\| (\d+) \|", steps, re.MULTILINE))) == 60


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_has_the_outputs_that_it_shows(name, tmp_path):
    copy = tmp_path / name
    shutil.copy(FOLDER / name, copy)
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "run_notebooks.py", copy],
        env={**own_environment(), "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    again = "Run it again: python -m scripts.run_notebooks notebooks/*.ipynb"
    assert shown(copy) == shown(FOLDER / name), again


def test_a_cell_prints_and_shows_its_last_value():
    names = {}
    first = run_notebooks.run_cell("x = 3\nprint('hi')\nx + 1", names, "cell 1")
    assert [output["output_type"] for output in first] == ["stream", "execute_result"]
    assert first[0]["text"] == ["hi\n"] and first[1]["data"] == {"text/plain": ["4"]}
    assert run_notebooks.run_cell("y = x", names, "cell 2") == []
    assert names["y"] == 3


def notebook_with(source, path):
    cell = {"cell_type": "code", "source": [source], "outputs": [], "execution_count": None}
    path.write_text(json.dumps({"cells": [cell]}), encoding="utf-8")
    return path


def test_what_a_child_process_prints_is_not_in_the_notebook(tmp_path, monkeypatch):
    path = notebook_with("import os\nos.system('echo hello')\n'é'", tmp_path / "child.ipynb")
    monkeypatch.setattr(sys, "argv", ["run_notebooks.py", str(path)])
    run_notebooks.main()
    (cell,) = cells_of(path, "code")
    assert [output["data"] for output in cell["outputs"]] == [{"text/plain": ["'é'"]}]


@pytest.mark.parametrize("source", ["import sys\nsys.exit(0)", "import os\nos._exit(0)"])
def test_a_cell_that_ends_the_process_is_a_failure(source, tmp_path, monkeypatch):
    path = notebook_with(source, tmp_path / "ends.ipynb")
    before = path.read_bytes()
    monkeypatch.setattr(sys, "argv", ["run_notebooks.py", str(path)])
    with pytest.raises(SystemExit, match=r"ends\.ipynb failed"):
        run_notebooks.main()
    assert path.read_bytes() == before


def test_a_notebook_that_fails_stays_as_it_was(tmp_path, monkeypatch, capfd):
    path = notebook_with("1 / 0", tmp_path / "fails.ipynb")
    before = path.read_bytes()
    monkeypatch.setattr(sys, "argv", ["run_notebooks.py", str(path)])
    with pytest.raises(SystemExit, match=r"fails\.ipynb failed"):
        run_notebooks.main()
    assert path.read_bytes() == before
    said = capfd.readouterr().err
    assert "ZeroDivisionError" in said and "fails.ipynb, cell 1" in said
