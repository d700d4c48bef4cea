"""Evaluation of checkpoints and modules, and search without an index."""

import csv
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from support.commands import call_command, status_without_reader
from support.processes import printed_by
from support.record_files import read_pairs
from support.tiny_checkpoint import write_records

from convert_tf.checkpoints.folder import save_checkpoint
from convert_tf.checkpoints.loading import initial_ranker
from convert_tf.config.ranker import HeadConfig
from convert_tf.encoding.backends.checkpoint import CheckpointBackend
from convert_tf.evaluation.compare import compare, evaluate, make_task
from convert_tf.ranking.ranker import open_encoder


@pytest.fixture(scope="module")
def paths(tiny_modules, tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluate")
    checkpoint, module = tiny_modules["single"]
    return {
        "checkpoint": str(checkpoint),
        "module": str(module),
        "data": str(write_records(folder / "data", 450)),
    }


@pytest.fixture(scope="module")
def encoder(paths):
    return open_encoder(paths["module"])


@pytest.fixture(scope="module")
def reports(paths):
    return tuple(evaluate(paths[name], data=paths["data"]) for name in ("checkpoint", "module"))


def test_a_file_of_pairs_is_ranked_as_records_are(paths, reports, tmp_path):
    contexts, responses = read_pairs(paths["data"], "test")
    rows = [(c.decode(), r.decode()) for c, r in zip(contexts, responses, strict=True)]
    path = tmp_path / "faq.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("question", "answer"), *rows])
    report, expected = evaluate(paths["module"], data=str(path)), reports[1]
    assert report["examples"] == expected["examples"]
    # The blocks differ, and so do the 50 of the 450 examples that are in no block.
    assert report["metrics"] == pytest.approx(expected["metrics"], abs=0.08)
    assert report["split"] is None


class ScoresByLength:
    """Ranks candidates by length, and records the contexts of its first call."""

    name, settings = "by length", {}

    def candidate_scores(self, contexts, candidates):
        self.contexts = contexts
        return [[float(len(text)) for text in own] for own in candidates]


def test_answers_to_one_question_are_spread_over_the_blocks(tmp_path):
    path = tmp_path / "faq.csv"
    rows = [f"question {n},answer {n} {k}" for n in range(40) for k in range(10)]
    path.write_text("\n".join(["question,answer", *rows, "unanswered,"]) + "\n")
    ranker = ScoresByLength()
    compare([ranker], make_task(data=str(path), ks=[1], block_size=10))
    blocks = [ranker.contexts[start : start + 10] for start in range(0, 100, 10)]
    assert sum(len({turns[0] for turns in block}) for block in blocks) > 70
    # The order never changes, so the figures of two runs can be compared.
    assert ranker.contexts[:2] == [("question 15",), ("question 38",)]


def test_repeated_rows_and_removal_notices_are_not_ranked(tmp_path, capsys):
    """In the same block, the copy of a pair would count as a wrong answer to its own question."""
    path = tmp_path / "faq.csv"
    rows = [f"question {n},answer {n}" for n in range(20)]
    notices = ["question 3,[removed]", "[deleted],answer 3"]
    path.write_text("\n".join(["question,answer", *rows, *rows, *notices]) + "\n")
    examples = [example for _, example in make_task(data=str(path), block_size=20).examples]
    assert sorted(example.turns for example in examples) == sorted(
        (row.split(",")[0],) for row in rows
    )
    assert len(set(examples[0].candidates)) == 20
    out = capsys.readouterr().out
    assert "not used: 20 duplicate_pair, 1 response_deleted, 1 context_deleted" in out


def test_repeated_examples_of_a_task_are_ranked(tmp_path):
    """The published sizes of these data sets include them, and `prepare` keeps them too."""
    path = tmp_path / "valid.txt"
    path.write_text("1 your persona: i ski.\n2 hello there\thi\t\thi|bye\n" * 4)
    assert len(list(make_task(data=str(path), block_size=4).examples)) == 4


def test_a_file_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "faq.jsonl"
    path.write_bytes(b'{"question": "\xe9", "answer": "\xe9"}\n' * 9)
    with pytest.raises(ValueError, match=r"Hardly any line of .*faq\.jsonl can be used"):
        list(make_task(data=str(path), block_size=2).examples)


def test_what_is_measured_by_default(tmp_path):
    pairs = tmp_path / "faq.csv"
    pairs.write_text("question,answer\n" + "".join(f"q{n},a{n}\n" for n in range(20)))
    task = make_task(data=str(pairs), block_size=10)
    assert list(task.ks) == [1, 3, 10]
    assert [list(groups) for groups, _ in task.examples] == 20 * [["all"]]
    assert list(make_task(data=str(pairs), block_size=9).ks) == [1, 3]
    lists = tmp_path / "lists.jsonl"
    for number, ks in ((2, [1]), (5, [1, 2]), (6, [1, 2, 5]), (10, [1, 2, 5]), (11, [1, 2, 5, 10])):
        example = {"context": "hi", "candidates": [*map(str, range(number))], "label": 0}
        lists.write_text(json.dumps(example) + "\n")
        assert list(make_task(candidates=str(lists)).ks) == ks


def test_a_file_with_correct_candidates_alone_is_refused(tmp_path):
    rows = [
        {"context": "hi", "candidates": ["a", "b"], "label": [0, 1]},
        {"context": "hi", "candidates": ["a", "a"], "label": 1},
        {"context": "hello", "candidates": ["a", "b"], "label": 0},
    ]
    path = tmp_path / "lists.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert len([*make_task(candidates=str(path)).examples]) == 3
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[:2]))
    with pytest.raises(ValueError, match=r"lists\.jsonl contains no wrong candidates"):
        make_task(candidates=str(path))


def test_checkpoint_and_module_agree(reports):
    scores, module_scores = (report["metrics"] for report in reports)
    assert set(scores) == {"R100@1", "R100@3", "R100@10", "MRR"}
    assert 0.05 < scores["R100@1"] < scores["R100@3"] < scores["R100@10"] < 1
    for name, score in scores.items():
        assert abs(module_scores[name] - score) <= 0.01


def test_the_score_equals_a_naive_one(paths, reports):
    signatures = tf.saved_model.load(paths["module"]).signatures
    contexts, responses = read_pairs(paths["data"], "test")
    h_c = signatures["encode_context"](tf.constant(contexts))["default"].numpy()
    h_r = signatures["encode_response"](tf.constant(responses))["default"].numpy()
    hits = 0
    for start in range(0, 400, 100):
        for i in range(start, start + 100):
            own = h_c[i] @ h_r[i]
            hits += all(h_c[i] @ h_r[j] < own for j in range(start, start + 100) if j != i)
    assert reports[1]["metrics"]["R100@1"] == pytest.approx(hits / 400, abs=0.0051)


def test_the_report_says_what_was_scored(paths, reports):
    for report, name in zip(reports, ("checkpoint", "module"), strict=True):
        assert report[name] == paths[name]
        assert report["examples"] == 400  # 450 without the last, partial block
        assert report["split"] == "test"
        assert report["data"] == paths["data"]
        assert report["seconds"] > 0


@pytest.mark.slow
def test_options_change_what_is_scored(paths):
    report = evaluate(paths["module"], data=paths["data"], ks=(2,), block_size=20, max_examples=130)
    assert report["examples"] == 120
    assert set(report["metrics"]) == {"R20@2", "MRR"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": None}, "Received: neither"),
        ({"candidates": "c"}, "Received: both"),
        ({"split": "nowhere"}, "of the split nowhere"),
        ({"split": "dev"}, "no records of the split dev"),
        ({"max_examples": 99}, r"too few examples .* Raise --max_examples, which is 99, or"),
        ({"block_size": 10**6, "ks": (1,)}, r"too few examples for a block .* Use more data, or"),
        ({"ks": (101,)}, r"to 100, the number of candidates\. Received: k \[101\]"),
        ({"ks": ()}, "k must be from 1"),
        ({"model": "nowhere"}, "'nowhere' is neither a file"),
    ],
)
def test_errors(paths, changes, message):
    arguments = {"model": paths["checkpoint"], "data": paths["data"], **changes}
    with pytest.raises(ValueError, match=message):
        evaluate(**arguments)


def test_module_without_the_signatures(tmp_path):
    tf.saved_model.save(tf.Module(), str(tmp_path / "other"))
    with pytest.raises(ValueError, match="is not an encoder"):
        open_encoder(tmp_path / "other")


@pytest.mark.slow
def test_a_search_without_an_index(paths, tmp_path, capsys):
    candidates = tmp_path / "candidates.txt"
    candidates.write_text("reset my password\n\nthe cat sat\nreset my password\n")
    call_command(
        "index", "search", f"--encoder={paths['module']}", f"--candidates={candidates}",
        "--queries=how, do i reset my password", "--top_k=3",
    )  # fmt: skip
    query, *lines = capsys.readouterr().out.splitlines()
    assert query == "how, do i reset my password"
    found = sorted(line.split(maxsplit=2)[2] for line in lines)
    assert found == ["reset my password", "the cat sat"]


def error_line(script, *arguments):
    with pytest.raises(SystemExit) as caught:
        call_command(script, *arguments)
    assert "\n" not in caught.value.code
    return caught.value.code


SEARCH = ("index", "search", "--queries=two")


@pytest.mark.parametrize("command", [("evaluate",), SEARCH], ids=["evaluate", "search"])
def test_damaged_records(paths, tmp_path, command):
    data = Path(shutil.copytree(paths["data"], tmp_path / "data"))
    os.truncate(next(data.iterdir()), 500)
    assert str(data) in error_line(*command, f"--encoder={paths['module']}", f"--data={data}")


@pytest.mark.slow
def test_places_that_cannot_be_read_or_written(paths, tmp_path, monkeypatch):
    arguments = (f"--encoder={paths['module']}", f"--data={paths['data']}")
    (tmp_path / "file").touch()
    message = error_line("evaluate", *arguments, f"--output={tmp_path / 'file' / 'results'}")
    assert "Not a directory" in message

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied", "data/test")

    monkeypatch.setattr("convert_tf.data.records.read_turns", refuse)
    for command in (("evaluate",), SEARCH):
        assert "data/test" in error_line(*command, *arguments)


GIVEN = [
    {"context": ["the cat sat", "reset my password"], "candidates": ["password reset", "no"],
     "label": 0},
    {"context": ["train late"], "candidates": ["maybe", "late train", "today"], "label": [1, 2]},
    {"context": [], "candidates": ["thanks"], "label": 0},
] * 3  # fmt: skip


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    path = tmp_path_factory.mktemp("given") / "given.jsonl"
    path.write_text("\n".join(map(json.dumps, GIVEN)))
    return str(path)


def run_report(capsys, tmp_path, *arguments):
    """Run `evaluate`, and return its JSON report and its output."""
    output = tmp_path / "results"
    call_command("evaluate", *arguments, f"--output={output}")
    return json.loads((output / "evaluation.json").read_text()), capsys.readouterr().out


@pytest.mark.slow
def test_rows_of_every_kind(paths, given, tmp_path, capsys):
    models = [paths["checkpoint"], paths["module"]]
    report, printed = run_report(
        capsys, tmp_path, f"--data={paths['data']}", "--baselines=tfidf,bm25,sim",
        *(f"--{flag}={model}" for flag in ("encoder", "vectors") for model in models),
        f"--train_data={given}", "--k=1,5", "--max_examples=210", "--by_source",
    )  # fmt: skip
    names = [*models, "TF-IDF", "BM25", *(f"SIM {model}" for model in models)]
    rows = {row["name"]: row for row in report["rows"]}
    assert list(rows) == names
    assert all(name in printed for name in names)
    scores = {name: row["groups"]["all"]["metrics"] for name, row in rows.items()}
    assert all(set(own) == {"R100@1", "R100@5", "MRR"} for own in scores.values())
    assert all(row["groups"]["all"]["examples"] == 200 for row in rows.values())
    # The encodings have length 1, so their cosine is their dot product.
    for name in models:
        assert scores[f"SIM {name}"] == pytest.approx(scores[name], abs=0.0051)
    assert scores["TF-IDF"]["R100@1"] > 0.1  # responses share words with their contexts
    assert report["task"] == {
        "data": paths["data"], "split": "test", "block_size": 100, "max_examples": 210,
        "history": "own", "k": [1, 5], "examples_sha256": report["task"]["examples_sha256"],
    }  # fmt: skip
    assert rows["BM25"]["settings"] == {
        "fitted_on_texts": 18, "k1": 2.0, "b": 0.75, "train_data": given, "train_examples": 9,
    }  # fmt: skip
    groups = rows[paths["module"]]["groups"]
    assert list(groups) == ["all", "source reddit"]
    assert groups["all"] == groups["source reddit"]  # with one source, the blocks are the same
    assert "R100@1, source reddit" in printed
    single = evaluate(paths["module"], data=paths["data"], ks=(1, 5), max_examples=210)
    assert single["metrics"] == scores[paths["module"]]


def test_given_candidates(paths, given, tmp_path, capsys):
    report, _ = run_report(
        capsys, tmp_path, f"--candidates={given}", f"--train_data={given}",
        "--baselines=tfidf", f"--encoder={paths['module']}",
    )  # fmt: skip
    single = evaluate(paths["module"], candidates=given)
    assert single["candidates"] == report["task"]["candidates"] == given
    assert single["metrics"] == report["rows"][0]["groups"]["all"]["metrics"]
    metrics = report["rows"][1]["groups"]["all"]["metrics"]
    # k is less than the longest list. In a third of the examples, correct ones have ranks 1 and 3.
    average_precision = pytest.approx((1 + 1 + (1 + 2 / 3) / 2) / 3)
    assert metrics == {"R@1": 1.0, "R@2": 1.0, "MRR": 1.0, "MAP": average_precision}


def test_options_of_given_candidates(paths, given, tmp_path, capsys):
    def found(*arguments):
        output = tmp_path / f"{len([*tmp_path.iterdir()])}"
        fixed = f"--candidates={given}", "--baselines=tfidf", f"--train_data={given}"
        report, _ = run_report(capsys, output, *fixed, *arguments)
        return report["rows"][0]["groups"], report["task"], report["rows"][0]["settings"]

    plain, task, settings = found()
    assert list(plain) == ["all"]
    assert list(found("--by_history")[0]) == ["all", "with history", "without history"]
    assert found("--max_examples=4")[0]["all"]["examples"] == 4
    assert set(found("--k=3")[0]["all"]["metrics"]) == {"R@3", "MRR", "MAP"}
    assert found("--history=none")[1]["examples_sha256"] != task["examples_sha256"]
    assert found("--train_examples=1")[2]["fitted_on_texts"] == 2 < settings["fitted_on_texts"]


def test_joined_turns_lose_their_oldest_tokens(paths):
    encoder = open_encoder(paths["checkpoint"])
    newest = open_encoder(paths["checkpoint"], keeps_newest=True)
    limit = CheckpointBackend(paths["checkpoint"]).config.max_tokens
    text = " ".join(["cat"] * 5 + ["mat"] * limit)
    by_newest, by_oldest = (e.encode_contexts([text, "cat"]) for e in (newest, encoder))
    np.testing.assert_allclose(
        by_newest[0], encoder.encode_contexts([" ".join(["mat"] * limit)])[0], atol=1e-5
    )
    np.testing.assert_allclose(by_newest[1], by_oldest[1], atol=1e-5)
    assert np.abs(by_newest[0] - by_oldest[0]).max() > 1e-3
    np.testing.assert_array_equal(newest.encode_responses([text]), encoder.encode_responses([text]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data=d"], "There is nothing to evaluate. Pass --encoder"),
        (["--data=d", "--baselines=tf"], "Choose from tfidf, bm25, sim, map, map_dot."),
        (["--data=d", "--baselines=sim"], "a baseline uses them (sim, map or map_dot)"),
        (["--candidates=c", "--baselines=tfidf"], "need training examples. Pass --train_data"),
        (["--candidates=c", "--encoder=m", "--block_size=9"], "--block_size has no effect"),
        (["--data=d", "--encoder=m", "--vector_signature=s"], "--vector_signature has no effect"),
        (["--data=d", "--encoder=m", "--train_examples=3"], "--train_examples has no effect"),
        (["--data=d", "--encoder=m", "--k=one"], "--k one is not a list of numbers"),
        (["--data=d", "--encoder=m", "--output=r.json"], "--output must be a folder"),
    ],
)  # fmt: skip
def test_flags_that_do_not_fit(arguments, message):
    assert message in error_line("evaluate", *arguments)


def test_errors_of_given_candidates(given, tmp_path):
    arguments = ("--baselines=tfidf", f"--train_data={given}")
    message = error_line("evaluate", f"--candidates={given}", "--k=4", *arguments)
    assert "to 3, the number of candidates. Received: k [4]." in message
    bad = tmp_path / "bad.jsonl"
    bad.write_text(json.dumps(GIVEN[0]) + '\n{"context": "x"}\n')
    message = error_line("evaluate", f"--candidates={bad}", *arguments)
    assert f"{bad}, line 2, is not an example" in message


def test_baselines_on_files_need_no_tensorflow(given):
    code = (
        "import sys; from convert_tf.cli.main import main\n"
        "status = main(['evaluate', *sys.argv[1:]])\n"
        "print([m for m in sys.modules if m in ('tensorflow', 'keras')]); sys.exit(status)"
    )
    printed = printed_by(
        code, f"--candidates={given}", "--baselines=tfidf,bm25", f"--train_data={given}"
    )
    assert printed.splitlines()[-1] == "[]"
    assert "BM25" in printed


def test_rows_of_rankers(paths, given, tmp_path, capsys):
    """An untrained bi-encoder ranks like the dual encoder that it was made from."""
    folders = {}
    for head in ("bi", "poly", "cross"):
        config = HeadConfig(head=head, max_context_tokens=60)
        ranker, vocabulary = initial_ranker(paths["checkpoint"], config)
        folders[head] = str(tmp_path / head)
        save_checkpoint(folders[head], ranker, vocabulary=vocabulary, training={})
    report, _ = run_report(
        capsys, tmp_path, f"--candidates={given}", "--k=1", "--history=joined",
        *(f"--encoder={folder}" for folder in [paths["checkpoint"], *folders.values()]),
    )  # fmt: skip
    rows = report["rows"]
    assert [row["name"] for row in rows] == [paths["checkpoint"], *folders.values()]
    assert rows[1]["groups"] == rows[0]["groups"]
    assert rows[3]["settings"] == {"checkpoint": folders["cross"]}


def test_results_are_printed_if_they_cannot_be_written(given, tmp_path, capsys):
    arguments = (f"--candidates={given}", "--baselines=bm25", f"--train_data={given}")
    (tmp_path / "evaluation.json").write_text("{}")
    message = error_line("evaluate", *arguments, f"--output={tmp_path}")
    assert "was not written by an evaluation" in message
    assert "BM25" in capsys.readouterr().out


def test_results_are_written_if_nobody_reads_them(given, tmp_path, capsys):
    arguments = ("evaluate", f"--candidates={given}", "--baselines=bm25", f"--train_data={given}")
    assert status_without_reader(*arguments, f"--output={tmp_path / 'results'}") == 141
    written = json.loads((tmp_path / "results" / "evaluation.json").read_text())
    assert len(written["rows"]) == 1
    (tmp_path / "evaluation.json").write_text("{}")
    capsys.readouterr()
    assert status_without_reader(*arguments, f"--output={tmp_path}") == 1
    assert "was not written by an evaluation" in capsys.readouterr().err
