"""Single texts: files, token ids, and the texts that are trained with each pair."""

import json
import os
import re
import threading

import numpy as np
import pytest
import tensorflow as tf
from support.texts import random_texts
from support.token_corpus import NUM_OOV_BUCKETS, write_corpus, write_utterances

from convert_tf.data import token_writer
from convert_tf.data.teacher_vectors import TeacherVectors
from convert_tf.data.token_arrays import ArrayFolder
from convert_tf.data.token_writer import tokenize_utterances
from convert_tf.data.utterances import Utterance, UtteranceDraws, UtteranceFiles, is_held_out
from convert_tf.storage.lines import FileChangedError
from convert_tf.text.tokenizer import load_tokenizer
from convert_tf.training.teaching.vectors import StoredTexts

LABELS = ("greet", "bye", "pay", None)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), num_train=20)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("utterances")
    for number, source in enumerate(("bot", "forum")):
        texts = random_texts(30, seed=number)
        rows = [
            {"text": f" {text} {i}", "source": source, "label": LABELS[i % 4], "other": 1}
            for i, text in enumerate(texts)
        ]
        rows.append(rows[0])  # an equal row
        lines = "\n".join(json.dumps(row) for row in rows)
        (folder / f"{source}.jsonl").write_text(f"{lines}\n\n", encoding="utf-8")
    return [str(folder / "*.jsonl")]


@pytest.fixture(scope="module")
def folder(corpus, files, tmp_path_factory):
    return write_utterances(
        tmp_path_factory.mktemp("ids") / "ids", files, corpus.vocabulary, ignored_labels=["forum"]
    )


@pytest.fixture(scope="module")
def utterances(folder):
    return ArrayFolder(folder).open("train", max_tokens=7, holds="utterances")


def as_stored(text):
    """Return the stored text: 60 tokens, one per letter; digits are unknown, even after a space."""
    return re.sub(r" ?\d", "\ufffd", re.match(r"( ?\S){0,60}", text)[0])


def test_files_are_read_once_for_each_text(files):
    found = list(UtteranceFiles(files))
    assert len(found) == 60
    text = random_texts(30, seed=0)[3]
    assert found[3] == Utterance(f"{text} 3", "bot", "")
    assert found[30].source == "forum"


def test_a_file_whose_name_looks_like_a_pattern_is_read(tmp_path):
    for name, text in (("texts 1", "other"), ("texts [1]", "mine"), ("a/b/texts 2", "deep")):
        path = tmp_path / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"text": text}))

    def texts(*patterns):
        return [text for text, *_ in UtteranceFiles([f"{tmp_path}/{name}" for name in patterns])]

    assert texts("texts [1].jsonl") == ["mine"]
    assert texts("texts [12].jsonl") == ["other"]
    assert texts("texts [1].jsonl", "**/*.jsonl") == ["mine", "deep", "other"]
    assert texts("**") == ["deep", "other", "mine"]
    with pytest.raises(ValueError, match=r"No file matches .*missing\.jsonl"):
        texts("texts [1].jsonl", "missing.jsonl")


def test_a_label_is_the_first_column_of_a_label_that_is_a_text(tmp_path):
    rows = [{"text": "a", "class": 3}, {"text": "b", "class": 3, "topic": "pay"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = UtteranceFiles([str(tmp_path / "a.jsonl")])
    assert [each.label for each in found] == ["", "pay"]


def test_files_that_hold_no_texts_are_refused(tmp_path):
    with pytest.raises(ValueError, match="No file matches"):
        list(UtteranceFiles([str(tmp_path / "*.jsonl")]))
    wrong = ['{"text": 3}', '{"text": null}', '{"label": "a"}', '{"text": "a", "label": 0}']
    for line in ("[1]", *wrong, "no json"):
        (tmp_path / "a.jsonl").write_text(f'{{"text": "fine"}}\n{line}\n')
        with pytest.raises(ValueError, match=r"a\.jsonl, line 2, is not"):
            list(UtteranceFiles([str(tmp_path / "*.jsonl")]))


def test_token_ids_are_those_of_the_tokenizer(corpus, files, utterances):
    texts = [each.text for each in UtteranceFiles(files)]
    tokenizer = load_tokenizer(corpus.vocabulary, num_oov_buckets=NUM_OOV_BUCKETS)
    numbers = np.array([59, 0, 31])
    found = utterances.token_ids(numbers)
    expected = tokenizer.token_ids(tf.constant([texts[i] for i in numbers]))[:, :7]
    np.testing.assert_array_equal(found.flat, expected.flat_values)
    np.testing.assert_array_equal(found.row_splits, expected.row_splits)


def test_intents_are_those_of_a_source(files, utterances):
    rows = list(UtteranceFiles(files))
    intents = UtteranceDraws(utterances, per_pair=1, seed=0).intents
    assert (intents[30:] == -1).all()  # their labels are ignored
    for i in range(30):
        assert (intents[i] == -1) == (not rows[i].label)
        for j in range(30):
            same = (rows[i].source, rows[i].label) == (rows[j].source, rows[j].label)
            assert (intents[i] == intents[j]) == same


def test_an_intent_is_held_out_as_a_whole(corpus, files, tmp_path):
    folder = write_utterances(tmp_path / "ids", files, corpus.vocabulary, dev_fraction=0.5)
    rows = list(UtteranceFiles(files))
    expected = {"train": [], "dev": []}
    for row in rows:
        expected["dev" if is_held_out(row, 0.5) else "train"].append(row.text)
    for split, texts in expected.items():
        ids = ArrayFolder(folder)
        found = ids.open(split, max_tokens=60, holds="utterances")
        numbers = np.arange(found.num_examples)
        assert StoredTexts(ids)(found.token_ids(numbers)) == [*map(as_stored, texts)]
    intents = {(row.source, row.label) for row in rows if row.label}
    assert all(
        len({is_held_out(row, 0.5) for row in rows if (row.source, row.label) == intent}) == 1
        for intent in intents
    )
    shares = [is_held_out(Utterance(str(i)), 0.1) for i in range(5000)]
    assert np.mean(shares) == pytest.approx(0.1, abs=0.02)


def test_each_text_comes_once_in_an_epoch_and_a_resumed_run_goes_on(utterances):
    draws = UtteranceDraws(utterances, per_pair=3, seed=0)
    drawn = draws.draw(np.arange(40))
    assert drawn.shape == (40, 3)
    for epoch in (drawn[:20], drawn[20:]):
        assert sorted(epoch.ravel().tolist()) == list(range(60))
    assert (drawn[:20] != drawn[20:]).any()
    again = UtteranceDraws(utterances, per_pair=3, seed=0).draw(np.arange(17, 23))
    np.testing.assert_array_equal(again, drawn[17:23])
    other = UtteranceDraws(utterances, per_pair=3, seed=1).draw(np.arange(40))
    assert (other != drawn).any()


def test_every_second_text_is_of_the_intent_of_the_first(utterances):
    draws = UtteranceDraws(utterances, per_pair=4, seed=0)
    draws.draw_in_pairs()
    drawn = draws.draw(np.arange(60)).reshape(-1, 2)
    firsts, seconds = drawn.T
    assert sorted(firsts[:60].tolist()) == list(range(60))
    intents = draws.intents
    labelled = intents[firsts] >= 0
    np.testing.assert_array_equal(intents[firsts][labelled], intents[seconds][labelled])
    assert (firsts != seconds).all()
    assert len(set(seconds.tolist())) > 20
    with pytest.raises(ValueError, match="even number"):
        UtteranceDraws(utterances, per_pair=3, seed=0).draw_in_pairs()


def test_columns_say_what_texts_are(utterances):
    class Teacher:
        def columns(self, examples):
            return {"teacher_text": examples[:, None].astype(np.float32)}

    draws = UtteranceDraws(utterances, per_pair=1, seed=0, teacher=Teacher())
    numbers = np.array([4, 0, 33])
    columns = draws.columns(numbers)
    np.testing.assert_array_equal(columns["teacher_text"], numbers[:, None])
    np.testing.assert_array_equal(columns["intent_groups"], draws.intents[numbers])
    assert columns["intent_names"].dtype == np.int32


def test_intents_of_many_labels_and_sources_fit_into_the_columns():
    class Examples:
        num_examples = 5
        source_names = range(50_000)

        def column(self, name):
            return np.array([0, 42_949, 42_950, -1, 42_950], np.int32)

        def sources(self):
            return np.array([7, 33_648, 7, 3, 7], np.int32)

    draws = UtteranceDraws(Examples(), per_pair=1, seed=0)
    groups = draws.columns(np.arange(5))["intent_groups"]
    assert groups.dtype == np.int32
    assert groups[3] == -1
    assert (groups[[0, 1, 2, 4]] >= 0).all()
    assert groups[2] == groups[4]
    assert len({*groups.tolist()}) == 4


def test_folders_of_pairs_and_of_single_texts_are_told_apart(corpus, folder):
    with pytest.raises(ValueError, match=r"token ids of single texts; .* --utterances"):
        ArrayFolder(folder).open("train", max_tokens=7)
    with pytest.raises(ValueError, match="token ids of pairs"):
        ArrayFolder(corpus.arrays).open("train", max_tokens=7, holds="utterances")


def test_vectors_are_those_of_these_texts(files, folder, tmp_path):
    from convert_tf.training.teaching.vectors import write_teacher_vectors

    seen = []

    def lengths(texts):
        seen.extend(texts)
        numbers = np.array([[1.0, len(text)] for text in texts])
        return numbers / np.linalg.norm(numbers, axis=1, keepdims=True)

    output = str(tmp_path / "vectors")
    facts = write_teacher_vectors(folder, output, teacher=lengths, name="lengths")
    assert facts["splits"]["train"]["taught"] == 60
    texts = [each.text for each in UtteranceFiles(files)]
    assert {*seen[-60:]} == {*map(as_stored, texts)}
    ids = ArrayFolder(folder)
    examples = ids.open("train", max_tokens=60, holds="utterances")
    vectors = TeacherVectors(output, examples, vocab_size=ids.vocab_size)
    numbers = np.array([3, 40])
    found = vectors.columns(numbers)["teacher_text"]
    np.testing.assert_allclose(found, lengths([as_stored(texts[i]) for i in numbers]), atol=1e-3)


def test_texts_with_ignored_labels_are_held_out_one_by_one(corpus, tmp_path):
    rows = [{"text": f"title {i}", "source": "forum", "label": f"l{i % 2}"} for i in range(400)]
    (tmp_path / "titles.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    facts = tokenize_utterances(
        [str(tmp_path / "titles.jsonl")], str(tmp_path / "ids"), vocabulary=corpus.vocabulary,
        dev_fraction=0.25, ignored_labels=["forum"],
    )  # fmt: skip
    assert 60 <= facts["splits"]["dev"]["examples"] <= 140


def written(path, rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


CARD = {"text": "where is my card?", "source": "bank"}


def test_a_labelled_copy_of_a_text_takes_precedence(corpus, tmp_path):
    posts = [CARD | {"source": "forum", "label": "r/cards"}, CARD, {"text": "hi"}]
    bank = [CARD | {"label": " arrival "}, CARD | {"label": "other"}, CARD | {"text": "lost"}]
    bank.append({"text": "my card", "source": " bank ", "label": "arrival"})
    paths = [written(tmp_path / "a.jsonl", posts), written(tmp_path / "b.jsonl", bank)]
    expected = [("hi", "", ""), (*CARD.values(), "arrival")]
    expected += [("lost", "bank", ""), ("my card", "bank", "arrival")]
    ignored = {"ignored_labels": ["forum"]}
    assert [*UtteranceFiles(paths, **ignored)] == expected
    assert [*UtteranceFiles(paths[::-1], **ignored)] == [*expected[1:], expected[0]]
    assert next(iter(UtteranceFiles(paths))) == ("where is my card?", "forum", "r/cards")
    facts = tokenize_utterances(
        paths, str(tmp_path / "ids"), vocabulary=corpus.vocabulary, **ignored
    )
    assert facts["utterances"]["labels"] == ["arrival"]


def test_sources_of_ignored_labels_that_do_not_occur_are_named_once(corpus, tmp_path, capsys):
    path = written(tmp_path / "a.jsonl", [CARD, CARD | {"source": "forum"}])
    options = {"vocabulary": corpus.vocabulary, "overwrite": True}
    # All rows with the source `forum` repeat earlier texts, but the source occurs.
    tokenize_utterances([path], str(tmp_path / "ids"), ignored_labels=["forum"], **options)
    assert "warning" not in capsys.readouterr().err
    tokenize_utterances([path], str(tmp_path / "ids"), ignored_labels=["bnak", "bank"], **options)
    assert capsys.readouterr().err.count("sources that no text has: 'bnak'") == 1


def through_pipe(rows):
    """Return the path of a pipe that a thread writes rows to."""
    reader, writer = os.pipe()

    def write():
        with os.fdopen(writer, "w") as file:
            file.writelines(f"{json.dumps(row)}\n" for row in rows)

    threading.Thread(target=write).start()
    return reader, f"/dev/fd/{reader}"


def test_a_pipe_is_read_once(corpus, tmp_path, capsys):
    labelled = CARD | {"label": "arrival"}
    rows = [CARD, {"text": "hi"}, labelled, labelled, {"text": "hi"}, labelled | {"text": "x"}]
    reader, path = through_pipe([*rows, {"text": "x"}, labelled | {"text": "x"}])
    try:
        options = {"vocabulary": corpus.vocabulary}
        with pytest.raises(ValueError, match=f"^{path} is a pipe, which can be read only once"):
            tokenize_utterances([path], str(tmp_path / "ids"), dev_fraction=0.3, **options)
        facts = tokenize_utterances([path], str(tmp_path / "ids"), **options)
    finally:
        os.close(reader)
    assert facts["splits"]["train"]["examples"] == 3
    assert "warning: texts whose label was lost: 1. " in capsys.readouterr().err


@pytest.mark.parametrize("change", ["grows", "shrinks", "is_replaced"])
def test_files_that_change_between_the_splits_are_an_error(corpus, tmp_path, monkeypatch, change):
    rows = [CARD | {"text": f"text {number}"} for number in range(200)]
    path = tmp_path / "a.jsonl"
    written(path, rows)
    after = {"grows": rows * 2, "shrinks": rows[:50], "is_replaced": rows[::-1]}[change]
    write_split = token_writer._Writer.write_split

    def changing(writer, split, *options):
        write_split(writer, split, *options)
        written(path, after)

    monkeypatch.setattr(token_writer._Writer, "write_split", changing)
    with pytest.raises(FileChangedError, match=r"a\.jsonl was changed or replaced"):
        tokenize_utterances(
            [str(path)], str(tmp_path / "ids"), vocabulary=corpus.vocabulary, dev_fraction=0.3
        )
    assert not (tmp_path / "ids").exists()
