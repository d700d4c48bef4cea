"""Test commands with damaged dumps, killed processes, full disks and fuzzed input.

```
python benchmarks/attack.py --folder /tmp/attack --gigabytes 2 --minutes 60 --kills 20
```

The script prints what it tried. Its exit status is 1 if one of these rules was broken:

- `prepare` reads all undamaged lines of a large dump, counts each damaged line, and uses less
  memory than `--memory_gib`.
- A training run that is killed (SIGKILL) at random moments and resumed ends with exactly the same
  weights as a run that is never killed. It leaves no temporary file.
- If `export`, `intent train` or `index build` is killed while it runs with `--overwrite`, either
  the old or the new files are left. The same command then writes the new ones.
- A command whose disk fills up ends with an error of one line and leaves no file under the final
  name. A clock that jumps back changes nothing. If two processes write the same output, at least
  one of them writes it, and the other explains in one line why it did not (`benchmarks/faults.py`).
- Models and indexes that somebody has tampered with are refused with an error of one line, and no
  other files are opened.
- Modules and 8-bit `.onnx` files accept any text and any bytes. Vectors are finite and do not
  depend on the batch. The text can be restored from its tokens, and both tokenizers give the same
  tokens.
- A file with flipped, missing or added bytes, or with other content, is refused with an error of
  one line or read correctly. In half of the cases, its checksum is removed or updated. The content
  that is read may differ then.
"""

import functools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import zstandard
from absl import app, flags
from faults import (
    Target,
    attack_with_a_full_disk,
    attack_with_hostile_files,
    attack_with_the_clock,
    attack_with_two_writers,
)
from fuzzing import fuzz_file, fuzz_texts, fuzzed_texts

from convert_tf import CandidateIndex, IntentClassifier, SentenceEncoder
from convert_tf.corpora import dumps, pairs
from convert_tf.corpora.sample import SampleThreads, write_sample
from convert_tf.data.candidates import read_candidates
from convert_tf.intents.data import read_files
from convert_tf.search.cache import CandidateCache
from convert_tf.search.encoders import load_encoder
from convert_tf.text.plain_tokenizer import PlainTokenizer
from convert_tf.text.tokenizer import load_tokenizer
from convert_tf.text.vocabulary import read_vocabulary
from convert_tf.training.state import saved_checkpoints

_FOLDER = flags.DEFINE_string("folder", None, "Folder for all files.", required=True)
_GIGABYTES = flags.DEFINE_float("gigabytes", 2.0, "Size of the dump before compression, in GB.")
_MEMORY = flags.DEFINE_float("memory_gib", 3.0, "Maximum memory of `prepare`, in GiB.")
_MINUTES = flags.DEFINE_float("minutes", 60.0, "CPU minutes of fuzzing.")
_KILLS = flags.DEFINE_integer("kills", 20, "How often the training run is killed.")
_STEPS = flags.DEFINE_integer("steps", 600, "Steps of the training run.")
_ENCODER = flags.DEFINE_string(
    "encoder", "hub_modules/convert_small/3", "Module to fuzz with texts."
)
_FULL_DISKS = flags.DEFINE_integer("full_disks", 3, "How often each command meets a full disk.")
_TARGETS = flags.DEFINE_list("targets", [], "Names of outputs to attack; all by default.")
_SEED = flags.DEFINE_integer("seed", 0, "Random seed.")

_COPY = "copy-number"  # replaced in ids by the number of the copy
_FILES_PER_TEXTS = 8  # files to damage for every 256 texts
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes in a unit of `ru_maxrss`


def write_dump(path: Path, num_bytes: float) -> tuple[int, int]:
    """Write a dump of at least `num_bytes`; return the numbers of comments and damaged lines."""
    threads = SampleThreads(_SEED.value).generate(5_000)
    comments = [comment for _, replies in threads for comment in replies]
    for comment in comments:
        for name in ("id", "link_id", "parent_id"):
            comment[name] += _COPY
    text = "".join(json.dumps(comment, ensure_ascii=False) + "\n" for comment in comments)
    damaged = [b'{"id": "cut", "bo\n', b"\xff\xfe\x00\n", b"[" * 100_000 + b"\n", b"[1, 2]\n"]
    written = copies = 0
    with open(path, "wb") as file, zstandard.ZstdCompressor(1).stream_writer(file) as writer:
        while written < num_bytes:
            copies += 1
            good = text.replace(_COPY, f"x{copies}").encode()
            for piece in (good, *damaged):
                written += writer.write(piece)
    return copies * len(comments), copies * len(damaged)


def attack_with_a_dump(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Prepare a large dump with damaged lines; return counts and broken rules."""
    dump, data = folder / "RC_large.zst", folder / "large"
    shutil.rmtree(data, ignore_errors=True)
    comments, damaged = write_dump(dump, _GIGABYTES.value * 1e9)
    started = time.monotonic()
    with subprocess.Popen([*_command("prepare"), "--input", str(dump), "--output", str(data)]) as p:
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
    peak = usage.ru_maxrss * _RSS_UNIT / 2**30
    found = {
        "gigabytes": _GIGABYTES.value,
        "comments": comments,
        "seconds": round(time.monotonic() - started),
        "peak GiB": round(peak, 2),
        "damaged lines": damaged,
    }
    if p.returncode:
        return found, [f"prepare ended with status {p.returncode}"]
    report = json.loads((data / "report.json").read_text())
    read, bad = report["threads"]["comments"], report["bad_lines"]["count"]
    faults = []
    if (read, bad) != (comments, damaged):
        faults.append(f"counted {read} of {comments} comments and {bad} of {damaged} damaged lines")
    if peak > _MEMORY.value:
        faults.append(f"used {peak:.2f} GiB of memory, more than {_MEMORY.value}")
    return found, faults


def _command(*names: str) -> list[str]:
    return [sys.executable, "-m", "convert_tf", *names]


def _call(*arguments: object) -> None:
    _run([*_command(), *map(str, arguments)])


def _run(command: list[str]) -> None:
    """Run a command; if it fails, raise `RuntimeError` with its standard error."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command)} ended with status {done.returncode}: {done.stderr}"
        )


def _training(folder: Path, name: str) -> list[str]:
    return [
        *_command("train"), f"--data={folder / 'data'}", f"--vocab={folder / 'vocab.txt'}",
        "--model=tiny", f"--output={folder / 'runs' / name}", "--recipe=small",
        f"--steps={_STEPS.value}", "--batch_size=64", "--eval_every=50", "--checkpoint_every=10",
        "--eval_examples=200", "--precision=float32",
    ]  # fmt: skip


def attack_with_kills(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Kill a training run again and again; return counts and broken rules."""
    rng = random.Random(_SEED.value)
    shutil.rmtree(folder / "runs", ignore_errors=True)
    write_sample(str(folder / "sample"))
    _call("prepare", f"--input={folder / 'sample' / 'RC_sample.zst'}", "--dev_fraction=0.05",
          f"--output={folder / 'data'}", "--overwrite")  # fmt: skip
    _call("vocabulary", f"--input={folder / 'data'}", f"--output={folder / 'vocab.txt'}",
          "--min_count=5", "--overwrite")  # fmt: skip
    started = time.monotonic()
    _run(_training(folder, "whole"))
    seconds = time.monotonic() - started
    done = kills = begun = 0
    faults: list[str] = []
    killed = folder / "runs" / "killed"
    while kills < _KILLS.value and not faults:
        moment, last = rng.uniform(0.02, 1.0) * seconds, _last_step(killed)
        command = _training(folder, killed.name)
        if kills % 2:  # just after a checkpoint, a moment that random kills may never hit
            step = rng.randrange(last, max(last + 1, _STEPS.value * 3 // 4))
            is_there = functools.partial(_has_step, killed, step)
            code, said = _killed_after(moment / 20, command, is_there)
        else:
            code, said = _killed_after(moment, command)
        if code == -signal.SIGKILL:
            kills += 1
            begun += 0 < _last_step(killed) < _STEPS.value
        elif code:
            faults.append(f"train ended with status {code}: {said[-500:]!r}")
        else:  # the run has finished, so another one starts
            done += 1
            shutil.move(killed, folder / "runs" / f"killed_{done}")
    if not faults:
        _run(_training(folder, killed.name))
    ended = [path for path in (folder / "runs").iterdir() if path.name.startswith("killed")]
    expected = (folder / "runs" / "whole" / "model.weights.h5").read_bytes()
    faults += [
        f"the weights of {run.name} differ from those of the run that was not killed"
        for run in ended
        if not faults and (run / "model.weights.h5").read_bytes() != expected
    ]
    faults += [f"{path} was left behind" for run in ended for path in _left(run)]
    return {
        "kills of training": kills,
        "kills between two checkpoints": begun,
        "runs that were killed": len(ended),
    }, faults


def _has_step(run: Path, step: int) -> bool:
    """Return whether a run has a checkpoint later than `step`."""
    return _last_step(run) > step


def _last_step(run: Path) -> int:
    """Return the step of a run's newest checkpoint, or 0 if it has none."""
    newest = saved_checkpoints(run)[:1]
    return int(newest[0].name.removeprefix("step-")) if newest else 0


def _killed_after(
    seconds: float, command: list[str], has_begun: Callable[[], bool] = lambda: True
) -> tuple[int, str]:
    """Run a command and kill it if it is still running some seconds after it began its work.

    Args:
      seconds: time from the moment at which `has_begun` returns true.
      command: the command.
      has_begun: returns whether the command has begun its work.

    Returns:
      The exit status and the standard error.
    """
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        while True:
            timeout = seconds if (is_last := has_begun()) else 0.05
            try:
                _, said = process.communicate(timeout=timeout)
                return process.returncode, said
            except subprocess.TimeoutExpired:
                if is_last:
                    process.kill()
                    _, said = process.communicate()
                    return process.returncode, said


def _left(folder: Path) -> list[Path]:
    """Return temporary files and locks, which only a killed process leaves behind."""
    return [
        path
        for pattern in (".new*", ".*.new", ".*.lock")
        for path in folder.rglob(pattern)
        if path.exists()
    ]


def attack_writers_with_kills(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Kill commands that replace their output; return counts and broken rules."""
    rng, place = random.Random(_SEED.value), folder / "written"
    faults, kills = [], 0
    for name, (command, target, read) in _chosen(targets(folder, place)).items():
        expected, started = read(), time.monotonic()
        _run([*command, "--overwrite"])
        seconds = time.monotonic() - started
        for _ in range(max(1, _KILLS.value // 4)):
            moment = rng.uniform(0.3, 1.0) * seconds
            code, said = _killed_after(moment, [*command, "--overwrite"])
            kills += code == -signal.SIGKILL
            if code not in (0, -signal.SIGKILL):
                faults.append(f"{name} ended with status {code}: {said[-500:]!r}")
            if not target.exists():
                faults.append(f"{name} is missing after the command was killed")
            elif not np.array_equal(read(), expected):
                faults.append(f"{name} has changed after the command was killed")
        _run([*command, "--overwrite"])
        if not np.array_equal(read(), expected):
            faults.append(f"{name} has changed after the last run")
    faults += [f"{path} was left behind" for path in _left(place)]
    return {"kills of other commands": kills}, faults


def _chosen(known: dict[str, Target]) -> dict[str, Target]:
    names = _TARGETS.value or known.keys()
    return {name: own for name, own in known.items() if name in names}


def _write_missing(known: dict[str, Target]) -> dict[str, Target]:
    for command, path, _ in known.values():
        if not path.exists():
            _run(command)
    return known


def targets(folder: Path, place: Path) -> dict[str, Target]:
    """Write the models and indexes to attack, unless they exist, and return them by name.

    Each attack restores them, so they are written only once. The index is built with the `.onnx`
    file, because that opens in milliseconds.

    Args:
      folder: folder with the training run.
      place: folder to write to.
    """
    texts = ["hello there", "where is my parcel?", "refund me"]
    run, module, onnx = folder / "runs" / "whole", place / "module", place / "model.onnx"
    place.mkdir(parents=True, exist_ok=True)
    (place / "texts.txt").write_text("\n".join(texts) + "\n")
    rows = "".join(f"{text} {i},{text[:5]}\n" for i in range(4) for text in texts)
    (place / "intents.csv").write_text("text,label\n" + rows)

    def encode(path: Path) -> np.ndarray:
        return SentenceEncoder(path).encode(texts)

    def search() -> np.ndarray:
        index = CandidateIndex(CandidateCache(place / "cache"), load_encoder(onnx))
        found = index.search([("hello",)], top_k=3)
        return np.concatenate([found.ids, found.scores])

    def classify() -> np.ndarray:
        return IntentClassifier.load(place / "intent").predict_proba(texts)

    found = {
        "module": Target(
            _command("export", f"--encoder={run}", f"--output={module}"),
            module,
            functools.partial(encode, module),
        ),
        "onnx": Target(
            _command("export", f"--encoder={run}", f"--output={onnx}"),
            onnx,
            functools.partial(encode, onnx),
        ),
        "index": Target(
            _command("index", "build", f"--encoder={onnx}", f"--input={place / 'texts.txt'}",
                     f"--output={place / 'cache'}"),
            place / "cache",
            search,
        ),
        "intent": Target(
            _command("intent", "train", f"--encoder={module}", f"--data={place / 'intents.csv'}",
                     f"--output={place / 'intent'}", "--head=network", "--epochs=20"),
            place / "intent",
            classify,
        ),
    }  # fmt: skip
    return _write_missing(found)


def further_targets(folder: Path, place: Path) -> dict[str, Target]:
    """Write the outputs of further commands; like `targets`, which must have run before."""
    data, ids, vectors = place / "data", place / "ids", place / "vectors.npy"

    def bytes_of(path: Path) -> np.ndarray:
        files = sorted(each for each in path.iterdir() if each.suffix in (".tfrecord", ".npy"))
        return np.array([each.name.encode() + each.read_bytes() for each in files])

    found = {
        "prepare": Target(
            _command("prepare", f"--input={folder / 'sample' / 'RC_sample.zst'}",
                     f"--output={data}"),
            data,
            functools.partial(bytes_of, data),
        ),
        "tokenize": Target(
            _command("tokenize", f"--data={folder / 'data'}", f"--vocab={folder / 'vocab.txt'}",
                     f"--output={ids}"),
            ids,
            functools.partial(bytes_of, ids),
        ),
        "embed": Target(
            _command("embed", f"--encoder={place / 'model.onnx'}",
                     f"--input={place / 'texts.txt'}", f"--output={vectors}"),
            vectors,
            functools.partial(np.load, vectors),
        ),
    }  # fmt: skip
    return _write_missing(_chosen(found))


def attack_with_faults(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Try full disks, a clock that jumps back, two writers at once, and hostile files."""
    rng, place = random.Random(_SEED.value), folder / "written"
    models = targets(folder, place)
    every = _chosen({**models, **further_targets(folder, place)})
    found, faults = attack_with_hostile_files(_chosen(models), folder)
    # A full disk removes each output for a while, so outputs that others need come last.
    for more, own in (
        attack_with_the_clock(every, folder, rng),
        attack_with_two_writers(every, _left),
        attack_with_a_full_disk(dict(reversed(every.items())), _FULL_DISKS.value, rng, _left),
    ):
        found |= more
        faults += own
    return found, faults


def readers(folder: Path, place: Path) -> dict[str, tuple[Path, Callable[[], Any]]]:
    """Return what to damage and how to read it: a run, its exports, and files of examples."""
    known = {name: (path, read) for name, (_, path, read) in targets(folder, place).items()}
    run = folder / "runs" / "whole"
    (place / "nlu.yml").write_text(
        'version: "3.1"\nnlu:\n- intent: a\n  examples: |\n    - one [two]{"entity": "b"}\n'
    )
    (place / "candidates.jsonl").write_text(
        '{"context": ["a"], "candidates": ["b", "c"], "label": 0}\n' * 3
    )
    (place / "pairs.csv").write_text("context,response\n" + 'hello,"hi, you"\n' * 3)
    pairs = functools.partial(read_file_of_pairs, str(place / "pairs.csv"))
    return {
        "run": (run, lambda: SentenceEncoder(run).encode(["hello there", "refund me"])),
        **known,
        "intents.csv": (place / "intents.csv", lambda: labelled(place / "intents.csv")),
        "nlu.yml": (place / "nlu.yml", lambda: labelled(place / "nlu.yml")),
        "candidates": (
            place / "candidates.jsonl",
            lambda: np.array([repr(each) for each in read_candidates(place / "candidates.jsonl")]),
        ),
        "pairs": (place / "pairs.csv", pairs),
    }


def labelled(path: Path) -> np.ndarray:
    """Return the texts and labels of a file."""
    data = read_files([str(path)])
    return np.array([*data.texts, *data.labels])


def read_file_of_pairs(path: str) -> np.ndarray:
    """Return the pairs of a file, each as its `repr`."""
    return np.array([repr(each) for each in pairs.read(dumps.CountedFile(path))])


def attack_with_fuzz(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Encode random texts and read damaged files; return counts and broken rules."""
    rng, place = random.Random(_SEED.value), folder / "written"
    known = {name: (*own, own[1]()) for name, own in readers(folder, place).items()}
    encoders = {
        "module": SentenceEncoder(_ENCODER.value, compute_dtype="float32"),
        "onnx": SentenceEncoder(place / "model.onnx"),
    }
    vocabulary = Path(_ENCODER.value) / "assets" / "vocab.txt"
    tokenizer = load_tokenizer(vocabulary)
    plain = PlainTokenizer(read_vocabulary(vocabulary))
    counts, faults, texts = Counter[str](), [], fuzzed_texts(rng)
    end = time.process_time() + 60 * _MINUTES.value
    while time.process_time() < end:
        some = [next(texts) for _ in range(256)]
        try:
            faults += fuzz_texts(encoders, tokenizer, plain, some, rng)
        except Exception as error:  # any exception is a fault
            faults.append(f"{type(error).__name__} ({str(error)[:200]}) at {some[0][:80]!r} …")
        counts["texts"] += 2 * len(some)
        for _ in range(_FILES_PER_TEXTS):
            name = rng.choice([*known])
            outcome = fuzz_file(*known[name], rng)
            counts[f"{name}: {outcome}" if outcome[:5] != "FAULT" else "files at fault"] += 1
            faults += [f"{name}: {outcome}"] if outcome[:5] == "FAULT" else []
    return {"minutes": _MINUTES.value, **counts}, faults


def main(argv: list[str]) -> None:
    folder = Path(_FOLDER.value)
    shutil.rmtree(folder / "written", ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    faults = []
    # The dump comes first, because Linux counts the parent's memory towards a child's peak.
    attacks = (
        attack_with_a_dump, attack_with_kills, attack_writers_with_kills, attack_with_faults,
        attack_with_fuzz,
    )  # fmt: skip
    for attack in attacks:
        found, own = attack(folder)
        print(", ".join(f"{name} {value:,}" for name, value in found.items()), flush=True)
        for fault in own[:20]:
            print(f"  {fault}", flush=True)
        faults += own
    print(f"{len(faults)} faults")
    if faults:
        sys.exit(1)


if __name__ == "__main__":
    app.run(main)
