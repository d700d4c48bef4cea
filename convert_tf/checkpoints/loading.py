"""Loading of trained models of any kind."""

import os
from pathlib import Path

from convert_tf.checkpoints.bert import load_bert
from convert_tf.checkpoints.folder import Model, load_checkpoint
from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.checkpoints.ranker import load_ranker
from convert_tf.checkpoints.released import model_path


def load_model(folder: str | os.PathLike[str], *, dtype: str = "float32") -> tuple[Model, Path]:
    """Load a trained model as a Keras model.

    Args:
      folder: a run, the module of an encoder or its name, or the folder of a Hugging Face BERT.
      dtype: precision policy of the model's computations.

    Returns:
      The model (`DualEncoder`, `RankerModel` or `BertTrunk`) and the path of its vocabulary, which
      `convert_tf.text.tokenizer.load_tokenizer` takes.

    Raises:
      CheckpointError: if the folder is not a model, is incomplete or damaged, or has another
        vocabulary.

    Example:
      ranker, vocabulary = load_model("runs/poly")
    """
    folder = model_path(folder)
    kind = kind_of(
        folder, Kind.DUAL_ENCODER, Kind.ENCODER_MODULE, Kind.RANKER, Kind.BERT, Kind.HUGGING_FACE
    )
    if kind is Kind.RANKER:
        return load_ranker(folder, dtype=dtype)
    if kind in (Kind.BERT, Kind.HUGGING_FACE):
        return load_bert(folder, dtype=dtype)
    return load_checkpoint(folder, dtype=dtype)
