"""`convert-tf embed` writes one row of an array for each line of a file."""

import gzip
import tracemalloc

import numpy as np
import pytest
from support.commands import call_command, run_command
from support.tiny_checkpoint import random_texts

from convert_tf.cli.embed import write_vectors
from convert_tf.storage.arrays import GrowingArray
from convert_tf.storage.files import FileWriteError, only_writer


class Lengths:
    """A backend whose vectors contain a text's length in bytes and the index of the signature."""

    reads_history = False
    outputs = ("default", "encode_context", "encode_response")
    batch_sizes = ()

    def run(self, output, columns):
        number = self.outputs.index(output)
        Lengths.batch_sizes = (*self.batch_sizes, len(columns[0]))
        rows = [[len(text), number, 0.1] for text in columns[0]]
        return np.array(rows, np.float32).reshape(-1, 3)


@pytest.fixture
def embed(monkeypatch, tmp_path):
    """Return a function that runs the command on text and returns the array."""

    def open_backend(path, *, compute_dtype, backend):
        open_backend.options = path, compute_dtype
        return Lengths()

    monkeypatch.setattr("convert_tf.encoding.sentence_encoder.open_backend", open_backend)

    def call(content, *arguments, name="texts.txt"):
        (tmp_path / name).write_bytes(content)
        output = tmp_path / "vectors.npy"
        call_command(
            "embed", "--encoder=m", f"--input={tmp_path / name}",
            f"--output={output}", "--overwrite", *arguments,
        )  # fmt: skip
        return np.load(output)

    call.open_backend = open_backend
    return call


@pytest.mark.slow
def test_round_trip_in_a_fresh_process(tiny_modules, tmp_path):
    from convert_tf import SentenceEncoder

    module = str(tiny_modules["single"][1])
    texts = [*random_texts(100), "", "Größe", *random_texts(20)]
    content = "".join(f"{text}\n" for text in texts).encode()
    done = run_command(
        "embed", f"--encoder={module}", "--input=-", f"--output={tmp_path / 'h.npy'}",
        "--kind=context", "--compute_dtype=float32", input=gzip.compress(content), text=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert "h.npy: 122 × 64 float32" in done.stdout.decode()
    expected = SentenceEncoder(module, compute_dtype="float32").encode_contexts(texts)
    np.testing.assert_allclose(np.load(tmp_path / "h.npy"), expected, atol=1e-5)
    assert {path.name for path in tmp_path.glob("*.npy*")} == {"h.npy", "h.npy.json"}


def test_each_line_is_a_row(embed):
    vectors = embed("\ufeff\none\r\n\n t\x0bw\u2028o ".encode())  # lines end at \n only
    assert (vectors.shape, vectors.dtype) == ((4, 3), np.float32)
    assert vectors[:, 0].tolist() == [0, 3, 0, 9]
    assert embed(b"").shape == (0, 3)


def test_of_a_table_its_texts_are_encoded(embed, tmp_path):
    table = b'id,message,intent\n1,"hi, you",greet\n2,,none\n3,"a\nb",bye\n'
    assert embed(table)[:, 0].tolist() == [7, 0, 3]
    with pytest.raises(SystemExit, match=r"no columns for texts.*2 columns"):
        embed(b"9:00\tbye\n" * 9)


def test_options(embed):
    half = embed(b"a\nbc\n", "--dtype=float16")
    assert half.dtype == np.float16
    np.testing.assert_array_equal(half, np.array([[1, 0, 0.1], [2, 0, 0.1]], np.float16))
    for number, kind in enumerate(("sentence", "context", "response")):
        assert embed(b"a\n", f"--kind={kind}")[0, 1] == number
    for size in (1, 3):
        Lengths.batch_sizes = ()
        embed(b"a\nbc\ndef\n", f"--batch_size={size}")
        assert Lengths.batch_sizes == (size,) * (3 // size)
    assert embed.open_backend.options == ("m", "auto")
    embed(b"a\n", "--compute_dtype=bfloat16")
    assert embed.open_backend.options == ("m", "bfloat16")


def test_one_process_writes_a_file(embed, tmp_path):
    with (
        only_writer(tmp_path / "vectors.npy"),
        pytest.raises(SystemExit, match="Another process is"),
    ):
        embed(b"one\n")
    assert not (tmp_path / "vectors.npy").exists()


def test_an_output_that_is_a_link_is_followed(embed, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "vectors.npy").symlink_to(tmp_path / "disk" / "target")
    embed(b"one\n")
    assert (tmp_path / "vectors.npy").is_symlink()
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["target"]


def test_a_file_that_is_there_is_kept(embed, tmp_path):
    embed(b"a\n")
    output = tmp_path / "vectors.npy"
    before = output.read_bytes()
    arguments = ("--encoder=m", f"--input={tmp_path / 'texts.txt'}", f"--output={output}")
    with pytest.raises(SystemExit, match=r"already exists.*Pass --overwrite"):
        call_command("embed", *arguments)
    assert output.read_bytes() == before
    call_command("embed", *arguments, "--overwrite")
    output.write_text("mine")
    with pytest.raises(SystemExit, match=r"This command did not write"):
        call_command("embed", *arguments, "--overwrite")
    assert output.read_text() == "mine"


def test_lines_that_are_no_text_leave_what_was_there(embed, tmp_path):
    embed(b"before\n")
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*npy*")}
    assert before.keys() == {"vectors.npy", "vectors.npy.json"}
    with pytest.raises(SystemExit, match=r"line 2, is longer than 33,554,432 bytes"):
        embed(b"x" * 19 + b"\n" + b"y" * (2**25 + 1) + b"\nz\n", "--kind=context")
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*npy*")} == before


@pytest.mark.parametrize("content", ["my notes", '{"encoder": "mine"}', "[]"])
def test_a_description_of_somebody_else_is_kept(embed, tmp_path, content):
    (tmp_path / "texts.txt").write_text("a\n")
    (tmp_path / "vectors.npy.json").write_text(content)
    output = f"--output={tmp_path / 'vectors.npy'}"
    arguments = ("embed", "--encoder=m", f"--input={tmp_path / 'texts.txt'}", output)
    with pytest.raises(SystemExit, match=r"npy\.json' already exists.*Pass --overwrite"):
        call_command(*arguments)
    with pytest.raises(SystemExit, match=r"did not write '.*npy\.json'"):
        call_command(*arguments, "--overwrite")
    assert (tmp_path / "vectors.npy.json").read_text() == content
    assert not (tmp_path / "vectors.npy").exists()


def test_errors_in_the_middle_leave_nothing(tmp_path):
    def pieces():
        yield np.ones((2, 3))
        raise OSError(5, "Input/output error", "texts.txt")

    with pytest.raises(OSError, match=r"Input/output error: 'texts\.txt'") as caught:
        write_vectors(tmp_path / "v.npy", pieces())
    assert not isinstance(caught.value, FileWriteError)
    with pytest.raises(ValueError, match="too large for float16"):
        write_vectors(tmp_path / "v.npy", [np.full((1, 2), 1e6)], dtype="float16")
    assert not [*tmp_path.iterdir()]


def test_full_disks(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(GrowingArray, "append", full)
    with pytest.raises(FileWriteError, match=r"Cannot write .*v\.npy.*: No space left on device"):
        write_vectors(tmp_path / "v.npy", [np.ones((1, 2))])
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_memory_stays_flat(embed, tmp_path):
    """At most 4,096 of the 60,000 lines are in memory."""
    content = b"".join(b"%06d" % i + b"x" * 300 + b"\n" for i in range(60_000))
    path = tmp_path / "big.txt"
    path.write_bytes(content)
    del content
    embed(b"")
    tracemalloc.start()
    call_command("embed", "--encoder=m", f"--input={path}", f"--output={tmp_path / 'v.npy'}")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.load(tmp_path / "v.npy").shape == (60_000, 3)
    assert peak < 12e6  # the text has 18 MB; the reader holds 1 MB
