"""The results of intent benchmarks: JSON that later runs add to, tables and a bar chart."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from convert_tf.figures import BLUE, picture, write_picture
from convert_tf.intents.benchmark import FULL, Report
from convert_tf.storage.files import write_file
from convert_tf.storage.json_text import parsed_json, written_json
from convert_tf.storage.tables import aligned, as_markdown

JSON_FILE = "benchmark.json"
MARKDOWN_FILE = "benchmark.md"
CHART_FILE = "benchmark.png"
_METRICS = ("accuracy", "macro_f1", "in_scope_accuracy", "out_of_scope_recall")


def merged(report: Report, path: str | os.PathLike[str]) -> Report:
    """The report with the rows of one that is there: a regime of a row is replaced, or added.

    Raises:
      ValueError: what is there is on other examples, or no report.
    """
    if not os.path.exists(path):
        return report
    try:
        there = parsed_json(Path(path).read_text(encoding="utf-8"))
        same = there["task"] == report["task"]
        rows = {row["name"]: row["regimes"] for row in there["rows"]}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{JSON_FILE} must be what a benchmark wrote. Received: {os.fspath(path)!r} ({error}). "
            "Remove it, or choose another --output."
        ) from error
    if not same:
        raise ValueError(
            "A folder holds the results on one set of examples. Received: "
            f"{os.fspath(path)!r}, whose results are of {there['task']}. Choose another --output."
        )
    for row in report["rows"]:
        rows[row["name"]] = {**rows.get(row["name"], {}), **row["regimes"]}
    return {
        "task": report["task"],
        "rows": [{"name": name, "regimes": regimes} for name, regimes in rows.items()],
    }


def write_benchmark(report: Report, folder: str | os.PathLike[str]) -> Report:
    """Writes JSON, Markdown and PNG; rows that are there of the same examples are kept.

    Returns:
      The report with those rows.

    Raises:
      ValueError: the folder holds a report on other examples.
      OSError: a file could not be written.
    """
    folder = Path(folder)
    report = merged(report, folder / JSON_FILE)
    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / JSON_FILE, written_json(report))
    write_file(folder / MARKDOWN_FILE, as_markdown(_tables(report)))
    write_picture(folder / CHART_FILE, lambda: _chart(report))
    return report


def _regimes(report: Report) -> list[str]:
    """Fewest examples first, all last."""
    found = {name for row in report["rows"] for name in row["regimes"]}
    return sorted(found, key=lambda name: (name == FULL, int(name) if name != FULL else 0))


def _titles(report: Report) -> dict[str, str]:
    return {name: name if name == FULL else f"{name}-shot" for name in _regimes(report)}


def _tables(report: Report) -> list[list[list[str]]]:
    """A table for each metric that there is: its name and regimes, then rows."""
    tables = []
    for metric in _METRICS:
        titles = _titles(report)
        rows = [[metric.replace("_", " "), *titles.values()]]
        for row in report["rows"]:
            cells = [_cell(row["regimes"].get(name), metric) for name in titles]
            rows.append([row["name"], *cells])
        if any(cell for row in rows[1:] for cell in row[1:]):
            tables.append(rows)
    return tables


def _cell(regime: Mapping[str, Any] | None, metric: str) -> str:
    if regime is None or metric not in regime["mean"]:
        return ""
    mean, std = 100 * regime["mean"][metric], 100 * regime["std"][metric]
    return f"{mean:.1f} ± {std:.1f}" if len(regime["runs"]) > 1 else f"{mean:.1f}"


def benchmark_table(report: Report) -> str:
    """The report for a terminal, in percent."""
    return aligned(_tables(report))


@picture
def _chart(report: Report) -> Any:
    """A panel for each regime, a bar for each row's accuracy ± standard deviation."""
    from matplotlib.figure import Figure

    titles, rows = _titles(report), report["rows"]
    figure = Figure(figsize=(2.6 + 2.2 * len(titles), 1.1 + 0.34 * len(rows)))
    panels = np.atleast_1d(figure.subplots(1, len(titles), sharey=True))
    for panel, (name, title) in zip(panels, titles.items(), strict=True):
        regimes = [row["regimes"].get(name) for row in rows]
        values = [100 * each["mean"]["accuracy"] if each else 0.0 for each in regimes]
        errors = [100 * each["std"]["accuracy"] if each else 0.0 for each in regimes]
        bars = panel.barh(range(len(rows)), values, xerr=errors, height=0.7, color=BLUE)
        texts = [f"{value:.1f}" if value else "" for value in values]
        panel.bar_label(bars, texts, padding=3, fontsize=8)
        panel.set_xlim(0, 122)  # room for the numbers behind the bars
        panel.set_xticks([0, 50, 100])
        panel.set_title(title)
    panels[0].set_yticks(range(len(rows)), [row["name"] for row in rows])
    panels[0].invert_yaxis()
    figure.supxlabel(f"accuracy (%) on {report['task']['test_examples']:,} examples", fontsize=8)
    return figure
