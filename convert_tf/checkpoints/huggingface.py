"""Reads BERT models from local folders in Hugging Face's format; nothing is downloaded.

Such a folder holds `config.json` with `"model_type": "bert"`, the WordPiece vocabulary `vocab.txt`,
mostly a `tokenizer_config.json`, and the weights in `model.safetensors`.

A safetensors file is a JSON header and raw numbers behind it, so numpy reads it in a few lines, and
the package of that name is not needed: https://huggingface.co/docs/safetensors.
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
# What has no counterpart in the trunk must have these values.
_EXPECTED = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}


def read_safetensors(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file, mapped from disk.

    Args:
      path: the file.

    Returns:
      Arrays by name.

    Raises:
      ValueError: the file is damaged or holds numbers of another kind.
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
            "A safetensors file must be whole and hold floating-point numbers or integers. "
            f"Received: {os.fspath(path)} ({type(error).__name__}: {error}). Copy it again."
        ) from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = parsed_json(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict):
            raise ValueError("which is no JSON object")
    except (OSError, ValueError) as error:
        raise ValueError(
            f"A Hugging Face folder must hold {CONFIG_FILE}, {VOCABULARY_FILE} and {WEIGHTS_FILE}. "
            f"Received: {path} ({error}). Name the folder that has them."
        ) from error
    return values


def bert_config_of(folder: str | os.PathLike[str]) -> BertConfig:
    """The configuration of a Hugging Face BERT folder.

    Args:
      folder: holds `config.json`, `vocab.txt` and, mostly, `tokenizer_config.json`.

    Returns:
      The trunk that its weights fit. The ids of [CLS], [SEP] and [MASK] are their lines in the
      vocabulary.

    Raises:
      ValueError: a file is missing, the model is no BERT or one of another kind, or the vocabulary
        lacks a special token.
    """
    folder = Path(folder)
    values = _read_json(folder / CONFIG_FILE)
    found = {name: values.get(name, expected) for name, expected in _EXPECTED.items()}
    if found != _EXPECTED:
        raise ValueError(
            f"Only BERT models with {_EXPECTED} are read. Received: {found} in "
            f"{str(folder / CONFIG_FILE)!r}. Use keras-hub and BackboneTrunk for others."
        )
    try:
        vocabulary = (folder / VOCABULARY_FILE).read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise ValueError(
            f"A BERT folder must hold its WordPiece vocabulary in UTF-8. Received: {error}. "
            f"Copy {VOCABULARY_FILE} there."
        ) from error
    if vocabulary[-1] == "":
        vocabulary.pop()
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    if (folder / SETTINGS_FILE).is_file():
        stated = _read_json(folder / SETTINGS_FILE)
        for name in names:
            token = stated.get(name, names[name])
            names[name] = token["content"] if isinstance(token, dict) else token
    missing = sorted(set(names.values()) - set(vocabulary))
    if missing:
        raise ValueError(
            f"A BERT vocabulary must hold its special tokens. Received: "
            f"{str(folder / VOCABULARY_FILE)!r}, without {missing}. Copy the right file there."
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
            f"The configuration of a BERT must state its sizes. Received: "
            f"{str(folder / CONFIG_FILE)!r}, without {error}. Copy the right file there."
        ) from error


class _Tensors:
    """Tensors by their name in `BertModel`, whichever of its spellings a file has."""

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
                f"The weights of a BERT must hold {name}. Received: {self._path}, without it. "
                "Name a folder whose weights fit its config.json."
            )
        return self._tensors[name].astype(np.float32)

    def kernel(self, name: str) -> np.ndarray:
        """PyTorch keeps `[out, in]`."""
        return self[f"{name}.weight"].T

    def bias(self, name: str) -> np.ndarray:
        return self[f"{name}.bias"]


def _assign(variable: Any, value: np.ndarray) -> None:
    if tuple(variable.shape) != value.shape:
        raise ValueError(
            f"Weights must fit config.json. Received: {value.shape} for {variable.path} of shape "
            f"{tuple(variable.shape)}. Name a folder whose files belong together."
        )
    variable.assign(value)


def load_safetensors(trunk: BertTrunk, path: str | os.PathLike[str]) -> None:
    """Reads the weights of a Hugging Face BERT into `trunk`; its pooler is left out.

    Args:
      trunk: of the shape that `bert_config_of` says.
      path: a safetensors file.

    Raises:
      ValueError: a tensor is missing or of another shape.
    """
    tensors = _Tensors(Path(path))
    embedding = trunk.embedding
    words = tensors["embeddings.word_embeddings.weight"]
    # Some tables have rows behind the vocabulary, so that a GPU multiplies them faster.
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
    """A trunk with the weights of a local Hugging Face BERT folder.

    Args:
      folder: holds `config.json`, `vocab.txt`, `model.safetensors`.
      dropout: drop rate of the trunk in training.
      dtype: precision policy of its computations.

    Returns:
      `(trunk, path of the vocabulary)`; give the path to `convert_tf.text.loading.load_tokenizer`.

    Raises:
      ValueError: a file is missing or damaged, or the model is of another kind.
    """
    folder = Path(folder)
    config = bert_config_of(folder)
    weights = folder / WEIGHTS_FILE
    if not weights.is_file():
        raise ValueError(
            f"A BERT folder must hold {WEIGHTS_FILE}. Received: {str(folder)!r}, without it. "
            "Convert other formats with save_pretrained(folder, safe_serialization=True)."
        )
    trunk = BertTrunk(config, dropout=dropout, dtype=dtype)
    load_safetensors(trunk, weights)
    return trunk, folder / VOCABULARY_FILE
