"""Load BERT-like trunks from runs and from local folders in Hugging Face's format.

A Hugging Face folder contains `config.json` with `"model_type": "bert"`, the WordPiece vocabulary
`vocab.txt`, usually a `tokenizer_config.json`, and the weights in `model.safetensors`.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from convert_tf.checkpoints import folder as checkpoint
from convert_tf.checkpoints.configs import read_config
from convert_tf.checkpoints.kinds import CONFIG_FILE, Kind, kind_of
from convert_tf.config.bert import BertConfig
from convert_tf.models.bert import BertTrunk
from convert_tf.storage.json_text import json_file
from convert_tf.storage.messages import shortened
from convert_tf.text.vocabulary import SETTINGS_FILE

VOCABULARY_FILE = "vocab.txt"
WEIGHTS_FILE = "model.safetensors"

# `BertTrunk` supports only these values.
_EXPECTED = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}


def load_bert(
    folder: str | os.PathLike[str], *, dropout: float = 0.0, dtype: str = "float32"
) -> tuple[BertTrunk, Path]:
    """Load a BERT-like trunk.

    Args:
      folder: a run of `convert-tf pretrain`, or the folder of a Hugging Face BERT.
      dropout: dropout rate for training.
      dtype: precision policy of the trunk's computations.

    Returns:
      The trunk, and the path of its vocabulary, which `convert_tf.text.tokenizer.load_tokenizer`
      takes.

    Raises:
      ValueError: if the folder is incomplete or damaged, is not a supported BERT, or has a
        vocabulary that the model was not trained with.
    """
    if kind_of(folder, Kind.BERT, Kind.HUGGING_FACE) is Kind.BERT:
        config = read_config(folder, BertConfig.from_json, Kind.BERT)
        trunk = BertTrunk(config, dropout=dropout, dtype=dtype)
        return checkpoint.with_weights(trunk, folder)
    config, weights = bert_config_of(folder), Path(folder) / WEIGHTS_FILE
    if not weights.is_file():
        raise ValueError(
            f"{os.fspath(folder)!r} lacks {WEIGHTS_FILE}. Convert other formats with "
            "save_pretrained(folder, safe_serialization=True)."
        )
    trunk = BertTrunk(config, dropout=dropout, dtype=dtype)
    _load_safetensors(trunk, weights)
    return trunk, Path(folder) / VOCABULARY_FILE


def json_object(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file that must be an object.

    Raises:
      ValueError: if the content is not a JSON object. The message names the file.
      OSError: if the file cannot be read.
    """
    values = json_file(path)
    if not isinstance(values, dict):
        raise ValueError(f"{str(path)!r} is not a JSON object. Copy the correct file there.")
    return values


def bert_config_of(folder: str | os.PathLike[str]) -> BertConfig:
    """Read the configuration of a Hugging Face BERT folder.

    Args:
      folder: folder with `config.json`, `vocab.txt` and optionally `tokenizer_config.json`.

    Returns:
      The configuration of a trunk that can load the folder's weights.

    Raises:
      ValueError: if the model is not a supported BERT, a file is damaged, or the vocabulary lacks a
        special token.
      OSError: if a file is missing.
    """
    folder = Path(folder)
    values = json_object(folder / CONFIG_FILE)
    kind = {name: values.get(name, expected) for name, expected in _EXPECTED.items()}
    if kind != _EXPECTED:
        raise ValueError(
            f"{str(folder / CONFIG_FILE)!r} has {shortened(repr(kind), 200)}, but only BERT models "
            f"with {_EXPECTED} are supported. Choose another model."
        )
    vocabulary, names = _vocabulary_of(folder)
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
            f"{str(folder / CONFIG_FILE)!r} lacks {error}. Copy the correct file there."
        ) from error
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{str(folder / CONFIG_FILE)!r} has a wrong value: {error} Copy the correct file "
            "there, or choose another model."
        ) from error


def _vocabulary_of(folder: Path) -> tuple[list[str], dict[str, str]]:
    """Return the subwords of a Hugging Face BERT folder, and its special tokens by setting name."""
    path, settings_path = folder / VOCABULARY_FILE, folder / SETTINGS_FILE
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{str(path)!r} is not UTF-8 ({error}). Copy the correct file there."
        ) from error
    vocabulary = text.removesuffix("\n").split("\n")
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    settings = json_object(settings_path) if settings_path.is_file() else {}
    for name in names:
        token = settings.get(name, names[name])
        content = token.get("content") if isinstance(token, dict) else token
        if not isinstance(content, str):
            raise ValueError(
                f"{str(settings_path)!r} has no text as {name}. Copy the correct file there."
            )
        names[name] = content
    missing = sorted(set(names.values()) - set(vocabulary))
    if missing:
        raise ValueError(
            f"{str(path)!r} lacks the special tokens {missing}. Copy the correct file there."
        )
    return vocabulary, names


def _load_safetensors(trunk: BertTrunk, path: Path) -> None:
    """Load the weights of a Hugging Face BERT into a trunk. The pooler is ignored.

    Raises:
      ValueError: if the file is damaged, or a tensor is missing or has another shape.
    """
    import ml_dtypes  # noqa: F401 (numpy's bfloat16)
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            # Some files have other names for the same tensors.
            names = {
                name.removeprefix("bert.")
                .replace("LayerNorm.gamma", "LayerNorm.weight")
                .replace("LayerNorm.beta", "LayerNorm.bias"): name
                for name in file.keys()  # noqa: SIM118 (it is not a dict)
            }

            def read(name: str) -> np.ndarray:
                return file.get_tensor(names[name]).astype(np.float32)

            for variable, value in _values(trunk, read):
                if tuple(variable.shape) != value.shape:
                    raise ValueError(f"{variable.path} has shape {value.shape}")
                variable.assign(value)
    except (SafetensorError, AttributeError, TypeError) as error:
        raise ValueError(
            f"{path} is damaged, or not a safetensors file of floats or integers ({error}). Copy "
            "it again."
        ) from error
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"The weights in {path} do not fit {CONFIG_FILE}: {error}. Use a folder whose files "
            "belong together."
        ) from error


def _values(
    trunk: BertTrunk, read: Callable[[str], np.ndarray]
) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield the trunk's variables with their values.

    Args:
      trunk: the trunk.
      read: function that returns a tensor, given its name in Hugging Face's `BertModel`.
    """
    embedding = trunk.embedding
    # Some tables have more rows than the vocabulary has entries, because that is faster on GPUs.
    yield embedding.table, read("embeddings.word_embeddings.weight")[: embedding.table.shape[0]]
    yield embedding.position_table, read("embeddings.position_embeddings.weight")
    yield embedding.segment_table, read("embeddings.token_type_embeddings.weight")
    norms = [(embedding.norm, "embeddings.LayerNorm")]
    for i, block in enumerate(trunk.blocks):
        layer = f"encoder.layer.{i}"
        parts = [f"{layer}.attention.self.{name}" for name in ("query", "key", "value")]
        attention = block.attention
        # PyTorch stores kernels as [out, in].
        yield attention.kernel, np.concatenate([read(f"{p}.weight").T for p in parts], axis=1)
        yield attention.bias, np.concatenate([read(f"{p}.bias") for p in parts])
        for kernel, bias, name in (
            (attention.output_kernel, attention.output_bias, "attention.output.dense"),
            (block.hidden_kernel, block.hidden_bias, "intermediate.dense"),
            (block.output_kernel, block.output_bias, "output.dense"),
        ):
            yield kernel, read(f"{layer}.{name}.weight").T
            yield bias, read(f"{layer}.{name}.bias")
        norms += [
            (block.attention_norm, f"{layer}.attention.output.LayerNorm"),
            (block.feed_forward_norm, f"{layer}.output.LayerNorm"),
        ]
    for norm, name in norms:
        yield norm.gamma, read(f"{name}.weight")
        yield norm.beta, read(f"{name}.bias")
