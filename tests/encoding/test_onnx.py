"""`.onnx` files: compared with the checkpoint, in a process of their own, and damaged."""

import concurrent.futures
import json
import re
import subprocess
import sys
import threading

import numpy as np
import pytest
from support.commands import call_command, own_environment
from support.tiny_checkpoint import random_texts, write_checkpoint
from support.token_ids import encoder_and_ids

from convert_tf import SentenceEncoder
from convert_tf.checkpoints.facts import training_facts
from convert_tf.checkpoints.folder import CheckpointError
from convert_tf.encoding.backends.onnx import OnnxBackend, graph_inputs, with_checksum
from convert_tf.encoding.text_batches import encode_columns
from convert_tf.export.hub.writing import export_module
from convert_tf.storage.files import only_writer

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from convert_tf.export.onnx.writing import export_onnx  # noqa: E402 (needs onnx)

MAX_TOKENS = 20
TEXTS = [
    "how do i reset my password?",
    "",
    "the cat sat on the mat, today.",
    "Zebra \u4f60 42!",
    "a",
    *random_texts(40),
]


def exported(folder, *, bits=32, max_tokens=MAX_TOKENS, **config):
    checkpoint = write_checkpoint(folder / f"checkpoint{len(list(folder.iterdir()))}", **config)
    return checkpoint, export_onnx(
        checkpoint, checkpoint.with_suffix(".onnx"), network_bits=bits, max_tokens=max_tokens
    )


@pytest.fixture(scope="module")
def checkpoint_and_file(tmp_path_factory):
    return exported(tmp_path_factory.mktemp("light"))


@pytest.fixture(scope="module")
def light(checkpoint_and_file):
    return SentenceEncoder(checkpoint_and_file[1])


@pytest.fixture(scope="module")
def int8_file(checkpoint_and_file):
    checkpoint, file = checkpoint_and_file
    return export_onnx(checkpoint, file.with_name("8.onnx"), network_bits=8, max_tokens=MAX_TOKENS)


@pytest.fixture(scope="module")
def int8(int8_file):
    return SentenceEncoder(int8_file)


def assert_equals_checkpoint(checkpoint, light, texts=TEXTS):
    encoder, token_ids = encoder_and_ids(checkpoint, max_tokens=MAX_TOKENS)
    ids = token_ids(texts)
    reduced = encoder.reduce(ids).numpy()
    np.testing.assert_allclose(light.encode(texts), reduced, atol=1e-4 * np.abs(reduced).max())
    np.testing.assert_allclose(
        light.encode_responses(texts), encoder.encode_response(ids), atol=1e-4
    )
    if not encoder.config.multi_context:
        contexts = light.encode_contexts(texts)
        np.testing.assert_allclose(contexts, encoder.encode_context(ids), atol=1e-4)


def test_float32_equals_the_checkpoint(checkpoint_and_file, light):
    assert_equals_checkpoint(checkpoint_and_file[0], light)
    contexts, responses = light.encode_contexts(TEXTS), light.encode_responses(TEXTS)
    assert np.abs(contexts - responses).max() > 0.01


@pytest.mark.parametrize(
    "config",
    [{"num_heads": 2}, {"use_relative_bias": False, "use_side_skip": False, "embedding_bits": 32}],
)
def test_options_of_the_model(tmp_path, config):
    checkpoint, file = exported(tmp_path, **config)
    assert_equals_checkpoint(checkpoint, SentenceEncoder(file), TEXTS[:12])


def cosines(a, b):
    return (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)


def test_int8_is_close_and_small(light, int8, checkpoint_and_file, int8_file):
    texts = [text for text in TEXTS if text]
    for name in ("encode", "encode_contexts", "encode_responses"):
        exact, got = getattr(light, name)(texts), getattr(int8, name)(texts)
        assert cosines(exact, got).min() > 0.995
        assert np.abs(exact - got).max() > 1e-5  # the form does differ
    kernels = 64 * 2 * 16 + 2 * 64 * 128  # in one block
    saved = checkpoint_and_file[1].stat().st_size - int8_file.stat().st_size
    assert saved > 2 * kernels * 2.5


@pytest.mark.parametrize("form", ["light", "int8"])
def test_batch_mates_change_nothing(form, request):
    encoder = request.getfixturevalue(form)
    texts = [*TEXTS, " ".join(["late train"] * 30)]
    # Values are rounded to bytes, so differences in a float's last digit may change the rounding.
    tolerance = 1e-5 if form == "light" else 0.02
    for name in ("encode", "encode_contexts", "encode_responses"):
        together = getattr(encoder, name)(texts)
        assert np.isfinite(together).all()
        scale = np.abs(together).max()
        alone = np.stack([getattr(encoder, name)(text) for text in texts])
        np.testing.assert_allclose(alone / scale, together / scale, atol=tolerance)


def test_empty_batches_and_empty_texts(light):
    assert light.encode([]).shape == (0, 128)
    assert light.encode_contexts([]).shape == (0, 64)
    encodings = light.encode(["", ""])
    assert encodings.shape == (2, 128)
    assert not encodings.any()
    assert np.isfinite(light.encode_responses(["", "", ""])).all()


def test_long_texts_are_cut(light):
    long, cut = " ".join(["late train"] * 30), " ".join(["late train"] * 10)  # 60 and 20 tokens
    encodings = light.encode([long, cut, " ".join(["late train"] * 9)])
    np.testing.assert_allclose(encodings[0], encodings[1], atol=1e-5)
    assert np.abs(encodings[1] - encodings[2]).max() > 1e-4


def test_many_texts_at_once(light):
    """The batch is split into several pieces, and some texts are empty."""
    texts = [text.encode() for text in [*random_texts(700, seed=3), *[""] * 20]]
    backend = light._model
    together = backend.run("default", [texts])
    parts = [backend.run("default", [texts[i : i + 90]]) for i in range(0, len(texts), 90)]
    np.testing.assert_allclose(together, np.concatenate(parts), atol=1e-4)


def test_eight_threads_at_once(int8):
    expected = int8.encode(TEXTS)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda _: int8.encode(TEXTS), range(16)):
            np.testing.assert_array_equal(found, expected)


def test_threads_change_nothing(int8_file):
    backends = [OnnxBackend(int8_file, num_threads=number) for number in (1, 3)]
    assert [backend.concurrent_batches for backend in backends] == [1, 3]
    one, three = (SentenceEncoder(backend, batch_size=16) for backend in backends)
    for texts in ([*TEXTS, *random_texts(300, seed=5)], "a"):
        expected = one.encode(texts)
        # Batches differ, and a difference in the last digit may change how a byte is rounded.
        tolerance = 0.02 * np.abs(expected).max()
        np.testing.assert_allclose(three.encode(texts), expected, atol=tolerance)


def test_batches_at_once():
    """Batches keep order, merge equal texts, report progress, use all threads and raise errors."""
    texts = [text.encode() for text in [*random_texts(100, seed=7), *random_texts(20, seed=7)]]
    meeting = threading.Barrier(3, timeout=10)
    sizes, done = [], []

    def run(columns):
        if len(sizes) < 3:
            sizes.append(len(columns[0]))
            meeting.wait()  # fails unless three calls run at once
        return np.array([[len(text), text[0]] for text in columns[0]], np.float32)

    def encoded(function):
        return encode_columns(
            [texts], function, batch_size=64, on_batch=done.append, concurrent_batches=3
        )

    np.testing.assert_array_equal(encoded(run), [[len(text), text[0]] for text in texts])
    assert sum(done) == len(texts)
    assert max(sizes) <= 9  # a twelfth of 100 texts

    def failing(columns):
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        encoded(failing)


@pytest.mark.parametrize(
    ("batch_size", "number", "largest"),
    [(1, 100, 1), (10, 1000, 10), (255, 9000, 255), (256, 9000, 512), (600, 9000, 600)],
)
def test_a_small_batch_size_is_a_limit_with_several_threads(batch_size, number, largest):
    texts, sizes = [b"%d" % i for i in range(number)], []

    def run(columns):
        sizes.append(len(columns[0]))
        return np.array([[float(text)] for text in columns[0]], np.float32)

    vectors = encode_columns([texts], run, batch_size=batch_size, concurrent_batches=2)
    np.testing.assert_array_equal(vectors[:, 0], range(number))
    assert max(sizes) == largest


@pytest.mark.parametrize("bits", [32, 8])
def test_multi_context(tmp_path, bits):
    checkpoint, file = exported(tmp_path, bits=bits, multi_context=True)
    light = SentenceEncoder(file)
    assert light.reads_history
    encoder, token_ids = encoder_and_ids(checkpoint, max_tokens=MAX_TOKENS)
    history = [*TEXTS[20:], *[""] * 20][: len(TEXTS)]
    ids, history_ids = token_ids(TEXTS), token_ids(history)
    expected = encoder.encode_both(ids, history_ids).numpy()
    got = light.encode_contexts(TEXTS, history)
    without = light.encode_contexts(TEXTS)
    expected_without = encoder.encode_both(ids, token_ids([""] * len(TEXTS))).numpy()
    if bits == 32:
        np.testing.assert_allclose(got, expected, atol=1e-4)
        np.testing.assert_allclose(without, expected_without, atol=1e-4)
        assert_equals_checkpoint(checkpoint, light)
    else:
        assert cosines(got, expected).min() > 0.99
    assert np.abs(got - without).max() > 0.01


def test_what_the_file_says(int8_file, checkpoint_and_file):
    model = onnx.load(int8_file)
    metadata = {each.key: each.value for each in model.metadata_props}
    facts = json.loads(metadata["convert_tf"])
    assert facts["format_version"] == 1
    assert facts["max_tokens"] == MAX_TOKENS
    assert facts["network_bits"] == 8
    vocabulary = (checkpoint_and_file[0] / "vocab.txt").read_text(encoding="utf-8")
    assert metadata["vocab.txt"] == vocabulary
    assert json.loads(metadata["config.json"])["embedding_dim"] == 64
    assert "dev R100@1" in metadata["MODEL_CARD.md"]
    assert "SentenceEncoder" in metadata["MODEL_CARD.md"]


FACTS = {
    "format_version": 1, "max_tokens": 9, "num_oov_buckets": 1, "reduced_dim": 4,
    "encoding_dim": 4, "similarity_dim": 0, "multi_context": False,
}  # fmt: skip


def test_files_that_cannot_be_read(int8_file, tmp_path):
    damaged = tmp_path / "damaged.onnx"
    damaged.write_bytes(int8_file.read_bytes()[:5000])
    model = onnx.load(int8_file)
    del model.metadata_props[-1]  # the checksum
    for content, reason in (
        ("[1]", "metadata cannot be read"),
        ("[" * 100_000, "nested too deeply"),
        ('{"format_version": 99}', "format 99, and this version reads 1"),
        (json.dumps({**FACTS, "max_tokens": "9"}), "max_tokens: '9'"),
        (json.dumps({**FACTS, "similarity_dim": []}), r"similarity_dim: \[\]"),
        (json.dumps({**FACTS, "multi_context": None}), "multi_context: None"),
    ):
        model.metadata_props[0].value = content
        (tmp_path / "other.onnx").write_bytes(with_checksum(model.SerializeToString()))
        with pytest.raises(ValueError, match=reason) as caught:
            OnnxBackend(tmp_path / "other.onnx")
        assert "\n" not in str(caught.value)
    foreign = tmp_path / "foreign.onnx"
    onnx.save(model, foreign)
    missing = tmp_path / "missing.onnx"
    said = {damaged: "was damaged", foreign: "another program wrote it", missing: "does not exist"}
    for path, reason in said.items():
        with pytest.raises(ValueError, match=reason):
            OnnxBackend(path)


def test_an_old_onnxruntime_is_named(int8_file, monkeypatch):
    monkeypatch.setattr("onnxruntime.__version__", "1.20.1")
    with pytest.raises(ImportError, match=r"onnxruntime 1\.22 or later, and 1\.20\.1 is installed"):
        SentenceEncoder(int8_file)


# A program that prints the value of the variable when onnxruntime is imported.
WATCHED = """
import os, sys
class Watch:
    def find_spec(name, path=None, target=None):
        if name == "onnxruntime":
            print("telemetry off:", os.environ.get("ORT_DISABLE_TELEMETRY"))
sys.meta_path.insert(0, Watch)
"""
OPENINGS = {
    "python": "import convert_tf; convert_tf.SentenceEncoder({file!r}).encode('hi')",
    "embed": "from convert_tf.cli.main import main\n"
    "main(['embed', '--encoder', {file!r}, '--input', {texts!r}, '--output', {texts!r} + '.npy'])",
    "export": "from convert_tf.export.onnx.writing import export_onnx\n"
    "export_onnx({run!r}, {texts!r} + '.onnx')",
}


@pytest.mark.parametrize("way", OPENINGS)
@pytest.mark.parametrize("value", [None, "0"])
def test_onnxruntime_calls_nobody_unless_the_user_wants_it(
    way, value, checkpoint_and_file, tmp_path
):
    run, file = checkpoint_and_file
    home, texts = tmp_path / "home", tmp_path / "texts.txt"
    home.mkdir()
    texts.write_text("where is my card?\n")
    program = OPENINGS[way].format(run=str(run), file=str(file), texts=str(texts))
    environment = {**own_environment(), "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    environment.pop("ORT_DISABLE_TELEMETRY", None)
    if value is not None:
        environment["ORT_DISABLE_TELEMETRY"] = value
    done = subprocess.run(
        [sys.executable, "-c", WATCHED + program],
        env=environment, capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == f"telemetry off: {value or '1'}"
    if value is None:  # telemetry would write its database and the device id there
        assert not [*home.rglob("*onnxruntime*")]


@pytest.mark.parametrize("place", [0.1, 0.5, 0.98, -150, -76, -68, -3])
def test_a_flipped_bit_is_found(int8_file, tmp_path, place):
    content = bytearray(int8_file.read_bytes())
    content[int(place * len(content)) if place > 0 else place] ^= 1
    (tmp_path / "flipped.onnx").write_bytes(content)
    with pytest.raises(ValueError, match=r"Pass an \.onnx file from convert-tf export"):
        OnnxBackend(tmp_path / "flipped.onnx")


def hostile(model, kind, secret):
    """Change a model so that its graph or facts ask for something harmful."""
    largest = max(model.graph.initializer, key=lambda each: len(each.raw_data))
    if kind == "other file":
        largest.ClearField("raw_data")
        largest.data_location = onnx.TensorProto.EXTERNAL
        largest.external_data.add(key="location", value=str(secret))
    elif kind == "memory":
        shape = onnx.numpy_helper.from_array(np.array([2**50], np.int64), "much")
        model.graph.initializer.append(shape)
        node = onnx.helper.make_node("ConstantOfShape", ["much"], ["zeros"])
        model.graph.node.insert(0, node)
        zeros = onnx.helper.make_tensor_value_info("zeros", onnx.TensorProto.FLOAT, [None])
        model.graph.output.append(zeros)
    else:
        (entry,) = (each for each in model.metadata_props if each.key == "convert_tf")
        entry.value = re.sub(r'"reduced_dim": \d+', '"reduced_dim": 77', entry.value)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("other file", "External (data|initializer)"),
        ("memory", "Failed to alloc|bad_alloc"),
        ("facts", r"not \(1, 77\)"),
    ],
)
def test_files_of_others_that_ask_for_too_much_are_refused(int8_file, tmp_path, kind, said):
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    model = onnx.load(int8_file)
    del model.metadata_props[-1]  # the checksum
    hostile(model, kind, secret)
    path = tmp_path / "hostile.onnx"
    path.write_bytes(with_checksum(model.SerializeToString()))
    with pytest.raises(ValueError, match=said) as caught:
        OnnxBackend(path).run("default", [[b"hello"]])
    assert "\n" not in str(caught.value) and "secret'" not in str(caught.value)


def test_what_cannot_be_exported(checkpoint_and_file, tmp_path):
    checkpoint, file = checkpoint_and_file
    with pytest.raises(ValueError, match="already exists"):
        export_onnx(checkpoint, file)
    with pytest.raises(ValueError, match="network_bits=16"):
        export_onnx(checkpoint, tmp_path / "x.onnx", network_bits=16)
    other = write_checkpoint(tmp_path / "other", max_tokens=12)
    (other / "sha256.json").unlink()
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "tokenizer": "sentencepiece"}))
    (other / "vocab.txt").rename(other / "vocab.model")
    with pytest.raises(CheckpointError, match=r"subword vocabularies\. .*: omit --format, and"):
        export_onnx(other, tmp_path / "x.onnx")
    assert not (tmp_path / "x.onnx").exists()


def test_a_file_made_of_a_module_reads_as_many_tokens_as_the_module(checkpoint_and_file, tmp_path):
    checkpoint, file = checkpoint_and_file
    module = export_module(checkpoint, tmp_path / "module" / "1", max_tokens=5)
    of_module = export_onnx(module, tmp_path / "of_module.onnx", network_bits=32)
    short = export_onnx(checkpoint, tmp_path / "short.onnx", network_bits=32, max_tokens=5)
    vectors = SentenceEncoder(of_module).encode(TEXTS)
    np.testing.assert_allclose(vectors, SentenceEncoder(short).encode(TEXTS), atol=0.02)
    assert np.abs(vectors - SentenceEncoder(file).encode(TEXTS)).max() > 0.1
    again = export_module(module, tmp_path / "again" / "1")
    assert training_facts(again)["read_tokens"] == 5


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_similarity_map_that_is_not_finite_is_refused(tmp_path, value):
    run = write_checkpoint(tmp_path / "run", similarity_dim=8)
    similarity_map = np.load(run / "similarity_map.npy")
    similarity_map[0, 0] = value
    np.save(run / "similarity_map.npy", similarity_map)
    (run / "sha256.json").unlink()  # as if training had written the file
    with pytest.raises(CheckpointError, match="The similarity map has NaN or infinite numbers"):
        export_onnx(run, tmp_path / "x.onnx", network_bits=32)
    assert not (tmp_path / "x.onnx").exists()


def test_overwriting_replaces_no_file_of_others(checkpoint_and_file, tmp_path):
    output = tmp_path / "x.onnx"
    output.write_text("mine")
    with pytest.raises(ValueError, match="This command did not write"):
        export_onnx(checkpoint_and_file[0], output, overwrite=True)
    assert output.read_text() == "mine"
    output.write_bytes(checkpoint_and_file[1].read_bytes())
    export_onnx(checkpoint_and_file[0], output, network_bits=32, overwrite=True)
    OnnxBackend(output)


def test_one_process_writes_a_file(checkpoint_and_file, tmp_path):
    output = tmp_path / "x.onnx"
    with only_writer(output), pytest.raises(ValueError, match="Another process is writing"):
        export_onnx(checkpoint_and_file[0], output)
    assert not output.exists()


def test_export_script(checkpoint_and_file, tmp_path):
    output, options = tmp_path / "model.onnx", ("--network_bits=32", "--max_tokens=9")
    encoder = checkpoint_and_file[0]
    call_command("export", f"--encoder={encoder}", f"--output={output}", *options)
    facts = OnnxBackend(output).facts
    assert (facts["network_bits"], facts["max_tokens"]) == (32, 9)


def test_places_of_texts_in_rows():
    """Every token occurs once, at its text's position, weighted by 1/√N."""
    rng = np.random.default_rng(0)
    for lengths in ([3], [0], [5, 5, 5], [1, 0, 40, 2, 7, 30], [0, 0], rng.integers(0, 50, 100)):
        row_splits = np.concatenate([[0], np.cumsum(lengths)])
        ids = np.arange(100, 100 + row_splits[-1], dtype=np.int32)
        inputs = graph_inputs(ids, row_splits)
        segments = inputs["pooling"].shape[1]
        assert (inputs["segment_ids"] > 0).sum() == len(ids)
        for i, length in enumerate(lengths):
            row, segment = divmod(int(inputs["slots"][i]), segments)
            is_own = inputs["segment_ids"][row] == segment + 1
            own = ids[row_splits[i] : row_splits[i + 1]]
            np.testing.assert_array_equal(inputs["token_ids"][row, is_own], own)
            np.testing.assert_array_equal(inputs["positions"][row, is_own], np.arange(length))
            weights = np.where(is_own, 1 / np.sqrt(max(length, 1)), 0.0)
            np.testing.assert_allclose(inputs["pooling"][row, segment], weights, rtol=1e-6)
