"""Which messages of a log are to be labelled next."""

import numpy as np
import pytest
from support.commands import call_command
from support.intent_examples import LABELS, TEXTS, WordEncoder

from convert_tf import IntentClassifier, MultiIntentClassifier
from convert_tf.intents.messages import leads
from convert_tf.intents.suggestion import suggest_messages


class Unsure:
    """Gives the first word of a message, a number, as the lead of its two intents."""

    def predict_proba(self, texts):
        lead = np.array([float(text.split()[0]) for text in texts])
        return np.stack([(1 + lead) / 2, (1 - lead) / 2], 1)

    def encode(self, texts):
        return np.array([[text.endswith("a"), text.endswith("b")] for text in texts], float)


def test_messages_weigh_by_how_unsure_they_are():
    # 0.1 and 0.9 are at the angles 0 and 1: the centre is nearer to the message that weighs more.
    class Angles(Unsure):
        def encode(self, texts):
            angles = np.array([float(text.split()[0]) + 9 * text.endswith("b") for text in texts])
            return np.stack([np.cos(angles), np.sin(angles)], 1)

    log = [f"{lead} {topic}" for topic in "ab" for lead in (0.0, 0.4, 0.99)]
    found = suggest_messages([*log, ""], classifier=Angles(), budget=2)
    assert sorted(found) == ["0.0 a", "0.0 b"]


def test_only_the_least_sure_are_grouped():
    log = [f"0.{lead:03} a" for lead in range(40)] + ["0.9 b", "0.91 b"]
    assert all(text.endswith("a") for text in suggest_messages(log, classifier=Unsure(), budget=2))


def test_central_messages_come_first_without_a_model():
    def encode(texts):
        angles = [(text[-1] == "b") + int(text[0]) / 10 for text in texts]
        return np.stack([np.cos(angles), np.sin(angles)], 1)

    found = suggest_messages([f"{number} {topic}" for topic in "ab" for number in range(3)], encode,
                             budget=2)  # fmt: skip
    assert sorted(found) == ["1 a", "1 b"]


def test_leads():
    one = IntentClassifier(WordEncoder(), "logistic").fit(TEXTS, LABELS)
    two = np.sort(one.predict_proba(TEXTS))[:, -2:]
    np.testing.assert_allclose(leads(one, TEXTS), two[:, 1] - two[:, 0], rtol=1e-6)
    several = MultiIntentClassifier(WordEncoder()).fit(TEXTS, [[label] for label in LABELS])
    distances = np.abs(several.predict_proba(TEXTS) - several.threshold_)
    np.testing.assert_allclose(leads(several, TEXTS), distances.min(axis=1))


def test_a_short_log():
    with pytest.raises(ValueError, match="2 different messages, fewer than the budget of 3"):
        suggest_messages(["a", "b", "a"], WordEncoder(), budget=3)


def test_the_command_writes_a_csv_to_fill_in(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("convert_tf.cli.intent.suggest.loaded_classifier", lambda _: Unsure())
    log = tmp_path / "log.txt"
    log.write_text("0.3 a\n0.1 a\n0.2 b\n0.4 b\n")
    output = tmp_path / "next.csv"
    call_command(
        "intent", "suggest", f"--input={log}", "--model=m", "--budget=2", f"--output={output}"
    )
    texts = output.read_text().splitlines()
    assert texts[0] == "text,label" and [text[4:] for text in texts[1:]] == ["a,", "b,"]
    assert "2 messages to label" in capsys.readouterr().out
