"""Texts with several intents: answers, fitted parameters, files and commands."""

import itertools
import json
import pickle
from enum import Enum

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from support.commands import call_command
from support.intent_examples import EXAMPLES, WordEncoder, write_csv

from convert_tf import MultiIntentClassifier
from convert_tf.intents.cross_validation import Outputs, fit_mixture
from convert_tf.intents.data import LabelledTexts
from convert_tf.intents.examples import IntentExamples
from convert_tf.intents.loading import load_classifier
from convert_tf.intents.multi import _held_parts, best_threshold, label_sets, split_labels, truth_of
from convert_tf.intents.one_file import export_one_file
from convert_tf.intents.report import evaluate_classifier, report_text

# Each text alone, each followed by a text with another intent, and two texts with none.
ALONE = [(text, (label,)) for label, own in EXAMPLES.items() for text in own]
PAIRS = [
    (f"{a}, {b}", tuple(sorted((one, other))))
    for one, other in itertools.permutations(EXAMPLES, 2)
    for a, b in zip(EXAMPLES[one], EXAMPLES[other], strict=True)
]
NONE: list[tuple[str, tuple[str, ...]]] = [("seven purple elephants", ()), ("knit wool socks", ())]
TEXTS, SETS = map(list, zip(*ALONE, *PAIRS, *NONE, strict=True))


@pytest.fixture(scope="module")
def classifier():
    return MultiIntentClassifier(WordEncoder()).fit(TEXTS, SETS)


def test_one_several_and_no_intent(classifier):
    assert classifier.classes_.tolist() == ["greet", "order", "reset"]
    answers = classifier.predict(["hello there, i forgot the password", "track the order", "wool"])
    assert answers.tolist() == [("greet", "reset"), ("order",), ()]
    probabilities = classifier.predict_proba(TEXTS)
    assert probabilities.shape == (len(TEXTS), 3)
    assert ((probabilities > 0) & (probabilities < 1)).all()
    assert classifier.score(TEXTS, SETS) > 0.9


def test_labels_that_look_alike_are_said():
    sets = [tuple("Order" if label == "order" and i % 2 else label for label in labels)
            for i, labels in enumerate(SETS)]  # fmt: skip
    with pytest.warns(UserWarning, match=r"Intents that look alike: 'Order', 'order'\."):
        MultiIntentClassifier(WordEncoder(), lexical=None).fit(TEXTS, sets)


def test_scikit_learn_validates_and_searches_it(classifier):
    scores = cross_val_score(classifier, TEXTS, SETS, cv=3)
    assert np.isfinite(scores).all()
    search = GridSearchCV(classifier, {"logistic_c": [0.01, 10.0]}, cv=3).fit(TEXTS, SETS)
    assert np.ptp(search.cv_results_["mean_test_score"]) > 0


def test_held_parts_do_not_depend_on_the_order_of_equal_texts():
    texts = [f"text {number}" for number in range(8)] + ["same"] * 4
    sets = [("a",), ("b",)] * 4 + [("a",), ("b",), ("a", "b"), ()]
    rows = [*zip(texts, sets, strict=True)]

    def parts(rows):
        truth = truth_of([names for _, names in rows], np.array(["a", "b"]))
        number = len(rows)
        examples = IntentExamples(
            [text for text, _ in rows], np.zeros((number, 1), np.float32), truth,
            np.zeros(number, bool), np.ones(number),
        )  # fmt: skip
        return [
            sorted(rows[place] for place in np.flatnonzero(part))
            for part in _held_parts(examples, seed=0)
        ]

    assert parts(rows) == parts(rows[::-1])


def test_labels_of_any_collection_in_any_order(classifier):
    other = MultiIntentClassifier(WordEncoder()).fit(np.array(TEXTS), [{*own} for own in SETS])
    np.testing.assert_array_equal(other.predict_proba(TEXTS), classifier.predict_proba(TEXTS))


@pytest.mark.parametrize(
    ("option", "value"), [("logistic_c", 0.01), ("threshold", 1e-9), ("lexical", None)]
)
def test_options_change_something(classifier, option, value):
    other = clone(classifier).set_params(**{option: value}).fit(TEXTS, SETS)
    same = np.array_equal(other.predict_proba(TEXTS), classifier.predict_proba(TEXTS))
    assert not same or other.predict(TEXTS).tolist() != classifier.predict(TEXTS).tolist()


def test_weights_of_0_leave_out(classifier):
    weights = np.array([float("order" not in own) for own in SETS])
    other = clone(classifier).fit(TEXTS, SETS, weights)
    assert other.predict_proba(["track the order"])[0, 1] < 0.5
    assert classifier.predict_proba(["track the order"])[0, 1] > 0.5


def test_the_mixture_is_the_most_likely_one():
    rng = np.random.default_rng(0)
    truth = rng.random((400, 3)) < 0.4
    sure = np.where(truth, 2.0, -2.0) + rng.normal(size=truth.shape)
    noise = rng.normal(size=truth.shape)
    for head, lexical, weight in ((sure, noise, 0), (noise, sure, 0.6)):  # the grid ends at 0.6
        assert fit_mixture(Outputs(truth, head, lexical, np.zeros(400))).weight == weight
    hot, cold = (fit_mixture(Outputs(truth, x, None, np.zeros(400))) for x in (8 * sure, sure / 4))
    assert hot.temperature > 1.5 and cold.temperature < 0.5


def test_the_threshold_is_that_of_the_highest_f1():
    rng = np.random.default_rng(0)
    truth = rng.random((200, 4)) < 0.2
    probabilities = np.clip(0.3 * truth + 0.4 * rng.random(truth.shape), 0, 1)
    scores = {
        each: f1_score(truth, probabilities >= each, average="micro", zero_division=0)
        for each in np.arange(5, 100, 5) / 100
    }
    assert scores[best_threshold(probabilities, truth)] == max(scores.values())
    assert best_threshold(np.array([[0.99], [0.01]]), np.array([[True], [False]])) == 0.5


def test_the_report(classifier):
    texts = [*TEXTS[::3], "hello, where is my wool"]
    sets = [*SETS[::3], ("greet", "reset")]
    report = evaluate_classifier(classifier, LabelledTexts(texts, ["+".join(s) for s in sets]))
    truth, answers = (
        truth_of(own, classifier.classes_) for own in (sets, classifier.predict(texts))
    )
    assert report["micro_f1"] == pytest.approx(f1_score(truth, answers, average="micro"))
    assert report["exact_match"] == pytest.approx((truth == answers).all(axis=1).mean())
    assert report["errors"][-1]["text"] == texts[-1]
    assert "reset" in report["errors"][-1]["missed"]
    assert "micro F1" in report_text(report)
    more = evaluate_classifier(classifier, LabelledTexts(["hello there"], ["greet+new"]))
    assert more["untrained"] == {"new": 1} and more["exact_match"] == 0
    assert more["errors"] == [{"text": "hello there", "missed": ["new"], "wrong": []}]
    assert more["macro_f1"] == 0.5


def test_it_can_be_pickled_and_stored(tiny_onnx, tmp_path):
    classifier = MultiIntentClassifier(str(tiny_onnx)).fit(TEXTS, SETS)
    expected = classifier.predict_proba(TEXTS)
    again = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_allclose(again.predict_proba(TEXTS), expected, atol=1e-5)
    classifier.save(tmp_path / "model")
    read = load_classifier(tmp_path / "model")
    assert isinstance(read, MultiIntentClassifier)
    np.testing.assert_allclose(read.predict_proba(TEXTS), expected, atol=1e-5)
    assert read.predict(TEXTS).tolist() == classifier.predict(TEXTS).tolist()
    with pytest.raises(ValueError, match=r"has 32 bits per weight, and copying .* Pass 32"):
        export_one_file(classifier, tmp_path / "x.onnx")
    one_file = load_classifier(export_one_file(classifier, tmp_path / "x.onnx", network_bits=32))
    np.testing.assert_allclose(one_file.predict_proba(TEXTS), expected, atol=1e-5)


def test_the_commands(tiny_onnx, tmp_path, capsys):
    data, model = tmp_path / "train.csv", tmp_path / "model"
    write_csv(data, TEXTS, map("|".join, SETS))
    train = [
        "intent", "train", f"--encoder={tiny_onnx}", f"--data={data}", f"--output={model}",
        "--label_separator=|",
    ]  # fmt: skip
    with pytest.raises(SystemExit, match="--epochs has no effect with --label_separator"):
        call_command(*train, "--epochs=3")
    call_command(*train)
    assert "3 intents, several in a text" in capsys.readouterr().out
    call_command("intent", "evaluate", f"--model={model}", f"--data={data}")
    assert "micro F1" in capsys.readouterr().out
    (tmp_path / "texts").write_text("hello there, i forgot the password\n\n")
    call_command("intent", "predict", f"--model={model}", f"--input={tmp_path / 'texts'}",
                 "--top_k=3")  # fmt: skip
    first, empty = map(json.loads, capsys.readouterr().out.splitlines())
    assert {*filter(None, first["intent"].split("|"))} <= {*EXAMPLES}
    assert len(first["intents"]) == 3
    assert first["confidence"] > 0
    assert empty["intent"] is None


def test_members_of_enumerations_are_their_strings():
    intent = Enum("Intent", {"BLOCK": "block", "GREET": "greet"}, type=str)
    assert label_sets([[intent.GREET, "block", intent.BLOCK], []]) == [("block", "greet"), ()]
    assert {type(name) for name in label_sets([[*intent]])[0]} == {str}


def test_invisible_labels_in_files_are_no_intents():
    assert split_labels(["\u200b", "a+ \u200b", "a+b"], "+") == [(), ("a",), ("a", "b")]


@pytest.mark.parametrize(
    ("texts", "labels", "options", "message"),
    [
        ("a", ["greet"], {}, r"a list for each text. Received: 'greet'"),
        ("a", [[1]], {}, r"Labels must be strings, and not empty\. Received: \[1\]"),
        ("a", [["greet", "\u200b"]], {}, r"strings, and not empty\. Received: \['greet', "),
        ("a", [None], {}, "a list for each text"),
        ("ab", [["c"]], {}, "2 texts and 1 sets of labels. Pass a set for each text, an empty"),
        ("ab", [["c"], []], {}, r"at least two intents\. Received: only 'c'"),
        ("ab", [["c"], ["d"]], {"label_separator": ""}, r"between two labels\. Received: ''"),
        (
            "ab",
            [["c"], ["c++"]],
            {},
            r"label 'c\+\+' contains '\+', which .* Pass label_separator='\|', or rename it\.",
        ),
        ("ab", [["c"], ["+|"]], {}, r"label '\+\|' contains '\+', .* Rename it\."),
        ("ab", [["c++"], ["a|b"]], {}, r"label 'c\+\+' contains '\+', .* in files\. Rename it\."),
        ("ab", [["c"], [" d"]], {}, r"label ' d' begins or ends with white space"),
        ("ab", [["c"], ["d"]], {"threshold": 2}, r"threshold must be .* less than 1\. Received: 2"),
    ],
)
def test_labels_that_are_none_are_refused(texts, labels, options, message):
    with pytest.raises(ValueError, match=message):
        MultiIntentClassifier(WordEncoder(), **options).fit([*texts], labels)


def test_copies_of_a_text_are_held_out_together(monkeypatch):
    held = []

    def observed(options, examples, checked, folds):
        held.extend(fold.is_held for fold in folds)

    monkeypatch.setattr("convert_tf.intents.multi.held_out_outputs", observed)
    number, copies = len(TEXTS), [text.title() for text in TEXTS]
    MultiIntentClassifier(WordEncoder()).fit([*TEXTS, *copies], [*SETS, *SETS])
    assert np.sum(held, axis=0).tolist() == [1] * 2 * number
    for part in held:
        assert part[:number].tolist() == part[number:].tolist()


def test_a_refused_fit_changes_nothing(classifier):
    before, answers = dict(vars(classifier)), classifier.predict(TEXTS).tolist()
    with pytest.raises(ValueError, match=r"at least two intents\. Received: only 'new'"):
        classifier.fit(TEXTS, [["new"]] * len(TEXTS))
    assert vars(classifier) == before
    assert classifier.predict(TEXTS).tolist() == answers


def test_labels_of_files_are_split():
    assert split_labels(["a+b", "", " c "], "+") == [("a", "b"), (), ("c",)]
    assert split_labels(["a b"], " ") == [("a", "b")]
    with pytest.raises(ValueError, match=r"between two labels\. Received: ''\. Pass '\+' or"):
        split_labels(["a+b"], "")
