"""The cluster's engine beside the one for one machine: same examples, same files, same report."""

import collections
import dataclasses
import hashlib
import json
import random
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.dump_files import comment, json_lines
from support.record_files import read_examples

pytest.importorskip("apache_beam")

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from convert_tf.corpora import local as local_runner
from convert_tf.corpora import report as report_module
from convert_tf.corpora.beam import publish as beam_publish
from convert_tf.corpora.beam import runner as beam_runner
from convert_tf.corpora.comments import PRESETS, Rules
from convert_tf.corpora.dumps import TooManyBadLinesError
from convert_tf.corpora.local import PrepareOptions
from convert_tf.corpora.registry import CORPORA
from convert_tf.data import records
from convert_tf.data.schema import SPLITS, Example
from convert_tf.data.shards import list_shards

RULES = {"polyai": Rules(), "parts": Rules(), "clean": Rules(**PRESETS["clean"])}
SHARDS = {"train": 3, "dev": 1, "test": 2}
TEXTS = (
    "[deleted]",
    "[removed]",
    "short",
    "M" * 200,
    "thanks a lot for that",
    "  Thanks a LOT for that",
    "> a quoted line\nand what is said to it",
    "see https://example.org/page for the rest",
    "one &amp; the other",
)


def _dump(seed=0, num_threads=120):
    """Threads with everything that rules look at; their comments in any order, some twice."""
    rng = random.Random(seed)
    comments, submissions = [], []
    for thread in range(num_threads):
        link = f"t3_thread{thread}"
        if rng.random() < 0.7:
            submissions.append(
                {"id": link[3:], "title": f"what about number {thread}?", "author": "asker"}
            )
        parents = [link, "t1_lost"]
        for _ in range(rng.randrange(1, 14)):
            name = f"c{len(comments)}"
            body = rng.choice(TEXTS) if rng.random() < 0.4 else f"remark {name} on {thread}"
            author = rng.choice(["asker", "ann", "ben", "RemindMeBot", "[deleted]", None])
            parent = rng.choice(parents)
            score = rng.choice([None, -3, 5])
            comments.append(comment(name, parent, body, link=link, author=author, score=score))
            parents.append(f"t1_{name}")
        if thread % 4 == 0:  # the same pair but for case and white space
            question, answer = f"q{thread}", f"a{thread}"
            comments.append(comment(question, parents[0], "Is the pool open?", link=link))
            body = rng.choice(["until nine", "Until  NINE"])
            comments.append(comment(answer, f"t1_{question}", body, link=link))
    comments += [comment("x", "t1_y", "half a cycle"), comment("y", "t1_x", "the other half")]
    comments += rng.sample(comments, 20)
    rng.shuffle(comments)
    return comments, submissions


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    """The picture follows from the report, which is compared; drawing it takes longest."""
    monkeypatch.setattr(report_module, "draw", lambda _: b"a picture")


@pytest.fixture
def dumps_folder(write_dump, tmp_path):
    """Comments in four files, each compressed in another way, so that threads are split."""
    comments, submissions = _dump()
    bad = b'this is not JSON\n{"id": "\xff"}\n' + json_lines([{"id": "i"}])
    write_dump("dumps/RC_1.zst", json_lines(comments[:200]) + bad)
    write_dump("dumps/RC_2.bz2", comments[200:400])
    write_dump("dumps/RC_3.gz", comments[400:500])
    write_dump("dumps/RC_4", comments[500:])
    write_dump("dumps/RC_5", [])
    write_dump("dumps/RS_1.zst", submissions)
    write_dump(
        "dumps/chats.jsonl.zst",
        [
            {"turns": [f"turn {turn} of dialogue {number}" for turn in range(13)], "source": "chat"}
            for number in range(10)
        ],
    )
    rows = "".join(f"Question number {number % 9}?,Answer {number}\n" for number in range(20))
    rows += "Question number 3?,Answer 3\n" * 5
    write_dump("dumps/faq.csv", rows.encode())
    return tmp_path / "dumps"


def _both(dumps_folder, tmp_path, *, corpora=(), **options):
    """Both engines' folders for the same input."""
    names = {"dialogues": "chats.jsonl.zst", "pairs": "faq.csv"}
    patterns = {
        "inputs": [f"{dumps_folder}/RC_*"],
        "submissions": [f"{dumps_folder}/RS_*"],
    }
    given = {
        "corpora": {name: [str(dumps_folder / names[name])] for name in corpora},
        "options": PrepareOptions(num_shards=SHARDS, dev_fraction=0.1, **options),
    }
    files = {name: beam_runner.file_sizes(some) for name, some in patterns.items()}
    local_runner.prepare(
        list(files["inputs"]),
        str(tmp_path / "local"),
        submissions=list(files["submissions"]),
        **given,
    )
    beam_runner.prepare_with_beam(
        patterns["inputs"],
        str(tmp_path / "beam"),
        submissions=patterns["submissions"],
        **given,
    )
    return tmp_path / "local", tmp_path / "beam"


def _digest(folder):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in Path(folder).iterdir()
    }


def _examples(folder, split):
    found = read_examples(list_shards(str(folder), split))
    return collections.Counter(
        tuple((name, tuple(np.ravel(one[name]).tolist())) for name in sorted(one)) for one in found
    )


@pytest.mark.parametrize("kind", ["polyai", "clean", "parts"])
def test_same_data_as_on_one_machine(dumps_folder, tmp_path, monkeypatch, kind):
    corpora = ("dialogues", "pairs")
    if kind == "parts":  # shards are sorted in pieces
        monkeypatch.setattr(beam_publish, "_PART_BYTES", 1000)
        corpora = ()
    local, beam = _both(dumps_folder, tmp_path, corpora=corpora, rules=RULES[kind])
    for split in SPLITS:
        expected = _examples(local, split)
        assert _examples(beam, split) == expected
        assert len(expected) >= 10
    report = json.loads((beam / "report.json").read_text())
    assert report == json.loads((local / "report.json").read_text())
    assert report["threads"]["duplicates"] == 20
    assert report["threads"]["cyclic"] == 2
    assert report["bad_lines"]["count"] == 3
    dropped, changed = report["threads"]["dropped"], report["threads"]["changed"]
    if kind == "clean":  # the dump holds what the rules look at
        assert {"response_by_bot", "self_reply", "response_low_score"} < set(dropped)
        assert dropped["duplicate_pair"] > 25
        assert set(changed) == {"strip_quotes", "strip_urls", "unescape_html"}
    else:  # the table of pairs has rules of its own
        assert dropped.get("duplicate_pair", 0) == (5 if kind == "polyai" else 0)
    assert _digest(beam) == _digest(local)


def test_the_local_runner_is_in_process_and_fetches_nothing(write_dump, tmp_path, monkeypatch):
    assert type(beam_runner.make_pipeline([]).runner) is FnApiRunner

    def refuse(*_, **__):
        raise AssertionError("a process was started or a connection made")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
    dump = write_dump("RC", _dump(num_threads=40)[0])
    beam_runner.prepare_with_beam([dump], str(tmp_path / "data"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--direct_runner_bundle_repeat=1"],  # every step runs twice, as after a failure
        ["--runner=PortableRunner", "--job_endpoint=embed", "--environment_type=LOOPBACK"],
    ],
    ids=["repeated", "portable"],
)
def test_same_files_by_every_runner(write_dump, tmp_path, arguments):
    """The second speaks the protocol that Flink and Spark are spoken to with."""
    dump = write_dump("in/RC", _dump(num_threads=40)[0])
    options = PrepareOptions(rules=RULES["clean"], num_shards=SHARDS)
    local_runner.prepare([dump], str(tmp_path / "local"), options=options)
    output = str(tmp_path / "beam")
    beam_runner.prepare_with_beam([dump], output, options=options, beam_arguments=arguments)
    assert _digest(output) == _digest(tmp_path / "local")


def test_another_runner_can_be_named():
    pipeline = beam_runner.make_pipeline(["--runner", "PortableRunner", "--job_endpoint=h:1"])
    assert type(pipeline.runner).__name__ == "PortableRunner"


@pytest.mark.parametrize("arguments", [["--runnr=DataflowRunner"], ["--min_lenght", "5"]])
def test_an_unknown_option_is_an_error(arguments):
    name = arguments[0].split("=")[0]
    with pytest.raises(ValueError, match=f"Received: {name}. "):
        beam_runner.make_pipeline(arguments)


def test_no_flag_has_the_name_of_an_option_of_beam():
    ours = {field.name for field in dataclasses.fields(Rules)} | set(CORPORA)
    ours |= {f"num_shards_{split}" for split in SPLITS}
    ours |= {"input", "submissions", "output", "overwrite", "vocab", "preset", "dev_fraction"}
    ours |= {"min_length", "max_length", "max_line_bytes", "max_bad_lines"}
    assert not ours & set(PipelineOptions([]).get_all_options())


@pytest.mark.parametrize("exists", [False, True])
def test_input_without_examples_changes_nothing(write_dump, tmp_path, exists):
    dump = write_dump("in/RC", [comment(f"c{n}", "t3_5h6yvl", f"lonely {n}") for n in range(5)])
    if exists:
        write_dump("data/notes.txt", b"mine")
    with pytest.raises(ValueError, match=r"no example\. It has 5 usable turns"):
        beam_runner.prepare_with_beam([dump], str(tmp_path / "data"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"] * exists + ["in"]
    assert not exists or [path.name for path in (tmp_path / "data").iterdir()] == ["notes.txt"]


def test_too_many_bad_lines(write_dump, tmp_path):
    dump = write_dump("in/RC", json_lines(_dump(num_threads=40)[0]) + b"not JSON\n" * 3)
    allowed = PrepareOptions(max_bad_lines=3)
    beam_runner.prepare_with_beam([dump], str(tmp_path / "allowed"), options=allowed)
    with pytest.raises(TooManyBadLinesError, match=r"At most 2 .* Received: 3;.*\(not_json\)"):
        beam_runner.prepare_with_beam(
            [dump], str(tmp_path / "data"), options=PrepareOptions(max_bad_lines=2)
        )
    assert not (tmp_path / "data").exists()


def test_existing_records_are_kept_unless_told_otherwise(write_dump, tmp_path):
    dump, output = write_dump("in/RC", _dump(num_threads=40)[0]), tmp_path / "data"
    many = PrepareOptions(num_shards={"train": 5, "dev": 1, "test": 1})
    beam_runner.prepare_with_beam([dump], str(output), options=many)
    (output / "notes.txt").write_text("mine")
    before = _digest(output)
    with pytest.raises(ValueError, match="Pass --overwrite"):
        beam_runner.prepare_with_beam([dump], str(output))
    assert _digest(output) == before
    few = PrepareOptions(num_shards={"train": 2, "dev": 1, "test": 1})
    beam_runner.prepare_with_beam([dump], str(output), options=few, overwrite=True)
    beam_runner.prepare_with_beam([dump], str(tmp_path / "expected"), options=few)
    assert (output / "notes.txt").read_text() == "mine"
    (output / "notes.txt").unlink()
    assert _digest(output) == _digest(tmp_path / "expected")


@pytest.mark.parametrize("name", ["data*", "data[1]"])
def test_the_output_is_no_pattern(write_dump, tmp_path, name):
    with pytest.raises(ValueError, match="must be no pattern"):
        beam_runner.prepare_with_beam(
            [write_dump("RC", _dump(num_threads=40)[0])], str(tmp_path / name)
        )


def test_the_output_is_no_file(write_dump, tmp_path):
    dump = write_dump("RC", _dump(num_threads=40)[0])
    with pytest.raises(ValueError, match="a file"):
        beam_runner.prepare_with_beam([dump], dump)


def _full_disk(*_):
    raise OSError(28, "No space left on device")


def test_a_failing_step_leaves_nothing(write_dump, tmp_path, monkeypatch):
    dump = write_dump("in/RC", _dump(num_threads=40)[0])
    monkeypatch.setattr(records.ExampleWriter, "write", _full_disk)
    with pytest.raises(RuntimeError, match="No space left"):
        beam_runner.prepare_with_beam([dump], str(tmp_path / "data"))
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("failing", range(4))
def test_publishing_may_be_repeated(tmp_path, monkeypatch, failing):
    """A runner repeats a step that failed; here it fails at each of its three moves."""
    output, folder = tmp_path / "data", tmp_path / "data" / ".beam-1"
    folder.mkdir(parents=True)
    (output / "train-00000-of-00009.tfrecord").write_text("old")
    (output / "train-00001-of-00003.tfrecord").write_text("old")
    shards = []
    for split_index, shard in ((0, 0), (0, 1), (2, 0)):
        path = folder / f"{split_index}-{shard}"
        with records.ExampleWriter(str(folder), "train", num_shards=1) as writer:
            writer.write(0, Example("t", "r", "s", "a context", f"response {shard}", (), "", ""))
        (folder / "train-00000-of-00001.tfrecord").rename(path)
        shards.append((split_index, shard, str(path)))
    job = beam_publish.Job(
        output=str(output),
        folder=str(folder),
        files={},
        input_bytes=0,
        rules={"reddit": Rules()},
        dev_fraction=0.01,
        num_shards=SHARDS,
        max_line_bytes=0,
        max_bad_lines=None,
        vocabulary=None,
    )
    counts = [(("examples", "reddit", "train"), 2), (("examples", "reddit", "test"), 1)]
    rename, moves = FileSystems.rename, []

    def fails_once(sources, targets):
        moves.append(targets)
        if len(moves) == failing + 1:
            raise OSError("the worker is gone")
        rename(sources, targets)

    monkeypatch.setattr(FileSystems, "rename", fails_once)
    publish = beam_publish.Publish(job)
    if failing < 3:
        with pytest.raises(OSError, match="the worker is gone"):
            publish.process(None, shards, counts, [])
        assert not (output / "report.json").exists()
    publish.process(None, shards, counts, [])
    assert sorted(path.name for path in output.iterdir()) == [
        "report.json",
        "report.png",
        "test-00000-of-00002.tfrecord",
        "test-00001-of-00002.tfrecord",
        "train-00000-of-00003.tfrecord",
        "train-00001-of-00003.tfrecord",
        "train-00002-of-00003.tfrecord",
    ]
    found = read_examples(list_shards(str(output), "train"))
    assert [one["response"] for one in found] == [b"response 0", b"response 1"]
    assert json.loads((output / "report.json").read_text())["lengths"]["response"]["texts"] == 2


def _run(*arguments):
    command = [sys.executable, "-m", "convert_tf", "prepare", "--engine=beam", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_command_line(dumps_folder, tmp_path):
    done = _run(
        *("--direct_num_workers", "1", "--input", f"{dumps_folder}/RC_*"),
        *("--submissions", f"{dumps_folder}/RS_*", "--dialogues", dumps_folder / "chats.jsonl.zst"),
        *("--output", tmp_path / "data", "--num_shards_train=2", "--drop_bots", "--min_length=5"),
    )
    assert done.returncode == 0, done.stderr
    assert "RC_5: the file is empty" in done.stderr
    report = json.loads((tmp_path / "data" / "report.json").read_text())
    assert report["rules"]["reddit"]["drop_bots"]
    assert report["rules"]["reddit"]["min_context_length"] == 5
    assert len(list_shards(str(tmp_path / "data"), "train")) == 2
    table = dict(line.rsplit(maxsplit=1) for line in done.stdout.splitlines()[:-1])
    assert table["examples of chat"] == "120"
