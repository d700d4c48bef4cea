"""Several rankers on the same examples: the scores, a table, JSON and a bar chart."""

import hashlib
import io
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from convert_tf import metrics
from convert_tf.files import write_file
from convert_tf.ranking import ALL, GroupedExample, best_ranks
from convert_tf.text_ranker import TextRanker

JSON_FILE = "evaluation.json"
MARKDOWN_FILE = "evaluation.md"
CHART_FILE = "evaluation.png"
_CHUNK = 2000  # examples that a ranker gets at a time
_SECONDS_BETWEEN_LINES = 10.0
_MAX_PANELS = 4
_MAX_LABEL = 36  # characters
_LABEL_START = 6
_SAME_TASK = ("k", "examples_sha256")

Report = dict[str, Any]


def compare(
    rankers: Sequence[TextRanker],
    examples: Iterable[GroupedExample],
    *,
    ks: Iterable[int],
    task: Mapping[str, Any],
) -> Report:
    """Ranks the same examples with each ranker; memory holds some thousand of them.

    Args:
      rankers: with different names. An attribute `settings`, a dict, goes into the row.
      examples: what is ranked.
      ks: the k of R_N@k.
      task: what the examples are, JSON values by name, for the report.

    Returns:
      `task`, with `k` and `examples_sha256`, of all texts, groups and right candidates, whatever
      the order of candidates; and `rows`, each with `name`, `settings`, `seconds` and `groups`: for
      each group its `examples` and `metrics`.

    Raises:
      ValueError: two rankers have one name, there is no example, or scores are not numbers.
    """
    names = [ranker.name for ranker in rankers]
    if len(set(names)) < len(names):
        raise ValueError(
            f"Rows must have different names. Received: {', '.join(names)}. Name each model once."
        )
    ranks: list[dict[str, list[int]]] = [{} for _ in rankers]
    lengths: dict[str, set[int]] = {}
    seconds = [0.0] * len(rankers)
    digest = hashlib.sha256()
    started = printed = time.perf_counter()
    done = 0
    for chunk in _chunks(examples, _CHUNK):
        _update(digest, chunk)
        for groups, example in chunk:
            for group in groups:
                lengths.setdefault(group, set()).add(len(example.candidates))
        for index, ranker in enumerate(rankers):
            before = time.perf_counter()
            found = best_ranks(ranker, [example for _, example in chunk])
            seconds[index] += time.perf_counter() - before
            for (groups, _), rank in zip(chunk, found.tolist(), strict=True):
                for group in groups:
                    ranks[index].setdefault(group, []).append(rank)
        done += len(chunk)
        if time.perf_counter() - printed > _SECONDS_BETWEEN_LINES:
            printed = time.perf_counter()
            print(f"{done:,} contexts ranked in {printed - started:.0f} s", file=sys.stderr)
    if not lengths:
        raise ValueError("There must be an example to rank. Received: none. Use other data.")
    ks = list(ks)
    return {
        "task": {**task, "k": ks, "examples_sha256": digest.hexdigest()},
        "rows": [
            {
                "name": ranker.name,
                "settings": dict(getattr(ranker, "settings", {})),
                "seconds": round(seconds[index], 2),
                "groups": {
                    group: _scores(ranks[index][group], lengths[group], ks)
                    for group in sorted(lengths, key=lambda name: (name != ALL, name))
                },
            }
            for index, ranker in enumerate(rankers)
        ],
    }


def _chunks(examples: Iterable[GroupedExample], size: int) -> Iterator[list[GroupedExample]]:
    chunk: list[GroupedExample] = []
    for grouped in examples:
        is_new_list = not chunk or grouped.example.candidates is not chunk[-1].example.candidates
        if len(chunk) >= size and is_new_list:
            yield chunk
            chunk = []
        chunk.append(grouped)
    if chunk:
        yield chunk


def _update(digest: Any, chunk: Sequence[GroupedExample]) -> None:
    previous: Any = None
    for groups, example in chunk:
        right = sorted(example.candidates[i] for i in example.labels)
        parts = [list(groups), list(example.turns), right]
        if example.candidates is not previous:
            parts.append(sorted(example.candidates))
        previous = example.candidates
        digest.update(json.dumps(parts).encode())


def _scores(ranks: list[int], lengths: set[int], ks: Sequence[int]) -> dict[str, Any]:
    length = lengths.copy().pop() if len(lengths) == 1 else None
    scores = metrics.ranking_metrics(np.array(ranks), block_size=length, ks=ks)
    return {"examples": scores.pop("examples"), "metrics": scores}


def _number(name: str, value: float) -> str:
    return f"{value:.4f}" if name == "MRR" else f"{value:.2%}"


def _rows(report: Report) -> tuple[list[list[str]], list[list[str]]]:
    """The main table and that of the groups, empty without any, with their headers."""
    scores = [row["groups"][ALL] for row in report["rows"]]
    names = list(scores[0]["metrics"])
    main = [["", *names, "examples", "seconds"]]
    for row, own in zip(report["rows"], scores, strict=True):
        numbers = [_number(name, own["metrics"][name]) for name in names]
        main.append([row["name"], *numbers, f"{own['examples']:,}", f"{row['seconds']:.1f}"])
    groups = [group for group in report["rows"][0]["groups"] if group != ALL]
    if not groups:
        return main, []
    divided = [["", "examples", *(row["name"] for row in report["rows"])]]
    for group in groups:
        own = [row["groups"][group] for row in report["rows"]]
        first = next(iter(own[0]["metrics"]))
        numbers = [_number(first, part["metrics"][first]) for part in own]
        divided.append([f"{first}, {group}", f"{own[0]['examples']:,}", *numbers])
    return main, divided


def table(report: Report) -> str:
    """The report for reading in a terminal."""
    return aligned(_rows(report))


def markdown(report: Report) -> str:
    """The report as Markdown tables."""
    return as_markdown(_rows(report))


def aligned(tables: Iterable[Sequence[Sequence[str]]]) -> str:
    """Tables for a terminal: rows of cells, the first one aligned left; empty ones left out."""
    lines: list[str] = []
    for rows in filter(None, tables):
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines += [""] if lines else []
        for first, *others in rows:
            cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
            lines.append("  ".join([first.ljust(widths[0]), *cells]))
    return "\n".join(lines)


def as_markdown(tables: Iterable[Sequence[Sequence[str]]]) -> str:
    """Tables as Markdown: rows of cells, the first row the headings; empty ones left out."""
    lines: list[str] = []
    for rows in filter(None, tables):
        lines += [""] if lines else []
        lines += [f"| {' | '.join(rows[0])} |", "|" + "---|" * len(rows[0])]
        lines += [f"| {' | '.join(row)} |" for row in rows[1:]]
    return "\n".join(lines) + "\n"


def chart(report: Report) -> bytes:
    """A PNG: a panel for each metric, a bar for each row."""
    from matplotlib.figure import Figure

    rows = report["rows"]
    names = list(rows[0]["groups"][ALL]["metrics"])
    names = names if len(names) <= _MAX_PANELS else [*names[: _MAX_PANELS - 1], names[-1]]
    labels = [_short(row["name"]) for row in rows]
    figure = Figure(
        figsize=(2.2 + 2.6 * len(names), 1.1 + 0.34 * len(rows)), dpi=120, layout="constrained"
    )
    panels = np.atleast_1d(figure.subplots(1, len(names), sharey=True))
    for panel, name in zip(panels, names, strict=True):
        factor = 1 if name == "MRR" else 100
        values = [factor * row["groups"][ALL]["metrics"][name] for row in rows]
        bars = panel.barh(range(len(rows)), values, height=0.7, color="#4477aa")
        texts = [f"{value:.3f}" if name == "MRR" else f"{value:.1f}" for value in values]
        panel.bar_label(bars, texts, padding=3, fontsize=8)
        panel.set_xlim(0, 1.2 * max([*values, 1e-9]))  # room for the numbers behind the bars
        panel.set_title(name if name == "MRR" else f"{name} (%)", fontsize=9)
        panel.tick_params(labelsize=8)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_yticks(range(len(rows)), labels)
    panels[0].invert_yaxis()
    figure.supxlabel(f"{rows[0]['groups'][ALL]['examples']:,} examples", fontsize=8)
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def _short(name: str) -> str:
    """With both ends: the baseline's name stands before a path, and a path differs at its end."""
    if len(name) <= _MAX_LABEL:
        return name
    return f"{name[:_LABEL_START]}…{name[_LABEL_START + 1 - _MAX_LABEL :]}"


def write_report(report: Report, folder: str | os.PathLike) -> Report:
    """Writes JSON, Markdown and PNG; rows that are there of the same examples are kept.

    Args:
      report: what `compare` returned. Its rows replace those of the same name.
      folder: made when it is not there.

    Returns:
      The report with the rows that were there.

    Raises:
      ValueError: the folder holds a report on other examples, or a damaged one.
      OSError: a file could not be written.
    """
    folder = Path(folder)
    path = folder / JSON_FILE
    if path.exists():
        there = _read(path)
        if any(there["task"].get(key) != report["task"][key] for key in _SAME_TASK):
            raise ValueError(
                "A folder holds the results on one set of examples, by the same metrics. "
                f"Received: {str(folder)!r}, whose results are of {there['task']}. "
                "Choose another --output, or remove the folder."
            )
        new = {row["name"]: row for row in report["rows"]}
        kept = [new.pop(row["name"], row) for row in there["rows"]]
        report = {**report, "rows": [*kept, *new.values()]}
    folder.mkdir(parents=True, exist_ok=True)
    write_file(path, json.dumps(report, indent=2) + "\n")
    write_file(folder / MARKDOWN_FILE, markdown(report))
    write_file(folder / CHART_FILE, chart(report))
    return report


def _read(path: Path) -> Report:
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        if all(ALL in row["groups"] and row["name"] for row in report["rows"]) and report["task"]:
            return report
    except (ValueError, KeyError, TypeError):
        pass
    raise ValueError(
        f"{JSON_FILE} must be what an evaluation wrote. Received: {str(path)!r}, which is not. "
        "Remove it, or choose another --output."
    )
