"""Loading of BERT models from local folders in Hugging Face's format.

Such a folder holds `config.json` with `"model_type": "bert"`, the WordPiece vocabulary `vocab.txt`,
usually a `tokenizer_config.json`, and the weights in `model.safetensors`.

A safetensors file is a JSON header followed by raw numbers
(https://huggingface.co/docs/safetensors). numpy reads it in a few lines, so the package
`safetensors` is not needed.
"""

import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from convert_tf.checkpoints.kinds import CONFIG_FILE
from convert_tf.config.bert import BertConfig
from convert_tf.models.bert import BertTrunk
from convert_tf.storage.json_text import parsed_json
from convert_tf.text.vocabulary import SETTINGS_FILE

VOCABULARY_FILE = "vocab.txt"
WEIGHTS_FILE = "model.safetensors"

_DTYPES = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
}
# `BertTrunk` supports only these values.
_EXPECTED = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}


def read_safetensors(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Return the tensors of a safetensors file, memory-mapped.

    Args:
      path: the file.

    Returns:
      Arrays by name.

    Raises:
      ValueError: if the file is damaged, or has an unsupported type of numbers.
    """
    try:
        content = np.memmap(path, dtype=np.uint8, mode="r")
        begin = 8 + int(content[:8].view("<u8")[0])
        header = parsed_json(content[8:begin].tobytes())
        header.pop("__metadata__", None)
        return {
            name: content[begin + entry["data_offsets"][0] : begin + entry["data_offsets"][1]]
            .view(_DTYPES[entry["dtype"]])
            .reshape(entry["shape"])
            for name, entry in header.items()
        }
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{os.fspath(path)} is damaged, or not a safetensors file of floats or integers "
            f"({type(error).__name__}: {error}). Copy it again."
        ) from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = parsed_json(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict):
            raise ValueError("not a JSON object")
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{path} cannot be read ({error}). Use a Hugging Face folder with {CONFIG_FILE}, "
            f"{VOCABULARY_FILE} and {WEIGHTS_FILE}."
        ) from error
    return values


def bert_config_of(folder: str | os.PathLike[str]) -> BertConfig:
    """Read the configuration of a Hugging Face BERT folder.

    Args:
      folder: folder with `config.json`, `vocab.txt` and optionally `tokenizer_config.json`.

    Returns:
      The configuration of a trunk that the weights fit.

    Raises:
      ValueError: if a file is missing, the model is not a supported BERT, or the vocabulary lacks a
        special token.
    """
    folder = Path(folder)
    values = _read_json(folder / CONFIG_FILE)
    kind = {name: values.get(name, expected) for name, expected in _EXPECTED.items()}
    if kind != _EXPECTED:
        raise ValueError(
            f"{str(folder / CONFIG_FILE)!r} has {kind}, but only BERT models with {_EXPECTED} are "
            "supported. Choose another model."
        )
    try:
        vocabulary = (folder / VOCABULARY_FILE).read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise ValueError(
            f"The WordPiece vocabulary cannot be read ({error}). Copy {VOCABULARY_FILE} into the "
            "folder."
        ) from error
    if vocabulary[-1] == "":
        vocabulary.pop()
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    if (folder / SETTINGS_FILE).is_file():
        settings = _read_json(folder / SETTINGS_FILE)
        for name in names:
            token = settings.get(name, names[name])
            names[name] = token["content"] if isinstance(token, dict) else token
    missing = sorted(set(names.values()) - set(vocabulary))
    if missing:
        raise ValueError(
            f"{str(folder / VOCABULARY_FILE)!r} lacks the special tokens {missing}. Copy the right "
            "file there."
        )
    try:
        return BertConfig(
            vocab_size=len(vocabulary),
            num_oov_buckets=0,
            tokenizer="wordpiece",
            start_id=vocabulary.index(names["cls_token"]),
            separator_id=vocabulary.index(names["sep_token"]),
            mask_id=vocabulary.index(names["mask_token"]),
            dim=values["hidden_size"],
            num_layers=values["num_hidden_layers"],
            num_heads=values["num_attention_heads"],
            feed_forward_dim=values["intermediate_size"],
            max_positions=values["max_position_embeddings"],
            num_segments=values["type_vocab_size"],
            layer_norm_epsilon=values.get("layer_norm_eps", 1e-12),
        )
    except KeyError as error:
        raise ValueError(
            f"{str(folder / CONFIG_FILE)!r} lacks {error}. Copy the right file there."
        ) from error


class _Tensors:
    """Tensors by their names in `BertModel`. Files spell some names differently."""

    def __init__(self, path: Path):
        self._path = path
        self._tensors = {
            name.removeprefix("bert.")
            .replace("LayerNorm.gamma", "LayerNorm.weight")
            .replace("LayerNorm.beta", "LayerNorm.bias"): tensor
            for name, tensor in read_safetensors(path).items()
        }

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._tensors:
            raise ValueError(
                f"{self._path} lacks {name}. Use a folder whose weights fit its {CONFIG_FILE}."
            )
        return self._tensors[name].astype(np.float32)

    def kernel(self, name: str) -> np.ndarray:
        """Return a kernel as `[in, out]`; PyTorch stores `[out, in]`."""
        return self[f"{name}.weight"].T

    def bias(self, name: str) -> np.ndarray:
        return self[f"{name}.bias"]


def _assign(variable: Any, value: np.ndarray) -> None:
    if tuple(variable.shape) != value.shape:
        raise ValueError(
            f"The weights do not fit {CONFIG_FILE}: {variable.path} has shape {value.shape} "
            f"instead of {tuple(variable.shape)}. Use a folder whose files belong together."
        )
    variable.assign(value)


def load_safetensors(trunk: BertTrunk, path: str | os.PathLike[str]) -> None:
    """Load the weights of a Hugging Face BERT into a trunk. The pooler is ignored.

    Args:
      trunk: trunk with the configuration from `bert_config_of`.
      path: a safetensors file.

    Raises:
      ValueError: if a tensor is missing or has another shape.
    """
    tensors = _Tensors(Path(path))
    embedding = trunk.embedding
    words = tensors["embeddings.word_embeddings.weight"]
    # Some tables are padded with rows after the vocabulary, because that is faster on GPUs.
    _assign(embedding.table, words[: embedding.num_rows])
    _assign(embedding.position_table, tensors["embeddings.position_embeddings.weight"])
    _assign(embedding.segment_table, tensors["embeddings.token_type_embeddings.weight"])
    norms = [(embedding.norm, "embeddings.LayerNorm")]
    for i, block in enumerate(trunk.blocks):
        layer = f"encoder.layer.{i}"
        parts = [f"{layer}.attention.self.{name}" for name in ("query", "key", "value")]
        attention = block.attention
        _assign(attention.kernel, np.concatenate([tensors.kernel(p) for p in parts], axis=1))
        _assign(attention.bias, np.concatenate([tensors.bias(p) for p in parts]))
        for kernel, bias, name in (
            (attention.output_kernel, attention.output_bias, "attention.output.dense"),
            (block.hidden_kernel, block.hidden_bias, "intermediate.dense"),
            (block.output_kernel, block.output_bias, "output.dense"),
        ):
            _assign(kernel, tensors.kernel(f"{layer}.{name}"))
            _assign(bias, tensors.bias(f"{layer}.{name}"))
        norms += [
            (block.attention_norm, f"{layer}.attention.output.LayerNorm"),
            (block.feed_forward_norm, f"{layer}.output.LayerNorm"),
        ]
    for norm, name in norms:
        _assign(norm.gamma, tensors[f"{name}.weight"])
        _assign(norm.beta, tensors[f"{name}.bias"])


def load_huggingface(
    folder: str | os.PathLike[str], *, dropout: float = 0.0, dtype: str = "float32"
) -> tuple[BertTrunk, Path]:
    """Load a trunk from a local Hugging Face BERT folder.

    Args:
      folder: folder with `config.json`, `vocab.txt` and `model.safetensors`.
      dropout: drop rate of the trunk in training.
      dtype: precision policy of the trunk's computations.

    Returns:
      `(trunk, path of the vocabulary)`. `convert_tf.text.loading.load_tokenizer` takes the path.

    Raises:
      ValueError: if a file is missing or damaged, or the model is not a supported BERT.
    """
    folder = Path(folder)
    config = bert_config_of(folder)
    weights = folder / WEIGHTS_FILE
    if not weights.is_file():
        raise ValueError(
            f"{str(folder)!r} lacks {WEIGHTS_FILE}. Convert other formats with "
            "save_pretrained(folder, safe_serialization=True)."
        )
    trunk = BertTrunk(config, dropout=dropout, dtype=dtype)
    load_safetensors(trunk, weights)
    return trunk, folder / VOCABULARY_FILE
