"""BERT-shaped trunks from folders: our own model directories and Hugging Face's.

A model directory of ours is as `convert_tf.checkpoints.folder` says, with a `BertConfig` in
`config.json`.
"""

import os
from pathlib import Path

from convert_tf.checkpoints import folder as checkpoint
from convert_tf.checkpoints import huggingface
from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.checkpoints.vocabulary import checked_vocabulary
from convert_tf.config.bert import BertConfig
from convert_tf.models.bert import BertTrunk


def load_bert(
    folder: str | os.PathLike[str], *, dropout: float = 0.0, dtype: str = "float32"
) -> tuple[BertTrunk, Path]:
    """A BERT-shaped trunk with its weights, and the path of its vocabulary.

    Args:
      folder: a model directory that `convert-tf pretrain` wrote, or a Hugging Face BERT.
      dropout: drop rate in training.
      dtype: precision policy of the trunk's computations.

    Returns:
      `(trunk, vocabulary path)`; give the path to `convert_tf.text.loading.load_tokenizer`.

    Raises:
      CheckpointError: a model directory is incomplete or damaged, or its vocabulary was exchanged.
      ValueError: a Hugging Face folder is, or its model is of another kind.
    """
    if kind_of(folder, Kind.BERT, Kind.HUGGING_FACE) is Kind.HUGGING_FACE:
        return huggingface.load_huggingface(folder, dropout=dropout, dtype=dtype)
    config = checkpoint.read_config(folder, BertConfig.from_json, Kind.BERT)
    vocabulary = checked_vocabulary(folder, config)
    trunk = BertTrunk(config, dropout=dropout, dtype=dtype)
    checkpoint.load_weights(trunk, folder)
    return trunk, vocabulary
