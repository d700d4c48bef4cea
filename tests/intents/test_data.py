"""Labelled texts: reading files, errors in them, sampling, folds, and intent names."""

import csv
import gzip
import io
import json
import lzma
import tracemalloc
from collections import Counter
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction

import numpy as np
import pytest
from support.intent_examples import LABELS, TEXTS, write_csv

from convert_tf.intents import data, examples


def test_texts_may_be_long(tmp_path):
    """Texts may exceed the default limit of `csv`, and reading them leaves that limit unchanged."""
    text = "word " * 40_000
    (tmp_path / "a.csv").write_text(f"text,label\n{text},a\nhi,b\n", "utf-8")
    before = csv.field_size_limit()
    assert len(text) > before
    assert data.read_labelled(tmp_path / "a.csv") == ([text.strip(), "hi"], ["a", "b"])
    assert csv.field_size_limit() == before


def test_files_are_joined(tmp_path):
    files = write_csv(tmp_path / "a.csv"), write_csv(tmp_path / "b.csv", ["x"], ["y"])
    assert data.read_files(files) == ([*TEXTS, "x"], [*LABELS, "y"])


@pytest.mark.parametrize(
    "content",
    [
        "text, label\nhi there, greet\nbye now, bye\n",
        "label;Text\ngreet;hi there\nbye;bye now\n",
        "text\tlabel\nhi there\tgreet\nbye now\tbye\n",
        "text|label\nhi there|greet\nbye now|bye\n",
        "sep=;\ntext;label\nhi there;greet\nbye now;bye\n",
        "id,Utterance,Intent Name\n1,hi there,greet\n2,bye now,bye\n",
        "query,category,score\nhi there,greet,1\nbye now,bye,2\n",
        "text,label,label_text\nhi there,0,greet\nbye now,1,bye\n",
        '{"text": "hi there", "label": "greet"}\n\n{"text": "bye now", "label": "bye"}\n',
        '{"intent": "greet", "utterance": "hi there"}\n{"text": "bye now", "intent": "bye"}\n',
        '{"text": "hi there", "label": 0, "label_text": "greet"}\n'
        '{"text": "bye now", "label": 1, "label_text": "bye"}\n',
        '{"text": "hi there", "label": 0.0, "label_text": "greet"}\n'
        '{"text": "bye now", "label": null, "label_text": "bye"}\n',
        "text,label,label_text\nhi there,0.0,greet\nbye now,,bye\n",
        '{"text": "hi there", "label": 0, "intent": "greet"}\n'
        '{"text": "bye now", "intent": "bye"}\n',
        json.dumps([{"text": "hi there", "label": "greet"}, {"text": "bye now", "label": "bye"}]),
        json.dumps(
            {"intents": ["greet", "bye"], "utterances": [{"text": "hi there", "intent": "greet"},
             {"text": "bye now", "intent": "bye"}]}, indent=2,
        ),
        "nlu:\n- intent: greet\n  examples: |\n    - hi there\n"
        "- intent: bye\n  examples: |\n    - bye now\n",
    ],
)  # fmt: skip
@pytest.mark.parametrize("packed", [bytes, gzip.compress, lzma.compress, "utf-16"])
def test_a_file_is_read_as_what_its_content_is(tmp_path, content, packed):
    path = tmp_path / "data.txt"
    path.write_bytes(content.encode(packed) if packed == "utf-16" else packed(content.encode()))
    assert data.read_labelled(path) == (["hi there", "bye now"], ["greet", "bye"])


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ('\ufefflabel,id,text\ngreet,1,"hello, ""you"""\nreset, 2 , two\n',
         (['hello, "you"', "two"], ["greet", "reset"])),
        ('text,label\n"one\ntwo",a\nthr\u2028ee,b\n', (["one\ntwo", "thr\u2028ee"], ["a", "b"])),
        ('{"text": "hi \\ud83d", "label": "a"}\n', (["hi \ufffd"], ["a"])),
    ],
    ids=["columns in any order", "line breaks", "half an emoji"],
)  # fmt: skip
def test_texts_of_many_kinds(tmp_path, content, rows):
    (tmp_path / "a").write_text(content, "utf-8")
    assert data.read_labelled(tmp_path / "a") == rows


def test_numbers_or_names_are_chosen_for_a_whole_column(tmp_path):
    rows = "hi,404,greet\nbye,not_found,farewell\n"
    (tmp_path / "a.csv").write_text(f"text,label,intent\n{rows}")
    assert data.read_labelled(tmp_path / "a.csv").labels == ["404", "not_found"]
    rows = "hi,0,greet\nbye,1,bye\nmore,oos,oos\nelse,other,\n"
    (tmp_path / "a.csv").write_text(f"text,label,label_text\n{rows}")
    assert data.read_labelled(tmp_path / "a.csv").labels == ["greet", "bye", "oos", "other"]
    (tmp_path / "a.jsonl").write_text(
        '{"text": "hi", "label": 0, "label_text": "greet"}\n'
        '{"text": "bye", "label": 1, "label_text": "bye"}\n'
        '{"text": "more", "label": "order"}\n'
    )
    assert data.read_labelled(tmp_path / "a.jsonl").labels == ["greet", "bye", "order"]
    (tmp_path / "a.csv").write_text("text,label\nhi,404\nbye,\n")
    assert data.read_labelled(tmp_path / "a.csv", needs_labels=False).labels == ["404", ""]


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        ("a,greet,1\nb,bye,0\nc,bye,spam\n", ["greet", "bye", "spam"]),
        ("a,greet,0\nb,bye,1\nc,unknown,oos\n", ["greet", "bye", "oos"]),
        ("a,greet,404\nb,bye,not_found\n", ["404", "not_found"]),
        ("a,greet,404\nb,bye,not_found\nc,bye,500\n", ["greet", "not_found", "bye"]),
    ],
)
def test_numbers_are_labels_if_half_of_the_labels_are_words(tmp_path, rows, labels):
    (tmp_path / "a.csv").write_text(f"text,intent,label\n{rows}")
    assert data.read_labelled(tmp_path / "a.csv").labels == labels


@pytest.mark.parametrize(
    "content",
    [
        "text,label,topic\na,x,t\nb,,t\n",
        "text,label,label_text\na,0,x\nb,-1,\nc,1,y\n",
        '{"text": "a", "label": "x"}\n{"text": null, "query": "b", "label": "y"}\n',
        '{"text": "a", "label": 0, "label_text": "x"}\n{"text": "b", "label": 5}\n',
    ],
)
def test_rows_that_may_be_labelled_are_no_rows_without_intents(tmp_path, content):
    (tmp_path / "a").write_text(content)
    with pytest.raises(ValueError, match=r"are unclear: line [23] has a .* Complete or remove"):
        data.read_labelled(tmp_path / "a", needs_labels=False)


@pytest.mark.parametrize("needs_labels", [False, True])
@pytest.mark.parametrize("missing", [None, float("nan"), " "])
def test_tables_with_label_and_with_intent_are_joined(tmp_path, missing, needs_labels):
    rows = [
        {"text": "a", "utterance": missing, "label": "x", "intent": missing},
        {"text": missing, "utterance": "b", "label": missing, "intent": "y"},
        {"text": "c", "utterance": missing, "label": "x", "intent": "x"},
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    read = data.read_labelled(tmp_path / "a.jsonl", needs_labels=needs_labels)
    assert read == (["a", "b", "c"], ["x", "y", "x"])
    (tmp_path / "a.csv").write_text("text,label,intent\na,x,\nb,,y\nc,x,\n")
    read = data.read_labelled(tmp_path / "a.csv", needs_labels=needs_labels)
    assert read == (["a", "b", "c"], ["x", "y", "x"])


def test_long_texts_that_are_not_read_are_not_kept(tmp_path):
    row = {"text": "a", "label": "x"}
    lines = (json.dumps({**row, "input": str(n) + "x" * 50_000}) for n in range(200))
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    tracemalloc.start()
    try:
        assert data.read_labelled(tmp_path / "a.jsonl").labels == ["x"] * 200
        assert tracemalloc.get_traced_memory()[1] < 5_000_000  # the file has 10 MB
    finally:
        tracemalloc.stop()


def test_columns_that_are_empty_in_all_rows_are_ignored(tmp_path):
    for rows in (
        [{"text": None, "utterance": "hi", "label": "a"}, {"text": "", "utterance": "yo",
          "label": "b"}],
        [{"text": "hi", "label": None, "category": "a"}, {"text": "yo", "label": " ",
          "category": "b"}],
        [{"text": "hi", "label": "a"}, {"text": "yo", "intent": "b"}],
    ):  # fmt: skip
        (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
        assert data.read_labelled(tmp_path / "a.jsonl") == (["hi", "yo"], ["a", "b"])
    (tmp_path / "a.csv").write_text("text,label,topic\nhi,,a\nyo,,b\n")
    assert data.read_labelled(tmp_path / "a.csv") == (["hi", "yo"], ["a", "b"])


def test_of_a_folder_its_nlu_files(tmp_path):
    (tmp_path / "data" / "nlu").mkdir(parents=True)
    (tmp_path / "domain.yml").write_text("intents: []\n")
    with pytest.raises(ValueError, match=r"folder .* contains no nlu\*\.yml. Pass a file"):
        data.read_labelled(tmp_path)
    for path, intent in {"nlu_b.yml": "b", "data/nlu/c.yaml": "c"}.items():
        (tmp_path / path).write_text(f"nlu:\n- intent: {intent}\n  examples: |\n    - {intent}1\n")
    assert data.read_labelled(tmp_path) == (["c1", "b1"], ["c", "b"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"text,mood\nhello,greet\n", "2 columns, separated by ',': 'text', 'mood'"),
        ("a.jsonl", b'{"text": "a", "label": NaN}', "line 1 without label"),
        ("a.jsonl", b'{"text": "a", "text": "b", "label": "c"}', "the key 'text' occurs twice"),
        ("a.csv", b"", "has no rows with a text and a label"),
        ("a.csv", b"text,label\n", "has no rows with a text and a label"),
        ("a.csv", b"text,label\nhi,a\n  ,b\nhi,\n", "line 3 without text, line 4 without label"),
        ("a.csv", "text,label\nhi,a\n\u200b\u00ad,b\n".encode(), "line 3 without text"),
        ("a.csv", "text,label\nhi,a\nbye,\u200b\n".encode(), "line 3 without label"),
        ("a.csv", b"text,label\ncaf\xe9,order\n", "line 2, is not UTF-8.* byte 0xE9.*iconv"),
        ("a.csv", b'text,label\n"a" b,order\n', "line 2, has a quote that .* within a field"),
        ("a.yml", b"stories: []\n", "`nlu` list of intents"),
        ("a.csv", b"text,label\nwhere is it, please,order\n", r"line 2, has more .*\(3 instead"),
        ("a.csv", b"text,label,text\nhi,a,b\n", "has 2 columns named 'text'"),
        ("a.csv", b"text|\tlevel \nhi,a\n", r"separated by '\\t': 'text\|', 'level '\. As"),
        ("a.md", b"<!-- x -->\n## intent:a\n- hi\n", "Rasa's Markdown.*rasa data convert nlu"),
        ("a.json", b'{\n "rasa_nlu_data": {}}', "Rasa's JSON.*rasa data convert nlu -f yaml"),
        ("a.json", b'{"a": 1, "b": 2}', "the keys 'a', 'b' in line 1"),
        ("a.jsonl", b'{"text": "a", "label": "b"}\n{"text": "a", ', "line 2, is not valid JSON"),
        ("a.jsonl", b'{"text": "a", "label": "b"}\n{"text": "a"}', "line 2 without label"),
        (
            "a.jsonl",
            b'{"text": "a", "label": "b", "topic": "c"}\n'
            b'{"text": "a", "label": null, "topic": "c"}',
            "line 2 has a label only in 'topic', but the labels are read from 'label'",
        ),
        ("a.csv", b"text,topic,label\nhi,Top,a\nbye,Top\n", "line 3 has a label only in 'topic', "),
        ("a.csv", b"text,topic,label\nhi,Top,a\nbye,Top,\n", "line 3 has a label only in 'topic'"),
        (
            "a.jsonl",
            b'{"text": "a", "label": "b"}\n{"text": null, "query": "b", "label": "c"}',
            "line 2 has a text only in 'query', but the texts are read from 'text'",
        ),
        (
            "a.jsonl",
            b'{"text": "a", "label": "faq", "intent": "hours"}\n'
            b'{"text": "b", "label": null, "intent": "c"}',
            "line 2 has a label only in 'intent', but the labels are read from 'label'",
        ),
        ("a.csv", b"text,utterance,label\na,A,x\n,b,y\n", "line 3 has a text only in 'utterance'"),
        (
            "a.jsonl",
            b'{"text": "a", "label": 1, "label_text": "b"}\n'
            b'{"text": "a", "label": 2, "label_text": null}',
            r"line 2 has a number \(2\) but no name in 'label_text'",
        ),
        (
            "a.jsonl",
            b'{"text": "a", "label": ["b"]}',
            r"1, has \['b'\] as its label.* join them with .*--label_separator of intent train\)",
        ),
        ("a.jsonl", b'{"text": "a", "label": true}', r"label, .*string\. Write the label as a str"),
        ("a.jsonl", b'{"text": 3, "label": "b"}', "line 1, has 3 as its text"),
        ("a.csv", gzip.compress(b"text,label\nhi,a\n" * 99, mtime=0)[:-20], "truncated gz archive"),
    ],
)  # fmt: skip
def test_unusable_files_say_what_is_wrong(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        data.read_labelled(tmp_path / name)


class NotAvailable:
    """Behaves like pandas' NA."""

    def __ne__(self, other):
        return self

    def __bool__(self):
        raise TypeError("boolean value of NA is ambiguous")


@pytest.mark.parametrize(
    "missing",
    [
        None,
        float("nan"),
        np.float32("nan"),
        np.datetime64("NaT"),
        NotAvailable(),
        "",
        "  ",
        "\u200b",
    ],
)
def test_each_text_has_a_label(missing):
    with pytest.raises(ValueError, match=r"Text 1 has no label\. Received: "):
        examples.checked_labels(["a", missing])


@pytest.mark.parametrize(
    "several", [["a", "b"], {"a", "b"}, [], {"a": 1}, np.array(["a", "b"]), [["a"], ["b", "c"]]]
)
def test_each_text_has_one_label(several):
    for index, labels in enumerate(([several, "a"], ["a", several])):
        with pytest.raises(ValueError, match=f"Text {index} has several labels: .* Use Multi"):
            examples.checked_labels(labels)
    assert examples.checked_labels([np.array("a"), "b"]).tolist() == ["a", "b"]


@pytest.mark.parametrize(
    "label",
    [
        b"a", np.bytes_(b"a"), np.array(b"a"), Enum("Intent", "A").A, 2**63, np.uint64(2**63),
        Decimal("1.5"), Fraction(1, 2), 1j, np.complex64(1), np.timedelta64(1, "D"),
        np.datetime64("2020-01-01"),
    ],
)  # fmt: skip
def test_labels_that_cannot_be_stored_are_refused(label):
    """NumPy would round large integers to floats, and JSON has no bytes, fractions or dates."""
    for labels in ([label, label], ["oos", label], [1, label]):
        with pytest.raises(ValueError, match=r"Labels must be strings, or integers .* Received: "):
            examples.checked_labels(labels)


def test_strings_numbers_and_booleans_are_labels():
    large = [-(2**63), 2**63 - 1]
    assert examples.checked_labels(large).tolist() == large
    mixed = [np.uint64(2**62 + 1), np.int64(5)]  # NumPy would make floats of them
    assert examples.checked_labels(mixed).tolist() == [2**62 + 1, 5]
    members = [IntEnum("Number", "ONE").ONE, Enum("Name", {"A": "a"}, type=str).A]
    for labels in (members[:1], members[1:], [True, np.bool_(False)], [1.0], [np.int8(3)]):
        assert examples.checked_labels(labels).tolist() == labels


@pytest.mark.parametrize("labels", [[True, 2], [0.5, np.False_, True], ["a", np.True_, 1]])
def test_booleans_among_numbers_are_refused(labels):
    """NumPy would turn True into 1."""
    with pytest.raises(ValueError, match=r"Labels mix booleans and numbers \(.* to one type"):
        examples.checked_labels(labels)


def test_what_training_should_know_is_said():
    assert examples.check_intents(TEXTS, LABELS) == []
    single, several = examples.check_intents(
        [*TEXTS, "Where IS my  order", "unheard of"], [*LABELS, "greet", "other"]
    )
    assert "one example: other." in single
    copies = examples.check_intents([*TEXTS, "no", "No ", "no"], [*LABELS, *["other"] * 3])
    assert copies == [single]
    assert "'where is my order': order, greet." in several


def test_labels_that_look_alike_are_said():
    labels = ["Refund", "refund", "caf\u00e9", "cafe\u0301", "pay", "pay\u200b", "other", 3, 4]
    texts = [f"text {index} {copy}" for copy in range(2) for index in range(len(labels))]
    (said,) = examples.check_intents(texts, labels * 2)
    alike = (
        "'Refund', 'refund'; 'caf\u00e9', 'cafe\u0301'; 'pay', 'pay\\u200b'. They differ only in"
    )
    assert alike in said
    assert "other" not in said


@pytest.mark.parametrize("kind", [set, frozenset])
def test_a_set_has_no_order(kind):
    for check in (examples.checked_texts, examples.checked_labels):
        with pytest.raises(ValueError, match="a set has no order"):
            check(kind(["a", "b"]))


def test_a_spreadsheet_computes_nothing(tmp_path):
    """Cells do not start like formulas, and reading the file restores the texts."""
    rows = [
        ("a\rb", "x\ry"),
        ("a\r\nb", "b"),
        ("=1+1", "@sum"),
        ("-5 degrees", "+a"),
        ('=HYPERLINK("http://x","y")', "b"),
        ("c", ""),
    ]
    written = data.labelled_csv(rows)
    cells = [cell for row in csv.reader(io.StringIO(written)) for cell in row]
    assert not any(cell.startswith(("=", "+", "-", "@")) for cell in cells)
    (tmp_path / "a.csv").write_text(written)
    read = data.read_labelled(tmp_path / "a.csv", needs_labels=False)
    assert [*zip(*read, strict=True)] == rows


def test_a_spreadsheet_shows_every_character(tmp_path):
    """Excel reads a CSV as UTF-8 only if it starts with a byte order mark."""
    rows = [("£20 – card declined", "a"), ("=1+1 naïve", "")]
    written = data.labelled_csv(rows)
    assert written.encode().startswith(b"\xef\xbb\xbftext,label\n")
    assert data.labelled_csv([("ok", "a")]).startswith("text")
    (tmp_path / "a.csv").write_text(written, encoding="utf-8")
    read = data.read_labelled(tmp_path / "a.csv", needs_labels=False)
    assert [*zip(*read, strict=True)] == rows
    assert data.is_labelled_csv(tmp_path / "a.csv")


@pytest.mark.parametrize("labels", [[], ["a", "a"]])
def test_there_are_two_intents(labels):
    with pytest.raises(ValueError, match=r"at least two intents.*(no example|only 'a')"):
        examples.check_intents(["t"] * len(labels), labels)


def test_few_shot_draws_equally_many_without_repeats():
    given = data.LabelledTexts(TEXTS, LABELS)
    drawn = data.few_shot(given, 3, seed=1)
    assert Counter(drawn.labels) == dict.fromkeys(set(LABELS), 3)
    assert len({*zip(*drawn, strict=True)} & {*zip(*given, strict=True)}) == 9
    assert data.few_shot(given, 3, seed=1) == drawn != data.few_shot(given, 3, seed=2)
    with pytest.raises(ValueError, match=r"'greet' has only 4 examples, fewer than 5"):
        data.few_shot(given, 5, seed=0)


def test_folds_hold_each_intent_evenly():
    labels = ["a"] * 10 + ["b"] * 7 + ["c"]
    folds = data.fold_numbers(labels, 5, seed=3)
    assert folds[-1] == -1
    assert Counter(folds[:10].tolist()) == dict.fromkeys(range(5), 2)
    assert max(Counter(folds[10:17].tolist()).values()) == 2
    assert (folds != data.fold_numbers(labels, 5, seed=4)).any()


def test_copies_have_the_same_label_and_look_alike():
    texts, labels = ["b", "A  x", "a x", "a x", "B\u200b"], ["1", "1", "1", "2", "1"]
    first, copy_of = data.distinct_examples(texts, labels)
    assert (first.tolist(), copy_of.tolist()) == ([0, 1, 3], [0, 1, 1, 2, 0])
    assert [part.tolist() for part in data.distinct_examples([], [])] == [[], []]


def test_every_intent_of_two_is_validated_on_and_trained():
    labels = ["a"] * 20 + ["b"] * 2 + ["c"]
    chosen = data.held_out(labels, 0.25, seed=0)
    assert [chosen[:20].sum(), chosen[20:22].sum(), chosen[22]] == [5, 1, False]
    assert data.held_out(["a"] * 3, 0.99, seed=0).sum() == 2


def test_columns_with_endless_names_are_shown_in_short(tmp_path):
    (tmp_path / "data.csv").write_text("x" * 200_000 + ",label\nx,y\n")
    with pytest.raises(ValueError, match="has no columns for texts and labels") as caught:
        data.read_labelled(tmp_path / "data.csv")
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_two_columns_without_a_header(tmp_path, mark, is_reversed):
    """The first row is not a header if its label occurs again."""
    rows = [("hi there", "greet"), ("bye now", "bye"), ("hello you", "greet")]
    lines = (mark.join(row[::-1] if is_reversed else row) for row in rows)
    (tmp_path / "a.csv").write_text("\n".join(lines))
    assert [*zip(*data.read_labelled(tmp_path / "a.csv"), strict=True)] == rows


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("card_arrival", "card arrival"), ("reverted_card_payment?", "reverted card payment"),
        ("BookRestaurant", "book restaurant"), ("faq/ask_opening-hours", "faq ask opening hours"),
        ("top2Tracks", "top2 tracks"), ("FAQ", "faq"), ("HTTPError", "http error"),
        ("ÜberweisungÄndern", "überweisung ändern"), ("cafe\u0301_order", "caf\xe9 order"),
        ("मौसम_जानकारी", "मौसम जानकारी"), ("don't_know", "don't know"), ("17", ""),
        ("_-_", ""), (17, ""),
    ],
)  # fmt: skip
def test_a_name_is_words(label, words):
    assert examples.name_in_words(label) == words


def test_names_of_several_or_of_nothing_are_left_out():
    assert examples.names_of(["3", "card_lost", "cardLost", "refund"]) == {3: "refund"}
    classes = ["oos", "refund", "top_up"]
    assert examples.names_of(classes, left_out="oos", known=["refund"]) == {2: "top up"}
    assert examples.names_of(classes, left_out="oos", known=["ReFund\u00ad "]) == {2: "top up"}
