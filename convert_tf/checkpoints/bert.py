"""Loading of BERT-like trunks."""

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
    """Load a BERT-like trunk.

    Args:
      folder: a run of `convert-tf pretrain`, or a Hugging Face BERT.
      dropout: drop rate in training.
      dtype: precision policy of the trunk's computations.

    Returns:
      `(trunk, vocabulary path)`. `convert_tf.text.tokenizer.load_tokenizer` takes the path.

    Raises:
      CheckpointError: if the folder of a run is incomplete or damaged, or has another vocabulary.
      ValueError: if a Hugging Face folder is incomplete or damaged, or not a supported BERT.
    """
    if kind_of(folder, Kind.BERT, Kind.HUGGING_FACE) is Kind.HUGGING_FACE:
        return huggingface.load_huggingface(folder, dropout=dropout, dtype=dtype)
    config = checkpoint.read_config(folder, BertConfig.from_json, Kind.BERT)
    vocabulary = checked_vocabulary(folder, config)
    trunk = BertTrunk(config, dropout=dropout, dtype=dtype)
    checkpoint.load_weights(trunk, folder)
    return trunk, vocabulary
