"""Indexes with real models: modules, dual encoders and rankers, and the commands."""

import importlib.util
import os
import shutil

import numpy as np
import pytest
from support.commands import call_command
from support.index_stubs import make_cache
from support.tiny_checkpoint import random_texts

from convert_tf.checkpoints.folder import save_checkpoint
from convert_tf.checkpoints.loading import initial_ranker
from convert_tf.config.ranker import HeadConfig
from convert_tf.ranking.ranker import Ranker, open_ranker
from convert_tf.search.cache import CandidateCache
from convert_tf.search.encoders import load_encoder
from convert_tf.search.index import CandidateIndex
from convert_tf.search.reranked import RerankedIndex

pytestmark = pytest.mark.slow

TEXTS = random_texts(60, seed=5)
CONTEXTS = [("how are you", text) for text in random_texts(3, seed=6)]
HEADS = {
    "bi": HeadConfig(head="bi", reduction="sqrt_n", scale=3.0),
    "poly": HeadConfig(head="poly", reduction="sqrt_n", poly_codes=5, scale=7.0, learn_scale=True),
    "first": HeadConfig(head="poly", reduction="sqrt_n", poly_codes=8, poly_variant="first_m"),
    "cross": HeadConfig(head="cross", reduction="sqrt_n"),
}


@pytest.fixture(scope="module")
def folders(tiny_modules, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    checkpoint, module = tiny_modules["single"]
    folders = {"checkpoint": str(checkpoint), "module": str(module)}
    for name, head in HEADS.items():
        ranker, vocabulary = initial_ranker(checkpoint, head)
        if head.learn_scale:
            ranker.head.log_scale.assign(0.2)
        if head.head == "cross":
            ranker.head.linear.kernel.assign(
                np.random.default_rng(0).normal(size=ranker.head.linear.kernel.shape)
            )
        save_checkpoint(folder / name, ranker, vocabulary=vocabulary, training={})
        folders[name] = str(folder / name)
    return folders


def make_index(folders, name, tmp_path):
    encoder = load_encoder(folders[name])
    return CandidateIndex(make_cache(tmp_path / name, TEXTS, encoder), encoder)


@pytest.mark.parametrize("name", ["bi", "poly", "first"])
def test_scores_are_the_rankers(folders, tmp_path, name):
    expected = Ranker(folders[name]).scores(CONTEXTS, TEXTS)
    ids, scores = make_index(folders, name, tmp_path).search(CONTEXTS, top_k=60)
    np.testing.assert_allclose(scores, np.take_along_axis(expected, ids, axis=1), atol=1e-4)
    assert (np.diff(scores, axis=1) <= 0).all()


@pytest.mark.parametrize("name", ["checkpoint", "module"])
def test_scores_are_cosines(folders, tmp_path, name):
    index = make_index(folders, name, tmp_path)
    expected = open_ranker(folders["checkpoint"]).scores(CONTEXTS, TEXTS)
    ids, scores = index.search(CONTEXTS, top_k=60)
    np.testing.assert_allclose(scores, np.take_along_axis(expected, ids, axis=1), atol=0.01)


def test_scores_of_encoders_become_logits(folders, tmp_path):
    """Cosines of an encoder are multiplied by its training scale; rankers already give logits."""
    first = make_index(folders, "checkpoint", tmp_path)
    encoder, cross = (open_ranker(folders[name]) for name in ("checkpoint", "cross"))
    cosines = encoder.scores(CONTEXTS, TEXTS)
    for second, logits in ((encoder, 20 * cosines), (cross, cross.scores(CONTEXTS, TEXTS))):
        ids, scores = RerankedIndex(first, second, top_n=60).search(CONTEXTS, top_k=60)
        expected = np.take_along_axis(20 * cosines + logits, ids, axis=1)
        np.testing.assert_allclose(scores, expected, atol=0.3)  # the cache is rounded
    bi = make_index(folders, "bi", tmp_path)
    assert (bi.encoder.logit_scale, first.encoder.logit_scale) == (1, 20)


def test_cross_ranks_anew(folders, tmp_path):
    first = make_index(folders, "bi", tmp_path)
    cross = open_ranker(folders["cross"])
    index = RerankedIndex(first, cross, top_n=10, adds_first=False)
    ids, scores = index.search(CONTEXTS, top_k=4)
    for context, own, row, found in zip(
        CONTEXTS, first.search(CONTEXTS, top_k=10).ids, ids, scores, strict=True
    ):
        expected = cross.scores([context], [TEXTS[i] for i in own])[0]
        np.testing.assert_allclose(found, np.sort(expected)[::-1][:4], atol=1e-4)
        assert set(row) <= set(own)


def test_a_cross_encoder_encodes_nothing(folders):
    with pytest.raises(ValueError, match="a cross-encoder, which reads candidates with"):
        load_encoder(folders["cross"])


def test_fingerprints(folders, tmp_path):
    own = {name: load_encoder(folders[name]).fingerprint for name in ("checkpoint", "bi", "poly")}
    own["module"] = load_encoder(folders["module"]).fingerprint
    assert len(set(own.values())) == 4
    copy = shutil.copytree(folders["bi"], tmp_path / "copy")
    assert load_encoder(copy).fingerprint == own["bi"]
    again = shutil.copytree(folders["module"], tmp_path / "again")
    assert load_encoder(str(again)).fingerprint == own["module"]  # computed from all weights
    index = make_index(folders, "bi", tmp_path)
    first, second = own["bi"], rf"an unreleased model \(checksum {own['poly']}\)"
    with pytest.raises(ValueError, match=rf"encoded by {first}, not by {second}\. .* --from"):
        CandidateIndex(index.cache, load_encoder(folders["poly"]))


def test_commands(folders, tmp_path, capsys):
    candidates = tmp_path / "candidates.txt"
    candidates.write_text("\n".join(TEXTS) + "\n\n")
    checkpoint = f"--encoder={folders['poly']}"
    call_command(
        "index", "build", checkpoint, f"--input={candidates}", f"--output={tmp_path}/cache",
        "--dtype=int8", "--batch_size=7",
    )  # fmt: skip
    assert "60 candidates, 64 × int8" in capsys.readouterr().out
    call_command(
        "index", "search", checkpoint, f"--cache={tmp_path}/cache", "--queries=how are you, cat",
        "--queries=no", "--top_k=3",
    )  # fmt: skip
    index = CandidateIndex(CandidateCache(tmp_path / "cache"), load_encoder(folders["poly"]))
    ids, scores = index.search(["how are you, cat", "no"], top_k=3)
    lines = capsys.readouterr().out.splitlines()
    assert [lines[0], lines[4]] == ["how are you, cat", "no"]
    for line, i, score in zip(lines[1:4] + lines[5:], ids.ravel(), scores.ravel(), strict=True):
        shown_score, shown_id, text = line.split(maxsplit=2)
        assert (int(shown_id), text) == (i, TEXTS[i])
        assert float(shown_score) == pytest.approx(score, abs=6e-4)


def test_commands_with_faiss_and_reranking(folders, tmp_path, capsys):
    first, poly = (make_index(folders, name, tmp_path) for name in ("bi", "poly"))
    search = ["search", f"--encoder={folders['bi']}", f"--cache={tmp_path / 'bi'}",
              "--queries=the cat sat", "--top_k=4", "--top_n=20"]  # fmt: skip
    if importlib.util.find_spec("faiss"):
        search.append("--faiss=flat")
    rerank_cache = f"--rerank_cache={tmp_path / 'poly'}"
    for name, second, options in (
        ("cross", open_ranker(folders["cross"]), []),
        ("cross", open_ranker(folders["cross"]), ["--noadd_first"]),
        ("poly", poly, [rerank_cache]),
    ):
        call_command("index", *search, f"--rerank_checkpoint={folders[name]}", *options)
        shown = [int(line.split()[1]) for line in capsys.readouterr().out.splitlines()[1:]]
        adds_first = "--noadd_first" not in options
        index = RerankedIndex(first, second, top_n=20, adds_first=adds_first)
        expected = index.search(["the cat sat"], top_k=4)
        assert shown == expected.ids[0].tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["build", "--encoder={bi}", "--input={tmp}/empty", "--output={tmp}/c"], "no candidate"),
        (["search", "--encoder={bi}", "--cache={tmp}", "--queries= "], "A query is empty"),
        (["search", "--encoder={bi}", "--cache=c", "--queries=q", "--rerank_cache=c"],
         "--rerank_cache has no effect without --rerank_checkpoint"),
        (["search", "--encoder={bi}", "--candidates={tmp}/two", "--queries=q",
          "--rerank_checkpoint={cross}", "--rerank_cache={tmp}/c"],
         "pass the cross-encoder as --rerank_checkpoint, without --rerank_cache."),
        (["build", "--encoder={tmp}/n", "--input={tmp}/empty", "--output={tmp}/c"],
         "is neither a file or folder"),
    ],
)  # fmt: skip
def test_command_errors_are_one_line(folders, tmp_path, arguments, message):
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "two").write_text("a\nb\n")
    arguments = [argument.format(tmp=tmp_path, **folders) for argument in arguments]
    with pytest.raises(SystemExit) as caught:
        call_command("index", *arguments)
    assert message in caught.value.code
    assert "\n" not in caught.value.code
    assert sorted(os.listdir(tmp_path)) == ["empty", "two"]
