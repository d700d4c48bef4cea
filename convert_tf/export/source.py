"""An encoder to export, with the facts that modules, ONNX files and Hugging Face folders need."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from convert_tf.checkpoints.facts import read_tokens, training_facts

if TYPE_CHECKING:
    from convert_tf.models.encoder import DualEncoder


class EncoderSource(NamedTuple):
    """An encoder, its vocabulary and its similarity map.

    Attributes:
      encoder: the encoder, or namespaces of arrays with the same names as its layers.
      vocabulary: the path of the encoder's vocabulary.
      similarity_map: the map from r to similarity vectors, float32 `[reduced_dim, dim]`; None if
        the encoder has no similarity vectors.
      training: facts about the training of the checkpoint.
      max_tokens: maximum number of tokens per text.
    """

    encoder: "DualEncoder"
    vocabulary: Path
    similarity_map: np.ndarray | None
    training: dict[str, Any]
    max_tokens: int

    @property
    def similarity_dim(self) -> int:
        """The dimension of similarity vectors; 0 if the encoder has none."""
        return 0 if self.similarity_map is None else self.similarity_map.shape[1]


def load_source(checkpoint: str | os.PathLike, max_tokens: int | None) -> EncoderSource:
    """Load an encoder to export.

    Args:
      checkpoint: the folder of a dual encoder's run or module.
      max_tokens: maximum number of tokens per text. If None, 512, or the limit of `checkpoint` if
        it is a module.

    Raises:
      CheckpointError: if the checkpoint is incomplete or damaged.
      ValueError: if `max_tokens` is not positive.
    """
    from convert_tf.checkpoints.folder import load_checkpoint, load_similarity_map

    training = training_facts(checkpoint)
    max_tokens = read_tokens(training, max_tokens)
    encoder, vocabulary = load_checkpoint(checkpoint)
    similarity_map = load_similarity_map(checkpoint)
    return EncoderSource(encoder, vocabulary, similarity_map, training, max_tokens)
