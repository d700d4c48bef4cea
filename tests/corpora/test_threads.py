import hashlib
import random

import pytest

from convert_tf.corpora.comments import TITLE_ID, Comment, Rules
from convert_tf.corpora.threads import ThreadCounts, create_examples, split_of

RULES = Rules()


def _turn(turn_id, parent_id, body=None, *, is_trimmed=False):
    body = f"the body of {turn_id}" if body is None else body
    return Comment(turn_id, "5h6yvl", parent_id, body, is_trimmed, f"author {turn_id}", "tests")


def _title(body="the title of it all"):
    return _turn(TITLE_ID, None, body)


def _examples(turns, rules=RULES):
    counts = ThreadCounts()
    return {one.response_id: one for one in create_examples(turns, rules, counts=counts)}, counts


def _check_sum(counts):
    assert counts.comments == (
        counts.duplicates
        + counts.top_level
        + counts.orphans
        + counts.cyclic
        + sum(counts.dropped.values())
        + counts.examples
    )


def test_pairs_and_extra_contexts_of_a_small_thread():
    turns = [_turn("a", TITLE_ID), _turn("b", "a"), _turn("c", "b"), _turn("d", "b")]
    examples, counts = _examples([*turns, _title()])
    found = {key: (one.context, one.response, one.extra_contexts) for key, one in examples.items()}
    title = "the title of it all"
    a, b, c, d = (f"the body of {key}" for key in "abcd")
    assert found == {
        "a": (title, a, ()),
        "b": (a, b, (title,)),
        "c": (b, c, (a, title)),
        "d": (b, d, (a, title)),
    }
    assert (counts.threads, counts.titles, counts.examples) == (1, 1, 4)
    one = examples["b"]
    assert (one.thread_id, one.subreddit) == ("5h6yvl", "tests")
    assert (one.context_author, one.response_author) == ("author a", "author b")


def test_path_holds_eleven_comments_and_the_title_above_them():
    turns = [_title(), _turn("0", TITLE_ID)]
    turns += [_turn(str(n), str(n - 1)) for n in range(1, 14)]
    examples, _ = _examples(turns)
    bodies = [turn.body for turn in turns]
    # Comment 10 is the eleventh: comments 0 to 8 are its extra contexts, and the title.
    assert list(examples["10"].extra_contexts) == bodies[9::-1]
    assert len(examples["10"].extra_contexts) == 10
    # Comment 11 is the twelfth: its path starts at comment 1 and does not reach the title.
    assert list(examples["11"].extra_contexts) == bodies[10:1:-1]
    assert len(examples["11"].extra_contexts) == 9


@pytest.mark.parametrize(
    ("body", "is_trimmed", "reason"),
    [
        ("12345678", False, "too_short"),
        ("123456789", False, None),
        ("x" * 127, False, None),
        ("x" * 127, True, "too_long"),
        ("[deleted]", False, "deleted"),
        ("[removed]", False, "deleted"),
        ("[deleted] ", False, None),
        ("", False, "too_short"),
    ],
)
def test_skip_rules_for_response_and_context(body, is_trimmed, reason):
    odd = _turn("odd", "a", body, is_trimmed=is_trimmed)
    turns = [_turn("a", TITLE_ID), odd, _turn("b", "odd"), _turn("c", "b")]
    examples, counts = _examples(turns)
    if reason is None:
        assert set(examples) == {"odd", "b", "c"}
        assert not counts.dropped
    else:
        # Further up the path a turn of any length and kind is an extra context.
        assert set(examples) == {"c"}
        assert counts.dropped == {f"response_{reason}": 1, f"context_{reason}": 1}
    assert examples["c"].extra_contexts == (body, "the body of a")


def test_copies_of_an_id_are_resolved_whatever_their_order():
    copies = [
        _turn("b", "a", "[deleted]"),
        _turn("b", "a", "the longer second version"),
        _turn("b", "a", "the first version"),
    ]
    for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2]):
        turns = [_turn("a", TITLE_ID), *(copies[index] for index in order)]
        examples, counts = _examples(turns)
        assert examples["b"].response == "the first version"
        assert counts.duplicates == 2
        _check_sum(counts)


def _naive_examples(turns, max_comments):
    """From the roots down, a whole history per comment; the reference that the fast way equals."""
    bodies, children, ids = {}, {}, {turn.id for turn in turns}
    for turn in turns:
        bodies[turn.id] = turn
        children.setdefault(turn.parent_id, []).append(turn.id)
    expected = set()
    todo = [(turn.id, []) for turn in turns if turn.parent_id not in ids]
    while todo:
        turn_id, history = todo.pop(0)
        here = bodies[turn_id]
        kept = history
        while len([one for one in [*kept, turn_id] if one != TITLE_ID]) > max_comments:
            kept = kept[1:] if kept[0] != TITLE_ID else kept[2:]
        if kept:
            pair = (here, bodies[kept[-1]])
            if all(
                len(one.body) >= 9 and not one.is_trimmed and one.body != "[deleted]"
                for one in pair
            ):
                texts = tuple(bodies[one].body for one in reversed(kept[:-1]))
                expected.add((turn_id, pair[1].body, here.body, texts))
        todo += [(child, [*history, turn_id]) for child in children.get(turn_id, [])]
    return expected


def _random_thread(seed):
    rng = random.Random(seed)
    number = rng.randrange(1, 40)
    ids = [f"id{n}" for n in range(number)]
    turns = [_title()] if rng.random() < 0.5 else []
    for position, turn_id in enumerate(ids):
        before = ids[max(0, position - 2) : position]
        parent = rng.choice([TITLE_ID, "lost", *before * 8, *(ids if rng.random() < 0.1 else [])])
        body = rng.choice(["[deleted]", "short", *[f"the body of comment {turn_id}"] * 12])
        turns.append(_turn(turn_id, parent, body, is_trimmed=rng.random() < 0.03))
    rng.shuffle(turns)
    return turns


@pytest.mark.parametrize("max_comments", [2, 5, 11])
def test_equals_the_naive_reference_on_random_threads(max_comments):
    num_examples, num_cyclic, longest = 0, 0, 0
    for seed in range(300):
        turns = _random_thread(seed)
        examples, counts = _examples(turns, Rules(max_path_length=max_comments))
        found = {
            (one.response_id, one.context, one.response, one.extra_contexts)
            for one in examples.values()
        }
        assert found == _naive_examples(turns, max_comments)
        _check_sum(counts)
        num_examples += counts.examples
        num_cyclic += counts.cyclic
        longest = max([longest, *(len(one.extra_contexts) for one in examples.values())])
    # The threads reach what is to be tested.
    assert num_examples > 1000 and num_cyclic > 20
    assert longest == max_comments - 1


def test_golden_splits():
    assert split_of("5h6yvl") == "train"
    assert split_of("41ar0l") == "test"


def test_dev_is_the_upper_end_of_the_train_side():
    def value(thread_id):
        return (1 + int(hashlib.md5(thread_id.encode()).hexdigest(), 16) % 4096) / 4096

    thread_ids = [f"thread{n}" for n in range(5000)]
    for fraction in (0.0, 0.01, 0.2, 0.9):
        for thread_id in thread_ids:
            split = split_of(thread_id, dev_fraction=fraction)
            if value(thread_id) >= 0.9:
                assert split == "test"
            else:
                assert split == ("train" if value(thread_id) < 0.9 - fraction else "dev")
    splits = [split_of(thread_id, dev_fraction=0.2) for thread_id in thread_ids]
    assert splits.count("dev") == pytest.approx(1000, abs=150)


def test_a_thread_of_40_000_comments():
    turns = [_turn("c0", TITLE_ID)]
    turns += [_turn(f"c{n}", f"c{n - 1}") for n in range(1, 20_000)]
    turns += [_turn(f"w{n}", "c0") for n in range(20_000)]
    random.Random(0).shuffle(turns)
    counts = ThreadCounts()
    number = sum(1 for _ in create_examples(turns, RULES, counts=counts))
    assert number == counts.examples == 39_999
