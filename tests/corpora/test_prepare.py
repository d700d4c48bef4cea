import itertools
import json
import random
from pathlib import Path

import pytest
import zstandard
from support.dump_files import comment, digests, json_lines, random_dump
from support.record_files import read_examples

from convert_tf.corpora.comments import Rules
from convert_tf.corpora.data_folder import SINGLE_TEXTS, table
from convert_tf.corpora.local import prepare
from convert_tf.corpora.options import PrepareOptions
from convert_tf.corpora.threads import split_of
from convert_tf.data.shards import list_shards
from convert_tf.data.token_arrays import ArrayFolder
from convert_tf.data.utterances import UtteranceFiles
from convert_tf.text.vocabulary import write_vocabulary

SMALL = {"train": 2, "dev": 1, "test": 1}


def _read(folder, split):
    return read_examples(list_shards(str(folder), split))


@pytest.fixture
def prepared(write_dump, tmp_path):
    """Return a function that prepares dumps and returns the report and the data folder."""

    def run(comments, submissions=(), *, name="data", rules=None, corpora=None, **options):
        dump, titles = write_dump(f"{name}.RC", comments), write_dump(f"{name}.RS", submissions)
        options = PrepareOptions(**{"rules": Rules(**rules or {}), "num_shards": SMALL, **options})
        output = tmp_path / name
        titles = [titles] if submissions else []
        report = prepare([dump], str(output), submissions=titles, corpora=corpora, options=options)
        return report, output

    return run


def _pairs(folder, split):
    return [(one["context"].decode(), one["response"].decode()) for one in _read(folder, split)]


def test_round_trip(write_dump, tmp_path, capsys):
    # 5h6yvl is a train thread, 41ar0l is a test thread.
    dump = write_dump(
        "dumps/RC_1.zst",
        json_lines(
            [
                comment("a", "t3_5h6yvl", "top level comment"),
                comment("b", "t1_a", "first answer &amp; more"),
                comment("c", "t1_b", "[deleted]"),
                comment("d", "t1_c", "an answer to a deleted one"),
                comment("e", "t1_lost", "an orphan of some length"),
                comment("f", "t1_g", "one half of a cycle"),
                comment("g", "t1_f", "other half of a cycle"),
                comment("b", "t1_a", "[deleted]"),
                comment("h", "t1_a", "M" * 2**20),
                {"id": "i", "link_id": "t3_5h6yvl", "parent_id": "t1_a"},
            ]
        )
        + b"this is not JSON\n"
        + b'{"id": "\xff"}\n',
    )
    others = write_dump(
        "dumps/RC_2.bz2",
        [
            comment("j", "t3_41ar0l", "the other thread", link="t3_41ar0l"),
            comment("k", "t1_j", "has one answer", link="t3_41ar0l", author=None),
        ],
    )
    empty = write_dump("dumps/RC_3.gz", [])
    title = {"id": "5h6yvl", "title": "a title &gt; others", "author": "asker", "subreddit": "s"}
    titles = write_dump("dumps/RS_1.zst", [title])
    output = tmp_path / "data"
    options = PrepareOptions(rules=Rules(unescape_html=True), num_shards=SMALL)
    prepare([dump, others, empty], str(output), submissions=[titles], options=options)
    assert "RC_3.gz: nothing in this file could be used" in capsys.readouterr().err
    shards = ("test-00000-of-00001", "train-00000-of-00002", "train-00001-of-00002")
    assert sorted(path.name for path in output.iterdir()) == [
        *("report.json", "report.png"),
        *(f"{shard}.tfrecord" for shard in shards),
    ]
    found = {
        (one["context"].decode(), one["response"].decode(), one["extra_contexts"][0].decode())
        for one in _read(output, "train")
    }
    assert found == {
        ("a title > others", "top level comment", ""),
        ("top level comment", "first answer & more", "a title > others"),
    }
    (test,) = _read(output, "test")
    assert (test["context"], test["response"]) == (b"the other thread", b"has one answer")
    assert (test["thread_id"], test["response_author"]) == (b"41ar0l", b"")

    report = json.loads((output / "report.json").read_text())
    assert report["threads"] == {
        "threads": 2,
        "titles": 1,
        "comments": 11,
        "duplicates": 1,
        "top_level": 1,
        "orphans": 1,
        "cyclic": 2,
        "examples": 3,
        "dropped": {"response_deleted": 1, "context_deleted": 1, "response_too_long": 1},
        "changed": {"unescape_html": 2},
    }
    assert report["sources"] == {"reddit": report["threads"]}
    assert report["examples"] == {"reddit": {"train": 2, "dev": 0, "test": 1}}
    assert report["history"] == [2, 1] + [0] * 9
    assert report["bad_lines"]["count"] == 3
    assert report["bad_lines"]["first"][0] == f"{dump}:10 (missing_body)"
    assert report["splits"]["test"] == {"examples": 1, "threads": 1}
    first = report["files"]["comments"][0]
    assert (first["file"], first["kind"], first["lines"]) == (Path(dump).name, "zst", 12)
    assert first["skipped"] == {"invalid_utf8": 1, "missing_body": 1, "not_json": 1}
    printed = dict(line.rsplit(maxsplit=1) for line in table(report).splitlines())
    assert printed["train examples"] == "2"
    assert printed["skipped: missing_body"] == "1"
    assert printed["dropped: response_too_long"] == "1"


def test_same_bytes_whatever_the_order_and_packing_of_the_input(write_dump, tmp_path):
    comments, submissions = random_dump(300)
    one = [write_dump("one/RC.zst", comments)]
    titles = [write_dump("one/RS.gz", submissions)]
    shuffled = random.Random(1).sample(comments, len(comments))
    two = [write_dump("two/RC_b.gz", shuffled[:500]), write_dump("two/RC_a", shuffled[500:])]
    options = PrepareOptions(dev_fraction=0.1, num_shards={"train": 3, "dev": 1, "test": 2})
    prepare(one, str(tmp_path / "d1"), submissions=titles, options=options)
    prepare(one, str(tmp_path / "d2"), submissions=titles, options=options)
    prepare(two, str(tmp_path / "d3"), submissions=titles, options=options)
    first, second, third = (digests(tmp_path / name) for name in ("d1", "d2", "d3"))
    assert len(first) == 8
    assert first == second
    del first["report.json"], third["report.json"]  # these name the input files
    assert first == third


def test_threads_are_whole_in_their_split_and_mixed_in_their_shards(prepared):
    shards = {"train": 4, "dev": 1, "test": 1}
    report, data = prepared(*random_dump(300, seed=3), dev_fraction=0.2, num_shards=shards)
    split_of_thread = {}
    for split in ("train", "dev", "test"):
        examples = _read(data, split)
        assert len(examples) == report["splits"][split]["examples"]
        for one in examples:
            assert split_of_thread.setdefault(one["thread_id"], split) == split
        number = list(split_of_thread.values()).count(split)
        assert number == report["splits"][split]["threads"] > 10
    threads = [one["thread_id"] for one in _read(data, "train")]
    assert sum(a == b for a, b in itertools.pairwise(threads)) < len(threads) // 50
    for path in list_shards(str(data), "train"):
        assert 0.15 < len(read_examples([path])) / len(threads) < 0.35


def test_max_bad_lines_names_the_first_ones(write_dump, tmp_path):
    good = json_lines(random_dump(40)[0])
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


def test_the_first_unusable_line_of_each_file_is_printed(write_dump, tmp_path):
    good = json_lines(random_dump(40)[0])
    first = write_dump("RC_1", b"not json\n" * 6 + good)
    second = write_dump("RC_2", good + b'{"id": "a"}\n[]\n')
    whole = write_dump("RC_3", good)
    report = prepare([first, second, whole], str(tmp_path / "data"))
    lines = good.count(b"\n")
    place = f"{second}:{lines + 1} (missing_link_id)"
    assert [one["first_bad"] for one in report["files"]["comments"]] == [
        f"{first}:1 (not_json)",
        place,
        "",
    ]
    named = [*(f"{first}:{number} (not_json)" for number in range(1, 6)), place]
    printed = table(report).partition("first unusable lines:\n")[2]
    assert printed.splitlines() == [f"  {one}" for one in named]


def test_report_counts_sources_lengths_and_history(write_dump, prepared):
    turns = ["how do you do today?", "very well, thank you", "glad to hear that"]
    corpora = {"dialogues": [write_dump("chats.jsonl", [{"turns": turns}])]}
    report, data = prepared(random_dump(40)[0], corpora=corpora)
    assert set(report["examples"]) == {"chats", "reddit"}
    assert sum(report["examples"]["chats"].values()) == 2
    total = sum(one["examples"] for one in report["splits"].values())
    assert sum(report["history"]) == total == report["threads"]["examples"]
    counts = [report["sources"][name]["comments"] for name in ("chats", "reddit")]
    assert counts[0] == 3 and sum(counts) == report["threads"]["comments"]
    assert report["rules"]["dialogues"]["max_context_length"] == 127
    lengths = report["lengths"]["response"]
    assert sum(lengths["histogram"]) == lengths["texts"] == report["splits"]["train"]["examples"]
    # "remark number c12" counts as three words, or more if digits are separate.
    assert 3 <= lengths["percentiles"]["50"] <= 8
    assert (data / "report.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def vocabulary(tmp_path):
    """A vocabulary of single characters."""
    path = tmp_path / "vocab.txt"
    characters = "abcdefghijklmnopqrstuvwxyz0123456789"
    write_vocabulary(path, [*characters, *(f"﹏{one}" for one in characters)])
    return path


def test_a_vocabulary_gives_lengths_and_token_ids(write_dump, tmp_path, vocabulary):
    dump, output = write_dump("RC", random_dump(40)[0]), tmp_path / "data"
    options = PrepareOptions(num_shards=SMALL)
    report = prepare(
        [dump], str(output), options=options, vocabulary=str(vocabulary), tokenize=True
    )
    assert report["lengths"]["vocabulary"] == "vocab.txt"
    # A subword is a character here. "remark number c100" has 16 characters without spaces.
    assert 14 <= report["lengths"]["context"]["percentiles"]["50"] <= 16
    examples = ArrayFolder(str(output / "ids")).open("train", max_tokens=60)
    assert examples.num_examples == report["splits"]["train"]["examples"]
    with pytest.raises(ValueError, match="--tokenize needs --vocab"):
        prepare([dump], str(tmp_path / "other"), options=options, tokenize=True)


def test_files_of_an_earlier_run_are_replaced_together(write_dump, tmp_path, vocabulary):
    dump, output = write_dump("RC", random_dump(40)[0]), tmp_path / "data"
    temporary = tmp_path / "temporary"
    options = PrepareOptions(rules=Rules(single_texts=True), temp_dir=str(temporary))
    prepare([dump], str(output), options=options, vocabulary=str(vocabulary), tokenize=True)
    assert len(list_shards(str(output), "train")) == 16
    assert {"ids", SINGLE_TEXTS} < {path.name for path in output.iterdir()}
    assert list(temporary.iterdir()) == []
    (output / "notes.txt").write_text("mine")
    prepare([dump], str(output), options=PrepareOptions(num_shards=SMALL), overwrite=True)
    shards = [
        f"{split}-{n:05d}-of-{SMALL[split]:05d}" for split in SMALL for n in range(SMALL[split])
    ]
    assert {path.name for path in output.iterdir()} == {
        *("notes.txt", "report.json", "report.png"),
        *(f"{shard}.tfrecord" for shard in shards),
    }


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "yields no examples. It has 0 usable"),
        ([comment(f"c{n}", "t3_5h6yvl", "a lonely comment") for n in range(5)], "has 5 usable"),
        (
            [{"id": "5h6yvl", "title": "of a submission"}],
            "Hardly any line .*missing_link_id.* pass --max_bad_lines",
        ),
    ],
)
def test_input_without_examples_is_an_error(write_dump, tmp_path, lines, message):
    with pytest.raises(ValueError, match=message):
        prepare([write_dump("RC", lines)], str(tmp_path / "data"))
    assert [path.name for path in tmp_path.iterdir()] == ["RC"]


@pytest.mark.parametrize("num_shards", [{"train": 0, "dev": 1, "test": 1}, {"train": 1}])
def test_impossible_numbers_of_shards(num_shards):
    with pytest.raises(ValueError, match="num_shards must be at least 1"):
        PrepareOptions(num_shards=num_shards)


SENTENCE = "This is sentence number {} of many."
LONG = " ".join(SENTENCE.format(n) for n in range(100, 110))  # ten, 36 characters each


def _single_texts(folder):
    data = (folder / SINGLE_TEXTS).read_bytes()
    text = zstandard.ZstdDecompressor().stream_reader(data).read().decode()
    return [json.loads(line) for line in text.splitlines()]


def _dump():
    """Return threads with posts and long texts, and an orphan in each."""
    rng = random.Random(0)
    comments, submissions = random_dump(120)
    for one in submissions:
        one["selftext"] = f"Post {one['id'].removeprefix('thread')}. {LONG}"
    for one in comments:
        if rng.random() < 0.2:
            one["body"] = f"{LONG} It was remark {one['id']}."
    for n in range(120):
        comments.append(comment(f"o{n}", "t1_lost", f"an orphan {n}", link=f"t3_thread{n}"))
    return comments, submissions


def test_dev_and_test_get_no_further_pairs_and_give_no_texts(prepared):
    rules = {"deduplicate": "folded", "long": "cut"}
    one, plain = prepared(*_dump(), name="one", dev_fraction=0.1, rules=rules)
    rules |= {"more_pairs": True, "single_texts": True}
    two, more = prepared(*_dump(), name="two", dev_fraction=0.1, rules=rules)
    assert len(_pairs(more, "train")) > 1.5 * len(_pairs(plain, "train"))
    for split in ("dev", "test"):
        name = f"{split}-00000-of-00001.tfrecord"
        assert (more / name).read_bytes() == (plain / name).read_bytes()
        assert len(_pairs(more, split)) > 20
    assert not (plain / SINGLE_TEXTS).exists()
    assert {*_pairs(plain, "train")} < {*_pairs(more, "train")}
    additional = two["threads"].pop("additional")
    assert additional == len(_pairs(more, "train")) - len(_pairs(plain, "train"))
    assert two["threads"] == one["threads"] | {"changed": two["threads"]["changed"]}
    # All texts of a thread are in the same split.
    held_out = {n for n in range(120) if split_of(f"thread{n}", dev_fraction=0.1) != "train"}
    texts = [row["text"] for row in _single_texts(more)]
    train = {*range(120)} - held_out
    assert {int(text[10:]) for text in texts if text.startswith("an orphan")} == train
    assert {int(text[5:-1]) for text in texts if text.startswith("Post ")} <= train


def test_a_further_pair_never_replaces_a_usual_one(prepared):
    # The two turns of a train thread are one turn in a test thread with a greater id.
    comments = [
        comment("a", "t1_lost", "the first turn"),
        comment("b", "t1_a", "the second"),
        comment("c", "t1_b", "the third one"),
        comment("d", "t1_lost", "the first turn the second", link="t3_zz15"),
        comment("e", "t1_d", "the third one", link="t3_zz15"),
    ]
    assert split_of("zz15") == "test"
    report, data = prepared(comments, rules={"deduplicate": "folded", "more_pairs": True})
    assert _pairs(data, "test") == [("the first turn the second", "the third one")]
    assert len(_pairs(data, "train")) == 2
    assert report["threads"].get("additional", 0) == 0


def test_single_texts_are_what_no_example_holds(prepared):
    comments = [
        comment("a", "t3_5h6yvl", "a comment of the top"),
        comment("b", "t1_a", "an answer to it"),
        comment("c", "t1_b", "[deleted]"),
        comment("d", "t1_c", "an answer to a deleted one"),
        comment("e", "t1_lost", "an orphan"),
        comment("f", "t1_lost", "an orphan"),
        comment("g", "t1_lost", "short"),
        comment("h", "t1_lost", LONG),
        comment("i", "t1_lost", "I am a bot, beep boop", author="helper_bot"),
        comment("j", "t1_lost", "an orphan in the test split", link="t3_41ar0l"),
        comment("k", "t1_lost", "[ Removed by Reddit ]"),
    ]
    submissions = [
        {"id": "5h6yvl", "title": "[deleted by user]", "selftext": "What is left of a post"},
        {"id": "alone1", "title": "A title nobody answered", "selftext": ""},
    ]
    rules = {"deduplicate": "folded", "single_texts": True, "drop_bots": True}
    report, data = prepared(comments, submissions, rules=rules)
    assert split_of("alone1") == "train"
    rows = _single_texts(data)
    expected = {
        "an answer to a deleted one",
        "an orphan",
        "What is left of a post",
        "A title nobody answered",
        *(SENTENCE.format(n) for n in range(100, 110)),
    }
    assert len(rows) == len(expected)
    assert {row["text"] for row in rows} == expected
    assert {row["source"] for row in rows} == {"reddit"}
    assert report["single_texts"] == {"reddit": len(expected)}
    assert len(list(UtteranceFiles([str(data / SINGLE_TEXTS)]))) == len(expected)


def test_of_equal_pairs_the_one_of_the_smallest_thread_id_is_kept(prepared):
    lines = []
    for thread in ("41ar0l", "5h6yvl", "zzz"):  # test, train, train
        link = f"t3_{thread}"
        lines.append(comment(f"{thread}a", link, "the same question", link=link))
        lines.append(comment(f"{thread}b", f"t1_{thread}a", "the same  ANSWER", link=link))
        lines.append(comment(f"{thread}c", f"t1_{thread}a", f"an answer in {thread}", link=link))
    report, data = prepared(lines, rules={"deduplicate": "folded"})
    examples = [*_read(data, "train"), *_read(data, "test")]
    assert sorted((one["thread_id"], one["response"]) for one in examples) == [
        (b"41ar0l", b"an answer in 41ar0l"),
        (b"41ar0l", b"the same  ANSWER"),
        (b"5h6yvl", b"an answer in 5h6yvl"),
        (b"zzz", b"an answer in zzz"),
    ]
    assert report["threads"]["dropped"] == {"duplicate_pair": 2}
    assert report["threads"]["examples"] == 4
