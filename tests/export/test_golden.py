"""Golden vectors of the released encoders (`tests/support/golden.py`)."""

import json

import numpy as np
import pytest
from support.commands import ROOT
from support.golden import (
    COUNT,
    FILE,
    FLOAT_TOLERANCE,
    TOLERANCES,
    described,
    differences,
    processor,
    token_checksums,
    vectors_of,
)

from convert_tf import SentenceEncoder
from convert_tf.checkpoints.configs import load_config
from convert_tf.checkpoints.released import EXPORTER, RELEASED, RELEASES
from convert_tf.text import plain_tokenizer

GOLDEN = json.loads(FILE.read_text("utf-8"))
MODULES = ROOT / "hub_modules"
NAMES = [
    f"{name}/{version}"
    for name, versions in RELEASES.items()
    for version, release in versions.items()
    if not release.commit
]
# Only the newest version is tested: all versions share their code, and
# tests/checkpoints/test_identity.py compares their files.
NEWEST = [f"{name}/{version}" for name, version in RELEASED.items()]


def tokens_of(name):
    buckets = load_config(MODULES / name).num_oov_buckets
    return token_checksums(MODULES / name / "assets" / "vocab.txt", buckets, GOLDEN["texts"])


@pytest.mark.parametrize("name", NAMES)
def test_tokens(name):
    assert len({*GOLDEN["texts"]}) >= 0.99 * COUNT
    assert tokens_of(name) == GOLDEN[name]["tokens"]


def test_another_tokenizer_is_seen(monkeypatch):
    fold = plain_tokenizer.fold
    monkeypatch.setattr(plain_tokenizer, "fold", lambda text: fold(text.replace("\u00ad", "-")))
    assert tokens_of(NEWEST[0]) != GOLDEN[NEWEST[0]]["tokens"]


@pytest.mark.slow
@pytest.mark.parametrize("name", NEWEST)
def test_vectors_of_modules(name):
    encoder = SentenceEncoder(MODULES / name, compute_dtype="float32")
    found = differences(GOLDEN[name]["module"], vectors_of(encoder, GOLDEN["texts"]))
    assert max(found.values(), default=0) <= FLOAT_TOLERANCE, found


def test_vectors_of_onnx_files_are_of_this_exporter():
    assert [GOLDEN[name]["onnx"]["exporter"] for name in NEWEST] == [EXPORTER] * len(NEWEST)


@pytest.mark.slow
@pytest.mark.parametrize("name", NEWEST)
def test_vectors_in_8_bits(name):
    known = GOLDEN[name]["onnx"]
    found = differences(known, vectors_of(SentenceEncoder(name), GOLDEN["texts"]))
    tolerance = TOLERANCES["same" if known["processor"] == processor() else "other"]
    assert max(found.values(), default=0) <= tolerance, found


def test_another_vector_is_seen():
    rng = np.random.default_rng(0)
    vectors = [rng.standard_normal((50, 64)).astype(np.float32) for _ in range(3)]
    known = described(vectors)
    assert differences(known, vectors) == {}
    vectors[1][7] += 0.2 * rng.standard_normal(64)
    ((block, difference),) = differences(known, vectors).items()
    assert block == 1
    assert TOLERANCES["same"] < difference < 1
