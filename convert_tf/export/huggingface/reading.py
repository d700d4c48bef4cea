"""Read the encoder of a Hugging Face folder from its PyTorch weights, to export the encoder again.

Other programs, such as sentence-transformers, can train these weights further. The `.onnx` files in
the folder are not read, because such programs do not update them.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from convert_tf.checkpoints.facts import READ_TOKENS, read_tokens, shown_name
from convert_tf.checkpoints.kinds import (
    CONFIG_FILE,
    SAFETENSORS_FILE,
    TOKENIZER_FILE,
    CheckpointError,
)
from convert_tf.checkpoints.limits import folder_max_tokens
from convert_tf.config.base import check
from convert_tf.config.model import ModelConfig
from convert_tf.encoding.backends.huggingface import PYTORCH_FILES, folder_subwords
from convert_tf.export.source import EncoderSource
from convert_tf.extras import needs
from convert_tf.storage.json_text import json_file
from convert_tf.storage.messages import shortened
from convert_tf.text.vocabulary import VOCABULARY_FILES, write_vocabulary

with needs("", "Reading a folder for Hugging Face programs"):
    from safetensors import SafetensorError, deserialize

TABLE_RANGE = "table_range"  # key in config.json: the range of the subword table's 8-bit values
_UNKNOWN_ROWS = 1  # these folders have a single row for all unknown characters
# The errors that wrong values in config.json or tokenizer.json can cause.
_OF_DAMAGE = (ValueError, TypeError, LookupError, AttributeError)
_DTYPES = {"F32": "<f4", "F16": "<f2", "F64": "<f8"}


@contextlib.contextmanager
def opened_folder(
    folder: str | os.PathLike[str], max_tokens: int | None, *, as_keras: bool
) -> Iterator[EncoderSource]:
    """Read the encoder of a Hugging Face folder.

    All unknown characters share one hash bucket. If the subword table originally had 8 bits, its
    values are rounded to 8 bits again, in the original range if they are still within this range.

    Args:
      folder: a folder from `convert-tf export --format huggingface`, or from a program that opened
        such a folder and saved it again.
      max_tokens: maximum number of tokens per text. If None, the limit in the folder, which another
        program may have lowered.
      as_keras: whether to return the encoder as a `DualEncoder`. Otherwise its layers are
        namespaces of arrays.

    Yields:
      The encoder. Its vocabulary is a temporary file, which exists only inside the `with` block.

    Raises:
      CheckpointError: if a file is missing or damaged, or the weights do not fit `config.json`.
      ValueError: if `max_tokens` is not positive.
    """
    path = Path(folder)
    try:
        for name in (CONFIG_FILE, TOKENIZER_FILE, SAFETENSORS_FILE):
            if not (path / name).is_file():
                raise ValueError(f"{name} is missing")
        for name in PYTORCH_FILES:
            if others := sorted({file.name for file in path.glob(name)} - {SAFETENSORS_FILE}):
                raise ValueError(f"it has two sets of weights, {others[0]} and {SAFETENSORS_FILE}")
        facts = json_file(path / CONFIG_FILE)
        subwords = folder_subwords(path)
        config = _model_config(facts, len(subwords))
        values = TorchVariables(path / SAFETENSORS_FILE, config, facts)
        encoder = _keras_encoder(config, values) if as_keras else _plain_encoder(config, values)
        similarity_map = values.similarity_map
        limit = folder_max_tokens(path, facts)
    except (*_OF_DAMAGE, SafetensorError) as error:
        reason = shortened(str(error), 300).removesuffix(".")
        raise CheckpointError(
            f"{os.fspath(folder)!r} cannot be exported: {reason}. Save the model as "
            f"{SAFETENSORS_FILE} again with the program that trained it."
        ) from error
    training = {READ_TOKENS: limit, "initial_weights": shown_name(os.path.abspath(folder))}
    tokens = read_tokens(training, max_tokens)
    with tempfile.TemporaryDirectory() as temporary:
        vocabulary = Path(temporary) / VOCABULARY_FILES["subword"]
        write_vocabulary(vocabulary, subwords)
        yield EncoderSource(encoder, vocabulary, similarity_map, training, tokens)


class TorchVariables:
    """The weights of `modeling_convert.py`, as `EncoderVariables`.

    Args:
      path: the safetensors file, with 16-, 32- or 64-bit floats.
      config: configuration of the encoder.
      facts: content of `config.json`.

    Attributes:
      is_folded: False, because the weights of feed-forward layers do not include the slope of the
        GELU.

    Raises:
      ValueError: if a weight is missing or has a different type.
    """

    is_folded = False

    def __init__(self, path: Path, config: ModelConfig, facts: dict[str, Any]) -> None:
        tensors = dict(deserialize(path.read_bytes()))
        self._arrays = {name: _float32(name, tensor) for name, tensor in tensors.items()}
        self._names = _names(config)
        self._similarity_dim = facts.get("similarity_dim")
        self._bits = config.embedding_bits
        self._range = facts.get(TABLE_RANGE) or (0.0, 0.0)

    def _array(self, name: str) -> np.ndarray:
        if name not in self._arrays:
            raise ValueError(f"{SAFETENSORS_FILE} has no {name}")
        return self._arrays[name]

    def weight(self, number: int) -> np.ndarray:
        """Return weight `number` of the network, in the order of `network_variables`, float32."""
        name = self._names[number]
        is_table = name.startswith("positions.") or name.endswith(".relative_bias")
        return self._array(name) if is_table else self._array(name).T

    def table(self) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray] | None]:
        """Return the subword table and the range of its 8-bit values.

        See `ModuleVariables.table`.
        """
        table = self._array("tokens.weight")
        if self._bits == 32:
            return table, None
        low, high = (np.float32(value) for value in self._range)
        is_finite = bool(np.isfinite([low, high]).all())
        check(is_finite, f"{TABLE_RANGE} must be two finite numbers.", self._range)
        return table, (min(low, table.min()), max(high, table.max()))

    @property
    def similarity_map(self) -> np.ndarray | None:
        """The similarity map, float32 `[reduced_dim, dim]`; None if there is none."""
        return self._array("similarity.weight").T if self._similarity_dim else None


def _names(config: ModelConfig) -> list[str]:
    """Return the names of the network's weights, in the order of `network_variables`."""

    def layers(*names: str) -> list[str]:
        return [f"{name}.{part}" for name in names for part in ("weight", "bias")]

    names = [f"positions.{i}.weight" for i in range(len(config.position_table_sizes))]
    names += layers("norm")
    for i in range(len(config.max_relative_attention)):
        names.append(f"blocks.{i}.query_key.weight")
        names.append(f"blocks.{i}.relative_bias")
        parts = ("attention_norm", "hidden", "output", "output_norm")
        names += layers(*(f"blocks.{i}.{part}" for part in parts))
    names.append("reduction.weight")
    for side in ("context", "response"):
        for part in ("hidden", "norms"):
            names += layers(*(f"sides.{side}.{part}.{i}" for i in range(config.side_layers)))
        names += layers(f"sides.{side}.linear")
    return names


def _float32(name: str, tensor: dict[str, Any]) -> np.ndarray:
    """Return a tensor from `safetensors.deserialize` as float32."""
    kind, data = tensor["dtype"], tensor["data"]
    if kind == "BF16":  # numpy has no bfloat16, but its bits are the upper half of a float32
        values = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    elif kind in _DTYPES:
        values = np.frombuffer(data, _DTYPES[kind]).astype(np.float32)
    else:
        raise ValueError(f"{name} has the type {kind} instead of 16-, 32- or 64-bit floats")
    return values.reshape(tensor["shape"])


def _model_config(facts: dict[str, Any], vocab_size: int) -> ModelConfig:
    """Return the encoder's configuration, without the entries that other programs have added."""
    values = {name: facts[name] for name in ModelConfig.defaults() if name in facts}
    return ModelConfig.from_dict(
        {
            **values,
            "vocab_size": vocab_size,
            "num_oov_buckets": _UNKNOWN_ROWS,
            # These folders always contain the biases, which another program may have trained.
            "use_relative_bias": True,
        }
    )


def _plain_encoder(config: ModelConfig, values: TorchVariables) -> Any:
    from convert_tf.export.onnx.plain_encoder import plain_encoder

    return plain_encoder(config, values)


def _keras_encoder(config: ModelConfig, values: TorchVariables) -> Any:
    from convert_tf.checkpoints.module_weights import load_variables
    from convert_tf.models.encoder import DualEncoder

    _plain_encoder(config, values)  # raises an error with the name of a weight that does not fit
    encoder = DualEncoder(config)
    load_variables(encoder, values)
    return encoder
