"""Fixtures of the network's tests: one tiny model for all of them."""

import collections
import ctypes
import gc
import os
import resource
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import pytest
from support.model_cases import SMALL, fill_weights

from convert_tf.config.model import ModelConfig

pytest_plugins = ["support.dump_files"]

_OPS = "tensorflow.python.framework.ops"
_C_LIBRARY = ctypes.CDLL(None)
_MUCH = 100_000_000  # bytes


def _resident_bytes() -> int:
    """Of this process; 0 where Linux does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


def _give_memory_back():
    """Models are in circles of references, and glibc keeps what TensorFlow frees."""
    gc.collect()
    if hasattr(_C_LIBRARY, "malloc_trim"):
        _C_LIBRARY.malloc_trim(0)


def _registered_gradients() -> dict:
    return sys.modules[_OPS].gradient_registry._registry if _OPS in sys.modules else {}


def _forgetting_gradients():
    """Drops the gradients that loaded models with some of their own register for good."""
    before = set(_registered_gradients())
    yield
    registry = _registered_gradients()
    for name in set(registry) - before:
        if name.startswith("CustomGradient-"):
            del registry[name]


@pytest.fixture(autouse=True)
def _a_test_leaves_little():
    """Forgets the gradients of a test, and gives its memory back where it took much of it."""
    before = _resident_bytes()
    yield from _forgetting_gradients()
    if _resident_bytes() > before + _MUCH:
        _give_memory_back()


# Files of minutes and few tests, the longest first.
_LONGEST = (
    *("test_recipe.py", "test_ranker_module.py", "test_examples.py", "test_attack.py"),
    *("test_ranker_training.py", "test_pretraining.py", "test_hosts.py", "test_slurm.py"),
    *("test_notebooks.py", "test_distillation.py", "test_finetuning.py", "test_training.py"),
    *("test_micro_batches.py", "test_loading.py", "test_released_modules.py", "test_processes.py"),
)


@pytest.hookimpl(trylast=True)  # without the tests that are deselected
def pytest_collection_modifyitems(items):
    """Begin with long files, or all other processes wait for the last one at the end.

    `--no-loadscope-reorder` has pytest-xdist keep this order.
    """
    numbers = collections.Counter(item.path for item in items)
    ranks = {name: rank for rank, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: (ranks.get(item.path.name, len(ranks)), -numbers[item.path]))


def pytest_collection_finish():
    """Keep a million imported objects out of the garbage collections of the tests."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure():
    gc.unfreeze()  # or nanobind takes what is left at the exit for leaks


@pytest.fixture(autouse=True, scope="module")
def _memory_of_a_file_is_given_back():
    yield from _forgetting_gradients()
    _give_memory_back()


@pytest.fixture(scope="session")
def small_config() -> ModelConfig:
    return SMALL


@pytest.fixture(scope="session")
def make_encoder():
    """Builds a `DualEncoder` whose weights depend on their paths only, not on any backend's RNG."""
    from convert_tf.models.encoder import DualEncoder

    def build(config, **kwargs):
        encoder = DualEncoder(config, **kwargs)
        fill_weights(encoder.variables)
        return encoder

    return build


@pytest.fixture(scope="session")
def small_encoder(small_config, make_encoder):
    """A float32 encoder that tests read and never change."""
    return make_encoder(small_config)


NOTES = "\n## Data\n\nLetters of *nobody*.\n"  # of the cards of `tiny_modules`


@pytest.fixture(scope="session")
def tiny_modules():
    """`(model directory, module)` of a `single`- and a `multi`-context encoder; tests read them.

    The modules read 20 tokens of a text.
    """
    from support.made_once import made_once

    def make(folder):
        import keras
        from support.tiny_checkpoint import write_checkpoint

        from convert_tf.export.hub.writing import export_module

        keras.utils.set_random_seed(0)  # or a byte of the table may be rounded up here, down there
        for kind in ("single", "multi"):
            checkpoint = write_checkpoint(folder / kind, multi_context=kind == "multi")
            module = folder / "modules" / kind / "1"
            export_module(checkpoint, module, max_tokens=20, notes=NOTES)

    folder = made_once("tiny_modules", make)
    return {kind: (folder / kind, folder / "modules" / kind / "1") for kind in ("single", "multi")}


@pytest.fixture(scope="session")
def tiny_onnx(tiny_modules):
    """The `single`-context encoder as a file. It opens in milliseconds, a module in seconds."""
    pytest.importorskip("onnxruntime")
    from support.made_once import made_once

    def make(folder):
        from convert_tf.export.onnx.writing import export_onnx

        export_onnx(tiny_modules["single"][0], folder / "tiny.onnx", network_bits=32)

    return made_once("tiny_onnx", make) / "tiny.onnx"
