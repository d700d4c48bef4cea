"""`IntentClassifier` as a scikit-learn estimator, and out of scope."""

import json
import warnings
from functools import partial

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from support.intent_examples import DIM, LABELS, OUTSIDE, TEXTS, WordEncoder, give_words
from support.tiny_checkpoint import write_checkpoint

from convert_tf import IntentClassifier, SentenceEncoder
from convert_tf.intents.encodings import MAX_TEXTS, IntentEncodings
from convert_tf.intents.folder import HEAD_FILE, MODEL_FILE
from convert_tf.intents.heldout import WEIGHTS
from convert_tf.storage.checksums import record_checksums

QUICK = {"epochs": 40, "hidden_dim": 16}
QUERIES = ["hello friend", "password reset", "order today"]


@pytest.fixture
def encoder():
    return WordEncoder()


def make(encoder, head="network", **options):
    return IntentClassifier(
        encoder, head, **({**QUICK, **options} if head == "network" else options)
    )


@pytest.mark.parametrize("head", ["network", "logistic"])
def test_it_learns_a_dozen_sentences(encoder, head):
    classifier = make(encoder, head)
    assert classifier.fit(TEXTS, LABELS) is classifier
    assert classifier.score(TEXTS, LABELS) == 1
    assert classifier.predict(QUERIES).tolist() == ["greet", "reset", "order"]
    probabilities = classifier.predict_proba(QUERIES)
    assert probabilities.shape == (3, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-6)
    assert classifier.classes_.tolist() == ["greet", "order", "reset"]


def test_scikit_learn_can_clone_search_and_validate_it(encoder):
    classifier = make(encoder, dropout=0.5, lexical=None)  # words would do without the encoder
    assert cross_val_score(classifier, TEXTS, LABELS, cv=2).shape == (2,)
    search = GridSearchCV(classifier, {"epochs": [1, 40]}, cv=2).fit(TEXTS, LABELS)
    assert search.best_params_ == {"epochs": 40}
    pipeline = make_pipeline(FunctionTransformer(lambda x: [t.lower() for t in x]), classifier)
    assert pipeline.fit(TEXTS, LABELS).predict(["HELLO Friend"]) == ["greet"]
    assert set(encoder.texts) == {*TEXTS, "hello friend", *LABELS}  # names are texts, too
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


def test_encodings_have_length_1_or_0_and_are_kept_in_part(encoder, monkeypatch):
    encodings = IntentEncodings(lambda texts: [[3.0, 4.0] if t else [0.0, 0.0] for t in texts])
    np.testing.assert_allclose(encodings(["x", ""]), [[0.6, 0.8], [0, 0]])
    assert encodings([]).shape == (0, 2)
    assert MAX_TEXTS > 30_000, "BANKING77 and CLINC150 fit."
    monkeypatch.setattr("convert_tf.intents.encodings.MAX_TEXTS", 2)
    few = IntentEncodings(encoder)
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
        ({"grid": {"logistic_c": (1,)}}, "values of hidden_dim"),
        ({"grid": {"dropout": ()}}, "values of hidden_dim"),
        ({"learning_rate": float("nan")}, "learning_rate must be greater than 0"),
        ({"head": "logistic", "logistic_c": 0.0}, "logistic_c must be greater than 0"),
        ({"out_of_scope": "distance", "threshold": float("nan")}, "finite number"),
    ],
    ids=str,
)
def test_unknown_options_are_refused(encoder, options, message):
    with pytest.raises(ValueError, match=message):
        IntentClassifier(encoder, **options).fit(TEXTS, LABELS)


def test_bad_examples_are_refused_or_told(encoder):
    classifier = make(encoder)
    with pytest.raises(ValueError, match="only 'a'"):
        classifier.fit(["x", "y"], ["a", "a"])
    with pytest.raises(ValueError, match="Text 1 is empty"):
        classifier.fit(["x", ""], ["a", "b"])
    with pytest.raises(ValueError, match="2 texts and labels of shape"):
        classifier.fit(["x", "y"], ["a"])
    with pytest.raises(ValueError, match="no training examples of 'b'"):
        classifier.fit(TEXTS, LABELS, validation=(["x"], ["b"]))
    with pytest.warns(UserWarning, match="one example: solo") as caught:
        classifier.fit([*TEXTS, "alone", TEXTS[0]], [*LABELS, "solo", "order"])
    assert any("different labels" in str(each.message) for each in caught)
    with pytest.raises(ValueError, match="Text 0 is empty"):
        classifier.predict([" "])
    with pytest.raises(ValueError, match=r"All 2 .* are out of scope\. Add some with intents"):
        scoped = make(encoder, out_of_scope="confidence")
        scoped.fit(TEXTS, LABELS, validation=(OUTSIDE[:2], ["oos", "oos"]))
    with pytest.raises(NotFittedError):
        make(encoder).predict(TEXTS)


@pytest.mark.parametrize("head", ["network", "logistic"])
def test_weights_of_0_leave_examples_out_and_equal_ones_change_nothing(encoder, head):
    texts, labels = [*TEXTS, "seven elephants"], [*LABELS, "zoo"]
    options = {"lexical": None}
    plain = make(encoder, head, **options).fit(TEXTS, LABELS).predict_proba(QUERIES)
    left_out = make(encoder, head, **options).fit(texts, labels, [*[2.0] * len(TEXTS), 0])
    assert "zoo" not in left_out.classes_
    if head == "network":  # logistic regression has a penalty beside the sum
        np.testing.assert_array_equal(left_out.predict_proba(QUERIES), plain)
    weights = [9.0 if label == "order" else 0.1 for label in LABELS]
    weighted = make(encoder, head, **options).fit(TEXTS, LABELS, sample_weight=weights)
    order = list(weighted.classes_).index("order")
    assert (weighted.predict_proba(QUERIES)[:, order] > plain[:, order]).all()


def test_descriptions_are_enough_and_examples_refine_them(encoder):
    descriptions = {
        "reset": "the password is lost", "order": "a question of an order", "greet": "hello hi",
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier = IntentClassifier.from_descriptions(descriptions, encoder, **QUICK)
    assert classifier.predict(QUERIES).tolist() == ["greet", "reset", "order"]
    refined = IntentClassifier.from_descriptions(
        descriptions, encoder, examples=(TEXTS[:4], LABELS[:4]), **QUICK
    )
    assert refined.classes_.tolist() == ["greet", "order", "reset"]
    assert not refined.names_
    assert refined.predict(["good morning to you"]).tolist() == ["greet"]


def test_descriptions_alone_are_compared_by_similarity():
    class Encoder(WordEncoder):
        def encode_similarity(self, texts):
            return self(texts)[:, ::-1]

        encode = WordEncoder.__call__

    descriptions = {"reset": "the password is lost", "greet": "hello hi"}
    begin = IntentClassifier.from_descriptions
    assert begin(descriptions, Encoder(), **QUICK).kind_ == "similarity"
    assert begin(descriptions, Encoder(), kind="sentence", **QUICK).kind_ == "sentence"
    refined = begin(descriptions, Encoder(), examples=(TEXTS[:4], LABELS[:4]), **QUICK)
    assert refined.kind_ == "sentence"
    assert begin(descriptions, [Encoder(), WordEncoder()], **QUICK).kind_ == "sentence"


class TwoKinds:
    """Encodes what tells intents apart in one way, and nothing in the other."""

    def __init__(self, telling):
        good, bad = WordEncoder(), lambda texts: np.ones((len(texts), 3), np.float32)
        self.encode, self.encode_similarity = (good, bad) if telling == "sentence" else (bad, good)


@pytest.mark.parametrize("is_validated", [False, True])
@pytest.mark.parametrize("telling", ["sentence", "similarity"])
def test_the_kind_of_encodings_is_that_of_more_right_answers(telling, is_validated, tmp_path):
    validation = (QUERIES, ["greet", "reset", "order"]) if is_validated else None
    classifier = IntentClassifier(TwoKinds(telling), lexical=None, **QUICK)
    classifier.fit(TEXTS, LABELS, validation=validation)
    assert classifier.kind_ == telling
    assert classifier.predict(QUERIES).tolist() == ["greet", "reset", "order"]
    fixed = IntentClassifier(TwoKinds(telling), kind=telling, lexical=None, **QUICK)
    fixed.fit(TEXTS, LABELS, validation=validation)
    np.testing.assert_array_equal(classifier.predict_proba(QUERIES), fixed.predict_proba(QUERIES))
    classifier.save(tmp_path / "model")
    loaded = IntentClassifier.load(tmp_path / "model", encoder=TwoKinds(telling))
    assert (loaded.kind, loaded.kind_) == (telling, telling)
    np.testing.assert_array_equal(classifier.predict_proba(QUERIES), loaded.predict_proba(QUERIES))


def test_an_encoder_of_two_kinds_is_loaded_once(tmp_path, monkeypatch):
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
# Examples of an intent have no word in common, but each has one with its name.
SPARSE = ["say one", "hello two", "password three", "reset four", "order five", "where six"]
SPARSE_LABELS = [RENAMED[name] for name in ("greet", "reset", "order") for _ in range(2)]


@pytest.mark.parametrize("is_validated", [False, True])
@pytest.mark.parametrize("head", ["network", "logistic"])
def test_names_of_intents_are_examples_where_they_help(encoder, head, is_validated, tmp_path):
    known = ["say one", "password three", "order five"]
    labels = [RENAMED[name] for name in ("greet", "reset", "order")]
    validation = (["hello", "reset", "where"], labels) if is_validated else None
    texts, own = (known, labels) if is_validated else (SPARSE, SPARSE_LABELS)
    classifier = make(encoder, head, lexical=None).fit(texts, own, validation=validation)
    assert classifier.names_
    assert classifier.predict(["hello", "reset", "where is it"]).tolist() == labels
    always = make(encoder, head, lexical=None, names="always")
    always.fit(texts, own, validation=validation)
    queries = [*known, "hello"]
    expected = classifier.predict_proba(queries)
    np.testing.assert_array_equal(always.predict_proba(queries), expected)
    without = make(encoder, head, lexical=None, names=None).fit(texts, own, validation=validation)
    assert not without.names_
    assert np.abs(without.predict_proba(queries) - expected).max() > 0.01
    # A mean encoding is that of examples.
    np.testing.assert_array_equal(without.parts_.centroids, classifier.parts_.centroids)
    classifier.save(tmp_path / "model")
    loaded = IntentClassifier.load(tmp_path / "model", encoder=encoder)
    assert (loaded.names, loaded.names_) == ("always", True)
    without.save(tmp_path / "model", overwrite=True)
    loaded = IntentClassifier.load(tmp_path / "model", encoder=encoder)
    assert (loaded.names, loaded.names_) == (None, False)


def test_a_model_of_before_has_no_names_and_options_that_are_gone(encoder, tmp_path):
    make(encoder).fit(TEXTS, LABELS).save(tmp_path / "model")
    path = tmp_path / "model" / MODEL_FILE
    described = json.loads(path.read_text())
    del described["params"]["names"]
    described["params"] |= {"patience": None, "validation_fraction": 0.1, "rejected_share": 0.05}
    path.write_text(json.dumps(described))
    record_checksums(tmp_path / "model", [MODEL_FILE, HEAD_FILE])
    loaded = IntentClassifier.load(tmp_path / "model", encoder=encoder)
    assert (loaded.names, loaded.names_) == (None, False)


def test_what_has_no_intent_has_no_name(encoder):
    texts, labels = [*TEXTS, *OUTSIDE], [*LABELS, *["oos"] * len(OUTSIDE)]
    make(encoder, "logistic", names="always").fit(texts, labels)
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
    """A grid's examples are drawn as without names."""
    from convert_tf.intents import classifier as module

    seen, best = [], module.best_options

    def spied(options, grid, encodings, labels, validation, weights):
        seen.append((len(labels), validation))
        return best(options, grid, encodings, labels, validation, weights)

    monkeypatch.setattr(module, "best_options", spied)
    for names in (None, "always"):
        make(encoder, "logistic", grid={"logistic_c": (1.0, 10.0)}, names=names).fit(TEXTS, LABELS)
    (few, plain), (more, named) = seen
    assert more == few + 3
    np.testing.assert_array_equal(named[0], plain[0])


def test_texts_between_two_intents_are_rejected(encoder):
    """Those whose two most probable intents are closer than the margin, and no others."""
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


def test_weights_reach_the_grid(encoder):
    """By what is validated on, "order" and "reset" are one intent."""
    weights = np.where(np.array(LABELS) == "greet", 1e-9, 1.0)
    grid = {"logistic_c": (1e-4, 100.0)}
    classifier = make(encoder, "logistic", grid=grid)
    classifier.fit(TEXTS, LABELS, weights, validation=(TEXTS[4:], LABELS[4:]))
    assert classifier.best_params_ == {"logistic_c": 1e-4}


@pytest.mark.parametrize(
    ("weights", "message"),
    [([1.0], "each of the 12 texts. Received: shape"), ([np.nan] * 12, "nan at index 0"),
     ([1.0] * 11 + [-1.0], "-1.0 at index 11"), (np.ones((12, 2)), "must be one column")],
)  # fmt: skip
def test_weights_are_checked(encoder, weights, message):
    with pytest.raises(ValueError, match=message):
        make(encoder).fit(TEXTS, LABELS, weights)


class Table:
    """As much of a table as is read: `np.asarray` and `shape`; a list of it would be its header."""

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


def test_a_grid_is_decided_on_validation_data(encoder):
    grid = {"learning_rate": (1e-6, 0.7), "hidden_dim": (16,)}
    for validation in (None, (QUERIES, ["greet", "reset", "order"])):
        classifier = make(encoder, grid=grid)
        classifier.fit(TEXTS, LABELS, validation=validation)
        assert classifier.best_params_ == {"learning_rate": 0.7, "hidden_dim": 16}
        # The winner is trained on all examples.
        trained = make(encoder).fit(TEXTS, LABELS).predict_proba(QUERIES)
        np.testing.assert_array_equal(classifier.predict_proba(QUERIES), trained)
    logistic = IntentClassifier(encoder, "logistic", grid={"logistic_c": (1e-6, 10.0)})
    assert logistic.fit(TEXTS, LABELS).best_params_["logistic_c"] in (1e-6, 10.0)
    with pytest.raises(ValueError, match="each intent has one example"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        make(encoder, grid=grid).fit(["x", "y"], ["a", "b"])


def topics(texts):
    """The topic of a text as an axis; a fourth one of texts without any."""
    words = {"hello": 0, "hi": 0, "good": 0, "password": 1, "order": 2}
    rows = np.eye(4)[[max((words.get(w, -1) for w in t.split()), default=-1) for t in texts]]
    return rows + 0.05 * np.cos(np.arange(4) * np.array([[len(t)] for t in texts]))


@pytest.mark.parametrize("kind", ["confidence", "distance"])
@pytest.mark.parametrize("is_validated", [False, True])
def test_texts_out_of_scope_get_no_intent(kind, is_validated):
    texts, labels = [*TEXTS, *OUTSIDE[:2]], [*LABELS, "oos", "oos"]
    validation = (QUERIES + OUTSIDE[:2], ["greet", "reset", "order", "oos", "oos"])
    classifier = make(topics, out_of_scope=kind, epochs=150)
    if is_validated:
        classifier.fit(TEXTS, LABELS, validation=validation)
    else:
        classifier.fit(texts, labels)
    assert "oos" not in classifier.classes_
    found = classifier.predict([QUERIES[1], OUTSIDE[2]])
    assert found.tolist() == ["reset", "oos"]
    assert f1_score(["reset", "oos"], found, average="macro") == 1
    assert classifier.score([QUERIES[1], OUTSIDE[2]], ["reset", "oos"]) == 1
    scores = classifier.scope_scores([QUERIES[1], OUTSIDE[2]])
    assert scores[0] >= classifier.threshold_ > scores[1]


def test_a_given_threshold_is_kept(encoder):
    classifier = make(encoder, out_of_scope="confidence", threshold=1.1).fit(TEXTS, LABELS)
    assert classifier.predict(TEXTS).tolist() == ["oos"] * len(TEXTS)
    assert classifier.thresholds_ is None
    assert make(encoder).fit(TEXTS, LABELS).threshold_ is None


def test_examples_that_a_given_threshold_makes_useless_are_told(encoder):
    labels = [*LABELS, *["oos"] * len(OUTSIDE)]
    options = {"out_of_scope": "confidence", "threshold": 0.5}
    with pytest.warns(UserWarning, match=f"The {len(OUTSIDE)} .* ignored: .*threshold=0.5 is set"):
        make(encoder, **options).fit([*TEXTS, *OUTSIDE], labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert make(encoder, **options).fit(TEXTS, LABELS).threshold_ == 0.5


def test_labels_are_of_one_kind_but_for_that_of_no_intent(encoder):
    numbers = [("greet", "reset", "order").index(name) for name in LABELS]
    with pytest.raises(ValueError, match=r"mix strings and numbers \('greet', 0"):
        make(encoder).fit([*TEXTS, *TEXTS], [*numbers, *LABELS])
    classifier = make(encoder, out_of_scope="confidence")
    outside = ["oos"] * len(OUTSIDE)
    classifier.fit([*TEXTS, *OUTSIDE], [*numbers, *outside])
    assert classifier.classes_.tolist() == [0, 1, 2]
    expected = [*numbers, *outside]
    assert classifier.predict([*TEXTS, *OUTSIDE]).tolist() == expected
    assert classifier.score([*TEXTS, *OUTSIDE], expected) == 1


def test_options_that_a_grid_replaces_are_not_looked_at_and_its_own_are(encoder):
    grid = {"dropout": [0.5, 0.1]}
    make(encoder, dropout=None, grid=grid).fit(TEXTS, LABELS)
    with pytest.raises(ValueError, match=r"dropout must be .*Received: None"):
        make(encoder, dropout=None).fit(TEXTS, LABELS)
    with pytest.raises(ValueError, match=r"dropout must be .*Received: 2"):
        make(encoder, grid={"dropout": [0.5, 2]}).check_options()
    with pytest.raises(ValueError, match=r"logistic_c must be .*Received: -1"):
        make(encoder, "logistic", grid={"logistic_c": [1.0, -1]}).check_options()


def test_the_label_of_texts_out_of_scope_may_be_any(encoder):
    options = {"out_of_scope": "confidence", "threshold": 1.1}
    label = "a longer name than those of intents"
    named = make(encoder, out_of_scope_label=label, **options).fit(TEXTS, LABELS)
    assert named.predict(TEXTS[:1]).tolist() == [label]
    numbers = [("greet", "reset", "order").index(name) for name in LABELS]
    nothing = make(encoder, out_of_scope_label=None, **options).fit(TEXTS, LABELS)
    assert nothing.score(TEXTS[:2], [None, LABELS[1]]) == 0.5
    mixed = make(encoder, out_of_scope_label=-1, **options).fit(TEXTS, numbers)
    assert mixed.predict(TEXTS[:1]).tolist() == [-1]
    assert make(encoder, **options).fit(TEXTS, numbers).predict(TEXTS[:1]).tolist() == ["oos"]


def test_confidence_and_distance_are_what_they_say(encoder):
    classifier = make(encoder, out_of_scope="distance").fit(TEXTS, LABELS)
    x = classifier.encode(TEXTS)
    means = np.stack([x[np.array(LABELS) == label].mean(axis=0) for label in classifier.classes_])
    cosines = classifier.encode(QUERIES) @ (means / np.linalg.norm(means, axis=1)[:, None]).T
    np.testing.assert_allclose(classifier.scope_scores(QUERIES), cosines.max(axis=1), atol=1e-6)
    classifier.out_of_scope = "confidence"
    best = classifier.predict_proba(QUERIES).max(axis=1)
    np.testing.assert_allclose(classifier.scope_scores(QUERIES), best)


def test_words_count_as_much_as_cross_validation_says():
    """An encoder that sees nothing leaves all to words; words that say nothing do not count."""

    def sees_nothing(texts):
        return np.ones((len(texts), 4))

    blind = make(sees_nothing).fit(TEXTS, LABELS)
    assert blind.mixture_.weight == max(WEIGHTS)
    assert blind.predict(QUERIES).tolist() == ["greet", "reset", "order"]
    without = make(sees_nothing, lexical=None).fit(TEXTS, LABELS)
    assert without.parts_.lexical is None
    assert np.ptp(without.predict_proba(QUERIES), axis=0).max() == 0
    names = ["alpha", "bravo", "coal", "delta", "echo", "fox", "golf", "hotel", "jump"]
    labels = ["one", "two", "three"] * 3

    def sees_all(texts):
        return [np.eye(3)[names.index(text) % 3 if text in names else 0] for text in texts]

    assert make(sees_all, epochs=150).fit(names, labels).mixture_.weight == 0


def test_a_default_fit_costs_less_than_two_trainings(encoder, monkeypatch):
    """In steps of the network; words are cheap."""
    from convert_tf.intents import head

    steps = []
    monkeypatch.setattr(head, "check_step", lambda *arguments: steps.append(arguments))
    texts, labels = TEXTS * 20, LABELS * 20
    make(encoder).fit(texts, labels)
    trained = QUICK["epochs"] * -(-len(texts) // 32)
    assert trained < len(steps) <= 2 * trained


def test_validation_data_take_the_place_of_folds(encoder, monkeypatch):
    from convert_tf.intents import classifier as module

    def refused(*_, **__):
        raise AssertionError

    monkeypatch.setattr(module, "judged_answers", refused)
    fitted = make(encoder, out_of_scope="confidence")
    fitted.fit([*TEXTS, OUTSIDE[0]], [*LABELS, "oos"], validation=(QUERIES, LABELS[::4]))
    assert fitted.threshold_ is not None
