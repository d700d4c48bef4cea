"""Several rankers on the same examples: scores by hand, and what is written."""

import io
import json

import matplotlib.image
import numpy as np
import pytest

import convert_tf.evaluation.compare
import convert_tf.evaluation.tables
from convert_tf.data.candidates import CandidateExample
from convert_tf.evaluation.compare import (
    ALL,
    Task,
    compare,
    given_examples,
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
    """Scores candidates by their number; `sign` −1 turns the order round."""

    def __init__(self, name, sign, **settings):
        self.name = name
        self.sign = sign
        self.settings = settings

    def candidate_scores(self, contexts, candidate_lists):
        return [self.sign * np.array([float(c) for c in own]) for own in candidate_lists]


# Highest number first: ranks 3, 2, 1, 3. Lowest first: 1, 2, 1, 1.
HIGH, LOW = Digits("high", 1, k1=2.0), Digits("low", -1)


def report(rankers=(HIGH, LOW), examples=EXAMPLES, *, ks=(1, 2), by_history=False, **task):
    grouped = given_examples(examples, by_history=by_history)
    return compare(rankers, Task(grouped, ks, task))


def test_scores_by_hand():
    found = report(data="here", by_history=True)
    assert found["task"]["data"] == "here"
    assert found["task"]["k"] == [1, 2]
    high, low = found["rows"]
    assert (high["name"], high["settings"]) == ("high", {"k1": 2.0})
    assert (low["name"], low["settings"]) == ("low", {})
    assert high["groups"] == {
        "all": {
            "examples": 4,
            "metrics": {
                "R3@1": 0.25, "R3@2": 0.5, "MRR": pytest.approx((1 / 3 + 1 / 2 + 1 + 1 / 3) / 4),
            },
        },
        "with history": {"examples": 1, "metrics": {"R3@1": 0.0, "R3@2": 1.0, "MRR": 0.5}},
        "without history": {
            "examples": 3,
            "metrics": {
                "R3@1": pytest.approx(1 / 3), "R3@2": pytest.approx(1 / 3),
                "MRR": pytest.approx((1 / 3 + 1 + 1 / 3) / 3),
            },
        },
    }  # fmt: skip
    assert low["groups"]["all"]["metrics"] == {"R3@1": 0.75, "R3@2": 1.0, "MRR": 0.875}


def test_lists_of_several_lengths_have_no_n():
    examples = [*EXAMPLES, CandidateExample(("e",), ("1",), (0,))]
    found = report(examples=examples, ks=(2,))
    assert set(found["rows"][0]["groups"][ALL]["metrics"]) == {"R@2", "MRR"}
    assert found["rows"][0]["groups"][ALL]["metrics"]["R@2"] == 3 / 5
    single = report(examples=examples[4:], ks=(1,))
    assert single["rows"][0]["groups"][ALL]["metrics"] == {"R1@1": 1.0, "MRR": 1.0}


@pytest.mark.parametrize("size", [1, 3])
def test_chunks_change_nothing(monkeypatch, size):
    expected = report()
    monkeypatch.setattr(convert_tf.evaluation.compare, "_CHUNK", size)
    found = report()
    for row in (*expected["rows"], *found["rows"]):
        row.pop("seconds")
    assert found == expected


def test_the_digest_tells_examples_apart():
    def digest(examples, **options):
        return report(examples=examples, **options)["task"]["examples_sha256"]

    first = digest(EXAMPLES)
    turned = [
        CandidateExample(e.turns, e.candidates[::-1], tuple(2 - i for i in e.labels))
        for e in EXAMPLES
    ]
    assert digest(turned) == first  # the order of candidates is no difference
    assert digest(EXAMPLES, data="elsewhere") == first
    changed = {
        "turn": EXAMPLES[0]._replace(turns=("z",)),
        "history": EXAMPLES[0]._replace(turns=("z", "a")),
        "candidate": EXAMPLES[0]._replace(candidates=("1", "2", "4")),
        "label": EXAMPLES[0]._replace(labels=(1,)),
    }
    digests = {digest([example, *EXAMPLES[1:]]) for example in changed.values()}
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
        "        R3@1     R3@2     MRR  examples  seconds",
        "high  25.00%   50.00%  0.5417         4      1.2",
        "low   75.00%  100.00%  0.8750         4    120.0",
        "",
        "                       examples    high      low",
        "R3@1, with history            1   0.00%    0.00%",
        "R3@1, without history         3  33.33%  100.00%",
    ]
    lines = ranking_markdown(found).splitlines()
    assert lines[0] == "|  | R3@1 | R3@2 | MRR | examples | seconds |"
    assert lines[1] == "|---|---|---|---|---|---|"
    assert lines[2] == "| high | 25.00% | 50.00% | 0.5417 | 4 | 1.2 |"
    assert lines[6:] == [
        "|---|---|---|---|",
        "| R3@1, with history | 1 | 0.00% | 0.00% |",
        "| R3@1, without history | 3 | 33.33% | 100.00% |",
    ]
    assert "history" not in ranking_table(report())


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
    again = Digits("high", -1)  # replaces the row of its name, in its place
    third = Digits("third", 1)
    joined = write_report(report(rankers=[again, third]), tmp_path)
    assert [row["name"] for row in joined["rows"]] == ["high", "low", "third"]
    assert [row["groups"][ALL]["metrics"]["R3@1"] for row in joined["rows"]] == [0.75, 0.75, 0.25]
    assert json.loads((tmp_path / "evaluation.json").read_text()) == joined
    for other in (report(examples=EXAMPLES[1:]), report(ks=(1,))):
        with pytest.raises(ValueError, match="results on one set of examples"):
            write_report(other, tmp_path)
    assert json.loads((tmp_path / "evaluation.json").read_text()) == joined


@pytest.mark.parametrize("content", ["", "{", "[]", '{"rows": []}', '{"task": {}, "rows": [{}]}'])
def test_what_no_evaluation_wrote_is_left(tmp_path, content):
    path = tmp_path / "evaluation.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"evaluation\.json' was not written by an evaluation"):
        write_report(report(), tmp_path)
    assert path.read_text() == content


def test_charts_grow_with_rows_and_metrics():
    def size(**options):
        png = ranking_chart(report(**options))
        return matplotlib.image.imread(io.BytesIO(png)).shape[:2]

    height, width = size()
    many = [Digits(f"a name that is longer than the others, number {i}", 1) for i in range(10)]
    assert size(rankers=many)[0] > 2 * height
    assert size(ks=(1,))[1] < width
    png = ranking_chart(report())
    assert png != ranking_chart(report(rankers=[Digits("high", -1), LOW]))


def test_long_names_keep_both_ends():
    short = convert_tf.evaluation.tables._short
    assert short("x" * 36) == "x" * 36
    assert short("SIM /home/somebody/projects/hub_modules/convert/1") == (
        "SIM /h…rojects/hub_modules/convert/1"
    )
