"""The Spark engine gives the same examples, files and report as the local engine.

An in-memory cluster replaces Spark here; test_spark_cluster.py runs a real one.
"""

import contextlib
import errno
import json
import os
import random
import socket
from pathlib import Path

import pytest
from support.dump_files import comment, digests, json_lines, random_dump
from support.spark_in_memory import SparkInMemory

pytest.importorskip("google_crc32c")

from convert_tf import __version__
from convert_tf.corpora import data_folder as report_module
from convert_tf.corpora import local, rows
from convert_tf.corpora.comments import PRESETS, Rules
from convert_tf.corpora.data_folder import SINGLE_TEXTS
from convert_tf.corpora.dumps import CountedFile, find_files
from convert_tf.corpora.options import PrepareOptions
from convert_tf.corpora.spark import cluster as cluster_module
from convert_tf.corpora.spark import driver, tasks
from convert_tf.corpora.spark.cluster import problems_of_worker
from convert_tf.data.shards import record_files
from convert_tf.storage.files import FileWriteError
from convert_tf.storage.lines import FileChangedError, file_state

RULES = {
    "polyai": Rules(),
    "clean": Rules(**PRESETS["clean"]),
    "more": Rules(long="cut", more_pairs=True, single_texts=True),
}
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


def _dump(num_threads=120):
    """Return shuffled threads that trigger every rule; some comments occur twice."""
    rng = random.Random(0)
    comments, submissions = random_dump(num_threads)
    for one in submissions:
        one["author"] = "asker"
    for one in comments:
        one["author"] = rng.choice(["asker", "ann", "ben", "RemindMeBot", "[deleted]", None])
        one["score"] = rng.choice([None, -3, 5])
        one["parent_id"] = rng.choice([one["parent_id"]] * 5 + ["t1_lost"])
        if rng.random() < 0.4:
            one["body"] = rng.choice(TEXTS)
    for thread in range(0, num_threads, 4):  # equal pairs except for case and white space
        link, question = f"t3_thread{thread}", f"q{thread}"
        body = rng.choice(["until nine", "Until  NINE"])
        comments.append(comment(question, link, "Is the pool open?", link=link))
        comments.append(comment(f"a{thread}", f"t1_{question}", body, link=link))
    comments += [comment("x", "t1_y", "half a cycle"), comment("y", "t1_x", "the other half")]
    comments += rng.sample(comments, 20)
    rng.shuffle(comments)
    return comments, submissions


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    """Skip drawing, the slowest step; the figure depends only on the report, which is compared."""
    monkeypatch.setattr(report_module, "draw", lambda _: b"a picture")


@pytest.fixture
def dumps_folder(write_dump, tmp_path):
    """Comments in four files with different compression, so that threads are split."""
    comments, submissions = _dump()
    bad = b'this is not JSON\n{"id": "\xff"}\n' + json_lines([{"id": "i"}])
    write_dump("dumps/RC_1.zst", json_lines(comments[:200]) + bad)
    write_dump("dumps/RC_2.bz2", comments[200:400])
    write_dump("dumps/RC_3.gz", comments[400:500])
    write_dump("dumps/RC_4", comments[500:])
    write_dump("dumps/RC_5", [])
    write_dump("dumps/RS_1.zst", submissions)
    dialogues = [[f"turn {turn} of dialogue {n}" for turn in range(13)] for n in range(10)]
    chats = [{"turns": turns, "source": "chat"} for turns in dialogues]
    write_dump("dumps/chats.jsonl.zst", chats)
    rows = "".join(f"Question number {number % 9}?,Answer {number}\n" for number in range(20))
    rows += "Question number 3?,Answer 3\n" * 5
    write_dump("dumps/faq.csv", rows.encode())
    return tmp_path / "dumps"


@pytest.fixture(autouse=True)
def context(monkeypatch):
    """The in-memory cluster that `prepare_with_spark` connects to."""
    in_memory = SparkInMemory()
    monkeypatch.setattr(driver, "cluster", lambda _: contextlib.nullcontext(in_memory))
    return in_memory


def _prepare(engine, folder, output, *, corpora=(), **options):
    names = {"dialogues": "chats.jsonl.zst", "pairs": "faq.csv"}
    return engine(
        find_files([f"{folder}/RC_*"]),
        str(output),
        submissions=find_files([f"{folder}/RS_*"]),
        corpora={name: [str(folder / names[name])] for name in corpora},
        options=PrepareOptions(num_shards=SHARDS, dev_fraction=0.1, **options),
    )


@pytest.mark.parametrize("kind", list(RULES))
def test_same_files_as_on_one_machine(dumps_folder, tmp_path, kind, context):
    corpora = ("dialogues", "pairs")
    for name, engine in (("local", local.prepare), ("spark", driver.prepare_with_spark)):
        _prepare(engine, dumps_folder, tmp_path / name, corpora=corpora, rules=RULES[kind])
    assert digests(tmp_path / "spark") == digests(tmp_path / "local")
    assert context.num_tasks > 30
    assert len(record_files(str(tmp_path / "spark"))) == 6
    report = json.loads((tmp_path / "spark" / "report.json").read_text())
    assert report["threads"]["duplicates"] == 20
    assert report["threads"]["cyclic"] == 2
    assert report["bad_lines"]["count"] == 3
    dropped = report["threads"]["dropped"]
    if kind == "clean":  # the dump triggers these rules
        assert {"response_by_bot", "self_reply", "response_low_score"} < set(dropped)
        assert dropped["duplicate_pair"] > 25
    else:  # the table of pairs has its own rules
        assert dropped["duplicate_pair"] == 5
    assert (kind == "more") == (tmp_path / "spark" / SINGLE_TEXTS).exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dumps", "local", "spark"]


def test_names_of_files_are_relative_to_the_driver(dumps_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(dumps_folder)
    for name, engine in (("local", local.prepare), ("spark", driver.prepare_with_spark)):
        report = engine(["RC_1.zst"], str(tmp_path / name))
        assert report["bad_lines"]["first"][0].startswith("RC_1.zst:")
    monkeypatch.chdir(tmp_path)
    assert digests("spark") == digests("local")
    states = {"RC_1.zst": file_state(str(dumps_folder / "RC_1.zst"))}
    place = str(dumps_folder)
    reading = tasks.Tasks(PrepareOptions(), folder="", working_folder=place, states=states)
    assert len(list(reading.read([("comments", "RC_1.zst")]))) > 150


@pytest.mark.parametrize("files", [1, 2])
def test_too_many_bad_lines_end_the_run_after_reading(write_dump, tmp_path, context, files):
    """Each of two files has too few bad lines to end the run by itself."""
    dump = json_lines(_dump(num_threads=40)[0]) + b"not JSON\n" * (4 // files)
    paths = [write_dump(f"in/RC_{number}", dump) for number in range(files)]
    options = PrepareOptions(max_bad_lines=4)
    driver.prepare_with_spark(paths, str(tmp_path / "allowed"), options=options)
    context.num_tasks = 0
    options = PrepareOptions(max_bad_lines=3)
    with pytest.raises(ValueError, match="More than 3 lines"):
        driver.prepare_with_spark(paths, str(tmp_path / "data"), options=options)
    assert context.num_tasks == context.defaultParallelism + files
    assert not (tmp_path / "data").exists()


def test_an_unreadable_file_is_an_error(write_dump, tmp_path):
    paths = [write_dump("RC_1", b"not JSON\n" * 9), write_dump("RC_2", _dump(num_threads=9)[0])]
    for engine in (local.prepare, driver.prepare_with_spark):
        with pytest.raises(ValueError, match=r"Hardly any line of .*RC_1 can be used"):
            engine(paths, str(tmp_path / "data"))


def _replaced(path):
    """Replace a dump by one of the same threads with other texts."""
    changed = [{**one, "body": f"other {one['id']}"} for one in _dump(num_threads=40)[0]]
    Path(f"{path}.new").write_bytes(json_lines(changed))
    os.replace(f"{path}.new", path)


@pytest.mark.parametrize("job", [1, 2, 3])
def test_a_file_that_is_replaced_before_it_is_read_again_ends_the_run(
    write_dump, tmp_path, context, job
):
    """Spark reads a file again if it loses the workers that hold the shuffle outputs."""
    paths = [write_dump("in/RC_1", _dump(num_threads=40)[0])]
    rules = Rules(**PRESETS["clean"])

    def lose_outputs(number):
        if number == job:
            _replaced(paths[0])
            context.lose_shuffles()

    context.after_job = lose_outputs
    with pytest.raises(FileChangedError, match=r"RC_1 was changed or replaced after this"):
        driver.prepare_with_spark(
            paths, str(tmp_path / "data"), options=PrepareOptions(rules=rules)
        )
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_lost_outputs_of_unchanged_files_change_nothing(dumps_folder, tmp_path, context):
    _prepare(local.prepare, dumps_folder, tmp_path / "local", rules=RULES["clean"])
    context.after_job = lambda _: context.lose_shuffles()
    _prepare(driver.prepare_with_spark, dumps_folder, tmp_path / "spark", rules=RULES["clean"])
    assert digests(tmp_path / "spark") == digests(tmp_path / "local")


def test_notes_of_a_repeated_reading_replace_those_of_the_first(
    write_dump, tmp_path, context, monkeypatch
):
    """If the check misses a change and a file is read again, the report covers the last reading."""
    path = write_dump("in/RC_1", _dump(num_threads=40)[0])
    monkeypatch.setattr(CountedFile, "check_unchanged", lambda _: None)

    def lose_outputs(number):
        if number == 2:
            Path(path).write_bytes(b"\n".join(Path(path).read_bytes().split(b"\n")[:50]))
            context.lose_shuffles()

    context.after_job = lose_outputs
    options = PrepareOptions(num_shards=SHARDS)
    report = driver.prepare_with_spark([path], str(tmp_path / "spark"), options=options)
    assert report["files"]["comments"][0]["lines"] == 50
    context.after_job = None
    assert report == local.prepare([path], str(tmp_path / "local"), options=options)


@pytest.mark.parametrize("engine", [local.prepare, driver.prepare_with_spark])
def test_a_file_that_changes_while_it_is_read_ends_the_run(
    write_dump, tmp_path, monkeypatch, engine
):
    paths = [write_dump(f"in/RC_{number}", _dump(num_threads=40)[0]) for number in (1, 2)]
    parse = rows.parse_comment

    def write_more(*arguments, **options):
        with open(paths[1], "ab") as file:
            file.write(b"\n")
        return parse(*arguments, **options)

    monkeypatch.setattr(rows, "parse_comment", write_more)
    with pytest.raises(FileChangedError, match="RC_2 was changed or replaced"):
        engine(paths, str(tmp_path / "data"))
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_full_disk_is_named_without_another_attempt(write_dump, tmp_path, monkeypatch, context):
    """Writing to `/dev/full` fails. Tasks return the error: Spark would retry if they raised it."""
    attempts = []

    def open_full(path, mode):
        attempts.append(path)
        return open("/dev/full", mode)

    dump = write_dump("in/RC", _dump(num_threads=40)[0])
    monkeypatch.setattr(tasks, "open", open_full, raising=False)
    with pytest.raises(FileWriteError, match=r"Cannot write '.*/scratch': No space left") as caught:
        driver.prepare_with_spark([dump], str(tmp_path / "data"))
    assert caught.value.errno == errno.ENOSPC
    assert attempts
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_workers_must_see_the_disk_and_have_the_same_version(tmp_path):
    def problems(folder=str(tmp_path), files=(__file__,), version=__version__):
        return [*problems_of_worker(folder, files, ["zstandard"], version, [])]

    assert problems() == []
    assert "does not see '/no/such/file'" in problems(files=["/no/such/file"])[0]
    assert "does not see '/no/such/folder'" in problems(folder="/no/such/folder")[0]
    assert "but this machine has 0.0" in problems(version="0.0")[0]


def test_a_worker_that_does_not_see_the_disk_ends_the_run(write_dump, tmp_path, monkeypatch):
    dump = write_dump("RC", _dump(num_threads=9)[0])
    exists = os.path.exists
    monkeypatch.setattr(
        os.path, "exists", lambda path: "seen-by-workers" not in str(path) and exists(path)
    )
    with pytest.raises(OSError, match="Put input and output on a disk that all workers share"):
        driver.prepare_with_spark([dump], str(tmp_path / "data"))


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("[PYTHON_VERSION_MISMATCH] 3.9 is not 3.11", "Set PYSPARK_PYTHON to the path of a Python"),
        ('Cannot run program "/a/python": error=2', 'tasks (Cannot run program "/a/python")'),
        ("ModuleNotFoundError: No module named 'convert_tf'", "(No module named 'convert_tf')"),
        ("...\n\tat x\nOSError: [Errno 28] No space left\n", "on M failed: OSError: [Errno 28]"),
        ("at\nconvert_tf.storage.lines.FileChangedError: RC_1 was changed\n", "RC_1 was changed"),
        (
            "(TID 7) (10.0.0.3 executor 1): java.io.IOException: No space left on device\n",
            "A disk of worker 10.0.0.3 of M is full. Free space in the folders for Spark's temp",
        ),
        ("OSError: [Errno 28] No space left on device\n", "A disk of a worker of M is full"),
        ("called x\n: org.S: bad\n\tat x", "Spark failed on M: org.S: bad"),
        ("x\n: o.SparkException: [E] No master\n\tat", "Spark failed on M: [E] No master"),
        ("[JAVA_GATEWAY_EXITED] exited", "Spark did not start with --master=M"),
        ("Cannot call methods on a stopped SparkContext.", "M does not answer as a Spark master"),
    ],
)
def test_errors_of_spark_become_one_sentence(said, sentence):
    found = cluster_module._sentence(RuntimeError(said), "M")
    assert sentence in found
    assert "\n" not in found


@pytest.mark.parametrize(
    ("options", "is_named"),
    [
        (None, False),
        ("--conf spark.ui.enabled=false pyspark-shell", False),
        ("", True),
        ("--conf spark.ui.enabled=false", True),
        ("pyspark-shell --conf spark.ui.enabled=false", True),
    ],
)
def test_options_that_keep_spark_from_starting_are_named(options, is_named, monkeypatch):
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    if options is not None:
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", options)
    found = cluster_module._sentence(RuntimeError("[JAVA_GATEWAY_EXITED] exited"), "M")
    assert ("Add pyspark-shell as the last word of PYSPARK_SUBMIT_ARGS" in found) == is_named
    assert ("Check the address" in found) != is_named


def test_an_unreachable_master_and_a_missing_java_are_said(monkeypatch, tmp_path):
    monkeypatch.setattr(cluster_module.shutil, "which", lambda _: "/usr/bin/java")
    with pytest.raises(OSError, match=r"spark://127.0.0.1:1 cannot be reached .*refused"):
        cluster_module._check_reachable("spark://127.0.0.1:1")
    with pytest.raises(OSError, match=r"spark://no\.port cannot be reached"):
        cluster_module._check_reachable("spark://no.port")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        cluster_module._check_reachable(f"spark://127.0.0.1:1,127.0.0.1:{port}")
    cluster_module._check_reachable("local[2]")
    monkeypatch.setattr(cluster_module.shutil, "which", lambda _: None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(OSError, match="needs Java 17"):
        cluster_module._check_reachable("local[2]")
