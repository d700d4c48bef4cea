"""TensorFlow's start-up messages are hidden, and all other output is shown."""

import re
import subprocess
import sys

import pytest
from support.commands import ROOT, own_environment, run_command

from convert_tf.numerics.quiet import NOISE


def run_python(code, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=ROOT, env={**own_environment(), **environment}, capture_output=True, text=True,
    )  # fmt: skip


def test_a_command_and_a_users_script(tiny_modules, tmp_path):
    (tmp_path / "texts.txt").write_text("hello\n")
    done = run_command(
        "embed",
        f"--encoder={tiny_modules['single'][1]}",
        f"--input={tmp_path / 'texts.txt'}",
        f"--output={tmp_path / 'vectors.npy'}",
    )
    assert (done.returncode, done.stderr) == (0, "")
    # Importing the library leaves the import system and the environment unchanged.
    done = run_python(
        "import os, sys; before = [*sys.meta_path], {*os.environ}\n"
        "import convert_tf; convert_tf.SentenceEncoder\n"
        "assert before == ([*sys.meta_path], {*os.environ})"
    )
    assert (done.returncode, done.stderr) == (0, "")


QUIETLY = "from convert_tf.numerics.quiet import quieten; quieten()\n"
TRAIN = """
import keras, tensorflow as tf
tf.constant(1) + 1
data = tf.data.Dataset.from_generator(lambda: iter(range(9)), output_types=tf.int64)
for _ in data: break
tf.function(lambda x: x * 2, jit_compile=True)(tf.constant(1))
"""


@pytest.mark.slow
def test_what_comes_after_the_start():
    done = run_python(QUIETLY + TRAIN)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_a_user_who_wants_all_lines_gets_them():
    done = run_python(QUIETLY + "import tensorflow", TF_CPP_MIN_LOG_LEVEL="0")
    assert done.returncode == 0
    assert re.search(NOISE, done.stderr, re.MULTILINE)


ABORT = """
import sys
sys.path.insert(0, sys.argv[1])
import tensorflow
"""


@pytest.mark.parametrize(
    "ends", ["os.abort()", "raise ImportError('no such library')", "os._exit(3)"]
)
def test_an_end_in_the_middle_is_seen(tmp_path, ends):
    """TensorFlow ends like this on processors that lack the instructions it was compiled for."""
    (tmp_path / "tensorflow.py").write_text(
        "import os\n"
        "os.write(2, b'I0000 00:00:1795345245.859534    9997 port.cc:153] oneDNN is on\\n')\n"
        "os.write(2, b'F0000 00:00:1795345245.859534    9997 x.cc:1] AVX is needed\\nlast words')\n"
        f"{ends}\n"
    )
    done = run_python(QUIETLY + ABORT, tmp_path)
    assert done.returncode != 0
    assert "F0000 00:00:1795345245.859534    9997 x.cc:1] AVX is needed\nlast words" in done.stderr
    assert "oneDNN" not in done.stderr
    assert ("no such library" in done.stderr) == ("ImportError" in ends)


@pytest.mark.parametrize(
    ("line", "is_noise"),
    [
        ("WARNING: All log messages before absl::InitializeLog() is called are written", True),
        ("I0000 00:00:1795345245.859534    9997 port.cc:153] oneDNN", True),
        ("2024-01-02 03:04:05.678: I tensorflow/core/util/port.cc:113] oneDNN", True),
        ("2024-01-02 03:04:05.678: E external/x.cc:9] Unable to register cuDNN factory: A", True),
        ("E0000 00:00:1.2   1 cuda_platform.cc:52] failed call to cuInit: INTERNAL", True),
        ("E0000 00:00:1.2   1 save.cc:52] Data loss", False),
        ("2024-01-02 03:04:05.678: E tensorflow/core/x.cc:113] Data loss", False),
        ("F0000 00:00:1.2   1 save.cc:52] Check failed", False),
        ("Traceback (most recent call last):", False),
        ("terminate called after throwing an instance of 'std::bad_alloc'", False),
    ],
)
def test_what_is_left_out(line, is_noise):
    assert bool(re.match(NOISE, line)) == is_noise


def test_what_was_written_before_is_not_filtered():
    line = "I0000 00:00:1795345245.859534    9997 port.cc:153] oneDNN"
    code = (
        "import sys\n"
        "from convert_tf.numerics.quiet import filtered_standard_error\n"
        "sys.stderr = open(2, 'w', closefd=False)\n"  # with a buffer
        f"sys.stderr.write({line + ' before'!r})\n"
        "with filtered_standard_error():\n"
        f"    sys.stderr.write({line + ' within'!r})\n"
        "sys.stderr.write(' after')\n"
    )
    assert run_python(code).stderr == f"{line} before after"


def test_without_tensorflow_it_is_simply_missing():
    code = QUIETLY + (
        "import sys\n"
        "sys.path[:] = [path for path in sys.path if 'site-packages' not in path]\n"
        "try:\n    import tensorflow\n"
        "except ModuleNotFoundError as error:\n    print(error.name)"
    )
    done = run_python(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "tensorflow\n", "")


def test_looking_for_tensorflow_imports_nothing():
    code = QUIETLY + (
        "import sys, importlib.util\n"
        "assert importlib.util.find_spec('tensorflow').name == 'tensorflow'\n"
        "assert importlib.util.find_spec('tensorflow').origin.endswith('__init__.py')\n"
        "assert 'tensorflow' not in sys.modules\n"
        "import tensorflow; assert 'quiet' not in repr(tensorflow.__spec__.loader)"
    )
    done = run_python(code)
    assert (done.returncode, done.stderr) == (0, "")
