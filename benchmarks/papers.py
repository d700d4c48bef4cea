"""Measure small versions of the papers' tables, and write them into docs/papers.md.

```
make papers DATA=tasks/
python benchmarks/papers.py --data tasks/ --bert MiniLM/ --cells "poly 7" --output runs/papers
python benchmarks/papers.py --write
```

`--data` is a folder with the published files of the tasks, under the names of `FILES` (or the same
names with .zst or .gz). The project does not include them. Cells whose files or whose `--bert` are
missing are skipped, and the script says so. The commands of a cell run in `--data`, for each seed.
Cells that are in the results are not measured again.

The results are in docs/papers.json. Each row of the page's section "Small tables" is made from
them; `--write` does only this. ± is the standard deviation over seeds.
"""

import datetime
import json
import re
import shlex
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from absl import app, flags

from convert_tf.storage.files import write_file
from convert_tf.storage.json_text import written_json
from convert_tf.storage.lines import COMPRESSED_SUFFIXES

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "papers.json"
PAGE = ROOT / "docs" / "papers.md"
START, END = "<!-- make papers: start -->\n", "<!-- make papers: end -->\n"
NOT_YET = "not measured yet"
_HEADER = (
    "| paper | cell | examples | N | steps | seeds | ours | date | commands |\n"
    + 9 * "|---"
    + "|\n"
)
_DSTC7 = "--candidates ubuntu_test_subtask_1.json"
_CONVAI2 = "--candidates valid_self_original.txt"
_DSTC7_TRAIN = "--data ubuntu_train_subtask_1.json"
FILES = (
    "ubuntu_train_subtask_1.json", "ubuntu_dev_subtask_1.json", "ubuntu_test_subtask_1.json",
    "train_self_original.txt", "valid_self_original.txt",
    "banking77.train.csv", "banking77.valid.csv", "banking77.test.csv",
)  # fmt: skip

_DATA = flags.DEFINE_string("data", None, "Folder of the tasks' files.")
_BERT = flags.DEFINE_string("bert", None, "Hugging Face folder of a BERT, for the cells of poly.")
_CELLS = flags.DEFINE_list("cells", [], "Starts of the names of cells; all by default.")
_OUTPUT = flags.DEFINE_string("output", "runs/papers", "Folder of the runs.")
_RESULTS = flags.DEFINE_string("results", str(RESULTS), "JSON file of the results.")
_PAGE = flags.DEFINE_string("page", str(PAGE), "Page with the section of the tables.")
_WRITE = flags.DEFINE_boolean("write", False, "Only write the page from the results.")


class Cell(NamedTuple):
    """Commands that measure one cell of a table, or several with one command.

    Attributes:
      name: paper, table and what is measured. Unique.
      commands: of `convert-tf`. RUN stands for the folder of the run, BERT for `--bert`, and SEED
        for the seed. The last one writes `RUN/result/evaluation.json`.
      seeds: number of seeds.
    """

    name: str
    commands: tuple[str, ...]
    seeds: int = 1


def _evaluated(what: str, encoder: str, examples: int, more: str = "") -> str:
    return (
        f"evaluate --encoder {encoder} {what} --max_examples {examples}{more} --output RUN/result"
    )


def _ranker(head: str, more: str = "", *, steps: int = 40, batch: int = 32) -> tuple[str, str]:
    return (
        f"train --head {head} --init_from BERT --data train_self_original.txt "
        f"--dev_data valid_self_original.txt --max_examples {steps * batch} --batch_size {batch} "
        f"--eval_examples 100 --warmup_steps 5{more} --seed SEED --output RUN/run",
        _evaluated(_CONVAI2, "RUN/run", 300),
    )


def _fine_tuned(encoder: str, more: str = "") -> tuple[str, str]:
    return (
        f"train --recipe paper_finetune --init_from {encoder} {_DSTC7_TRAIN}{more} --steps 50 "
        "--batch_size 64 --seed SEED --output RUN/run",
        _evaluated(_DSTC7, "RUN/run", 100),
    )


_MULTI = "convert_multi_context"
CELLS = (
    Cell("ConveRT (multi-context): ConvAI2, history read", (_evaluated(_CONVAI2, _MULTI, 100),)),
    Cell(
        "ConveRT (multi-context): ConvAI2, without history",
        (_evaluated(_CONVAI2, _MULTI, 100, " --history none"),),
    ),
    Cell(
        "ConveRT (multi-context): ConvAI2, baselines",
        (
            f"evaluate --baselines tfidf,bm25 --train_data train_self_original.txt {_CONVAI2} "
            "--max_examples 100 --output RUN/result",
        ),
    ),
    Cell(
        "ConveRT 5, 6: baselines",
        (
            f"evaluate --baselines tfidf,bm25 --train_data ubuntu_train_subtask_1.json {_DSTC7} "
            "--max_examples 100 --output RUN/result",
        ),
    ),
    Cell("ConveRT 5, 6: multi, not fine-tuned", (_evaluated(_DSTC7, _MULTI, 100),)),
    Cell(
        "ConveRT 5, 6: multi without history, not fine-tuned",
        (_evaluated(_DSTC7, _MULTI, 100, " --history none"),),
    ),
    Cell("ConveRT 5, 6: single, not fine-tuned", (_evaluated(_DSTC7, "convert", 100),)),
    Cell("ConveRT 5, 6: single, fine-tuned", _fine_tuned("convert"), seeds=3),
    Cell("ConveRT 5, 6: multi, fine-tuned", _fine_tuned(_MULTI, " --turn_prefixes"), seeds=3),
    Cell(
        "ConveRT 7: BANKING77, r",
        (
            "intent train --encoder convert --kind reduced --data banking77.train.csv --validation "
            "banking77.valid.csv --head network --tune --patience 5 --lexical none --names none "
            "--seed SEED --output RUN/run",
            "intent evaluate --model RUN/run --data banking77.test.csv --output RUN/result",
        ),
        seeds=3,
    ),
    *(
        Cell(f"poly 2: {batch - 1} negatives", _ranker("bi", steps=1280 // batch, batch=batch), 3)
        for batch in (32, 64, 128, 256)
    ),
    *(
        Cell(f"poly 3: {frozen}", _ranker("bi", f" --freeze {frozen}"), 3)
        for frozen in (
            "all_but_top_k",
            "all_but_top_k --trainable_blocks 4",
            "embeddings",
            "nothing",
        )
    ),
    Cell("poly 4: bi", _ranker("bi"), 3),
    *(Cell(f"poly 4: poly {m}", _ranker("poly", f" --poly_codes {m}"), 3) for m in (16, 64, 360)),
    Cell("poly 4: cross", _ranker("cross", batch=16, steps=80), 3),
    *(
        Cell(f"poly 7: {reduction}", _ranker("bi", f" --reduction {reduction}"), 3)
        for reduction in (
            "first", "mean_without_first", "first_m_mean --reduction_tokens 16",
            "first_m_mean --reduction_tokens 64",
        )
    ),
    *(
        Cell(
            f"poly 8: {variant} {m}",
            _ranker("poly", f" --poly_variant {variant} --poly_codes {m}"),
            3,
        )
        for m in (1, 4, 16, 64, 360)
        for variant in ("learnt", "first_m", "last_m", "last_m_and_first")
    ),
)  # fmt: skip


def stored_files(data: Path) -> dict[str, str]:
    """Return the names of the tasks' files that a folder has, by their published names."""
    return {
        name: name + suffix
        for name in FILES
        for suffix in ("", *COMPRESSED_SUFFIXES)
        if (data / (name + suffix)).is_file()
    }


def missing(cell: Cell, files: Mapping[str, str], bert: str | None) -> list[str]:
    """Return what a cell needs and does not have."""
    words = {word for command in cell.commands for word in command.split()}
    needed = [name for name in FILES if name in words and name not in files]
    return needed + (["--bert"] if "BERT" in words and not bert else [])


def measure(cell: Cell, seed: int, *, data: Path, bert: str | None, output: Path) -> dict[str, Any]:
    """Run the commands of a cell, and return the figures of each row.

    Raises:
      ValueError: if a command fails.
    """
    run = output / cell.name.replace(" ", "_").replace(":", "") / str(seed)
    values = {"RUN": str(run.absolute()), "BERT": bert or "", "SEED": str(seed)}
    values |= stored_files(data)
    for command in cell.commands:
        words = [values.get(w, w.replace("RUN/", f"{values['RUN']}/")) for w in command.split()]
        program = "import sys; from convert_tf.cli.main import main; sys.exit(main())"
        if subprocess.run([sys.executable, "-c", program, *words], cwd=data).returncode:
            raise ValueError(f"{cell.name}: convert-tf {shlex.join(words)} failed.")
    report = json.loads((run / "result" / "evaluation.json").read_text(encoding="utf-8"))
    steps = 0
    if (rows := run / "run" / "metrics.jsonl").is_file():
        steps = json.loads(rows.read_text(encoding="utf-8").splitlines()[-1])["step"]
    if "rows" not in report:  # of intents
        figures = {"": {"accuracy": report["accuracy"]}}
        return {"figures": figures, "examples": report["examples"], "steps": steps}
    # Without the path of this machine.
    names = [re.sub(r"\S*/(?:hub_modules|\d+(?=/run))/", "", row["name"]) for row in report["rows"]]
    groups = dict(zip(names, (row["groups"]["all"] for row in report["rows"]), strict=True))
    return {
        "figures": {name: group["metrics"] for name, group in groups.items()},
        "examples": next(iter(groups.values()))["examples"],
        "steps": steps,
    }


def figure(values: Sequence[float], metric: str) -> str:
    """Format the mean of a metric and its standard deviation over seeds."""
    factor, digits = (1, 3) if metric in ("MRR", "MAP") else (100, 1)
    scaled = [factor * value for value in values]
    spread = f" ± {statistics.stdev(scaled):.{digits}f}" if len(scaled) > 1 else ""
    return f"{metric} {statistics.mean(scaled):.{digits}f}{spread}"


def table(results: Mapping[str, Any]) -> str:
    """Return the rows of all cells as a Markdown table."""
    lines = []
    for cell in CELLS:
        paper, _, what = cell.name.partition(": ")
        commands = "; ".join(f"`convert-tf {command}`" for command in cell.commands)
        if not (result := results.get(cell.name)):
            lines.append(f"| {paper} | {what} | | | | {cell.seeds} | {NOT_YET} | | {commands} |")
            continue
        seeds = result["seeds"].values()
        first = next(iter(seeds))
        for row, metrics in first["figures"].items():
            shown = [name for name in metrics if name.endswith(("@1", "MRR", "accuracy"))]
            ours = ", ".join(
                figure([seed["figures"][row][name] for seed in seeds], name) for name in shown
            )
            block = next((name[1:-2] for name in shown if name.endswith("@1")), "")
            named = f"{what} ({row})" if len(first["figures"]) > 1 else what
            lines.append(
                f"| {paper} | {named} | {first['examples']:,} | {block} | {first['steps'] or ''} | "
                f"{len(seeds)} | {ours} | {result['date']} | {commands} |"
            )
    return _HEADER + "".join(line + "\n" for line in lines)


def with_table(page: str, results: Mapping[str, Any]) -> str:
    """Return the page with the table of the results between its marks."""
    before, _, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"The page has no marks {START.strip()} and {END.strip()}.")
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
            "papers.py: the tasks' files are not part of the project. Pass their folder: make "
            f"papers DATA=FOLDER, with {', '.join(FILES)}."
        )
    data = Path(_DATA.value)
    for cell in CELLS:
        if _CELLS.value and not cell.name.startswith(tuple(_CELLS.value)):
            continue
        if lacking := missing(cell, stored_files(data), _BERT.value):
            print(f"skipped {cell.name}: no {', '.join(lacking)}", flush=True)
            continue
        for seed in map(str, range(cell.seeds)):
            result = results.get(cell.name, {"seeds": {}, "commands": [*cell.commands]})
            if seed in result["seeds"] and result["commands"] == [*cell.commands]:
                continue
            if result["commands"] != [*cell.commands]:
                result = {"seeds": {}, "commands": [*cell.commands]}
            try:
                result["seeds"][seed] = measure(
                    cell, int(seed), data=data, bert=_BERT.value, output=Path(_OUTPUT.value)
                )
            except ValueError as error:
                sys.exit(f"papers.py: {error}")
            results[cell.name] = {**result, "date": f"{datetime.date.today()}"}
            _write(results)


if __name__ == "__main__":
    app.run(main)
