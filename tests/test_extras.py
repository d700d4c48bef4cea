"""If libraries of an extra are missing, one line says what to install."""

import importlib.metadata
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import tomllib
from support.commands import call_command
from support.tiny_checkpoint import write_checkpoint

from convert_tf import extras
from convert_tf.export.onnx.writing import export_onnx
from convert_tf.extras import MissingLibraryError, needs

ROOT = Path(__file__).resolve().parents[1]
TEXTS = ["where is my card?", "", "i want my money back!"]


def packages_of(extra, project):
    """Yield the packages of an extra, including those of extras that it refers to."""
    for package in project["optional-dependencies"][extra]:
        if named := re.fullmatch(r"convert_tf\[([\w,]+)\]", package):
            for name in named[1].split(","):
                yield from packages_of(name, project)
        else:
            yield package


def setup_extras():
    """Return `{extra: packages}` from pyproject.toml, with the base installation under ""."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name: [*packages_of(name, project)] for name in project["optional-dependencies"]}
    return {**extras, "": project["dependencies"]}


def test_a_missing_library_is_named_with_what_installs_it():
    with (
        pytest.raises(MissingLibraryError, match=r"\AX needs the extra \[faiss\] \(.*no_"),
        needs("faiss", "X"),
    ):
        import no_such_library
    with (
        pytest.raises(MissingLibraryError, match=rf"Run pip install '{re.escape(str(ROOT))}'\.\Z"),
        needs("", "X"),
    ):
        import no_such_library  # noqa: F401


@pytest.mark.parametrize(
    ("note", "folder"),
    [
        (None, None),
        ('{"url": "https://example.org/convert_tf-1.whl"}', None),
        ('{"url": "file://FOLDER/a%20clone/gone", "dir_info": {}}', None),
        ('{"url": "file://FOLDER/a%20clone", "dir_info": {}}', "a clone"),
    ],
)
def test_where_an_installed_package_comes_from(note, folder, tmp_path, monkeypatch):
    class Distribution:
        def read_text(self, name):
            return note and note.replace("FOLDER", str(tmp_path))

    (tmp_path / "a clone").mkdir()
    assert extras.source_folder() == ROOT
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "packages" / "convert_tf" / "extras.py"))
    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: Distribution())
    assert extras.source_folder() == (folder and tmp_path / folder)
    with pytest.raises(MissingLibraryError) as raised, needs("faiss", "X"):
        raise ImportError
    source = str(tmp_path / folder) if folder else "convert_tf"
    assert str(raised.value).endswith(f"Run pip install '{source}[faiss]'.")

    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    assert extras.source_folder() is None


@pytest.mark.parametrize(
    ("library", "statement", "remedy"),
    [
        ("tensorboard", "from convert_tf.training.summaries import EventFile; EventFile('x')",
         f"'{ROOT}[plots]'"),
        ("onnx", "from convert_tf import export_model\n"
         "export_model('x', 'y', format='huggingface')", f"'{ROOT}[huggingface]'"),
        ("onnxruntime", "from convert_tf.encoding.backends import onnx\n"
         "onnx.is_exported = bool\nonnx.OnnxBackend('setup.py')", "onnxruntime"),
    ],
)  # fmt: skip
def test_what_a_library_is_missing_for_says_what_to_install(library, statement, remedy):
    program = (
        f"import sys; sys.modules[{library!r}] = None\n"
        f"try:\n    {statement.replace(chr(10), chr(10) + '    ')}\n"
        "except (ImportError, ValueError) as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT
    )  # fmt: skip
    (line,) = done.stdout.splitlines() or [done.stderr]
    assert line.endswith(f"Run pip install {remedy}."), line


def test_errors_of_another_kind_are_not_changed():
    with pytest.raises(ZeroDivisionError), needs("faiss", "X"):
        _ = 1 / 0


def test_extras_that_errors_name_exist():
    extras = setup_extras()
    named = set()
    for path in (ROOT / "convert_tf").rglob("*.py"):
        named |= set(re.findall(r"needs\(\s*\"([\w-]*)\"", path.read_text(encoding="utf-8")))
    assert {"", "train", "data", "plots", "faiss", "spark"} <= named <= {*extras}


def test_the_base_installation_has_no_library_of_an_extra():
    extras = setup_extras()
    base = {re.split(r"[<>=]", each)[0] for each in extras[""]}
    optional = {"duckdb", "matplotlib", "sentencepiece", "zstandard", "faiss-cpu", "keras",
                "tensorflow", "tensorflow-hub", "tensorflow-text", "setuptools"}  # fmt: skip
    assert not base & optional
    assert {"numpy", "onnx", "onnxruntime", "scikit-learn", "absl-py"} <= base


def test_training_and_the_tests_have_tensorflow():
    extras = setup_extras()
    assert {*extras["tensorflow"]} < {*extras["train"]} < {*extras["dev"]}
    (text,) = (each for each in extras["train"] if each.startswith("tensorflow-text"))
    assert "platform_system != 'Windows'" in text  # there is no wheel for Windows


@pytest.mark.parametrize(
    ("missing", "extra", "command"),
    [
        ("zstandard", "data", "sample --output {}/dumps"),
        ("zstandard", "data", "vocabulary --input {}/texts.zst --output {}/v"),
        ("duckdb", "data", "prepare --pairs {}/faq.csv --output {}/data"),
        ("sentencepiece", "data", "vocabulary --input {}/texts.txt --output {}/v --tokenizer "
         "sentencepiece --vocab_size 20"),
    ],
)  # fmt: skip
def test_a_command_without_its_extra(missing, extra, command, tmp_path, monkeypatch):
    (tmp_path / "faq.csv").write_text("question,answer\nhow are you?,fine and you?\n")
    (tmp_path / "texts.txt").write_text("how are you?\nfine, and you?\n")
    (tmp_path / "texts.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "convert_tf.corpora.local", raising=False)
    with pytest.raises(SystemExit) as stopped:
        call_command(*(word.replace("{}", str(tmp_path)) for word in command.split()))
    (line,) = str(stopped.value.code).splitlines()
    assert f"needs the extra [{extra}]" in line
    assert f"pip install '{ROOT}[{extra}]'" in line


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory):
    pytest.importorskip("onnx")
    folder = tmp_path_factory.mktemp("light")
    return export_onnx(write_checkpoint(folder / "run"), folder / "tiny.onnx")


@pytest.fixture(scope="module")
def light_python(tmp_path_factory):
    """Function that runs statements with imports limited to numpy, onnxruntime and convert_tf."""
    folder = tmp_path_factory.mktemp("packages")
    for name in ("numpy", "onnxruntime"):
        place = Path(find_spec(name).origin).parent
        for path in (place, place.parent / f"{name}.libs"):
            if path.exists():
                (folder / path.name).symlink_to(path)
    (folder / "convert_tf").symlink_to(ROOT / "convert_tf")

    def run(statements):
        start = f"import sys; sys.path.insert(0, {str(folder)!r})\n"
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(
            [sys.executable, "-S", "-c", start + statements],
            capture_output=True, text=True, env=kept,
        )  # fmt: skip

    return run


def test_an_onnx_file_needs_numpy_and_onnxruntime_alone(onnx_file, light_python):
    from convert_tf import SentenceEncoder

    done = light_python(
        "from convert_tf import SentenceEncoder\n"
        f"encoder = SentenceEncoder({str(onnx_file)!r})\n"
        f"print(encoder.encode({TEXTS!r}).ravel()[:200].tolist())\n"
        "print(encoder.rank('where?', ['here', 'there'], top_k=1)[0][0] in ('here', 'there'))\n"
        "try:\n    import tensorflow\nexcept ImportError: print('alone')\n"
    )
    assert done.returncode == 0, done.stderr
    vectors, ranked, alone = done.stdout.splitlines()
    expected = SentenceEncoder(onnx_file).encode(TEXTS).ravel()[:200]
    np.testing.assert_allclose(eval(vectors), expected, atol=1e-5)
    assert (ranked, alone) == ("True", "alone")


@pytest.mark.parametrize("mark", ["saved_model.pb", "config.json"])
def test_what_needs_tensorflow_says_so_without_it(mark, tmp_path, light_python):
    (tmp_path / mark).write_text("{}")
    done = light_python(f"import convert_tf; convert_tf.SentenceEncoder({str(tmp_path)!r})")
    assert "needs the extra [train] (No module" in done.stderr
    assert f"Run pip install '{ROOT}[train]'." in done.stderr
