"""Fixtures of the network's tests: one tiny model for all of them."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import pytest

from convert_tf.config import ModelConfig


@pytest.fixture(scope="session")
def small_config() -> ModelConfig:
    """All parts of the network, each of another width, so that a mix-up changes a shape."""
    return ModelConfig(
        vocab_size=20,
        num_oov_buckets=3,
        embedding_dim=8,
        position_table_sizes=(5, 3),
        max_relative_attention=(2, 5),
        attention_dim=4,
        feed_forward_dim=12,
        reduction_dim=3,
        side_layers=2,
        side_hidden_dim=16,
        encoding_dim=6,
        max_tokens=12,
    )


@pytest.fixture(scope="session")
def make_encoder():
    """Builds a `DualEncoder` whose weights depend on their paths only, not on any backend's RNG."""
    from model_cases import fill_weights

    from convert_tf.encoders import DualEncoder

    def build(config, **kwargs):
        encoder = DualEncoder(config, **kwargs)
        fill_weights(encoder.variables)
        return encoder

    return build


@pytest.fixture(scope="session")
def small_encoder(small_config, make_encoder):
    """A float32 encoder that tests read and never change."""
    return make_encoder(small_config)


@pytest.fixture(scope="session")
def tiny_modules(tmp_path_factory):
    """`(model directory, module)` of a `single`- and a `multi`-context encoder; tests read them.

    The modules read 20 tokens of a text.
    """
    from tiny_checkpoint import write_checkpoint

    from convert_tf.hub import export_module

    folder = tmp_path_factory.mktemp("tiny_modules")
    made = {}
    for kind in ("single", "multi"):
        checkpoint = write_checkpoint(folder / kind, multi_context=kind == "multi")
        module = export_module(checkpoint, folder / "modules" / kind / "1", max_tokens=20)
        made[kind] = (checkpoint, module)
    return made
