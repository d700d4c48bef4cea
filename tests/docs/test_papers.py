"""`docs/papers.md`: defaults equal those in the code, and every value and table has a row."""

import ast
import gzip
import importlib
import itertools
import json
import os
import re
import shutil

import numpy as np
import pytest
from absl import flags
from support import task_files
from support.documents import ROOT, page_text, parse
from support.script_calls import call_script, script_with_flags

from convert_tf.config.bert import BertConfig
from convert_tf.config.model import ModelConfig
from convert_tf.config.ranker import HeadConfig, RankerTraining
from convert_tf.config.train import Pretraining
from convert_tf.data.candidates import extra_context, read_candidates
from convert_tf.storage.checksums import file_checksum
from convert_tf.training.encoder.options import EncoderTraining

PAGE = "docs/papers.md"
SCRIPT = ROOT / "benchmarks" / "papers.py"
CODE = re.compile(r"`(convert_tf/[\w/]+\.py)`: `([^`]+)`")
# Configurations described in a table: its heading, and the call in the expressions of its rows.
CONFIGURATIONS = {
    ModelConfig: ("Values of ConveRT", "ModelConfig()"),
    EncoderTraining: ("Values of ConveRT", "EncoderTraining()"),
    BertConfig: ("Values of poly-encoders", "BertConfig()"),
    Pretraining: ("Values of poly-encoders", "Pretraining()"),
    HeadConfig: ("Values of poly-encoders", "HeadConfig()"),
    RankerTraining: ("Values of poly-encoders", "ranker_recipe("),
}
# Options for the location of data and for repeating a run.
OF_A_RUN = {"data", "seed", "eval_examples", "checkpoint_every", "keep_checkpoints"}
# Fields that no paper describes.
NO_VALUE_OF_THE_PAPER = {
    ModelConfig: set(),
    EncoderTraining: {
        *OF_A_RUN, "eval_every", "eval_splits",
        # Which examples are read, in what order and in what portions.
        "first_train_example", "source_shares", "shuffle_buffer", "micro_batch",
        # Losses and data that are not in the paper and are off by default.
        "utterances", "utterances_per_pair", "hard_negatives", "negatives_per_pair",
        "ranking_teacher", "ranking_distillation", "triplets", "triplets_per_pair", "opposites",
        "intent_contrast", "teacher", "utterance_teacher", "distillation", "start_from_teacher",
        "history_only",
    },
    BertConfig: {
        # The vocabulary and its special tokens.
        "vocab_size", "num_oov_buckets", "tokenizer", "start_id", "separator_id", "surrounds_each",
        "mask_id",
        # As in BERT; the paper gives no number.
        "feed_forward_dim", "max_positions", "layer_norm_epsilon",
    },
    Pretraining: {*OF_A_RUN, "eval_every", "shuffle_buffer"},
    HeadConfig: set(),
    # Files, and the number of examples that are read.
    RankerTraining: {*OF_A_RUN, "dev_data", "hard_negatives", "max_examples"},
}  # fmt: skip


def rows_of(heading: str) -> list[dict[str, str]]:
    """Return the rows of the table under a heading, keyed by column names."""
    section = page_text(PAGE).split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line[1:-1].split("|") for line in section.splitlines() if line.startswith("|")]
    header, _, *rows = [[cell.strip() for cell in line] for line in lines]
    return [dict(zip(header, row, strict=True)) for row in rows]


VALUES = {heading: rows_of(heading) for heading in ("Values of ConveRT", "Values of poly-encoders")}


def found(row):
    """Return the file and the expression in a row, or None."""
    return CODE.match(row["in the code"])


@pytest.mark.parametrize("heading", VALUES)
def test_the_defaults_are_the_codes(heading):
    differing = {}
    for row in VALUES[heading]:
        if not row["default"]:
            assert (ROOT / row["in the code"].strip("`")).is_file(), row["what"]
            continue
        path, expression = found(row).groups()
        names = vars(importlib.import_module(path.removesuffix(".py").replace("/", ".")))
        code, page = eval(expression, dict(names)), ast.literal_eval(row["default"].strip("`"))
        if (code, type(code)) != (page, type(page)):
            differing[row["what"]] = (page, code)
    assert differing == {}


@pytest.mark.parametrize("config", CONFIGURATIONS)
def test_every_field_of_a_configuration_has_a_row(config):
    heading, maker = CONFIGURATIONS[config]
    expressions = [match[2] for match in map(found, VALUES[heading]) if match]
    in_rows = {text.rpartition(".")[2] for text in expressions if text.startswith(maker)}
    fields, left_out = {*config.defaults()}, NO_VALUE_OF_THE_PAPER[config]
    assert left_out <= fields and not left_out & in_rows
    assert fields - left_out <= in_rows


def test_every_table_of_the_papers_has_a_row():
    rows = rows_of("Tables")
    for paper, number in (("ConveRT", 7), ("poly", 10)):
        cells = [row["table"].split(":")[0] for row in rows if row["paper"] == paper]
        numbers = {int(n) for cell in cells for n in cell.split(",")}
        assert numbers == {*range(1, number + 1)}


def test_every_table_has_a_command_that_parses():
    for row in rows_of("Tables"):
        assert row["here"]
        parse(row["command"].strip("`"))


def test_differences_name_a_function_of_their_file():
    for row in rows_of("Where we differ"):
        names, path = re.match(r"(.*) in `(\w+/[\w/]+\.py)`", row["function"]).groups()
        source = (ROOT / path).read_text(encoding="utf-8")
        for name in re.findall(r"`(\w+)`", names):
            assert re.search(rf"(def|class) {name}\b", source), (name, path)
        assert row["why"]


@pytest.fixture
def script(monkeypatch):
    return script_with_flags(monkeypatch, SCRIPT)[0]


def test_the_small_tables_are_those_of_the_results(script):
    results = json.loads((ROOT / "docs" / "papers.json").read_text(encoding="utf-8"))
    assert script.with_table(page_text(PAGE), results) == page_text(PAGE)
    commands_of = {cell.name: script.with_made(cell.commands) for cell in script.CELLS}
    assert {name: result["commands"] for name, result in results.items()} == {
        name: commands_of[name] for name in results
    }


def test_the_cells_of_a_table_follow_one_another(script):
    headings = [cell.name.partition(": ")[0] for cell in script.CELLS]
    assert len([*itertools.groupby(headings)]) == len({*headings})


def test_the_commands_of_cells_parse(script):
    """This relies on `parse`, which rejects unknown commands and flags."""
    with pytest.raises(flags.Error):
        parse("convert-tf evaluate --no_such_flag 1")
    for commands_of in (*(cell.commands for cell in script.CELLS), *script.MADE.values()):
        for command in commands_of:
            is_script = command.startswith("python ")
            parse(("" if is_script else "convert-tf ") + command.replace("SEED", "0"))


def test_a_cell_needs_the_files_of_the_folders_that_are_made_for_it(script):
    (cell,) = (cell for cell in script.CELLS if "documents, ConvAI2" in cell.name)
    files = {"train_self_original.txt": "train_self_original.txt.zst"}
    lacking = ["valid_self_original.txt", "articles_train.txt", "RC_2015"]
    assert script.missing(cell, files, None) == lacking


def test_folders_that_cells_share_are_made_once(script, tmp_path, monkeypatch):
    (tmp_path / "make.py").write_text(
        "import pathlib, sys\n"
        "*read, folder = map(pathlib.Path, sys.argv[1:])\n"
        "assert all(path.is_dir() for path in read)\n"
        "folder.mkdir(parents=True)\n"
        "with open('made.txt', 'a') as file:\n"
        "    print(folder.name, file=file)\n"
    )
    monkeypatch.setitem(script.MADE, "FIRST", ("python make.py FIRST",))
    monkeypatch.setitem(script.MADE, "SECOND", ("python make.py FIRST SECOND",))
    values = {name: str(tmp_path / name) for name in ("RUN", "FIRST", "SECOND")}
    for number in range(2):
        script.run(f"python make.py SECOND RUN/{number}", values, data=tmp_path)
    made = (tmp_path / "made.txt").read_text(encoding="utf-8").split()
    assert made == ["FIRST.new", "SECOND.new", "0", "1"]
    assert (tmp_path / "FIRST").is_dir() and (tmp_path / "SECOND").is_dir()
    with pytest.raises(ValueError, match="failed"):
        script.run("python make.py RUN/1", values, data=tmp_path)


def test_a_file_that_an_interrupted_call_made_is_made_again(script, tmp_path, monkeypatch):
    """`vocabulary` refuses an existing output. An unfinished folder is resumed."""
    (tmp_path / "make.py").write_text("import sys\nopen(sys.argv[1], 'x').write('whole')\n")
    (tmp_path / "resume.py").write_text("import os, sys\nos.rename('old', sys.argv[1] + '/new')\n")
    monkeypatch.setitem(script.MADE, "WORDS.txt", ("python make.py WORDS.txt",))
    monkeypatch.setitem(script.MADE, "FOLDER", ("python resume.py FOLDER",))
    values = {name: str(tmp_path / name) for name in ("RUN", "WORDS.txt", "FOLDER")}
    (tmp_path / "WORDS.txt.new").write_text("old")
    (tmp_path / "FOLDER.new").mkdir()
    (tmp_path / "FOLDER.new" / "step").touch()
    (tmp_path / "old").touch()
    for name in ("WORDS.txt", "FOLDER"):
        commands = script.with_made(script.MADE[name])
        lines = "".join(f"{command}\n" for command in commands)
        (tmp_path / f"{name}.commands").write_text(lines)
    (tmp_path / "read.py").write_text("")
    script.run("python read.py WORDS.txt FOLDER", values, data=tmp_path)
    assert (tmp_path / "WORDS.txt").read_text() == "whole"
    assert {path.name for path in (tmp_path / "FOLDER").iterdir()} == {"step", "new"}


# Like heads.py, it leaves an output as it is.
ROWS = """
import json, pathlib, sys
made, factor, output = sys.argv[1:]
if not pathlib.Path(output).exists():
    ranks = [int(pathlib.Path(made).read_text()) * int(factor)]
    row = {"head": "bi", "seed": 0, "ranks": ranks, "num_candidates": 20, "steps": 1}
    pathlib.Path(output).write_text(json.dumps([{**row, "cpu_ms_per_step": 1.0}]))
"""


def test_a_changed_command_is_measured_in_a_new_folder(script, tmp_path, monkeypatch):
    (tmp_path / "rows.py").write_text(ROWS)
    (tmp_path / "make.py").write_text(
        "import pathlib, sys\npathlib.Path(sys.argv[2]).write_text(sys.argv[1])\n"
    )
    output = tmp_path / "runs"
    output.mkdir()

    def rank(made, factor):
        commands = (f"python rows.py NUMBER.txt {factor} RUN/heads.json",)
        monkeypatch.setattr(script, "MADE", {"NUMBER.txt": (f"python make.py {made} NUMBER.txt",)})
        cell = script.Cell("poly 1: x", commands)
        result = script.measure(cell, 0, data=tmp_path, bert=None, output=output)
        return round(1 / result["0"]["figures"]["bi"]["MRR"])

    assert [rank(2, 1), rank(2, 3), rank(5, 3)] == [2, 6, 15]
    (output / "poly_1_x" / "0" / "kept.txt").touch()
    assert rank(5, 3) == 15
    assert (output / "poly_1_x" / "0" / "kept.txt").exists()


def test_what_was_made_from_other_files_is_made_again(script, tmp_path, monkeypatch, capsys):
    (tmp_path / "rows.py").write_text(ROWS)
    (tmp_path / "make.py").write_text("import shutil, sys\nshutil.copy(*sys.argv[1:])\n")
    output, other, bert = (tmp_path / name for name in ("runs", "other", "bert"))
    for folder in (output, other, bert):
        folder.mkdir()
    shutil.copytree(tmp_path, other, dirs_exist_ok=True, ignore=lambda *_: ["other"])
    for folder, number in ((tmp_path, "2"), (other, "3")):
        (folder / "train.csv").write_text(number)
    (bert / "config.json").write_text("{}")
    made = {"NUMBER.txt": ("python make.py train.csv NUMBER.txt",)}
    monkeypatch.setattr(script, "MADE", made)

    def rank(data, command="python rows.py NUMBER.txt 1 RUN/heads.json"):
        result = script.measure(
            script.Cell("poly 1: x", (command,)), 0, data=data, bert=str(bert), output=output
        )
        return round(1 / result["0"]["figures"]["bi"]["MRR"])

    kept = output / "poly_1_x" / "0" / "kept.txt"
    assert rank(tmp_path) == 2
    kept.touch()
    os.utime(tmp_path / "train.csv", (0, 0))  # the time does not matter
    assert rank(tmp_path) == 2 and kept.exists()
    assert "removing" not in capsys.readouterr().out
    assert rank(other) == 3 and not kept.exists()
    assert f"removing {kept.parent}: its commands or the files" in capsys.readouterr().out
    record = output / "made" / "NUMBER.txt.commands"
    complete = record.read_text()
    record.write_text(made["NUMBER.txt"][0] + "\n")  # nothing says which files were read
    (output / "made" / "NUMBER.txt").write_text("9")
    shutil.rmtree(output / "poly_1_x")
    assert rank(other) == 3
    assert record.read_text() == complete
    values = {"BERT": str(bert), "train.csv": "train.csv"}
    (line,) = script.inputs_of(["pretrain --bert BERT"], values, other)
    assert line == f"BERT/config.json 2 {file_checksum(bert / 'config.json')}"
    assert script.inputs_of(["prepare --input x"], values, other) == []


def test_a_cell_is_measured_again_if_a_command_of_a_made_folder_changes(tmp_path, monkeypatch):
    script, values = script_with_flags(monkeypatch, SCRIPT)
    measured, results, page = [], tmp_path / "results.json", tmp_path / "page.md"
    page.write_text(f"{script.START}{script.END}")
    monkeypatch.setattr(script, "CELLS", (script.Cell("poly 1: x", ("evaluate --data FOLDER",)),))

    def measure(cell, seed, *, bert, **others):
        measured.append(bert)
        return script.results_of_ablations(
            [{"variant": "", "seed": seed, "r100_1": 1.0, "examples": 1, "steps": 1}]
        )

    monkeypatch.setattr(script, "measure", measure)
    monkeypatch.chdir(tmp_path)
    for command in ("prepare --input a", "prepare --input a", "prepare --input b"):
        monkeypatch.setattr(script, "MADE", {"FOLDER": (command,)})
        script.main(
            values(["papers.py", "--data=.", "--bert=MiniLM/", f"--results={results}",
                    f"--page={page}"])
        )  # fmt: skip
    # The commands run in another folder, so the path is absolute.
    assert measured == 2 * [str(tmp_path / "MiniLM")]


def test_heads_that_were_run_with_other_flags_are_refused(tmp_path, monkeypatch):
    script, values = script_with_flags(monkeypatch, SCRIPT.with_name("heads.py"))
    output = tmp_path / "heads.json"
    arguments = ["heads.py", f"--output={output}", "--heads=bi", "--seeds=1", "--trunk=a"]
    row = {"head": "bi", "seed": 0, "ranks": [1], "loss_first_last": [1.0, 0.5]}
    monkeypatch.setattr(script.Runs, "__init__", lambda self: None)
    monkeypatch.setattr(
        script.Runs,
        "run",
        lambda self, name, seed: {
            **row,
            "seed": seed,
            "flags": script.configuration(),
            "train_seconds": 1.0,
            "eval_seconds": 1.0,
        },
    )
    script.main(values(arguments))
    script.main(values([*arguments, "--seeds=2"]))
    before = output.read_text()
    assert [row["seed"] for row in json.loads(before)] == [0, 1]
    for name, value in (("examples", 9600), ("learning_rate", 0.1), ("trunk", "b"), ("data", "b")):
        with pytest.raises(SystemExit, match=r"flags of the runs in .*heads\.json' are others"):
            script.main(values([*arguments, f"--{name}={value}"]))
        values[name].unparse()
    assert output.read_text() == before


def test_heads_rank_the_best_correct_candidate_and_refuse_nan(monkeypatch):
    script, _ = script_with_flags(monkeypatch, SCRIPT.with_name("heads.py"))
    scores = [np.array([0.1, 0.5, 0.3]), np.array([0.5, 0.5]), np.array([0.2, 0.1, 0.9])]
    assert script.ranks_of(scores, [[2], [0], [1, 2]]) == [2, 2, 1]
    for value in (np.nan, np.inf):
        with pytest.raises(ValueError, match=r"NaN or infinite\. Lower the learning rate"):
            script.ranks_of([np.array([0.1, value])], [[0]])


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_spaces_around_texts_and_compression_do_not_hide_training_texts(
    suffix, tmp_path, monkeypatch
):
    table, shots, valid = (tmp_path / f"{name}.csv" for name in ("all", "few", "valid"))
    for path, texts in ((table, ["lost \n", *"abcdefg", "h,,h"]), (shots, [" Lost", "z"])):
        with (gzip.open if suffix else open)(f"{path}{suffix}", "wt", encoding="utf-8") as file:
            file.write("text,label\n" + "".join(f'"{text}",x\n' for text in texts))
    script = SCRIPT.with_name("every_eighth.py")
    options = (f"--input={table}{suffix}", f"--without={shots}{suffix}", f"--output={valid}")
    call_script(monkeypatch, script, *options)
    assert valid.read_text(encoding="utf-8") == 'text,label\n"h,,h",x\n'


def test_validation_texts_may_have_line_ends(tmp_path, monkeypatch):
    table, shots, valid = (tmp_path / f"{name}.csv" for name in ("all", "few", "valid"))
    table.write_text('text,label\n"one\rtwo",x\n', encoding="utf-8", newline="")
    shots.write_text("text,label\nz,x\n", encoding="utf-8")
    options = (f"--input={table}", f"--without={shots}", f"--output={valid}")
    call_script(monkeypatch, SCRIPT.with_name("every_eighth.py"), *options)
    assert valid.read_bytes() == b'text,label\n"one\rtwo","x"\n'


def test_validation_texts_are_not_among_the_training_texts(tmp_path, monkeypatch):
    table, shots, valid = (tmp_path / f"{name}.csv" for name in ("all", "few", "valid"))
    texts = ["Hi", *"abcdefg", "h", "i", *"jklmno", "p", "H"]
    table.write_text("text,label\n" + "".join(f"{text},x\n" for text in texts), encoding="utf-8")
    shots.write_text("text,label\nhI,x\n", encoding="utf-8")
    script = SCRIPT.with_name("every_eighth.py")
    options = (f"--input={table}", f"--without={shots}", f"--output={valid}")
    call_script(monkeypatch, script, *options)
    assert valid.read_text(encoding="utf-8") == "text,label\nh,x\np,x\n"


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(
    ("part", "kept"),
    [
        (
            "persona",
            "1 your persona: A.\n2 your persona: B.\n3 hi\tyes\t\tno|yes\n"
            "1 your persona: A.\n2 your persona: B.\n3 ho\tof course\t\tof course|no\n"
            "1 your persona: C.\n2 hm\tno\t\tno|yes\n",
        ),
        ("turns", "1 hi\tyes\t\tno|yes\n2 ho\tof course\t\tof course|no\n1 hm\tno\t\tno|yes\n"),
    ],
)
def test_a_part_of_the_history_of_convai2_is_kept(part, kept, suffix, tmp_path, monkeypatch):
    whole, written = tmp_path / f"whole.txt{suffix}", tmp_path / "part.txt"
    with (gzip.open if suffix else open)(whole, "wt", encoding="utf-8") as file:
        file.write(
            "1 your persona: A.\n2 your persona: B.\n3 hi\tyes\t\tno|yes\n"
            "4 ho\tof course\t\tof course|no\n1 your persona: C.\n2 hm\tno\t\tno|yes\n"
        )
    script = SCRIPT.with_name("convai2_history.py")
    call_script(monkeypatch, script, f"--input={whole}", f"--keep={part}", f"--output={written}")
    assert written.read_text(encoding="utf-8") == kept


def test_earlier_turns_are_numbered_from_the_most_recent(tmp_path, monkeypatch):
    rows = [
        {"context": ["a", "", "c", "d"], "candidates": ["é", "f"], "label": [0, 1]},
        {"context": "alone", "candidates": ["e"], "label": 0},
    ]
    given, written = tmp_path / "given.jsonl", tmp_path / "numbered.jsonl"
    given.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    script = SCRIPT.with_name("numbered_turns.py")
    call_script(monkeypatch, script, f"--input={given}", f"--output={written}")
    first, second = read_candidates(written)
    assert first == (("1: a", "0: c", "d"), ("é", "f"), (0, 1))
    assert second == (("alone",), ("e",), (0,))
    assert extra_context(first.turns) == extra_context(("a", "", "c", "d"), numbered=True)


def test_ablations_differ_from_the_first_variant_of_their_seed(script):
    rows = [
        {"variant": name, "seed": seed, "r100_1": share, "examples": 200, "steps": 9}
        for name, seed, share in (("ConveRT", 0, 20.0), ("C", 0, 21.0), ("ConveRT", 1, 30.0))
    ]
    results = script.results_of_ablations(rows)
    assert results["0"]["figures"]["ConveRT"] == {"R100@1": 0.2, "difference in R100@1": 0.0}
    assert results["0"]["figures"]["C"]["difference in R100@1"] == pytest.approx(0.01)
    assert results["1"]["figures"] == {"ConveRT": {"R100@1": 0.3, "difference in R100@1": 0.0}}


def test_the_results_of_heads_are_those_of_their_ranks(script):
    rows = [
        {
            "head": head,
            "seed": seed,
            "ranks": ranks,
            "num_candidates": 20,
            "steps": steps,
            "cpu_ms_per_step": 9.0,
        }
        for head, steps, seed, ranks in (
            ("bi", 80, 0, [1, 2]),
            ("cross", 40, 0, [1]),
            ("bi", 80, 1, [4, 4]),
        )
    ]
    results = script.results_of_heads(rows)
    assert results["0"]["figures"] == {
        "bi": {"examples": 2, "steps": 80, "R20@1": 0.5, "MRR": 0.75, "CPU ms a step": 9.0},
        "cross": {"examples": 1, "steps": 40, "R20@1": 1.0, "MRR": 1.0, "CPU ms a step": 9.0},
    }
    bi = {"examples": 2, "steps": 80, "R20@1": 0.0, "MRR": 0.25, "CPU ms a step": 9.0}
    assert results["1"] == {"figures": {"bi": bi}}
    measured = {"poly 2: number of negatives": {"seeds": {"0": results["0"]}, "date": "today"}}
    rows = [row for row in script.table(measured).splitlines() if "today" in row]
    assert [row.split(" | ")[1] for row in rows] == ["2", "1"]


def test_the_mean_and_error_of_seeds_are_shown(script):
    assert script.figure([0.5, 0.6, 0.4], "R100@1") == "R100@1 50.0 ± 10.0"
    assert script.figure([0.1234], "MRR") == "MRR 0.123"


def test_a_tiny_table_is_measured_once(tmp_path, monkeypatch, capsys):
    data, page, results = tmp_path / "data", tmp_path / "page.md", tmp_path / "results.json"
    data.mkdir()
    items = task_files.dstc7(task_files.dstc7_items())
    for split in ("train", "test"):
        (data / f"ubuntu_{split}_subtask_1.json").write_text(items, encoding="utf-8")
    page.write_text(
        "# Mine\n<!-- make papers: start -->\n<!-- make papers: end -->\nThe end\n",
        encoding="utf-8",
    )
    arguments = (
        f"--data={data}", f"--output={tmp_path / 'runs'}", f"--results={results}", f"--page={page}",
        '--cells="ConveRT 5, 6: baselines",ConveRT 7',
    )  # fmt: skip
    call_script(monkeypatch, SCRIPT, *arguments)
    assert (
        "skipped ConveRT 7: BANKING77, 10 per intent, r: no banking77.train.csv, "
        in capsys.readouterr().out
    )
    (cell,) = json.loads(results.read_text(encoding="utf-8")).values()
    assert cell["seeds"]["0"]["examples"] == 2
    assert len(cell["seeds"]["0"]["figures"]) == 2
    text = page.read_text(encoding="utf-8")
    assert text.count("| R4@1 ") == 2 and text.startswith("# Mine\n") and "The end" in text
    for path in data.iterdir():
        path.write_text("damaged", encoding="utf-8")
    call_script(monkeypatch, SCRIPT, *arguments)  # nothing is measured again
    assert page.read_text(encoding="utf-8") == text


def test_without_data_the_script_says_what_it_needs(monkeypatch):
    with pytest.raises(SystemExit, match="make papers DATA=FOLDER"):
        call_script(monkeypatch, SCRIPT)
