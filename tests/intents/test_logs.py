"""Messages in logs: discovering planted topics, comparing two weeks, and suggesting labels."""

import copy
import itertools
import json
import re
import time
import warnings
from collections import Counter

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.stats import chi2_contingency
from support.commands import call_command
from support.intent_examples import EXAMPLES, LABELS, TEXTS, Series, WordEncoder

from convert_tf import IntentClassifier, MultiIntentClassifier, discover_intents
from convert_tf.cli.intent.discover import _earlier_groups
from convert_tf.intents import discover, messages, monitor, report_page, suggest
from convert_tf.intents.data import LabelledTexts, read_labelled
from convert_tf.intents.decision import SingleIntent

TOPICS = {
    "parcel": ["where is my parcel", "my parcel is late", "no parcel came", "the parcel is late"],
    "refund": ["refund this please", "i want a refund", "a refund for this", "when is the refund"],
    "<b>song": ["sing a <b>song", "play that <b>song", "another <b>song", "play a <b>song"],
}
LOG = [text for own in TOPICS.values() for text in own]


def encode(texts):
    """Return vectors that contain the topics and, weakly, the words."""
    topics = [[topic in text for topic in (*TOPICS, "id")] for text in texts]
    return np.concatenate([20 * np.array(topics), WordEncoder()(texts) / 20], 1)


def topics_of(texts):
    return {topic for topic, own in TOPICS.items() for text in texts if text in own}


def test_topics_become_groups():
    found = discover_intents([*LOG, LOG[0], "", "  "], encode, num_groups=3, min_size=1)
    assert (found["messages"], found["unsure"], found["left_out"]) == (13, 13, 0)
    assert [row["size"] for row in found["groups"]] == [5, 4, 4]  # duplicates count
    assert sorted(len(topics_of(row["texts"])) for row in found["groups"]) == [1, 1, 1]
    (parcels,) = (row for row in found["groups"] if row["size"] == 5)
    assert parcels["words"][0] == "parcel" and parcels["label"].startswith("parcel")
    assert "nearest" not in parcels


def test_the_number_of_groups_is_chosen():
    rng = np.random.default_rng(0)
    centres = np.eye(6, 40)
    vectors = np.concatenate([centre + 0.12 * rng.standard_normal((20, 40)) for centre in centres])
    groups, centres = discover.group_vectors(vectors)
    assert len(centres) == 6
    assert all(len({*own}) == 1 for own in groups.reshape(6, 20))


def test_heights_give_the_variance_within_groups():
    points = np.random.default_rng(1).standard_normal((30, 4))
    tree = linkage(points, "ward")

    def within(groups):
        numbers = fcluster(tree, groups, "maxclust") - 1
        return ((points - discover._means(points, numbers)[numbers]) ** 2).sum() / (30 - groups)

    for allowed in (0.5, 1.0, 2.0):
        number = discover._chosen_number(tree[:, 2], allowed)
        assert within(number) <= allowed < within(number - 1)
    half, (groups, _) = 0.48 * points.var(axis=0, ddof=1).sum(), discover.group_vectors(points)
    assert groups.max() + 1 == discover._chosen_number(tree[:, 2], half)


class Wide:
    """Encodes `intent number/id` so that intents scatter widely; two of them are new."""

    def __call__(self, texts):
        seeds = [tuple(map(int, text.split("/"))) for text in texts]
        noise = [np.random.default_rng(seed).standard_normal(60) for seed in seeds]
        return 0.3 * np.array(noise) + 2 * np.eye(60)[[intent for intent, _ in seeds]]


def test_known_intents_say_how_much_a_group_scatters():
    """Groups of new messages are not split more finely than known intents scatter."""
    known = [f"{intent}/{number}" for intent in range(6) for number in range(10)]
    log = [f"{intent}/{number}" for intent in (6, 7) for number in range(20, 60)]
    classifier = IntentClassifier(Wide(), "logistic", names=None, lexical=None)
    classifier.fit(known, [text[0] for text in known])
    vectors = classifier.encode(known).reshape(6, 10, 60)
    expected = ((vectors - vectors.mean(axis=1, keepdims=True)) ** 2).sum() / (60 - 6)
    assert discover._scatter_of(classifier, 0) == pytest.approx(expected, rel=1e-5)
    found = discover_intents(log, classifier=classifier, min_confidence=1.0)
    assert [len(row["texts"]) for row in found["groups"]] == [40, 40]
    assert len(discover_intents(log, Wide())["groups"]) > 2  # by the share of explained variance
    few = IntentClassifier(Wide(), "logistic", names=None, lexical=None)
    few.fit(known[::10] * 2, [text[0] for text in known[::10]] * 2)
    assert discover._scatter_of(few, 0) is None


def test_messages_of_small_groups_are_kept_as_leftovers():
    log = [text for text in LOG if "refund" not in text] + TOPICS["refund"][:2]
    found = discover_intents(log, encode, num_groups=3, min_size=3)
    assert found["left_out"] == 2 and {*found["leftovers"]} == {*TOPICS["refund"][:2]}
    assert len(found["groups"]) == 2
    page = report_page.discovery_page(found)
    assert "Smaller groups" in page and TOPICS["refund"][0] in page


def test_messages_outside_of_the_sample_go_to_the_nearest_group(monkeypatch):
    rng = np.random.default_rng(0)
    log = [f"{topic} {word}" for topic in ("aa", "bb") for word in map(str, range(100))]
    log = [log[place] for place in rng.permutation(200)]

    def encode(texts):
        return np.array([[text[0] == "a", text[0] == "b", int(text[3:]) / 1e3] for text in texts])

    monkeypatch.setattr(discover, "_SAMPLE", 20)
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
    assert messages.unsure(several, LOG, 0.0).all()
    one = IntentClassifier(WordEncoder(), "logistic", out_of_scope="confidence", threshold=0.99)
    assert messages.unsure(one.fit(TEXTS, LABELS), LOG, 0.0).all()
    assert not messages.unsure(one.set_params(threshold=0.0).fit(TEXTS, LABELS), TEXTS, 0.0).any()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("mail to Jane.Doe+x@mail.example.co.uk, please", "mail to [email], please"),
        ("call +44 (0)20 7946-0018 now", "call [number] now"),
        ("DE89 3704 0044 is my iban", "[number] is my iban"),
        ("card ending 1234. lost it", "card ending [number]. lost it"),
        ("no numbers here", "no numbers here"),
        ("a+1 and +a1", "a[number] and [number]"),
        ("a@b.c+d@e.f, a@b and x.y@", "[email][email], a@b and x.y@"),
        ("ask ｂｏｂ＠ｅｘａｍｐｌｅ．ｃｏｍ now", "ask [email] now"),
        ("bob@exam\u200bple.com", "[email]"),
        ("mail jo.\u00adsmith@example.com", "mail [email]"),
        ("a “ﬁne” 7\u00a0card", "a “ﬁne” [number]\u00a0card"),  # its spelling hides nothing
    ],
)
def test_masks(text, wanted):
    assert [*messages.counted_messages([text, f" {text} "], mask=True).items()] == [(wanted, 2)]
    assert messages.masked(wanted) == wanted


@pytest.mark.parametrize("part", ["ab", "a.", "中文"])
def test_masks_take_linear_time(part):
    """A message may contain a long word, such as a data URL."""
    text = part * 20_000
    started = time.process_time()
    assert messages.masked(f"{text}@") == f"{text}@"
    assert time.process_time() - started < 3


def test_any_iterable_of_messages_is_counted():
    counts = {"hi": 2, "bye": 1}
    log = ["hi", "bye", "hi"]
    for texts in (log, iter(log), Series(log), np.array(log)[:, None]):
        assert messages.counted_messages(texts) == counts
    assert messages.counted_messages({"hi", "bye"}) == {"hi": 1, "bye": 1}


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ("log.txt", r"messages must be a list.*Received: 'log.txt'"),
        (b"log.txt", "messages must be a list"),
        ({"text": ["hi"]}, "messages must be a list"),
        (np.array([["hi", "greet"]]), r"messages must be one column\. Received: .*\(1, 2\)"),
        (["hi", None], r"Text 1 is not a string\. Received: None"),
        (["hi", float("nan")], r"Text 1 is not a string\. Received: nan"),
    ],
)
def test_what_is_no_list_of_messages(log, message):
    with pytest.raises(ValueError, match=message):
        messages.counted_messages(log)


def test_messages_that_are_read_as_nothing_are_left_out():
    assert messages.counted_messages(["hi", "\u200b", " \u00ad", "hi "]) == {"hi": 2}


@pytest.mark.parametrize(
    ("log", "options", "message"),
    [
        (["", " "], {"encoder": WordEncoder()}, "no messages"),
        (["hi"] * 9, {"encoder": WordEncoder()}, r"at least 2\. Pass a longer log\.$"),
        (
            [*LOG, *LOG],
            {"encoder": WordEncoder(), "num_groups": 20},
            "12 different .* 20 groups .*, or ask for fewer groups",
        ),
        (LOG, {}, "neither an encoder nor a classifier"),
    ],
)
def test_what_cannot_be_grouped(log, options, message):
    with pytest.raises(ValueError, match=message):
        discover_intents(log, **options)


def of_topics(found):
    """Return the group of each topic."""
    return {topics_of(row["texts"]).pop(): row for row in found["groups"]}


def test_groups_keep_their_numbers_over_weeks():
    first = discover_intents(LOG, encode, num_groups=3)
    assert sorted(row["group"] for row in first["groups"]) == [1, 2, 3]
    before = of_topics(first)
    before["parcel"]["label"] = "delivery"  # renamed by hand
    ids = [f"id {number}" for number in range(5)]
    second = discover_intents(
        [*ids, *TOPICS["<b>song"], *TOPICS["parcel"]], encode, num_groups=3,
        earlier=first["groups"],
    )  # fmt: skip
    new, *others = second["groups"]
    assert (new["group"], new["is_new"]) == (4, True) and new["texts"][0] in ids
    assert not any(row["is_new"] for row in others)
    topics = of_topics({"groups": others})
    for topic in ("parcel", "<b>song"):
        assert topics[topic]["group"] == before[topic]["group"]
    assert topics["parcel"]["label"] == "delivery"
    assert second["gone"] == [before["refund"]]
    shown = discover.discovery_text(second)
    assert "more" not in shown and "and 2 more" in discover.discovery_text(second, shown=1)
    refund = before["refund"]
    assert f"; 2 groups are known, 1 gone: {refund['group']} {refund['label']}\n" in shown
    assert f"  4 new: {', '.join(new['words'])}\n" in shown
    assert f"  {topics['parcel']['group']} delivery: parcel" in shown
    assert "<h2>4 new: " in report_page.discovery_page(second)
    earlier = [*second["groups"], *second["gone"]]
    third = discover_intents(LOG, encode, num_groups=3, earlier=earlier)
    assert {topic: row["group"] for topic, row in of_topics(third).items()} == {
        topic: row["group"] for topic, row in before.items()
    }
    assert [row["group"] for row in third["gone"]] == [4]


@pytest.mark.parametrize("seed", range(10))
def test_groups_are_paired_by_the_largest_sum_of_cosines(seed):
    vectors = np.random.default_rng(seed).standard_normal((8, 3)) + np.array([2, 0, 0])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    centres, others = vectors[:4], vectors[4:]
    earlier = [{"group": i + 7, "label": f"g{i}", "texts": [str(i)]} for i in range(4)]
    rows = [{} for _ in centres]
    discover._take_earlier(rows, centres, earlier, lambda texts: others[[*map(int, texts)]])
    paired = {(i, row["group"] - 7) for i, row in enumerate(rows) if not row["is_new"]}

    def total(pairs):
        cosines = [centres[i] @ others[j] for i, j in pairs]
        return sum(cosine for cosine in cosines if cosine >= 0.8)

    best = max(total(enumerate(order)) for order in itertools.permutations(range(4)))
    assert total(paired) == pytest.approx(best)
    assert all(centres[i] @ others[j] >= 0.8 for i, j in paired)
    new = [row["group"] for row in rows if row["is_new"]]
    assert new == [*range(11, 11 + len(new))]


def test_new_labels_differ_from_earlier_ones():
    first = discover_intents(LOG, encode, num_groups=3)
    label = of_topics(first)["parcel"]["label"]
    earlier = [{"group": 9, "label": label, "texts": ["my id"]}]
    found = discover_intents(LOG, encode, num_groups=3, earlier=earlier)
    assert of_topics(found)["parcel"]["label"] == f"{label}_2"
    assert sorted(row["group"] for row in found["groups"]) == [10, 11, 12]


def test_the_command_keeps_numbers_and_labels_over_weeks(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("convert_tf.intents.encodings._loaded", lambda encoder: encode)
    (tmp_path / "x.onnx").write_text("an encoder")

    def week(number, log, *arguments):
        (tmp_path / "log.txt").write_text("\n".join(log))
        call_command(
            "intent", "discover", f"--input={tmp_path}/log.txt", f"--encoder={tmp_path}/x.onnx",
            f"--output={tmp_path}/week{number}", *arguments,
        )  # fmt: skip
        table = tmp_path / f"week{number}" / "groups.csv"
        return table, json.loads((table.parent / "groups.csv.json").read_text())["groups"]

    table, groups = week(1, LOG, "--groups=3")
    numbers = {topics_of(row["texts"]).pop(): row["group"] for row in groups}
    rows = [line.split(",") for line in table.read_text().splitlines()[1:]]
    table.write_text("label;text\n" + "".join(
        f"{'delivery' if 'parcel' in text else label};{text}\n" for text, label in rows[::-1]
    ))  # fmt: skip
    late = ["late again is the parcel", *TOPICS["parcel"][1:], *[f"id {i}" for i in range(9)]]
    table, groups = week(2, late, f"--earlier={table}", "--groups=2")
    assert "1 groups are known, 2 gone: " in capsys.readouterr().out
    assert dict(zip(*read_labelled(table), strict=True))[late[0]] == "delivery"
    assert [(row["group"], row["size"]) for row in groups[:2]] == [(4, 9), (numbers["parcel"], 4)]
    assert {row["group"] for row in groups if not row["size"]} == {
        numbers["refund"], numbers["<b>song"],
    }  # fmt: skip
    _, groups = week(3, LOG, f"--earlier={table}", "--groups=3")
    assert {topics_of(row["texts"]).pop(): row["group"] for row in groups[:3]} == numbers
    described = table.with_name("groups.csv.json")
    content = json.loads(described.read_text())
    lines = table.read_text().splitlines()
    gone = next(row for row in content["groups"] if not row["size"])
    table.write_text("\n".join([*lines, f"{gone['texts'][0]},delivery"]))  # moved to another group
    labels = {row["group"]: row["label"] for row in _earlier_groups(str(table), mask=False)}
    assert labels[gone["group"]] == gone["label"] != "delivery" == labels[numbers["parcel"]]
    table.write_text(lines[0])
    described.write_text(
        json.dumps({**content, "groups": [{**row, "size": 0} for row in content["groups"]]})
    )
    assert [row["label"] for row in _earlier_groups(str(table), mask=False)] == [
        row["label"] for row in content["groups"]
    ]
    table.write_text("\n".join(lines))
    described.write_text(json.dumps(content))
    with pytest.raises(SystemExit, match="which --earlier reads"):
        week(2, LOG, f"--earlier={table}", "--overwrite")
    sizeless = {**content, "groups": [{**content["groups"][0], "size": "4"}]}
    del content["groups"][0]["texts"]
    for damaged in (json.dumps(content), json.dumps(sizeless), "[]"):
        described.write_text(damaged)
        with pytest.raises(SystemExit, match=r"groups\.csv\.json does not contain the groups of "):
            week(4, LOG, f"--earlier={table}")
    for absent in (tmp_path, tmp_path / "no.csv"):
        with pytest.raises(SystemExit, match="is not a file"):
            week(4, LOG, f"--earlier={absent}")
    assert not (tmp_path / "week4").exists()


def test_earlier_messages_are_masked_too(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("convert_tf.intents.encodings._loaded", lambda encoder: WordEncoder())
    (tmp_path / "x.onnx").write_text("an encoder")
    mails = [
        f"mail {name}@example.com about 123456{number} please"
        for number, name in enumerate(("bob", "eve", "ann"))
    ]

    def week(name, log, *arguments):
        (tmp_path / "log.txt").write_text("\n".join(log))
        call_command(
            "intent", "discover", f"--input={tmp_path}/log.txt", f"--encoder={tmp_path}/x.onnx",
            "--groups=2", "--min_size=1", f"--output={tmp_path}/{name}", *arguments,
        )  # fmt: skip
        table = tmp_path / name / "groups.csv"
        return table, json.loads(table.with_name("groups.csv.json").read_text())

    table, content = week("plain", [*mails, *TOPICS["parcel"]])
    assert content.pop("mask") is False
    description = table.with_name("groups.csv.json")
    description.write_text(json.dumps(content))  # as an earlier version wrote it
    number = next(row["group"] for row in content["groups"] if mails[0] in row["texts"])
    table.write_text("text,label\n" + "".join(f"{text},write\n" for text in mails))
    since = (f"--earlier={table}", "--mask")
    _, content = week("gone", [*TOPICS["parcel"], *TOPICS["refund"]], *since)
    assert [row["texts"] for row in content["groups"] if row["group"] == number] == [
        ["mail [email] about [number] please"]
    ]
    for file in (tmp_path / "gone").iterdir():
        assert "example.com" not in file.read_text() and "123456" not in file.read_text(), file
    table, content = week("same", [*mails, *TOPICS["parcel"]], *since)
    assert content["mask"] is True
    assert {"group": number, "label": "write", "size": 3}.items() <= next(
        row for row in content["groups"] if "[email]" in row["texts"][0]
    ).items()
    with pytest.raises(SystemExit, match=r"groups\.csv was made with --mask\. .*Pass --mask"):
        week("later", mails, f"--earlier={table}")


def test_the_command_writes_labels_and_a_page(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("convert_tf.intents.encodings._loaded", lambda encoder: encode)
    log, output = tmp_path / "log.txt", tmp_path / "groups"
    log.write_text("\n".join([*LOG, "my id is 4711"]))
    (tmp_path / "x.onnx").write_text("an encoder")  # its checksum is written
    encoder = f"--encoder={tmp_path}/x.onnx"
    arguments = ["intent", "discover", f"--input={log}", f"--output={output}", encoder]
    call_command(*arguments, "--groups=3", "--min_size=1", "--mask")
    assert "13 messages, 13 to group" in capsys.readouterr().out
    texts, labels = read_labelled(output / "groups.csv")
    assert {*LOG} <= {*texts} and "my id is [number]" in texts and len({*labels}) == 3
    assert (output / "leftovers.csv").read_text() == "text,label\n"
    call_command(*arguments, "--groups=3", "--min_size=5", "--mask", "--overwrite")
    texts, labels = read_labelled(output / "leftovers.csv", needs_labels=False)
    assert len(texts) == 8 and not any(labels)
    call_command(*arguments, "--groups=3", "--min_size=1", "--mask", "--overwrite")
    capsys.readouterr()
    page = (output / "groups.html").read_text()
    assert "sing a &lt;b&gt;song" in page and "<b>" not in page
    assert "http" not in page and "<script" not in page and "4711" not in page
    with pytest.raises(SystemExit, match="no effect without --model"):
        call_command(*arguments, "--min_confidence=0.1")
    classifier = IntentClassifier(WordEncoder(), "logistic").fit(TEXTS, LABELS)
    monkeypatch.setattr("convert_tf.cli.intent.discover.loaded_classifier", lambda _: classifier)
    again = [*arguments[:-1], "--model=m", "--min_confidence=1", "--min_size=1"]
    call_command(*again, "--overwrite")
    assert "; nearest intent " in capsys.readouterr().out


def test_labels_corrected_by_hand_are_kept(tmp_path, monkeypatch):
    """A second run needs --overwrite, and says so before it computes anything."""
    monkeypatch.setattr("convert_tf.intents.encodings._loaded", lambda encoder: encode)
    log, folder, table = tmp_path / "log.txt", tmp_path / "groups", tmp_path / "to_label.csv"
    log.write_text("\n".join(LOG))
    (tmp_path / "x.onnx").write_text("an encoder")
    commands = {
        folder / "groups.csv": ["discover", f"--output={folder}", "--groups=3"],
        table: ["suggest", f"--output={table}", "--budget=3"],
    }
    for path, (name, *others) in commands.items():
        arguments = ["intent", name, f"--input={log}", f"--encoder={tmp_path}/x.onnx", *others]
        call_command(*arguments)
        path.write_text("\ufefftext;label\nwhere is my parcel;MINE\n")
        with pytest.raises(SystemExit, match=f"{path.name}' already exists. Pass --overwrite"):
            call_command(*arguments)
        assert "MINE" in path.read_text()
        call_command(*arguments, "--overwrite")
        assert "MINE" not in path.read_text()
        path.write_text("notes of mine")
        with pytest.raises(SystemExit, match="did not write"):
            call_command(*arguments, "--overwrite")
        assert path.read_text() == "notes of mine"


SONGS = ["sing me a song", "play a song", "a song for me", "play me another song", "one more song"]
OUTAGE = ["site is down", "the site is down now", "down again", "why is it down", "site down now"]


@pytest.fixture(scope="module")
def classifier():
    return IntentClassifier(
        WordEncoder(), "logistic", names=None, out_of_scope="distance", threshold=0.5
    ).fit(TEXTS, LABELS)


def week(classifier, log, **options):
    return monitor.monitor_messages(log, classifier, min_confidence=0.0, min_size=2, **options)


def test_shares_of_intents_and_of_unsure_messages(classifier):
    found = week(classifier, [*EXAMPLES["order"] * 5, *SONGS, ""])
    assert found["messages"] == 25 and found["unsure"] == 5
    assert found["intents"] == {"greet": 0, "order": 20, "reset": 0, "oos": 5}
    assert "and 3 more" in monitor.monitoring_text(found, shown=1)
    assert "more" not in monitor.monitoring_text(found, shown=4)
    assert {text for row in found["groups"] for text in row["texts"]} <= {*SONGS}
    assert "changes" not in found


def test_a_message_with_several_intents_counts_for_each():
    labels = [[label, "any"] for label in LABELS]
    several = MultiIntentClassifier(WordEncoder(), threshold=1e-6).fit(TEXTS, labels)
    assert week(several, TEXTS)["intents"] == dict.fromkeys(several.classes_, len(TEXTS))
    several.set_params(threshold=1 - 1e-6).fit(TEXTS, labels)
    assert week(several, TEXTS)["intents"] == dict.fromkeys(several.classes_, 0)


def test_drift_is_tested_against_the_examples(classifier):
    same = week(classifier, TEXTS)["drift"]
    other = week(classifier, [f"{word} elsewhere" for word in "abcdefghijklmnop"])["drift"]
    assert same["farther"] == 0 and same["p_value"] > 0.9
    assert other["farther"] > 0.9 and other["p_value"] < 1e-4
    assert "have drifted" in monitor.monitoring_text({**week(classifier, TEXTS), "drift": other})


def test_drift_counts_each_message(classifier):
    new = [f"{word} elsewhere" for word in "abcdefghijklmnop"]
    report = week(classifier, [*TEXTS * 100, *new])
    share = len(new) / (len(TEXTS) * 100 + len(new))
    assert report["drift"]["farther"] == pytest.approx(share, rel=0.1)
    assert "have drifted" not in monitor.monitoring_text(report)


def test_copies_are_no_evidence_of_drift():
    """Compare the probability with a naive loop, and check p-values of weeks without a change."""
    random = np.random.default_rng(0)
    p_values = []
    for _ in range(200):
        between = random.integers(0, 30, 200) / 30
        cosines, numbers = random.integers(0, 30, 100) / 30, random.zipf(1.5, 100).clip(max=300)
        drift = monitor._drift(between, cosines, numbers.tolist())
        wins = [np.mean((between > c) + (between == c) / 2) for c in cosines]
        expected = np.dot(wins, numbers) / numbers.sum()
        assert drift["farther"] == pytest.approx(expected, abs=1e-4)
        p_values.append(drift["p_value"])
    assert np.mean(np.array(p_values) < 0.01) <= 0.05


@pytest.mark.parametrize("repeats", [1, 3])
def test_the_scatter_is_that_of_different_masked_examples(monkeypatch, repeats):
    words = ["please", "now", "today", "again", "quick", "thanks", "soon", "here", "once"]
    labels = ["track", "cancel", "invoice"] * len(words)
    texts = [f"{label} {word}" for word in words for label in ("track", "cancel", "invoice")]
    scatters = []
    group = discover.group_vectors

    def observed(*arguments, scatter):
        scatters.append(scatter)
        return group(*arguments, scatter=scatter)

    def fitted(examples, labels):
        return IntentClassifier(WordEncoder(), "logistic", names=None, lexical=None).fit(
            examples, labels
        )

    monkeypatch.setattr(discover, "group_vectors", observed)
    numbered = [f"{text} {number}" for number in range(10, 10 + repeats) for text in texts]
    options = {"classifier": fitted(numbered, labels * repeats), "min_confidence": 1.0}
    expected = discover._scatter_of(fitted([f"{text} [number]" for text in texts], labels), 0)
    log = [f"{topic} {number}" for topic in ("sofa late", "page error") for number in range(9)]
    discover_intents(log, mask=True, **options)
    monitor.monitor_messages(log, mask=True, **options)
    assert scatters == pytest.approx([expected] * 2)
    plain = fitted(texts * repeats, labels * repeats)
    assert discover._scatter_of(plain, 0) == pytest.approx(
        discover._scatter_of(fitted(texts, labels), 0)
    )


def test_masked_messages_are_compared_with_masked_examples():
    templates = [f"order {{}} {word}" for word in ("is late", "is lost", "came", "has not come")]
    greetings = ["hello", "hi there", "good morning", "good day"]

    def numbered(numbers):
        return [template.format(n) for template in templates for n in numbers]

    texts = [*numbered([11, 12, 13]), *greetings]
    fitted = IntentClassifier(WordEncoder(), "logistic", names=None)
    fitted.fit(texts, ["order"] * 12 + ["greet"] * 4)
    found = week(fitted, [*numbered([77, 78]), *greetings], mask=True)
    # After masking, every message equals an example, and each example counts once.
    assert found["far"] == 0 and found["drift"]["farther"] == 0
    plain = week(fitted, numbered([77, 78]))
    assert (found["mask"], plain["mask"]) == (True, False)
    week(fitted, texts, since=plain)
    with pytest.raises(ValueError, match=r"earlier version made this report, without mask\. Make"):
        week(fitted, texts, since={name: plain[name] for name in plain if name != "mask"})
    for earlier, mask in ((plain, True), (found, False)):
        with pytest.raises(ValueError, match=r"with mask=.* omit --since"):
            week(fitted, texts, since=earlier, mask=mask)
    for name, value in (("min_confidence", 0.99), ("min_size", 100)):
        with pytest.raises(ValueError, match=f"the same value of --{name} for both"):
            options = {"min_confidence": 0.0, "min_size": 2, name: value}
            monitor.monitor_messages(texts, fitted, since=plain, **options)


def test_repeated_examples_do_not_look_like_a_drift():
    reports = []
    for repeats in (1, 2):
        fitted = IntentClassifier(WordEncoder(), "logistic", names=None)
        fitted.fit([*TEXTS] * repeats, [*LABELS] * repeats)
        reports.append(week(fitted, [f"{text} now" for text in TEXTS]))
    assert reports[0]["far"] == reports[1]["far"]
    assert reports[0]["drift"] == reports[1]["drift"]


def test_without_examples_there_is_no_drift(classifier):
    forgetful = copy.copy(classifier)
    forgetful.examples_ = None
    found = week(forgetful, TEXTS)
    assert found["drift"] is None
    assert found["groups"] == []  # every message is answered


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
    assert "clear changes" in monitor.monitoring_text(found)
    same = week(classifier, log, since=found)
    assert same["changes"] == []
    assert all(row["before"] == row["share"] for row in same["groups"])


def test_changes_are_not_those_of_rounding(classifier, monkeypatch):
    """Shares of groups have four decimals in reports, which is too few for large logs."""
    monkeypatch.setattr(monitor, "counted_messages", lambda texts, mask: Counter(texts))
    many = dict.fromkeys(EXAMPLES["order"], 750_000)
    first = week(classifier, many | {SONGS[0]: 448, SONGS[1]: 1})
    second = week(classifier, many | {SONGS[0]: 451, SONGS[1]: 1}, since=first)
    assert first["groups"][0]["share"] == second["groups"][0]["before"] == 0.0001
    assert second["groups"][0]["share"] == 0.0002
    assert second["changes"] == []


def test_what_is_gone_is_a_change(classifier):
    """Vanished intents, out-of-scope texts, intents of earlier models and groups are reported."""
    first = week(classifier, [*EXAMPLES["order"] * 150, *EXAMPLES["greet"] * 120, *SONGS * 48])
    assert first["intents"]["oos"] and first["groups"]
    first["intents"]["retired"] = 180
    found = week(classifier, EXAMPLES["order"] * 240, since=json.loads(json.dumps(first)))
    changed = {row["name"]: (row["before"], row["now"]) for row in found["changes"]}
    labels = {row["label"] for row in first["groups"] if row["share"] > 0.05}
    assert labels and {"greet", "oos", "retired", *labels} <= {*changed}
    assert all(changed[name][1] == 0 for name in ("greet", "oos", "retired", *labels))
    assert "0.0%  oos" in monitor.monitoring_text(found)


def test_reports_of_different_classifiers_are_not_compared(classifier, tmp_path):
    """The same messages, answered by a classifier with another intent, are no change."""
    log = [*EXAMPLES["order"] * 25, *SONGS * 5]
    first = json.loads(json.dumps(week(classifier, log)))
    retrained = IntentClassifier(
        WordEncoder(), "logistic", names=None, out_of_scope="distance", threshold=0.5
    ).fit([*TEXTS, *SONGS], [*LABELS, *["song"] * len(SONGS)])
    stricter = copy.copy(classifier)
    stricter.threshold_ = 0.6
    for other in (retrained, stricter):
        with pytest.warns(UserWarning, match="made with another classifier, so .* not compared"):
            report = week(other, log, since=first)
        assert "changes" not in report
        assert not any("before" in row for row in report["groups"])
        assert "clear changes" not in monitor.monitoring_text(report)
        assert report["classifier"] != first["classifier"]
    classifier.save(tmp_path / "model")
    loaded = IntentClassifier.load(tmp_path / "model", encoder=WordEncoder())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert week(loaded, log, since=first)["changes"] == []
    del first["classifier"]  # as in a report from an earlier version
    with pytest.warns(UserWarning, match="does not say which classifier made it"):
        assert week(classifier, log, since=first)["changes"] == []


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda w: w["groups"][0].pop("texts"), "no 'texts' to compare in group 1"),
        (lambda w: w["groups"][0].update(texts=[]), "no 'texts' to compare in group 1"),
        (lambda w: w["groups"][0].pop("label"), "no 'label' in group 1"),
        (lambda w: w["groups"][0].update(share="much"), "no 'share' from 0 to 1 in group 1"),
        (lambda w: w["groups"][0].update(size="many"), "has 'many' messages in group 1"),
        (lambda w: w.pop("intents"), "no 'intents'"),
        (lambda w: w.update(messages=0), "an invalid number 'messages': 0"),
        (lambda w: w["intents"].update(order=None), "None messages of intent 'order'"),
        (lambda w: w.update(groups={}), "no list 'groups'"),
    ],
)
def test_an_earlier_report_that_was_edited(classifier, edit, message):
    first = week(classifier, [*TEXTS, *SONGS])
    edit(first)
    with pytest.raises(ValueError, match=message):
        week(classifier, TEXTS, since=first)


def test_shares_are_compared_as_by_chi_squared(classifier):
    options = {"mask": False, "min_confidence": 0.0, "min_size": 2}
    first = {"messages": 100, "intents": {"order": 50}, "groups": [], **options}
    with pytest.warns(UserWarning, match="does not say which classifier"):
        found = week(classifier, [*EXAMPLES["order"] * 5, *SONGS * 16], since=first)
    (row,) = (row for row in found["changes"] if row["name"] == "order")
    rows = len(found["intents"]) + len(found["groups"])
    expected = chi2_contingency([[50, 50], [20, 80]], correction=False).pvalue
    assert np.isclose(row["p_value"] / rows, expected)


def report_of(shares, messages, rng):
    """Return a report with these shares of uncertain and distant messages and with 60 intents."""
    unsure, far = rng.binomial(messages, shares)
    intents = rng.multinomial(messages, np.full(60, 1 / 60))
    counts = {f"intent {number}": int(count) for number, count in enumerate(intents)}
    return {
        "messages": messages, "unsure": int(unsure), "far": int(far), "intents": counts,
        "groups": [],
    }  # fmt: skip


def test_new_intents_raise_an_alarm_and_equal_weeks_do_not():
    """With a few messages for each of many new intents, only the two shares change."""
    rng = np.random.default_rng(0)
    seen = alarms = 0
    for _ in range(100):
        first, same = (report_of([0.15, 0.12], 888, rng) for _ in range(2))
        other = report_of([0.21, 0.2], 888, rng)
        alarms += bool(monitor._changes(same, first, []))
        seen += bool({"(not answered surely)", "(far from the examples)"} & {
            row["name"] for row in monitor._changes(other, first, [])
        })  # fmt: skip
    assert alarms <= 5
    assert seen >= 95


def test_shares_of_unsure_and_far_messages(classifier):
    log = [*EXAMPLES["order"] * 5, *SONGS]
    found = week(classifier, log)
    encodings = classifier.encode(TEXTS)
    between = encodings @ encodings.T
    np.fill_diagonal(between, -1)
    limit = np.quantile(between.max(axis=1), 0.1)
    assert found["far"] == ((classifier.encode(log) @ encodings.T).max(axis=1) < limit).sum() > 0
    first = {**found, "unsure": 0, "far": 0}
    changes = week(classifier, log * 4, since=first)["changes"]
    row = changes[0]
    assert (row["name"], row["before"], row["now"]) == ("(not answered surely)", 0, 0.2)
    expected = chi2_contingency([[0, 25], [20, 80]], correction=False).pvalue
    assert row["p_value"] == pytest.approx(2 * expected)
    del first["unsure"], first["far"]  # as in a report from an earlier version
    with pytest.warns(UserWarning, match="so this share is not compared") as notes:
        assert week(classifier, log * 4, since=first)["changes"] == []
    assert [re.findall(r"no number '(\w+)'", str(note.message)) for note in notes] == [
        ["unsure"],
        ["far"],
    ]
    with pytest.raises(ValueError, match="'many' messages in 'far'"):
        week(classifier, log, since={**found, "far": "many"})


def test_the_command_compares_two_weeks(classifier, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("convert_tf.cli.intent.monitor.loaded_classifier", lambda _: classifier)
    log = tmp_path / "log.txt"
    log.write_text("\n".join([*TEXTS, *SONGS, "call 0123"]))
    arguments = ["intent", "monitor", f"--input={log}", "--model=m", "--min_size=2", "--mask"]
    call_command(*arguments, f"--output={tmp_path}/one.json")
    assert "0123" not in (tmp_path / "one.json").read_text()
    call_command(*arguments, f"--output={tmp_path}/two.json", f"--since={tmp_path}/one.json")
    assert "clear changes:\n  none" in capsys.readouterr().out
    history = (tmp_path / "one.json").read_text()
    with pytest.raises(SystemExit, match=r"one\.json' already exists\. Pass --overwrite"):
        call_command(*arguments, f"--output={tmp_path}/one.json")
    call_command(*arguments, f"--output={tmp_path}/two.json", "--overwrite")
    assert (tmp_path / "one.json").read_text() == (tmp_path / "two.json").read_text() == history
    (tmp_path / "link").symlink_to("two.json")
    (tmp_path / "two.json").write_text(history + "\n")
    call_command(*arguments, f"--output={tmp_path}/link", "--overwrite")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "two.json").read_text() == history
    (tmp_path / "one.json").write_text("[]")
    with pytest.raises(SystemExit, match="did not write"):
        call_command(*arguments, f"--output={tmp_path}/one.json", "--overwrite")
    with pytest.raises(SystemExit, match="earlier report is not a JSON object"):
        call_command(*arguments, "--output=x.json", f"--since={tmp_path}/one.json")


class Unsure:
    """Uses the number at the start of a message as the margin between its two intents."""

    decision = SingleIntent(np.arange(2))

    def predict_proba(self, texts):
        lead = np.array([float(text.split()[0]) for text in texts])
        return np.stack([(1 + lead) / 2, (1 - lead) / 2], 1)

    def encode(self, texts):
        return np.array([[text.endswith("a"), text.endswith("b")] for text in texts], float)


def test_messages_weigh_by_how_unsure_they_are():
    # The angles are 0, 0.4 and 0.99. A centre is nearest to the message with the largest weight.
    class Angles(Unsure):
        def encode(self, texts):
            return circle([float(text.split()[0]) + 9 * text.endswith("b") for text in texts])

    log = [f"{lead} {topic}" for topic in "ab" for lead in (0.0, 0.4, 0.99)]
    found = suggest.suggest_messages([*log, ""], classifier=Angles(), budget=2)
    assert sorted(found) == ["0.0 a", "0.0 b"]


def circle(angles):
    return np.stack([np.cos(angles), np.sin(angles)], 1)


def test_only_the_least_sure_are_grouped():
    log = [f"0.{lead:03} a" for lead in range(40)] + ["0.9 b", "0.91 b"]
    assert all(
        text.endswith("a") for text in suggest.suggest_messages(log, classifier=Unsure(), budget=2)
    )


def test_labelled_examples_are_not_suggested():
    """Labelled examples are excluded, even in another spelling."""

    class Labelled(Unsure):
        examples_ = LabelledTexts(["0.1 a", "0.2 Eiffel"], ["x", "y"])

    log = ["0.1 a", "0.1  A", "0.2\u00a0EIFFEL", "0.2 eiﬀel", "0.3 a", "0.4 b"]
    assert sorted(suggest.suggest_messages(log, classifier=Labelled(), budget=2)) == log[-2:]
    with pytest.raises(ValueError, match="2 different messages that are not examples yet, fewer"):
        suggest.suggest_messages(log, classifier=Labelled(), budget=3)
    with pytest.raises(ValueError, match="has 1 different message that"):
        suggest.suggest_messages(log[:-1], classifier=Labelled(), budget=3)
    with pytest.raises(ValueError, match="has 1 different message, and 2 groups"):
        discover_intents(["hi", "hi"], WordEncoder())


def test_masked_examples_are_not_suggested():
    class Labelled(Unsure):
        examples_ = LabelledTexts(["0.1 order 12"], ["x"])

        def predict_proba(self, texts):
            return np.full((len(texts), 2), 0.5)

    log = ["0.1 order 13", "my order", "your order"]
    found = suggest.suggest_messages(log, classifier=Labelled(), budget=2, mask=True)
    assert sorted(found) == ["my order", "your order"]


def test_suggestions_are_written_where_a_link_points_to(tmp_path, monkeypatch):
    monkeypatch.setattr(suggest, "suggest_messages", lambda *_, **__: ["hello"])
    (tmp_path / "log.txt").write_text("hello\n")
    (tmp_path / "table.csv").write_text("text,label\nhi,greeting\n")
    (tmp_path / "link").symlink_to("table.csv")
    arguments = [f"--input={tmp_path}/log.txt", f"--output={tmp_path}/link", "--overwrite"]
    call_command("intent", "suggest", *arguments)
    assert (tmp_path / "link").is_symlink()
    assert "hello" in (tmp_path / "table.csv").read_text()


def test_as_many_messages_as_asked():
    """If two groups have the same central message, one group suggests another message."""

    class Same(Unsure):
        def encode(self, texts):
            return np.ones((len(texts), 2))

    log = [f"0.{lead:02} a" for lead in range(30)]
    found = suggest.suggest_messages(log, classifier=Same(), budget=7)
    assert len({*found}) == len(found) == 7


def test_central_messages_come_first_without_a_model():
    def encode(texts):
        return circle([(text[-1] == "b") + int(text[0]) / 10 for text in texts])

    log = [f"{number} {topic}" for topic in "ab" for number in range(3)]
    assert sorted(suggest.suggest_messages(log, encode, budget=2)) == ["1 a", "1 b"]


def test_leads():
    one = IntentClassifier(WordEncoder(), "logistic").fit(TEXTS, LABELS)
    two = np.sort(one.predict_proba(TEXTS))[:, -2:]
    leads = one.decision.leads(one.predict_proba(TEXTS))
    np.testing.assert_allclose(leads, two[:, 1] - two[:, 0], rtol=1e-6)
    several = MultiIntentClassifier(WordEncoder()).fit(TEXTS, [[label] for label in LABELS])
    probabilities = several.predict_proba(TEXTS)
    distances = np.abs(probabilities - several.threshold_)
    np.testing.assert_allclose(several.decision.leads(probabilities), distances.min(axis=1))


def test_a_short_log():
    with pytest.raises(ValueError, match="2 different messages, fewer than the budget of 3"):
        suggest.suggest_messages(["a", "b", "a"], WordEncoder(), budget=3)
