"""`IntentClassifier` as a scikit-learn estimator, out-of-scope texts, and hierarchical labels."""

import warnings
from enum import Enum
from functools import partial

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from support.documents import README, blocks
from support.intent_examples import DIM, LABELS, OUTSIDE, TEXTS, Series, WordEncoder, give_words
from support.tiny_checkpoint import write_checkpoint

from convert_tf import IntentClassifier, SentenceEncoder
from convert_tf.checkpoints.released import module_path
from convert_tf.intents import cross_validation
from convert_tf.intents.classifier import check_unvalidated
from convert_tf.intents.cross_validation import WEIGHTS, Fold, Mixture
from convert_tf.intents.data import LabelledTexts
from convert_tf.intents.decision import KINDS, SingleIntent
from convert_tf.intents.encodings import KINDS_OF_ENCODING, MAX_TEXTS, IntentEncodings
from convert_tf.intents.predictor import answer_texts
from convert_tf.intents.report import evaluate_classifier, report_text, threshold_for_precision

QUICK = {"epochs": 40, "hidden_dim": 16}
QUERIES = ["hello friend", "password reset", "order today"]
ANSWERS = ["greet", "reset", "order"]
SCOPED = ([*TEXTS, *OUTSIDE], [*LABELS, *["oos"] * len(OUTSIDE)])
NUMBERS = [ANSWERS.index(label) for label in LABELS]


@pytest.fixture
def encoder():
    return WordEncoder()


def make(encoder, head="network", **options):
    return IntentClassifier(encoder, head, **(QUICK if head == "network" else {}) | options)


@pytest.mark.parametrize("head", ["network", "logistic"])
def test_it_learns_a_dozen_sentences(encoder, head):
    classifier = make(encoder, head)
    assert classifier.fit(TEXTS, LABELS) is classifier
    assert classifier.score(TEXTS, LABELS) == 1
    assert classifier.predict(QUERIES).tolist() == ANSWERS
    probabilities = classifier.predict_proba(QUERIES)
    assert probabilities.shape == (3, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-6)
    assert classifier.classes_.tolist() == ["greet", "order", "reset"]


@pytest.mark.filterwarnings("ignore:Texts with different labels")
def test_validation_examples_do_not_depend_on_the_order_of_equal_texts(encoder):
    texts = [f"text {number}" for number in range(20)] + ["same", "same"]
    labels = ["a", "b"] * 11
    rows = [*zip(texts, labels, strict=True)]

    def validated(rows):
        classifier = IntentClassifier(encoder, kind="sentence", names=None)
        examples, _ = classifier.prepared(
            LabelledTexts(*map(list, zip(*rows, strict=True))), np.ones(len(rows)), None, encoder
        )
        _, held = classifier._validation_split(examples, None)
        return sorted(zip(held.texts, held.labels.tolist(), strict=True))

    for seed in range(10):
        order = np.random.default_rng(seed).permutation(len(rows))
        assert validated(rows) == validated([rows[place] for place in order])


def test_scikit_learn_can_clone_search_and_validate_it(encoder):
    classifier = make(encoder, dropout=0.5, lexical=None)  # words would suffice
    assert cross_val_score(classifier, TEXTS, LABELS, cv=2).shape == (2,)
    search = GridSearchCV(classifier, {"epochs": [1, 40]}, cv=2).fit(TEXTS, LABELS)
    assert search.best_params_ == {"epochs": 40}
    pipeline = make_pipeline(FunctionTransformer(lambda x: [t.lower() for t in x]), classifier)
    assert pipeline.fit(TEXTS, LABELS).predict(["HELLO Friend"]) == ["greet"]
    assert set(encoder.texts) == {*TEXTS, "hello friend", *LABELS}  # names are encoded too
    assert len(encoder.texts) == len(set(encoder.texts)), "Each text is encoded once."


def test_an_exchanged_encoder_is_used(encoder):
    classifier = make(encoder).fit(TEXTS, LABELS)
    before = classifier.encode(QUERIES)
    classifier.set_params(encoder=WordEncoder(seed=1))
    assert np.abs(classifier.encode(QUERIES) - before).max() > 0.01


def test_several_encoders_are_concatenated_each_of_length_1(encoder):
    class Other:
        def encode(self, texts):
            return [[len(text), 0.0] for text in texts]

    encodings = IntentEncodings([encoder, Other()])(QUERIES)
    assert encodings.shape == (3, DIM + 2)
    np.testing.assert_allclose(encodings[:, :DIM], IntentEncodings(encoder)(QUERIES))
    np.testing.assert_allclose(encodings[:, DIM:], [[1, 0]] * 3)
    assert make([encoder, Other()]).fit(TEXTS, LABELS).predict(QUERIES)[0] == "greet"


def test_encodings_have_length_1_or_0_and_are_kept_in_part(encoder):
    encodings = IntentEncodings(lambda texts: [[3.0, 4.0] if t else [0.0, 0.0] for t in texts])
    np.testing.assert_allclose(encodings(["x", ""]), [[0.6, 0.8], [0, 0]])
    assert encodings([]).shape == (0, 2)
    assert MAX_TEXTS > 30_000, "BANKING77 and CLINC150 are within the limit."
    few = IntentEncodings(encoder, max_texts=2)
    first = few(["a", "b", "c"])
    np.testing.assert_array_equal(few(["a", "b", "c"]), first)


@pytest.mark.parametrize(
    ("vectors", "message"),
    [([1.0, 2.0], r"shape \(2,\) for 2 texts"), ([[1.0]], "for 2 texts"),
     ([[1.0], [np.nan]], "finite.*'order today'")],
)  # fmt: skip
def test_what_encoders_return_is_checked(vectors, message):
    with pytest.raises(ValueError, match=message):
        IntentEncodings(lambda texts: vectors)(["hello", "order today"])


@pytest.mark.parametrize(
    ("head", "option"),
    [("network", {name: value}) for name, value in
     {"hidden_dim": 7, "dropout": 0.1, "learning_rate": 0.1, "epochs": 2, "batch_size": 5,
      "random_state": 3}.items()] + [("logistic", {"logistic_c": 0.1})],
    ids=str,
)  # fmt: skip
def test_every_option_reaches_the_head(encoder, head, option):
    make_own = partial(make, encoder, head, lexical=None)
    one = make_own().fit(TEXTS, LABELS).predict_proba(QUERIES)
    other = make_own(**option).fit(TEXTS, LABELS).predict_proba(QUERIES)
    assert np.abs(one - other).max() > 1e-4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head": "tree"}, "network, logistic. Received: 'tree'"),
        ({"lexical": "none"}, "lexical must be one of auto, None. Received: 'none'"),
        ({"threshold": 0.5}, "without out_of_scope"),
        ({"rejected_share": 0.1}, "without out_of_scope"),
        ({"rejected_share": 0.1, "out_of_scope": "both", "threshold": 0.0}, "with a threshold"),
        ({"head": "network", "grid": {"logistic_c": (1,)}}, "values of hidden_dim"),
        ({"head": "network", "grid": {"dropout": ()}}, "values of hidden_dim"),
        ({"head": "network", "grid": {"dropout": [0.5, 2]}}, r"dropout must be .*Received: 2"),
        ({"dropout": None}, r"dropout must be .*Received: None"),
        ({"learning_rate": float("nan")}, "learning_rate must be greater than 0"),
        ({"head": "logistic", "logistic_c": 0.0}, "logistic_c must be greater than 0"),
        (
            {"out_of_scope": "distance", "threshold": float("nan")},
            r"threshold must be a finite number, .* Received: nan",
        ),
        ({"out_of_scope": "distance", "upper_levels": True}, "upper_levels needs a rule"),
        ({"encoder": []}, "encoder is an empty list"),
    ],
    ids=str,
)
def test_unknown_options_are_refused(encoder, options, message):
    with pytest.raises(ValueError, match=message):
        IntentClassifier(**{"encoder": encoder, **options}).fit(TEXTS, LABELS)


def test_an_unknown_kind_is_refused_where_it_is_used(encoder):
    classifier = make(encoder).fit(TEXTS, LABELS).set_params(kind="bogus")
    for use in (IntentEncodings(encoder, kind="bogus"), lambda _: classifier.fit(TEXTS, LABELS)):
        with pytest.raises(ValueError, match=r"reduced, similarity\. Received: 'bogus'"):
            use(QUERIES)


def test_a_clone_looks_up_no_encoder():
    assert clone(IntentClassifier("convert/9")).encoder == "convert/9"


def test_folds_need_one_kind_of_encodings_and_of_names(encoder):
    fold = Fold(np.arange(len(TEXTS)) < 3, encoder(TEXTS))
    for model, options in ((ThreeKinds("sentence"), {"names": None}), (encoder, {})):
        with pytest.raises(ValueError, match="folds can only be used"):
            IntentClassifier(model, head="logistic", **options).fit(TEXTS, LABELS, folds=[fold])


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ((["x", "y"], ["a", "a"]), "only 'a'"),
        ((["x", ""], ["a", "b"]), "Text 1 is empty"),
        ((["x", "\u200b \u00ad"], ["a", "b"]), "Text 1 is empty"),
        ((["x", None], ["a", "b"]), "Text 1 is empty or not a string"),
        ((["x", "y"], ["a"]), "2 texts and 1 labels"),
        ((TEXTS * 2, NUMBERS + LABELS), r"mix strings and numbers \('greet', 0"),
        ((TEXTS, LABELS, [1.0]), "each of the 12 texts. Received: shape"),
        ((TEXTS, LABELS, [np.nan] * 12), "nan at index 0"),
        ((TEXTS, LABELS, [1.0] * 11 + [-1.0]), "-1.0 at index 11"),
        ((TEXTS, LABELS, np.ones((12, 2))), "sample_weight must be one column"),
    ],
)
def test_bad_examples_are_refused(encoder, examples, message):
    with pytest.raises(ValueError, match=message):
        make(encoder).fit(*examples)


def test_other_examples_are_refused_or_told(encoder):
    classifier = make(encoder)
    with pytest.raises(NotFittedError):
        classifier.predict(TEXTS)
    with pytest.raises(ValueError, match="no training examples of 'b'"):
        classifier.fit(TEXTS, LABELS, validation=(["x"], ["b"]))
    with pytest.warns(UserWarning, match="one example: solo") as caught:
        classifier.fit([*TEXTS, "alone", TEXTS[0]], [*LABELS, "solo", "order"])
    assert any("different labels" in str(each.message) for each in caught)
    for empty in (" ", "\u200b", "\u00ad"):
        with pytest.raises(ValueError, match="Text 0 is empty"):
            classifier.predict([empty])
    with pytest.raises(ValueError, match=r"All 2 .* are out of scope\. Add some with intents"):
        scoped = make(encoder, out_of_scope="confidence")
        scoped.fit(TEXTS, LABELS, validation=(OUTSIDE[:2], ["oos", "oos"]))


@pytest.mark.parametrize("head", ["network", "logistic"])
def test_weights_of_0_leave_examples_out_and_equal_ones_change_nothing(encoder, head):
    texts, labels = [*TEXTS, "seven elephants"], [*LABELS, "zoo"]
    options = {"lexical": None}
    plain = make(encoder, head, **options).fit(TEXTS, LABELS)
    left_out = make(encoder, head, **options).fit(texts, labels, [*[2.0] * len(TEXTS), 0])
    assert "zoo" not in left_out.classes_
    assert "seven elephants" not in encoder.texts
    if head == "network":  # logistic regression adds a penalty to the sum
        np.testing.assert_array_equal(left_out.predict_proba(QUERIES), plain.predict_proba(QUERIES))
    weights = [9.0 if label == "order" else 0.1 for label in LABELS]
    weighted = make(encoder, head, **options).fit(TEXTS, LABELS, sample_weight=weights)
    order = list(weighted.classes_).index("order")
    vectors = plain.encode(QUERIES)  # before the temperature, which also depends on weights
    heavy, even = (each.parts_.head.probabilities(vectors) for each in (weighted, plain))
    assert (heavy[:, order] > even[:, order]).all()


def test_descriptions_are_enough_and_examples_refine_them(encoder):
    descriptions = {
        "reset": "the password is lost", "order": "a question of an order", "greet": "hello hi",
    }  # fmt: skip
    begin = partial(IntentClassifier.from_descriptions, descriptions, encoder, **QUICK)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DeprecationWarning)  # libraries may warn about each other
        assert begin().predict(QUERIES).tolist() == ANSWERS
    refined = begin(examples=(TEXTS[:4], LABELS[:4]))
    assert refined.classes_.tolist() == ["greet", "order", "reset"]
    assert not refined.names_
    assert refined.predict(["good morning to you"]).tolist() == ["greet"]
    grid = {"logistic_c": (1.0, 10.0)}
    with pytest.raises(ValueError, match=r"pass validation="):
        begin(head="logistic", grid=grid)
    tuned = begin(head="logistic", grid=grid, validation=(QUERIES, ANSWERS))
    assert tuned.best_params_.keys() == {"logistic_c"}


class ThreeKinds:
    """Encodes texts so that only one kind of encoding separates the intents."""

    def __init__(self, telling):
        for kind, method in KINDS_OF_ENCODING.items():
            encode = WordEncoder() if kind == telling else lambda texts: np.ones((len(texts), 3))
            setattr(self, method, encode)


@pytest.mark.parametrize("is_validated", [False, True])
@pytest.mark.parametrize("telling", KINDS_OF_ENCODING)
def test_the_kind_of_encodings_is_that_of_more_right_answers(telling, is_validated, tmp_path):
    validation = (QUERIES, ANSWERS) if is_validated else None
    chosen, fixed = (
        IntentClassifier(ThreeKinds(telling), kind=kind, lexical=None, **QUICK)
        for kind in ("auto", telling)
    )
    assert chosen.fit(TEXTS, LABELS, validation=validation).kind_ == telling
    assert chosen.predict(QUERIES).tolist() == ANSWERS
    expected = fixed.fit(TEXTS, LABELS, validation=validation).predict_proba(QUERIES)
    np.testing.assert_array_equal(chosen.predict_proba(QUERIES), expected)
    chosen.save(tmp_path / "model")
    loaded = IntentClassifier.load(tmp_path / "model", encoder=ThreeKinds(telling))
    assert (loaded.kind, loaded.kind_) == (telling, telling)
    np.testing.assert_array_equal(loaded.predict_proba(QUERIES), expected)


def test_descriptions_alone_are_compared_by_similarity():
    descriptions = {"reset": "the password is lost", "greet": "hello hi"}
    begin, encoder = IntentClassifier.from_descriptions, ThreeKinds("sentence")
    assert begin(descriptions, encoder, **QUICK).kind_ == "similarity"
    assert begin(descriptions, encoder, kind="sentence", **QUICK).kind_ == "sentence"
    refined = begin(descriptions, encoder, examples=(TEXTS[:4], LABELS[:4]), **QUICK)
    assert refined.kind_ == "sentence"
    assert begin(descriptions, [encoder, WordEncoder()], **QUICK).kind_ == "sentence"


def test_an_encoder_of_three_kinds_is_loaded_once(tmp_path, monkeypatch):
    write_checkpoint(tmp_path / "run", similarity_dim=4)
    loaded = []

    class Counted(SentenceEncoder):
        def __init__(self, path):
            loaded.append(path)
            super().__init__(path)

    monkeypatch.setattr("convert_tf.encoding.sentence_encoder.SentenceEncoder", Counted)
    classifier = IntentClassifier(str(tmp_path / "run"), lexical=None, **QUICK).fit(TEXTS, LABELS)
    clone(classifier).fit(TEXTS, LABELS).predict(QUERIES)
    assert loaded == [str(tmp_path / "run")]


RENAMED = {"greet": "SayHello", "reset": "password_reset?", "order": "order/where-is-it"}


@pytest.mark.parametrize("is_validated", [False, True])
@pytest.mark.parametrize("head", ["network", "logistic"])
def test_names_of_intents_are_examples_where_they_help(encoder, head, is_validated, tmp_path):
    labels = [RENAMED[name] for name in ANSWERS]
    # Examples of an intent share no words, but each shares one with the intent's name.
    few = (["say one", "password three", "order five"], labels)
    more = (["hello two", "reset four", "where six"], labels)
    examples, validation = ([few[0] + more[0], labels * 2], None)
    if is_validated:
        examples, validation = few, (["hello", "reset", "where"], labels)
    auto, always, without = (
        make(encoder, head, lexical=None, names=names).fit(*examples, validation=validation)
        for names in ("auto", "always", None)
    )
    assert (auto.names_, without.names_) == (True, False)
    assert auto.predict(["hello", "reset", "where is it"]).tolist() == labels
    queries = [*few[0], "hello"]
    expected = auto.predict_proba(queries)
    np.testing.assert_array_equal(always.predict_proba(queries), expected)
    assert np.abs(without.predict_proba(queries) - expected).max() > 0.01
    # Mean encodings use examples only, not names.
    np.testing.assert_array_equal(without.parts_.centroids, auto.parts_.centroids)
    for classifier, names in ((auto, "always"), (without, None)):
        classifier.save(tmp_path / "model", overwrite=True)
        loaded = IntentClassifier.load(tmp_path / "model", encoder=encoder)
        assert (loaded.names, loaded.names_) == (names, names == "always")


def test_what_has_no_intent_has_no_name(encoder):
    make(encoder, "logistic", names="always").fit(*SCOPED)
    assert "oos" not in encoder.texts


def test_names_that_mislead_are_no_examples(encoder):
    other = {"greet": "my password order", "reset": "hello order", "order": "hello password reset"}
    labels = [other[label] for label in LABELS]
    classifier = make(encoder, "logistic").fit(TEXTS, labels)
    assert not classifier.names_
    plain = make(encoder, "logistic", names=None).fit(TEXTS, labels)
    np.testing.assert_array_equal(classifier.predict_proba(QUERIES), plain.predict_proba(QUERIES))


def test_names_count_as_much_as_a_mean_example(encoder):
    weights = np.linspace(1, 3, len(TEXTS))
    classifier = make(encoder, "logistic", lexical=None, names="always")
    classifier.fit(TEXTS, LABELS, weights)
    names = sorted({*LABELS})
    by_hand = make(encoder, "logistic", lexical=None, names=None)
    by_hand.fit([*TEXTS, *names], [*LABELS, *names], [*weights, 2.0, 2.0, 2.0])
    np.testing.assert_allclose(
        classifier.predict_proba(QUERIES), by_hand.predict_proba(QUERIES), atol=1e-5
    )


def test_names_are_not_validated_on(encoder, monkeypatch):
    """Grid search validates on the same examples with and without names."""
    seen = []

    def accuracy_of(head, encodings, labels):
        seen.append(encodings)
        return 0

    monkeypatch.setattr("convert_tf.intents.classifier.accuracy_of", accuracy_of)
    for names in (None, "always"):
        make(encoder, "logistic", grid={"logistic_c": (1.0, 10.0)}, names=names).fit(TEXTS, LABELS)
    np.testing.assert_array_equal(seen[0], seen[2])


def test_texts_between_two_intents_are_rejected(encoder):
    """Texts are rejected if their two most probable intents are closer than the margin."""
    plain = make(encoder).fit(TEXTS, LABELS)
    texts = [*TEXTS, "hello password", "order the password"]
    two = np.sort(plain.predict_proba(texts), axis=1)[:, -2:]
    margins = two[:, 1] - two[:, 0]
    limit = float(np.median(margins))
    answers = make(encoder, min_margin=limit).fit(TEXTS, LABELS).predict(texts)
    assert (answers == "oos").tolist() == (margins < limit).tolist()
    assert (answers == plain.predict(texts)).tolist() == (margins >= limit).tolist()


def test_an_explanation_is_what_leaving_words_out_changes(encoder):
    classifier = make(encoder).fit(TEXTS, LABELS)
    give_words(classifier, 0.4)
    found = classifier.explain("reset my order please")
    best, second = np.searchsorted(classifier.classes_, [found["intent"], found["second"]])
    texts = ["reset my order please", "my order please", "reset order please", "reset my please",
             "reset my order"]  # fmt: skip
    odds = np.log(classifier.predict_proba(texts))
    leads = odds[:, best] - odds[:, second]
    effects = {row["word"]: row["effect"] for row in found["words"]}
    for word, lead in zip(["reset", "my", "order", "please"], leads[1:], strict=True):
        assert effects[word] == pytest.approx(leads[0] - lead, abs=1e-3)
    assert any(row["lexical"] for row in found["words"])
    shares = classifier.predict_proba(texts[:1])[0]
    assert found["margin"] == pytest.approx(shares[best] - shares[second], abs=1e-4)
    vectors = classifier.encode([texts[0], *TEXTS])
    nearest = np.argsort(-(vectors[1:] @ vectors[0]), kind="stable")[:5]
    assert [row["text"] for row in found["examples"]] == [TEXTS[i] for i in nearest]


def test_an_explanation_of_a_long_text_is_bounded(encoder, monkeypatch):
    classifier = make(encoder).fit(TEXTS, LABELS)
    answered = []
    outputs = classifier.outputs
    monkeypatch.setattr(
        classifier, "outputs", lambda texts: answered.extend(texts) or outputs(texts)
    )
    words = ["reset", "my", "order", *["please"] * 297]
    found = classifier.explain(" ".join(words))
    assert len(found["words"]) == 100 and found["words_left_out"] == 200
    assert len(answered) == 101 and answered[1] == " ".join(words[1:])
    assert {"reset", "my", "order", "please"} == {row["word"] for row in found["words"]}
    del answered[:]
    found = classifier.explain("please " * 20_000)
    assert found["words_left_out"] == 20_000 - len(found["words"])
    assert len(found["words"]) > 0 and sum(map(len, answered)) < 700_000
    assert "words_left_out" not in classifier.explain(" ".join(words[:100]))


def test_a_text_that_is_read_as_nothing_gets_no_intent(encoder):
    classifier = make(encoder).fit(TEXTS, LABELS)
    unseen = "\u200b", "\u00ad", " \u200b\u00ad "
    hello, *answers = answer_texts(classifier, [f"hello {unseen[0]}", *unseen], explains=True)
    assert hello.intent == "greet" and hello.explanation["words"] == []
    for text, answer in zip(unseen, answers, strict=True):
        assert answer.described(2) == {"text": text, "intent": None, "confidence": 0.0}
    words = classifier.explain("hello \u200b there")["words"]
    assert {row["word"] for row in words} == {"hello", "there"}


def test_weights_reach_the_grid(encoder):
    """The validation texts have the intents "reset" and "order" only, which keep their weights."""
    weights = np.where(np.array(LABELS) == "greet", 1e-9, 1.0)
    grid = {"logistic_c": (1e-4, 100.0)}
    classifier = make(encoder, "logistic", grid=grid)
    classifier.fit(TEXTS, LABELS, weights, validation=(TEXTS[4:], LABELS[4:]))
    assert classifier.best_params_ == {"logistic_c": 1e-4}


class Table:
    """The used part of a table: `np.asarray` and `shape`. As a list, it gives its header."""

    def __init__(self, *columns):
        self.values = np.array(columns, object).T
        self.shape = self.values.shape

    def __array__(self, dtype=None, copy=None):
        return self.values

    def __iter__(self):
        return iter(["text", "label"][: self.shape[1]])


def test_tables_of_one_column_are_read(encoder):
    plain = make(encoder).fit(TEXTS, LABELS).predict_proba(QUERIES)
    for kind in (Table, lambda column: np.array(column)[:, None]):
        classifier = make(encoder).fit(kind(TEXTS), kind(LABELS))
        np.testing.assert_array_equal(classifier.predict_proba(kind(QUERIES)), plain)
        weights = kind(np.arange(len(TEXTS)))
        assert classifier.score(kind(TEXTS), kind(LABELS), weights) == 1
        assert classifier.encode(kind(TEXTS)).shape == (len(TEXTS), DIM)
    with pytest.raises(ValueError, match=r"texts must be one column.*\(12, 2\)"):
        make(encoder).fit(Table(TEXTS, LABELS), LABELS)
    with pytest.raises(ValueError, match="labels must be one column"):
        make(encoder).fit(TEXTS, Table(LABELS, LABELS))
    with pytest.raises(ValueError, match=r"12 texts and 11 labels\. Pass one"):
        classifier.score(TEXTS, LABELS[1:])
    for one in ("where is it", None):
        with pytest.raises(ValueError, match="texts must be a list, an array"):
            classifier.encode(one)


def test_columns_in_another_order_are_read_by_position(encoder):
    classifier = make(encoder, "logistic").fit(Series(TEXTS), Series(LABELS))
    answers = answer_texts(classifier, Series(QUERIES))
    assert [answer.text for answer in answers] == QUERIES
    assert [answer.intent for answer in answers] == ANSWERS
    wrong = ["order", *LABELS[1:]]
    report = evaluate_classifier(classifier, LabelledTexts(Series(TEXTS), Series(wrong)))
    assert report == evaluate_classifier(classifier, LabelledTexts(TEXTS, wrong))
    assert report["confusions"][0]["texts"] == TEXTS[:1]
    with pytest.raises(ValueError, match=r"12 texts and 11 labels\. Pass one"):
        evaluate_classifier(classifier, LabelledTexts(TEXTS, LABELS[1:]))
    with pytest.raises(ValueError, match=r"Text 1 is not a string\. Received: None"):
        answer_texts(classifier, ["hello", None])
    with pytest.raises(ValueError, match=r"texts must be a list, .* Received: 'hi'"):
        answer_texts(classifier, "hi")
    with pytest.raises(ValueError, match="There is no text to score"):
        classifier.score([], [])


REFUSED = [
    ({}, {"validation": (["hello"], ["another"])}, "no training examples of 'another'"),
    ({"head": "network", "learning_rate": 1e30}, {}, "diverged"),
]


@pytest.mark.parametrize(("options", "data", "message"), REFUSED, ids=["validation", "diverged"])
def test_a_refused_fit_changes_nothing(encoder, options, data, message, tmp_path):
    classifier = make(encoder, "logistic", kind="sentence", lexical=None).fit(TEXTS, LABELS)
    before = dict(vars(classifier))
    classifier.set_params(**options)
    with pytest.raises(ValueError, match=message):
        classifier.fit(TEXTS, LABELS[::-1], **data)
    assert {**vars(classifier), **{name: before[name] for name in options}} == before
    assert classifier.predict(QUERIES).tolist() == ANSWERS
    classifier.save(tmp_path / "model")
    again = IntentClassifier.load(tmp_path / "model", encoder=encoder)
    assert again.predict(QUERIES).tolist() == ANSWERS


def test_texts_of_a_refused_fit_stay_encoded(encoder):
    classifier = make(encoder, "logistic")
    with pytest.raises(ValueError, match="no training examples of 'another'"):
        classifier.fit(TEXTS, LABELS, validation=(["hello"], ["another"]))
    with pytest.raises(NotFittedError):
        classifier.predict(QUERIES)
    classifier.fit(TEXTS, LABELS)
    assert len(encoder.texts) == len(set(encoder.texts)), "Each text is encoded once."


def test_a_fitted_head_reads_the_encodings_it_was_trained_on():
    classifier = make(ThreeKinds("sentence"), "logistic", kind="sentence").fit(TEXTS, LABELS)
    before = classifier.predict_proba(QUERIES)
    classifier.set_params(kind="reduced")
    np.testing.assert_array_equal(classifier.predict_proba(QUERIES), before)
    assert classifier.fit(TEXTS, LABELS).kind_ == "reduced"


def test_copies_of_an_example_change_no_threshold(encoder):
    """If a copy of a held-out text were trained on, the thresholds would be too high."""
    options = {"out_of_scope": "confidence", "rejected_share": 0.5, "lexical": None, "names": None}
    rules = [
        make(encoder, "logistic", logistic_c=10 / copies, **options).fit(
            TEXTS * copies, LABELS * copies
        )
        for copies in (1, 3)
    ]
    once, thrice = ((rule.mixture_.temperature, rule.threshold_) for rule in rules)
    assert thrice == pytest.approx(once, abs=1e-3)


def test_copies_of_validation_examples_are_not_trained_on(encoder, monkeypatch):
    trained = []
    train = cross_validation.train_parts

    def observed(*arguments):
        trained.append(arguments)
        return train(*arguments)

    monkeypatch.setattr("convert_tf.intents.classifier.train_parts", observed)
    make(encoder, patience=1, names=None, lexical=None).fit(TEXTS * 2, LABELS * 2)
    _, rest, held = trained[0]
    assert {*held.texts} and not {*rest.texts} & {*held.texts}


def test_examples_of_weight_0_are_forgotten(encoder):
    labels = ["order", *LABELS[1:]]  # the first label is wrong
    weights = np.arange(len(TEXTS)) > 0
    classifier = make(encoder, "logistic", names=None).fit(TEXTS, labels, weights)
    assert classifier.examples_ == (TEXTS[1:], LABELS[1:])
    assert TEXTS[0] not in {row["text"] for row in classifier.nearest_examples(TEXTS[0])}


def test_a_grid_is_decided_on_validation_data(encoder):
    grid = {"learning_rate": (1e-6, 0.7), "hidden_dim": (16,)}
    trained = make(encoder).fit(TEXTS, LABELS).predict_proba(QUERIES)
    for validation in (None, (QUERIES, ANSWERS)):
        classifier = make(encoder, grid=grid).fit(TEXTS, LABELS, validation=validation)
        assert classifier.best_params_ == {"learning_rate": 0.7, "hidden_dim": 16}
        # The best combination is then trained on all examples.
        np.testing.assert_array_equal(classifier.predict_proba(QUERIES), trained)
    with (
        pytest.raises(ValueError, match="each intent has only one distinct example"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        make(encoder, grid=grid).fit(["x", "y"], ["a", "b"])


@pytest.mark.parametrize("head", ["network", "logistic"])
def test_confidence_is_calibrated_for_the_values_from_the_grid(head):
    """The kind of encodings is chosen before these values, which does not affect confidence."""
    grid = {"network": {"learning_rate": [0.01]}, "logistic": {"logistic_c": [0.01]}}[head]
    chosen, fixed = (
        make(ThreeKinds("reduced"), head, kind=kind, grid=grid, lexical=None).fit(TEXTS, LABELS)
        for kind in ("auto", "reduced")
    )
    assert chosen.kind_ == "reduced"
    assert chosen.mixture_ == fixed.mixture_
    np.testing.assert_array_equal(chosen.predict_proba(QUERIES), fixed.predict_proba(QUERIES))


def topics(texts):
    """Return an axis for the topic of each text; a fourth axis is for texts without topic."""
    words = {"hello": 0, "hi": 0, "good": 0, "password": 1, "order": 2}
    rows = np.eye(4)[[max((words.get(w, -1) for w in t.split()), default=-1) for t in texts]]
    return rows + 0.05 * np.cos(np.arange(4) * np.array([[len(t)] for t in texts]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_validated", [False, True])
def test_texts_out_of_scope_get_no_intent(kind, is_validated):
    outside = OUTSIDE[:2], ["oos", "oos"]
    classifier = make(topics, out_of_scope=kind, epochs=150)
    if is_validated:
        classifier.fit(TEXTS, LABELS, validation=(QUERIES + outside[0], ANSWERS + outside[1]))
    else:
        classifier.fit(TEXTS + outside[0], LABELS + outside[1])
    assert "oos" not in classifier.classes_
    asked = [QUERIES[1], OUTSIDE[2]]
    assert classifier.predict(asked).tolist() == ["reset", "oos"]
    assert classifier.score(asked, ["reset", "oos"]) == 1
    scores = classifier.scope_scores(asked)
    assert scores[0] >= classifier.threshold_ > scores[1]


def test_a_given_threshold_is_kept(encoder):
    assert make(encoder).fit(TEXTS, LABELS).threshold_ is None
    options = {"out_of_scope": "confidence", "threshold": 1.1}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DeprecationWarning)  # libraries may warn about each other
        classifier = make(encoder, **options).fit(TEXTS, LABELS)
    assert classifier.predict(TEXTS).tolist() == ["oos"] * len(TEXTS)
    assert classifier.thresholds_ is None
    with pytest.warns(UserWarning, match=f"The {len(OUTSIDE)} .* ignored: .*threshold=1.1 is set"):
        make(encoder, **options).fit(*SCOPED)


def test_numbers_are_labels_but_for_that_of_no_intent(encoder):
    labels = [*NUMBERS, *["oos"] * len(OUTSIDE)]
    classifier = make(encoder, out_of_scope="confidence").fit(SCOPED[0], labels)
    assert classifier.classes_.tolist() == [0, 1, 2]
    assert classifier.predict(SCOPED[0]).tolist() == labels
    assert classifier.score(SCOPED[0], labels) == 1


def test_patience_holds_examples_out(encoder, monkeypatch):
    """Without validation data, a tenth of each intent's examples is not trained on."""
    trained, train = [], cross_validation.train_parts
    options = {"lexical": None, "names": None}

    def observed(*arguments):
        trained.append(arguments)
        return train(*arguments)

    monkeypatch.setattr("convert_tf.intents.classifier.train_parts", observed)
    stopped, given = (make(encoder, patience=1, **options) for _ in range(2))
    stopped.fit(TEXTS, LABELS)
    given.fit(TEXTS, LABELS, validation=(TEXTS[:4], LABELS[:4]))
    (_, rest, held), (_, whole, validation) = trained
    assert sorted([*rest.texts, *held.texts]) == sorted(TEXTS)
    assert {*rest.labels} == {*held.labels}
    assert (whole.texts, validation.texts) == (TEXTS, TEXTS[:4])
    kernels = [each.parts_.head.layers[0].kernel for each in (stopped, given)]
    unstopped = make(encoder, **options).fit(TEXTS, LABELS).parts_.head.layers[0].kernel
    assert all(np.abs(kernel - unstopped).max() > 1e-3 for kernel in kernels)
    for options in ({"patience": 1}, {"grid": {"epochs": [2]}}):
        with pytest.raises(ValueError, match=r"need validation data if .* Received: grid="):
            make(encoder, names=None, **options).fit(TEXTS, LABELS, folds=[])
    check_unvalidated(make(encoder, "logistic", patience=1))  # this head has no patience


def test_options_that_a_grid_replaces_are_not_looked_at(encoder):
    tried = [0.5, 0.1]
    classifier = make(encoder, dropout=None, grid={"dropout": tried}).fit(TEXTS, LABELS)
    assert classifier.score(TEXTS, LABELS) > 1 / len({*LABELS})


@pytest.mark.parametrize(
    ("labels", "outside"),
    [(LABELS, "a name longer than any intent"), (LABELS, None), (NUMBERS, -1), (NUMBERS, "x")],
)
def test_the_label_of_texts_out_of_scope_may_be_any(encoder, labels, outside):
    options = {"out_of_scope": "confidence", "threshold": 1.1, "out_of_scope_label": outside}
    classifier = make(encoder, **options).fit(TEXTS, labels)
    assert classifier.predict(TEXTS[:1]).tolist() == [outside]
    if outside != -1:
        assert classifier.score(TEXTS[:2], [outside, labels[1]]) == 0.5


class Intent(str, Enum):
    GREET = "greet"
    RESET = "reset"
    ORDER = "order"
    OUTSIDE = "oos"


def test_members_of_enumerations_are_their_strings(encoder):
    options = {"out_of_scope": "confidence", "threshold": 1.1}
    classifier = make(encoder, "logistic", **options, out_of_scope_label=Intent.OUTSIDE)
    labels = [Intent(label) for label in LABELS]
    classifier.fit([Enum("Text", {"A": text}, type=str).A for text in TEXTS], labels)
    assert classifier.classes_.tolist() == ["greet", "order", "reset"]
    assert {type(value) for values in classifier.examples_ for value in values} == {str}
    assert classifier.examples_ == (TEXTS, LABELS)
    assert classifier.predict([Intent.GREET]).tolist() == ["oos"]
    classifier.set_params(out_of_scope=None, threshold=None).fit(TEXTS, labels)
    assert classifier.score(TEXTS, labels) == 1
    report = evaluate_classifier(classifier, LabelledTexts(TEXTS, labels))
    assert report["accuracy"] == 1 and report["untrained"] == {}


def test_confidence_and_distance_are_what_they_say(encoder):
    classifier = make(encoder, out_of_scope="distance").fit(TEXTS, LABELS)
    x = classifier.encode(TEXTS)
    means = np.stack([x[np.array(LABELS) == label].mean(axis=0) for label in classifier.classes_])
    cosines = classifier.encode(QUERIES) @ (means / np.linalg.norm(means, axis=1)[:, None]).T
    np.testing.assert_allclose(classifier.scope_scores(QUERIES), cosines.max(axis=1), atol=1e-6)
    classifier.out_of_scope = "confidence"
    best = classifier.predict_proba(QUERIES).max(axis=1)
    np.testing.assert_allclose(classifier.scope_scores(QUERIES), best)


def test_confidence_is_calibrated_without_words(encoder):
    classifier = make(encoder, "logistic", lexical=None, names=None).fit(TEXTS * 2, LABELS * 2)
    assert classifier.mixture_.temperature < 1
    assert classifier.mixture_.weight == 0


@pytest.mark.parametrize("with_examples", [False, True])
def test_the_rule_both_weighs_the_cosine_by_texts_without_an_intent(with_examples, tmp_path):
    """The weight is fitted to held-out intents, or to out-of-scope examples if there are any."""
    names = [f"intent{number}" for number in range(8)]
    texts = [f"{name} {name} word{number}" for name in names for number in range(4)]
    labels = [name for name in names for _ in range(4)]
    numbers = {name: number for number, name in enumerate(names)}

    def encode(texts):
        """Give each intent its own direction; other texts are equally far from all."""
        vectors = np.zeros((len(texts), 9))
        for vector, text in zip(vectors, texts, strict=True):
            vector[numbers.get(text.split()[0], 8)] = 1
        return vectors

    outside = ["nothing here", "something else", "no words of it"] if with_examples else []
    rule = make(encode, "logistic", out_of_scope="both", lexical=None, names=None)
    rule.fit([*texts, *outside], [*labels, *["oos"] * len(outside)])
    assert rule.mixture_.cosine in cross_validation.COSINE_WEIGHTS
    assert rule.decision.cosine_weight == rule.mixture_.cosine
    assert rule.predict(["quite different"]).tolist() == ["oos"]
    assert np.mean(rule.predict(texts) == labels) > 0.9
    rule.save(tmp_path / "model")
    again = IntentClassifier.load(tmp_path / "model", encoder=encode)
    assert again.decision.cosine_weight == rule.mixture_.cosine
    np.testing.assert_array_equal(again.scope_scores(texts), rule.scope_scores(texts))


def test_no_intents_are_left_out_if_the_encoder_was_trained_on_them(monkeypatch):
    def left_out(*args, **kwargs):
        raise AssertionError("the encoder has seen these examples")

    monkeypatch.setattr("convert_tf.intents.classifier.left_out_outputs", left_out)
    data = [f"{name} {name} word{i}" for name in "abcdefgh" for i in range(4)], [*"abcdefgh"] * 4
    rule = make(WordEncoder(), "logistic", out_of_scope="both", lexical=None, names=None)
    rule.fit(*data, validation=data, folds=())
    assert rule.mixture_.cosine == cross_validation.Mixture().cosine
    with pytest.raises(AssertionError, match="has seen these"):
        rule.fit(*data, validation=data)


def test_words_count_as_much_as_cross_validation_says():
    """If the encoder is uninformative, words get the full weight; uninformative words get none."""

    def sees_nothing(texts):
        return np.ones((len(texts), 4))

    blind = make(sees_nothing).fit(TEXTS, LABELS)
    assert blind.mixture_.weight == max(WEIGHTS)
    assert blind.predict(QUERIES).tolist() == ANSWERS
    without = make(sees_nothing, lexical=None).fit(TEXTS, LABELS)
    assert without.parts_.lexical is None
    assert np.ptp(without.predict_proba(QUERIES), axis=0).max() == 0
    names = ["alpha", "bravo", "coal", "delta", "echo", "fox", "golf", "hotel", "jump"]

    def sees_all(texts):
        return [np.eye(3)[names.index(text) % 3 if text in names else 0] for text in texts]

    assert make(sees_all, epochs=150).fit(names, ANSWERS * 3).mixture_.weight == 0


def test_a_default_fit_costs_less_than_two_trainings(encoder, monkeypatch):
    """Only steps of the network are counted, because the word model is cheap."""
    steps = []
    monkeypatch.setattr("convert_tf.intents.head.check_step", lambda *args: steps.append(args))
    texts, labels = TEXTS * 20, LABELS * 20
    make(encoder).fit(texts, labels)
    trained = QUICK["epochs"] * -(-len(texts) // 32)
    assert trained < len(steps) <= 2 * trained


def test_validation_data_take_the_place_of_folds(encoder, monkeypatch):
    monkeypatch.setattr("convert_tf.intents.classifier.held_out_outputs", None)
    fitted = make(encoder, out_of_scope="confidence", names=None)
    fitted.fit([*TEXTS, OUTSIDE[0]], [*LABELS, "oos"], validation=(QUERIES, LABELS[::4]))
    assert fitted.threshold_ is not None


LEVELS = [{"greet": "chat", "reset": "shop/reset", "order": "shop/order"}[x] for x in LABELS]


def make_levels(**options):
    levels = make(WordEncoder(), "logistic", names=None, lexical=None, **options).fit(TEXTS, LEVELS)
    levels.mixture_ = Mixture()  # gives the confidence that these tests expect
    return levels


@pytest.mark.parametrize(
    "options", [{"out_of_scope": "confidence", "threshold": 0.7}, {"min_margin": 0.5}]
)
def test_a_classifier_stops_at_the_upper_level(options, tmp_path):
    between = "reset my order password please"
    assert make_levels(**options).predict([between]).tolist() == ["oos"]
    levels = make_levels(upper_levels=True, **options)
    assert levels.predict([between, "hello hello there friend"]).tolist() == ["shop", "chat"]
    levels.save(tmp_path / "model")
    again = IntentClassifier.load(tmp_path / "model", encoder=WordEncoder())
    assert again.predict([between]).tolist() == ["shop"]


def test_both_levels_are_evaluated():
    classifier = make_levels(out_of_scope="confidence", threshold=0.7, upper_levels=True)
    texts = [*TEXTS, "reset my order password please", "good morning, where is my order"]
    labels = [*LEVELS, "shop/reset", "shop/order"]
    predicted = classifier.predict(texts)
    report = evaluate_classifier(classifier, LabelledTexts(texts, labels))
    assert report["accuracy"] == np.mean(predicted == labels) < report["upper_accuracy"]
    upper = [[label.split("/")[0] for label in own] for own in (predicted, labels)]
    assert report["upper_accuracy"] == np.mean([a == b for a, b in zip(*upper, strict=True)])
    assert "accuracy of upper levels" in report_text(report)


def test_only_texts_in_scope_have_an_accuracy():
    classifier = make_levels(out_of_scope="confidence", threshold=0.7)
    texts = [*TEXTS, *OUTSIDE]
    report = evaluate_classifier(classifier, LabelledTexts(texts, [*LEVELS, *["oos"] * 3]))
    assert report_text(report).splitlines()[0].endswith(", 12 in-scope examples")
    report = evaluate_classifier(classifier, LabelledTexts(OUTSIDE, ["oos"] * 3))
    assert report_text(report).startswith("out-of-scope recall")
    report = evaluate_classifier(classifier, LabelledTexts(TEXTS, LEVELS))
    assert report_text(report).splitlines()[0].endswith(", 12 examples")


class Confident:
    """A classifier that answers `a` to every text, with the text itself as float32 confidence."""

    classes_ = np.array(["a", "b"])
    decision = SingleIntent(classes_)
    threshold_ = None

    def predict(self, texts):
        return np.full(len(texts), "a")

    def predict_proba(self, texts):
        confidence = np.array([text.split()[0] for text in texts], np.float32)
        return np.stack([confidence, 1 - confidence], 1)


@pytest.mark.parametrize(
    ("right", "wrong", "printed"),
    [(0.87649, 0.87641, 0.87648), (0.99993, 0.9991, 0.9999), (0.8765, 0.7, 0.876), (1, 0.9, 1)],
)
def test_the_printed_threshold_answers_the_texts_next_to_it(right, wrong, printed):
    texts = [f"{right} {number}" for number in range(95)]
    texts += [f"{wrong} {number}" for number in range(55)]
    classifier, labels = Confident(), ["a"] * 95 + ["b"] * 55
    report = evaluate_classifier(classifier, LabelledTexts(texts, labels), precision=0.95)
    lines = report_text(report).splitlines()
    line = lines[lines.index("for a precision of 95%:") + 1]
    assert line.startswith("    63.3%   100.0%    ")
    assert float(line.split()[-1]) == printed
    confidence = classifier.predict_proba(texts).max(axis=1)
    assert np.mean(confidence >= np.float64(printed)) == report["precision_threshold"]["answered"]
    start = lines.index("answering only confident texts: share answered, accuracy, threshold")
    for line, row in zip(lines[start + 1 :], report["coverage"], strict=False):
        assert np.mean(confidence >= np.float64(line.split()[-1])) == row["answered"]


def test_a_precision_that_is_just_reached_is_reached():
    for precision, number in ((0.55, 100), (0.07, 100), (0.28, 25), (0.56, 50)):
        is_right = np.arange(number) < round(precision * number)
        row = threshold_for_precision(np.full(number, 0.9), is_right, precision)
        assert row == {"threshold": 0.9, "answered": 1.0, "accuracy": precision}


def test_a_dozen_sentences_make_a_classifier():
    """The README's dozen sentences train a classifier on a released encoder."""
    (block,) = blocks(README, language="csv")
    lines = block.text.strip().splitlines()[1:]
    texts, labels = zip(*(line.rsplit(",", 1) for line in lines), strict=True)
    assert len(texts) == 12
    classifier = IntentClassifier(module_path("convert"))
    asked = {
        "my package never came": "delivery",
        "the courier left it at the wrong house": "delivery",
        "can you pay me back for this": "refund",
        "I would like to return my jacket": "refund",
        "it says my username is wrong": "login",
        "I cannot sign in to the app": "login",
    }
    classifier.fit(list(texts), list(labels))
    assert classifier.score(list(asked), list(asked.values())) >= 5 / 6
