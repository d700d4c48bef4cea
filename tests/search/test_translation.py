"""A linear map between the vectors of two encoders, compared with naive ridge regression."""

import json

import numpy as np
import pytest
from support.commands import call_command
from support.texts import random_texts

from convert_tf import SentenceEncoder
from convert_tf.checkpoints.identity import EncoderIdentity, identity_from_json, identity_of
from convert_tf.checkpoints.released import RELEASES, Release
from convert_tf.cli.embed import write_array
from convert_tf.export.onnx.writing import export_onnx
from convert_tf.search.translation import _PENALTIES, SHIPPED_TEXTS, fit_translation, shipped_texts


def naive_ridge(old, new, penalty):
    """Return the kernel that minimises the squared error of centred vectors (normal equations)."""
    wide, target = old - old.mean(0), new - new.mean(0)
    return np.linalg.inv(wide.T @ wide + penalty * np.eye(wide.shape[1])) @ wide.T @ target


def test_the_penalty_has_the_lowest_error_on_texts_left_out():
    rng = np.random.default_rng(0)
    old = rng.standard_normal((40, 12))
    new = old @ rng.standard_normal((12, 5)) + 3 * rng.standard_normal((40, 5))
    fitted = fit_translation(old, new)
    penalties = np.mean(np.linalg.svd(old - old.mean(0))[1] ** 2) * np.array(_PENALTIES)
    errors, predictions = [], []
    for penalty in penalties:
        rows = []
        for i in range(40):
            # Only the kernel is fitted without a text; the penalty and the mean stay.
            rest = np.delete(np.arange(40), i)
            wide = np.hstack([old[rest] - old.mean(0), np.ones((39, 1))])
            ridge = penalty * np.diag([*np.ones(12), 0])
            weights = np.linalg.solve(wide.T @ wide + ridge, wide.T @ new[rest])
            rows.append(np.append(old[i] - old.mean(0), 1) @ weights)
        predictions.append(np.array(rows))
        errors.append(((predictions[-1] - new) ** 2).sum())
    best = int(np.argmin(errors))
    np.testing.assert_allclose(fitted.kernel, naive_ridge(old, new, penalties[best]), atol=1e-9)
    found = predictions[best]
    cosines = (found * new).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(new, axis=1)
    assert fitted.cosine == pytest.approx(cosines.mean(), abs=1e-6)
    expected = (old - old.mean(0)) @ fitted.kernel + new.mean(0)
    np.testing.assert_allclose(fitted(old), expected, atol=1e-5)


def test_unrelated_vectors_get_the_highest_penalty():
    old, new = np.random.default_rng(3).standard_normal((2, 40, 6))
    fitted = fit_translation(old, new)
    penalty = 100 * np.mean(np.linalg.svd(old - old.mean(0))[1] ** 2)
    np.testing.assert_allclose(fitted.kernel, naive_ridge(old, new, penalty), rtol=1e-6)


def test_a_linear_map_is_found_and_unit_vectors_stay_unit():
    rng = np.random.default_rng(1)
    old = rng.standard_normal((200, 16))
    rotation = np.linalg.qr(rng.standard_normal((16, 16)))[0]
    old /= np.linalg.norm(old, axis=1, keepdims=True)
    old[7] = 0  # an empty text
    translate = fit_translation(old[:150], old[:150] @ rotation)
    assert translate.has_unit_length
    assert translate.cosine > 0.999
    np.testing.assert_allclose(translate(old[150:]), old[150:] @ rotation, atol=1e-3)
    assert not fit_translation(old, 2 * old @ rotation).has_unit_length


@pytest.mark.parametrize("length", [1.0, 2.0])
def test_the_zero_vector_of_an_empty_text_stays_zero_and_changes_no_map(length):
    rng = np.random.default_rng(4)
    old, new = rng.standard_normal((2, 60, 8)) + 0.5  # so that the mean is not zero
    new *= length / np.linalg.norm(new, axis=1, keepdims=True)
    expected = fit_translation(old, new)
    empty = np.zeros((9, 8))
    translate = fit_translation(np.vstack([old, empty]), np.vstack([new, empty]))
    np.testing.assert_allclose(translate.kernel, expected.kernel, atol=1e-12)
    np.testing.assert_allclose(translate.bias, expected.bias, atol=1e-12)
    assert translate.has_unit_length == (length == 1)
    translated = translate(np.vstack([old[:3], empty[:1]]))
    np.testing.assert_array_equal(translated[3], np.zeros(8))
    np.testing.assert_allclose(translated[:3], expected(old[:3]), atol=1e-6)
    with pytest.raises(ValueError, match=r"at least 20 texts.*: 19 and 19 vectors that are not"):
        fit_translation(np.vstack([old[:19], empty]), np.vstack([new[:19], empty]))


def test_texts_are_shipped_and_too_few_are_refused():
    texts = [*shipped_texts()]
    assert len({*texts}) == len(texts) == SHIPPED_TEXTS
    with pytest.raises(ValueError, match=r"at least 20 texts.*: 19 and 19"):
        fit_translation(np.ones((19, 4)), np.ones((19, 4)))
    with pytest.raises(ValueError, match=r"same texts.*: 30 old and 29 new vectors\. Pass"):
        fit_translation(np.ones((30, 4)), np.ones((29, 4)))
    row = np.random.default_rng(2).standard_normal((2, 12))  # the mean of equal rows is rounded
    with pytest.raises(ValueError, match=r"have the same vector\. Pass other"):
        fit_translation(row[:1].repeat(23, axis=0), row[1:].repeat(23, axis=0))


def test_a_name_that_stands_for_the_onnx_file_is_answered_with_the_modules_path(
    tiny_onnx, tmp_path, monkeypatch
):
    checksum = identity_of(tiny_onnx).checksum
    monkeypatch.setitem(RELEASES["convert_small"], 9, Release(checksum, graph=""))
    write_array(
        str(tmp_path / "old.npy"),
        [np.ones((3, 128))],
        EncoderIdentity(checksum, ""),
        kind="context",
    )
    message = (
        r"was computed by convert_small/9 as a module, not by convert_small/9 as 32-bit ONNX .*"
        r"in Python, convert_tf\.module_path\('convert_small/9'\) returns it\.$"
    )
    with pytest.raises(SystemExit, match=message):
        call_command(
            "translate", f"--encoder={tiny_onnx}", f"--to={tiny_onnx}",
            f"--input={tmp_path}/old.npy", f"--output={tmp_path}/new.npy",
        )  # fmt: skip


def test_the_command(tiny_onnx, tiny_modules, tmp_path):
    other, texts = tmp_path / "other.onnx", random_texts(400, seed=3)
    export_onnx(tiny_modules["multi"][1], other)
    (tmp_path / "texts.txt").write_text("\n".join(texts[:300]))
    (tmp_path / "store.txt").write_text("\n".join(texts[300:]))
    kind = "--kind=response"
    call_command(
        "embed", f"--encoder={tiny_onnx}", f"--input={tmp_path}/store.txt", kind,
        f"--output={tmp_path}/old.npy",
    )  # fmt: skip
    arguments = [
        "translate", f"--to={other}", f"--input={tmp_path}/old.npy",
        f"--texts={tmp_path}/texts.txt", f"--output={tmp_path}/new.npy",
    ]  # fmt: skip
    call_command(*arguments, f"--encoder={tiny_onnx}")
    expected = SentenceEncoder(other).encode_responses(texts[300:])
    found = np.load(tmp_path / "new.npy")
    assert found.shape == expected.shape
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    centred = expected - expected.mean(0)
    assert (found * expected).sum(1).mean() > 1 - (centred**2).sum(1).mean() / 2
    described = json.loads((tmp_path / "new.npy.json").read_text())
    assert identity_from_json(described["encoder"]) == identity_of(other)
    assert identity_from_json(described["translated_from"]) == identity_of(tiny_onnx)
    with pytest.raises(SystemExit, match=r"old\.npy .* an unreleased model .* as --encoder"):
        call_command(*arguments, f"--encoder={other}", "--overwrite")
    with pytest.raises(SystemExit, match="'nowhere' is neither a file or folder"):
        call_command(*arguments, "--encoder=nowhere", "--overwrite")
    own = f"--encoder={tiny_onnx}"
    with pytest.raises(SystemExit, match=r"old\.npy has vectors of kind response, not context\."):
        call_command(*arguments, own, "--kind=context", "--overwrite")
    (tmp_path / "twice.txt").write_text("\n".join(2 * texts[:15]))
    with pytest.raises(SystemExit, match=r"at least 20 texts.*: 15 and 15"):
        twice = [argument.replace("texts.txt", "twice.txt") for argument in arguments]
        call_command(*twice, own, "--overwrite")
    np.save(tmp_path / "old.npy", np.ones((3, 5), np.float32))  # differs from the description
    with pytest.raises(SystemExit, match="vectors of 5 numbers, but --encoder returns 128"):
        call_command(*arguments, f"--encoder={tiny_onnx}", "--overwrite")
    vectors = np.ones((5, 128), np.float32)
    vectors[3, 7] = np.inf
    np.save(tmp_path / "old.npy", vectors)
    with pytest.raises(SystemExit, match=r"old\.npy has NaN or infinite numbers in row 3, counted"):
        call_command(*arguments, f"--encoder={tiny_onnx}", "--overwrite")
    (tmp_path / "old.npy").write_text("no array")
    with pytest.raises(SystemExit, match=r"old\.npy is not an array"):
        call_command(*arguments, f"--encoder={tiny_onnx}", "--overwrite")
    np.testing.assert_array_equal(np.load(tmp_path / "new.npy"), found)
    assert json.loads((tmp_path / "new.npy.json").read_text()) == described
