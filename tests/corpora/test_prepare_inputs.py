"""Bad lines, a run that is killed, the report, and token ids."""

import hashlib
import json
import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.dump_files import comment, json_lines

from convert_tf.corpora.local import PrepareOptions, prepare
from convert_tf.data.token_arrays import ArrayFolder
from convert_tf.text.vocabulary import write_vocabulary

SMALL = {"train": 2, "dev": 1, "test": 1}


def _digest(folder):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in Path(folder).iterdir()
        if path.name != "report.json"  # names the files of the input
    }


def _some_comments(num_threads=40):
    rng = random.Random(0)
    lines = []
    for thread in range(num_threads):
        link = f"t3_thread{thread}"
        parents = [link]
        for _ in range(rng.randrange(2, 12)):
            name = f"c{len(lines)}"
            lines.append(comment(name, rng.choice(parents), f"remark number {name}", link=link))
            parents.append(f"t1_{name}")
    return lines


def test_max_bad_lines_names_the_first_ones(write_dump, tmp_path):
    good = json_lines(_some_comments())
    first = write_dump("RC_1", b"not json\n" + good)
    second = write_dump("RC_2", good + b'{"id": "a"}\n[]\n')
    output = tmp_path / "data"
    prepare([first, second], str(output), options=PrepareOptions(max_bad_lines=3))
    options = PrepareOptions(max_bad_lines=2)
    with pytest.raises(ValueError, match="More than 2 lines cannot be used") as caught:
        prepare([first, second], str(tmp_path / "other"), options=options)
    lines = good.count(b"\n")
    assert f"{first}:1 (not_json)" in str(caught.value)
    assert f"{second}:{lines + 1} (missing_link_id)" in str(caught.value)
    assert f"{second}:{lines + 2} (not_an_object)" in str(caught.value)
    assert "--max_bad_lines" in str(caught.value)
    assert not (tmp_path / "other").exists()


KILLED = """
    import os, signal, sys
    from convert_tf.data import records
    from convert_tf.corpora import sorting as grouping
    from convert_tf.corpora import local as local_runner
    from convert_tf.corpora.local import PrepareOptions, prepare

    stage, dump, output = sys.argv[1:]
    where = {
        "reading": (grouping.ExternalSorter, "add"),
        "writing": (records, "serialize_example"),
        "report": (local_runner.report, "draw"),
    }[stage]
    function, calls = getattr(*where), iter(range(10_000))

    def dies(*arguments, **named):
        if next(calls) == (0 if stage == "report" else 100):
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **named)

    setattr(*where, dies)
    shards = {"train": 2, "dev": 1, "test": 1}
    prepare([dump], output, options=PrepareOptions(num_shards=shards))
"""


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["reading", "writing", "report"])
def test_after_a_kill_the_same_command_gives_the_same_bytes(write_dump, tmp_path, stage):
    dump = write_dump("in/RC.zst", _some_comments())
    options = PrepareOptions(num_shards=SMALL)
    prepare([dump], str(tmp_path / "whole"), options=options)
    output = tmp_path / "killed"
    command = [sys.executable, "-c", textwrap.dedent(KILLED), stage, dump, str(output)]
    done = subprocess.run(command, check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not output.exists()
    prepare([dump], str(output), options=options)
    assert _digest(output) == _digest(tmp_path / "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "killed", "whole"]


def test_report_counts_sources_lengths_and_history(write_dump, tmp_path):
    dump = write_dump("RC", _some_comments())
    chats = tmp_path / "chats.jsonl"
    turns = [["how do you do today?", "very well, thank you", "glad to hear that"]] * 1
    chats.write_text("".join(json.dumps({"turns": one}) + "\n" for one in turns))
    report = prepare(
        [dump],
        str(tmp_path / "data"),
        corpora={"dialogues": [str(chats)]},
        options=PrepareOptions(num_shards=SMALL),
    )
    assert set(report["examples"]) == {"chats", "reddit"}
    assert sum(report["examples"]["chats"].values()) == 2
    total = sum(one["examples"] for one in report["splits"].values())
    assert sum(report["history"]) == total == report["threads"]["examples"]
    counts = [report["sources"][name]["comments"] for name in ("chats", "reddit")]
    assert counts[0] == 3 and sum(counts) == report["threads"]["comments"]
    assert report["rules"]["dialogues"]["max_context_length"] == 127
    lengths = report["lengths"]["response"]
    assert sum(lengths["histogram"]) == lengths["texts"] == report["splits"]["train"]["examples"]
    # "remark number c12" is three words, with digits apart.
    assert 3 <= lengths["percentiles"]["50"] <= 8
    assert (tmp_path / "data" / "report.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def vocabulary(tmp_path):
    """Subwords of one character."""
    path = tmp_path / "vocab.txt"
    characters = "abcdefghijklmnopqrstuvwxyz0123456789"
    write_vocabulary(path, [*characters, *(f"﹏{one}" for one in characters)])
    return path


def test_a_vocabulary_gives_lengths_and_token_ids(write_dump, tmp_path, vocabulary):
    dump, output = write_dump("RC", _some_comments()), tmp_path / "data"
    options = PrepareOptions(num_shards=SMALL)
    report = prepare(
        [dump], str(output), options=options, vocabulary=str(vocabulary), tokenize=True
    )
    assert report["lengths"]["vocabulary"] == "vocab.txt"
    # A subword is a character here. "remark number c100" has 16 without its spaces.
    assert 14 <= report["lengths"]["context"]["percentiles"]["50"] <= 16
    examples = ArrayFolder(str(output / "ids")).open("train", max_tokens=60)
    assert examples.num_examples == report["splits"]["train"]["examples"]
    prepare([dump], str(output), options=options, overwrite=True)
    assert not (output / "ids").exists()  # they belonged to the old records
    with pytest.raises(ValueError, match="--tokenize needs --vocab"):
        prepare([dump], str(tmp_path / "other"), options=options, tokenize=True)
