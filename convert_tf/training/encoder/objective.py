"""A dual encoder together with its training losses.

Reference: arXiv 1911.03688 §2.1 ("Input-Response Interaction", "Quantization"), §2.2, §3.1.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from keras import ops

from convert_tf.models.encoder import DualEncoder
from convert_tf.models.losses import annealed_scale
from convert_tf.training.encoder.losses.base import Loss
from convert_tf.training.encoder.micro_batches import encode_micro_batches, is_in_micro_batches
from convert_tf.training.encoder.options import EncoderTraining
from convert_tf.training.optimizers import make_optimizer
from convert_tf.training.step import Objective, compile_with

EMBEDDING_CLIP = 1.0  # arXiv 1911.03688 §3.1


class EncoderObjective(Objective):
    """A dual encoder whose loss is the weighted sum of several losses.

    Args:
      encoder: the dual encoder.
      config: training options. Only the scales of the cosines and `l2` are used.
      parts: losses to sum. Losses with a weight of 0 are only measured. If None, the losses in
        `config` are used.

    Raises:
      ValueError: if two losses have a metric of the same name.

    Call arguments:
      inputs: a packed batch for `DualEncoder`, with the columns that the losses read.

    Returns:
      A dict with the encoder's outputs and with `scale`, the factor for the cosines at this step.
    """

    def __init__(
        self,
        encoder: DualEncoder,
        config: EncoderTraining,
        parts: Sequence[Loss] | None = None,
        **kwargs: Any,
    ) -> None:
        if parts is None:
            parts = [loss for loss in config.losses() if loss.applies_to(encoder.config)]
        metrics = [metric for loss in parts for metric in loss.metrics]
        if repeated := sorted({name for name in metrics if metrics.count(name) > 1}):
            raise ValueError(
                f"Two losses report the same metric: {', '.join(repeated)}. Give your losses "
                "different names."
            )
        super().__init__(encoder, metrics, l2=config.l2, **kwargs)
        self.config = config
        self.parts = tuple(parts)
        self.scale_end = config.scale_end or math.sqrt(encoder.config.encoding_dim)
        for loss in self.parts:
            loss.build(self)
        self.built = True

    def similarity(self, reduced: Any) -> Any:
        """Map reduced encodings to similarity vectors: `[texts, reduced_dim]` → `[texts, dim]`.

        Without a teacher, there is no similarity map, and `reduced` is returned unchanged.
        """
        return self.teacher_projection(reduced) if self.has_similarity_map else reduced

    @property
    def has_similarity_map(self) -> bool:
        """Whether the model has a map from reduced encodings to similarity vectors."""
        return hasattr(self, "teacher_projection")

    def outputs_of(self, inputs: dict[str, Any], training: bool) -> dict[str, Any]:
        if is_in_micro_batches(inputs):
            encodings = encode_micro_batches(self.encoder, inputs, training=training)
        else:
            encodings = self.encoder(inputs, training=training)
        scale = annealed_scale(
            ops.convert_to_tensor(self.steps_done),
            start=self.config.scale_start,
            end=self.scale_end,
            anneal_steps=self.config.scale_anneal_steps,
        )
        return {**encodings, "scale": scale}

    def loss_of(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
        return sum(
            loss.weight * ops.mean(loss(inputs, outputs)) for loss in self.parts if loss.weight > 0
        )

    def measures_of(
        self, inputs: dict[str, Any], outputs: dict[str, Any]
    ) -> Iterator[tuple[str, Any, Any]]:
        for loss in self.parts:
            yield from loss.measures(inputs, outputs)


def make_objective(
    encoder: DualEncoder,
    config: EncoderTraining,
    parts: Sequence[Loss] | None = None,
    *,
    precision: str,
) -> EncoderObjective:
    """Return the dual encoder with its losses, compiled with an optimizer.

    Args:
      encoder: the dual encoder.
      config: options for the objective and the optimizer.
      parts: losses to sum, or None for the losses in `config`.
      precision: name of a dtype policy.
    """
    encoder.trunk.jit_compile_feed_forward()
    model = EncoderObjective(encoder, config, parts)
    optimizer = make_optimizer(
        config,
        embedding_table=encoder.trunk.embedding.table,
        embedding_clip=EMBEDDING_CLIP,
        precision=precision,
    )
    compile_with(model, optimizer)
    return model
