"""The candidate cache and its search methods: exact, FAISS and two-step."""

import functools
import json
import os
import signal
import subprocess
import sys
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
from support.commands import own_environment
from support.damage import flip_a_bit
from support.full_disk import room_for
from support.index_stubs import (
    CONTEXTS,
    DIM,
    TEXTS,
    StubEncoder,
    StubRanker,
    brute_force,
    make_cache,
)  # fmt: skip
from support.processes import printed_by

from convert_tf.checkpoints.identity import identity_of
from convert_tf.search import index as index_module
from convert_tf.search.cache import (
    DTYPES,
    CandidateCache,
    stored_vectors,
    widened_float16,
    write_cache,
)
from convert_tf.search.encoders import CandidateEncoder, load_encoder
from convert_tf.search.index import (
    FAISS_KINDS,
    CandidateIndex,
    FaissIndex,
    best_candidates,
    exact_scores,
    faiss_key,
)
from convert_tf.search.reranked import RerankedIndex
from convert_tf.storage.checksums import check_file, record_checksums
from convert_tf.storage.files import FileWriteError


@pytest.fixture(scope="module", params=DTYPES)
def cache(request, tmp_path_factory):
    return make_cache(tmp_path_factory.mktemp("index") / "cache", dtype=request.param)


def search(cache, encoder, contexts=CONTEXTS, top_k=10):
    return CandidateIndex(cache, encoder).search(contexts, top_k=top_k)


@pytest.fixture
def set_buffer(monkeypatch):
    """Function that sets the number of bytes, and so of candidates, in a chunk."""
    return functools.partial(monkeypatch.setattr, index_module, "BUFFER_BYTES")


def test_a_text_is_one_turn(cache):
    texts = [turns[-1] for turns in CONTEXTS]
    for own, other in zip(
        search(cache, StubEncoder(), texts), search(cache, StubEncoder()), strict=True
    ):
        np.testing.assert_array_equal(own, other)


# Chunks of one candidate, of a prime number, and of more than there are.
@pytest.mark.parametrize("buffer_bytes", [1, 17 * 4 * (3 * 6 * 5 + DIM), 2**24])
@pytest.mark.parametrize(
    "encoder",
    [StubEncoder(), StubEncoder(5), StubEncoder(5, has_mask=True), StubEncoder(5, scale=300.0)],
    ids=["bi", "poly", "poly with a mask", "poly whose exponentials overflow"],
)
def test_search_equals_brute_force(cache, encoder, buffer_bytes, set_buffer):
    set_buffer(buffer_bytes)
    ids, scores = brute_force(encoder, cache.vectors_at(np.arange(150)), CONTEXTS, 10)
    found = search(cache, encoder)
    np.testing.assert_array_equal(found.ids, ids)
    np.testing.assert_allclose(found.scores, scores, rtol=1e-6)


def test_chunks_and_other_contexts_change_nothing(cache, set_buffer):
    encoder = StubEncoder(7, has_mask=True)
    expected = search(cache, encoder)
    for number, context in enumerate(CONTEXTS):
        for buffer_bytes in (1, 5000):
            set_buffer(buffer_bytes)
            found = search(cache, encoder, [context])
            np.testing.assert_array_equal(found.ids[0], expected.ids[number])
            np.testing.assert_array_equal(found.scores[0], expected.scores[number])


@pytest.mark.parametrize("num_vectors", [1, 4])
def test_equal_candidates_come_by_id(tmp_path, num_vectors, set_buffer):
    """Ties are ordered by id, even across chunks and at the end of a chunk."""
    cache = make_cache(tmp_path / "cache", [*TEXTS[:50], *TEXTS[:50], *TEXTS[:50]])
    encoder = StubEncoder(num_vectors)
    for buffer_bytes in (1, 3000, 2**24):
        set_buffer(buffer_bytes)
        ids, scores = search(cache, encoder)
        assert (np.diff(scores, axis=1) <= 0).all()
        firsts = ids[:, ::3]
        np.testing.assert_array_equal(ids[:, 1::3], firsts[:, :3] + 50)
        np.testing.assert_array_equal(ids[:, 2::3], firsts[:, :3] + 100)


def test_many_equal_candidates(tmp_path, monkeypatch, set_buffer):
    """Ties are resolved even if more candidates are equal than are held at a time."""
    monkeypatch.setattr(index_module, "_MAX_KEPT", 20)
    held = []

    def counted(cache, ids, vectors):
        held.append(len(ids))
        return exact_scores(cache, ids, vectors)

    monkeypatch.setattr(index_module, "exact_scores", counted)
    cache = make_cache(tmp_path / "cache", ["same"] * 100 + TEXTS[:10] + ["same"] * 100)
    set_buffer(10 * 4 * (DIM + 3 * 2))
    ids, _ = search(cache, StubEncoder(2), [("same",)], top_k=90)
    assert max(held) <= 90 + 20 + 10
    own = search(cache, StubEncoder(2), [("same",)], top_k=210).ids
    np.testing.assert_array_equal(ids, own[:, :90])
    same = ids[0][(ids[0] < 100) | (ids[0] >= 110)]
    np.testing.assert_array_equal(same, np.arange(len(same)))


def test_a_context_without_vectors_scores_zero(cache):
    found = search(cache, StubEncoder(5, has_mask=True), [("",)], top_k=4)
    np.testing.assert_array_equal(found.ids, [[0, 1, 2, 3]])
    np.testing.assert_array_equal(found.scores, np.zeros((1, 4)))


def test_more_than_there_are_and_no_context(cache):
    found = search(cache, StubEncoder(), top_k=1000)
    assert found.ids.shape == found.scores.shape == (6, 150)
    assert all(sorted(row) == list(range(150)) for row in found.ids)
    none = search(cache, StubEncoder(), [], top_k=3)
    assert none.ids.shape == none.scores.shape == (0, 3)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0])
def test_quantization_errors_and_sizes(scale):
    vectors = scale * np.random.default_rng(0).standard_normal((40, 300)).astype(np.float32)
    vectors[7] = 0
    sizes = {}
    for dtype in DTYPES:
        stored, scales = stored_vectors(vectors, dtype)
        sizes[dtype] = stored.nbytes
        if scales is None:
            limit = np.abs(vectors) * (2.0**-11 if dtype == "float16" else 0) + 2.0**-25
            restored = stored.astype(np.float64)
        else:
            limit = scales[:, None] / 2 * (1 + 1e-5)
            assert (np.abs(stored).max(axis=1) == np.where(np.arange(40) == 7, 0, 127)).all()
            restored = stored * scales[:, None].astype(np.float64)
        assert (np.abs(restored - vectors) <= limit).all()
    assert sizes == {"float32": 48_000, "float16": 24_000, "int8": 12_000}


def test_every_float16_is_widened_exactly():
    values = np.arange(2**16, dtype=np.uint16).view(np.float16)
    values = values[np.isfinite(values)]
    out = widened_float16(values)
    np.testing.assert_array_equal(out.view(np.int32), values.astype(np.float32).view(np.int32))


@pytest.mark.parametrize("dtype", DTYPES)
def test_memory_does_not_grow_with_the_candidates(tmp_path, dtype, set_buffer):
    """tracemalloc counts memory that NumPy allocates, but not memory-mapped files."""
    set_buffer(400_000)
    dim, peaks = 256, []
    rng = np.random.default_rng(0)

    def encode(texts):
        return rng.standard_normal((len(texts), dim), dtype=np.float32)

    for count in (1_000, 10_000):
        folder = tmp_path / str(count)
        tracemalloc.start()
        texts = (f"text {i}" for i in range(count))
        cache = write_cache(folder, texts, encode, fingerprint="x", dtype=dtype, batch_size=100)
        built = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        contexts = [np.ones((64, dim), np.float32)]
        best_candidates(cache, contexts, k=10)
        searched = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        peaks.append((built, searched))
    assert peaks[1][0] < 1.2 * peaks[0][0] < 2e6
    assert peaks[1][1] < 1.2 * peaks[0][1] < 2e6


def texts_of(cache):
    return [cache.text(number) for number in range(cache.count)]


def test_batches_texts_and_facts(tmp_path):
    encoder = StubEncoder()
    texts = ["a", "", "line\nbreak", "ünï"]
    cache = make_cache(tmp_path / "cache", iter(texts), encoder, batch_size=3)
    assert encoder.calls == [3, 1]
    assert texts_of(cache) == texts
    assert (cache.count, cache.dim, cache.dtype) == (4, DIM, "float32")
    assert cache.max_norm == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_array_equal(cache.vectors_at([2]), encoder.encode_candidates(texts[2:3]))
    again = make_cache(tmp_path / "again", ["a", "", "line\nbreak", "ünï"], batch_size=1)
    assert again.texts_hash == cache.texts_hash
    with pytest.raises(ValueError, match="no candidate 4: the cache has candidates 0 to 3"):
        cache.text(4)


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ([], {}, r"There are no candidates: all texts are empty\. Pass other texts\."),
        ({"text": ["a"]}, {}, r"texts must be a list.* Received: dict"),
        ({"a", "b"}, {}, r"texts must be a list.* Received: set"),
        (np.array([["a"], ["b"]]), {}, r"texts must be one column\. .* shape \(2, 1\)"),
        (["a", None], {}, r"texts must be strings\. Received: None at position 1"),
        (["a", b"b"], {}, r"texts must be strings\. Received: b'b' at position 1"),
        (["nan"], {}, r"too large for float32\. Use another checkpoint\.$"),
        (["nan"], {"dtype": "int8"}, "too large for int8.* or --dtype=float32"),
        (["large"], {"dtype": "float16"}, "too large for float16"),
        (["a", "flat"], {"batch_size": 1}, r"for each of 1 texts, .*\. Received: shape \(24,\)"),
    ],
)
def test_errors_leave_nothing(tmp_path, texts, options, message):
    encoder = StubEncoder()

    def encode(batch):
        vectors = StubEncoder.encode_candidates(encoder, batch)
        if "flat" in batch:
            return vectors[0]
        return vectors * {"nan": np.nan, "large": 1e6}.get(batch[0], 1)

    encoder.encode_candidates = encode
    with pytest.raises(ValueError, match=message):
        make_cache(tmp_path / "cache", texts, encoder, **options)
    assert os.listdir(tmp_path) == []


def test_errors_of_a_search(cache):
    for top_k in (0, 1.5, None):
        with pytest.raises(ValueError, match=f"Received: top_k={top_k}"):
            search(cache, StubEncoder(), top_k=top_k)
    with pytest.raises(ValueError, match="NaN or infinite context vectors"):
        search(cache, StubEncoder(scale=np.inf))
    for number in (-1, cache.count):
        with pytest.raises(ValueError, match=f"no candidate {number}: the cache has candidates 0"):
            CandidateIndex(cache, StubEncoder()).score(CONTEXTS[:1], np.array([[0, number]]))
    for contexts in ({"a", "b"}, {"context": ["a"]}):
        with pytest.raises(ValueError, match=r"Contexts must be a list\. Received: \{"):
            search(cache, StubEncoder(), contexts)
    other = StubEncoder()
    other.fingerprint = other.name = "another"
    with pytest.raises(ValueError, match=r"encoded by stub, not by another\. "):
        CandidateIndex(cache, other)


def test_exact_scores_read_as_many_candidates_at_once_as_memory_allows(monkeypatch):
    stored = np.random.RandomState(0).standard_normal((7, 4)).astype("float32")
    pieces = []

    def vectors_at(ids):
        pieces.append(len(ids))
        return stored[ids]

    monkeypatch.setattr(index_module, "_MAX_KEPT", 2)  # in units of 8 bytes
    cache = SimpleNamespace(dim=4, vectors_at=vectors_at)
    vectors = stored[:1] + 1
    scores = exact_scores(cache, np.arange(7), vectors)
    np.testing.assert_allclose(scores, stored @ vectors[0], rtol=1e-5)
    assert pieces == [3, 3, 1]  # 16 // (4 + 1)


def test_large_dot_products_do_not_overflow(cache):
    vectors = 1e5 * np.random.default_rng(0).standard_normal((2, DIM)).astype(np.float32)
    products = cache.vectors_at(np.arange(5)).astype(np.float64) @ vectors.T
    scores = exact_scores(cache, np.arange(5), vectors)
    np.testing.assert_allclose(scores, products.max(axis=1), rtol=1e-5)  # the softmax picks it


def test_vectors_of_other_kinds_are_of_another_encoder(tiny_onnx):
    weights = identity_of(tiny_onnx).fingerprint
    assert load_encoder(str(tiny_onnx)).fingerprint == weights
    assert load_encoder(str(tiny_onnx), kind="similarity").fingerprint == f"{weights}-similarity"


def test_a_cache_is_replaced_only_when_told(tmp_path):
    folder = tmp_path / "cache"
    make_cache(folder, dtype="int8")
    with pytest.raises(ValueError, match="Pass --overwrite"):
        make_cache(folder, ["other"])
    assert CandidateCache(folder).count == 150
    for name in ("faiss-flat.index", "faiss-groups.npy"):
        (folder / name).write_bytes(b"of the old vectors")
    assert texts_of(make_cache(folder, ["other"], overwrite=True)) == ["other"]
    expected = ["candidates.json", "offsets.npy", "sha256.json", "texts.npy", "vectors.npy"]
    assert sorted(os.listdir(folder)) == expected
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(ValueError, match="did not write"):
        make_cache(tmp_path / "mine", overwrite=True)


def edit(folder, **changes):
    path = folder / "candidates.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


DAMAGES = {
    "no facts": lambda folder: (folder / "candidates.json").unlink(),
    "missing fact": lambda folder: edit(folder, max_norm=None),
    "dtype": lambda folder: edit(folder, dtype="bfloat16"),
    "no JSON": lambda folder: (folder / "candidates.json").write_text("{"),
    "version": lambda folder: edit(folder, version=2),
    "another count": lambda folder: edit(folder, count=151),
    "cut vectors": lambda folder: os.truncate(folder / "vectors.npy", 1000),
    "no texts": lambda folder: (folder / "texts.npy").unlink(),
    "no checksums": lambda folder: (folder / "sha256.json").unlink(),  # as in earlier versions
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_caches(tmp_path, damage):
    make_cache(tmp_path / "cache", dtype="int8")
    DAMAGES[damage](tmp_path / "cache")
    with pytest.raises(ValueError, match=r"convert-tf index build|create it again"):
        CandidateCache(tmp_path / "cache")


@pytest.mark.parametrize("missing", ["candidates.json", "sha256.json"])
def test_files_that_a_killed_run_put_aside_are_not_built_again(tmp_path, missing):
    make_cache(tmp_path / "cache")
    (tmp_path / "cache" / missing).unlink()
    (tmp_path / ".cache.new").mkdir()
    (tmp_path / ".cache.new" / "moves.json").write_text("[]")
    with pytest.raises(ValueError, match="it first restores them") as caught:
        CandidateCache(tmp_path / "cache")
    assert "index build" not in str(caught.value)


@pytest.mark.parametrize("name", ["vectors", "scales", "texts", "offsets"])
def test_a_flipped_bit_is_found(tmp_path, name):
    make_cache(tmp_path / "cache", dtype="int8")
    flip_a_bit(tmp_path / "cache" / f"{name}.npy")
    with pytest.raises(ValueError, match=rf"{name}\.npy' was damaged or changed"):
        CandidateCache(tmp_path / "cache")


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path):
    """The full disk is simulated by a real limit on file sizes."""
    with room_for(1500), pytest.raises(FileWriteError, match=r"Cannot write .*too large"):
        make_cache(tmp_path / "cache")
    assert os.listdir(tmp_path) == []


def test_round_trip_in_a_fresh_process_without_keras(cache):
    encoder = StubEncoder(5, has_mask=True)
    expected = search(cache, encoder)
    code = (
        "import sys\n"
        "from support.index_stubs import StubEncoder\n"
        "from convert_tf.search.cache import CandidateCache\n"
        "from convert_tf.search.index import CandidateIndex\n"
        "index = CandidateIndex(CandidateCache(sys.argv[1]), StubEncoder(5, has_mask=True))\n"
        "found = index.search([(text,) for text in sys.argv[2:]])\n"
        "print(found.ids.tolist(), found.scores.tolist())\n"
        "assert not {'tensorflow', 'keras', 'faiss'} & set(sys.modules)\n"
    )
    printed = printed_by(code, cache.folder, *(turns[0] for turns in CONTEXTS))
    assert printed.strip() == f"{expected.ids.tolist()} {expected.scores.tolist()}"


@pytest.mark.parametrize("is_there_before", [False, True])
def test_a_killed_build_leaves_nothing_that_loads(tmp_path, is_there_before):
    folder = tmp_path / "cache"
    if is_there_before:
        make_cache(folder, ["before"])
    code = (
        "import os, signal, sys\n"
        "import numpy as np\n"
        "from convert_tf.search.cache import write_cache\n"
        "def texts():\n"
        "    yield from map(str, range(1000))\n"
        f"    os.kill(os.getpid(), {int(signal.SIGKILL)})\n"
        "write_cache(sys.argv[1], texts(), lambda x: np.ones((len(x), 8)), fingerprint='x',\n"
        "            batch_size=100, overwrite=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, folder], env=own_environment())
    assert done.returncode == -signal.SIGKILL
    if is_there_before:
        assert texts_of(CandidateCache(folder)) == ["before"]
    else:
        with pytest.raises(ValueError, match=r"Cannot read .*candidates"):
            CandidateCache(folder)
    make_cache(folder, ["after"], overwrite=True)
    assert texts_of(CandidateCache(folder)) == ["after"]
    left = {name for name in os.listdir(tmp_path) if name != "cache"}
    left |= {name for name in os.listdir(folder) if name.startswith(".")}
    assert not left


def test_ranking_anew(tmp_path):
    cache = make_cache(tmp_path / "cache")
    first = CandidateIndex(cache, StubEncoder())
    poly = StubEncoder(5)
    second = CandidateIndex(cache, poly)
    # If a cache re-ranks all candidates, the result is the second model's own search.
    second_alone = functools.partial(RerankedIndex, first, adds_first=False)
    found = second_alone(second, top_n=150).search(CONTEXTS, top_k=7)
    expected = second.search(CONTEXTS, top_k=7)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.scores, expected.scores)
    # A ranker re-ranks some of them by their texts.
    found = second_alone(StubRanker(), top_n=20).search(CONTEXTS, top_k=7)
    for own, ids, scores in zip(first.search(CONTEXTS, top_k=20).ids, *found, strict=True):
        longest = sorted(own, key=lambda i: (-len(TEXTS[i]), i))[:7]
        assert ids.tolist() == longest
        assert scores.tolist() == [len(TEXTS[i]) for i in longest]
    assert RerankedIndex(first, StubRanker()).search([], top_k=7).ids.shape == (0, 7)


def test_flat_faiss_finds_the_same_among_nearly_equal_candidates(tmp_path):
    pytest.importorskip("faiss")
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(600, 64)).astype(np.float32)
    vectors[1::2] = np.nextafter(vectors[::2], np.float32(2))
    vector_of = {f"t{number}": vector for number, vector in enumerate(vectors)}

    def encode(texts):
        return np.stack([vector_of[text] for text in texts])

    queries = rng.normal(size=(100, 64)).astype(np.float32)
    contexts = [str(number) for number in range(100)]
    encoder = CandidateEncoder(
        "near", encode, lambda turns: (queries[[int(turn[0]) for turn in turns]][:, None], None)
    )
    cache = write_cache(tmp_path / "cache", [*vector_of], encode, fingerprint="near")
    exact, flat = (
        index.search(contexts, top_k=3).ids
        for index in (CandidateIndex(cache, encoder), FaissIndex(cache, encoder, kind="flat"))
    )
    np.testing.assert_array_equal(exact, flat)


def test_scores_of_texts_are_those_of_a_search(tmp_path):
    index = CandidateIndex(make_cache(tmp_path / "cache"), StubEncoder())
    texts = [context[-1] for context in CONTEXTS]
    best = index.search(texts, top_k=7)
    np.testing.assert_allclose(index.score(texts, best.ids), best.scores, rtol=1e-6)


def test_logits_of_both_models_are_added(tmp_path):
    """The softmax of the sums is proportional to the product of both models' probabilities."""
    cache = make_cache(tmp_path / "cache")
    first, poly = CandidateIndex(cache, StubEncoder()), CandidateIndex(cache, StubEncoder(5))
    for second in (poly, StubRanker()):
        found = RerankedIndex(first, second, top_n=20).search(CONTEXTS, top_k=20)
        for context, ids, scores in zip(CONTEXTS, *found, strict=True):
            assert sorted(ids) == sorted(first.search([context], top_k=20).ids[0])
            logits = 0.25 * first.score([context], ids[None])[0]
            if second is poly:
                logits += 0.25 * poly.score([context], ids[None])[0]
            else:
                logits += [len(TEXTS[i]) for i in ids]
            np.testing.assert_allclose(scores, logits, rtol=1e-5)
            assert (np.diff(scores) <= 0).all()


def test_errors_of_ranking_anew(tmp_path):
    first = CandidateIndex(make_cache(tmp_path / "cache"), StubEncoder())
    second = CandidateIndex(make_cache(tmp_path / "other", TEXTS[:-1]), StubEncoder())
    with pytest.raises(ValueError, match="have different texts"):
        RerankedIndex(first, second)
    with pytest.raises(ValueError, match="Received: top_n=0"):
        RerankedIndex(first, StubRanker(), top_n=0)
    broken = StubRanker()
    broken.candidate_scores = lambda contexts, lists: [np.full(len(lists[0]), np.nan)] * len(lists)
    for adds_first in (True, False):
        with pytest.raises(ValueError, match="second model returned NaN scores"):
            RerankedIndex(first, broken, adds_first=adds_first).search(CONTEXTS)


def test_without_faiss(cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r"needs the extra \[faiss\].*pip install"):
        FaissIndex(cache, StubEncoder())


@pytest.mark.parametrize("kind", FAISS_KINDS)
def test_what_faiss_finds_in_all_lists_equals_exact_search(cache, kind, monkeypatch, capfd):
    pytest.importorskip("faiss")
    monkeypatch.setattr(index_module, "_PROBES", 48)
    monkeypatch.setattr(index_module, "_SEARCH_WIDTH", 150)
    exact = search(cache, StubEncoder(), top_k=12)
    for _ in range(2):  # built, then read from its file
        found = FaissIndex(cache, StubEncoder(), kind=kind).search(CONTEXTS, top_k=12)
        np.testing.assert_array_equal(found.ids, exact.ids)
        np.testing.assert_array_equal(found.scores, exact.scores)
    names = {path.name for path in cache.folder.glob("faiss-*")}
    suffix = {"ivf": "-48", "hnsw": "-32"}.get(kind, "")  # 4 √150 lists
    assert f"faiss-{faiss_key(cache)}-{kind}{suffix}.index" in names
    assert "WARNING" not in "".join(capfd.readouterr())  # FAISS warns of few candidates


@pytest.mark.parametrize("kind", FAISS_KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_faiss_and_equal_candidates(tmp_path, kind, dtype):
    """Most candidates are copies of three texts, like canned answers in a log."""
    pytest.importorskip("faiss")
    canned = [text for text in TEXTS[:3] for _ in range(400)]
    order = np.random.default_rng(0).permutation(len(canned) + 100)
    texts = [[*canned, *TEXTS[3:103]][i] for i in order]
    cache = make_cache(tmp_path / "cache", texts, dtype=dtype)
    contexts = [*CONTEXTS, *[(text,) for text in TEXTS[:50]]]
    index = FaissIndex(cache, StubEncoder(), kind=kind)
    assert index._state.groups.ntotal == len({*texts})
    for top_k in (1, 3, 500):
        exact = search(cache, StubEncoder(), contexts, top_k=top_k)
        found = index.search(contexts, top_k=top_k)
        assert np.isfinite(found.scores).all()
        recall = np.mean([len({*a} & {*b}) for a, b in zip(found.ids, exact.ids, strict=True)])
        assert recall >= (1.0 if kind == "flat" else 0.9) * top_k


def test_texts_that_differ_in_case_are_one_vector(tmp_path):
    """Encoders that lower-case texts give them equal vectors."""
    pytest.importorskip("faiss")
    lower = StubEncoder()
    encode = lower.encode_candidates
    lower.encode_candidates = lambda texts: encode([text.lower() for text in texts])
    texts = ["Thanks", "thanks", "THANKS"] * 200 + TEXTS[:20]
    cache = make_cache(tmp_path / "cache", texts, lower)
    found = FaissIndex(cache, lower, kind="hnsw").search([("thanks",)], top_k=700)
    exact = search(cache, lower, [("thanks",)], top_k=700)
    np.testing.assert_array_equal(found.ids, exact.ids)


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
def test_an_approximate_search_always_finds_as_many_as_requested(cache, kind, monkeypatch):
    pytest.importorskip("faiss")
    monkeypatch.setattr(index_module, "_PROBES", 1)
    monkeypatch.setattr(index_module, "_SEARCH_WIDTH", 1)
    few = FaissIndex(cache, StubEncoder(), kind=kind)
    found, exact = few.search(CONTEXTS, top_k=150), search(cache, StubEncoder(), top_k=150)
    np.testing.assert_array_equal(found.ids, exact.ids)
    np.testing.assert_array_equal(found.scores, exact.scores)
    ids, _ = RerankedIndex(few, StubRanker(), top_n=150).search(CONTEXTS, top_k=150)
    assert (np.sort(ids) == np.arange(150)).all()


def test_an_index_of_earlier_versions_is_built_again(tmp_path):
    """Earlier indexes contained duplicates, so their row numbers were candidate ids."""
    faiss = pytest.importorskip("faiss")
    cache = make_cache(tmp_path / "cache", [*TEXTS[:10]] * 3)
    old = faiss.index_factory(DIM, "Flat", faiss.METRIC_INNER_PRODUCT)
    old.add(cache.vectors_at(range(30)))
    name = f"faiss-{faiss_key(cache)}-flat.index"
    faiss.write_index(old, str(cache.folder / name))
    record_checksums(cache.folder, [name])
    found, exact = FaissIndex(cache, StubEncoder()).search(CONTEXTS), search(cache, StubEncoder())
    np.testing.assert_array_equal(found.ids, exact.ids)


def test_equal_candidates_are_looked_for_once(tmp_path, monkeypatch):
    pytest.importorskip("faiss")
    cache = make_cache(tmp_path / "cache", [*TEXTS[:10]] * 3)
    first = FaissIndex(cache, StubEncoder()).search(CONTEXTS, top_k=9)
    monkeypatch.setattr(index_module, "_equal_candidates", None)
    again = FaissIndex(CandidateCache(cache.folder), StubEncoder(), kind="hnsw")
    np.testing.assert_array_equal(again.search(CONTEXTS, top_k=9).ids, first.ids)


def test_a_faiss_search_need_not_write(tmp_path, capsys):
    """Searching works even if the index cannot be saved, for example on a read-only disk."""
    pytest.importorskip("faiss")
    cache = make_cache(tmp_path / "cache")
    with room_for(100):
        found = FaissIndex(cache, StubEncoder()).search(CONTEXTS)
    np.testing.assert_array_equal(found.ids, search(cache, StubEncoder()).ids)
    assert "stays in memory" in capsys.readouterr().err
    assert not [name for name in os.listdir(cache.folder) if "faiss" in name]


def test_a_faiss_index_without_a_checksum_is_not_kept(tmp_path, capsys):
    """The index is not saved, because later damage could not be detected."""
    pytest.importorskip("faiss")
    cache = make_cache(tmp_path / "cache")
    blocked = cache.folder / f"faiss-{faiss_key(cache)}-flat.index.sha256"
    blocked.mkdir()
    found = FaissIndex(cache, StubEncoder()).search(CONTEXTS)
    np.testing.assert_array_equal(found.ids, search(cache, StubEncoder()).ids)
    assert f"stays in memory: cannot write {str(blocked)!r}: " in capsys.readouterr().err
    assert not [*cache.folder.glob("faiss-*.index")]


def test_concurrent_searches_leave_an_index_with_its_checksum(tmp_path, monkeypatch, capsys):
    """The second search runs while the first writes its index, or after the first has built it."""
    faiss = pytest.importorskip("faiss")
    cache = make_cache(tmp_path / "cache")
    path = cache.folder / f"faiss-{faiss_key(cache)}-flat.index"
    real = faiss.write_index

    def written(index, temporary):
        real(index, temporary)
        monkeypatch.setattr(faiss, "write_index", real)
        FaissIndex(cache, StubEncoder())
        assert not path.exists() and not os.path.exists(f"{path}.sha256")

    monkeypatch.setattr(faiss, "write_index", written)
    FaissIndex(cache, StubEncoder())
    check_file(path)
    path.unlink()
    build, states = FaissIndex._make, []

    def built(index, lists):
        value = build(index, lists)
        monkeypatch.setattr(FaissIndex, "_make", build)
        FaissIndex(cache, StubEncoder())
        states.append(os.stat(path))
        return value

    monkeypatch.setattr(FaissIndex, "_make", built)
    FaissIndex(cache, StubEncoder())
    check_file(path)
    assert os.path.samestat(os.stat(path), *states)  # it was not written again
    assert capsys.readouterr().err == ""


def test_a_faiss_search_does_not_write_the_shared_checksums(tmp_path):
    """An edit may replace the checksums while a search builds its index.

    With wrong checksums, the folder would be lost.
    """
    pytest.importorskip("faiss")
    cache = make_cache(tmp_path / "cache")
    shared = (cache.folder / "sha256.json").read_bytes()
    for kind in FAISS_KINDS:
        FaissIndex(cache, StubEncoder(), kind=kind)
    assert (cache.folder / "sha256.json").read_bytes() == shared
    CandidateIndex(cache, StubEncoder()).edit(add=["new"])
    assert not [name for name in os.listdir(cache.folder) if "faiss" in name]


@pytest.mark.parametrize("moment", ["check_file", "read"])
def test_a_faiss_search_may_meet_an_edit(tmp_path, monkeypatch, capsys, moment):
    """The FAISS files disappear after the search has seen that they exist."""
    faiss = pytest.importorskip("faiss")
    cache = make_cache(tmp_path / "cache")
    expected = FaissIndex(cache, StubEncoder()).search(CONTEXTS)
    module, name = {
        "check_file": (index_module, "check_file"), "read": (faiss, "read_index")
    }[moment]  # fmt: skip
    real = getattr(module, name)

    def removed_first(path):
        os.remove(path)
        return real(path)

    monkeypatch.setattr(module, name, removed_first)
    found = FaissIndex(cache, StubEncoder()).search(CONTEXTS)
    np.testing.assert_array_equal(found.ids, expected.ids)
    assert capsys.readouterr().err == ""


def test_faiss_files_of_earlier_versions_have_shared_checksums(tmp_path, monkeypatch, capsys):
    pytest.importorskip("faiss")
    cache = make_cache(tmp_path / "cache")
    expected = FaissIndex(cache, StubEncoder()).search(CONTEXTS)
    names = [path.name for path in cache.folder.glob("faiss-*.sha256")]
    for name in names:
        (cache.folder / name).unlink()
    record_checksums(cache.folder, [name.removesuffix(".sha256") for name in names])
    with monkeypatch.context() as patch:
        patch.setattr(index_module, "_equal_candidates", None)  # only called to build the index
        patch.setattr(FaissIndex, "_make", None)
        found = FaissIndex(cache, StubEncoder()).search(CONTEXTS)
    np.testing.assert_array_equal(found.ids, expected.ids)
    flip_a_bit(cache.folder / f"faiss-{faiss_key(cache)}-flat.index")
    for built_again in (True, False):
        FaissIndex(cache, StubEncoder())
        assert ("is built again" in capsys.readouterr().err) == built_again


def test_errors_of_faiss(cache):
    pytest.importorskip("faiss")
    with pytest.raises(ValueError, match="Received: 'pq'"):
        FaissIndex(cache, StubEncoder(), kind="pq")
    with pytest.raises(ValueError, match="an encoder with 3"):
        FaissIndex(cache, StubEncoder(3)).search(CONTEXTS)
    path = cache.folder / f"faiss-{faiss_key(cache)}-flat.index"
    whole = path.read_bytes()
    for damage in (flip_a_bit, lambda path: os.truncate(path, 100), os.remove):
        damage(path)
        CandidateCache(cache.folder)  # although it has the checksum of the index
        FaissIndex(cache, StubEncoder())
        assert path.read_bytes() == whole
