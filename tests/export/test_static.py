"""Static subword vectors fitted to an encoder."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file
from support.commands import call_command
from support.huggingface_export import exported_folder
from support.tiny_checkpoint import random_texts

from convert_tf import SentenceEncoder
from convert_tf.export.static import (
    FILES,
    export_static,
    fit_table,
    leading_directions,
    subword_bags,
)
from convert_tf.text.plain_tokenizer import PlainTokenizer
from convert_tf.text.vocabulary import read_vocabulary

TEXTS = [*dict.fromkeys(random_texts(300, seed=3))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    output = tmp_path_factory.mktemp("static") / "static"
    return export_static(exported_folder() / "hf", output, [*TEXTS, TEXTS[0]])


@pytest.fixture(scope="module")
def subwords():
    return read_vocabulary(exported_folder() / "run" / "vocab.txt")


def unit(rows):
    return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-12)


def test_bags_are_shares_of_known_subwords(subwords):
    texts = ["hello", "", "☃", "a☃b a", *TEXTS[:50]]
    bags = subword_bags(texts, subwords).toarray()
    for text, bag in zip(texts, bags, strict=True):
        ids, _ = PlainTokenizer(subwords).flat_ids([text])
        known = [i for i in ids if i < len(subwords)]
        expected = np.bincount(known, minlength=len(subwords)) / max(len(known), 1)
        np.testing.assert_allclose(bag, expected, atol=1e-7)


def test_the_table_solves_the_normal_equations():
    rng = np.random.default_rng(0)
    counts = rng.poisson(0.4, (60, 12)) * (np.arange(12) < 11)  # the last subword is in no text
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    targets, alone = unit(rng.normal(size=(60, 7))), unit(rng.normal(size=(12, 7)))
    frequency = ((shares > 0).sum(0) + 0.5) / ((shares > 0).sum(0) + 0.5).sum()
    start = alone * (1e-3 / (1e-3 + frequency))[:, None]
    means = shares @ start
    start *= (means * targets).sum() / (means * means).sum()
    left = shares.T @ shares + 0.1 * np.eye(12)
    expected = np.linalg.solve(left, shares.T @ targets + 0.1 * start)
    from scipy.sparse import csr_matrix

    found = fit_table(csr_matrix(shares, dtype=np.float32), targets, alone.astype(np.float32))
    np.testing.assert_allclose(found, expected, atol=1e-4)
    np.testing.assert_allclose(found[-1], start[-1], atol=1e-6)


def test_leading_directions_keep_the_most_of_the_rows():
    table = np.random.default_rng(1).normal(size=(40, 9)) * np.arange(9, 0, -1)
    basis = leading_directions(table.astype(np.float32), 4)
    np.testing.assert_allclose(basis.T @ basis, np.eye(4), atol=1e-6)
    left, scales, right = np.linalg.svd(table, full_matrices=False)
    expected = (left[:, :4] * scales[:4]) @ right[:4]
    np.testing.assert_allclose(table @ basis @ basis.T, expected, atol=1e-4)
    np.testing.assert_array_equal(leading_directions(table, 9), np.eye(9))


def test_vectors_are_near_those_of_the_encoder(folder, subwords):
    table = load_file(folder / "model.safetensors")["embeddings"]
    assert (table.shape, table.dtype) == ((len(subwords) + 1, 5), np.float32)
    assert not table[-1].any()  # the vector of unknown characters
    taught = unit(SentenceEncoder(exported_folder() / "hf").encode_similarity(TEXTS))
    vectors = unit(subword_bags(TEXTS, subwords) @ table[:-1])
    cosine = (vectors * taught).sum(1).mean()
    assert cosine > 0.8
    assert f"is {cosine:.3f} on these texts" in (folder / "README.md").read_text()
    assert f"on {len(TEXTS)} texts" in (folder / "README.md").read_text()


def test_files(folder, subwords):
    assert {path.name for path in folder.iterdir()} == {*FILES}
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    assert sorted(tokenizer["model"]["vocab"].values()) == [*range(len(subwords) + 1)]
    assert tokenizer["model"]["vocab"][tokenizer["model"]["unk_token"]] == len(subwords)


def test_our_encoders_say_what_the_folder_is(folder):
    with pytest.raises(ValueError, match=r"a folder of static vectors .* which model2vec can open"):
        SentenceEncoder(folder)


def test_model2vec_opens_the_folder(folder, subwords):
    model2vec = pytest.importorskip("model2vec")
    table = load_file(folder / "model.safetensors")["embeddings"]
    texts = ["hello there", "a☃b", *TEXTS[:50]]
    expected = unit(subword_bags(texts, subwords) @ table[:-1])
    found = model2vec.StaticModel.from_pretrained(folder).encode(texts)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_command_and_its_errors(tmp_path, folder, capsys):
    hf = exported_folder() / "hf"
    (tmp_path / "texts").write_text("\n".join(TEXTS))
    command = ("export", f"--encoder={hf}", f"--output={tmp_path}/out")
    static = (*command, "--format=static", f"--texts={tmp_path}/texts")
    call_command(*static)
    assert f"wrote {tmp_path}/out, 0." in capsys.readouterr().out
    tables = [load_file(path / "model.safetensors") for path in (tmp_path / "out", folder)]
    np.testing.assert_array_equal(*(table["embeddings"] for table in tables))
    with pytest.raises(SystemExit, match="already exists"):
        call_command(*static)
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "few").write_text("\n".join(TEXTS[:99]))
    (tmp_path / "snow").write_text("\n".join(chr(0x2600 + i) for i in range(120)))
    for arguments, message in [
        ((*command, "--format=static"), "needs --texts"),
        ((*static, "--max_tokens=9"), "--max_tokens has no effect with --format static"),
        ((*command, "--format=huggingface", f"--texts={tmp_path}/texts"),
         "--texts has no effect without --format static"),
        ((*static[:-1], f"--texts={tmp_path}/snow"), "No text contains a subword"),
        ((*static[:-1], f"--texts={tmp_path}/few"), "at least 100 different texts. Received: 99"),
    ]:  # fmt: skip
        with pytest.raises(SystemExit) as caught:
            call_command(*arguments)
        assert message in caught.value.code
    assert not (tmp_path / "out").exists()
