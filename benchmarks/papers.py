"""Measure small versions of the papers' tables, and write them into docs/papers.md.

```
make papers DATA=tasks/
python benchmarks/papers.py --data tasks/ --bert MiniLM/ --cells "poly 7" --output runs/papers
python benchmarks/papers.py --write
```

`--data` is a folder with the published files of the tasks, under the names of `FILES` (or the same
names with .zst or .gz). The project does not include them. Cells whose files or whose `--bert` are
missing are skipped, and the script says so. The commands of a cell run in `--data`, for each seed.
Folders that several cells read are made once (`MADE`). Cells that are in the results are not
measured again.

The results are in docs/papers.json. Each row of the page's section "Small tables" is made from
them; `--write` does only this. ± is the standard deviation over seeds.
"""

import datetime
import itertools
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
_HEADER = "| cell | examples | N | steps | seeds | ours | paper | date |\n" + 8 * "|---" + "|\n"
FILES = (
    "ubuntu_train_subtask_1.json", "ubuntu_dev_subtask_1.json", "ubuntu_test_subtask_1.json",
    "train_self_original.txt", "valid_self_original.txt", "train.csv", "test.csv",
    "articles_train.txt", "articles_test.txt",
    "RC_2015", "toys_and_games.csv",
    "banking77.train_10shot.csv", "banking77.valid.csv", "banking77.test.csv",
    "clinc150.train.csv", "clinc150.val.csv", "clinc150.test.csv",
)  # fmt: skip
_VOCAB = "hub_modules/convert_small/1/assets/vocab.txt"
_TRUNK = (
    "--vocab SUBWORDS.txt --num_oov_buckets 10 --model bert_tiny --dropout 0 --max_tokens 64 "
    "--batch_tokens 4000 --learning_rate 2e-3 --warmup_steps 300 --eval_every 5000 --steps 12000"
)
# Folders and files that several cells read, with the commands that make them.
MADE = {
    "REDDIT": ("prepare --input RC_2015 --output REDDIT",),
    "REDDIT_IDS": (f"tokenize --data REDDIT --vocab {_VOCAB} --output REDDIT_IDS",),
    "AMAZON": ("prepare --amazon_qa toys_and_games.csv --output AMAZON",),
    "UBUNTU_TEST": ("prepare --dstc7 ubuntu_test_subtask_1.json --output UBUNTU_TEST",),
    "CONVAI2_TEST": ("prepare --convai2 valid_self_original.txt --output CONVAI2_TEST",),
    "DOCUMENTS": ("prepare --documents articles_train.txt --output DOCUMENTS",),
    "SUBWORDS.txt": ("vocabulary --input REDDIT --min_count 250 --output SUBWORDS.txt",),
    "REDDIT_BERT": (f"pretrain --data REDDIT {_TRUNK} --output REDDIT_BERT",),
    "DOCUMENTS_BERT": (f"pretrain --data DOCUMENTS {_TRUNK} --output DOCUMENTS_BERT",),
}

_DATA = flags.DEFINE_string("data", None, "Folder of the tasks' files.")
_BERT = flags.DEFINE_string("bert", None, "Hugging Face folder of a BERT, for some cells.")
_CELLS = flags.DEFINE_list("cells", [], "Starts of the names of cells; all by default.")
_OUTPUT = flags.DEFINE_string("output", "runs/papers", "Folder of the runs.")
_RESULTS = flags.DEFINE_string("results", str(RESULTS), "JSON file of the results.")
_PAGE = flags.DEFINE_string("page", str(PAGE), "Page with the section of the tables.")
_WRITE = flags.DEFINE_boolean("write", False, "Only write the page from the results.")


class Cell(NamedTuple):
    """Commands that measure one cell of a table, or several with one command.

    Attributes:
      name: paper, table and what is measured. Unique.
      commands: of `convert-tf`, or `python` and a script of this project. RUN stands for the folder
        of the run, BERT for `--bert`, SEED for the seed, and a name of `MADE` for its folder. The
        last one writes `RUN/result/evaluation.json`; `benchmarks/heads.py` writes `RUN/heads.json`
        for all seeds; `benchmarks/ablations.py` writes into `RUN/ablations`.
      seeds: number of seeds.
      paper: the paper's figures by row, or by `""` for all rows.
    """

    name: str
    commands: tuple[str, ...]
    seeds: int = 1
    paper: Mapping[str, str] = {}


_MULTI = "convert_multi_context"
_CONVAI2 = "--candidates valid_self_original.txt"
_DSTC7 = "--candidates ubuntu_test_subtask_1.json"
# All examples of a test file are in one folder; most of them in its train split.
_UBUNTU_BLOCKS = "--data UBUNTU_TEST --split train"
_CONVAI2_BLOCKS = "--data CONVAI2_TEST --split train"


def _module(name: str) -> str:
    """The module of a released name, which by itself stands for the 8-bit .onnx file."""
    return f"hub_modules/{name}/1" if name.startswith("convert") else name


def _evaluated(what: str, encoder: str, examples: int, more: str = "") -> tuple[str]:
    return (
        f"evaluate --encoder {_module(encoder)} {what} --max_examples {examples}{more} "
        "--output RUN/result",
    )


def _baselines(what: str, names: str, examples: int, more: str) -> tuple[str]:
    return (
        f"evaluate --baselines {names} {what} --max_examples {examples}{more} --output RUN/result",
    )


def _tuned(
    encoder: str, data: str, test: str, more: str, examples: int, options: str = ""
) -> tuple[str, str]:
    return (
        f"train --recipe paper_finetune --init_from {encoder} --data {data} {more}--seed SEED "
        "--output RUN/run",
        *_evaluated(test, "RUN/run", examples, options),
    )


def _heads(heads: str, trunk: str, *, task: str = "convai2") -> tuple[str]:
    train, test, options = {
        "convai2": ("train_self_original.txt", "valid_self_original.txt", "--examples 9000"),
        "articles": ("articles_train.txt", "articles_test.txt", "--examples 1800"),
    }[task]
    return (
        f"python benchmarks/heads.py --task in_batch --data {train} --eval_data {test} {options} "
        f"--evaluated 500 --trunk {trunk} --max_context_tokens 120 --freeze nothing --seeds 3 "
        f'--heads "{heads}" --output RUN/heads.json',
    )


def _few_steps(heads: str) -> tuple[str]:
    return (
        "python benchmarks/heads.py --task in_batch --data train_self_original.txt --eval_data "
        "valid_self_original.txt --examples 640 --batch_size 16 --evaluated 200 "
        "--evaluated_jointly 200 --trunk BERT --learning_rate 2e-4 --max_context_tokens 48 "
        f'--seeds 1 --heads "{heads}" --output RUN/heads.json',
    )


_ALL_HEADS = "bi,poly 16 learnt,poly 64 learnt,poly 360 learnt,cross"
# With so few steps, ADADELTA hardly moves the weights.
_FEW_STEPS = "--optimizer adam --learning_rate {} --warmup_steps 5 "
_FT = _FEW_STEPS.format("5e-5") + "--steps 100 --batch_size 32 --eval_every 25 --eval_examples 300 "
_FT_MULTI = (
    _FEW_STEPS.format("3e-4") + "--steps 24 --batch_size 16 --eval_every 24 --eval_examples 100 "
)
CELLS = (
    Cell(
        "ConveRT 3, Reddit: TF-IDF, BM25",
        _baselines("--data REDDIT", "tfidf,bm25", 1000, ""),
        paper={"TF-IDF": "26.4"},
    ),
    Cell(
        "ConveRT 3, Reddit: SIM and MAP on MiniLM",
        _baselines("--data REDDIT", "sim,map", 1000, " --vectors BERT --train_examples 1000"),
        paper={"MAP BERT": "24.0 (BERT-large)"},
    ),
    Cell(
        "ConveRT 3, Reddit: SIM and MAP on a universal encoder",
        (
            "python benchmarks/minilm.py --model universal --data REDDIT --baselines sim,map "
            "--max_examples 1000 --train_examples 500 --output RUN/result",
        ),
        paper={"MAP USE multilingual": "47.7 (USE-large)"},
    ),
    Cell(
        "ConveRT 3, Reddit: single-context",
        _evaluated("--data REDDIT", "convert_small", 1000),
        paper={"": "68.2"},
    ),
    Cell(
        "ConveRT 3, Reddit: MAP on ours",
        _baselines(
            "--data REDDIT", "map", 1000,
            " --vectors hub_modules/convert_small/1 --train_examples 500",
        ),
    ),
    Cell(
        "ConveRT 3, Reddit: multi-context",
        _evaluated("--data REDDIT", _MULTI, 1000),
        paper={"": "71.8"},
    ),
    Cell(
        "ConveRT 3, Reddit: multi-context, both probes",
        _evaluated("--data REDDIT", _MULTI, 1000, " --history none"),
        paper={"": "65.7, 65.6"},
    ),
    Cell(
        "ConveRT 3, AmazonQA: TF-IDF, BM25",
        _baselines("--data AMAZON", "tfidf,bm25", 1000, ""),
        paper={"TF-IDF": "51.8"},
    ),
    Cell(
        "ConveRT 3, AmazonQA: SIM and MAP on MiniLM",
        _baselines("--data AMAZON", "sim,map", 1000, " --vectors BERT --train_examples 1000"),
        paper={"MAP BERT": "44.1 (BERT-large)"},
    ),
    Cell(
        "ConveRT 3, AmazonQA: SIM and MAP on a universal encoder",
        (
            "python benchmarks/minilm.py --model universal --data AMAZON --baselines sim,map "
            "--max_examples 1000 --train_examples 500 --output RUN/result",
        ),
        paper={"MAP USE multilingual": "61.9 (USE-large)"},
    ),
    Cell(
        "ConveRT 3, AmazonQA: zero-shot",
        _evaluated("--data AMAZON", "convert_small", 1000),
        paper={"": "67.0"},
    ),
    Cell(
        "ConveRT 3, AmazonQA: MAP on ours",
        _baselines(
            "--data AMAZON", "map", 1000,
            " --vectors hub_modules/convert_small/1 --train_examples 500",
        ),
        paper={"": "71.6"},
    ),
    Cell(
        "ConveRT 3, AmazonQA: fine-tuned",
        _tuned("convert_small", "AMAZON", "--data AMAZON", _FT, 1000),
        seeds=2,
        paper={"": "84.3"},
    ),
    Cell(
        "ConveRT 4",
        (
            "python benchmarks/ablations.py --data REDDIT_IDS --variants C --seeds 3 "
            "--embedding_dim 64 --max_relative_attention 3,5,48,48,48,48 --steps 300 "
            "--examples 2000 --output RUN/ablations",
        ),
        3,
        {"ConveRT": "68.2", "C": "67.7, difference -0.5"},
    ),
    Cell("ConveRT (multi-context): ConvAI2, history read", _evaluated(_CONVAI2, _MULTI, 100)),
    Cell(
        "ConveRT (multi-context): ConvAI2, without history",
        _evaluated(_CONVAI2, _MULTI, 100, " --history none"),
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
    Cell("ConveRT 5, 6: multi, not fine-tuned", _evaluated(_DSTC7, _MULTI, 100)),
    Cell(
        "ConveRT 5, 6: multi without history, not fine-tuned",
        _evaluated(_DSTC7, _MULTI, 100, " --history none"),
    ),
    Cell("ConveRT 5, 6: single, not fine-tuned", _evaluated(_DSTC7, "convert", 100)),
    *(
        Cell(f"{table}: {name}", commands, seeds, {"": figure} if figure else {})
        for table, train, test, prefixes, figures in (
            (
                "ConveRT 5, 6, in blocks", "ubuntu_train_subtask_1.json", _UBUNTU_BLOCKS,
                "--turn_prefixes ", ("27.2", "39.5", "38.2", "71.2"),
            ),
            (
                "ConveRT (multi-context), ConvAI2 in blocks", "train_self_original.txt",
                _CONVAI2_BLOCKS, "", ("",) * 4,
            ),
        )
        for name, commands, seeds, figure in zip(
            (
                "single, not fine-tuned", "multi, not fine-tuned", "single, fine-tuned",
                "multi, history_only fine-tuned",
            ),
            (
                _evaluated(test, "convert_small", 300),
                _evaluated(test, _MULTI, 300),
                _tuned("convert_small", train, test, _FT, 300),
                _tuned(_MULTI, train, test, f"--history_only {prefixes}{_FT_MULTI}", 300),
            ),
            (1, 1, 2, 2),
            figures,
            strict=True,
        )
    ),
    *(
        cell
        for name, train, valid, test, seeds, epochs in (
            (
                "BANKING77, 10 per intent", "banking77.train_10shot.csv", "banking77.valid.csv",
                "banking77.test.csv", 3, 20,
            ),
            ("CLINC150", "clinc150.train.csv", "clinc150.val.csv", "clinc150.test.csv", 1, 3),
        )
        for cell in (
            Cell(
                f"ConveRT 7: {name}, r",
                (
                    "intent train --encoder hub_modules/convert_small/1 --kind reduced --head "
                    f"network --data {train} --validation {valid} --tune --patience 5 --lexical "
                    "none --names none --seed SEED --output RUN/run",
                    f"intent evaluate --model RUN/run --data {test} --output RUN/result",
                ),
                seeds,
            ),
            Cell(
                f"ConveRT 7: {name}, MiniLM fine-tuned",
                (
                    f"python benchmarks/finetuned_bert.py --bert BERT --train {train} "
                    f"--validation {valid} --test {test} --epochs {epochs} --seed SEED "
                    "--output RUN/result",
                ),
            ),
        )
    ),
    *(
        Cell(f"poly 4, 10: pre-trained on {pretrained}, {name}", _heads(
            heads, trunk, task=task), 3, figures)
        for heads, pretrained, trunk, name, task, figures in (
            (
                _ALL_HEADS, "Reddit", "REDDIT_BERT", "ConvAI2", "convai2",
                {"bi": "84.8", "poly 16 learnt": "86.3", "cross": "87.9"},
            ),
            (
                _ALL_HEADS, "documents", "DOCUMENTS_BERT", "ConvAI2", "convai2",
                {"bi": "82.0", "poly 16 learnt": "82.7", "cross": "84.9"},
            ),
            (
                "bi,poly 16 learnt", "Reddit", "REDDIT_BERT", "articles", "articles",
                {"bi": "71.0", "poly 16 learnt": "71.5"},
            ),
            ("bi,poly 16 learnt", "documents", "DOCUMENTS_BERT", "articles", "articles", {}),
        )
    ),
    *(
        Cell(f"poly {name}", _heads(",".join(figures), "REDDIT_BERT"), 3, figures)
        for name, figures in (
            (
                "2: number of negatives",
                {
                    "bi": "81.0 (31)", "bi batches of 64": "81.7", "bi batches of 128": "82.3",
                    "bi batches of 256": "83.0", "bi batches of 512": "83.3",
                },
            ),
            (
                "7: reductions",
                {
                    "bi first": "83.3", "bi mean of first 16": "82.9",
                    "bi mean of first 64": "82.7", "bi mean": "83.1", "bi mean without first": "",
                },
            ),
        )
    ),
    *(
        Cell(f"poly {name}", _few_steps(",".join(figures)), 1, figures)
        for name, figures in (
            (
                "3: what is fine-tuned",
                {
                    "bi mean top block": "74.2", "bi mean": "83.3",
                    "bi mean all layers": "83.0", "cross top block": "80.6",
                    "cross": "87.3", "cross all layers": "86.6",
                },
            ),
            *(
                (
                    f"8: context vectors, {codes}",
                    {
                        f"poly {codes} {variant}": figure
                        for variant, figure in zip(
                            ("learnt", "first_m", "last_m", "last_m_and_first"),
                            figures,
                            strict=False,
                        )
                    },
                )
                for codes, figures in (
                    (1, ("81.9", "83.2", "82.9")),
                    (4, ("83.8", "83.4", "82.8", "82.9")),
                    (16, ("84.4", "85.2", "83.9", "83.8")),
                    (64, ("84.9", "86.0", "84.9", "85.0")),
                    (360, ("85.3", "86.3", "86.3", "86.2")),
                )
            ),
        )
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


def words_of(cell: Cell) -> set[str]:
    """Return the words of a cell's commands, and of those that make the folders it reads."""
    words: set[str] = set()
    commands = [*cell.commands]
    while commands:
        more = {*shlex.split(commands.pop())} - words
        words |= more
        commands += itertools.chain.from_iterable(MADE.get(word, ()) for word in more)
    return words


def missing(cell: Cell, files: Mapping[str, str], bert: str | None) -> list[str]:
    """Return what a cell needs and does not have."""
    words = words_of(cell)
    needed = [name for name in FILES if name in words and name not in files]
    return needed + (["--bert"] if "BERT" in words and not bert else [])


def run(command: str, values: Mapping[str, str], *, data: Path, made: str = "") -> None:
    """Run a command of a cell in the folder of the tasks' files.

    Args:
      command: the command.
      values: what the names in it stand for.
      data: folder to run in.
      made: name of `MADE` that the command writes.

    Raises:
      ValueError: if it fails.
    """
    for name in [*shlex.split(command)]:
        if name in MADE and name != made and not Path(values[name]).exists():
            for making in MADE[name]:
                run(making, {**values, name: values[name] + ".new"}, data=data, made=name)
            Path(values[name] + ".new").rename(values[name])
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
    """Run the commands of a cell, and return the figures of each row by seed.

    Raises:
      ValueError: if a command fails.
    """
    folder = output.absolute() / re.sub(r"[:,]", "", cell.name).replace(" ", "_") / str(seed)
    folder.mkdir(parents=True, exist_ok=True)
    values = {"RUN": str(folder), "BERT": bert or "", "SEED": str(seed)}
    values |= {name: str(output.absolute() / "made" / name) for name in MADE}
    values |= stored_files(data)
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
    if "rows" not in report:  # of intents
        figures = {"": {"accuracy": report["accuracy"]}}
        return {str(seed): {"figures": figures, "examples": report["examples"], "steps": steps}}
    # Without the paths of this machine.
    names = [
        re.sub(r"\S*/(?:hub_modules|\d+(?=/run))/", "", row["name"]).replace(bert or "\0", "BERT")
        for row in report["rows"]
    ]
    groups = dict(zip(names, (row["groups"]["all"] for row in report["rows"]), strict=True))
    result = {
        "figures": {name: group["metrics"] for name, group in groups.items()},
        "examples": next(iter(groups.values()))["examples"],
        "steps": steps,
    }
    return {str(seed): result}


def results_of_heads(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the figures of `benchmarks/heads.py` by seed."""
    results: dict[str, dict[str, Any]] = {}
    for row in rows:
        ranks = row["ranks"]
        result = results.setdefault(str(row["seed"]), {"figures": {}, "examples": len(ranks)})
        result["figures"][row["head"]] = {
            "steps": row["steps"],
            f"R{row['num_candidates']}@1": statistics.mean(rank <= 1 for rank in ranks),
            "MRR": statistics.mean(1 / rank for rank in ranks),
            "CPU ms a step": row["cpu_ms_per_step"],
        }
    return results


def results_of_ablations(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the figures of `benchmarks/ablations.py` by seed, with differences from the first."""
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
    """Return the rows of all cells as Markdown: for each table of the papers, its commands too."""
    lines = ["The folders that several commands read:\n\n"]
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
        rows.append(
            f"| {named} | {first['examples']:,} | {block} | {steps} | "
            f"{len(seeds)} | {ours} | {paper} | {result['date']} |\n"
        )
    return rows


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
                result["seeds"] |= measure(
                    cell, int(seed), data=data, bert=_BERT.value, output=Path(_OUTPUT.value)
                )
            except ValueError as error:
                sys.exit(f"papers.py: {cell.name}: {error}")
            results[cell.name] = {**result, "date": f"{datetime.date.today()}"}
            _write(results)


if __name__ == "__main__":
    app.run(main)
