"""`embed --engine=spark` writes the same vectors as one machine, and resumes after a stop.

An in-memory cluster replaces Spark here; tests/corpora/test_spark_cluster.py runs real ones.
"""

import contextlib
import json
from pathlib import Path

import numpy as np
import pytest
from support.commands import call_command
from support.spark_in_memory import SparkInMemory
from support.texts import random_texts

pytest.importorskip("onnxruntime")

from convert_tf.encoding import spark, text_batches
from convert_tf.encoding.backends.onnx import OnnxBackend
from convert_tf.encoding.sentence_encoder import SentenceEncoder

TEXTS = [*random_texts(40, seed=0), "", "Größe", *random_texts(10, seed=0), "a\rb"]


@pytest.fixture(autouse=True)
def context(monkeypatch):
    """The in-memory cluster, with parts of eight texts."""
    in_memory = SparkInMemory()
    monkeypatch.setattr(spark, "cluster", lambda _: contextlib.nullcontext(in_memory))
    monkeypatch.setattr(text_batches, "WINDOW_TEXTS", 4)
    monkeypatch.setattr(spark, "_WINDOWS_IN_PART", 2)
    return in_memory


@pytest.fixture
def embed(tiny_onnx, tmp_path):
    def call(*arguments, texts=TEXTS, encoder=tiny_onnx, name="texts.txt"):
        (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts), newline="")
        call_command(
            *("embed", "--engine=spark", f"--encoder={encoder}", "--batch_size=4"),
            *(f"--input={tmp_path / name}", f"--output={tmp_path / 'v.npy'}", *arguments),
        )
        return np.load(tmp_path / "v.npy")

    return call


@pytest.fixture
def encoded_texts(monkeypatch):
    """List of all texts that tasks encode."""
    encoded = []
    run = OnnxBackend.run

    def watched(self, output, columns):
        encoded.extend(columns[0])
        return run(self, output, columns)

    monkeypatch.setattr(OnnxBackend, "run", watched)
    return encoded


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("kind", ["sentence", "response"])
def test_vectors_of_one_machine(embed, tiny_onnx, tmp_path, kind, dtype, context):
    vectors = embed(f"--kind={kind}", f"--dtype={dtype}")
    encoder = SentenceEncoder(OnnxBackend(tiny_onnx, num_threads=1), batch_size=4)
    expected = np.concatenate([*encoder.iter_encode(iter(TEXTS), kind=kind)]).astype(dtype)
    np.testing.assert_array_equal(vectors, expected, strict=True)
    names = ["texts.txt", "v.npy", "v.npy.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert context.num_tasks == context.defaultParallelism + 7  # worker checks and 7 parts


def test_a_text_may_have_several_lines(embed, tiny_onnx, tmp_path):
    texts = ["first line\nsecond line", "hello", "a\r\nb\n\n", "\u2028", "bye"]
    (tmp_path / "t.jsonl").write_text("".join(f"{json.dumps({'text': one})}\n" for one in texts))
    vectors = embed(name="t.jsonl")
    encoder = SentenceEncoder(OnnxBackend(tiny_onnx, num_threads=1), batch_size=4)
    expected = np.concatenate([*encoder.iter_encode(iter(texts))])
    np.testing.assert_array_equal(vectors, expected, strict=True)


def test_a_stopped_run_goes_on(embed, tmp_path, monkeypatch, encoded_texts, capsys):
    save = np.save

    def fail_late(file, array):
        if len(list(tmp_path.glob(".v.npy.parts/[!.]*.npy"))) == 3:
            raise OSError(28, "No space left on device")
        save(file, array)

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", fail_late)
        with pytest.raises(SystemExit, match="No space left"):
            embed()
    assert not (tmp_path / "v.npy").exists()
    encoded_texts.clear()
    vectors = embed()
    assert "3 of 7 parts are encoded" in capsys.readouterr().err
    assert set(encoded_texts) == {text.encode() for text in TEXTS[24:]}
    np.testing.assert_array_equal(vectors, embed("--overwrite"))
    assert not list(tmp_path.glob(".v.npy.parts"))


@pytest.fixture
def stopped(embed, tmp_path, monkeypatch):
    """Stop a run after all parts were encoded, and return their files, the largest first."""
    with monkeypatch.context() as patch:
        patch.setattr(
            "convert_tf.cli.embed.write_vectors", lambda _, pieces, **__: [*pieces] and 1 / 0
        )
        with pytest.raises(ZeroDivisionError):
            embed()
    return sorted(tmp_path.glob(".v.npy.parts/*.npy"), key=lambda path: -path.stat().st_size)


def _cut(content):
    return content[:-100]


def _flip(content):
    return content[:300] + bytes([content[300] ^ 1]) + content[301:]


@pytest.mark.parametrize("damage", [_cut, _flip, lambda _: b""])
def test_a_damaged_part_is_encoded_again(embed, stopped, encoded_texts, capsys, damage):
    stopped[0].write_bytes(damage(stopped[0].read_bytes()))
    encoded_texts.clear()
    vectors = embed()
    assert "6 of 7 parts are encoded" in capsys.readouterr().err
    assert len(encoded_texts) == 8
    np.testing.assert_array_equal(vectors, embed("--overwrite"))


def test_a_part_that_is_damaged_before_it_is_joined_is_named(embed, tmp_path, monkeypatch):
    write = spark._write_part

    def write_and_cut(part, vectors):
        write(part, vectors)
        path = part.with_suffix(".npy")
        path.write_bytes(_cut(path.read_bytes()))

    with monkeypatch.context() as patch:
        patch.setattr(spark, "_write_part", write_and_cut)
        with pytest.raises(SystemExit, match=r"\.v\.npy\.parts/\w+\.npy was damaged or removed"):
            embed()
    assert not (tmp_path / "v.npy").exists()
    assert embed().shape == (len(TEXTS), 128)


def test_damaged_texts_of_a_part_are_named(embed, tmp_path, monkeypatch):
    def write_half(path, content):
        Path(path).write_bytes(content[: len(content) // 2])

    monkeypatch.setattr(spark, "write_file", write_half)
    with pytest.raises(SystemExit, match=r"\.v\.npy\.parts/\w+\.jsonl is damaged"):
        embed()


def test_parts_of_another_command_are_not_taken(embed, stopped, encoded_texts):
    encoded_texts.clear()
    vectors = embed("--kind=context")
    assert {text.encode() for text in TEXTS} == set(encoded_texts)
    np.testing.assert_array_equal(vectors, embed("--kind=context", "--overwrite"))


def test_bad_input(embed, tiny_modules, tmp_path):
    with pytest.raises(SystemExit, match=r"needs an encoder in an \.onnx file"):
        embed(encoder=tiny_modules["single"][1])
    with pytest.raises(SystemExit, match="--compute_dtype has no effect with --engine=spark"):
        embed("--compute_dtype=float32")
    with pytest.raises(SystemExit, match="--master has no effect with --engine=local"):
        embed("--engine=local", "--master=local[1]")
    assert embed(texts=[]).shape == (0, 128)
