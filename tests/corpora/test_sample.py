import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from support.record_files import read_examples

from convert_tf.corpora.comments import Rules, parse_comment, parse_submission
from convert_tf.corpora.dumps import CountedFile, read_objects
from convert_tf.corpora.local import prepare
from convert_tf.corpora.sample import write_sample
from convert_tf.data.shards import list_shards


def _words(text):
    return {word.strip(".,?!:;").lower() for word in text.split()} - {""}


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sample")
    command = [sys.executable, "-m", "convert_tf", "sample", "--output", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def pairs(sample):
    output = sample / "data"
    report = prepare(
        [str(sample / "RC_sample.zst")],
        str(output),
        submissions=[str(sample / "RS_sample.zst")],
    )
    pairs = {
        split: [
            (one["context"].decode(), one["response"].decode())
            for one in read_examples(list_shards(str(output), split))
        ]
        for split in ("train", "dev", "test")
    }
    return pairs, report


def test_dumps_hold_what_reddit_dumps_hold(sample):
    file = CountedFile(str(sample / "RC_sample.zst"))
    comments = list(read_objects(file))
    submissions = list(read_objects(CountedFile(str(sample / "RS_sample.zst"))))
    assert file.kind == "zst" and not file.skipped
    assert len(submissions) == 4000
    assert 6000 < len(comments) < 12_000
    ids = [one["id"] for one in comments + submissions]
    assert len(set(ids)) == len(ids)
    links = {f"t3_{one['id']}" for one in submissions}
    for one in comments:
        parse_comment(one, Rules(), changed=Counter())
        assert one["link_id"] in links
    titles = [parse_submission(one, Rules(), changed=Counter())[0].body for one in submissions]
    assert all(9 <= len(title) <= 127 for title in titles)
    assert any("&amp;" in one["title"] for one in submissions)


def test_same_seed_same_files(tmp_path):
    paths = [
        write_sample(str(tmp_path / name), seed=seed, num_threads=200)
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    first, again, other = ([Path(path).read_bytes() for path in three] for three in paths)
    assert first == again
    assert first[0] != other[0]
    with pytest.raises(ValueError, match="Received: 1000000"):
        write_sample(str(tmp_path), num_threads=1_000_000)


def test_rules_have_something_to_count(pairs):
    counts = pairs[1]["threads"]
    assert counts["orphans"] > 10
    for reason in (
        "response_deleted",
        "context_deleted",
        "response_too_long",
        "response_too_short",
    ):
        assert counts["dropped"][reason] > 10
    assert not counts["cyclic"] and not counts["top_level"]


def test_enough_pairs_to_learn_from_and_to_test_on(pairs):
    splits = pairs[0]
    assert len(splits["train"]) > 5000
    assert len(splits["dev"]) > 50
    assert len(splits["test"]) >= 600
    # Hundred test examples hardly ever share a response, and test is not a copy of train.
    responses = [response for _, response in splits["test"]]
    assert len(set(responses)) > 0.95 * len(responses)
    assert len(set(splits["test"]) & set(splits["train"])) < 0.1 * len(splits["test"])


def test_word_overlap_does_not_find_the_response(pairs):
    test = pairs[0]["test"]
    hits, asked = 0, 0
    for start in range(0, len(test) - 99, 100):
        batch = [(_words(context), _words(response)) for context, response in test[start:][:100]]
        for index, (context, response) in enumerate(batch):
            own = len(context & response)
            hits += all(
                own > len(context & other)
                for position, (_, other) in enumerate(batch)
                if position != index
            )
            asked += 1
    assert asked >= 600
    assert hits / asked < 0.15
