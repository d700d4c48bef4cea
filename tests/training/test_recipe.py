"""The recipe of the released modules, run from beginning to end on a sample."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zstandard
from support.commands import ROOT, call_command, own_environment
from support.texts import random_texts
from support.token_corpus import write_corpus

from convert_tf import SentenceEncoder
from convert_tf.data.utterances import read_utterances

RECIPES = ROOT / "hub_modules" / "recipes"
SINGLE_TEXTS = RECIPES / "single_texts.py"
MODULES = ("convert_small", "convert", "convert_multi_context")
# A teacher needs torch, which is not always there: this one counts letters.
PROGRAM = """#!{python}
import sys

import numpy as np

from convert_tf.cli.main import main


class Teacher:
    def __init__(self, name):
        assert name in ("one", "other"), name

    def __call__(self, texts):
        counts = np.array([[0.1 + text.count(chr(97 + i)) for i in range(12)] for text in texts])
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)


import convert_tf.training.teacher

convert_tf.training.teacher.Teacher = Teacher
sys.exit(main())
"""


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """Dumps, dialogues and single texts, and programs in front of the others."""
    root = tmp_path_factory.mktemp("recipe")
    call_command("sample", "--output", root / "dumps", "--num_threads", 200)
    texts = iter(random_texts(25_000, seed=0))
    dialogues = [
        {
            "turns": [f"{next(texts)} {i}" for _ in range(10)],
            "id": str(i),
            "source": "self_dialogue",
        }
        for i in range(2500)
    ]
    single = [
        {"text": text, "source": ("bot", "reddit_top_titles")[i % 2], "label": f"l{i % 7}"}
        for i, text in enumerate(random_texts(100, seed=1))
    ]
    (root / "utterances").mkdir()
    for name, rows in (("dialogues", dialogues), ("utterances/rasa_bots_nlu", single)):
        (root / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    (root / "bin").mkdir()
    (root / "bin" / "convert-tf").write_text(PROGRAM.format(python=sys.executable))
    (root / "bin" / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    for path in (root / "bin").iterdir():
        path.chmod(0o755)
    return root


# Of the presets' blocks and heads, but narrow: their own sizes take minutes more. Hidden layers of
# the side networks are as wide as r, as in the presets; others have no skip at the first.
NARROW = (
    *("--embedding_dim=32", "--attention_dim=16", "--feed_forward_dim=128", "--reduction_dim=8"),
    *("--side_hidden_dim=64", "--encoding_dim=24"),
)


def make(sample):
    """Calls the script with two steps of eight pairs for each training, of narrow networks."""
    environment = {
        **own_environment(),
        "PATH": f"{sample / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "TEACHER": "one",
        "TEXT_TEACHERS": "one,other",
        "TEXT_TEACHER_WEIGHTS": "1,2",
        "JOINED_SOURCES": "self_dialogue",
        "LAST_BACKEND": "jax",
    }
    done = subprocess.run(
        [
            "hub_modules/recipes/train.sh",
            f"{sample}/dumps/RC_*.zst",
            f"{sample}/dumps/RS_*.zst",
            f"{sample}/dialogues.jsonl",
            f"{sample}/utterances/*.jsonl",
            f"{sample}/work",
            *("--steps=2", "--warmup_steps=1", "--batch_size=8", "--eval_every=2"),
            *("--eval_examples=100", "--checkpoint_every=1", "--shuffle_buffer=100"),
            *("--train_examples=1000", "--first_train_example=0"),
            "--source_shares=self_dialogue=0.5",
            *NARROW,
        ],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def test_single_texts_are_drawn_and_some_intents_left_away(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("single_texts", SINGLE_TEXTS)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setitem(script.DRAWS, "first", script.Draw(7, {"reddit_top_titles": 7}, 30))
    monkeypatch.setitem(script.DRAWS, "second", script.Draw(8, {"reddit_top_titles": 7}, 30))
    corpus = write_corpus(tmp_path, num_train=60)
    (tmp_path / "texts").mkdir()
    for name in ("rasa_bots_nlu", "reddit_top_titles", "mit"):
        rows = [{"text": f"text {i} of {name}", "label": f"l{i}"} for i in range(50)]
        lines = "\n".join(map(json.dumps, rows))
        (tmp_path / "texts" / f"{name}.jsonl").write_text(lines + "\n\n")
    texts = str(tmp_path / "texts" / "*.jsonl")

    def written(draw):
        script.main(texts, corpus.records, str(tmp_path / draw), draw)
        return {
            path.name.split(".")[0]: [*read_utterances([str(path)])]
            for path in (tmp_path / draw).iterdir()
        }

    found = written("first")
    assert len(found["mit"]) == 50
    assert len(found["reddit_top_titles"]) == 7
    assert 20 < len(found["pair_texts"]) <= 30  # of which some may be equal
    kept = {own.label for own in found["rasa_bots_nlu"]}
    assert 35 <= len(kept) < 50
    other = written("second")
    assert other["mit"] == found["mit"]
    assert other["reddit_top_titles"] != found["reddit_top_titles"]
    left_away = ({f"l{i}" for i in range(50)} - kept).pop()
    prepared = [f"text {left_away[1:]} of rasa_bots_nlu", "a text beside the records"]
    lines = "".join(json.dumps({"text": text, "source": "reddit"}) + "\n" for text in prepared)
    path = Path(corpus.records, "single_texts.jsonl.zst")
    path.write_bytes(zstandard.ZstdCompressor().compress(lines.encode()))
    everything = written("all")
    assert {len(everything[name]) for name in ("mit", "reddit_top_titles")} == {50}
    assert everything["rasa_bots_nlu"] == found["rasa_bots_nlu"]
    assert [own.text for own in everything["single_texts"]] == prepared[1:]
    with pytest.raises(ValueError, match="Received: no file for 'nothing'"):
        script.main("nothing", corpus.records, str(tmp_path / "other"), "first")
    assert not (tmp_path / "other").exists()


def test_runs_are_judged_by_intents_that_were_left_away(tiny_modules, tmp_path):
    rows = [
        {"text": f"{text} {i % 5}", "source": "bot", "label": f"l{i // 5}"}
        for i, text in enumerate(random_texts(400, seed=3))
    ]
    for name in ("rasa_bots_nlu", "small_intent_sets"):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    csv = "\n".join(f"{row['text']},{row['label']}" for row in rows[:50])
    (tmp_path / "bank.csv").write_text(f"text,label\n{csv}\n")
    done = subprocess.run(
        [
            sys.executable,
            "hub_modules/recipes/judge_intents.py",
            f"--train={tmp_path}/bank.csv",
            f"--utterances={tmp_path}/*.jsonl",
            "--shots=2",
            str(tiny_modules["single"][1]),
        ],
        cwd=ROOT,
        env={**own_environment(), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = re.findall(r", (.+), sentence: ([\d.]+) %", done.stdout)
    assert [name for name, _ in found] == ["bank.csv", "left away"]
    assert all(0 < float(accuracy) <= 100 for _, accuracy in found)


# In place of the programs: notes how it was called, and makes the folder of --output.
NOTING = """#!/bin/sh
echo "$@" >> "$CALLS"
for given; do
    if [ "$last" = --output ]; then mkdir -p "$given"; fi
    last=$given
done
"""


def recipe_flags(run, *names):
    """The values of flags of a run."""
    lines = (RECIPES / f"{run}.flags").read_text().splitlines()
    values = dict(line.removeprefix("--").partition("=")[::2] for line in lines)
    return tuple(values[name] for name in names)


@pytest.mark.parametrize(
    ("call", "taught"),
    [
        ([], recipe_flags("convert_small_part4", "train_examples", "source_shares")),
        (["--source_shares=a=0.1,b=0", "--train_examples=5", "--source_shares=c=1"],
         ("5", "c=1")),
        (["--train_examples=0", "--source_shares="], (None, "")),
    ],
    ids=["recipe", "call", "all"],
)  # fmt: skip
def test_a_ranking_is_taught_of_the_pairs_that_are_drawn(call, taught, tmp_path):
    for name in ("convert-tf", "python"):
        (tmp_path / name).write_text(NOTING)
        (tmp_path / name).chmod(0o755)
    subprocess.run(
        [RECIPES / "train.sh", *"abcd", tmp_path / "work", "--steps=2", *call],
        cwd=ROOT, check=True,
        env={
            **own_environment(),
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "CALLS": str(tmp_path / "calls"),
        },
    )  # fmt: skip
    calls = (tmp_path / "calls").read_text().splitlines()
    trained = [each for each in calls if each.startswith("train.py")]
    assert len(trained) == 14
    for each in trained:
        assert each.endswith(" ".join(["--steps=2", *call]))

    def drawn(command):
        flags = ("max_examples", "source_shares")
        found = [re.search(rf"--{flag}=(\S*)", command) for flag in flags]
        return tuple(each and each[1] for each in found)

    def learning(*folders):
        ends = [f" {tmp_path}/work/{folder} " for folder in folders]
        found = [each for each in trained if all(end in f"{each} " for end in ends)]
        return [re.search(r"--output \S*/runs/(\S+)", each)[1] for each in found]

    ranking, joined = (each for each in calls if each.startswith("teach") and "--sides" in each)
    assert drawn(ranking) == taught
    assert learning("ranking") == ["convert_small_part4"]
    of_joined = (None, *recipe_flags("convert", "source_shares"))
    assert recipe_flags("convert_small", "source_shares") == of_joined[1:]
    assert drawn(joined) == (taught if call else of_joined)
    assert "--joined_sources=reddit," in joined
    (vectors,) = (each for each in calls if each.endswith("/work/teacher_joined"))
    assert drawn(vectors) == drawn(joined)
    assert learning("teacher_joined", "ranking_joined") == ["convert", "convert_small"]

    made = [each for each in calls if "with_history.py" in each]
    runs = [re.findall(r"/runs/(\S+)", each) for each in made]
    history = "convert_multi_context"
    assert runs == [
        ["convert_part5_mean", f"{history}_part1", f"{history}_part2_start"],
        ["convert_mean", f"{history}_part2", f"{history}_part3_start"],
    ]
    for (*_, start), before, run in zip(runs, made, (f"{history}_part2", history), strict=True):
        started = re.compile(rf"--init_from \S*/runs/{start}( |$)")
        (training,) = (each for each in trained if started.search(each))
        assert f"/runs/{run} " in training
        assert calls.index(before) < calls.index(training)


@pytest.mark.parametrize("wrong", ["1000", "-steps=2", "--first_train_example=5"])
def test_flags_that_would_not_reach_the_whole_script_are_refused(wrong, tmp_path):
    done = subprocess.run(
        [RECIPES / "train.sh", *"abcd", tmp_path / "work", "--steps=2", wrong],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert f"Received: {wrong}." in done.stderr
    assert not (tmp_path / "work").exists()


@pytest.mark.slow
def test_one_script_makes_everything_from_dumps_to_modules(sample):
    make(sample)
    work = sample / "work"
    facts = json.loads((work / "text_teacher_second" / "teacher.json").read_text())
    assert (facts["teacher"], facts["dim"]) == ("1 one + 2 other", 24)
    for folder in ("ranking", "teacher_joined", "ranking_joined"):
        found = json.loads((work / folder / "teacher.json").read_text())
        of_pairs = found["splits"]["train"]
        assert (of_pairs["of_first"], of_pairs["source_shares"]) == (1000, {"self_dialogue": 0.5})
    assert found["joined_sources"] == ["self_dialogue"]
    texts = ["where is my card?", "a fish", "a fish"]
    for name in MODULES:
        encoder = SentenceEncoder(work / "hub_modules" / name / "1")
        vectors = encoder.encode_similarity(texts)
        assert vectors.shape == (3, 24)
        assert vectors[1] @ vectors[2] == pytest.approx(1, abs=1e-3)
        assert np.isfinite(encoder.encode_contexts(texts)).all()
        card = (work / "hub_modules" / name / "1" / "MODEL_CARD.md").read_text()
        assert "| steps | 2 |" in card
        assert "`1 one + 2 other`" in card
    found = [
        SentenceEncoder(work / "hub_modules" / name / "1").encode(texts)
        for name in ("convert", "convert_multi_context")
    ]
    np.testing.assert_allclose(*found, atol=1e-3)
    stamps = {path: path.stat().st_mtime_ns for path in work.glob("hub_modules/*/1/*")}
    make(sample)  # which finds everything there
    assert stamps == {path: path.stat().st_mtime_ns for path in work.glob("hub_modules/*/1/*")}
