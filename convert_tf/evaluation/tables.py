"""Write the results of an evaluation as tables, JSON and a bar chart."""

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from convert_tf.evaluation.compare import ALL, Report
from convert_tf.figures import BLUE, literal, picture, write_picture
from convert_tf.storage.files import write_results
from convert_tf.storage.json_text import parsed_json, written_json
from convert_tf.storage.messages import aligned, as_markdown

_MAX_LABEL = 36  # maximum length of a label, in characters
_LABEL_START = 6
_FRACTIONS = ("MRR", "MAP")  # these are shown as fractions, other metrics as percentages
# Entries that must be equal in reports to merge, with the value for a report that lacks the entry.
_SAME_TASK = (("k", None), ("examples_sha256", None), ("history", "own"))


def _number(name: str, value: float) -> str:
    return f"{value:.4f}" if name in _FRACTIONS else f"{value:.2%}"


def _rows(report: Report) -> tuple[list[list[str]], list[list[str]]]:
    """Return the main table and the table of groups, with headers. The latter may be empty."""
    scores = [row["groups"][ALL] for row in report["rows"]]
    names = list(scores[0]["metrics"])
    main = [["", *names, "examples", "seconds"]]
    for row, score in zip(report["rows"], scores, strict=True):
        numbers = [_number(name, score["metrics"][name]) for name in names]
        main.append([row["name"], *numbers, f"{score['examples']:,}", f"{row['seconds']:.1f}"])
    groups = [group for group in report["rows"][0]["groups"] if group != ALL]
    if not groups:
        return main, []
    divided = [["", "examples", *(row["name"] for row in report["rows"])]]
    for group in groups:
        scores = [row["groups"][group] for row in report["rows"]]
        first = next(iter(scores[0]["metrics"]))
        numbers = [_number(first, score["metrics"][first]) for score in scores]
        divided.append([f"{first}, {group}", f"{scores[0]['examples']:,}", *numbers])
    return main, divided


def ranking_table(report: Report) -> str:
    """Format a report for a terminal."""
    return aligned(_rows(report))


def ranking_markdown(report: Report) -> str:
    """Format a report as Markdown tables."""
    return as_markdown(_rows(report))


@picture
def ranking_chart(report: Report) -> Any:
    """Draw a report with one panel per metric and one bar per row."""
    from matplotlib.figure import Figure

    rows = report["rows"]
    names = list(rows[0]["groups"][ALL]["metrics"])
    labels = [literal(_short(row["name"])) for row in rows]
    figure = Figure(figsize=(2.2 + 2.6 * len(names), 1.1 + 0.34 * len(rows)))
    panels = np.atleast_1d(figure.subplots(1, len(names), sharey=True))
    for panel, name in zip(panels, names, strict=True):
        is_fraction = name in _FRACTIONS
        factor = 1 if is_fraction else 100
        values = [factor * row["groups"][ALL]["metrics"][name] for row in rows]
        bars = panel.barh(range(len(rows)), values, height=0.7, color=BLUE)
        texts = [f"{value:.3f}" if is_fraction else f"{value:.1f}" for value in values]
        panel.bar_label(bars, texts, padding=3, fontsize=8)
        panel.set_xlim(0, 1.2 * max([*values, 1e-9]))  # room for the numbers next to the bars
        panel.set_title(name if is_fraction else f"{name} (%)")
    panels[0].set_yticks(range(len(rows)), labels)
    panels[0].invert_yaxis()
    figure.supxlabel(f"{rows[0]['groups'][ALL]['examples']:,} examples", fontsize=8)
    return figure


def _short(name: str) -> str:
    """Shorten a name in the middle, because baselines differ at the start and paths at the end."""
    if len(name) <= _MAX_LABEL:
        return name
    return f"{name[:_LABEL_START]}…{name[_LABEL_START + 1 - _MAX_LABEL :]}"


def write_report(report: Report, folder: str | os.PathLike) -> Report:
    """Write a report as JSON, Markdown and PNG, and merge it with any report in the folder.

    Args:
      report: result of `compare`. Its rows replace rows with the same name in the folder. Other
        existing rows are kept.
      folder: folder to write to. It is created if necessary.

    Returns:
      The merged report.

    Raises:
      ValueError: if the folder contains a report on other examples, or with other metrics or
        another history, or a damaged report. Nothing is then written.
      OSError: if a file cannot be written.
    """
    folder = Path(folder)
    path = folder / "evaluation.json"
    if path.exists():
        before = _read(path)
        old, new_task = before["task"], report["task"]
        if any(old.get(key, lacking) != new_task.get(key, lacking) for key, lacking in _SAME_TASK):
            raise ValueError(
                f"{str(folder)!r} already contains results, for {before['task']}. Results on other "
                "examples, or with other metrics or another --history, cannot be added to them. "
                "Choose another --output, or remove the folder."
            )
        new = {row["name"]: row for row in report["rows"]}
        rows = [new.pop(row["name"], row) for row in before["rows"]]
        report = {**report, "rows": [*rows, *new.values()]}
        with _no_damage(path):
            _rows(report)  # rows of an edited report may lack metrics of the other rows
    contents = {path.name: written_json(report), "evaluation.md": ranking_markdown(report)}
    write_results(folder, contents)
    write_picture(folder / "evaluation.png", lambda: ranking_chart(report))
    return report


def _read(path: Path) -> Report:
    with _no_damage(path):
        report: Report = parsed_json(path.read_text(encoding="utf-8"))
        rows = report["rows"]
        scores = [score for row in rows for score in row["groups"].values()]
        numbers = [row["seconds"] for row in rows]
        numbers += [n for score in scores for n in (score["examples"], *score["metrics"].values())]
        has_rows = bool(rows) and all(
            isinstance(row["name"], str) and row["name"] and ALL in row["groups"] for row in rows
        )
        has_scores = all(score["metrics"] for score in scores) and all(map(math.isfinite, numbers))
        if not (has_rows and has_scores and isinstance(report["task"], dict)):
            raise ValueError("an entry has a wrong value")
        return report


@contextlib.contextmanager
def _no_damage(path: Path) -> Iterator[None]:
    """Turn every error that a damaged report causes in the block into one kind of `ValueError`."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(
            f"{str(path)!r} was not written by an evaluation, or was changed since. Remove it, or "
            "choose another --output."
        ) from error
