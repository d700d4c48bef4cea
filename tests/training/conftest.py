"""Fixtures for training tests. Most fast tests run a few steps of small networks."""

import contextlib

import pytest
from support.letter_teachers import letters_teacher, write_vectors
from support.token_corpus import write_corpus


@pytest.fixture(scope="module")
def corpus(request, tmp_path_factory):
    """Records and token ids of `NUM_TRAIN` examples; the test module sets this constant."""
    folder = tmp_path_factory.mktemp("corpus")
    return write_corpus(folder, num_train=request.module.NUM_TRAIN)


@pytest.fixture(scope="module")
def teacher(corpus, tmp_path_factory):
    """Folder of a teacher's vectors of the training pairs."""
    folder = tmp_path_factory.mktemp("teacher") / "vectors"
    write_vectors(corpus.arrays, folder, letters_teacher)
    return str(folder)


@contextlib.contextmanager
def _without_graphs(is_wanted: bool):
    """Run operations eagerly if wanted: tracing a graph takes longer than a few steps."""
    import tensorflow as tf

    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(is_wanted)
    yield
    tf.config.run_functions_eagerly(before)


@pytest.fixture(autouse=True, scope="module")
def _fast_tests_make_no_graphs(request):
    """Run fast tests eagerly unless their module is marked `traced`. Slow tests trace graphs.

    Slow tests in modules that use `no_graphs` run eagerly, and so do their fixtures.
    """
    is_slow = request.config.option.markexpr == "slow"
    is_traced = request.node.get_closest_marker("traced") is not None
    fixtures = [name for mark in request.node.iter_markers("usefixtures") for name in mark.args]
    with _without_graphs("no_graphs" in fixtures or not (is_slow or is_traced)):
        yield


@pytest.fixture
def no_graphs():
    """Run a module eagerly, including its slow tests, which train many short runs."""
    with _without_graphs(True):
        yield
