from collections import Counter
from pathlib import Path

import pytest
from support.record_files import read_pairs

from convert_tf.corpora.comments import Rules, parse_comment, parse_submission
from convert_tf.corpora.dumps import CountedFile, read_objects
from convert_tf.corpora.local import prepare
from convert_tf.corpora.sample import write_sample
from convert_tf.storage.json_text import json_file


def _words(text):
    return {word.strip(".,?!:;").lower() for word in text.decode().split()} - {""}


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """Paths of the comments, the submissions and the data folder prepared from them."""
    folder = tmp_path_factory.mktemp("sample")
    comments, submissions = write_sample(str(folder))
    prepare([comments], str(folder / "data"), submissions=[submissions])
    return comments, submissions, folder / "data"


def test_dumps_hold_what_reddit_dumps_hold(sample):
    comments, submissions = ([*read_objects(CountedFile(path))] for path in sample[:2])
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


def test_rules_have_something_to_count(sample):
    report = json_file(sample[2] / "report.json")
    counts = report["threads"]
    assert counts["orphans"] > 10
    reasons = {"response_deleted", "context_deleted", "response_too_long", "response_too_short"}
    assert all(counts["dropped"][reason] > 10 for reason in reasons)
    assert not counts["cyclic"] and not counts["top_level"]
    sizes = {split: one["examples"] for split, one in report["splits"].items()}
    assert sizes["train"] > 5000 and sizes["dev"] > 50 and sizes["test"] >= 600


def test_responses_are_not_found_by_their_words(sample):
    contexts, responses = read_pairs(str(sample[2]), "test")
    # Test examples rarely share a response, and test is not a copy of train.
    assert len({*responses}) > 0.95 * len(responses)
    test, train = {*zip(contexts, responses, strict=True)}, read_pairs(str(sample[2]), "train")
    assert len(test & {*zip(*train, strict=True)}) < 0.1 * len(test)
    hits, num_asked = 0, len(contexts) // 100 * 100
    for index in range(num_asked):
        start = index // 100 * 100
        context = _words(contexts[index])
        shared = [len(context & _words(response)) for response in responses[start : start + 100]]
        hits += max(shared) == shared[index - start] and shared.count(max(shared)) == 1
    assert hits / num_asked < 0.15
