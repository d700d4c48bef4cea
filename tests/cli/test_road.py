"""Every command as users run it, in a separate process, from dumps to answers."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import urllib.request

import numpy as np
import pytest
from support.commands import ROOT, call_command, own_environment, run_command
from support.huggingface_folder import write_folder
from support.intent_examples import write_csv

from convert_tf.cli.main import COMMANDS
from convert_tf.service.page import missing_files

# Progress that commands print to standard error; nothing else is expected there.
PROGRESS = re.compile(r"step |[\d,]+ (contexts|lines|texts|examples|sentences) ")

COMMAND = (sys.executable, "-m", "convert_tf")

# The output of each command, in the order in which commands need the files of others. `{road}` is
# the folder of these files.
ROAD = {
    "sample --output {road}/dumps --num_threads 300": "RS_sample.zst",
    "split-dump --input {road}/dumps/RC_sample.zst --output {road}/parts":
        "wrote {road}/parts: RC_sample-part-00000.zst to",
    "prepare --input {road}/dumps/RC_* --submissions {road}/dumps/RS_* --output {road}/data "
    "--dev_fraction 0.3 --num_shards_train 1 --num_shards_test 1": "train examples",
    "vocabulary --input {road}/data --output {road}/vocab.txt --min_count 3": "subwords",
    "tokenize --data {road}/data --vocab {road}/vocab.txt --output {road}/ids "
    "--num_oov_buckets 10": "wrote {road}/ids",
    "train --flagfile {road}/run.flags --data {road}/ids --output {road}/run": "precision",
    "pretrain --data {road}/data --vocab {road}/published/vocab.txt --output {road}/bert "
    "--model bert_tiny --dim 16 --num_layers 1 --num_heads 2 --steps 1 --batch_tokens 200 "
    "--eval_every 1 --eval_examples 10 --shuffle_buffer 20": "parameters in the trunk",
    "mine --encoder {road}/run --data {road}/ids --output {road}/negatives --skip_top 1 "
    "--negatives 1": "wrote {road}/negatives",
    "evaluate --encoder {road}/run --data {road}/data --block_size 5 --k 1": "R5@1",
    "export --encoder {road}/run --output {road}/module": "wrote {road}/module",
    "embed --encoder {road}/module --input {road}/texts --output {road}/vectors.npy": "3 × ",
    "index build --encoder {road}/run --input {road}/texts --output {road}/cache": "3 candidates",
    "index edit --encoder {road}/run --cache {road}/cache --add {road}/more": "4 candidates",
    # This command once loaded a module twice: by its name and as the main program.
    "index search --encoder {road}/run --cache {road}/cache --queries hello "
    "--rerank_checkpoint {road}/run --rerank_cache {road}/cache": "hello\n  ",
    "intent train --encoder {road}/module --data {road}/train.csv --head logistic "
    "--output {road}/intents": "3 intents, 12 examples",
    "intent evaluate --model {road}/intents --data {road}/train.csv": "accuracy",
    "intent predict --model {road}/intents --input {road}/texts": "text",
    "intent discover --encoder {road}/module --input {road}/texts --output {road}/groups "
    "--groups 2 --min_size 1": "wrote {road}/groups: groups.csv, groups.html",
    "intent suggest --encoder {road}/module --input {road}/texts --output {road}/next.csv "
    "--budget 2": "wrote {road}/next.csv: 2 messages to label",
    "intent inspect --encoder {road}/module --data {road}/train.csv --output {road}/inspection":
        "wrote {road}/inspection: inspection.json",
    "intent monitor --model {road}/intents --input {road}/texts --output {road}/week.json":
        "wrote {road}/week.json",
    "intent export --model {road}/intents --output {road}/intents.onnx":
        "wrote {road}/intents.onnx, ",
}  # fmt: skip


@pytest.fixture(scope="module")
def road(tmp_path_factory):
    folder = tmp_path_factory.mktemp("road")
    (folder / "texts").write_text("where is my card?\nthank you\nno\n")
    (folder / "more").write_text("no\nyes\n")
    (folder / "run.flags").write_text(
        "--model=tiny\n--num_oov_buckets=10\n--steps=1\n--batch_size=4\n--eval_every=1\n"
        "--checkpoint_every=1\n--eval_examples=100\n--precision=float32\n--shuffle_buffer=32\n"
    )
    write_csv(folder / "train.csv")
    write_folder(folder / "published")
    return folder


# Commands that serve until they are stopped, and those that need a teacher's vectors. A teacher is
# a third-party model, which a test below replaces in its own process.
TRIED_ELSEWHERE = {"serve", "demo", "teach", "similarity", "translate"}


def test_every_command_is_on_the_road():
    assert {command.split(" --")[0] for command in ROAD} | TRIED_ELSEWHERE == {*COMMANDS}


@pytest.mark.slow
@pytest.mark.parametrize("command", ROAD, ids=lambda command: command.split(" --")[0])
def test_each_command_says_what_it_did_and_nothing_else(road, command):
    done = run_command(*command.format(road=road).split())
    assert done.returncode == 0, done.stderr
    assert ROAD[command].format(road=road) in done.stdout
    assert not [line for line in done.stderr.splitlines() if not PROGRESS.match(line)]


@pytest.mark.slow
def test_a_terminal_shows_nothing_else_either(road):
    """Libraries print more if standard error is a terminal."""
    ours, theirs = pty.openpty()
    (embed,) = (command for command in ROAD if command.startswith("embed"))
    command = [*COMMAND, *embed.format(road=road).split(), "--overwrite"]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=own_environment(), cwd=ROOT
    ):
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # Linux reports the closed end this way
            while piece := os.read(ours, 4096):
                shown += piece
    os.close(ours)
    kept = re.sub(r"[^\r\n]*\r\x1b\[K", "", shown.decode())  # without erased progress lines
    assert re.fullmatch(rf"\s*wrote {road}/vectors.npy: 3 × \d+[^\r\n]*\s*", kept), shown


def test_the_page_is_served_until_an_interrupt(tmp_path):
    for name in missing_files(tmp_path):
        (tmp_path / name).write_text(name)
    process = subprocess.Popen(
        [*COMMAND, "demo", f"--folder={tmp_path}", "--port=0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=own_environment(), cwd=ROOT,
        # Background shells let child processes ignore this signal.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert process.stdout is not None
    url = re.match(r"http://\S+", process.stdout.readline())
    assert url is not None
    with urllib.request.urlopen(f"{url[0]}/index.html") as reply:
        assert reply.read() == b"index.html"
    process.send_signal(signal.SIGINT)
    assert "interrupted" in process.communicate(timeout=60)[1]


@pytest.mark.slow
def test_teachers_vectors(road, monkeypatch, capsys):
    arguments = ("teach", f"--token_ids={road}/ids")
    done = run_command(*arguments, f"--output={road}/vectors", "--teacher=no_such_package")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("convert-tf teach: ")
    assert done.stderr.count("\n") == 1

    def of_letters(texts):
        counts = np.array([[1 + text.count(letter) for letter in "aei"] for text in texts], float)
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)

    sides = ("--sides", f"--output={road}/sides", "--max_examples=100")
    call_command(*arguments, *sides, f"--teacher={road}/run")
    assert f"wrote {road}/sides: vectors of 64 numbers" in capsys.readouterr().out

    monkeypatch.setattr("convert_tf.training.teaching.teacher.Teacher", lambda _: of_letters)
    taught = (f"--output={road}/vectors", "--max_examples=100", "--teacher=one,other")
    call_command(*arguments, *taught, "--teacher_weights=1,2")
    assert f"wrote {road}/vectors: vectors of 6 numbers" in capsys.readouterr().out
    facts = json.loads((road / "vectors" / "teacher.json").read_text())
    assert (facts["dim"], facts["teacher"]) == (6, "1 one + 2 other")
    (road / "single.jsonl").write_text('{"text": "hello", "label": "greet"}\n{"text": "bye"}\n')
    call_command(
        "tokenize", f"--utterances={road}/single.jsonl", f"--vocab={road}/vocab.txt",
        f"--output={road}/single", "--num_oov_buckets=10",
    )  # fmt: skip
    assert "train: 2 examples" in capsys.readouterr().out
    call_command("teach", f"--token_ids={road}/single", f"--output={road}/single_vectors")
    assert "train: 2 of 2 examples" in capsys.readouterr().out

    fitted = run_command(
        "similarity", f"--encoder={road}/run", f"--token_ids={road}/ids",
        f"--teacher={road}/vectors", f"--output={road}/similar",
    )  # fmt: skip
    assert (fitted.returncode, fitted.stderr) == (0, "")
    assert f"wrote {road}/similar: vectors of 6 numbers" in fitted.stdout
    call_command("export", f"--encoder={road}/similar", f"--output={road}/similar_module")
    call_command(
        "embed", f"--encoder={road}/similar_module", f"--input={road}/texts", "--kind=similarity",
        f"--output={road}/similar.npy",
    )  # fmt: skip
    np.testing.assert_allclose(np.linalg.norm(np.load(road / "similar.npy"), axis=1), 1, atol=1e-3)
