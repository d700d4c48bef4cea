"""Adding candidates to an index, and removing them."""

import copy
import json
import os
import pickle
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from support.commands import call_command, own_environment
from support.damage import flip_a_bit
from support.index_stubs import CONTEXTS, TEXTS, StubEncoder, StubRanker, make_cache

from convert_tf.readers.columns import name_of_candidate
from convert_tf.readers.texts import Texts
from convert_tf.search import cache as cache_module
from convert_tf.search.cache import DTYPES, CandidateCache, edit_cache, write_cache
from convert_tf.search.encoders import load_encoder
from convert_tf.search.index import FAISS_KINDS, CandidateIndex, FaissIndex, faiss_key
from convert_tf.search.reranked import RerankedIndex

NEW = ["where is it?", "", "ünï\nline"]


def edit(folder, encoder=None, **options):
    encoder = encoder or StubEncoder()
    options = {"name": encoder.name, **options}
    return edit_cache(folder, encoder.encode_candidates, fingerprint="stub", **options)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("changes", "expected", "encoded"),
    [
        ({"add": NEW}, [*TEXTS, *NEW], 3),
        ({"add": [*NEW, TEXTS[4], NEW[0]]}, [*TEXTS, *NEW], 3),  # one exists, one is given twice
        ({"remove": TEXTS[10:140]}, [*TEXTS[:10], *TEXTS[140:]], 0),
        ({"add": NEW[:1], "remove": TEXTS[:1]}, [*TEXTS[1:], NEW[0]], 1),
        ({"add": TEXTS[:1], "remove": TEXTS[:1]}, [*TEXTS[1:], TEXTS[0]], 0),
        ({"texts": [NEW[1], *TEXTS[70:20:-1], NEW[0], NEW[0]]},
         [NEW[1], *TEXTS[70:20:-1], NEW[0], NEW[0]], 3),
    ],
)  # fmt: skip
def test_an_edited_cache_equals_one_of_the_edited_texts(
    tmp_path, dtype, changes, expected, encoded
):
    make_cache(tmp_path / "cache", dtype=dtype)
    encoder = StubEncoder()
    cache, count = edit(tmp_path / "cache", encoder, batch_size=7, **changes)
    assert [*cache.texts()] == expected
    assert (count, sum(encoder.calls)) == (encoded, encoded)
    make_cache(tmp_path / "anew", expected, dtype=dtype, name="stub")
    assert contents(tmp_path / "cache") == contents(tmp_path / "anew")


def test_all_copies_of_a_text_are_removed_and_their_rows_kept(tmp_path):
    texts = ["no", *TEXTS[:5], "no", "yes", "yes"]
    make_cache(tmp_path / "cache", texts, batch_size=2)
    cache, count = edit(tmp_path / "cache", remove=["no"])
    assert ([*cache.texts()], count) == ([*TEXTS[:5], "yes", "yes"], 0)
    expected = StubEncoder().encode_candidates([*TEXTS[:5], "yes", "yes"])
    np.testing.assert_array_equal(cache.vectors_at(range(7)), expected)


@pytest.mark.parametrize("kind", FAISS_KINDS)
def test_an_index_finds_what_was_added_and_not_what_was_removed(tmp_path, kind):
    pytest.importorskip("faiss")
    cache = make_cache(tmp_path / "cache", TEXTS[:40])
    exact, faiss = CandidateIndex(cache, StubEncoder()), FaissIndex(cache, StubEncoder(), kind=kind)
    assert faiss.edit(add=[CONTEXTS[0][0]], remove=[TEXTS[3]]) == 1
    assert exact.search(CONTEXTS, top_k=40).ids.max() == 39  # keeps the candidates that it opened
    exact.edit()
    for index in (exact, faiss, FaissIndex(CandidateCache(cache.folder), StubEncoder(), kind=kind)):
        ids, _ = index.search(CONTEXTS, top_k=40)
        best = index.search(CONTEXTS, top_k=1).ids[0, 0]
        assert index.cache.text(best) == CONTEXTS[0][0]
        assert TEXTS[3] not in {index.cache.text(i) for i in ids.ravel()}
        assert (np.sort(ids) == np.arange(40)).all()


def test_an_index_of_the_old_candidates_and_one_of_the_new_read_different_files(tmp_path):
    """Both have equal numbers of candidates, and one was opened before the edit."""
    pytest.importorskip("faiss")
    old = make_cache(tmp_path / "cache", TEXTS[:40])
    new, _ = edit(tmp_path / "cache", add=[CONTEXTS[0][0]], remove=[TEXTS[3]])
    for cache in (old, new, old):
        exact = CandidateIndex(cache, StubEncoder()).search(CONTEXTS, top_k=5)
        faiss = FaissIndex(cache, StubEncoder()).search(CONTEXTS, top_k=5)
        np.testing.assert_array_equal(faiss.ids, exact.ids)
    # The folder contains the new candidates, so the files of the old ones would be left there.
    names = [path.name for path in new.folder.iterdir() if "faiss" in path.name]
    assert len(names) == 4 and all(faiss_key(new) in name for name in names)


def test_a_search_writes_no_file_while_an_edit_replaces_the_files(tmp_path, capsys):
    pytest.importorskip("faiss")
    cache = make_cache(tmp_path / "cache", TEXTS[:40])
    (cache.folder / "candidates.json").unlink()  # as between two moves of an edit
    exact = CandidateIndex(cache, StubEncoder()).search(CONTEXTS, top_k=5)
    found = FaissIndex(cache, StubEncoder()).search(CONTEXTS, top_k=5)
    np.testing.assert_array_equal(found.ids, exact.ids)
    assert not [name for name in os.listdir(cache.folder) if "faiss" in name]
    assert capsys.readouterr().err == ""


def test_a_failed_edit_leaves_the_index_as_it_was(tmp_path, monkeypatch):
    pytest.importorskip("faiss")
    index = FaissIndex(make_cache(tmp_path / "cache", TEXTS[:40]), StubEncoder())
    before = index.search(CONTEXTS, top_k=5)

    def fail(self, lists):
        raise MemoryError

    monkeypatch.setattr(FaissIndex, "_make", fail)
    with pytest.raises(MemoryError):
        index.edit(remove=TEXTS[:10])
    assert index.cache.count == 40
    np.testing.assert_array_equal(index.search(CONTEXTS, top_k=5).ids, before.ids)


class EditingEncoder(StubEncoder):
    """Lets another thread edit an index each time a search has encoded contexts.

    Args:
      edit: the edit, which is made in another thread; None for no edit.
    """

    edit = None

    def encode_contexts(self, contexts):
        encoded = super().encode_contexts(contexts)
        if self.edit is not None:
            edit, self.edit = self.edit, None
            with ThreadPoolExecutor(1) as pool:
                pool.submit(edit).result()
        return encoded


@pytest.mark.parametrize("kind", [None, *FAISS_KINDS])
@pytest.mark.parametrize("top_k", [5, 40])
def test_a_search_that_overlaps_an_edit_finds_the_old_candidates(tmp_path, kind, top_k):
    """The contexts are encoded in two blocks, and the edit is made after the first."""
    cache, encoder = make_cache(tmp_path / "cache", TEXTS[:40]), EditingEncoder()
    if kind:
        pytest.importorskip("faiss")
        index = FaissIndex(cache, encoder, kind=kind)
    else:
        index = CandidateIndex(cache, encoder)
    contexts = [(text,) for text in TEXTS[:40]]
    expected, ids = index.search(contexts, top_k=top_k), np.tile(np.arange(40), (40, 1))
    scores = index.score(contexts, ids)
    copied = copy.copy(index)
    encoder.edit = lambda: index.edit(TEXTS[20:40])
    for array, wanted in zip(index.search(contexts, top_k=top_k), expected, strict=True):
        np.testing.assert_array_equal(array, wanted)
    assert (index.cache.count, copied.cache.count) == (20, 40)
    assert index.search(contexts, top_k=top_k).ids.max() == 19
    np.testing.assert_array_equal(copied.search(contexts, top_k=top_k).ids, expected.ids)
    index.edit(TEXTS[:40])
    encoder.edit = lambda: index.edit(TEXTS[20:40])
    np.testing.assert_array_equal(index.score(contexts, ids), scores)


@pytest.mark.parametrize("by_texts", [True, False])
def test_reranking_that_overlaps_an_edit_scores_the_old_candidates(tmp_path, by_texts):
    encoder = EditingEncoder()
    first, second = (
        CandidateIndex(make_cache(tmp_path / name, TEXTS[:40]), encoder) for name in ("1", "2")
    )
    index = RerankedIndex(first, StubRanker() if by_texts else second, top_n=10)
    expected = index.search(CONTEXTS, top_k=10)
    encoder.edit = lambda: [edited.edit(TEXTS[20:40]) for edited in (first, second)]
    for array, wanted in zip(index.search(CONTEXTS, top_k=10), expected, strict=True):
        np.testing.assert_array_equal(array, wanted)
    assert index.cache.count == 20


def test_a_pickled_index_searches_as_before(tmp_path):
    index = CandidateIndex(make_cache(tmp_path / "cache", TEXTS[:40]), StubEncoder())
    restored = pickle.loads(pickle.dumps(index))
    index.edit(remove=TEXTS[:10])
    assert (index.cache.count, restored.cache.count) == (30, 40)
    assert restored.search(CONTEXTS, top_k=40).ids.max() == 39


def test_an_edit_replaces_a_faiss_index_in_one_step(tmp_path):
    """A thread that reads the object at any moment must see all of an edit, or nothing."""
    pytest.importorskip("faiss")
    index = FaissIndex(make_cache(tmp_path / "cache", TEXTS[:40]), StubEncoder())
    before = vars(index).copy()
    index.edit(remove=TEXTS[:10])
    assert len([name for name in before if vars(index)[name] is not before[name]]) == 1


def test_texts_may_be_an_array(tmp_path):
    make_cache(tmp_path / "cache", TEXTS[:4])
    assert [*edit(tmp_path / "cache", texts=np.array(TEXTS[:2]))[0].texts()] == TEXTS[:2]


def test_an_edit_that_changes_nothing_keeps_the_files(tmp_path):
    """The FAISS index is not rebuilt."""
    cache = make_cache(tmp_path / "cache")
    (cache.folder / "faiss-flat.index").write_bytes(b"of these vectors")
    before = contents(cache.folder)
    assert edit(cache.folder, add=TEXTS[:3])[1] == 0
    assert contents(cache.folder) == before
    edit(cache.folder, add=["another"])
    assert not (cache.folder / "faiss-flat.index").exists()


def test_caches_for_reranking_are_edited_together(tmp_path):
    first, second = (
        CandidateIndex(make_cache(tmp_path / name), StubEncoder()) for name in ("first", "second")
    )
    by_cache, by_texts = RerankedIndex(first, second), RerankedIndex(first, StubRanker())
    first.edit(add=["x" * 1000])
    best = by_texts.search(["x"], top_k=151).ids[0, 0]
    assert by_texts.cache.text(best) == "x" * 1000
    with pytest.raises(ValueError, match="have different texts"):
        by_cache.search(["x"])
    second.edit(add=["x" * 1000])
    assert by_cache.search(["x"], top_k=151).ids.max() == 150


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"remove": ["not there"]}, "has no candidate 'not there' to remove"),
        ({"remove": TEXTS}, "would be empty"),
        ({"texts": []}, "would be empty"),
        ({"texts": ["a"], "add": ["b"]}, "Pass either texts, or add and remove"),
        ({"add": "a text"}, "add must be a list of strings. Received: 'a text'"),
        ({"remove": [3]}, "remove must be a list of strings"),
        ({"add": ["nan"]}, "NaN"),
        ({"add": ["wide"]}, r"Received: shape \(1, 25\)"),
    ],
)
def test_errors_leave_the_cache_as_it_is(tmp_path, options, message):
    make_cache(tmp_path / "cache")
    before = contents(tmp_path / "cache")
    encoder = StubEncoder()

    def encode(batch):
        width = {"wide": 25}.get(batch[0], 24)
        return np.full((len(batch), width), np.nan if batch[0] == "nan" else 1.0)

    encoder.encode_candidates = encode
    with pytest.raises(ValueError, match=message):
        edit(tmp_path / "cache", encoder, **options)
    assert contents(tmp_path / "cache") == before
    assert os.listdir(tmp_path) == ["cache"]


def test_another_encoder_and_other_folders_are_refused(tmp_path):
    folder = tmp_path / "cache"
    make_cache(folder)
    with pytest.raises(ValueError, match="encoded by stub, not by another"):
        edit_cache(folder, StubEncoder().encode_candidates, fingerprint="another", add=["a"])
    flip_a_bit(folder / "vectors.npy")
    with pytest.raises(ValueError, match=r"vectors\.npy' was damaged"):
        edit(folder, add=["a"])
    for name in ("nothing", "mine"):
        with pytest.raises(ValueError, match=rf"Cannot read \S+{name}/candidates\.json"):
            edit(tmp_path / name, add=["a"])
        (tmp_path / "mine").mkdir(exist_ok=True)
    assert sorted(os.listdir(tmp_path)) == ["cache", "mine"]


def test_a_killed_edit_leaves_the_old_candidates(tmp_path):
    folder = tmp_path / "cache"
    make_cache(folder)
    code = (
        "import os, signal, sys\n"
        "from convert_tf.search.cache import edit_cache\n"
        "def kill(texts):\n"
        f"    os.kill(os.getpid(), {int(signal.SIGKILL)})\n"
        "edit_cache(sys.argv[1], kill, fingerprint='stub', add=['new'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, folder], env=own_environment())
    assert done.returncode == -signal.SIGKILL
    assert [*CandidateCache(folder).texts()] == TEXTS
    assert [*edit(folder, add=["new"])[0].texts()] == [*TEXTS, "new"]
    assert not [name for name in os.listdir(folder) if name[0] == "."]


@pytest.mark.parametrize("kill_at", [4, 7])  # while old files are moved away; after the last
def test_an_edit_finishes_where_one_was_killed_between_two_files(tmp_path, kill_at):
    """The old files get their names back before they are read."""
    folder = tmp_path / "cache"
    make_cache(folder)
    code = (
        "import os, signal, sys\n"
        "import numpy as np\n"
        "from convert_tf.search.cache import edit_cache\n"
        f"rename, names, kill_at = os.rename, [], {kill_at}\n"
        "def rename_or_die(source, target):\n"
        "    names.append(source)\n"
        f"    len(names) < kill_at or os.kill(os.getpid(), {int(signal.SIGKILL)})\n"
        "    rename(source, target)\n"
        "os.rename = rename_or_die\n"
        "edit_cache(sys.argv[1], lambda texts: np.ones((1, 24)), fingerprint='stub', add=['new'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, folder], env=own_environment())
    assert done.returncode == -signal.SIGKILL
    with pytest.raises(ValueError, match="it first restores them"):
        CandidateCache(folder)
    assert [*edit(folder, add=["new"])[0].texts()] == [*TEXTS, "new"]


def test_the_command(tmp_path, tiny_onnx, capsys):
    encoder = f"--encoder={tiny_onnx}"
    for name, lines in {"all": TEXTS[:20], "new": ["yes", "no"], "old": TEXTS[:2]}.items():
        (tmp_path / name).write_text("\n".join(["", *lines, ""]))
    (tmp_path / "edited.csv").write_text("id,candidate\n1,yes\n2,never\n3,no\n")
    cache = tmp_path / "cache"
    call_command("index", "build", encoder, f"--input={tmp_path}/all", f"--output={cache}")
    capsys.readouterr()
    command = ("index", "edit", encoder, f"--cache={cache}")
    call_command(*command, f"--add={tmp_path}/new", f"--remove={tmp_path}/old")
    assert capsys.readouterr().out == f"wrote {cache}: 20 candidates, 2 newly encoded\n"
    assert [*CandidateCache(cache).texts()] == [*TEXTS[2:20], "yes", "no"]
    call_command(*command, f"--input={tmp_path}/edited.csv")
    assert "3 candidates, 1 newly encoded" in capsys.readouterr().out
    edited = [*Texts(tmp_path / "edited.csv", find=name_of_candidate)]
    anew = load_encoder(tiny_onnx).encode_candidates(edited)
    stored = CandidateCache(cache)
    assert [*stored.texts()] == edited
    np.testing.assert_allclose(stored.vectors_at(range(3)), anew, atol=1e-6)
    for arguments in ([], [f"--add={tmp_path}/new", f"--input={tmp_path}/all"]):
        with pytest.raises(SystemExit, match=r"Pass either --input, or --add, --remove or both"):
            call_command(*command, *arguments)
    with pytest.raises(SystemExit, match=r"has no candidate .* to remove"):
        call_command(*command, f"--remove={tmp_path}/old")


def test_an_index_that_is_edited_while_it_is_opened_is_opened_again(tmp_path, monkeypatch):
    make_cache(tmp_path / "cache")
    check = cache_module.check_files
    edits = iter([{"add": NEW[:1]}, {"add": NEW[2:], "remove": NEW[:1]}])

    def edited_meanwhile(*files):
        check(*files)
        with monkeypatch.context() as patch:
            patch.setattr(cache_module, "check_files", check)
            if changes := next(edits, None):
                edit(tmp_path / "cache", **changes)

    monkeypatch.setattr(cache_module, "check_files", edited_meanwhile)
    opened = CandidateCache(tmp_path / "cache")
    assert [*opened.texts()] == [*TEXTS, NEW[2]]
    assert next(edits, None) is None
    facts = json.loads((tmp_path / "cache" / "candidates.json").read_text())
    assert opened.texts_hash == facts["texts"]


@pytest.mark.parametrize(("texts", "dtype"), [(TEXTS, "float64"), ("yes", "float32")])
def test_wrong_arguments_leave_the_index_as_it_is(tmp_path, texts, dtype):
    make_cache(tmp_path / "cache")
    before = contents(tmp_path / "cache")
    with pytest.raises(ValueError, match="must be"):
        write_cache(
            tmp_path / "cache", texts, StubEncoder().encode_candidates, fingerprint="stub",
            dtype=dtype, overwrite=True,
        )  # fmt: skip
    assert contents(tmp_path / "cache") == before


def test_halves_of_characters_are_replaced(tmp_path):
    half, whole = "broken \ud83d emoji", "broken \ufffd emoji"
    make_cache(tmp_path / "cache", ["yes", half])
    assert [*CandidateCache(tmp_path / "cache").texts()] == ["yes", whole]
    cache, encoded = edit(tmp_path / "cache", add=[f"{half}!"], remove=[half])
    assert ([*cache.texts()], encoded) == (["yes", f"{whole}!"], 1)
