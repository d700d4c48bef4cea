"""Search with FAISS, where it is installed."""

import os
import sys

import numpy as np
import pytest
from support.index_stubs import CONTEXTS, TEXTS, StubEncoder, StubRanker, make_cache

from convert_tf.search.cache import DTYPES, CandidateCache
from convert_tf.search.faiss import KINDS, FaissIndex
from convert_tf.search.index import CandidateIndex
from convert_tf.search.reranked import RerankedIndex


def test_without_faiss(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r"needs the extra \[faiss\].*pip install"):
        FaissIndex(make_cache(tmp_path / "cache"), StubEncoder())


@pytest.fixture(scope="module", params=DTYPES)
def cache(request, tmp_path_factory):
    pytest.importorskip("faiss")
    return make_cache(tmp_path_factory.mktemp("faiss") / "cache", dtype=request.param)


@pytest.fixture
def search_all(monkeypatch):
    """Lets `ivf` and `hnsw` look at all candidates."""
    monkeypatch.setattr("convert_tf.search.faiss._PROBES", 48)
    monkeypatch.setattr("convert_tf.search.faiss._SEARCH_WIDTH", 150)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("search_all")
def test_what_looks_at_all_equals_exact_search(cache, kind):
    encoder = StubEncoder()
    exact = CandidateIndex(cache, encoder).search(CONTEXTS, top_k=12)
    for _ in range(2):  # made, then read from the file
        found = FaissIndex(cache, encoder, kind=kind).search(CONTEXTS, top_k=12)
        np.testing.assert_array_equal(found.ids, exact.ids)
        np.testing.assert_array_equal(found.scores, exact.scores)
    names = {path.name for path in cache.folder.glob("faiss-*")}
    suffix = {"ivf": "-48", "hnsw": "-32"}.get(kind, "")  # 4 √150 lists
    assert f"faiss-{kind}{suffix}.index" in names


def test_few_lists_find_few_candidates(cache, monkeypatch):
    monkeypatch.setattr("convert_tf.search.faiss._PROBES", 1)
    found = FaissIndex(cache, StubEncoder(), kind="ivf").search(CONTEXTS, top_k=150)
    assert found.ids.shape == (6, 150)
    assert (found.ids[:, -1] == -1).all()
    assert (found.scores[found.ids == -1] == -np.inf).all()


def test_ranking_anew_what_was_found(cache, monkeypatch):
    poly = CandidateIndex(cache, StubEncoder(5, has_mask=True))
    first = FaissIndex(cache, StubEncoder())
    found = RerankedIndex(first, poly, top_n=150).search(CONTEXTS, top_k=9)
    np.testing.assert_array_equal(found.ids, poly.search(CONTEXTS, top_k=9).ids)
    monkeypatch.setattr("convert_tf.search.faiss._PROBES", 1)
    few = FaissIndex(cache, StubEncoder(), kind="ivf")
    ids, scores = RerankedIndex(few, StubRanker(), top_n=150).search(CONTEXTS, top_k=150)
    assert ((ids == -1) == (scores == -np.inf)).all()
    for row in ids:
        lengths = [len(TEXTS[i]) for i in row[row >= 0]]
        assert lengths == sorted(lengths, reverse=True)
        assert (row[len(lengths) :] == -1).all()


def test_errors(cache):
    with pytest.raises(ValueError, match="Received: 'pq'"):
        FaissIndex(cache, StubEncoder(), kind="pq")
    with pytest.raises(ValueError, match="an encoder with 3"):
        FaissIndex(cache, StubEncoder(3)).search(CONTEXTS)
    with pytest.raises(ValueError, match="Received: top_k=0"):
        FaissIndex(cache, StubEncoder()).search(CONTEXTS, top_k=0)
    other = StubEncoder()
    other.fingerprint = "another"
    with pytest.raises(ValueError, match=r"this encoder \(another"):
        FaissIndex(cache, other)
    path = cache.folder / "faiss-flat.index"
    os.truncate(path, 100)
    with pytest.raises(ValueError, match="is damaged"):
        FaissIndex(cache, StubEncoder())
    path.unlink()
    CandidateCache(cache.folder)  # though the checksum of the index is there
    FaissIndex(cache, StubEncoder())
    content = bytearray(path.read_bytes())
    content[-40] ^= 1  # of a vector
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"damaged or changed"):
        FaissIndex(cache, StubEncoder())
    path.unlink()
