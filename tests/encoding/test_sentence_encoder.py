"""SentenceEncoder and EncoderClient: text handling, tested on a stub, and real modules."""

import functools
import itertools
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from support.texts import random_texts

from convert_tf import EncoderClient, SentenceEncoder
from convert_tf.encoding import text_batches
from convert_tf.encoding.backends import module as module_backend
from convert_tf.encoding.cache import EncodingCache


def vector(*texts):
    """Return the stub's vector, which depends on the texts and their order."""
    return [len(texts[0]), sum(texts[0]), *[7.0 * len(t) + sum(t[:3]) for t in texts[1:]]]


class Stub:
    """A backend that counts bytes and records its batches."""

    def __init__(self, *, reads_history=False, outputs=("default", "encode_context")):
        self.outputs = {*outputs, "encode_response"}
        self.reads_history = reads_history
        self.calls = []

    def run(self, output, columns):
        self.calls.append((output, [list(column) for column in columns]))
        rows = list(zip(*columns, strict=True))
        dim = 1 + len(columns)
        return np.array([vector(*row) for row in rows], np.float64).reshape(len(rows), dim)

    @property
    def texts(self):
        return [text for _, columns in self.calls for text in columns[0]]


def expected(texts):
    return np.array([vector(t.encode() if isinstance(t, str) else t) for t in texts], np.float32)


TEXTS = ["a long text", "b", "", "été", "b", "a long text", "一个", b"\xff\x00", "c" * 9]


class Column:
    """The used part of a table's column: pandas, polars and others are converted to arrays."""

    def __init__(self, texts):
        self.texts = texts

    def __len__(self):
        return len(self.texts)

    def __array__(self, dtype=None, copy=None):
        return np.array(self.texts, object)


@pytest.mark.parametrize(
    "container",
    [list, tuple, iter, lambda t: np.array(t, object), Column, np.array],
    ids=["list", "tuple", "iterator", "objects", "column", "strings"],
)
def test_any_container_keeps_the_order(container):
    texts = TEXTS[:-2] if container is np.array else TEXTS
    encodings = SentenceEncoder(Stub(), batch_size=2).encode(container(texts))
    assert encodings.dtype == np.float32
    np.testing.assert_array_equal(encodings, expected(texts))


def test_one_text_gives_one_vector():
    encoder = SentenceEncoder(Stub(reads_history=True))
    assert encoder.encode("abc").shape == encoder.encode(b"abc").shape == (2,)
    np.testing.assert_array_equal(encoder.encode("abc"), encoder.encode(["abc"])[0])
    both = encoder.encode_contexts("abc", "de")
    np.testing.assert_array_equal(both, encoder.encode_contexts(["abc"], ["de"])[0])


@pytest.mark.parametrize("texts", [[], (), np.array([], object), iter(())])
def test_no_texts(texts):
    assert SentenceEncoder(Stub()).encode(texts).shape == (0, 2)


def test_batches_are_sorted_and_equal_texts_encoded_once():
    stub = Stub()
    SentenceEncoder(stub, batch_size=3).encode([*TEXTS, *TEXTS[::-1], "été".encode()])
    assert len(stub.texts) == len(set(stub.texts)) == 7
    lengths = [len(text) for text in stub.texts]
    assert lengths == sorted(lengths)
    assert [len(columns[0]) for _, columns in stub.calls] == [3, 3, 1]


def test_batch_size_of_a_call():
    for size, calls in ((None, 2), (1, 10), (50, 1)):
        stub = Stub()
        SentenceEncoder(stub, batch_size=5).encode([str(i) for i in range(10)], batch_size=size)
        assert len(stub.calls) == calls


def test_long_texts_come_in_small_batches(monkeypatch):
    monkeypatch.setattr(text_batches, "BATCH_BYTES", 100)
    stub = Stub()
    texts = ["x" * 5, "y" * 40, "z" * 45, "w" * 50, "u" * 101, "v" * 300]
    np.testing.assert_array_equal(SentenceEncoder(stub).encode(texts), expected(texts))
    assert [len(columns[0]) for _, columns in stub.calls] == [2, 2, 1, 1]


def test_signatures_of_the_methods():
    stub = Stub()
    encoder = SentenceEncoder(stub)
    encoder.encode(["a"]), encoder.encode_contexts(["a"]), encoder.encode_responses(["a"])
    assert [output for output, _ in stub.calls] == ["default", "encode_context", "encode_response"]
    kinds = ("sentence", "context", "response")
    assert encoder.kinds == [*kinds]
    encodings = [encoder.encode(["a"], kind=kind) for kind in kinds]
    np.testing.assert_array_equal(encodings, [expected("a")] * 3)
    pieces = [*itertools.chain(*(encoder.iter_encode(["a"], kind=kind) for kind in kinds))]
    assert [output for output, _ in stub.calls[3:]] == 2 * [output for output, _ in stub.calls[:3]]
    np.testing.assert_array_equal(np.concatenate(pieces), expected("aaa"))


def test_further_signatures_of_a_module():
    stub = Stub(outputs=["encode_title"])
    encoder = SentenceEncoder(stub)
    assert encoder.kinds == ["response"]
    np.testing.assert_array_equal(encoder.encode(["a"], kind="encode_title"), expected("a"))
    assert stub.calls[0][0] == "encode_title"


def test_an_encoder_of_an_earlier_version_says_how_to_get_r():
    with pytest.raises(ValueError, match=r"reduced.*only .* Export the run or module again"):
        SentenceEncoder(Stub()).encode_reduced(["a"])
    stub = Stub(outputs=["reduced"])
    np.testing.assert_array_equal(SentenceEncoder(stub).encode_reduced(["a"]), expected("a"))
    assert [output for output, _ in stub.calls] == ["reduced"]


def test_extra_contexts():
    stub = Stub(reads_history=True)
    encoder = SentenceEncoder(stub, batch_size=2)
    texts, extra = ["a", "a", "bcd", "a"], ["x", "yy", "x", "x"]
    want = [vector(a.encode(), b.encode()) for a, b in zip(texts, extra, strict=True)]
    np.testing.assert_array_equal(encoder.encode_contexts(texts, extra), want)
    assert len(stub.texts) == 3  # whole pairs are compared, not single texts
    np.testing.assert_array_equal(encoder.encode_contexts(iter(texts), iter(extra)), want)
    without = encoder.encode_contexts(["a", "bcd"])
    np.testing.assert_array_equal(without, encoder.encode_contexts(["a", "bcd"], ["", ""]))
    for few in (extra[:3], [*extra, "z"], iter(extra[:3])):
        with pytest.raises(ValueError, match="differ in number"):
            encoder.encode_contexts(texts, few)


def test_a_stream_is_never_all_in_memory(monkeypatch):
    """Texts are read as needed, and at most one window of them is in memory."""
    asked = 0

    def stream():
        nonlocal asked
        for i in itertools.count():
            asked += 1
            yield f"{i % 1000:03d}" + "x" * 1000

    monkeypatch.setattr(text_batches, "WINDOW_TEXTS", 300)
    encoder = SentenceEncoder(Stub(), batch_size=4)
    pieces = encoder.iter_encode(stream())
    assert [len(piece) for piece in itertools.islice(pieces, 3)] == [300] * 3
    assert asked == 900
    assert [len(p) for p in encoder.iter_encode(map(str, range(800)), batch_size=500)] == [500, 300]

    stub = Stub()
    stub.run = lambda output, columns: np.zeros((len(columns[0]), 2))  # records nothing
    encoder = SentenceEncoder(stub, batch_size=4)
    for number_of in (
        lambda texts: len(encoder.encode(texts)),
        lambda texts: sum(map(len, encoder.iter_encode(texts))),
    ):
        tracemalloc.start()
        number = number_of(itertools.islice(stream(), 20_000))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert number == 20_000
        assert peak < 3e6  # the whole stream has 20 MB


def test_streams_equal_lists(monkeypatch):
    monkeypatch.setattr(text_batches, "_WINDOW_BYTES", 1000)
    encoder, texts = SentenceEncoder(Stub(), batch_size=3), [f"{i}" * 300 for i in range(10)]
    pieces = [*encoder.iter_encode(texts)]
    assert [len(piece) for piece in pieces] == [4, 4, 2]  # long texts make short pieces
    np.testing.assert_array_equal(np.concatenate(pieces), encoder.encode(texts))
    np.testing.assert_array_equal(encoder.encode(iter(texts)), encoder.encode(texts))


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a", None], r"str or bytes\. Received: None \(NoneType\) at position 1"),
        (["a", "b", float("nan")], r"Received: nan \(float\) at position 2"),
        ([["a"]], "at position 0"),
        (iter(["a", None]), "at position 1"),
        (np.array([1.5]), r"\(float\) at position 0"),
        (np.array([["a", "b"]]), r"one column. Received: an array of shape \(1, 2\)"),
        ({"a", "b"}, "of strings. Received: set"),
        ({"a": 1}, "of strings. Received: dict"),
        (7, "Received: int"),
    ],
)
def test_what_is_no_text(texts, message):
    with pytest.raises(ValueError, match=message):
        SentenceEncoder(Stub()).encode(texts)


def test_arguments_that_are_wrong():
    encoder = SentenceEncoder(Stub(outputs=["encode_context"]))
    with pytest.raises(ValueError, match="not have the kind 'sentence', only"):
        encoder.encode(["a"])
    with pytest.raises(ValueError, match="does not read them"):
        encoder.encode_contexts(["a"], ["b"])
    with pytest.raises(ValueError, match="not have the kind 'word'"):
        encoder.iter_encode(["a"], kind="word")  # before the first piece is read
    for wrong in (lambda: SentenceEncoder(Stub(), batch_size=0),
                  lambda: encoder.encode_contexts(["a"], batch_size=0)):  # fmt: skip
        with pytest.raises(ValueError, match="batch_size=0"):
            wrong()
    with pytest.raises(ValueError, match="Received: 'float16'"):
        SentenceEncoder(Stub(), compute_dtype="float16")


def test_onnx_files_have_their_own_precision(tiny_onnx):
    with pytest.raises(ValueError, match=r"'bfloat16' has no effect on '.*tiny\.onnx'"):
        SentenceEncoder(tiny_onnx, compute_dtype="bfloat16")


def test_outputs_that_are_no_vectors():
    stub = Stub()
    stub.run = lambda output, columns: np.zeros(len(columns[0]))
    with pytest.raises(ValueError, match="one vector for each text"):
        SentenceEncoder(stub).encode(["a", "b"])


class Words(Stub):
    """Encodes words so that cosines are the shares of common words."""

    def run(self, output, columns):
        words = ["cat", "dog", "fish"]
        rows = zip(*columns, strict=True)
        found = [[w in " ".join(map(bytes.decode, row)) for w in words] for row in rows]
        encodings = np.array(found, float).reshape(-1, 3)
        return encodings / np.maximum(np.linalg.norm(encodings, axis=1, keepdims=True), 1e-9)


@pytest.mark.parametrize("model", [None, 5, object()])
def test_what_is_no_model(model):
    with pytest.raises(ValueError, match=r"must be a path, a name or a Backend\. Received: "):
        SentenceEncoder(model)


class Other(tf.Module):
    """A SavedModel of another program with signatures for two texts, a number and one text."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name=n) for n in ("a", "b")])
    def two(self, a, b):
        return {"default": tf.strings.length(a + b)[:, None]}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="a")])
    def number(self, a):
        return {"default": a[:, None]}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="a")])
    def parsed_number(self, a):
        return {"default": tf.strings.to_number(a)[:, None]}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def encode(self, texts):
        return {"default": tf.cast(tf.strings.length(texts), tf.float32)[:, None]}


def test_signatures_with_other_arguments(tmp_path):
    module = Other()
    tf.saved_model.save(module, str(tmp_path / "two"), signatures={"default": module.two})
    with pytest.raises(
        ValueError,
        match=r"outputs default, reduced, encode_context, .*, encode_similarity\. .* with none",
    ):
        SentenceEncoder(tmp_path / "two")
    signatures = {
        "default": module.two,
        "encode_context": module.number,
        "encode_response": module.parsed_number,
    }
    tf.saved_model.save(module, str(tmp_path / "numbers"), signatures=signatures)
    encoder = SentenceEncoder(tmp_path / "numbers")
    with pytest.raises(ValueError, match="only response"):
        encoder.encode(["a"])
    with pytest.raises(ValueError, match="cannot be used") as caught:
        encoder.encode_responses(["a"])
    assert "\n" not in str(caught.value)


def test_rank():
    encoder = SentenceEncoder(Words(reads_history=True))
    responses = ["none", "dog", "cat dog", "no", "cat"]
    best = encoder.rank("cat", responses)
    assert [text for text, _ in best] == ["cat", "cat dog", "none", "dog", "no"]
    assert [score for _, score in best] == pytest.approx([1, 0.5**0.5, 0, 0, 0])
    assert encoder.rank("cat", responses, top_k=2) == best[:2]
    assert encoder.rank("cat", tuple(responses), top_k=9) == best
    assert encoder.rank(("cat", "a dog"), iter(responses))[0][0] == "cat dog"
    several = encoder.rank(["cat", ("", "dog")], responses, top_k=1)
    assert several == [[("cat", 1.0)], [("dog", 1.0)]]
    assert encoder.rank("cat", responses, top_k=np.int64(2)) == best[:2]
    for responses, top_k in (([], None), (["a"], 0), (["a"], 1.5), (["a"], True)):
        with pytest.raises(ValueError, match="Pass at least one response"):
            encoder.rank("cat", responses, top_k=top_k)
    for context in (None, 5, [None], ("cat", 5)):
        with pytest.raises(ValueError, match=r"Received: (None|5)"):
            encoder.rank(context, ["a"])
    for responses in (None, 5):
        with pytest.raises(ValueError, match=r"responses must be a list of strings\. Received: "):
            encoder.rank("cat", responses)
    with pytest.raises(ValueError, match="does not read them"):
        SentenceEncoder(Words()).rank(("cat", "dog"), ["a"])


@pytest.mark.parametrize("count", [3, 5, 7, 13, 33])
def test_equal_responses_have_equal_cosines_and_stay_in_order(count):
    """In float32, BLAS may compute the last columns of a product in another order."""
    rng = np.random.default_rng(0)
    table = {text: rng.standard_normal(512).astype(np.float32) for text in ("a", "same")}

    class Dense(Words):
        def run(self, output, columns):
            return np.stack([table[text.decode()] for text in columns[0]])

    responses = ["".join("same") for _ in range(count)]  # equal, but not one object
    assert len({*map(id, responses)}) == count
    ranking = SentenceEncoder(Dense()).rank("a", responses)
    assert len({cosine for _, cosine in ranking}) == 1
    assert [id(text) for text, _ in ranking] == [*map(id, responses)]


class Table(Column):
    """The used part of a table. As a list, it gives its header."""

    def __iter__(self):
        return iter(["text"])


def test_rank_needs_an_order():
    encoder = SentenceEncoder(Words())
    column = np.array(["dog", "cat"], object)
    assert encoder.rank(column[1:], column)[0][0] == ("cat", 1.0)
    for texts in ({"cat", "dog"}, {"text": ["cat"]}):
        with pytest.raises(ValueError, match="Contexts must be a list"):
            encoder.rank(texts, ["cat"])
    with pytest.raises(ValueError, match="responses must be a list"):
        encoder.rank("cat", {"text": ["cat"]})
    for texts in ({"dog", "cat"}, {"dog": 1, "cat": 2}.keys()):
        assert encoder.rank("cat", texts)[0] == ("cat", 1.0)
    assert len(encoder.rank({"dog": 1, "cat": 2}.keys(), ["cat"])) == 2
    with pytest.raises(ValueError, match=r"responses must be one column\. .* shape \(2, 1\)"):
        encoder.rank("cat", Table([["cat"], ["dog"]]))
    with pytest.raises(ValueError, match=r"Contexts must be one column\. .* shape \(2, 1\)"):
        encoder.rank(Table([["cat"], ["dog"]]), ["cat"])


def test_progress(capsys, monkeypatch):
    monkeypatch.setattr("convert_tf.storage.progress._SECONDS_IN_LOG", 0.0)
    encoder = SentenceEncoder(Stub())
    texts = [str(i % 1500) for i in range(3000)]
    encoder.encode(texts)
    assert capsys.readouterr().err == ""
    encoder.encode(texts, show_progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("3,000 of 3,000 sentences")
    assert "/s" in lines[-1] and "left" in lines[-1]
    [*encoder.iter_encode(iter(texts), show_progress=True)]
    assert "3,000 sentences" in capsys.readouterr().err


def test_the_cache():
    calls = []

    def encode(keys):
        calls.append(list(keys))
        return np.array([[len(calls), key] for key in keys], np.float32).reshape(-1, 2)

    cache = EncodingCache(encode, size=3)
    first = cache([1, 2, 1])
    np.testing.assert_array_equal(first, [[1, 1], [1, 2], [1, 1]])
    first[:] = 0  # the array belongs to the caller
    np.testing.assert_array_equal(cache([2, 3, 1]), [[1, 2], [2, 3], [1, 1]])
    assert calls == [[1, 2], [3]]
    assert cache.hits == 2
    cache([2])[:] = 0
    cache([4])  # drops 1, the least recently used, as 3 came after it
    np.testing.assert_array_equal(cache([2, 3, 1]), [[1, 2], [2, 3], [4, 1]])
    assert calls[2:] == [[4], [1]]
    cache([2])
    cache([7])  # 2 was used after 3 and 1
    assert cache([2])[0, 0] == 1
    new = cache([5, 6])
    new[:] = 0
    np.testing.assert_array_equal(cache([5]), [[6, 5]])
    assert cache([]).shape == (0, 2)
    cache([*range(10, 20)])
    assert cache(range(17, 20))[0, 0] == 8
    assert EncodingCache(encode, size=0)([1, 1]).shape == (2, 2)


@pytest.mark.parametrize("texts", [[], ["a"], ["a", "b"]])
def test_vectors_may_be_changed(texts):
    """Vectors are writable even if the backend's arrays are read-only, as TensorFlow's are."""

    class ReadOnly(Stub):
        def run(self, output, columns):
            vectors = super().run(output, columns).astype(np.float32)
            vectors.flags.writeable = False
            return vectors

    encode = SentenceEncoder(ReadOnly()).encode
    for vectors in (
        encode(texts),
        encode(iter(texts)),
        EncoderClient(ReadOnly()).encode_sentences(texts),
    ):
        vectors *= 2
        np.testing.assert_array_equal(vectors, 2 * expected(texts).reshape(-1, 2))


def test_encoder_client():
    stub = Stub()
    client = EncoderClient(stub, internal_batch_size=3)
    texts = ["a", "a", "b", "c", "d", "e", "f", "g"]
    np.testing.assert_array_equal(client.encode_sentences(texts), expected(texts))
    assert [len(columns[0]) for _, columns in stub.calls] == [3, 3, 1]
    client.encode_sentences(["a", "z"])
    assert stub.texts[7:] == [b"z"]
    client.encode_contexts(["a"]), client.encode_responses(["a"]), client.encode_responses(["a"])
    assert [output for output, _ in stub.calls[4:]] == ["encode_context", "encode_response"]
    assert client.encode_responses([]).shape == (0, 2)
    with pytest.raises(ValueError, match="Create it with use_extra_context=True"):
        client.encode_contexts(["a"], [["b"]])
    with pytest.raises(ValueError, match="multi-context"):
        EncoderClient(stub, use_extra_context=True)
    for number in ({"cache_size": -1}, {"max_extra_contexts": None}):
        with pytest.raises(ValueError, match=r"=(-1|None)"):
            EncoderClient(stub, **number)
    with pytest.raises(ValueError, match="Received: str"):
        client.encode_sentences("a text by itself")


@pytest.mark.parametrize(
    ("options", "extra"),
    [
        ({"max_extra_contexts": 4}, [b"d c b a", b"F E D C", b""]),
        ({}, [b"d c b a", b"F E D C B A", b""]),
        (
            {"max_extra_contexts": 2, "use_extra_context_prefixes": True},
            [b"0: d 1: c", b"0: F 1: E", b""],
        ),
    ],
)
def test_encoder_client_reads_turns(options, extra):
    stub = Stub(reads_history=True)
    client = EncoderClient(stub, use_extra_context=True, cache_size=9, **options)
    contexts = ["hello", "hi", "yo"]
    encodings = client.encode_contexts(contexts, [list("abcd"), list("ABCDEF"), []])
    want = [vector(c.encode(), e) for c, e in zip(contexts, extra, strict=True)]
    np.testing.assert_array_equal(encodings, want)
    np.testing.assert_array_equal(client.encode_contexts(["yo"])[0], want[2])
    assert len(stub.texts) == 3  # the last one was cached
    with pytest.raises(ValueError, match="differ in number"):
        client.encode_contexts(["a", "b"], [["c"]])


def test_encoder_client_has_the_arguments_of_polyai_in_their_order():
    """Other programs call `EncoderClient(uri, True, True, 2, 0, 3)` with positional arguments."""
    stub = Stub(reads_history=True)
    client = EncoderClient(stub, True, True, 2, 0, 3)
    client.encode_contexts(list("abcd"), [["u", "v", "w"]] * 4)
    client.encode_contexts(["a"], [["u", "v", "w"]])
    assert [columns[0] for _, columns in stub.calls] == [[b"a", b"b", b"c"], [b"d"], [b"a"]]
    assert stub.calls[0][1][1][0] == b"0: w 1: v"


@pytest.mark.parametrize("is_trained_so", [False, True])
@pytest.mark.parametrize("asked", [None, False, True])
def test_encoder_client_numbers_turns_as_asked_or_else_as_trained(is_trained_so, asked):
    stub = Stub(reads_history=True)
    stub.numbers_turns = is_trained_so
    client = EncoderClient(stub, use_extra_context=True, use_extra_context_prefixes=asked)
    client.encode_contexts(["a"], [["v", "w"]])
    is_numbered = is_trained_so if asked is None else asked
    assert stub.calls[0][1][1] == [b"0: w 1: v" if is_numbered else b"w v"]


@pytest.fixture(scope="module")
def modules(tiny_modules):
    return {kind: str(module) for kind, (_, module) in tiny_modules.items()}


@pytest.fixture(scope="module")
def encoders(modules):
    return {
        name: SentenceEncoder(path, batch_size=7, compute_dtype="float32")
        for name, path in modules.items()
    }


def test_a_module_encodes_as_its_signatures_do(encoders):
    texts = [*random_texts(30), "", "Größe ✈ 日本", *random_texts(5)]
    for name, encoder in encoders.items():
        signatures = encoder._model._module.signatures  # loaded once: each load takes seconds
        default = signatures["default"](tf.constant(texts))["default"].numpy()
        response = signatures["encode_response"](tf.constant(texts))["default"].numpy()
        history = texts[::-1]
        if name == "single":
            context = signatures["encode_context"](tf.constant(texts))["default"].numpy()
            contexts = encoder.encode_contexts(texts)
        else:
            context = signatures["encode_context"](
                context=tf.constant(texts), extra_context=tf.constant(history)
            )["default"].numpy()
            contexts = encoder.encode_contexts(texts, history)
        np.testing.assert_allclose(encoder.encode(texts), default, atol=1e-4)
        np.testing.assert_allclose(contexts, context, atol=1e-5)
        np.testing.assert_allclose(encoder.encode_responses(texts), response, atol=1e-5)
        np.testing.assert_allclose(np.linalg.norm(contexts, axis=1), 1, atol=1e-5)
        assert encoder.encode([]).shape == (0, default.shape[1])
        assert encoder.encode_contexts([]).shape == (0, context.shape[1])
        assert encoder.reads_history == (name == "multi")


def test_any_bytes_are_encoded(encoders):
    texts = [b"\xff\xfe", "nul\0nul", "\ud800", " ", "\u0301" * 500, "x" * 5000, "\u202eabc"]
    encodings = encoders["single"].encode_responses(texts)
    assert np.isfinite(encodings).all()
    assert len(np.unique(encodings.round(4), axis=0)) >= len(texts) - 1


@pytest.mark.slow
def test_compute_dtypes(modules, encoders, monkeypatch):
    texts = random_texts(20)
    exact = encoders["single"].encode(texts)
    rounded = SentenceEncoder(modules["single"], compute_dtype="bfloat16").encode(texts)
    assert np.abs(exact - rounded).max() > 1e-4
    norms = np.linalg.norm(exact, axis=1) * np.linalg.norm(rounded, axis=1)
    assert (np.sum(exact * rounded, axis=1) / norms).min() > 0.999
    for is_faster, chosen in ((True, "bfloat16"), (False, "float32")):
        monkeypatch.setattr(
            module_backend, "_is_faster_in_bfloat16", functools.partial(bool, is_faster)
        )
        backend = module_backend.ModuleBackend(modules["single"], compute_dtype="auto")
        assert backend.compute_dtype == chosen


def test_modules_that_compute_in_float32_only(tmp_path, monkeypatch):
    older = Other()
    tf.saved_model.save(older, str(tmp_path / "older"), signatures={"default": older.encode})
    monkeypatch.setattr(module_backend, "_is_faster_in_bfloat16", lambda: True)
    np.testing.assert_array_equal(SentenceEncoder(tmp_path / "older").encode(["abc"]), [[3]])
    with pytest.raises(ValueError, match=r"float32 only\. Received: compute_dtype='bfloat16'"):
        SentenceEncoder(tmp_path / "older", compute_dtype="bfloat16")


# The vocabulary in assets/ is for people and other programs. The graph contains a copy.
FILES = [
    "saved_model.pb",
    "variables/variables.index",
    "variables/variables.data-00000-of-00002",
    "variables/variables.data-00001-of-00002",
]


@pytest.mark.parametrize("is_missing", [True, False])
@pytest.mark.parametrize("name", FILES)
def test_damaged_modules_give_one_error(modules, tmp_path, name, is_missing):
    folder = Path(shutil.copytree(modules["single"], tmp_path / "module"))
    content = (folder / name).read_bytes()
    (folder / name).unlink()
    if not is_missing:
        (folder / name).write_bytes(content[:-1])
    with pytest.raises(ValueError, match="Pass the folder of a module") as caught:
        SentenceEncoder(folder)
    assert str(caught.value).startswith(f"{str(folder)!r} cannot be used: ")


def test_folders_that_hold_no_encoder(tmp_path):
    with pytest.raises(ValueError, match="neither a file or folder nor one of convert_small, conv"):
        SentenceEncoder(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"not a file or folder that convert-tf writes\. Pass the"):
        SentenceEncoder(tmp_path)
