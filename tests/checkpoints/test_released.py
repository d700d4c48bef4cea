"""Released modules by name: from this machine, from a package and from a web server."""

import concurrent.futures
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from support.commands import call_command, own_environment
from support.full_disk import room_for
from support.web_server import serving

import convert_tf
from convert_tf.checkpoints import released
from convert_tf.checkpoints.released import (
    ALL_RELEASES,
    RELEASED,
    ModuleNameError,
    model_path,
    module_path,
)
from convert_tf.storage.checksums import file_checksum
from convert_tf.storage.downloads import cache_folder

TEXTS = ["where is my card?", "hello"]
NEWEST = str(RELEASED["convert"])
FILE = f"convert-{NEWEST}"


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """A machine without modules and with an empty cache; returns the module folder."""
    monkeypatch.setattr(released, "_local_folders", list)
    monkeypatch.setenv("CONVERT_TF_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CONVERT_TF_MODULES_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def release(tiny_modules, tiny_onnx, tmp_path_factory):
    """A release whose `convert` is a tiny module and a tiny `.onnx` file."""
    folder = tmp_path_factory.mktemp("release")
    module = tiny_modules["single"][1]
    shutil.make_archive(str(folder / FILE), "gztar", module)
    shutil.copy(tiny_onnx, folder / f"{FILE}.onnx")
    paths = folder / f"{FILE}.tar.gz", folder / f"{FILE}.onnx"
    (folder / "SHA256SUMS").write_text(
        "".join(f"{file_checksum(path)}  {path.name}\n" for path in paths)
    )
    return folder


def test_the_released_modules_are_those_of_the_repository():
    folder = released.Path(released.__file__).parents[2] / "hub_modules"
    there = {path.parent.parent.name for path in folder.glob("*/*/saved_model.pb")}
    assert {*ALL_RELEASES} == there
    for name, versions in ALL_RELEASES.items():
        assert module_path(name) == module_path(f"{name}/{max(versions)}")
        assert released.Path(module_path(name), "saved_model.pb").is_file()


def test_a_folder_of_the_current_one_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hub_modules" / "convert" / NEWEST).mkdir(parents=True)
    (tmp_path / "hub_modules" / f"{FILE}.onnx").touch()
    assert module_path("convert") == f"hub_modules/convert/{NEWEST}"
    assert module_path("convert.onnx") == f"hub_modules/{FILE}.onnx"
    assert module_path(f"convert/{NEWEST}") == module_path("convert")


def test_the_installed_package_is_found(tmp_path, monkeypatch):
    package = tmp_path / "convert_tf_modules"
    (package / "convert" / NEWEST).mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.setattr(released, "source_folder", lambda: None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert module_path("convert") == str(package / "convert" / NEWEST)


@pytest.mark.parametrize(
    "name", ["convertt", "convert/0", "convert/x", "hub_modules/convert/1", ""]
)
def test_what_is_no_name_is_refused(name):
    with pytest.raises(
        ModuleNameError, match=r"nor a released module.* one of convert_small, convert"
    ):
        module_path(name)


def test_paths_stay_as_they_are(tmp_path, monkeypatch):
    for path in ("runs/convert", "x.onnx", "https://example.com/convert", str(tmp_path)):
        assert model_path(path) == path
    monkeypatch.chdir(tmp_path)
    (tmp_path / "convert").mkdir()
    with pytest.raises(ModuleNameError, match="has the name of the released model 'convert'"):
        model_path("convert")
    (tmp_path / "convert" / "config.json").write_text("{}")
    assert model_path("convert") == "convert"


def test_offline_the_message_says_what_to_do(nowhere, monkeypatch):
    with pytest.raises(ModuleNameError, match=r"CONVERT_TF_MODULES_URL is not set\. Run"):
        module_path("convert")
    with serving(nowhere) as served:
        pass
    monkeypatch.setenv("CONVERT_TF_MODULES_URL", served.url)
    with pytest.raises(ModuleNameError, match=r"127\.0\.0\.1.*refused.*install the wheel convert_"):
        module_path("convert")


def test_a_name_is_the_onnx_file_except_for_training(nowhere, monkeypatch):
    (nowhere / f"{FILE}.onnx").touch()
    (nowhere / "convert" / NEWEST).mkdir(parents=True)
    monkeypatch.setattr(released, "_local_folders", lambda: [nowhere])
    monkeypatch.chdir(nowhere.parent)  # otherwise the folder `convert` would take precedence
    for name in ("convert", f"convert/{NEWEST}", "convert.onnx"):
        assert model_path(name) == str(nowhere / f"{FILE}.onnx")
    assert model_path("convert", wants_module=True) == str(nowhere / "convert" / NEWEST)


def test_a_ranker_has_a_name_too(nowhere, monkeypatch):
    (nowhere / "convert_rerank_poly" / "1").mkdir(parents=True)
    monkeypatch.setattr(released, "_local_folders", lambda: [nowhere])
    monkeypatch.chdir(nowhere.parent)
    for name in ("convert_rerank_poly", "convert_rerank_poly/1"):
        assert model_path(name) == module_path(name) == str(nowhere / "convert_rerank_poly" / "1")
    with pytest.raises(ModuleNameError, match=r"no \.onnx file\. Pass convert_rerank_poly\."):
        model_path("convert_rerank_poly.onnx")
    with pytest.raises(ModuleNameError, match=r"no version 9 .* Pass convert_rerank_poly/1"):
        model_path("convert_rerank_poly/9")


@pytest.fixture
def local_module(nowhere, tiny_modules, monkeypatch):
    """A machine whose only module is a tiny `convert`."""
    shutil.copytree(tiny_modules["single"][1], nowhere / "modules" / "convert" / NEWEST)
    monkeypatch.setattr(released, "_local_folders", lambda: [nowhere / "modules"])
    return nowhere / "modules" / "convert" / NEWEST


def test_a_misspelt_name_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for misspelt in ("convert_smal", "convertt", "convert_small.onx"):
        with pytest.raises(ModuleNameError, match=r"does not exist\. Did you mean convert"):
            model_path(misspelt)
    (tmp_path / "convertt").mkdir()
    for path in ("convertt", "runs/convert_small"):
        assert model_path(path) == path


def test_the_module_of_a_name_is_opened_on_demand(local_module, tiny_onnx, capsys):
    from convert_tf import SentenceEncoder
    from convert_tf.encoding.backends.module import ModuleBackend

    encoder = SentenceEncoder("convert", backend="tensorflow", compute_dtype="float32")
    assert encoder.path == str(local_module)
    np.testing.assert_array_equal(
        encoder.encode(TEXTS),
        SentenceEncoder(ModuleBackend(local_module, compute_dtype="float32")).encode(TEXTS),
    )
    released.Path("texts.txt").write_text("\n".join(TEXTS))
    arguments = ["embed", "--input=texts.txt", "--output=v.npy", "--backend=tensorflow"]
    call_command(*arguments, "--encoder=convert", "--compute_dtype=float32")
    np.testing.assert_allclose(np.load("v.npy"), encoder.encode(TEXTS), atol=1e-5)
    with pytest.raises(ValueError, match=r"tiny\.onnx' runs on ONNX Runtime, not on TensorFlow"):
        SentenceEncoder(tiny_onnx, backend="tensorflow")
    with pytest.raises(ValueError, match="backend must be one of auto, tensorflow"):
        SentenceEncoder(tiny_onnx, backend="torch")
    assert "as ONNX" not in capsys.readouterr().err


def test_an_onnx_file_is_written_from_the_module_once(local_module, capsys, monkeypatch):
    from convert_tf import SentenceEncoder

    with concurrent.futures.ThreadPoolExecutor(2) as threads:  # one thread waits for the other
        first, second = threads.map(module_path, ["convert.onnx"] * 2)
    assert first == second
    assert SentenceEncoder("convert.onnx").encode(TEXTS).shape == (2, 128)
    assert capsys.readouterr().err.count(f"converting {FILE} to ONNX in") == 1
    cache = released.Path(first).parents[1]
    assert not [*cache.glob("*/.new-*")]
    with monkeypatch.context() as patch:
        patch.setattr(released, "EXPORTER", 0)
        other = released.Path(module_path("convert.onnx"))
    assert other != released.Path(first)
    other.unlink()
    (local_module / "assets" / "vocab.txt").write_text("another vocabulary\n")
    with pytest.raises(ModuleNameError, match=r"could not be converted to ONNX: .*vocab"):
        module_path("convert.onnx")
    assert [*map(str, cache.glob("*/*.onnx"))] == [first]


@pytest.mark.parametrize(
    ("folder", "name"), [("/model", "model"), ("/srv/model", "srv-model"), ("/", "model")]
)
def test_a_file_is_written_to_the_cache_wherever_the_model_is(folder, name, monkeypatch, tmp_path):
    monkeypatch.setenv("CONVERT_TF_CACHE", str(tmp_path))
    monkeypatch.setattr(released, "model_checksum", lambda _: "0" * 64)
    monkeypatch.setattr(released, "made_once", lambda target, *_, **__: target)
    path = released.as_onnx(released.Path(folder))
    assert path.name == f"{name}.onnx" and path.is_relative_to(tmp_path)


@pytest.fixture
def tiny_release_command(nowhere, tiny_modules):
    """Start `embed --encoder convert` with a tiny module in a separate process."""
    shutil.copytree(tiny_modules["single"][1], nowhere / "hub_modules" / "convert" / NEWEST)
    (nowhere / "texts.txt").write_text("\n".join(TEXTS))

    def start(output):
        return subprocess.Popen(
            [sys.executable, "-m", "convert_tf", "embed", "--encoder=convert", "--input=texts.txt",
             f"--output={output}"],
            cwd=nowhere, env=own_environment(), text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            # Shells start background jobs with this signal ignored; children inherit it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip

    return start


def test_two_processes_write_one_file(tiny_release_command, nowhere):
    commands = [tiny_release_command(output) for output in ("a.npy", "b.npy")]
    errors = [command.communicate()[1] for command in commands]
    assert [command.returncode for command in commands] == [0, 0], errors
    assert "".join(errors).count("to ONNX in") == 1
    np.testing.assert_array_equal(np.load("a.npy"), np.load("b.npy"))
    (file,) = (nowhere / "cache").rglob("*.onnx")
    assert not [*file.parent.glob(".new-*")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_is_ended_writes_nothing(number, tiny_release_command, nowhere):
    command = tiny_release_command("a.npy")
    assert "to ONNX in" in command.stderr.readline()
    os.killpg(command.pid, number)  # like Ctrl-C, or like stopping a container
    _, errors = command.communicate()
    assert command.returncode
    assert len(errors.splitlines()) <= 1
    assert not [*(nowhere / "cache").rglob("*.onnx")]
    assert not (nowhere / "a.npy").exists()
    again = tiny_release_command("a.npy")
    assert again.wait() == 0, again.communicate()
    assert not [*(nowhere / "cache").rglob(".new-*")]


def test_a_cache_that_cannot_be_written_is_named(local_module, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("CONVERT_TF_CACHE", str(tmp_path / "file"))
    message = rf"\A{FILE} could not be written as ONNX to '.*file': Not a.*\. Set CONVERT_TF_CACHE"
    with pytest.raises(ModuleNameError, match=message):
        module_path("convert.onnx")


def test_a_full_disk_leaves_nothing_in_the_cache(local_module, nowhere):
    with (
        room_for(20_000),
        pytest.raises(ModuleNameError, match=r"to ONNX.*Cannot write.*too large"),
    ):
        module_path("convert.onnx")
    assert not [*(nowhere / "cache").rglob("*.onnx")]
    assert released.Path(module_path("convert.onnx")).is_file()


def test_what_an_interrupted_conversion_left_is_removed(local_module, nowhere):
    target = released.Path(module_path("convert.onnx"))
    left = target.parent / f".new-{target.name}-killed"
    target.rename(nowhere / "whole.onnx")
    left.mkdir()
    (left / target.name).write_bytes((nowhere / "whole.onnx").read_bytes()[:1000])
    assert module_path("convert.onnx") == str(target)
    assert target.read_bytes() == (nowhere / "whole.onnx").read_bytes()
    assert not left.exists()


def test_a_damaged_file_of_the_cache_says_what_to_do(local_module):
    from convert_tf import SentenceEncoder

    with open(module_path("convert.onnx"), "r+b") as file:
        file.truncate(10_000)
    with pytest.raises(ValueError, match=r"cache/onnx/.*damaged.*delete it: it will be written"):
        SentenceEncoder("convert")


def test_a_user_without_a_home_has_a_cache(monkeypatch, tmp_path):
    for name in ("CONVERT_TF_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as if there were no home folder
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert cache_folder() == tmp_path / "convert_tf"


@pytest.mark.slow
def test_names_are_downloaded(nowhere, release, tiny_onnx, monkeypatch):
    from convert_tf import IntentClassifier, SentenceEncoder

    expected = SentenceEncoder(tiny_onnx).encode(TEXTS)
    with serving(release) as served:
        monkeypatch.setenv("CONVERT_TF_MODULES_URL", served.url)
        np.testing.assert_array_equal(SentenceEncoder("convert").encode(TEXTS), expected)
        (nowhere / "texts.txt").write_text("\n".join(TEXTS))
        call_command("embed", "--encoder", "convert", "--input", "texts.txt", "--output", "v.npy")
        np.testing.assert_array_equal(np.load("v.npy"), expected)
        call_command("index", "build", "--encoder=convert", "--input=texts.txt", "--output=cache2")
        classifier = IntentClassifier("convert", head="logistic").fit([*TEXTS, "a", "b"], [*"aabb"])
        assert classifier.encoder == "convert"  # unchanged, as scikit-learn requires
        classifier.save("intents")
        assert IntentClassifier.load("intents").encoder == convert_tf.module_path("convert.onnx")
        assert served.requests == ["/SHA256SUMS", f"/{FILE}.onnx"]


def test_models_to_start_from_have_names(nowhere, release, monkeypatch, tiny_modules):
    from convert_tf.checkpoints.loading import load_model

    monkeypatch.setenv("CONVERT_TF_MODULES_URL", release.as_uri())
    encoder, _ = load_model("convert")
    assert encoder.config == load_model(tiny_modules["single"][1])[0].config
    pairs = "".join(f"where {i},here {i}\n" for i in range(100))
    (nowhere / "faq.csv").write_text(f"question,answer\n{pairs}")
    call_command(
        "train", "--data=faq.csv", "--init_from=convert", "--output=run", "--steps=1",
        "--batch_size=4", "--eval_every=1", "--checkpoint_every=1",
    )  # fmt: skip
    assert (nowhere / "run" / "config.json").is_file()


def test_an_archive_loads_through_tensorflow_hub(nowhere, release, tiny_modules, monkeypatch):
    import tensorflow as tf
    import tensorflow_hub as hub

    monkeypatch.setenv("TFHUB_CACHE_DIR", str(nowhere / "tfhub"))
    with serving(release) as served:
        module = hub.load(f"{served.url}/{FILE}.tar.gz")
    expected = tf.saved_model.load(tiny_modules["single"][1])(TEXTS)
    np.testing.assert_array_equal(module(TEXTS), expected)
