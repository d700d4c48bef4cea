"""Similarity vectors: from every form of a model, truncated, and the commands that use them."""

import shutil

import numpy as np
import pytest
import tensorflow as tf
from support.commands import call_command
from support.tiny_checkpoint import random_texts, write_checkpoint

from convert_tf import SentenceEncoder
from convert_tf.checkpoints.folder import SIMILARITY_FILE, load_similarity_map
from convert_tf.export.model import export_model
from convert_tf.intents.classifier import IntentClassifier
from convert_tf.intents.encodings import different_kinds
from convert_tf.intents.one_file import IntentFile, export_one_file
from convert_tf.numerics.initializers import set_seed
from convert_tf.ranking.ranker import EncoderRanker, open_encoder
from convert_tf.search.cache import CandidateCache
from convert_tf.search.encoders import load_encoder
from convert_tf.search.index import CandidateIndex

pytestmark = pytest.mark.slow

DIM = 32
TEXTS = ["how do i reset my password?", "", "the cat sat on the mat, today.", *random_texts(30)]
# The tolerance for each exported form, compared with the checkpoint.
FORMS = {"module 16": 0.01, "module 8": 0.1, "onnx 32": 1e-4, "onnx 8": 0.2}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The checkpoint and all its exported forms, and the same without a similarity map."""
    place = tmp_path_factory.mktemp("similarity")
    set_seed(0)  # near a tie, an 8-bit weight could be rounded differently in some exports
    found = {"checkpoint": write_checkpoint(place / "checkpoint", similarity_dim=DIM)}
    plain = write_checkpoint(place / "plain")
    for form in FORMS:
        kind, bits = form.split()
        name = f"{bits}.onnx" if kind == "onnx" else f"module{bits}"
        found[form] = export_model(found["checkpoint"], place / name, network_bits=int(bits))
    found["plain checkpoint"] = plain
    found["without map"] = without_map(found["checkpoint"], place / "without_map")
    found["plain module"] = export_model(plain, place / "plain_module")
    found["plain onnx"] = export_model(plain, place / "plain.onnx", network_bits=32)
    return found


@pytest.fixture(scope="module")
def expected(folders):
    """r multiplied by the map from its file, scaled to length 1."""
    kernel = np.load(folders["checkpoint"] / SIMILARITY_FILE)
    rows = []
    for r in reduced_texts(folders):
        vector = [sum(x * y for x, y in zip(r, column, strict=True)) for column in kernel.T]
        length = sum(x * x for x in vector) ** 0.5
        rows.append([x / length if length else 0.0 for x in vector])
    return np.array(rows, np.float32)


def without_map(checkpoint, folder):
    """Copy a checkpoint without its similarity map."""
    shutil.copytree(checkpoint, folder)
    for name in (SIMILARITY_FILE, "sha256.json"):
        (folder / name).unlink()
    return folder


def reduced_texts(folders):
    """Return r for the texts."""
    return SentenceEncoder(folders["without map"], compute_dtype="float32").encode(TEXTS)


@pytest.mark.parametrize("form", ["checkpoint", *FORMS])
def test_every_form_of_a_model_gives_the_same_sentence_encodings(folders, form):
    kernel = np.load(folders["checkpoint"] / SIMILARITY_FILE)
    expected, reduced = [], reduced_texts(folders)
    for r in reduced:
        encoding = [*r]
        for column in kernel.T:
            read = sum(x * y for x, y in zip(r, column, strict=True))
            length = sum(x * x for x in column) ** 0.5
            encoding = [x + read / length * y for x, y in zip(encoding, column, strict=True)]
        expected.append([0.4 * x for x in encoding])
    encoder = SentenceEncoder(folders[form], compute_dtype="auto" if "onnx" in form else "float32")
    found = encoder.encode(TEXTS)
    assert found.shape == (len(TEXTS), 128)
    size = np.abs(expected).max()
    np.testing.assert_allclose(found / size, expected / size, atol=FORMS.get(form, 1e-5))
    # In directions that the map ignores, the vector is r itself.
    unread = np.linalg.svd(kernel)[0][:, DIM:]
    own, of_r = found @ unread, 0.4 * reduced @ unread
    size = np.abs(of_r).max()
    np.testing.assert_allclose(own / size, of_r / size, atol=2 * FORMS.get(form, 1e-5))
    assert not found[1].any()  # the text without tokens
    assert encoder.encode([]).shape == (0, 128)


@pytest.mark.parametrize("form", ["checkpoint", *FORMS])
def test_every_form_of_a_model_gives_the_same_vectors(folders, expected, form):
    kinds = ("similarity", "similarity")
    ranker = EncoderRanker(open_encoder(folders[form]), kinds=kinds)
    own = SentenceEncoder(folders[form], compute_dtype="auto" if "onnx" in form else "float32")
    found = own.encode_similarity(TEXTS)
    np.testing.assert_allclose(found, expected, atol=FORMS.get(form, 1e-5))
    np.testing.assert_allclose(ranker.encode_candidates(TEXTS), found, atol=1e-5)
    lengths = np.linalg.norm(found, axis=1)
    np.testing.assert_allclose(lengths, [float(bool(text)) for text in TEXTS], atol=1e-5)


@pytest.mark.parametrize("form", ["checkpoint", *FORMS])
def test_every_form_of_a_model_gives_r(folders, form):
    expected = reduced_texts(folders)
    encoder = SentenceEncoder(folders[form], compute_dtype="auto" if "onnx" in form else "float32")
    found = encoder.encode_reduced(TEXTS)
    size = np.abs(expected).max()
    np.testing.assert_allclose(found / size, expected / size, atol=FORMS.get(form, 1e-5))
    assert np.abs(encoder.encode(TEXTS) - found).max() > 0.1 * size
    np.testing.assert_array_equal(encoder.encode(TEXTS, kind="reduced"), found)
    assert encoder.encode_reduced(TEXTS[0]).shape == (128,)
    assert encoder.encode_reduced([]).shape == (0, 128)


@pytest.mark.parametrize("form", ["plain checkpoint", "plain module", "plain onnx"])
def test_without_a_map_the_sentence_encodings_are_r(folders, form):
    encoder = SentenceEncoder(folders[form])
    assert encoder.kinds == ["sentence", "reduced", "context", "response"]
    np.testing.assert_array_equal(encoder.encode_reduced(TEXTS), encoder.encode(TEXTS))


def test_shorter_vectors_are_the_first_numbers(folders, expected):
    encoder = SentenceEncoder(folders["checkpoint"], compute_dtype="float32")
    short = encoder.encode_similarity(TEXTS[2:], 8)
    cut = expected[2:, :8]
    np.testing.assert_allclose(short, cut / np.sqrt((cut**2).sum(axis=1, keepdims=True)), atol=1e-5)
    assert encoder.encode_similarity(TEXTS[2], 8).shape == (8,)
    assert encoder.encode_similarity([], 8).shape == (0, 8)
    np.testing.assert_array_equal(encoder.encode_similarity(TEXTS, np.int64(4)),
                                  encoder.encode_similarity(TEXTS, 4))  # fmt: skip
    for dim in (33, 0, True):
        with pytest.raises(ValueError, match=rf"from 1 to 32.*dim={dim}\. Pass 256"):
            encoder.encode_similarity(TEXTS[:1], dim)


def test_text_similarity_is_that_of_each_text_with_each(folders, expected):
    encoder = SentenceEncoder(folders["checkpoint"], compute_dtype="float32")
    found = encoder.text_similarity(TEXTS[:3], TEXTS[2:])
    assert found.shape == (3, len(TEXTS) - 2)
    for i in range(3):
        for j in range(len(TEXTS) - 2):
            assert found[i, j] == pytest.approx(expected[i] @ expected[j + 2], abs=1e-5)
    assert encoder.text_similarity(TEXTS[2], TEXTS[2]) == pytest.approx(1, abs=1e-5)
    assert encoder.text_similarity(TEXTS[2], TEXTS[3:], dim=4).shape == (len(TEXTS) - 3,)


@pytest.mark.parametrize("form", ["plain checkpoint", "plain module", "plain onnx"])
def test_a_model_without_the_map_gives_one_clear_error(folders, form):
    message = r"kind 'similarity'.*convert-tf similarity"
    encoder = SentenceEncoder(folders[form])
    with pytest.raises(ValueError, match=message):
        encoder.encode_similarity(TEXTS)
    with pytest.raises(ValueError, match=message):
        load_encoder(folders[form], kind="similarity").encode_candidates(TEXTS)
    assert encoder.encode(TEXTS[:1]).shape == (1, 128)


def test_old_clients_see_nothing_of_it(folders):
    with_map, plain = (
        tf.saved_model.load(str(folders[name])) for name in ("module 16", "plain module")
    )
    assert {*with_map.signatures} - {*plain.signatures} == {"encode_similarity"}
    assert len(with_map.trainable_variables) == len(plain.trainable_variables)
    assert not hasattr(plain, "similarity")


@pytest.mark.parametrize("bits", [16, 8])
def test_the_map_is_read_from_a_module_again(folders, bits):
    expected = np.load(folders["checkpoint"] / SIMILARITY_FILE)
    found = load_similarity_map(folders[f"module {bits}"])
    steps = np.abs(expected).max(axis=0) / 127
    tolerance = {16: 2e-3, 8: 0.501 * steps}[bits]
    assert (np.abs(found - expected) <= tolerance).all()
    assert load_similarity_map(folders["plain module"]) is None
    assert load_similarity_map(folders["plain checkpoint"]) is None


def test_a_module_of_a_module_has_its_map_and_its_card(folders, tmp_path):
    first, again = folders["module 8"], tmp_path / "again"
    export_model(first, again, network_bits=8)
    vectors = [
        SentenceEncoder(each, compute_dtype="float32").encode_similarity(TEXTS)
        for each in (first, again)
    ]
    np.testing.assert_allclose(*vectors, atol=1e-3)
    cards = [(each / "MODEL_CARD.md").read_text() for each in (first, again)]
    for heading in ("Model", "Training", "Evaluation during training"):
        one, other = (card.split(f"## {heading}\n")[1].split("\n## ")[0] for card in cards)
        assert one == other
    assert f"| `encode_similarity` | {DIM} numbers" in cards[0]
    assert "| initial weights | those of `smaller` |" in cards[1]
    assert "| then taught opposites with | 2,000 triplets and 300 texts" in cards[1]
    assert "someone" not in (again / "training.json").read_text()


def test_a_damaged_map_is_refused(tmp_path):
    folder = write_checkpoint(tmp_path / "damaged", similarity_dim=4)
    (folder / SIMILARITY_FILE).write_bytes(b"cut")
    with pytest.raises(ValueError, match=SIMILARITY_FILE):
        load_similarity_map(folder)


def test_an_index_of_similar_texts_finds_a_text_by_itself(folders, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS[2:]) + "\n")
    cache = str(tmp_path / "cache")
    module = str(folders["module 16"])
    options = ["--input", str(tmp_path / "texts.txt"), "--output", cache, "--kind=similarity"]
    call_command("index", "build", "--encoder", module, *options)
    encoder = load_encoder(module, kind="similarity")
    index = CandidateIndex(CandidateCache(cache), encoder)
    found = index.search([(text,) for text in TEXTS[2:7]], top_k=1)
    np.testing.assert_array_equal(found.ids[:, 0], np.arange(5))
    np.testing.assert_allclose(found.scores[:, 0], 1, atol=1e-3)
    with pytest.raises(ValueError, match="encoder"):
        CandidateIndex(CandidateCache(cache), load_encoder(module))


def test_another_map_is_another_encoder(tmp_path):
    folder = write_checkpoint(tmp_path / "one", similarity_dim=4)
    before = load_encoder(folder, kind="similarity").fingerprint
    (folder / "sha256.json").unlink()
    np.save(folder / SIMILARITY_FILE, 2 * np.load(folder / SIMILARITY_FILE))
    assert load_encoder(folder, kind="similarity").fingerprint != before


@pytest.mark.parametrize("form", ["checkpoint", *FORMS])
def test_intents_know_which_kinds_of_a_model_differ(folders, form):
    kinds = ["sentence", "reduced", "similarity"]
    assert different_kinds(folders[form]) == kinds
    assert different_kinds([folders[form], SentenceEncoder(folders[form])]) == kinds
    plain = folders[f"plain {form.split()[0]}"]
    assert different_kinds(plain) == ["sentence"]
    assert different_kinds([folders[form], plain]) == ["sentence"]


def test_intents_on_vectors_for_similarity(folders, tmp_path):
    texts = [*TEXTS[2:8], *TEXTS[8:14]]
    labels = ["a"] * 6 + ["b"] * 6
    module = str(folders["module 16"])
    classifier = IntentClassifier(module, "logistic", kind="similarity").fit(texts, labels)
    assert classifier.parts_.centroids.shape == (2, DIM)
    classifier.save(tmp_path / "intents")
    loaded = IntentClassifier.load(tmp_path / "intents")
    np.testing.assert_allclose(
        loaded.predict_proba(texts), classifier.predict_proba(texts), atol=1e-6
    )
    one_file = export_one_file(classifier, tmp_path / "intents.onnx", network_bits=32)
    np.testing.assert_allclose(
        IntentFile(one_file).predict_proba(texts), classifier.predict_proba(texts), atol=0.02
    )
    loaded.set_params(kind="sentence")
    assert loaded.encode(texts).shape == (12, DIM)  # the fitted head still reads these
    assert loaded.fit(texts, labels).encode(texts).shape == (12, 128)
    with pytest.raises(ValueError, match="one of auto, sentence, reduced, similarity"):
        IntentClassifier(module, kind="response").fit(texts, labels)


def test_a_serving_module_reads_the_same_vectors(folders, tmp_path):
    pytest.importorskip("tensorflow_hub")
    from convert_tf.intents.serving import export_serving

    texts, labels = TEXTS[2:14], ["a", "b"] * 6
    module = str(folders["module 16"])
    classifier = IntentClassifier(module, "logistic", kind="similarity").fit(texts, labels)
    export_serving(classifier, tmp_path / "serving")
    serve = tf.saved_model.load(str(tmp_path / "serving")).signatures["serving_default"]
    found = serve(texts=tf.constant(texts))["probabilities"]
    np.testing.assert_allclose(found, classifier.predict_proba(texts), atol=0.02)
