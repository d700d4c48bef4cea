"""Access to the dual encoder of a folder, for comparison with exports made from it."""

from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

from convert_tf.checkpoints.folder import load_checkpoint
from convert_tf.models.encoder import DualEncoder
from convert_tf.text.tokenizer import load_tokenizer


def encoder_and_ids(
    folder: Path, *, max_tokens: int | None = None
) -> tuple[DualEncoder, Callable[..., tf.Tensor]]:
    """Return the encoder of a run or a module, and a function from texts to padded token ids."""
    encoder, vocabulary = load_checkpoint(folder)
    tokenizer = load_tokenizer(vocabulary, num_oov_buckets=encoder.config.num_oov_buckets)

    def token_ids(texts):
        ids = tokenizer.token_ids(tf.constant(texts, tf.string))[:, :max_tokens]
        return ids.to_tensor(tokenizer.padding_id)

    return encoder, token_ids
