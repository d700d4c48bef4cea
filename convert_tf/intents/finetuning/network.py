"""The trained part of an encoder, its upper blocks, with a linear head for intents."""

from typing import Any

import keras
import numpy as np
from keras import ops

from convert_tf.intents.head import Head
from convert_tf.layers.side_network import l2_normalize
from convert_tf.models.distillation import sentence_encodings
from convert_tf.models.encoder import DualEncoder
from convert_tf.models.losses import intent_losses
from convert_tf.models.trunk import segments_of

# The recipe; docs/decisions.md says what it was compared with.
_TRAINED_BLOCKS = 3  # the upper ones
_HEAD_SPEED = 10  # the head learns so many times faster
_ENCODING_DROPOUT = 0.5
_TEMPERATURE = 0.1


class IntentNetwork(keras.Model):
    """The upper blocks of an encoder with a linear head, and the loss that both learn from.

    The loss is the sum of cross-entropy and of the supervised contrastive loss of a batch.

    Masking: padding is never read.

    Args:
      encoder: the encoder. Only its last `_TRAINED_BLOCKS` blocks and its reduction are trained.
      head: initial weights, one layer.
      similarity_map: the map of the encoder, float32 `[reduced_dim, n]`; None if it has none.

    Call arguments:
      inputs: dict of `activations`, float32 `[rows, tokens, dim]`, the outputs of the lower blocks
        for packed rows; `segment_lengths` int32 `[rows, segments]`; `slots` int32 `[batch]`.

    Returns:
      dict of `encodings`, the sentence encodings, float32 `[batch, reduced_dim]` of length 1, and
      `logits`, float32 `[batch, intents]`.

    Example:
      outputs = IntentNetwork(encoder, head, None)(inputs, training=True)
    """

    def __init__(self, encoder: DualEncoder, head: Head, similarity_map: np.ndarray | None):
        super().__init__()
        self.encoder = encoder
        self._similarity_map = similarity_map
        frozen = [encoder.trunk.embedding, *encoder.trunk.blocks[: first_trained_block(encoder)]]
        frozen += [encoder.context_side, encoder.response_side]
        for layer in (*frozen, encoder.extra_context_side, encoder.both_side):
            if layer is not None:  # single-context encoders have two sides
                layer.trainable = False
        self.dropout = keras.layers.Dropout(_ENCODING_DROPOUT, dtype="float32")
        self.dense = keras.layers.Dense(len(head.layers[0].bias), dtype="float32")
        self.dense.build((None, len(head.layers[0].kernel)))
        self.dense.set_weights([values / _HEAD_SPEED for values in head.layers[0]])

    def call(self, inputs: dict[str, Any], training: bool = False) -> dict[str, Any]:
        reduced = reduced_above(self.encoder, inputs, training=training)
        if self._similarity_map is not None:
            reduced = sentence_encodings(reduced, self._similarity_map)
        encodings = l2_normalize(reduced)
        # Adam moves all weights by the same step. The factor lets the head move further.
        logits = _HEAD_SPEED * self.dense(self.dropout(encodings, training=training))
        return {"encodings": encodings, "logits": logits}

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Return the loss of a batch: `y` int32 `[batch]`, `y_pred` from `call`."""
        y = ops.reshape(y, (-1,))
        entropy = keras.losses.sparse_categorical_crossentropy(
            y, y_pred["logits"], from_logits=True
        )
        contrast, _ = intent_losses(y_pred["encodings"], y, y, scale=1 / _TEMPERATURE)
        return ops.mean(entropy) + ops.mean(contrast)


def reduced_above(encoder: DualEncoder, inputs: dict[str, Any], *, training: bool) -> Any:
    """Return r, the output of the upper blocks and the reduction: float32 `[batch, dim]`.

    Args:
      encoder: the encoder.
      inputs: see `IntentNetwork`.
      training: whether dropout is active.
    """
    lengths, x = inputs["segment_lengths"], inputs["activations"]
    segment_ids, _, mask = segments_of(lengths, ops.shape(x)[1])
    x = ops.cast(x, encoder.trunk.compute_dtype)
    for block in encoder.trunk.blocks[first_trained_block(encoder) :]:
        x = block(x, attention_mask=mask, training=training)
    reduced = encoder.reduction(x, segment_ids, lengths, mask)
    reduced = ops.reshape(reduced, (-1, encoder.config.reduced_dim))
    return ops.cast(ops.take(reduced, inputs["slots"], axis=0), "float32")


def first_trained_block(encoder: DualEncoder) -> int:
    """Return the number of lower blocks, which are not trained."""
    return max(len(encoder.trunk.blocks) - _TRAINED_BLOCKS, 0)
