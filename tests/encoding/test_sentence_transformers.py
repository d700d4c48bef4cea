"""What is called by programs written for sentence-transformers; those themselves are tried in
test_other_packages.py."""

import warnings

import numpy as np
import pytest

from convert_tf import SentenceEncoder


class Stub:
    """A backend that encodes a text as how often each letter of abc is in it."""

    outputs = ("default", "encode_context", "encode_response")
    reads_history = False

    def run(self, output, columns):
        counts = [[text.count(letter) for letter in (b"a", b"b", b"c")] for text in columns[0]]
        return np.array(counts, np.float32).reshape(len(columns[0]), 3)


TEXTS = ["aab", "c", "abc", "-", "bb"]


@pytest.fixture
def encoder():
    return SentenceEncoder(Stub())


def naive_cosine(a, b):
    lengths = sum(x * x for x in a) ** 0.5 * sum(x * x for x in b) ** 0.5
    return sum(x * y for x, y in zip(a, b, strict=True)) / lengths if lengths else 0.0


def test_keywords_that_ask_for_nothing_else(encoder):
    plain = encoder.encode(TEXTS)
    others = {"prompt_name": None, "prompt": None, "output_value": "sentence_embedding",
              "precision": "float32", "device": "cpu", "truncate_dim": None, "pool": None,
              "chunk_size": None}  # fmt: skip
    for method in (encoder.encode, encoder.encode_query, encoder.encode_document):
        found = method(
            TEXTS, batch_size=2, show_progress_bar=False, convert_to_numpy=True, **others
        )
        np.testing.assert_array_equal(found, plain)


def test_vectors_of_length_1(encoder):
    plain, units = encoder.encode(TEXTS), encoder.encode(TEXTS, normalize_embeddings=True)
    for row, unit in zip(plain, units, strict=True):
        length = sum(x * x for x in row.tolist()) ** 0.5
        np.testing.assert_allclose(unit, row / length if length else row, atol=1e-6)
    one = encoder.encode("aab", normalize_embeddings=True)
    np.testing.assert_array_equal(one, units[0])
    assert encoder.encode([], normalize_embeddings=True).shape == (0, 3)


@pytest.mark.parametrize(
    "option",
    [{"prompt_name": "query"}, {"prompt": "query: "}, {"output_value": "token_embeddings"},
     {"precision": "int8"}, {"device": "cuda"}, {"truncate_dim": 2}, {"pool": {}}],
    ids=lambda option: next(iter(option)),
)  # fmt: skip
def test_keywords_that_ask_for_what_there_is_not(encoder, option):
    (name,) = option
    with pytest.raises(ValueError, match=f"^{name} must be .* Received: {name}="):
        encoder.encode_query(TEXTS, **option)


def test_a_device_is_that_of_the_runtime(encoder):
    with pytest.raises(ValueError, match="a model computes where its runtime does"):
        encoder.encode(TEXTS, device="cuda")


def test_unknown_keywords(encoder):
    with pytest.raises(TypeError, match="Received: bach_size, prompts"):
        encoder.encode(TEXTS, bach_size=3, prompts={})


def test_a_progress_bar_by_its_other_name(encoder, capsys, monkeypatch):
    monkeypatch.setattr("convert_tf.storage.progress._SECONDS_IN_LOG", 0.0)
    encoder.encode(TEXTS * 600, show_progress_bar=True)
    assert "sentences" in capsys.readouterr().err


def test_dimension(encoder):
    assert encoder.get_sentence_embedding_dimension() == encoder.get_embedding_dimension() == 3


def test_similarities(encoder):
    first, second = encoder.encode(TEXTS), encoder.encode(TEXTS[::-1])
    every = [[naive_cosine(a, b) for b in second.tolist()] for a in first.tolist()]
    np.testing.assert_allclose(encoder.similarity(first, second), every, atol=1e-6)
    np.testing.assert_allclose(encoder.similarity(list(first), second), every, atol=1e-6)
    np.testing.assert_allclose(
        encoder.similarity_pairwise(first, second), np.diagonal(every), atol=1e-6
    )
    np.testing.assert_allclose(encoder.similarity(first[0], second), every[:1], atol=1e-6)
    assert encoder.similarity(encoder.encode([]), second).shape == (0, len(TEXTS))
    with pytest.raises(ValueError, match="Received: an empty list"):
        encoder.similarity([], second)


def test_metrics_are_kept(encoder):
    encoder.model_card_data.set_evaluation_metrics(None, {"a": 1.0}, 0, 2)
    encoder.model_card_data.set_evaluation_metrics(None, {"b": 2.0})
    assert encoder.model_card_data.metrics == {"a": 1.0, "b": 2.0}
    assert SentenceEncoder(Stub()).model_card_data.metrics == {}


def read_only(array):
    array = array.copy()
    array.setflags(write=False)
    return array


def test_tensors(encoder, monkeypatch):
    torch = pytest.importorskip("torch")
    plain = encoder.encode(TEXTS)
    tensor = encoder.encode(TEXTS, convert_to_tensor=True)
    assert isinstance(tensor, torch.Tensor)
    np.testing.assert_array_equal(tensor.numpy(), plain)
    assert encoder.encode("aab", convert_to_tensor=True).shape == (3,)
    monkeypatch.setattr(encoder._model, "run", lambda *_: read_only(plain[:1]))
    with warnings.catch_warnings(action="error"):  # torch warns of arrays that nobody may change
        encoder.encode("aab", convert_to_tensor=True).zero_()
    monkeypatch.undo()
    rows = encoder.encode(TEXTS, convert_to_numpy=False)
    assert isinstance(rows, list)
    np.testing.assert_array_equal(torch.stack(rows), plain)
    np.testing.assert_allclose(
        encoder.similarity(rows, plain).numpy(), encoder.similarity(plain, plain)
    )
    assert encoder.encode(TEXTS, device=torch.device("cpu")).shape == (5, 3)
