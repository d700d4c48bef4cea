"""Behaviour of all commands: the list, help, usage errors, and error messages."""

import errno
import functools
import importlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import warnings
import zipfile

import numpy as np
import pytest
import tomllib
from absl import flags
from support.commands import ROOT, call_command, own_environment, run_command

import convert_tf
from convert_tf.checkpoints.released import module_path
from convert_tf.cli import embed, evaluate, sample, train
from convert_tf.cli import main as main_module
from convert_tf.cli.flags import READ, READ_ONCE, define_flag
from convert_tf.cli.main import COMMANDS, main
from convert_tf.training.processes import NotFinishedError


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_commands_are_listed_in_the_order_of_the_road(arguments):
    done = run_command(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    listed = [line[2:20].strip() for line in done.stdout.splitlines() if line.startswith("  ")]
    assert listed == list(COMMANDS)
    assert listed[:2] == ["sample", "prepare"]


def test_commands_of_a_group_are_listed_and_the_version(capsys):
    assert main(["index", "--help"]) == 0
    printed = capsys.readouterr().out
    assert "index build" in printed and "embed" not in printed
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"convert_tf {convert_tf.__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_starts_with_an_example_and_loads_nothing_heavy(name):
    code = (
        "import sys; from convert_tf.cli.main import main; status = main(sys.argv[1:])\n"
        "print(*{'tensorflow', 'keras', 'jax', 'duckdb', 'sklearn', 'matplotlib'} & {*sys.modules})"
        "\nsys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *name.split(), "--help"],
        cwd=ROOT, env=own_environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"convert-tf {name} --") or name in ("teach", "similarity")
    assert {"Flags:", "Output:"} & {*lines}
    assert "Required." in done.stdout or name in ("evaluate", "demo", "serve")
    assert lines[-1] == ""
    assert max(map(len, lines)) <= 100
    assert len(lines) <= 42 or name not in ("train", "pretrain")


def test_flags_have_their_defaults_and_no_other_commands_flags(capsys):
    main(["intent", "predict", "--help"])
    help_of = " ".join(capsys.readouterr().out.split())
    assert "--top_k=1 Number of intents to print with their probabilities." in help_of
    assert re.search(r"--model= .*?Required\.", help_of)
    assert re.search(r"--encoder= .*?Repeatable\.", help_of)
    assert "--shots" not in help_of
    main(["embed", "--help"])
    kinds = "--kind=sentence sentence, reduced, context, response, similarity."
    assert kinds in " ".join(capsys.readouterr().out.split())


def test_flags_of_fields_have_the_text_of_the_docstring():
    done = run_command("pretrain", "--helpfull")
    assert (done.returncode, done.stderr) == (0, "")
    printed = " ".join(done.stdout.split())
    assert "--feed_forward_dim= Hidden width of" in printed
    assert "the feed-forward layers. Default: 3072." in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["smaple"], "convert-tf: There is no command 'smaple'. Did you mean sample?"),
        (["index", "serch"], "There is no command 'index serch'. Did you mean index search"),
        (
            ["sample", "--outputs=x"],
            "convert-tf sample: Unknown command line flag 'outputs'. Did you",
        ),
        (
            ["prepare", "--memory=1"],
            "Unknown command line flag 'memory'. Did you mean: memory_limit ?",
        ),
        (["sample"], "convert-tf sample: --output is required. convert-tf sample --help lists"),
        (
            ["index", "search", "--queries=a", "--encoder=setup.py"],
            "--cache, --candidates and --data. Received: none.",
        ),
        (
            ["tokenize", "--vocab=v", "--output=o"],
            "Pass one of --data, --utterances and --triplets.",
        ),
        (
            ["tokenize", "--data=", "--vocab=v", "--output=o"],
            "Pass one of --data, --utterances and --triplets.",
        ),
        (["mine", "--module=a"], "--module is now called --encoder."),
        (["mine", "--data=a", "--output=b"], "convert-tf mine: --encoder is required."),
        (["sample", "--output=x", "y"], "'y' is not a flag."),
        (["sample", "--output=x", "--seed=y"], "invalid literal for int() with base 10: 'y'."),
        (["sample", "--flagfile=/nowhere"], "No such file or directory: '/nowhere'."),
        (
            ["embed", "--kind=poem"],
            "should be one of <sentence|reduced|context|response|similarity>.",
        ),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(capsys, arguments, message):
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert not printed.out


@pytest.mark.parametrize(
    "error",
    [ValueError("of two\n lines"), FileNotFoundError(2, "No", "x"), FloatingPointError("NaN"),
     ImportError("Run pip install"), MemoryError("all")],
)  # fmt: skip
def test_errors_are_one_line_and_status_1(monkeypatch, capsys, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(sample, "write_sample", fail)
    assert main(["sample", "--output=x"]) == 1
    message = " ".join(str(error).split())
    if isinstance(error, OSError):
        message = "Cannot open 'x': No."
    assert capsys.readouterr().err == f"convert-tf sample: {message}\n"
    assert main(["sample", "--output=x", "--verbosity=1"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("Traceback ") and told.endswith(f"\nconvert-tf sample: {message}\n")


def test_other_errors_are_not_hidden(monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(sample, "write_sample", fail)
    with pytest.raises(RuntimeError, match="of ours"):
        main(["sample", "--output=x"])


def test_interrupts(monkeypatch, capsys):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(sample, "run", interrupt)
    assert main(["sample", "--output=x"]) == 1
    assert capsys.readouterr().err == "convert-tf sample: interrupted\n"
    from convert_tf.cli import train

    monkeypatch.setattr(train, "run", interrupt)
    assert main(["train", "--output=x"], program="train.py") == 1
    assert "train.py: interrupted; run the same command again" in capsys.readouterr().err


def test_a_run_that_was_told_to_end_has_a_status_of_its_own(monkeypatch, capsys):
    def told_to_end(*_, **__):
        raise NotFinishedError

    from convert_tf.cli import pretrain, train

    for command, name in ((train, "train"), (pretrain, "pretrain")):
        monkeypatch.setattr(command, "run", told_to_end)
        assert main([name, "--output=x"]) == 75
    assert main(["--help"]) == 0
    assert "75 stopped by a signal" in capsys.readouterr().out


def test_help_without_docstrings_is_an_error():
    done = subprocess.run(
        [sys.executable, "-OO", "-m", "convert_tf", "embed", "--help"],
        cwd=ROOT, env=own_environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert "Omit -OO" in done.stderr and len(done.stderr.splitlines()) == 1


_WRITING = """
import os, signal, sys
from convert_tf.cli import sample
from convert_tf.cli.main import main
from convert_tf.storage.files import only_writer, whole_file
from convert_tf.storage.folders import OutputFolder

def run(values):
    with only_writer(values.output), whole_file(values.output), OutputFolder("folder").open():
        if sys.argv[1] == "child":
            child = os.fork()
            if not child:
                os.kill(os.getpid(), signal.SIGTERM)
                os._exit(0)
            os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != -signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)

sample.run = run
sys.exit(main(["sample", "--output=file"]))
"""


def test_sigterm_leaves_nothing_and_ends_by_the_signal(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", _WRITING, "here"],
        cwd=tmp_path, env=own_environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGTERM, "", "")
    assert [*tmp_path.iterdir()] == []
    done = subprocess.run(
        [sys.executable, "-c", _WRITING, "child"], cwd=tmp_path, env=own_environment()
    )
    assert done.returncode == 0


@pytest.mark.parametrize("is_file", [False, True])
def test_backends_that_cannot_run_a_command_are_replaced(tmp_path, monkeypatch, capsys, is_file):
    from convert_tf.cli import export, train

    chosen = []
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    for command in (export, train):
        monkeypatch.setattr(command, "run", lambda _: chosen.append(os.environ["KERAS_BACKEND"]))
    for name, backend in [("export", "jax"), ("export", "torch"), ("train", "numpy")]:
        monkeypatch.setenv("KERAS_BACKEND", "" if is_file else backend)
        (tmp_path / "keras.json").write_text(json.dumps({"backend": backend, "floatx": "float32"}))
        assert main([name, "--output=y", *(["--encoder=x"] if name == "export" else [])]) == 0
        assert f"sets the backend {backend!r}" in capsys.readouterr().err
    assert chosen == ["tensorflow"] * 3
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    assert main(["train", "--output=y"]) == 0
    assert chosen[-1] == "jax" and capsys.readouterr().err == ""


@pytest.mark.slow
def test_floats_of_the_keras_settings_are_replaced(tmp_path):
    (tmp_path / "keras.json").write_text(json.dumps({"floatx": "float16"}))
    script = """
import keras
from convert_tf.cli import main, train
train.run = lambda _: print(keras.config.floatx())
main.main(["train", "--output=y"])
"""
    environment = {**own_environment(), "KERAS_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "float32\n"
    assert "sets the floatx 'float16', which this command cannot use." in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "floats", "said"),
    [
        ("torch", "float32", "sets Keras's backend to 'torch'.*needs tensorflow or jax"),
        ("numpy", "float32", "sets Keras's backend to 'numpy'.*needs tensorflow or jax"),
        ("tensorflow", "float16", "keras.json or .* sets Keras's floatx to 'float16'.*float32"),
    ],
)
@pytest.mark.parametrize("kind", ["module", "run"])
def test_keras_settings_of_a_program_are_one_error(
    tmp_path, tiny_modules, kind, backend, floats, said
):
    run, module = tiny_modules["single"]
    (tmp_path / "keras.json").write_text(json.dumps({"floatx": floats}))
    (tmp_path / "torch.py").write_text("raise ImportError('no torch', name='torch')")
    script = f"""
from convert_tf import SentenceEncoder
try:
    print(SentenceEncoder({str(run if kind == "run" else module)!r}).encode(["hi"]).shape)
except ValueError as error:
    print(error)
"""
    settings = {"KERAS_HOME": str(tmp_path), "KERAS_BACKEND": backend, "PYTHONPATH": str(tmp_path)}
    environment = own_environment()
    settings["PYTHONPATH"] += f"{os.pathsep}{environment['PYTHONPATH']}"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**environment, **settings},
        capture_output=True,
        text=True,
        check=True,
    )
    # A module needs Keras only because tensorflow_text imports it.
    reads = kind == "module" and backend != "torch"
    assert re.search(r"^\(1, \d+\)" if reads else said, done.stdout), done.stdout


@pytest.mark.parametrize(
    "arguments",
    [["-m", "convert_tf", "sample", "--output=x"], ["-c", "from convert_tf import ModelConfig"]],
)
def test_a_package_in_a_zip_file_is_refused_in_one_sentence(tmp_path, arguments):
    with zipfile.ZipFile(tmp_path / "package.zip", "w") as package:
        for path in (ROOT / "convert_tf").rglob("*.py"):
            package.write(path, path.relative_to(ROOT))
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=tmp_path,
        env={**own_environment(), "PYTHONPATH": str(tmp_path / "package.zip")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    *before, said = done.stderr.splitlines()
    assert "convert_tf cannot run from a zip file" in said
    assert before == [] or (arguments[0] == "-c" and said.startswith("ImportError: "))


def test_errors_of_the_disk_are_sentences(tmp_path, monkeypatch, capsys):
    def fail(_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "ro/g")

    monkeypatch.setattr(sample, "run", fail)
    assert main(["sample", "--output=x"]) == 1
    assert "sample: Cannot open 'ro/g': Read-only file system." in capsys.readouterr().err


def test_own_warnings_are_notes_and_those_of_libraries_nothing(monkeypatch, capsys):
    def warn(_):
        warnings.warn_explicit("own", UserWarning, "x.py", 1, module="convert_tf.intents.x")
        warnings.warn_explicit("other", UserWarning, "x.py", 1, module="keras.x")

    monkeypatch.setattr(sample, "run", warn)
    call_command("sample", "--output=x")
    assert capsys.readouterr().err == "note: own\n"


def test_flags_from_a_file(tmp_path, capsys):
    (tmp_path / "flags").write_text(f"# a comment\n--output={tmp_path}\n--num_threads=3\n")
    call_command("sample", f"--flagfile={tmp_path / 'flags'}", "--seed=4")
    assert "RC_sample.zst" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--eval_splits=dev", "--eval_splits", "test"], ["dev", "test"]),
        (["--eval_splits=dev,test", "--eval_splits=train"], ["dev", "test", "train"]),
        (["--eval_splits=dev", "--eval_splits="], []),
        (["--eval_splits=dev", "--eval_splits=", "--eval_splits=test"], ["test"]),
    ],
)
def test_repeated_list_flags_keep_all(monkeypatch, arguments, expected):
    given = []
    monkeypatch.setattr(train, "run", lambda values: given.append(values.eval_splits))
    call_command("train", "--data=x", "--output=y", *arguments)
    assert given == [expected]


def test_every_list_flag_keeps_all():
    for name in COMMANDS:
        values = flags.FlagValues()
        module = importlib.import_module(
            f"convert_tf.cli.{name.replace(' ', '.').replace('-', '_')}"
        )
        module.define_flags(functools.partial(define_flag, values))
        for flag in values:
            if "list" in values[flag].flag_type() or isinstance(values[flag], flags.MultiFlag):
                values[flag].parse("1")
                values[flag].parse("2")
                assert values[flag].value == ["1", "2"], (name, flag)


def test_repeated_flags_for_one_file_are_refused():
    checked = set()
    for name in COMMANDS:
        values = flags.FlagValues()
        module = name.replace(" ", ".").replace("-", "_")
        command = importlib.import_module(f"convert_tf.cli.{module}")
        command.define_flags(functools.partial(define_flag, values))
        for flag in sorted(READ_ONCE & {*values}):
            if values[flag].flag_type() != "string":
                continue
            checked.add((name, flag))
            with pytest.raises(
                SystemExit, match=rf"--{flag} takes one file\. Received: 'a' and 'b'"
            ):
                call_command(*name.split(), f"--{flag}=a", f"-{flag}", "b")
    assert {("index edit", "remove"), ("embed", "input"), ("intent predict", "input")} <= checked


def test_a_flag_may_repeat_its_value_or_override_a_file(tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(embed, "run", lambda values: given.append(values.input))
    (tmp_path / "flags").write_text("--input=a\n")
    arguments = [f"--flagfile={tmp_path / 'flags'}", "--input=b", "--input", "b", "--output=o"]
    call_command("embed", *arguments, "--encoder=e", "--encoder", str(tmp_path))
    assert given == ["b"]


@pytest.fixture
def inputs(tmp_path, monkeypatch):
    """An input file with other column names, and an input folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.txt").write_text("text,label\nmine,by hand\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "groups.csv").hardlink_to(tmp_path / "log.txt")
    (tmp_path / "soft").symlink_to("log.txt")
    return tmp_path


def test_a_device_may_be_read_and_written():
    with pytest.raises(SystemExit) as ending:
        call_command("vocabulary", "--input=/dev/null", "--output=/dev/null")
    assert "would replace" not in str(ending.value)


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("intent suggest", "--input=log.txt --output=./folder/../log.txt"),
        ("intent suggest", "--input=soft --output=log.txt --overwrite"),
        ("intent suggest", "--input=log.txt --output=soft --overwrite"),
        ("intent monitor", "--model=m --input=x --since=log.txt --output=soft --overwrite"),
        ("intent discover", "--input=log.txt --output=folder --overwrite"),
        ("intent discover", "--input=folder/groups.csv --output=folder/. --overwrite"),
        ("intent inspect", "--data=folder/inspection.json --output=folder"),
        ("intent evaluate", "--model=m --data=a.csv,folder/evaluation.json --output=folder"),
        ("intent evaluate", "--model=m --data=a --against=folder/evaluation.json --output=folder"),
        ("intent train", "--data=folder/groups.csv --output=folder --overwrite"),
        ("intent train", "--model=folder --data=x.csv --output=folder/. --overwrite"),
        ("intent train", "--data=log.txt --output=o --serving_module=folder --overwrite"),
        ("intent export", "--model=log.txt --output=soft --overwrite"),
        ("export", "--encoder=folder --output=./folder --overwrite"),
        ("export", "--encoder=x --notes=log.txt --output=folder --overwrite"),
        ("embed", "--input=log.txt --output=soft --overwrite"),
        ("embed", "--encoder=log.txt --input=x --output=soft --overwrite"),
        ("index build", "--input=x --encoder=folder --output=folder --overwrite"),
        ("vocabulary", "--input=*.txt --output=log.txt"),
        ("vocabulary", "--input=**/*.txt --output=log.txt"),
        ("vocabulary", "--input=x,**/*.txt --output=log.txt"),
        ("vocabulary", "--input=x,soft --output=log.txt"),
        ("prepare", "--pairs=folder --output=folder --overwrite"),
        ("tokenize", "--data=folder --vocab=v --output=folder/ --overwrite"),
        ("tokenize", "--utterances=fold* --vocab=v --output=folder --overwrite"),
        ("teach", "--token_ids=folder --output=folder"),
        ("mine", "--encoder=x --data=folder --output=folder --overwrite"),
        ("similarity", "--encoder=x --token_ids=i --teacher=folder --output=folder"),
        ("train", "--data=folder --output=folder"),
        ("pretrain", "--data=x --init_from=folder --output=folder"),
        ("split-dump", "--input=folder --output=folder --overwrite"),
        ("evaluate", "--candidates=folder/evaluation.json --output=folder"),
    ],
)
def test_an_output_that_is_an_input_is_refused(inputs, command, arguments):
    for name in ("evaluation.json", "inspection.json"):
        (inputs / "folder" / name).write_text("{}")
    before = {path: path.read_bytes() for path in inputs.rglob("*") if path.is_file()}
    with pytest.raises(SystemExit, match=r"--\w+ would replace '\S+', which --\w+ reads\. Choose"):
        call_command(*command.split(), *arguments.split())
    assert {path: path.read_bytes() for path in inputs.rglob("*") if path.is_file()} == before


def test_standard_input_from_the_output_is_refused(inputs):
    arguments = ["intent", "suggest", "--input=-", "--output=soft", "--overwrite"]
    with open("log.txt") as log:
        done = run_command(*arguments, stdin=log, cwd=inputs)
    assert done.returncode == 1 and "which --input reads" in done.stderr
    assert (inputs / "log.txt").read_text().endswith("by hand\n")


def test_outputs_in_and_around_an_input_are_written(inputs, monkeypatch):
    """Modules may be inside a run, results next to a model, and data next to a vocabulary."""
    (inputs / "tiny").mkdir()  # also the name of a preset
    written = []
    for name, arguments in {
        "export": ["--encoder=folder", "--output=folder/module/1"],
        "evaluate": ["--encoder=folder", "--data=folder", "--output=folder"],
        "prepare": ["--pairs=log.txt", "--vocab=folder/groups.csv", "--output=folder"],
        "vocabulary": ["--input=folder", "--output=folder/vocab.txt"],
        "train": ["--data=log.txt", "--model=tiny", "--output=tiny"],
    }.items():
        command = importlib.import_module(f"convert_tf.cli.{name}")
        monkeypatch.setattr(command, "run", lambda values: written.append(values.output))
        call_command(name, *arguments)
    assert written == ["folder/module/1", "folder", "folder", "folder/vocab.txt", "tiny"]


def test_flags_with_a_path_are_inputs_or_outputs():
    others = {"master", "subreddits", "exclude_subreddits", "memory_limit", "temp_dir", "split",
              "ignored_labels", "teacher_weights", "source_shares", "eval_splits", "coordinator",
              "position_table_sizes", "max_relative_attention", "baselines", "vector_signature",
              "k", "queries", "folder", "host", "name", "label_separator", "remove", "rename",
              "out_of_scope_label", "output", "serving_module", "at_least"}  # fmt: skip
    # These commands have no --output to write.
    others |= {"rerank_checkpoint", "rerank_cache", "intents"}
    names = set()
    for name in COMMANDS:
        module = name.replace(" ", ".").replace("-", "_")
        values = flags.FlagValues()
        command = importlib.import_module(f"convert_tf.cli.{module}")
        command.define_flags(functools.partial(define_flag, values))
        flag_types = {flag: values[flag].flag_type() for flag in values}
        names |= {
            flag for flag in values if "string" in flag_types[flag].replace("string enum", "")
        }
    assert names - others == READ


def test_vectors_of_a_released_encoder_are_opened_on_the_backend(monkeypatch):
    opened = []
    monkeypatch.setattr(evaluate, "run", lambda values: opened.extend(values.vectors))
    call_command("evaluate", "--vectors=convert_small", "--backend=tensorflow")
    assert opened == [module_path("convert_small")]
    with pytest.raises(SystemExit, match=r"'x\.onnx' runs on ONNX Runtime, not on TensorFlow"):
        call_command("evaluate", "--vectors=x.onnx", "--backend=tensorflow")


def test_a_service_has_the_name_of_its_encoder(monkeypatch):
    pytest.importorskip("fastapi")

    def refuse(path, intents, *, name, **_):
        raise ValueError(f"The name is {name}.")

    monkeypatch.setattr("convert_tf.service.application.opened_model", refuse)
    for path, name in (
        ("cache/models--me--my-encoder/snapshots/0a1b", "me/my-encoder"),
        ("hub_modules/convert/2", "convert"),
        ("convert-2.onnx", "convert"),
        ("snapshots/encoder", "encoder"),
        ("runs/small.v2", "small.v2"),
        ("hub_modules/convert/2/variables/..", "convert"),
    ):
        with pytest.raises(SystemExit, match=rf"The name is {name}\.$"):
            call_command("serve", f"--encoder={path}")
    with pytest.raises(SystemExit, match="--backend has no effect with the encoder in --intents"):
        call_command("serve", "--intents=x.onnx", "--backend=tensorflow")


def test_global_flags_are_left_alone():
    before = {*flags.FLAGS}
    for name in COMMANDS:
        assert main([*name.split(), "--help"]) == 0
    assert {*flags.FLAGS} == before


def test_standard_input_cannot_be_read_twice():
    with pytest.raises(SystemExit, match=r"--add and --remove both read standard input\. Pass a"):
        call_command("index", "edit", "--cache=nothing", "--add=-", "--remove=-")


def test_readers_that_end_early_are_no_error():
    reader = subprocess.Popen(["true"], stdin=subprocess.PIPE)
    reader.wait()
    done = run_command("train", "--help", capture_output=False, stdout=reader.stdin,
                       stderr=subprocess.PIPE)  # fmt: skip
    reader.stdin.close()
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def said_in_a_shell(redirection, *arguments, **environment):
    """Run a command in a shell with redirected and normally buffered standard streams."""
    command = shlex.join([sys.executable, "-m", "convert_tf", *map(str, arguments)])
    return subprocess.run(
        ["bash", "-c", f"{command} {redirection}"],
        env={**own_environment(), "PYTHONUNBUFFERED": "", **environment}, cwd=ROOT,
        capture_output=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-8", "ascii:surrogateescape"])
def test_output_that_cannot_hold_a_character_escapes_it(tmp_path, encoding):
    output = tmp_path / "é😊"
    done = said_in_a_shell("", "sample", "--output", output, PYTHONIOENCODING=encoding)
    said = str(output).encode(encoding.partition(":")[0], "backslashreplace")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"wrote " + said)
    done = said_in_a_shell("", "sample", "--output", f"{output}\udcff", PYTHONIOENCODING=encoding)
    assert done.returncode == 0
    assert b"\\udcff" in done.stdout


def test_streams_that_are_closed_are_empty(tmp_path):
    for closed in (">&-", "2>&-", "<&- >&- 2>&-"):
        done = said_in_a_shell(closed, "sample", "--output", tmp_path / "sample")
        assert (done.returncode, done.stderr) == (0, b"")
    assert len(list((tmp_path / "sample").iterdir())) == 2
    done = said_in_a_shell("2>&-", "smaple")
    assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.slow
def test_no_file_gets_the_number_of_a_closed_stream(tmp_path):
    """Otherwise TensorFlow would write its log into that file."""
    vectors, texts = tmp_path / "v.npy", tmp_path / "texts"
    texts.write_text("hello there\n")
    done = said_in_a_shell(
        "<&- >&- 2>&-", "embed", "--encoder", module_path("convert_small"), f"--input={texts}",
        f"--output={vectors}",
    )  # fmt: skip
    assert done.returncode == 0
    assert np.load(vectors).shape == (1, 1024)


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"]])
def test_output_to_a_full_disk_is_an_error_of_one_line(arguments):
    done = said_in_a_shell("> /dev/full", *arguments)
    assert done.returncode == 1
    assert done.stderr.startswith(b"convert-tf") and done.stderr.count(b"\n") == 1
    assert b"No space left on device" in done.stderr


@pytest.mark.parametrize("name", ["train", "export"])
def test_scripts_are_the_commands(name, tmp_path):
    def said(*command):
        done = subprocess.run(
            [sys.executable, *command, "--help"],
            cwd=tmp_path, env=own_environment(), capture_output=True, text=True,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    script, command = said(ROOT / f"{name}.py"), said("-m", "convert_tf", name)
    assert script.replace(f"{name}.py --helpfull", f"convert-tf {name} --helpfull") == command


def test_files_of_the_same_names_are_not_imported(tmp_path):
    for name in ("train", "export", "sample", "main", "flags"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one')\n")
    done = run_command("train", "--output=x", cwd=tmp_path, env={"PYTHONPATH": str(ROOT)})
    assert "--data is missing" in done.stderr


def test_the_console_script_is_main():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"] == {"convert-tf": "convert_tf.cli.main:main"}
    assert main_module.main is main


@pytest.mark.parametrize(
    "arguments",
    [
        ["mine", "--encoder=m", "--data=d", "--output=o", "--negatives=0"],
        ["mine", "--encoder=m", "--data=d", "--output=o", "--skip_top=-1"],
        ["mine", "--encoder=m", "--data=d", "--output=o", "--block_size=1"],
        ["tokenize", "--data=d", "--vocab=v", "--output=o", "--max_tokens=0"],
        ["vocabulary", "--input=i", "--output=o", "--max_sentences=0"],
        ["split-dump", "--input=i", "--output=o", "--part_megabytes=0"],
    ],
    ids=lambda arguments: arguments[-1],
)
def test_numbers_out_of_bounds_are_refused_by_the_flag(capsys, arguments):
    """The functions that receive these numbers do not check them again."""
    assert main(arguments) == 2
    assert f"flag {arguments[-1]}: " in capsys.readouterr().err
