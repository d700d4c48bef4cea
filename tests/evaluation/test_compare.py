"""Several rankers on the same examples: ranks by naive loops and by hand, and reports."""

import itertools
import json

import numpy as np
import pytest

from convert_tf.data.schema import CandidateExample, TurnExample
from convert_tf.evaluation import compare as compare_module
from convert_tf.evaluation import tables
from convert_tf.evaluation.compare import (
    ALL,
    WITH_HISTORY,
    WITHOUT_HISTORY,
    RankingTask,
    compare,
    given_examples,
    in_batch_examples,
    ranked,
)
from convert_tf.evaluation.tables import (
    ranking_chart,
    ranking_markdown,
    ranking_table,
    write_report,
)

EXAMPLES = [
    CandidateExample(("a",), ("1", "2", "3"), (0,)),
    CandidateExample(("b", "a"), ("1", "2", "3"), (1,)),
    CandidateExample(("c",), ("1", "3", "2"), (0, 1)),
    CandidateExample(("d",), ("3", "2", "1"), (2,)),
]


class Digits:
    """Scores candidates by their number; a `sign` of −1 reverses the order."""

    def __init__(self, name, sign, **settings):
        self.name = name
        self.sign = sign
        self.settings = settings

    def candidate_scores(self, contexts, candidate_lists):
        return [self.sign * np.array([float(c) for c in own]) for own in candidate_lists]


# Highest number first gives ranks 3, 2, 1, 3; lowest first gives 1, 2, 1, 1.
HIGH, LOW = Digits("high", 1, k1=2.0), Digits("low", -1)


def report(rankers=(HIGH, LOW), examples=EXAMPLES, *, ks=(1, 2), by_history=False, **task):
    grouped = given_examples(examples, by_history=by_history)
    return compare(rankers, RankingTask(grouped, ks, task))


def test_scores_by_hand():
    found = report(data="here", by_history=True)
    assert found["task"]["data"] == "here"
    assert found["task"]["k"] == [1, 2]
    high, low = found["rows"]
    assert (high["name"], high["settings"]) == ("high", {"k1": 2.0})
    assert (low["name"], low["settings"]) == ("low", {})
    for group, examples, *scores in (
        ("all", 4, 0.25, 0.5, (1 / 3 + 1 / 2 + 1 + 1 / 3) / 4, (1 / 3 + 1 / 2 + 5 / 6 + 1 / 3) / 4),
        ("with history", 1, 0.0, 1.0, 0.5),
        ("without history", 3, 1 / 3, 1 / 3, (1 / 3 + 1 + 1 / 3) / 3, (1 / 3 + 5 / 6 + 1 / 3) / 3),
    ):
        # MAP is reported only if some example has several correct candidates.
        names = ("R3@1", "R3@2", "MRR", "MAP")[: len(scores)]
        metrics = dict(zip(names, map(pytest.approx, scores), strict=True))
        assert high["groups"].pop(group) == {"examples": examples, "metrics": metrics}
    assert not high["groups"]
    assert low["groups"]["all"]["metrics"] == {
        "R3@1": 0.75,
        "R3@2": 1.0,
        "MRR": 0.875,
        "MAP": pytest.approx((1 + 1 / 2 + 5 / 6 + 1) / 4),
    }


def test_lists_of_several_lengths_have_no_n():
    examples = [*EXAMPLES, CandidateExample(("e",), ("1",), (0,))]
    found = report(examples=examples, ks=(2,))
    assert set(found["rows"][0]["groups"][ALL]["metrics"]) == {"R@2", "MRR", "MAP"}
    assert found["rows"][0]["groups"][ALL]["metrics"]["R@2"] == 3 / 5
    single = report(examples=examples[4:], ks=(1,))
    assert single["rows"][0]["groups"][ALL]["metrics"] == {"R1@1": 1.0, "MRR": 1.0}


@pytest.mark.parametrize("size", [1, 3])
def test_chunks_change_nothing(monkeypatch, size):
    expected = report()
    monkeypatch.setattr(compare_module, "_CHUNK", size)
    found = report()
    for row in (*expected["rows"], *found["rows"]):
        row.pop("seconds")
    assert found == expected


def test_seconds_are_those_of_the_ranking(monkeypatch):
    clock = itertools.count(10.0, 0.25)
    monkeypatch.setattr(compare_module, "_CHUNK", 2)  # the examples form two chunks
    monkeypatch.setattr(compare_module.time, "perf_counter", lambda: next(clock))
    assert [row["seconds"] for row in report()["rows"]] == [0.5, 0.5]


def test_the_digest_tells_examples_apart():
    def digest(examples, **options):
        return report(examples=examples, **options)["task"]["examples_sha256"]

    first = digest(EXAMPLES)
    turned = [
        CandidateExample(e.turns, e.candidates[::-1], tuple(2 - i for i in e.labels))
        for e in EXAMPLES
    ]
    assert digest(turned) == first  # the order of the candidates does not matter
    assert digest(EXAMPLES, data="elsewhere") == first
    changes = {"turns": ("z",)}, {"turns": ("z", "a")}, {"candidates": (*"124",)}, {"labels": (1,)}
    digests = {digest([EXAMPLES[0]._replace(**change), *EXAMPLES[1:]]) for change in changes}
    digests |= {digest(EXAMPLES[:3]), digest(EXAMPLES, by_history=True)}
    assert len(digests - {first}) == 6


def test_names_must_differ_and_examples_exist():
    with pytest.raises(ValueError, match="different names"):
        report(rankers=[HIGH, HIGH])
    with pytest.raises(ValueError, match="too few examples"):
        report(examples=[])


def test_tables():
    found = report(by_history=True)
    for row, seconds in zip(found["rows"], (1.25, 120.0), strict=True):
        row["seconds"] = seconds
    assert ranking_table(found).splitlines() == [
        "        R3@1     R3@2     MRR     MAP  examples  seconds",
        "high  25.00%   50.00%  0.5417  0.5000         4      1.2",
        "low   75.00%  100.00%  0.8750  0.8333         4    120.0",
        "",
        "                       examples    high      low",
        "R3@1, with history            1   0.00%    0.00%",
        "R3@1, without history         3  33.33%  100.00%",
    ]
    lines = ranking_markdown(found).splitlines()
    assert lines[0] == "|  | R3@1 | R3@2 | MRR | MAP | examples | seconds |"
    assert lines[1] == "|---|---|---|---|---|---|---|"
    assert lines[2] == "| high | 25.00% | 50.00% | 0.5417 | 0.5000 | 4 | 1.2 |"
    assert lines[6:] == [
        "|---|---|---|---|",
        "| R3@1, with history | 1 | 0.00% | 0.00% |",
        "| R3@1, without history | 3 | 33.33% | 100.00% |",
    ]
    assert "history" not in ranking_table(report())


def test_the_chart_has_a_panel_for_each_metric_and_a_bar_for_each_row():
    figure = ranking_chart.__wrapped__(report())
    assert figure.get_size_inches().tolist() == pytest.approx([2.2 + 4 * 2.6, 1.1 + 2 * 0.34])
    assert figure.get_supxlabel() == "4 examples"
    panels = figure.axes
    assert [panel.get_title() for panel in panels] == ["R3@1 (%)", "R3@2 (%)", "MRR", "MAP"]
    widths = [[round(bar.get_width(), 3) for bar in panel.patches] for panel in panels]
    assert widths == [[25, 75], [50, 100], [0.542, 0.875], [0.5, 0.833]]
    assert [text.get_text() for text in panels[0].texts] == ["25.0", "75.0"]
    assert [text.get_text() for text in panels[2].texts] == ["0.542", "0.875"]
    assert panels[1].get_xlim() == pytest.approx((0, 120))
    assert [tick.get_text() for tick in panels[0].get_yticklabels()] == ["high", "low"]
    for panel in panels:  # the first row is on top
        bottom, top = panel.get_ylim()
        assert bottom > top
        assert (bottom, top) == panels[0].get_ylim()


def test_files_are_complete(tmp_path):
    found = report(data="here")
    written = write_report(found, tmp_path / "new" / "results")
    assert written == found
    folder = tmp_path / "new" / "results"
    assert json.loads((folder / "evaluation.json").read_text()) == found
    assert (folder / "evaluation.md").read_text() == ranking_markdown(found)
    assert (folder / "evaluation.png").read_bytes()[:4] == b"\x89PNG"


def test_rows_of_several_runs_join(tmp_path):
    write_report(report(), tmp_path)
    again = Digits("high", -1)  # replaces the row with the same name
    third = Digits("third", 1)
    joined = write_report(report(rankers=[again, third]), tmp_path)
    assert [row["name"] for row in joined["rows"]] == ["high", "low", "third"]
    assert [row["groups"][ALL]["metrics"]["R3@1"] for row in joined["rows"]] == [0.75, 0.75, 0.25]
    assert json.loads((tmp_path / "evaluation.json").read_text()) == joined
    for other in (report(examples=EXAMPLES[1:]), report(ks=(1,)), report(history="joined")):
        with pytest.raises(ValueError, match="already contains results, for"):
            write_report(other, tmp_path)
    assert json.loads((tmp_path / "evaluation.json").read_text()) == joined
    # Reports from earlier versions have no entry for the history.
    assert len(write_report(report(history="own"), tmp_path)["rows"]) == 3


def changed_report(**changes):
    """Return the JSON of a report whose first row has other entries."""
    before = report()
    before["rows"][0] |= changes
    return json.dumps(before)


GROUPS = report()["rows"][0]["groups"]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"rows": []}',
        '{"task": {}, "rows": [{}]}',
        json.dumps({**report(), "rows": []}),
        json.dumps({**report(), "task": "test"}),
        json.dumps({**report(), "rows": "none"}),
        changed_report(name=7),
        changed_report(name=["high"]),
        changed_report(seconds=None),
        changed_report(seconds="1.0"),
        changed_report(groups={}),
        changed_report(groups=[ALL]),
        changed_report(groups={ALL: {}}),
        changed_report(groups={ALL: {"examples": 4, "metrics": {}}}),
        changed_report(groups={ALL: {**GROUPS[ALL], "metrics": {"R3@1": {}}}}),
        changed_report(groups={ALL: {**GROUPS[ALL], "metrics": {"R3@1": float("nan")}}}),
        # One row without the other rows' metrics:
        changed_report(name="other", groups={ALL: {**GROUPS[ALL], "metrics": {"R9@1": 0.5}}}),
    ],
)
def test_what_no_evaluation_wrote_is_left(tmp_path, content):
    path = tmp_path / "evaluation.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"evaluation\.json' was not written by an evaluation"):
        write_report(report(), tmp_path)
    assert path.read_text() == content and [*tmp_path.iterdir()] == [path]


def test_long_names_keep_both_ends():
    short = tables._short
    assert short("x" * 36) == "x" * 36
    assert short("SIM /home/somebody/projects/hub_modules/convert/1") == (
        "SIM /h…rojects/hub_modules/convert/1"
    )


class LetterRanker:
    """Counts the letters that the last turn shares with a candidate."""

    name = "letters"

    def __init__(self):
        self.calls = []

    def candidate_scores(self, contexts, candidate_lists):
        self.calls.append((list(contexts), list(candidate_lists)))
        return [
            np.array([float(shared(turns[-1] if turns else "", c)) for c in candidates])
            for turns, candidates in zip(contexts, candidate_lists, strict=True)
        ]


def shared(left, right):
    return len({*left} & {*right})


def talks(number, *, seed=0):
    rng = np.random.default_rng(seed)

    def word():
        return "".join(rng.choice(list("abcdefgh"), 4))

    sources = ("a", "b", "")
    return [
        TurnExample(tuple(word() for _ in range(1 + i % 3)), word(), sources[i % 5 % 3])
        for i in range(number)
    ]


def test_blocks_hold_each_response_for_each_context(capsys):
    data = talks(47)
    found = list(in_batch_examples(data, block_size=10))
    assert len(found) == 40  # the last, partial block is dropped
    assert capsys.readouterr().out == "7 examples are left out: they do not fill a block of 10\n"
    list(in_batch_examples(data[:40], block_size=10))
    assert capsys.readouterr().out == ""
    for i, (groups, example) in enumerate(found):
        block = data[i // 10 * 10 : i // 10 * 10 + 10]
        assert groups == (ALL,)
        assert example.turns == data[i].turns
        assert [example.candidates[place] for place in example.labels] == [data[i].response]
        assert sorted(example.candidates) == sorted(talk.response for talk in block)
        assert example.candidates is found[i // 10 * 10].example.candidates
    # Labels are shuffled: neither in the order of the contexts nor equal in every block.
    places = [example.labels[0] for _, example in found]
    assert places[:10] != list(range(10))
    assert places[:10] != places[10:20]


def test_groups_of_blocks():
    data = talks(60)
    found = list(in_batch_examples(data, block_size=10, by_source=True, by_history=True))
    sources = {"source a": "a", "source b": "b", "source unknown": ""}
    for group, source in sources.items():
        own = [talk for talk in data if talk.source == source]
        grouped = [example for groups, example in found if groups == (group,)]
        assert [example.turns for example in grouped] == [
            talk.turns for talk in own[: len(own) // 10 * 10]
        ]
        for example in grouped:
            assert {*example.candidates} <= {talk.response for talk in own}
    overall = [(groups, example) for groups, example in found if ALL in groups]
    assert len(overall) == 60
    for groups, example in overall:
        assert groups[1:] == ((WITH_HISTORY if len(example.turns) > 1 else WITHOUT_HISTORY),)
    plain = list(in_batch_examples(data, block_size=10))
    assert [example.turns for _, example in plain] == [example.turns for _, example in overall]


def test_each_group_says_what_its_blocks_leave_out(capsys):
    data = [
        TurnExample((f"question {i}",), f"answer {i}", source)
        for i, source in enumerate([*12 * ["b"], *10 * ["c"], *7 * ["a"], ""])
    ]
    found = list(in_batch_examples(data, block_size=10, by_source=True))
    assert {group for groups, _ in found for group in groups} == {ALL, "source b", "source c"}
    assert capsys.readouterr().out == (
        "10 examples are left out of the blocks of their source for the same reason: "
        "source a (7), source b (2), source unknown (1)\n"
    )


def naive_block_ranks(data, block_size):
    ranks = []
    for start in range(0, len(data) - block_size + 1, block_size):
        block = data[start : start + block_size]
        for own in block:
            score = shared(own.turns[-1], own.response)
            others = [talk for talk in block if talk is not own]
            ranks.append(1 + sum(shared(own.turns[-1], talk.response) >= score for talk in others))
    return ranks


@pytest.mark.parametrize("seed", [0, 1])
def test_ranks_of_blocks_equal_naive_ones(seed):
    data = [
        *talks(38, seed=seed),
        *talks(2, seed=seed),
    ]  # two responses occur twice in the same block
    data[25] = data[25]._replace(response=data[24].response)
    examples = [e for _, e in in_batch_examples(data, block_size=10)]
    assert ranked(LetterRanker(), examples).ranks.tolist() == naive_block_ranks(data, 10)


def test_equal_candidates_are_tied_whatever_the_rounding():
    """Ties count even if a scorer gives equal texts slightly different scores."""

    class Noisy(LetterRanker):
        def candidate_scores(self, contexts, candidate_lists):
            plain = super().candidate_scores(contexts, candidate_lists)
            return [scores + 1e-7 * np.arange(len(scores)) for scores in plain]

    example = CandidateExample(("ab",), ("c", "ab", "ab", "d"), (1,))
    other = example._replace(labels=(2,))
    ranker = Noisy()
    assert ranked(ranker, [example, other]).ranks.tolist() == [2, 2]
    (_, lists) = ranker.calls[0]
    assert lists[0] is lists[1]
    assert lists[0] == ["c", "ab", "d"]


def test_a_scorer_that_prefers_places_gains_nothing():
    class First(LetterRanker):
        def candidate_scores(self, contexts, candidate_lists):
            return [-np.arange(len(candidates), dtype=float) for candidates in candidate_lists]

    data = [TurnExample((str(i),), f"r{i}", "") for i in range(2000)]
    examples = [e for _, e in in_batch_examples(data)]
    assert np.mean(ranked(First(), examples).ranks == 1) == 0.01  # one in each block
    given = [CandidateExample(("x",), ("right", "b", "c", "d"), (0,))] * 400
    ranks = ranked(First(), [e for _, e in given_examples(given)]).ranks
    assert 0.15 < np.mean(ranks == 1) < 0.35


def test_given_candidates_keep_their_labels():
    examples = [
        CandidateExample(("a",), ("x", "y", "x", "z"), (1, 2)),
        CandidateExample((), ("only",), (0,)),
        CandidateExample(("b", "c"), ("p", "q"), (1,)),
    ]
    found = list(given_examples(examples * 20, by_history=True))
    for (groups, example), given in zip(found, examples * 20, strict=True):
        assert sorted(example.candidates) == sorted(given.candidates)
        right = sorted(example.candidates[i] for i in example.labels)
        assert right == sorted(given.candidates[i] for i in given.labels)
        assert groups == (ALL, WITH_HISTORY if len(given.turns) > 1 else WITHOUT_HISTORY)
    assert len({example.candidates for _, example in found[::3]}) > 3
    assert next(given_examples(examples)).groups == (ALL,)


@pytest.mark.parametrize("scores", [[], [np.zeros(1)], [np.zeros(2)] * 2, [np.zeros((1, 2))]])
def test_scores_that_are_not_one_for_each_candidate(scores):
    class Wrong(LetterRanker):
        def candidate_scores(self, contexts, candidate_lists):
            return scores

    with pytest.raises(ValueError, match="one score for each candidate"):
        ranked(Wrong(), [CandidateExample(("a",), ("x", "y"), (0,))])
