"""The robustness test (`make attack`) finds planted faults, and none in the real programs."""

import json
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.script_calls import script_module, script_with_flags

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
ROUNDS = 60  # enough for every kind of damage


@pytest.fixture(scope="module")
def fuzzing():
    return script_module(BENCHMARKS / "fuzzing.py")


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (ValueError("Numbers are 0 to 98. Received: others. Write them again."), ""),
        (KeyError("numbers"), "KeyError"),
        (ValueError("x" * 2_000), "said 'xxx"),
        (ValueError("Traceback (most recent call last)"), "said 'Traceback"),
        (None, "read as something else"),
    ],
)
def test_each_kind_of_fault_is_found(fuzzing, tmp_path, failure, said):
    """Each kind of fault is reported, and the damaged file is restored after every round."""
    path = tmp_path / "numbers.onnx"
    path.write_text(json.dumps([*range(99)]))
    content = path.read_bytes()

    def read():
        is_whole = path.exists() and path.read_bytes() == content
        if not is_whole and failure is not None:
            raise failure
        return np.arange(99 if is_whole else 98)

    rng, expected = random.Random(0), read()
    found = {fuzzing.fuzz_file(path, read, expected, rng) for _ in range(ROUNDS)}
    assert path.read_bytes() == content
    assert is_found(said, [outcome for outcome in found if outcome.startswith("FAULT")])
    assert said or "refused" in found


def is_found(said, faults):
    return any(said in fault for fault in faults) if said else not faults


class Encoder:
    """Encodes texts as their lengths, and has a fault."""

    def __init__(self, fault):
        self.fault = fault

    def encode(self, texts):
        encodings = np.array([[1.0 + len(text)] for text in texts])
        if self.fault == "not finite":
            encodings[0] = np.nan
        if self.fault == "of the batch":
            encodings += len(texts)
        return encodings


@pytest.mark.parametrize(
    ("fault", "said"), [("", ""), ("not finite", "no finite"), ("of the batch", "encoded alone")]
)
def test_faults_of_encoders_are_found(fuzzing, fault, said):
    from convert_tf import module_path
    from convert_tf.text.plain_tokenizer import PlainTokenizer
    from convert_tf.text.tokenizer import load_tokenizer
    from convert_tf.text.vocabulary import read_vocabulary

    vocabulary = Path(module_path("convert_small")) / "assets" / "vocab.txt"
    rng = random.Random(0)
    some = [text for text, _ in zip(fuzzing.fuzzed_texts(rng), range(64), strict=False)]
    faults = fuzzing.fuzz_texts(
        {"module": Encoder(fault)}, load_tokenizer(vocabulary),
        PlainTokenizer(read_vocabulary(vocabulary)), some, rng,
    )  # fmt: skip
    assert is_found(said, faults)


@pytest.mark.slow
def test_a_short_attack_finds_nothing(tmp_path):
    """A short `make attack` finds no faults: kills, damage, odd texts, and a damaged dump."""
    script = [sys.executable, str(BENCHMARKS / "attack.py"), "--folder", str(tmp_path)]
    options = "--gigabytes 0.01 --minutes 0.2 --kills 2 --steps 200 --full_disks 1 --targets index"
    done = subprocess.run(
        [*script, *options.split()], capture_output=True, text=True, cwd=BENCHMARKS.parent
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "0 faults"
    assert int(re.search(r"between two checkpoints (\d+)", done.stdout)[1]) > 0


WRITER = """
import sys, time
from pathlib import Path
from convert_tf.storage.files import write_file
path, how = Path(sys.argv[1]), sys.argv[2]
content = bytes(99) * 1000
try:
  if how == "no care":
    path.write_bytes(content)
  elif how == "a date":
    days = [int(time.time() / 86_400) for _ in range(300)][-1]
    write_file(path, str(days).encode() + content)
  else:
    write_file(path, content)
except OSError as error:
  sys.exit(f"convert-tf write: {error}" if how != "no words" else "oh")
"""


@pytest.fixture(scope="module")
def faults():
    return script_module(BENCHMARKS / "faults.py")


@pytest.fixture
def target(faults, tmp_path):
    """A function that returns a command which writes a file and has a fault."""

    def made(how):
        path = tmp_path / "out" / "file"
        path.parent.mkdir()
        command = [sys.executable, "-c", WRITER, str(path), how]
        subprocess.run(command, check=True)
        own = faults.Target(command, path, lambda: np.frombuffer(path.read_bytes()[:9], "u1"))
        return {"writer": own}

    return made


@pytest.mark.parametrize(
    ("how", "said"), [("care", ""), ("no care", "left file"), ("no words", "said 'oh")]
)
def test_faults_of_full_disks_are_found(faults, target, how, said):
    counts, found = faults.attack_with_a_full_disk(target(how), 2, random.Random(0), lambda _: [])
    assert counts == {"full disks": 2}
    assert is_found(said, found)


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
@pytest.mark.parametrize(("how", "said"), [("care", ""), ("a date", "has changed after the clock")])
def test_faults_of_clocks_are_found(faults, target, tmp_path, how, said):
    found = faults.attack_with_the_clock(target(how), tmp_path, random.Random(0))[1]
    assert is_found(said, found)


@pytest.mark.parametrize(("how", "said"), [("care", ""), ("no words", "neither of two writers")])
def test_faults_of_two_writers_are_found(faults, target, how, said):
    known = target(how)
    if said:
        known["writer"].command[3] += "/in/no/folder"
    assert is_found(said, faults.attack_with_two_writers(known, lambda _: [])[1])


@pytest.mark.parametrize("is_lost", [False, True])
def test_an_output_that_a_kill_removed_is_a_fault(is_lost, monkeypatch, tmp_path):
    script, values = script_with_flags(monkeypatch, BENCHMARKS / "attack.py")
    values(["attack.py", f"--folder={tmp_path}", "--kills=4"])
    path = tmp_path / "written" / "file"
    path.parent.mkdir()
    path.touch()
    target = script.Target(["write"], path, lambda: np.zeros(1))
    monkeypatch.setattr(script, "targets", lambda *folders: {"writer": target})
    monkeypatch.setattr(script, "_run", lambda command: path.touch())

    def killed_after(seconds, command):
        if is_lost:
            path.unlink()
        return -9, ""

    monkeypatch.setattr(script, "_killed_after", killed_after)
    counts, faults = script.attack_writers_with_kills(tmp_path)
    assert counts == {"kills of other commands": 1}
    assert faults == ["writer is missing after the command was killed"] * is_lost


def test_histories_are_drawn_by_their_seed(monkeypatch):
    script, _ = script_with_flags(monkeypatch, BENCHMARKS / "spark_histories.py")

    def drawn(seed, can_fill):
        return [script.history(number, seed, length=9.0, can_fill=can_fill) for number in range(60)]

    assert drawn(0, True) == drawn(0, True) != drawn(1, True)
    for can_fill in (True, False):
        events = [event for history in drawn(0, can_fill) for event in history]
        assert {event.what for event in events} == {*script.EVENTS} - (
            set() if can_fill else {"fill disk"}
        )
        assert all(0 <= event.seconds <= 9 for event in events)
