"""Fixtures that many tests use, above all tiny encoders, and memory management of tests."""

import collections
import ctypes
import gc
import os
import resource
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
# Processes on JAX compile hundreds of small functions. The tests share what they have compiled.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", os.path.abspath(f"{__file__}/../../.pytest_cache/jax")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import pytest
from support.model_cases import SMALL, fill_weights

from convert_tf.config.model import ModelConfig

pytest_plugins = ["support.dump_files"]

_OPS = "tensorflow.python.framework.ops"
_C_LIBRARY = ctypes.CDLL(None)
_MUCH = 100_000_000  # in bytes


def _resident_bytes() -> int:
    """Return the memory of this process in bytes, or 0 if the system does not report it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


def _give_memory_back():
    """Free memory: models are in reference cycles, and glibc keeps what TensorFlow frees."""
    gc.collect()
    if hasattr(_C_LIBRARY, "malloc_trim"):
        _C_LIBRARY.malloc_trim(0)


def _registered_gradients() -> dict:
    return sys.modules[_OPS].gradient_registry._registry if _OPS in sys.modules else {}


def _forgetting_gradients():
    """Remove the custom gradients that loaded models would register permanently."""
    before = set(_registered_gradients())
    yield
    registry = _registered_gradients()
    for name in set(registry) - before:
        if name.startswith("CustomGradient-"):
            del registry[name]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Give a test the same random numbers, whichever tests ran before it in its process."""
    if "keras" in sys.modules:  # which takes seconds to import, and not every test needs it
        sys.modules["keras"].utils.set_random_seed(0)


@pytest.fixture(autouse=True)
def _a_test_leaves_little():
    """Remove a test's gradients, and free memory after tests that used a lot."""
    before = _resident_bytes()
    yield from _forgetting_gradients()
    if _resident_bytes() > before + _MUCH:
        _give_memory_back()


# Files with few tests that take minutes, the longest first.
_LONGEST = (
    *("test_recipe.py", "test_ranker_module.py", "test_examples.py", "test_attack.py"),
    *("test_ranker_training.py", "test_pretraining.py", "test_hosts.py", "test_slurm.py"),
    *("test_notebooks.py", "test_distillation.py", "test_finetuning.py", "test_training.py"),
    *("test_micro_batches.py", "test_loading.py", "test_released_modules.py", "test_processes.py"),
)


@pytest.hookimpl(trylast=True)  # after deselected tests have been removed
def pytest_collection_modifyitems(items):
    """Start with long files, so that no process has to wait for one at the end.

    With `--no-loadscope-reorder`, pytest-xdist keeps this order.
    """
    numbers = collections.Counter(item.path for item in items)
    ranks = {name: rank for rank, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: (ranks.get(item.path.name, len(ranks)), -numbers[item.path]))


def pytest_collection_finish():
    """Exclude a million imported objects from garbage collection during the tests."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure():
    gc.unfreeze()  # otherwise nanobind reports the remaining objects at exit as leaks


@pytest.fixture(autouse=True, scope="module")
def _memory_of_a_file_is_given_back():
    yield from _forgetting_gradients()
    _give_memory_back()


@pytest.fixture(scope="session")
def small_config() -> ModelConfig:
    return SMALL


@pytest.fixture(scope="session")
def make_encoder():
    """Return a function that makes a `DualEncoder` whose weights depend only on their paths."""
    from convert_tf.models.encoder import DualEncoder

    def build(config, **kwargs):
        encoder = DualEncoder(config, **kwargs)
        fill_weights(encoder.variables)
        return encoder

    return build


@pytest.fixture(scope="session")
def small_encoder(small_config, make_encoder):
    """A float32 encoder that no test changes."""
    return make_encoder(small_config)


NOTES = "\n## Data\n\nLetters of *nobody*.\n"  # for the cards of `tiny_modules`


@pytest.fixture(scope="session")
def tiny_modules():
    """`(model folder, module)` of a `single`- and a `multi`-context encoder. Tests only read them.

    The modules read 20 tokens of a text.
    """
    from support.made_once import made_once

    def make(folder):
        from support.tiny_checkpoint import write_checkpoint

        from convert_tf.export.hub.writing import export_module

        for kind in ("single", "multi"):
            checkpoint = write_checkpoint(folder / kind, multi_context=kind == "multi")
            module = folder / "modules" / kind / "1"
            export_module(checkpoint, module, max_tokens=20, notes=NOTES)

    folder = made_once("tiny_modules", make)
    return {kind: (folder / kind, folder / "modules" / kind / "1") for kind in ("single", "multi")}


@pytest.fixture(scope="session")
def tiny_onnx(tiny_modules):
    """The `single`-context encoder as an `.onnx` file, which opens faster than a module."""
    pytest.importorskip("onnxruntime")
    from support.made_once import made_once

    def make(folder):
        from convert_tf.export.onnx.writing import export_onnx

        export_onnx(tiny_modules["single"][0], folder / "tiny.onnx", network_bits=32)

    return made_once("tiny_onnx", make) / "tiny.onnx"
