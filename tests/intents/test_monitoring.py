"""What is said about the messages of two weeks."""

import json

import numpy as np
import pytest
from scipy.stats import chi2_contingency
from support.commands import call_command
from support.intent_examples import EXAMPLES, LABELS, TEXTS, WordEncoder

from convert_tf import IntentClassifier
from convert_tf.intents.monitoring import monitor_messages, monitoring_text

SONGS = ["sing me a song", "play a song", "a song for me", "play me another song", "one more song"]
OUTAGE = ["site is down", "the site is down now", "down again", "why is it down", "site down now"]


@pytest.fixture(scope="module")
def classifier():
    return IntentClassifier(
        WordEncoder(), "logistic", names=None, out_of_scope="distance", threshold=0.5
    ).fit(TEXTS, LABELS)


def week(classifier, log, **options):
    return monitor_messages(log, classifier, min_confidence=0.0, min_size=2, **options)


def test_shares_of_intents_and_of_unsure_messages(classifier):
    found = week(classifier, [*EXAMPLES["order"] * 5, *SONGS, ""])
    assert found["messages"] == 25 and found["unsure"] == 5
    assert found["intents"] == {"greet": 0, "order": 20, "reset": 0, "oos": 5}
    assert {text for row in found["groups"] for text in row["texts"]} <= {*SONGS}
    assert "changes" not in found


def test_drift_is_tested_against_the_examples(classifier):
    same = week(classifier, TEXTS)["drift"]
    other = week(classifier, [f"{word} elsewhere" for word in "abcdefghijklmnop"])["drift"]
    assert same["farther"] == 0 and same["p_value"] > 0.9
    assert other["farther"] > 0.9 and other["p_value"] < 1e-4
    assert "have drifted" in monitoring_text({**week(classifier, TEXTS), "drift": other})


def test_without_examples_there_is_no_drift(classifier):
    forgetful = IntentClassifier(WordEncoder(), "logistic", names=None).fit(TEXTS, LABELS)
    forgetful.examples_ = None
    assert week(forgetful, TEXTS)["drift"] is None
    assert week(forgetful, TEXTS)["groups"] == []  # all are answered


def test_changes_since_another_week(classifier):
    first = week(classifier, [*EXAMPLES["order"] * 25, *SONGS])
    log = [*EXAMPLES["order"] * 10, *EXAMPLES["greet"] * 10, *SONGS, *OUTAGE * 4]
    found = week(classifier, log, since=json.loads(json.dumps(first)))
    changed = {row["name"]: row for row in found["changes"]}
    assert {"greet", "order", "oos"} <= {*changed}
    assert changed["greet"]["before"] == 0 and changed["greet"]["now"] > 0.2
    assert changed["order"]["now"] < changed["order"]["before"]
    texts = {text: row["before"] for row in found["groups"] for text in row["texts"]}
    assert all(texts[text] == 0 for text in OUTAGE if text in texts)
    assert "clear changes" in monitoring_text(found)
    same = week(classifier, log, since=found)
    assert same["changes"] == []
    assert all(row["before"] == row["share"] for row in same["groups"])


def test_shares_are_compared_as_by_chi_squared(classifier):
    first = {"messages": 100, "intents": {"order": 50}, "groups": []}
    found = week(classifier, [*EXAMPLES["order"] * 5, *SONGS * 16], since=first)
    (row,) = (row for row in found["changes"] if row["name"] == "order")
    rows = len(found["intents"]) + len(found["groups"])
    expected = chi2_contingency([[50, 50], [20, 80]], correction=False).pvalue
    assert np.isclose(row["p_value"] / rows, expected)


def test_the_command(classifier, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("convert_tf.cli.intent.monitor.loaded_classifier", lambda _: classifier)
    log = tmp_path / "log.txt"
    log.write_text("\n".join([*TEXTS, *SONGS, "call 0123"]))
    arguments = ["intent", "monitor", f"--input={log}", "--model=m", "--min_size=2", "--mask"]
    call_command(*arguments, f"--output={tmp_path}/one.json")
    assert "0123" not in (tmp_path / "one.json").read_text()
    call_command(*arguments, f"--output={tmp_path}/two.json", f"--since={tmp_path}/one.json")
    assert "clear changes:\n  none" in capsys.readouterr().out
    (tmp_path / "one.json").write_text("[]")
    with pytest.raises(SystemExit, match="was not written by convert-tf intent monitor"):
        call_command(*arguments, "--output=x.json", f"--since={tmp_path}/one.json")
