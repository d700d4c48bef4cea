"""`README.md` and `docs/results.md` show exactly the figures in `docs/results.json`."""

import copy
import datetime
import json
import re

import pytest
from support.documents import ROOT, page_text, parse

from convert_tf.checkpoints.released import RELEASED, RELEASES
from scripts import write_results

PAGES = ["README.md", "docs/results.md"]
AGAIN = "Change docs/results.json, and write the pages again: python -m scripts.write_results"
# Numbers in the text that are not figures: versions, numbers from papers, and settings.
NOT_MEASURED = {
    "README.md": {1911.03688, 3.10, 3.11, 3.13, 2.8, 3.6, 2.6, 2.21},
    "docs/results.md": {0.95, 90, 95},
}
# Commands that are not parsed, because they are other programs' or have steps in words.
OTHER_COMMANDS = ("du ", "the first block", "pip install", "KERAS_BACKEND=jax python train.py")


@pytest.fixture(scope="module")
def results():
    return json.loads(write_results.RESULTS.read_text(encoding="utf-8"))


def measurements_of(results):
    return {name: write_results.merged(all_) for name, all_ in results["measurements"].items()}


def figures_of(results):
    return write_results.figures_of(measurements_of(results), results["tables"])


@pytest.mark.parametrize("page", PAGES)
def test_the_pages_have_the_tables_of_the_file(page, results):
    text = page_text(page)
    assert write_results.written(text, page, results) == text, AGAIN


@pytest.mark.parametrize("page", PAGES)
def test_figures_in_paragraphs_are_in_the_file(page, results):
    values = {figure.value for figure in figures_of(results)}
    for kind, lines in write_results.paragraphs(page_text(page)):
        if kind == "text":
            missing = {*write_results.stated("\n".join(lines))} - values - NOT_MEASURED[page]
            assert not missing, (missing, lines, AGAIN)


def test_each_entry_says_where_it_is_from(results):
    for name, entries in results["measurements"].items():
        for entry in entries:
            assert entry["figures"], name
            assert entry["machine"] in results["machines"], name
            assert datetime.date.fromisoformat(entry["date"]), name
            assert entry["machine"] == "published" or entry["revision"], name
            # Unknown commands or revisions are declared as unknown.
            known = entry["commands"] and re.fullmatch("[0-9a-f]{7,}", entry["revision"])
            assert known or entry.get("note"), (name, "note")
            for command in entry["commands"]:
                if not command.startswith(OTHER_COMMANDS):
                    parse(command.removeprefix("taskset -c 1 "))


def test_each_encoder_has_weights_that_were_released_or_a_checksum(results):
    for figures in measurements_of(results).values():
        for encoder in figures:
            name, slash, version = encoder.partition("/")
            if slash and name in RELEASES:
                assert int(version) in RELEASES[name], encoder


@pytest.mark.parametrize("page", PAGES)
def test_a_changed_figure_is_seen(page, results):
    changed = copy.deepcopy(results)
    for entry in changed["measurements"]["ranking"]:
        for figures in entry["figures"].values():
            figures["all"] = 99.875
    assert write_results.written(page_text(page), page, changed).count("99.9") >= 4


def test_figures_are_told_from_other_numbers():
    assert {*write_results.stated("It has 99.5 % of them, 3,080 texts and 7 ms.")} == {99.5, 7}
    assert write_results.stated("It takes 21–24 s, see `a 5.5` and [x](y1.5).") == [21, 24]


NEWEST = RELEASED["convert_small"]
TABLE = "| | a |\n|---|---|\n| it | old |\n"
PAGE = f"# Small\n\n{TABLE}\n- It reaches\n  94.6 % of them.\n- MiniLM 86.7 %.\n"


def made(figures):
    """Return the page above with its table written from these figures."""
    results = {
        "measurements": {"m": [{"figures": each} for each in figures]},
        "tables": {"page.md": {"Small": [[["", "a"], ["it", "{m[convert_small][a]:.1f} %"]]]}},
    }
    return write_results.written(PAGE, "page.md", results)


def test_figures_of_older_weights_have_a_dagger(monkeypatch):
    figures = {f"convert_small/{NEWEST}": {"a": 63.5, "b": 94.6}, "MiniLM": {"a": 86.7}}
    expected = PAGE.replace("old", "63.5 %")
    assert made([figures]) == expected
    monkeypatch.setitem(write_results.RELEASED, "convert_small", NEWEST + 1)
    marked = expected.replace("63.5 %", "63.5 % †").replace("94.6 % of them.", "94.6 % of them. †")
    assert made([figures]) == marked
    newer = {f"convert_small/{NEWEST + 1}": {"a": 71.25}}
    assert "| it | 71.2 % |" in made([figures, newer])
    results = {"measurements": {"m": [{"figures": figures}]}, "tables": {"page.md": {}}}
    assert write_results.written(marked, "page.md", results).count("†") == 2
    monkeypatch.undo()
    assert write_results.written(marked, "page.md", results).count("†") == 1  # in the old table


def test_weights_without_a_version_are_outdated_but_by_their_checksum():
    assert write_results.is_outdated("convert@854afc17")
    assert not write_results.is_outdated("MiniLM")
    weights = RELEASES["convert"][RELEASED["convert"]].weights
    assert not write_results.is_outdated(f"convert@{weights[:8]}")


def test_faults_of_the_file_are_named(results):
    changed = copy.deepcopy(results)
    changed["tables"]["README.md"]["Encoders"][0][1][2] = "{sizes[convert_small][GB]:.1f}"
    with pytest.raises(write_results.PageError, match=r"sizes\[convert_small\]\[GB\]"):
        write_results.written(page_text("README.md"), "README.md", changed)
    changed = copy.deepcopy(results)
    changed["tables"]["README.md"]["Encoders"] *= 2
    with pytest.raises(write_results.PageError, match="'Encoders'"):
        write_results.written(page_text("README.md"), "README.md", changed)
    changed = copy.deepcopy(results)
    changed["measurements"]["ranking"] *= 2
    with pytest.raises(write_results.PageError, match="two entries"):
        write_results.written(page_text("README.md"), "README.md", changed)


def test_the_sizes_are_those_of_the_folders(results):
    for encoder, figures in measurements_of(results)["sizes"].items():
        files = [path for path in (ROOT / "hub_modules" / encoder).rglob("*") if path.is_file()]
        if files:
            size = sum(path.stat().st_size for path in files) / 1e6
            assert round(size, 1) == figures["MB"], encoder
