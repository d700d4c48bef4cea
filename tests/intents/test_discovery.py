"""Groups of messages with planted topics."""

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from support.commands import call_command
from support.intent_examples import LABELS, TEXTS, WordEncoder

from convert_tf import IntentClassifier, MultiIntentClassifier, discover_intents
from convert_tf.intents import discovery, messages
from convert_tf.intents.data import read_labelled
from convert_tf.intents.messages import counted_messages, masked, unsure

TOPICS = {
    "parcel": [
        "where is my parcel",
        "my parcel is late",
        "parcel never came",
        "the parcel is late",
    ],
    "refund": ["refund this please", "i want a refund", "a refund for this", "when is the refund"],
    "<b>song": ["sing a <b>song", "play that <b>song", "another <b>song", "play a <b>song"],
}
LOG = [text for own in TOPICS.values() for text in own]


def encode(texts):
    """Vectors of topics, with a little of the words."""
    topics = [[topic in text for topic in (*TOPICS, "id")] for text in texts]
    return np.concatenate([20 * np.array(topics), WordEncoder()(texts) / 20], 1)


def topics_of(texts):
    return {topic for topic, own in TOPICS.items() for text in texts if text in own}


def test_topics_become_groups():
    found = discover_intents([*LOG, LOG[0], "", "  "], encode, num_groups=3, min_size=1)
    assert (found["messages"], found["unsure"], found["left_out"]) == (13, 13, 0)
    assert [row["size"] for row in found["groups"]] == [5, 4, 4]  # equal messages are counted
    assert sorted(len(topics_of(row["texts"])) for row in found["groups"]) == [1, 1, 1]
    (parcels,) = (row for row in found["groups"] if row["size"] == 5)
    assert parcels["words"][0] == "parcel" and parcels["label"].startswith("parcel")
    assert "nearest" not in parcels


def test_the_number_of_groups_is_chosen():
    rng = np.random.default_rng(0)
    centres = np.eye(6, 40)
    vectors = np.concatenate([centre + 0.12 * rng.standard_normal((20, 40)) for centre in centres])
    groups = discovery.group_vectors(vectors)
    assert len(groups.centres) == 6
    assert all(len({*own}) == 1 for own in groups.numbers.reshape(6, 20))


def test_heights_give_the_variance_within_groups():
    points = np.random.default_rng(1).standard_normal((30, 4))
    tree = linkage(points, "ward")
    number = discovery._chosen_number(tree[:, 2], points)

    def explained(groups):
        numbers = fcluster(tree, groups, "maxclust") - 1
        within = ((points - discovery._means(points, numbers)[numbers]) ** 2).sum()
        return 1 - within / (30 - groups) / points.var(axis=0, ddof=1).sum()

    assert explained(number) >= 0.52 > explained(number - 1)


def test_messages_outside_of_the_sample_go_to_the_nearest_group(monkeypatch):
    rng = np.random.default_rng(0)
    log = [f"{topic} {word}" for topic in ("aa", "bb") for word in map(str, range(100))]
    log = [log[place] for place in rng.permutation(200)]

    def encode(texts):
        return np.array([[text[0] == "a", text[0] == "b", int(text[3:]) / 1e3] for text in texts])

    monkeypatch.setattr(discovery, "_SAMPLE", 20)
    monkeypatch.setattr(messages, "_MESSAGES_AT_ONCE", 8)
    found = discover_intents(log, encode, num_groups=2)
    assert [row["size"] for row in found["groups"]] == [100, 100]
    assert sum(len(row["texts"]) for row in found["groups"]) == 24


def test_messages_that_a_model_answers_are_left_out():
    classifier = IntentClassifier(WordEncoder(), "logistic", names=None).fit(TEXTS, LABELS)
    proba = classifier.predict_proba([*TEXTS, *LOG]).max(axis=1)
    limit = float(np.sort(proba)[len(LOG)])
    found = discover_intents(
        [*TEXTS, *LOG], classifier=classifier, min_confidence=limit, num_groups=2, min_size=1
    )
    assert found["unsure"] == (proba < limit).sum() == len(LOG)
    assert {row["nearest"]["intent"] for row in found["groups"]} <= {*LABELS}


def test_texts_without_an_intent_are_unsure():
    several = MultiIntentClassifier(WordEncoder(), threshold=0.9).fit(TEXTS, [[x] for x in LABELS])
    assert unsure(several, LOG, 0.0).all()
    one = IntentClassifier(WordEncoder(), "logistic", out_of_scope="confidence", threshold=0.99)
    assert unsure(one.fit(TEXTS, LABELS), LOG, 0.0).all()
    assert not unsure(one.set_params(threshold=0.0).fit(TEXTS, LABELS), TEXTS, 0.0).any()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("mail me at Jane.Doe+x@mail.example.co.uk, please", "mail me at [email], please"),
        ("call +44 (0)20 7946-0018 now", "call [number] now"),
        ("DE89 3704 0044 is my iban", "[number] is my iban"),
        ("card ending 1234. lost it", "card ending [number]. lost it"),
        ("no numbers here", "no numbers here"),
    ],
)
def test_masks(text, wanted):
    assert masked(text) == wanted
    assert [*counted_messages([text, f" {text} "], masks=True).items()] == [(wanted, 2)]


def test_what_cannot_be_grouped():
    with pytest.raises(ValueError, match="no messages"):
        discover_intents(["", " "], WordEncoder())
    with pytest.raises(ValueError, match="12 different messages, fewer than the 20 groups"):
        discover_intents([*LOG, *LOG], WordEncoder(), num_groups=20)
    with pytest.raises(ValueError, match="1 different messages"):
        discover_intents(["one"], WordEncoder())
    with pytest.raises(ValueError, match="encoder or classifier"):
        discover_intents(LOG)


def test_the_command_writes_labels_and_a_page(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("convert_tf.intents.encodings._loaded", lambda encoder: encode)
    log = tmp_path / "log.txt"
    log.write_text("\n".join([*LOG, "my id is 4711"]))
    output = tmp_path / "groups"
    arguments = ["intent", "discover", f"--input={log}", f"--output={output}", "--encoder=x.onnx"]
    call_command(*arguments, "--groups=3", "--min_size=1", "--mask")
    assert "13 messages, 13 to group" in capsys.readouterr().out
    texts, labels = read_labelled(output / "groups.csv")
    assert {*LOG} <= {*texts} and "my id is [number]" in texts and len({*labels}) == 3
    page = (output / "groups.html").read_text()
    assert "sing a &lt;b&gt;song" in page and "<b>" not in page
    assert "http" not in page and "<script" not in page and "4711" not in page
    log.write_bytes("wo ist mein Päckchen\n".encode("latin-1"))
    with pytest.raises(SystemExit, match="lines of a UTF-8 file"):
        call_command(*arguments)
    classifier = IntentClassifier(WordEncoder(), "logistic").fit(TEXTS, LABELS)
    monkeypatch.setattr("convert_tf.cli.intent.discover.loaded_classifier", lambda _: classifier)
    log.write_text("\n".join([*LOG, *TEXTS]))
    call_command(*arguments[:-1], "--model=m", "--min_confidence=1", "--min_size=1")
    assert "; nearest intent " in capsys.readouterr().out
    with pytest.raises(SystemExit, match="no effect without --model"):
        call_command(*arguments, "--min_confidence=0.1")
