"""Pre-training of BERT-shaped trunks: masked language model and next utterance in turn.

Reference: arXiv 1905.01969 §4.1 ("Pre-training Procedure").
"""

from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

from convert_tf.config.pretrain import Pretraining
from convert_tf.layers.bert import INITIAL_STDDEV, dense
from convert_tf.models.bert import BertTrunk
from convert_tf.training.objective import Objective
from convert_tf.training.optimizers import LOSS_SCALE, InverseSquareRoot, compile_with

_MEANS = ("masked_loss", "masked_accuracy", "next_loss", "next_accuracy")


def _weighted_mean(values: Any, weights: Any) -> Any:
    """Return Σ values·weights / Σ weights, `[n]` → `[]`; 0 where all weights are 0."""
    return ops.sum(values * weights) / ops.maximum(ops.sum(weights), 1.0)


class PretrainingObjective(Objective):
    """A trunk under both objectives; a batch holds what one of them needs, the other's weighs 0.

    The language model reads the masked tokens' vectors through a dense layer, GELU and layer norm,
    and scores them with the token table itself and a bias per token. The next utterance is read
    from the vector of the first [S] through a dense layer and tanh.

    Args:
      trunk: the trunk, which is trained.

    Call arguments:
      inputs: dict of `data.pretraining_batches.masked_batch`.

    Returns:
      dict of `token_logits` float32 `[M, num_rows]` and `next_logits` float32 `[batch]`.

    Reference: arXiv 1905.01969 §4.1; arXiv 1810.04805 §3.1.
    """

    def __init__(self, trunk: BertTrunk, **kwargs: Any):
        super().__init__(trunk, _MEANS, dtype=trunk.dtype_policy, **kwargs)
        dim, num_rows = trunk.config.dim, trunk.config.num_rows
        weights: dict[str, Any] = {
            "initializer": keras.initializers.TruncatedNormal(stddev=INITIAL_STDDEV)
        }
        self.token_kernel = self.add_weight(shape=(dim, dim), name="token_kernel", **weights)
        self.token_bias = self.add_weight(shape=(dim,), initializer="zeros", name="token_bias")
        self.token_norm = keras.layers.LayerNormalization(
            epsilon=trunk.config.layer_norm_epsilon, dtype=self.dtype_policy, name="token_norm"
        )
        self.token_norm.build((None, dim))
        self.output_bias = self.add_weight(
            shape=(num_rows,), initializer="zeros", autocast=False, name="output_bias"
        )
        self.pooler_kernel = self.add_weight(shape=(dim, dim), name="pooler_kernel", **weights)
        self.pooler_bias = self.add_weight(shape=(dim,), initializer="zeros", name="pooler_bias")
        self.next_kernel = self.add_weight(shape=(dim, 1), name="next_kernel", **weights)
        self.next_bias = self.add_weight(shape=(1,), initializer="zeros", name="next_bias")
        self.built = True

    def outputs_of(self, inputs: dict[str, Any], training: bool) -> dict[str, Any]:
        sequence = self.encoder(
            inputs["rows"], inputs["segment_ids"], inputs["mask"], training=training
        )
        flat = ops.reshape(sequence, (-1, sequence.shape[-1]))
        masked = ops.take(flat, inputs["masked_slots"], axis=0)
        hidden = ops.gelu(dense(masked, self.token_kernel, self.token_bias), approximate=False)
        table = ops.cast(self.encoder.embedding.table, self.compute_dtype)
        logits = ops.matmul(self.token_norm(hidden), ops.transpose(table))
        pooled = ops.tanh(dense(sequence[:, 0], self.pooler_kernel, self.pooler_bias))
        next_logits = dense(pooled, self.next_kernel, self.next_bias)[:, 0]
        return {
            "token_logits": ops.cast(logits, "float32") + self.output_bias,
            "next_logits": ops.cast(next_logits, "float32"),
        }

    def loss_of(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
        masked, following = self._cross_entropies(inputs, outputs)
        return _weighted_mean(masked, inputs["masked_weights"]) + _weighted_mean(
            following, inputs["next_weights"]
        )

    def measures_of(
        self, inputs: dict[str, Any], outputs: dict[str, Any]
    ) -> Iterator[tuple[str, Any, Any]]:
        found = ops.cast(ops.argmax(outputs["token_logits"], axis=-1), "int32")
        is_found = ops.cast(found == ops.cast(inputs["masked_targets"], "int32"), "float32")
        is_next = inputs["next_labels"] > 0.5
        is_right = ops.cast((outputs["next_logits"] > 0.0) == is_next, "float32")
        masked, following = self._cross_entropies(inputs, outputs)
        weights = [inputs[f"{name.partition('_')[0]}_weights"] for name in _MEANS]
        yield from zip(_MEANS, (masked, is_found, following, is_right), weights, strict=True)

    def _cross_entropies(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> tuple[Any, Any]:
        """Return cross-entropies in nats: of each masked token `[M]`, of each pair `[batch]`."""
        masked = keras.losses.sparse_categorical_crossentropy(
            inputs["masked_targets"], outputs["token_logits"], from_logits=True
        )
        logits = outputs["next_logits"]
        # log(1 + e^−z) for pairs that belong together, log(1 + e^z) for the others.
        return masked, ops.softplus(ops.where(inputs["next_labels"] > 0.5, -logits, logits))


def make_pretraining(
    trunk: BertTrunk, config: Pretraining, *, precision: str
) -> PretrainingObjective:
    """`trunk` under its objectives, compiled with Adam.

    Args:
      trunk: the trunk.
      config: reads learning rate and warm-up.
      precision: a dtype policy name; `mixed_float16` turns the static loss scale on.
    """
    model = PretrainingObjective(trunk, name="pretraining")
    optimizer = keras.optimizers.Adam(
        InverseSquareRoot(config.learning_rate, config.warmup_steps),
        beta_1=0.9,
        beta_2=0.98,
        loss_scale_factor=LOSS_SCALE if precision == "mixed_float16" else None,
    )
    compile_with(model, optimizer)
    return model
