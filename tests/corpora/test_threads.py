"""Examples from threads by PolyAI's rules and additional ones, and cutting of long texts."""

import hashlib
import itertools
import random

import pytest

from convert_tf.corpora.comments import POST_ID, TITLE_ID, Comment, Rules
from convert_tf.corpora.dumps import Conversation, Turn
from convert_tf.corpora.threads import (
    ThreadCounts,
    comments_of,
    create_examples,
    first_sentences,
    is_bot,
    last_sentences,
    pair_key,
    sentence_ends,
    short_texts,
    split_of,
)


def _turn(turn_id, parent_id, body=None, **fields):
    body = f"the body of {turn_id}" if body is None else body
    turn = Comment(turn_id, "5h6yvl", parent_id, body, False, f"author {turn_id}", "tests")
    return turn._replace(**fields)


TITLE = _turn(TITLE_ID, None, "the title of it all")


def _examples(turns, **rules):
    """Return the standard examples by the ids of their responses, and the counts."""
    counts = ThreadCounts()
    examples = list(create_examples(turns, Rules(**rules), counts))
    usual = {one.response_id: one for one in examples if not one.is_additional}
    assert (counts.examples, counts.additional) == (len(usual), len(examples) - len(usual))
    without = counts.duplicates + counts.top_level + counts.orphans + counts.cyclic
    assert counts.comments == without + sum(counts.dropped.values()) + counts.examples
    return usual, counts


def test_pairs_and_extra_contexts_of_a_small_thread():
    turns = [_turn("a", TITLE_ID), _turn("b", "a"), _turn("c", "b"), _turn("d", "b")]
    examples, counts = _examples([*turns, TITLE])
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


@pytest.mark.parametrize(
    ("body", "is_trimmed", "reason"),
    [
        ("12345678", False, "too_short"), ("123456789", False, None), ("x" * 127, False, None),
        ("x" * 127, True, "too_long"), ("[deleted]", False, "deleted"),
        ("[removed]", False, "deleted"), ("[deleted] ", False, None), ("", False, "too_short"),
    ],
)  # fmt: skip
def test_skip_rules_for_response_and_context(body, is_trimmed, reason):
    odd = _turn("odd", "a", body, is_trimmed=is_trimmed)
    turns = [_turn("a", TITLE_ID), odd, _turn("b", "odd"), _turn("c", "b")]
    examples, counts = _examples(turns)
    if reason is None:
        assert set(examples) == {"odd", "b", "c"}
        assert not counts.dropped
    else:
        # Earlier turns on the path may have any length and kind.
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


def _naive_examples(turns, max_comments):
    """Reference: build examples from the roots down, with the whole history for each comment."""
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
    turns = [TITLE] if rng.random() < 0.5 else []
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
        examples, counts = _examples(turns, max_path_length=max_comments)
        found = {
            (one.response_id, one.context, one.response, one.extra_contexts)
            for one in examples.values()
        }
        assert found == _naive_examples(turns, max_comments)
        num_examples += counts.examples
        num_cyclic += counts.cyclic
        longest = max([longest, *(len(one.extra_contexts) for one in examples.values())])
    # The random threads cover the cases of interest.
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
    assert len(_examples(turns)[0]) == 39_999


CONTEXT = _turn("a", "", "what is the answer?")


@pytest.mark.parametrize(
    ("response", "rules", "reason"),
    [
        ({"author": "helper_bot"}, {"drop_bots": True}, "response_by_bot"),
        ({"author": "author a"}, {"drop_self_replies": True}, "self_reply"),
        ({"body": "What is: THE answer"}, {"drop_repeats": True}, "response_repeats_context"),
        ({"score": -1}, {"min_score": 0}, "response_low_score"),
        ({"body": "x" * 40}, {"max_response_length": 39}, "response_too_long"),
        ({"body": "x" * 10}, {"min_response_length": 11}, "response_too_short"),
        ({}, {"max_context_length": 18}, "context_too_long"),
        ({}, {"min_context_length": 20}, "context_too_short"),
        ({"author": ""}, {"drop_self_replies": True}, None),
        ({"author": "[deleted]"}, {"drop_self_replies": True}, None),
        ({"score": None}, {"min_score": 5}, None),
        ({"score": 5}, {"min_score": 5}, None),
        ({"body": "what is the answer now?"}, {"drop_repeats": True}, None),
        ({"body": "?!?!?!?!?!"}, {"drop_repeats": True}, None),
    ],
)
def test_each_rule_drops_and_counts(response, rules, reason):
    context = CONTEXT._replace(author=response.get("author", "author a"))
    turns = [context, _turn("b", "a", "an answer to it")._replace(**response)]
    assert _examples(turns, **rules)[1].dropped == ({reason: 1} if reason else {})
    assert not _examples(turns)[1].dropped


def test_a_bot_is_no_context_but_stays_in_the_history():
    turns = [CONTEXT, _turn("b", "a", "I am a bot, beep boop"), _turn("c", "b", "go away, bot")]
    turns.append(_turn("d", "c", "that was not kind"))
    examples, counts = _examples(turns, drop_bots=True)
    assert [*examples] == ["d"]
    assert examples["d"].extra_contexts == ("I am a bot, beep boop", "what is the answer?")
    assert counts.dropped == {"response_by_bot": 1, "context_by_bot": 1}


@pytest.mark.parametrize(
    ("author", "body", "expected"),
    [
        *((name, "text", True) for name in ("AutoModerator", "RemindMeBot", "xkcd_bot")),
        *((name, "text", True) for name in ("some-Bot2", "autotldr", "sneakpeekbot")),
        ("AutoWikiBot", "text", True),
        *((name, "text", True) for name in ("funny-ModTeam", "VisualMod", "PCMasterRace-Mod")),
        *((name, "text", True) for name in ("QualityVote", "qualityvote2", "SaveVideo")),
        *((name, "text", True) for name in ("Flair_Helper", "reddit", "AskReddit-ModTeam")),
        *((name, "text", True) for name in ("HelperBot_", "stabbot", "gifendore", "auto-xkcd37")),
        *((name, "text", True) for name in ("TheBenShapiroBot", "CrabBot2")),
        *((name, "text", False) for name in ("JohnTalbot", "TALBOT", "abbot_3", "Cabot_12")),
        *((name, "text", False) for name in ("modest_fan", "redditor", "commodore", "human_1")),
        *((name, "text", False) for name in ("abbot", "turbot", "Talbot", "robotics_fan")),
        ("x", "Do you really think I'm a bot?", False),
        ("", "Beep boop, I'm a bot", True),
        ("x", "This action was performed automatically.", True),
        ("x", "*I am a bot, and this action", True),
        ("x", "I am a bottle collector", False),
        ("x", "you are a bot", False),
    ],
)
def test_bots(author, body, expected):
    assert is_bot(_turn("a", None, body, author=author)) == expected


def test_pair_keys():
    turns = [CONTEXT, _turn("b", "a", "An  answer to it")]
    (one,) = _examples(turns)[0].values()
    other = one._replace(response="an answer to IT ", thread_id="x", response_id="y")
    exact, folded = Rules(deduplicate="exact"), Rules(deduplicate="folded")
    assert pair_key(one, folded) == pair_key(other, folded)
    assert pair_key(one, exact) != pair_key(other, exact)
    assert pair_key(one, exact) == pair_key(one._replace(thread_id="x"), exact)
    shifted = one._replace(context=one.context + "\0", response=one.response)
    assert pair_key(shifted, exact) != pair_key(one, exact)


def test_a_conversation_is_a_chain_with_ten_extra_contexts():
    texts = [f"the turn with number {n:02d}" for n in range(14)]
    conversation = Conversation("c", "chats", tuple(Turn(text, "x") for text in texts))
    counts = ThreadCounts()
    comments = comments_of(conversation, Rules(), counts.changed)
    examples = [*create_examples(comments, Rules(), counts, "chats", is_conversation=True)]
    assert [one.response for one in examples] == texts[1:]
    assert [one.context for one in examples] == texts[:-1]
    assert examples[12].extra_contexts == tuple(texts[11:1:-1])
    assert examples[3].extra_contexts == tuple(texts[2::-1])
    assert {(one.source, one.thread_id, one.response_author) for one in examples} == {
        ("chats", "c", "x")
    }


def test_turns_of_a_conversation_that_answer_nothing_are_only_context():
    texts = [f"the turn with number {n:02d}" for n in range(5)]
    turns = tuple(map(Turn, texts))
    for first_answer, answers in ((1, texts[1:]), (3, texts[3:]), (4, texts[4:])):
        conversation = Conversation("c", "chats", turns, first_answer)
        counts = ThreadCounts()
        comments = comments_of(conversation, Rules(), counts.changed)
        examples = [
            *create_examples(
                comments, Rules(), counts, is_conversation=True, first_answer=first_answer
            )
        ]
        assert [one.response for one in examples] == answers
        assert examples[-1].extra_contexts == tuple(texts[2::-1])
        assert (counts.top_level, counts.examples) == (first_answer, 5 - first_answer)
        assert counts.comments == counts.top_level + counts.examples


def test_limits_of_each_role():
    # 300 characters may be a context but not a response; in an extra context they are trimmed.
    long = "word " * 60
    turns = [_turn("a", "", long), _turn("b", "a", "a short answer"), _turn("c", "b", long)]
    turns.append(_turn("d", "b", "another short one"))
    examples, counts = _examples(turns, max_context_length=300, max_extra_length=12)
    assert set(examples) == {"b", "d"}
    assert examples["b"].context == long
    assert examples["d"].extra_contexts == ("word word ",)
    assert counts.dropped == {"response_too_long": 1}


SENTENCE = "This is sentence number {} of many."
LONG = " ".join(SENTENCE.format(n) for n in range(100, 110))  # ten, 36 characters each


def test_a_long_context_keeps_its_end_and_a_long_response_its_start():
    turns = [_turn("a", "", LONG), _turn("b", "a", LONG)]
    examples, counts = _examples(turns, long="cut")
    last, first = (
        " ".join(map(SENTENCE.format, numbers)) for numbers in (range(107, 110), range(100, 103))
    )
    assert (examples["b"].context, examples["b"].response) == (last, first)
    assert len(last) <= 127 < len(last) + 37
    assert counts.changed == {"long_context_cut": 1, "long_response_cut": 1}
    assert _examples(turns)[1].dropped == {"response_too_long": 1}


def _further(turns, **rules):
    """Return the additional examples, after checking that they do not change the standard ones."""
    examples = list(create_examples(turns, Rules(more_pairs=True, **rules), ThreadCounts()))
    usual = {one.response_id: one for one in examples if not one.is_additional}
    assert usual == _examples(turns, **rules)[0]
    further = [one for one in examples if one.is_additional]
    return [(one.context, one.response, one.extra_contexts) for one in further]


def test_the_last_two_turns_are_one_context():
    turns = [_turn("a", "lost", "the first turn"), _turn("b", "a", "the second")]
    turns += [_turn("c", "b", "the third one"), _turn("d", "c", "the fourth one")]
    assert _further(turns) == [
        ("the first turn the second", "the third one", ()),
        ("the second the third one", "the fourth one", ("the first turn",)),
    ]


@pytest.mark.parametrize("second", ["why?", "[deleted]", "[removed]"])
def test_a_short_turn_is_context_with_the_one_before(second):
    turns = [_turn("a", "lost", "the first turn"), _turn("b", "a", second)]
    turns.append(_turn("c", "b", "because it is"))
    expected = [("the first turn why?", "because it is", ())] if second == "why?" else []
    assert _further(turns) == expected
    assert not _examples(turns)[0]


def test_two_turns_that_are_too_long():
    turns = [_turn("a", "lost", LONG[:110]), _turn("b", "a", "x" * 80), _turn("c", "b")]
    assert not _further(turns)
    ((context, _, _),) = _further(turns, long="cut")
    assert context == f"{SENTENCE.format(102)} {'x' * 80}"
    turns[1] = turns[1]._replace(body="x" * 120)  # no room for an earlier turn
    assert not _further(turns, long="cut")


def test_a_title_and_its_post():
    post = _turn(POST_ID, TITLE_ID, "the text of the post")
    turns = [TITLE, post, _turn("a", TITLE_ID, "a comment on it"), _turn("b", "a", "an answer")]
    assert _further(turns) == [
        ("the title of it all", "the text of the post", ()),
        ("the title of it all the text of the post", "a comment on it", ()),
        ("the title of it all a comment on it", "an answer", ()),
    ]
    # A post without room for its title is a context of its own, with the title as history.
    long = post._replace(body=LONG[:127], is_trimmed=True, rest=LONG[127:])
    further = _further([TITLE, long, *turns[2:]], long="cut")
    assert further[1] == (LONG[-110:], "a comment on it", ("the title of it all",))
    assert further[0][1] == LONG[:110]
    # The post is present even without its title.
    assert _further([post, turns[2]]) == []


TEXT = "One is short. Two is a little longer! Three? The fourth ends here."


def _sentences(text):
    return [text[a:b].strip() for a, b in itertools.pairwise([0, *sentence_ends(text)])]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TEXT, ["One is short.", "Two is a little longer!", "Three?", "The fourth ends here."]),
        ("Mr. Smith paid. It was e.g. 3.5 euros", ["Mr. Smith paid."]),
        ("It is J. R. Hartley. Well... no. Well... No.",
         ["It is J. R. Hartley.", "Well... no.", "Well...", "No."]),
        ('"Really?" he said. (Yes.) "So be it." End.',
         ['"Really?"', "he said.", "(Yes.)", '"So be it."', "End."]),
        ("a line\n\n* an item\n* another one", ["a line", "", "* an item"]),
        ("これは文です。次の文です。", ["これは文です。", "次の文です。"]),
        ("no end", []),
    ],
)  # fmt: skip
def test_where_sentences_end(text, expected):
    assert _sentences(text) == expected


@pytest.mark.parametrize(
    ("max_length", "expected"),
    [
        (100, TEXT), (len(TEXT), TEXT),
        (len(TEXT) - 1, "One is short. Two is a little longer! Three?"),
        (37, "One is short. Two is a little longer!"), (36, "One is short."),
        (13, "One is short."), (12, "One is"), (2, "On"),
    ],
)  # fmt: skip
def test_first_sentences(max_length, expected):
    assert first_sentences(TEXT, max_length) == expected


@pytest.mark.parametrize(
    ("max_length", "expected"),
    [
        (100, TEXT), (len(TEXT) - 1, "Two is a little longer! Three? The fourth ends here."),
        (28, "Three? The fourth ends here."), (27, "The fourth ends here."),
        (21, "The fourth ends here."), (20, "fourth ends here."), (3, "re."),
    ],
)  # fmt: skip
def test_last_sentences(max_length, expected):
    assert last_sentences(TEXT, max_length) == expected


def test_few_characters_of_whole_sentences_are_not_enough():
    assert first_sentences("Yes. And then this goes on and on", 12) == "Yes."
    assert first_sentences("Yes. And then this goes on and on", 12, min_length=8) == "Yes. And"
    assert last_sentences("this goes on and on and ends. Yes.", 12) == "Yes."
    assert last_sentences("this goes on and on and ends. Yes.", 12, min_length=9) == "ends. Yes."


def test_a_text_without_enough_whole_words_is_cut_within_a_word():
    sentence = "".join(map(chr, range(0x4E00, 0x4E0A)))
    assert first_sentences("\u3000\u3000" + sentence * 20, 12) == sentence + sentence[:2]
    assert last_sentences(sentence * 20 + "\u3000", 12) == sentence[-2:] + sentence
    link = "Source: https://example.com/" + "a" * 150
    assert first_sentences(link, 20) == "Source:"
    assert first_sentences(link, 20, min_length=9) == "Source: https://exam"
    assert last_sentences(link + " end", 20, min_length=9) == "a" * 16 + " end"


def test_limits_hold_for_any_text():
    for text in (TEXT * 3, "x" * 300, "a b " * 90, ". " * 90, "\n" * 90, "é. É! " * 50):
        for limit in range(1, 60):
            first, last = first_sentences(text, limit), last_sentences(text, limit)
            assert len(first) <= limit
            assert len(last) <= limit
            assert first in text
            assert last in text


def test_short_texts():
    assert list(short_texts("a short\n text", 20)) == ["a short text"]
    longer = ["One is short.", "Two is a little longer!", "The fourth ends here."]
    assert list(short_texts(TEXT, 25, min_length=9)) == longer
    assert list(short_texts("|:--|:--| 12 34 56 78", 100, min_length=9)) == []
    assert list(short_texts("many words without an end to them", 15)) == ["many words"]


@pytest.mark.parametrize(
    ("rules", "post", "has_pair"),
    [
        ({}, {"body": "THE title of it!"}, True),
        ({"drop_repeats": True}, {"body": "THE title of it!"}, False),
        ({"drop_repeats": True, "drop_self_replies": True}, {}, True),
        ({"min_score": 2}, {"score": 1}, False),
        ({"min_score": 2}, {"score": 2}, True),
        ({"min_score": 2}, {"score": None}, True),
    ],
)
def test_rules_also_drop_the_texts_of_posts(rules, post, has_pair):
    title = TITLE._replace(body="the title of it", author="x")
    text = title._replace(id=POST_ID, parent_id=TITLE_ID, body="the text of the post")
    turns = [title, text._replace(**post)]
    examples = list(create_examples(turns, Rules(more_pairs=True, **rules), ThreadCounts()))
    assert len(examples) == has_pair
