"""The recipe of the released modules, from dumps via a GPU machine to modules."""

import collections
import json
import os
import re
import runpy
import shutil
import subprocess
import sys

import numpy as np
import pytest
import zstandard
from support.commands import ROOT, call_command, own_environment
from support.processes import ON_JAX
from support.record_files import read_texts
from support.texts import random_texts
from support.tiny_checkpoint import write_checkpoint

from convert_tf import Ranker, SentenceEncoder
from convert_tf.checkpoints.folder import load_similarity_map
from convert_tf.config.ranker import HeadConfig
from convert_tf.data.records import write_shards
from convert_tf.data.schema import Example
from convert_tf.data.token_arrays import UTTERANCES, ArrayFolder
from convert_tf.data.utterances import UtteranceFiles
from convert_tf.numerics.vectors import SENTENCE_SCALE, unit_rows
from convert_tf.training.state import saved_checkpoints
from convert_tf.training.teaching.vectors import StoredTexts

RECIPES = ROOT / "hub_modules" / "recipes"
MODULES = ("convert_small", "convert", "convert_multi_context")
RANKERS = ("gpu_rerank_poly", "gpu_rerank_cross")
TINY_RANKERS = (
    *("--steps=2", "--warmup_steps=1", "--batch_size=8", "--eval_every=2", "--eval_examples=100"),
    *("--checkpoint_every=2", "--max_examples=50", "--precision=float32"),
)
# Fewer and narrower blocks than the presets, which saves minutes. The side networks' hidden layers
# are as wide as r, as in the presets; otherwise the first one has no skip connection.
TINY_RUN = (
    *("--steps=2", "--warmup_steps=1", "--batch_size=8", "--eval_every=2", "--eval_examples=100"),
    *("--source_shares=", "--checkpoint_every=1", "--shuffle_buffer=100", "--precision=float32"),
)
TINY = (
    *("--embedding_dim=32", "--attention_dim=16", "--feed_forward_dim=128", "--reduction_dim=8"),
    *("--side_hidden_dim=64", "--encoding_dim=24", "--max_relative_attention=3,48", *TINY_RUN),
)


def call(*arguments, folder, blocks_tensorflow=False, cwd=ROOT, **variables):
    """Run one of the scripts, with this Python as `python3`."""
    programs, blocked = folder / "bin", folder / "blocked"
    if not programs.exists():
        programs.mkdir()
        blocked.mkdir()
        (programs / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        (programs / "python3").chmod(0o755)
        for name in ("tensorflow", "tensorflow_text", "tensorflow_model_optimization"):
            (blocked / f"{name}.py").write_text(
                f"raise ModuleNotFoundError('no {name}', name='{name}')"
            )
    path = [*([str(blocked)] if blocks_tensorflow else []), str(ROOT)]
    environment = {
        **own_environment(),
        "XLA_FLAGS": ON_JAX["XLA_FLAGS"],
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": ":".join(path),
        **variables,
    }
    done = subprocess.run(
        [RECIPES / arguments[0], *map(str, arguments[1:])],
        cwd=cwd, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """Folder of dumps, dialogues, single texts and two teachers made by this project."""
    root = tmp_path_factory.mktemp("recipe")
    call_command("sample", "--output", root / "dumps", "--num_threads", 200)
    texts = iter(random_texts(25_000, seed=0))
    dialogues = [
        {"turns": [f"{next(texts)} {i}" for _ in range(10)], "id": str(i), "source": "chat"}
        for i in range(2500)
    ]
    single = [
        {"text": text, "source": "bot", "label": f"l{i % 7}"}
        for i, text in enumerate(random_texts(100, seed=1))
    ]
    for name, rows in (("dialogues", dialogues), ("utterances", single)):
        (root / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    (root / "teachers").mkdir()
    for seed, name in enumerate(("one", "other")):
        write_checkpoint(root / "teachers" / name, seed=seed, similarity_dim=12)
    return root


@pytest.mark.slow
def test_a_machine_without_tensorflow_trains_what_becomes_modules(sample):
    here, there = sample / "here", sample / "there"
    call(
        "train.sh", "ids", here, f"{sample}/dumps/RC_*.zst", f"{sample}/dumps/RS_*.zst",
        f"{sample}/dialogues.jsonl", f"{sample}/utterances.jsonl", folder=sample,
    )  # fmt: skip
    (here / "wheels_3.12").mkdir()  # a test downloads no wheels
    teachers = [sample / "teachers" / name for name in ("one", "other")]
    call("gpu.sh", "pack", here, sample / "parts", *teachers, folder=sample, PART_BYTES="200k")
    parts = sorted((sample / "parts").iterdir())
    assert len(parts) > 2
    assert max(part.stat().st_size for part in parts) <= 200 * 1024
    run = ("gpu.sh", "run", sample / "parts", there, sample / "back", *TINY)
    printed = call(*run, folder=sample, blocks_tensorflow=True)
    assert "precision float32 (backend jax)" in printed
    assert not [*there.glob("ids/test-*")]
    facts = json.loads((there / "text_vectors" / "teacher.json").read_text())
    assert (facts["teacher"], facts["dim"]) == ("1 one + 2 other", 24)
    call("gpu.sh", "unpack", sample / "back", here, folder=sample)
    assert sorted(path.name for path in (here / "runs").iterdir()) == sorted(MODULES)
    call("train.sh", "modules", here, folder=sample)
    queries = ["where is my card?", "a fish", "a fish"]
    encoders = {name: SentenceEncoder(here / "hub_modules" / name / "1") for name in MODULES}
    for name, encoder in encoders.items():
        vectors = encoder.encode_similarity(queries)
        assert vectors.shape == (3, 24)
        assert vectors[1] @ vectors[2] == pytest.approx(1, abs=1e-3)
        there_encoded = SentenceEncoder(there / "runs" / name).encode_contexts(queries)
        cosines = np.sum(encoder.encode_contexts(queries) * there_encoded, axis=1)
        assert cosines.min() > 0.99
        card = (here / "hub_modules" / name / "1" / "MODEL_CARD.md").read_text()
        assert "| steps | 2 |" in card
        assert ("`1 one + 2 other`" in card) == (name != "convert_multi_context")
    found = [encoders[name].encode(queries) for name in MODULES[1:]]
    np.testing.assert_allclose(*found, atol=2e-3)  # they have the same trunk

    # A module is trained further on a CPU, with half of the texts of a file.
    call(
        "further.sh", here, f"{sample}/utterances.jsonl",
        here / "hub_modules" / "convert_small" / "1", *TINY_RUN,
        folder=sample, SHARES="utterances=0.5", TEACHERS=",".join(map(str, teachers)),
    )  # fmt: skip
    some = json.loads((here / "some_text_vectors" / "teacher.json").read_text())
    assert some["splits"]["train"]["examples"] < facts["splits"]["train"]["examples"] - 30
    mean = SentenceEncoder(here / "runs" / "mean")
    assert mean.encode_similarity(queries).shape == (3, 24)
    further = SentenceEncoder(here / "runs" / "further" / "checkpoints" / "step-00000002")
    own = [each.encode_contexts(queries) for each in (encoders["convert_small"], mean, further)]
    to_mean, to_further = (np.sum(own[0] * other, axis=1) for other in own[1:])
    assert (to_further < to_mean).all() and to_mean.max() <= 1 + 1e-6

    # Another machine receives the runs and trains rankers from them.
    call("gpu.sh", "pack", here, sample / "more_parts", *teachers, folder=sample)
    run_rankers = ("gpu.sh", "run", sample / "more_parts", sample / "elsewhere", sample / "ranked")
    call(*run_rankers, *TINY_RANKERS, folder=sample, blocks_tensorflow=True, STEP="rankers")
    call("gpu.sh", "unpack", sample / "ranked", here, folder=sample)
    call("train.sh", "modules", here, folder=sample)
    for name in RANKERS:
        ranker = Ranker(sample / "elsewhere" / "runs" / name)
        expected = ranker.scores(queries[:2], queries[:2])
        exported = Ranker(here / "hub_modules" / name / "1").scores(queries[:2], queries[:2])
        np.testing.assert_allclose(exported, expected, atol=0.1 * np.abs(expected).max())

    # Interrupted work is resumed.
    shutil.rmtree(saved_checkpoints(there / "runs" / "convert")[0])
    shutil.rmtree(there / "runs" / "convert_multi_context")
    stopped = {"SECONDS_LIMIT": "0.1"}
    call(*run, folder=sample, blocks_tensorflow=True, **stopped)
    shutil.rmtree(here / "runs")
    call("gpu.sh", "unpack", sample / "back", here, folder=sample)
    assert sorted(path.name for path in (here / "runs").iterdir()) == [
        "convert.unfinished", "convert_small",
    ]  # fmt: skip


# Replaces Python: logs its arguments, and creates the files and folders that the command writes.
# If an argument contains $FAILS, it does nothing else and fails.
NOTING = f"""#!/bin/sh
case $1 in -c) exec "{sys.executable}" "$@" ;; esac
echo "$@" >> "$CALLS"
case "$*" in *"${{FAILS:-no such argument}}"*) exit 1 ;; esac
case $1 in
*/triplets.py | */few_texts.py) touch "$4" ;;
*/rounded.py) mkdir "$3" ;;
esac
for given; do
    case $last in --output | --dest | --target) mkdir -p "$given" ;; esac
    last=$given
done
"""


@pytest.fixture
def noted(tmp_path):
    """Run a script with a `python3` that only logs its arguments; return the status and the log."""
    (tmp_path / "python3").write_text(NOTING)
    (tmp_path / "python3").chmod(0o755)
    log = tmp_path / "calls"

    def call_noting(script, *arguments, cwd=ROOT, **variables):
        log.write_text("")
        environment = {
            **own_environment(),
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "CALLS": str(log),
            **variables,
        }
        done = subprocess.run(
            [RECIPES / script, *map(str, arguments)], cwd=cwd, env=environment, capture_output=True
        )
        return done.returncode, log.read_text().splitlines()

    return call_noting


def test_each_model_is_one_run_and_an_unfinished_one_goes_on(noted, tmp_path):
    work = tmp_path / "work"
    (work / "runs" / "convert.unfinished").mkdir(parents=True)
    finished = work / "runs" / "convert_small"
    finished.mkdir()
    (finished / "model.weights.8bit.npz").touch()
    status, calls = noted("train.sh", "runs", work, "--steps=2")
    assert status == 0
    trained = [each for each in calls if each.startswith("train.py")]
    runs = [re.search(r"--output \S*/runs/(\S+)", each)[1] for each in trained]
    assert runs == ["convert", "convert_multi_context"]
    going_on = f"--steps=2 --init_from {work}/runs/convert.unfinished --nostart_from_teacher"
    assert trained[0].endswith(going_on)
    assert trained[1].endswith(f"--init_from {work}/runs/convert --steps=2")


def test_recipes_that_share_a_folder_do_not_read_the_files_of_another(noted, tmp_path):
    texts = "utterances/*.jsonl.zst"
    recipes = [
        ("opposites.sh", "{}", "contrasts", texts, "convert_small/1"),
        ("opposites_encoder.sh", "{}", "contrasts", texts, "convert_small/2"),
        ("train.sh", "ids", "{}", "RC_*.zst", "RS_*.zst", "dialogues/*.jsonl.zst", texts),
        ("train.sh", "runs", "{}"),
    ]

    def calls_in(folder, recipe):
        status, calls = noted(*(part.format(folder) for part in recipe))
        assert status == 0
        return [each.replace(str(folder), "WORK") for each in calls]

    alone = [calls_in(tmp_path / f"alone{i}", recipe) for i, recipe in enumerate(recipes)]
    assert [calls_in(tmp_path / "shared", recipe) for recipe in recipes] == alone
    trained = next(each for each in alone[1] if each.startswith("-m convert_tf train "))
    assert "--triplets WORK/triplet_ids_12000 " in trained
    assert "--utterances WORK/few_text_ids_12000 " in trained


@pytest.fixture
def packed(noted, tmp_path):
    """Folder with a space in its name, in which `gpu.sh pack` wrote `parts` with two teachers."""
    folder = tmp_path / "a folder"
    for name in ("ids", "text_ids", "teachers/an_older_one", "teachers/other.partial"):
        (folder / "here" / name).mkdir(parents=True)
    status, _ = noted("gpu.sh", "pack", "here", "parts", "models/small/", "base", cwd=folder)
    assert status == 0
    return folder


def test_teachers_keep_their_order_and_paths_are_those_of_the_caller(noted, packed):
    status, calls = noted("gpu.sh", "run", "parts", "there", "back", "--steps=2", cwd=packed)
    assert status == 0
    work = packed / "there"
    (taught,) = [each for each in calls if each.startswith("-m convert_tf teach")]
    assert f"--teacher {work}/teachers/small,{work}/teachers/base --teacher_weights=1,2 " in taught
    trained = [each for each in calls if each.startswith("train.py")]
    assert len(trained) == 3
    assert all(f"--data {work}/ids --output {work}/runs/" in each for each in trained)
    assert [path.name for path in (packed / "back").iterdir()] == ["part-aa"]


def test_wheels_are_complete_or_made_again(noted, packed):
    pack = ("gpu.sh", "pack", "here", "parts", "models/small/", "base")
    status, calls = noted(*pack, cwd=packed)
    assert (status, calls) == (0, [])
    other = {"RENTED_PYTHON": "3.11"}
    status, _ = noted(*pack, cwd=packed, FAILS="pip download", **other)
    assert status == 1
    (packed / "here" / "wheels.partial").mkdir()  # pip left it
    status, (call,) = noted(*pack, cwd=packed, **other)
    assert status == 0
    assert "--python-version 3.11 --dest here/wheels.partial" in call
    (packed / "here" / "wheels_3.11" / "keras.whl").touch()
    assert noted(*pack, cwd=packed, **other) == (0, [])

    run = ("gpu.sh", "run", "parts", "there", "back")
    status, (call,) = noted(*run, cwd=packed, FAILS="pip install")
    assert status == 1
    assert call.endswith("there/wheels_3.11/keras.whl")
    status, calls = noted(*run, cwd=packed)
    assert (status, calls[0]) == (0, call)
    assert (packed / "there" / "site").is_dir()
    status, calls = noted(*run, cwd=packed)
    assert (status, call in calls) == (0, False)


def test_one_bad_run_does_not_keep_the_others_back(noted, packed):
    runs = packed / "there" / "runs"
    for name in ("bad", "finished", "started"):
        (runs / name / "checkpoints").mkdir(parents=True)
    for name in ("bad", "finished"):
        (runs / name / "config.json").touch()
    (runs / "unfinished" / "checkpoints" / "step-2").mkdir(parents=True)
    run = ("gpu.sh", "run", "parts", "there", "back")
    for fails, expected in (("", 0), ("runs/bad", 1)):
        status, calls = noted(*run, cwd=packed, FAILS=fails)
        assert status == expected
        tried = [re.search(r"/back/runs/(\w+)$", each) for each in calls if "rounded.py" in each]
        assert [match[1] for match in tried] == ["bad", "finished", "unfinished"]
    status, _ = noted("gpu.sh", "unpack", "back", "again", cwd=packed)
    assert status == 0
    unpacked = sorted(path.name for path in (packed / "again" / "runs").iterdir())
    assert unpacked == ["finished", "unfinished"]


@pytest.mark.parametrize(
    ("script", "step", "message"),
    [
        ("train.sh", "all", "Received: all."),
        ("gpu.sh", "all", "Received: all."),
        ("gpu.sh", "pack", "has no ids. Run train.sh ids first."),
    ],
)
def test_a_step_that_cannot_be_done_is_refused(script, step, message, tmp_path):
    done = subprocess.run(
        [RECIPES / script, step, tmp_path, tmp_path], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert message in done.stderr


def test_intents_that_judge_runs_are_left_out_of_the_single_texts(tmp_path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "data").mkdir()
    for name in ("rasa_bots_nlu", "mit"):
        rows = [{"text": f"text {i} of {name}", "label": f"l{i}"} for i in range(50)]
        # Texts of another source that differ only in case and spaces are excluded too.
        rows += [{"text": f" Text {i} of rasa_bots_nlu"} for i in range(50 * (name == "mit"))]
        rows.append({"text": "a mail", "source": "enron_emails", "label": "l0"})
        lines = "\n".join(map(json.dumps, rows))
        (tmp_path / "texts" / f"{name}.jsonl").write_text(lines + "\n\n")
    prepared = zstandard.ZstdCompressor().compress(b'{"text": "a post", "source": "reddit"}\n')
    (tmp_path / "data" / "single_texts.jsonl.zst").write_bytes(prepared)

    def call_script(pattern, *shares):
        return subprocess.run(
            [sys.executable, RECIPES / "single_texts.py", pattern, tmp_path / "data",
             tmp_path / "written", *shares],
            cwd=ROOT, env=own_environment(), capture_output=True, text=True,
        )  # fmt: skip

    done = call_script(f"{tmp_path}/nothing/*")
    assert "No file matches" in done.stderr
    done = call_script(f"{tmp_path}/texts/*.jsonl", "mit=0.5,mti=0.5")
    assert "No file is called mti" in done.stderr
    assert not (tmp_path / "written").exists()
    done = call_script(f"{tmp_path}/texts/*.jsonl")
    assert done.returncode == 0, done.stderr
    found = {
        path.name.split(".")[0]: [each.text for each in UtteranceFiles([str(path)])]
        for path in (tmp_path / "written").iterdir()
    }
    assert found["single_texts"] == ["a post"]
    kept = {*found["rasa_bots_nlu"]}
    assert 35 <= len(kept) < 50
    assert found["mit"][:50] == [f"text {i} of mit" for i in range(50)]
    assert {text.lower() for text in found["mit"][50:]} == kept


@pytest.mark.parametrize(("script", "options"), [("single_texts.py", ()), ("few_texts.py", ("9",))])
def test_files_of_single_texts_with_the_same_name_are_refused(script, options, tmp_path):
    for name in ("chat.part1", "chat.part2", "mit"):
        (tmp_path / f"{name}.jsonl").write_text('{"text": "a text"}\n')
    done = subprocess.run(
        [
            sys.executable, RECIPES / script, f"{tmp_path}/*.jsonl", tmp_path, tmp_path / "written",
            *options,
        ],
        cwd=ROOT, env=own_environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert f": {tmp_path}/chat.part1.jsonl, {tmp_path}/chat.part2.jsonl. Rename" in done.stderr
    assert not (tmp_path / "written").exists()


@pytest.mark.parametrize(
    ("options", "raised"),
    [
        ({"poly_codes": 32, "max_context_tokens": 48, "max_candidate_tokens": 32}, (64, 64, 40)),
        ({"poly_codes": 128}, (128, 120, 60)),
    ],
)
def test_more_codes_never_lowers_a_number(options, raised, tmp_path):
    head = HeadConfig(head="poly", poly_variant="last_m", **options)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(json.dumps({"head": head.to_dict()}))
    more_codes = runpy.run_path(str(RECIPES / "more_codes.py"))["main"]
    more_codes(str(tmp_path / "run"), str(tmp_path / "more"))
    written = json.loads((tmp_path / "more" / "config.json").read_text())["head"]
    names = ("poly_codes", "max_context_tokens", "max_candidate_tokens")
    assert tuple(written[name] for name in names) == raised


@pytest.mark.parametrize("options", [{"head": "poly"}, {"head": "cross"}])
def test_more_codes_refuses_other_rankers(options, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"head": HeadConfig(**options).to_dict()}))
    more_codes = runpy.run_path(str(RECIPES / "more_codes.py"))["main"]
    received = f"Received: head {options['head']}, poly_variant learnt."
    with pytest.raises(ValueError, match=f"a poly-encoder of the variant last_m. {received}"):
        more_codes(str(tmp_path), str(tmp_path / "more"))
    assert not (tmp_path / "more").exists()


def write_first_records(folder, *, dev, train):
    """Write records in shards. A third of the examples may not be used commercially."""
    texts = iter(random_texts(2_000, seed=7))
    examples = [
        (split, 0, Example(
            context=next(texts), response=next(texts), extra_contexts=(next(texts),),
            response_id="", subreddit="", thread_id=str(i), context_author="", response_author="",
            source=("esconv", "reddit", "reddit", "swda", "reddit", "reddit")[i % 6],
        ))
        for split, number in (("dev", dev), ("train", train))
        for i in range(number)
    ]  # fmt: skip
    folder.mkdir(parents=True)
    write_shards(str(folder), examples, num_shards={"train": 2, "dev": 1})


@pytest.mark.slow
def test_a_map_learns_opposites_from_contrasts_and_requests(tmp_path):
    from convert_tf.export.hub.writing import export_module

    checkpoint = write_checkpoint(tmp_path / "start", similarity_dim=12, num_oov_buckets=1000)
    module = tmp_path / "hub_modules" / "tiny" / "1"
    export_module(checkpoint, module)
    (tmp_path / "hub_modules" / "recipes").symlink_to(RECIPES)
    contrasts, utterances = tmp_path / "contrasts", tmp_path / "utterances"
    contrasts.mkdir()
    utterances.mkdir()

    def write(path, rows):
        lines = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
        path.write_bytes(zstandard.ZstdCompressor().compress(lines))

    texts = iter(random_texts(3_000, seed=5))
    kinds = [("snli", 200), ("cad_nli", 40), ("quora", 40)]
    triplets = [
        {"anchor": next(texts), "positive": next(texts), "negative": next(texts), "source": kind}
        for kind, number in kinds
        for _ in range(number)
    ]
    held_out = next(row for row in triplets if row["source"] == "cad_nli")
    triplets[0] |= {"anchor": f"{held_out['anchor'].upper()} ", "positive": "in capitals"}
    write(contrasts / "nli_triplets.jsonl.zst", triplets)
    pair = {"text_a": "open it", "text_b": "close it", "label": 0, "source": "minimal_antonym:x"}
    write(contrasts / "paraphrase_pairs.jsonl.zst", [pair])
    (contrasts / "command_opposites.tsv").write_text("open\tclose\n")
    (contrasts / "antonyms.tsv").write_text("first\tsecond\tkinds\tsources\nfull\tempty\ta\toewn\n")
    script = (RECIPES / "few_texts.py").read_text()
    read = re.findall(r'"([a-z_]+)",', script.split("_OF_LABEL")[0])
    assert len(read) == 15
    for name in (*read, "unread"):
        rows = [
            {"text": f"open the {next(texts)}", "source": name.replace("tweets", "posts"),
             "label": f"l{i % 2}"}
            for i in range(100)
        ]  # fmt: skip
        rows += [
            {"text": f"open the forbidden box {i}", "source": source, "label": "l0"}
            for i in range(100)
            for source in ("tweeteval_emoji", "leyzer_patterns", "enron_emails")
        ]
        write(utterances / f"{name}.jsonl.zst", rows)
    described = [f"box {i} is {word}" for i in range(20) for word in ("full", "not full")]
    rows = [{"text": text} for text in (*described, "is box 7 full?", "box 7 is full of no toys")]
    rows.append({"text": "the forbidden box is full", "source": "quora"})
    write(utterances / "described.jsonl.zst", rows)
    rows = [{"text": f"bag {i} is full", "source": "reviews"} for i in range(20)]
    write(utterances / "tweets_and_reviews.jsonl.zst", rows)

    call(
        "opposites.sh", tmp_path / "work", contrasts, f"{utterances}/*.jsonl.zst", "tiny/1",
        "--map_steps=5", folder=tmp_path, cwd=tmp_path, TEACHERS=str(checkpoint),
    )  # fmt: skip
    work = tmp_path / "work"
    triplets_of = {
        file: [json.loads(line) for line in zstandard.open(work / file, "rt")]
        for file in ("triplets_2500.jsonl.zst", "held_out_2500.jsonl.zst")
    }
    sources = {file: {row["source"] for row in rows} for file, rows in triplets_of.items()}
    assert sources["held_out_2500.jsonl.zst"] == {"cad_nli"}
    assert {"snli", "rule:antonym:requests_labelled"} <= sources["triplets_2500.jsonl.zst"]
    assert not {"cad_nli", "quora"} & sources["triplets_2500.jsonl.zst"]
    negated = [
        [
            ("not" in row[name]) == ("full" in row[name])
            for name in ("anchor", "positive", "negative")
        ]
        for row in triplets_of["triplets_2500.jsonl.zst"]
        if row["source"] == "double_negation:described"
    ]
    assert 20 <= len(negated) <= 40
    assert "double_negation:tweets_and_reviews" in sources["triplets_2500.jsonl.zst"]
    assert "forbidden" not in str(triplets_of["triplets_2500.jsonl.zst"])
    assert "in capitals" not in str(triplets_of["triplets_2500.jsonl.zst"])
    assert all(text == paraphrase != opposite for text, paraphrase, opposite in negated)
    rows = [json.loads(line) for line in zstandard.open(work / "few_texts_2500.jsonl.zst", "rt")]
    assert {row["source"] for row in rows} == {*read, "triplets"}
    assert "forbidden" not in str(rows)
    labels = collections.Counter(row.get("label") for row in rows if row["source"] == read[0])
    assert labels == {"l0": 5, "l1": 5}
    start, taught = (
        SentenceEncoder(folder, compute_dtype="float32") for folder in (module, work / "tiny.map")
    )
    np.testing.assert_allclose(
        start.encode(["open it"], kind="reduced"), taught.encode(["open it"], kind="reduced"),
        atol=1e-5,
    )  # fmt: skip
    moved = start.encode(["open it"], kind="similarity") - taught.encode(
        ["open it"], kind="similarity"
    )
    assert np.abs(moved).max() > 1e-3

    # The whole encoder is trained, then its ranking. The result is averaged with the one before.
    write_first_records(work / "data", dev=180, train=60)
    (work / "few_text_vectors_2500").rename(work / "unread")
    call(
        "opposites_encoder.sh", work, contrasts, f"{utterances}/*.jsonl.zst", "tiny/1", *TINY_RUN,
        "--learning_rate=0.01", folder=tmp_path, cwd=tmp_path, TEACHER=str(module),
        RANKING_FLAGS=" ".join(TINY_RUN), RANKER="tiny/1",
    )  # fmt: skip
    taught = json.loads((work / "ranking_vectors" / "teacher.json").read_text())
    assert taught["teacher"].count("tiny") == 2
    ids = ArrayFolder(str(work / "few_text_ids_12000"))
    examples = ids.open("train", max_tokens=ids.max_tokens, holds=UTTERANCES)
    texts = StoredTexts(ids)(examples.texts("text", np.arange(9)))
    taught = np.load(work / "own_vectors_12000" / "train-text-vectors.npy")[:9].astype(np.float32)
    kinds = {"similarity": 0.64, "reduced": 0.16, "context": 0.2}
    cosines = [
        share * (vectors @ vectors.T)
        for kind, share in kinds.items()
        for vectors in [unit_rows(start.encode(texts, kind=kind))]
    ]
    np.testing.assert_allclose(taught @ taught.T, sum(cosines), atol=5e-3)

    folders = (module, *(work / "runs" / name for name in ("opposites_mean", "opposites")))
    before, mean, trained = map(load_similarity_map, folders)
    assert before.shape == mean.shape != trained.shape
    left, _, right = np.linalg.svd(trained.T @ before, full_matrices=False)
    averaged = 0.7 * (trained @ left @ right) + 0.3 * before
    # The mean is the averaged map after a rotation and a change of scale.
    products, averaged_products = (kernel @ kernel.T for kernel in (mean, averaged))
    scale = np.trace(products) / np.trace(averaged_products)
    np.testing.assert_allclose(products, scale * averaged_products, atol=1e-5)
    folders = (*folders, saved_checkpoints(work / "runs" / "opposites")[0])
    encoders = [SentenceEncoder(folder, compute_dtype="float32") for folder in folders]
    kept, last = (encoder.encode(["open it"], kind="reduced") for encoder in encoders[2:])
    np.testing.assert_array_equal(kept, last)
    for kind in ("reduced", "similarity"):
        vectors = [encoder.encode(["open it"], kind=kind) for encoder in encoders[:2]]
        assert np.abs(vectors[0] - vectors[1]).max() > 0
    with zstandard.open(work / "few_texts_12000.jsonl.zst", "rt") as file:
        every = [*dict.fromkeys(json.loads(line)["text"] for line in file)]
    turned, ranked = (
        SentenceEncoder(work / "runs" / name, compute_dtype="float32")
        for name in ("opposites_turned", "opposites_ranking")
    )
    np.testing.assert_array_equal(turned.encode(["open it"], kind="reduced"), kept)
    assert np.abs(ranked.encode(["open it"], kind="reduced") - kept).max() > 0
    ratios = []
    for encoder in encoders[:2]:
        reduced, sentences = (encoder.encode(every, kind=kind) for kind in ("reduced", "sentence"))
        added = sentences / SENTENCE_SCALE - reduced
        ratios.append(np.linalg.norm(added, axis=1).mean() / np.linalg.norm(reduced, axis=1).mean())
    assert ratios[1] == pytest.approx(ratios[0], rel=0.01)


@pytest.mark.slow
def test_a_ranker_is_made_from_the_first_shard(tmp_path):
    checkpoint = write_checkpoint(tmp_path / "start")
    work = tmp_path / "work"
    write_first_records(work / "data", dev=180, train=60)
    call("rerank_poly.sh", work, checkpoint, *TINY_RANKERS, folder=tmp_path)
    sources = read_texts(str(work / "first"), "train", ("source",))["source"]
    assert sources == [b"reddit"] * 40
    queries = [("how are you?", "fine"), ("where?",)]
    config = json.loads((work / "runs" / "more_codes" / "config.json").read_text())
    assert config["head"]["poly_codes"] == 64
    ranker = Ranker(work / "runs" / "more_codes")
    expected = ranker.scores(queries, ["fine", "here"])
    exported = Ranker(work / "hub_modules" / "convert_rerank_poly" / "1")
    scores = exported.scores(queries, ["fine", "here"])
    np.testing.assert_allclose(scores, expected, atol=0.1 * np.abs(expected).max())
    card = (work / "hub_modules" / "convert_rerank_poly" / "1" / "MODEL_CARD.md").read_text()
    assert "rerank_poly.sh" in card


@pytest.mark.slow
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
        [sys.executable, "hub_modules/recipes/judge_intents.py", f"--train={tmp_path}/bank.csv",
         f"--utterances={tmp_path}/*.jsonl", "--shots=2", str(tiny_modules["single"][1])],
        cwd=ROOT, env=own_environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found = re.findall(r", (.+), sentence: ([\d.]+) %", done.stdout)
    assert [name for name, _ in found] == ["bank.csv", "left out"]
    assert all(0 < float(accuracy) <= 100 for _, accuracy in found)
