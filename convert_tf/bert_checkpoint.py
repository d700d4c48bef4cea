"""BERT-shaped trunks from folders: our own model directories and Hugging Face's.

A model directory of ours is as `convert_tf.checkpoint` says, with a `BertConfig` in `config.json`.
"""

import hashlib
import os
from pathlib import Path

from convert_tf import checkpoint, huggingface
from convert_tf.bert import BertTrunk
from convert_tf.bert_config import BertConfig
from convert_tf.checkpoint import CheckpointError


def is_bert(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder holds a BERT-shaped trunk: a model directory of ours, or Hugging Face's."""
    if huggingface.is_huggingface_folder(folder):
        return True
    try:
        BertConfig.from_json((Path(folder) / checkpoint.CONFIG_FILE).read_text())
    except (OSError, ValueError):
        return False
    return True


def load_bert(
    folder: str | os.PathLike[str], *, dropout: float = 0.0, dtype: str = "float32"
) -> tuple[BertTrunk, Path]:
    """A BERT-shaped trunk with its weights, and the path of its vocabulary.

    Args:
      folder: a model directory that `python -m convert_tf.pretrain` wrote, or a Hugging Face BERT.
      dropout: drop rate in training.
      dtype: precision policy of the trunk's computations.

    Returns:
      `(trunk, vocabulary path)`; give the path to `convert_tf.load_tokenizer`.

    Raises:
      CheckpointError: a model directory is incomplete or damaged, or its vocabulary was exchanged.
      ValueError: a Hugging Face folder is, or its model is of another kind.
    """
    if huggingface.is_huggingface_folder(folder):
        return huggingface.load_huggingface(folder, dropout=dropout, dtype=dtype)
    path = Path(folder) / checkpoint.CONFIG_FILE
    try:
        config = BertConfig.from_json(path.read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(
            "A BERT-shaped trunk is read from a folder that convert_tf.pretrain wrote, or from one "
            f"of Hugging Face's. Received: {str(folder)!r} ({error}). Name such a folder."
        ) from error
    vocabulary = Path(folder) / checkpoint.VOCABULARY_FILES[config.tokenizer]
    found = hashlib.sha256(vocabulary.read_bytes()).hexdigest() if vocabulary.is_file() else None
    if found is None or checkpoint.training_facts(folder).get("vocabulary_sha256", found) != found:
        raise CheckpointError(
            "A checkpoint must hold the vocabulary it was trained with. Received: "
            f"{str(vocabulary)!r}, which is {'missing' if found is None else 'another one'}. "
            "Put the right file there."
        )
    trunk = BertTrunk(config, dropout=dropout, dtype=dtype)
    checkpoint.load_weights(trunk, folder)  # type: ignore[arg-type]
    return trunk, vocabulary
