"""Vectors of teachers: which texts get them, and work that is killed."""

import json
import shutil

import numpy as np
import pytest
from support.letter_teachers import (
    SIDES,
    backwards,
    interrupted,
    letters_teacher,
    noting,
    write_vectors,
)
from support.token_corpus import write_utterances

from convert_tf.data.schema import PAIR
from convert_tf.data.teacher_vectors import FACTS_FILE, SUBWORDS_FILE, TeacherVectors, vectors_file
from convert_tf.data.token_arrays import ArrayFolder, ids_file, offsets_file, sources_file
from convert_tf.storage.files import only_writer
from convert_tf.training.teaching.texts import StoredTexts

NUM_TRAIN = 210

SHARES = {"forum": 0.3, "chat": 0.0}


@pytest.fixture(scope="module")
def teacher(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("teacher") / "vectors"
    write_vectors(corpus, folder, letters_teacher)
    return folder


@pytest.fixture(autouse=True)
def chunks(monkeypatch):
    """Notes of how far the work is are frequent."""
    for module in ("vectors", "texts"):
        monkeypatch.setattr(f"convert_tf.training.teaching.{module}.CHUNK", 50)


@pytest.fixture(scope="module")
def repeats(corpus, tmp_path_factory):
    """Token ids in which texts are in several examples, and on both sides.

    Each response is the context of the next, and each tenth text the first.
    """
    folder = tmp_path_factory.mktemp("repeats") / "ids"
    shutil.copytree(corpus.arrays, folder)
    own = ArrayFolder(corpus.arrays).open("train", max_tokens=60)
    numbers = np.arange(own.num_examples) * (np.arange(own.num_examples) % 10 != 0)
    for name, chosen in (("context", numbers), ("response", np.append(numbers[1:], 7))):
        ids, splits = own.texts("context", chosen)
        np.save(folder / ids_file("train", name), ids.astype(np.uint16))
        np.save(folder / offsets_file("train", name), splits.astype(np.int64))
    return corpus._replace(arrays=str(folder))


def texts_of(corpus):
    """The texts of train, by name."""
    folder = ArrayFolder(corpus.arrays)
    own = folder.open("train", max_tokens=60)
    numbers = np.arange(own.num_examples)
    return {name: StoredTexts(folder)(own.texts(name, numbers)) for name in PAIR}


def test_each_side_has_the_vectors_of_its_own_teacher(repeats, tmp_path):
    folder = str(tmp_path / "vectors")
    write_vectors(repeats, folder, SIDES)
    whole = np.load(f"{folder}/{vectors_file('context')}")
    turned = np.load(f"{folder}/{vectors_file('response')}")
    contexts, responses = texts_of(repeats).values()
    assert set(contexts) & set(responses)
    for found, texts, teach in ((whole, contexts, letters_teacher), (turned, responses, backwards)):
        np.testing.assert_allclose(found, teach(texts), atol=1e-3)


def test_interrupted_teaching_goes_on_where_it_was(corpus, teacher, tmp_path):
    output = tmp_path / "vectors"
    with pytest.raises(KeyboardInterrupt):
        write_vectors(corpus, output, interrupted(letters_teacher, after=5))
    assert not output.exists()
    read = []
    write_vectors(corpus, output, noting(read))
    assert len(read[0]) <= 2  # some of the vocabulary, by which the teacher is known again
    assert len(read) == 1 + 3  # three of five chunks
    for name in ("context", "response"):
        np.testing.assert_array_equal(
            np.load(output / vectors_file(name)),
            np.load(teacher / vectors_file(name)),
        )


@pytest.mark.parametrize("after", [1, 2, 4])
def test_what_was_interrupted_twice_is_as_if_it_never_was(corpus, teacher, tmp_path, after):
    """In the vocabulary or behind it, and by a teacher of the same name in its vocabulary."""
    output = tmp_path / "vectors"
    for teach, calls in ((backwards, 5), (letters_teacher, after)):
        with pytest.raises(KeyboardInterrupt):
            write_vectors(corpus, output, interrupted(teach, after=calls))
    write_vectors(corpus, output, letters_teacher)
    for name in (
        vectors_file("context"),
        vectors_file("response"),
        SUBWORDS_FILE,
    ):
        np.testing.assert_array_equal(np.load(output / name), np.load(teacher / name))


@pytest.mark.parametrize(
    "other", [SIDES, backwards, lambda texts: np.ones((len(texts), 1))], ids=["sides", "same", "1"]
)
def test_what_another_teacher_began_is_begun_anew(corpus, tmp_path, other):
    """All of one name."""
    output, expected = tmp_path / "vectors", tmp_path / "expected"
    with pytest.raises(KeyboardInterrupt):
        write_vectors(corpus, output, interrupted(letters_teacher, after=5))
    write_vectors(corpus, output, other)
    write_vectors(corpus, expected, other)
    for name in ("context", "response"):
        found, wanted = (np.load(own / vectors_file(name)) for own in (output, expected))
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    "options", [{}, {"source_shares": SHARES}, {"max_examples": 60}], ids=["none", "shares", "max"]
)
def test_what_other_options_began_is_begun_anew(corpus, tmp_path, options):
    output, expected = tmp_path / "vectors", tmp_path / "expected"
    with pytest.raises(KeyboardInterrupt):
        write_vectors(
            corpus, output, interrupted(letters_teacher, after=4), source_shares={"forum": 0.5}
        )
    for folder in (output, expected):
        write_vectors(corpus, folder, letters_teacher, **options)
    for name in PAIR:
        found, wanted = (np.load(own / vectors_file(name)) for own in (output, expected))
        np.testing.assert_array_equal(found, wanted)


def test_vectors_are_of_the_examples_that_shares_of_sources_draw(repeats, tmp_path):
    corpus = repeats
    calls = []

    def write(output, shares, teach=letters_teacher, **options):
        write_vectors(corpus, tmp_path / output, teach, source_shares=shares, **options)

    write("some", SHARES, noting(calls), max_examples=160)
    write_vectors(corpus, tmp_path / "all", letters_teacher)
    own = ArrayFolder(corpus.arrays).open("train", max_tokens=60)
    drawn = own.thinned(SHARES, 0, 160)
    assert 0 < len(drawn) < 120
    texts = [*texts_of(corpus).values()]
    wanted = {column[number] for column in texts for number in drawn}
    others = {text for column in texts for text in column} - wanted
    taught = {text for some in calls for text in some}
    assert wanted <= taught
    subwords = {chr(97 + i) for i in range(26)}
    assert not others & taught - subwords
    for name in PAIR:
        some, everything = (
            np.load(tmp_path / folder / vectors_file(name)) for folder in ("some", "all")
        )
        np.testing.assert_array_equal(some[drawn], everything[drawn])
        assert not np.delete(some, drawn, axis=0).any()
    facts = json.loads((tmp_path / "some" / FACTS_FILE).read_text())["splits"]["train"]
    assert (facts["taught"], facts["of_first"]) == (len(drawn), 160)
    with pytest.raises(ValueError, match=r"lack the sources 'nowhere'"):
        write("more", {"nowhere": 0.5})
    with pytest.raises(ValueError, match="leave no example of train"):
        write("more", dict.fromkeys(("forum", "chat", ""), 0.0))


def opened(arrays, folder, **options):
    ids = ArrayFolder(arrays)
    examples = ids.open("train", max_tokens=60)
    return TeacherVectors(folder, examples, vocab_size=ids.vocab_size, **options)


def test_shares_are_those_of_the_sources_that_the_token_ids_have(corpus, tmp_path):
    """Of equal texts: of other sources other examples would be drawn, some without vectors."""
    other = tmp_path / "ids"
    shutil.copytree(corpus.arrays, other)
    places = np.load(other / sources_file("train"))
    np.save(other / sources_file("train"), places[::-1])
    write_vectors(corpus, tmp_path / "vectors", letters_teacher, source_shares=SHARES)
    opened(corpus.arrays, tmp_path / "vectors")
    with pytest.raises(ValueError, match="belong to other texts or sources"):
        opened(other, tmp_path / "vectors")


@pytest.mark.parametrize(
    ("teacher", "options"), [(SIDES, {}), (letters_teacher, {"source_shares": {"forum": 0.5}})]
)
def test_options_of_pairs_are_refused_for_single_texts(corpus, tmp_path, teacher, options):
    (tmp_path / "a.jsonl").write_text('{"text": "some text"}\n')
    ids = write_utterances(tmp_path / "ids", [str(tmp_path / "a.jsonl")], corpus.vocabulary)
    with pytest.raises(ValueError, match="holds single texts, and --sides and --source_shares are"):
        write_vectors(corpus._replace(arrays=ids), tmp_path / "vectors", teacher, **options)


def test_equal_texts_are_encoded_once(repeats, tmp_path):
    corpus = repeats
    calls = []
    output = tmp_path / "vectors"
    with pytest.raises(KeyboardInterrupt):
        write_vectors(corpus, output, interrupted(noting(calls), after=5))
    write_vectors(corpus, output, noting(calls))
    seen = [text for call in calls for text in call]
    texts = [*texts_of(corpus).values()]
    subwords = {chr(97 + i) for i in range(26)}
    own = ArrayFolder(corpus.arrays).open("train", max_tokens=60)
    ids = own.token_ids(np.arange(own.num_examples))
    different = {tuple(row) for row in np.split(ids.flat, ids.row_splits[1:-1])}
    # Texts with other characters outside the vocabulary are read alike.
    assert len([text for text in seen if text not in subwords]) == len(different)
    assert {*seen} - subwords == {*texts[0], *texts[1]}
    for name, own in zip(PAIR, texts, strict=True):
        vectors = np.load(output / vectors_file(name))
        np.testing.assert_allclose(vectors, letters_teacher(own), atol=1e-3)


def test_two_processes_do_not_teach_into_one_folder(corpus, tmp_path):
    output = tmp_path / "vectors"
    with only_writer(output), pytest.raises(ValueError, match="Another process is writing"):
        write_vectors(corpus, output, letters_teacher)
    write_vectors(corpus, output, letters_teacher)
