"""Measure small versions of the papers' tables, and write them to docs/papers.md.

```
make papers DATA=tasks/
python benchmarks/papers.py --data tasks/ --bert MiniLM/ --cells "poly 7" --output runs/papers
python benchmarks/papers.py --write
```

`paper_cells.py` defines the cells of the tables. `--data` is a folder with the published files of
the tasks, which the project does not include. `FILES` in `paper_cells.py` lists their names; files
may also be compressed (.zst, .gz). If a cell needs a file or `--bert` and it is missing, the script
reports this and skips the cell. The commands of a cell run in the folder `--data`, once for each
seed. Folders and files that several cells read are made only once (`MADE`). They are made again if
their source files in `--data` or `--bert` have changed. Cells that are already in the results are
not measured again, unless one of their commands has changed.

The results are stored in docs/papers.json. The script makes the rows of the page's section "Small
tables" from them; with `--write` it does nothing else. ± is the standard deviation over seeds.
"""

import datetime
import functools
import itertools
import json
import re
import shlex
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import app, flags
from paper_cells import CELLS, FILES, MADE, Cell

from convert_tf.storage.checksums import file_checksum
from convert_tf.storage.files import write_file
from convert_tf.storage.json_text import written_json
from convert_tf.storage.lines import COMPRESSED_SUFFIXES

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "papers.json"
PAGE = ROOT / "docs" / "papers.md"
START, END = "<!-- make papers: start -->\n", "<!-- make papers: end -->\n"
NOT_YET = "not measured yet"
_HEADER = "| cell | examples | N | steps | seeds | ours | paper | date |\n" + 8 * "|---" + "|\n"
_DATA = flags.DEFINE_string("data", None, "Folder with the files of the tasks.")
_BERT = flags.DEFINE_string("bert", None, "Hugging Face folder of a BERT; some cells need it.")
_CELLS = flags.DEFINE_list("cells", [], "Measure only cells whose names begin with these words.")
_OUTPUT = flags.DEFINE_string("output", "runs/papers", "Folder for the runs.")
_RESULTS = flags.DEFINE_string("results", str(RESULTS), "JSON file for the results.")
_PAGE = flags.DEFINE_string("page", str(PAGE), "Page to write the tables to.")
_WRITE = flags.DEFINE_boolean("write", False, "Measure nothing, only write the page.")


def stored_files(data: Path) -> dict[str, str]:
    """Return the tasks' files in a folder: their names on disk by published name."""
    return {
        name: name + suffix
        for name in FILES
        for suffix in ("", *COMPRESSED_SUFFIXES)
        if (data / (name + suffix)).is_file()
    }


def with_made(commands: Sequence[str]) -> list[str]:
    """Return commands, followed by those that make the folders and files of `MADE` they read."""
    complete = [*commands]
    for command in complete:  # includes the commands that the loop adds
        for name in shlex.split(command):
            complete += [making for making in MADE.get(name, ()) if making not in complete]
    return complete


def inputs_of(commands: Sequence[str], values: Mapping[str, str], data: Path) -> list[str]:
    """Return a line for each file of the tasks and of BERT that the commands read.

    A line contains the file's name, its size in bytes and its SHA-256.

    Args:
      commands: commands of a cell, or of `MADE`.
      values: replacements for names in the commands, as in `run`.
      data: folder with the tasks' files.
    """
    words = {*shlex.split(" ".join(commands))}
    paths = {name: data / values[name] for name in FILES if name in words and name in values}
    if "BERT" in words and values.get("BERT"):
        files = sorted(path for path in Path(values["BERT"]).iterdir() if path.is_file())
        paths |= {f"BERT/{path.name}": path for path in files}
    states = {path: path.stat() for path in paths.values()}
    return [
        f"{name} {states[path].st_size} {_checksum(path, states[path].st_mtime_ns)}"
        for name, path in paths.items()
    ]


@functools.lru_cache
def _checksum(path: Path, _modified: int) -> str:
    """Return the checksum of a file, which is read only once as long as it is not modified."""
    return file_checksum(path)


def keep_if_made_by(path: Path, commands: Sequence[str], inputs: Sequence[str]) -> None:
    """Remove a folder or file, complete or not, that other commands or inputs made.

    The commands and inputs are then stored in a file next to it, for later calls.

    Args:
      path: the folder or file.
      commands: the commands that make it.
      inputs: lines about the files that they read; see `inputs_of`.

    Raises:
      ValueError: if there is no record of the commands that made it, as in earlier versions.
    """
    record, lines = Path(f"{path}.commands"), [*commands, *inputs]
    if path.exists() and not record.is_file():
        raise ValueError(f"{path} has no record of the commands that made it. Remove or rename it.")
    recorded = record.read_text(encoding="utf-8").splitlines() if record.is_file() else None
    if recorded == lines:
        return
    for old in (path, Path(f"{path}.new")):
        if old.exists():
            print(f"removing {old}: its commands or the files they read have changed", flush=True)
        if old.is_dir():
            shutil.rmtree(old)
        else:
            old.unlink(missing_ok=True)
    record.parent.mkdir(parents=True, exist_ok=True)
    write_file(record, "".join(f"{line}\n" for line in lines))


def missing(cell: Cell, files: Mapping[str, str], bert: str | None) -> list[str]:
    """Return the names of the files and flags that a cell needs but that are missing."""
    words = {*shlex.split(" ".join(with_made(cell.commands)))}
    needed = [name for name in FILES if name in words and name not in files]
    return needed + (["--bert"] if "BERT" in words and not bert else [])


def run(command: str, values: Mapping[str, str], *, data: Path, made: str = "") -> None:
    """Run a command of a cell in the folder with the tasks' files.

    If the command reads a folder or file of `MADE` that does not exist yet, or that other commands
    or inputs made, this folder or file is made first.

    Args:
      command: the command, as in `Cell.commands`.
      values: replacements for names in the command, such as RUN and SEED.
      data: folder to run in.
      made: the name in `MADE` whose folder or file this command makes; `""` for commands of cells.

    Raises:
      ValueError: if the command fails.
    """
    for name in [*shlex.split(command)]:
        if name not in MADE or name == made:
            continue
        commands = with_made(MADE[name])
        keep_if_made_by(Path(values[name]), commands, inputs_of(commands, values, data))
        if not Path(values[name]).exists():
            new = Path(values[name] + ".new")
            if new.is_file():  # of an interrupted call; folders are kept because runs resume
                new.unlink()
            for making in MADE[name]:
                run(making, {**values, name: str(new)}, data=data, made=name)
            new.rename(values[name])
    words = [
        re.sub(r"^(hub_modules|benchmarks)/", lambda match: f"{ROOT}/{match[0]}", word)
        for word in (
            values.get(word, word.replace("RUN/", f"{values['RUN']}/"))
            for word in shlex.split(command)
        )
    ]
    program = ["-c", "import sys; from convert_tf.cli.main import main; sys.exit(main())"]
    call = words[1:] if words[0] == "python" else [*program, *words]
    if subprocess.run([sys.executable, *call], cwd=data).returncode:
        raise ValueError(f"{shlex.join(words)} failed.")


def measure(
    cell: Cell, seed: int, *, data: Path, bert: str | None, output: Path
) -> dict[str, dict[str, Any]]:
    """Run the commands of a cell, and return the figures of its rows for each seed.

    A run of the same cell with other commands or inputs is removed first.

    Args:
      cell: the cell.
      seed: the seed.
      data: folder to run in.
      bert: absolute path of the folder that BERT stands for.
      output: folder for the runs.

    Raises:
      ValueError: if a command fails.
    """
    folder = output.absolute() / re.sub(r"[:,]", "", cell.name).replace(" ", "_") / str(seed)
    values = {"RUN": str(folder), "BERT": bert or "", "SEED": str(seed)}
    values |= {name: str(output.absolute() / "made" / name) for name in MADE}
    values |= stored_files(data)
    commands = with_made(cell.commands)
    keep_if_made_by(folder, commands, inputs_of(commands, values, data))
    folder.mkdir(parents=True, exist_ok=True)
    (output / "made").mkdir(exist_ok=True)
    for command in cell.commands:
        run(command, values, data=data)
    if (path := folder / "heads.json").is_file():
        return results_of_heads(json.loads(path.read_text(encoding="utf-8")))
    if (path := folder / "ablations" / "ablations.json").is_file():
        return results_of_ablations(json.loads(path.read_text(encoding="utf-8")))
    report = json.loads((folder / "result" / "evaluation.json").read_text(encoding="utf-8"))
    steps = 0
    if (rows := folder / "run" / "metrics.jsonl").is_file():
        steps = json.loads(rows.read_text(encoding="utf-8").splitlines()[-1])["step"]
    if "rows" not in report:  # a report on intents
        figures = {"": {"accuracy": report["accuracy"]}}
        return {str(seed): {"figures": figures, "examples": report["examples"], "steps": steps}}
    # The results must not contain paths of this machine.
    names = [
        re.sub(r"\S*/(?:hub_modules|made|\d+(?=/run))/", "", name).replace(bert or "\0", "BERT")
        for name in (row["name"] for row in report["rows"])
    ]
    groups = dict(zip(names, (row["groups"]["all"] for row in report["rows"]), strict=True))
    result = {
        "figures": {name: group["metrics"] for name, group in groups.items()},
        "examples": next(iter(groups.values()))["examples"],
        "steps": steps,
    }
    return {str(seed): result}


def results_of_heads(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the figures in an output of `benchmarks/heads.py` by seed."""
    results: dict[str, dict[str, Any]] = {}
    for row in rows:
        ranks = row["ranks"]
        result = results.setdefault(str(row["seed"]), {"figures": {}})
        result["figures"][row["head"]] = {
            "examples": len(ranks),
            "steps": row["steps"],
            f"R{row['num_candidates']}@1": statistics.mean(rank <= 1 for rank in ranks),
            "MRR": statistics.mean(1 / rank for rank in ranks),
            "CPU ms a step": row["cpu_ms_per_step"],
        }
    return results


def results_of_ablations(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the figures in an output of `benchmarks/ablations.py` by seed.

    Differences are from the seed's first variant.
    """
    results: dict[str, dict[str, Any]] = {}
    for row in rows:
        result = results.setdefault(
            str(row["seed"]), {"figures": {}, "examples": row["examples"], "steps": row["steps"]}
        )
        share = row["r100_1"] / 100
        first = next(iter(result["figures"].values()), {"R100@1": share})["R100@1"]
        result["figures"][row["variant"]] = {"R100@1": share, "difference in R100@1": share - first}
    return results


def figure(values: Sequence[float], metric: str) -> str:
    """Format the mean of a metric and its standard deviation over seeds."""
    factor, digits = {"MRR": (1, 3), "MAP": (1, 3), "CPU ms a step": (1, 0)}.get(metric, (100, 1))
    scaled = [factor * value for value in values]
    spread = f" ± {statistics.stdev(scaled):.{digits}f}" if len(scaled) > 1 else ""
    return f"{metric} {statistics.mean(scaled):.{digits}f}{spread}"


def table(results: Mapping[str, Any]) -> str:
    """Return the results of all cells as Markdown: a table and its commands for each section."""
    lines = ["Several of the commands below read these folders and files, made as follows:\n\n"]
    for name, commands in MADE.items():
        lines.append(f"- {name}: {_shown(commands)}\n")
    for heading, cells in itertools.groupby(CELLS, lambda cell: cell.name.partition(": ")[0]):
        measured = [*cells]
        lines.append(f"\n### {heading[0].upper()}{heading[1:]}\n\n{_HEADER}")
        lines += [line for cell in measured for line in _rows(cell, results.get(cell.name))]
        lines.append("\n")
        for cell in measured:
            what = cell.name.partition(": ")[2]
            lines.append(f"- {what + ': ' if what else ''}{_shown(cell.commands)}\n")
    return "".join(lines)


def _shown(commands: Sequence[str]) -> str:
    return "; ".join(
        f"`{'' if command.startswith('python ') else 'convert-tf '}{command}`"
        for command in commands
    )


def _rows(cell: Cell, result: Mapping[str, Any] | None) -> list[str]:
    what = cell.name.partition(": ")[2]
    if not result:
        return [f"| {what} | | | | {cell.seeds} | {NOT_YET} | {cell.paper.get('', '')} | |\n"]
    seeds = [*result["seeds"].values()]
    first, rows = seeds[0], []
    for row, metrics in first["figures"].items():
        shown = [name for name in metrics if name.endswith(("@1", "MRR", "accuracy", "a step"))]
        ours = ", ".join(
            figure([seed["figures"][row][name] for seed in seeds], name) for name in shown
        )
        block = next((name[1:-2] for name in shown if name.startswith("R")), "")
        named = what if len(first["figures"]) == 1 else f"{what} ({row})" if what else row
        paper = cell.paper.get(row, cell.paper.get("", ""))
        steps = metrics.get("steps") or first.get("steps") or ""
        examples = metrics.get("examples") or first["examples"]
        rows.append(
            f"| {named} | {examples:,} | {block} | {steps} | "
            f"{len(seeds)} | {ours} | {paper} | {result['date']} |\n"
        )
    return rows


def with_table(page: str, results: Mapping[str, Any]) -> str:
    """Return the page with the tables of the results between its markers."""
    before, _, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"The page has no markers {START.strip()} and {END.strip()}.")
    return f"{before}{START}\n{table(results)}\n{END}{after}"


def _write(results: Mapping[str, Any]) -> None:
    write_file(Path(_RESULTS.value), written_json(results))
    page = Path(_PAGE.value)
    write_file(page, with_table(page.read_text(encoding="utf-8"), results))


def main(argv: list[str]) -> None:
    del argv
    path = Path(_RESULTS.value)
    results = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if _WRITE.value:
        _write(results)
        return
    if not _DATA.value:
        sys.exit(
            "papers.py: the tasks' files are not part of the project. Pass a folder with them: "
            f"make papers DATA=FOLDER. The files are {', '.join(FILES)}."
        )
    data = Path(_DATA.value)
    # The commands run in another folder.
    bert = str(Path(_BERT.value).absolute()) if _BERT.value else None
    for cell in CELLS:
        if _CELLS.value and not cell.name.startswith(tuple(_CELLS.value)):
            continue
        if lacking := missing(cell, stored_files(data), bert):
            print(f"skipped {cell.name}: no {', '.join(lacking)}", flush=True)
            continue
        commands = with_made(cell.commands)
        for seed in map(str, range(cell.seeds)):
            result = results.get(cell.name)
            if not result or result["commands"] != commands:
                result = {"seeds": {}, "commands": commands}
            if seed in result["seeds"]:
                continue
            try:
                result["seeds"] |= measure(
                    cell, int(seed), data=data, bert=bert, output=Path(_OUTPUT.value)
                )
            except ValueError as error:
                sys.exit(f"papers.py: {cell.name}: {error}")
            results[cell.name] = {**result, "date": f"{datetime.date.today()}"}
            _write(results)


if __name__ == "__main__":
    app.run(main)
