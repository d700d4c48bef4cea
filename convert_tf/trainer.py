"""What `keras.Model.fit` trains: a dual encoder under its objective, its optimizer, its precision.

Reference: arXiv 1911.03688 §2.1 ("Input-Response Interaction", "Quantization"), §2.2, §3.1.
"""

import math
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from convert_tf.data.batches import PAIR
from convert_tf.devices import has_gpu, is_tensorflow_on_cpu
from convert_tf.distillation import vector_losses
from convert_tf.encoders import DualEncoder
from convert_tf.initializers import GlorotUniform
from convert_tf.losses import annealed_scale, distinct_responses, in_batch_softmax_losses
from convert_tf.micro_batches import encode_micro_batches, is_in_micro_batches
from convert_tf.train_config import TrainConfig

# Of what encoding responses are ranked, all three by a multi-context model.
OBJECTIVES = ("context", "extra_context", "both")

# bfloat16 has to win clearly: it costs accuracy, and a busy machine makes timings uncertain.
SPEED_UP_THAT_COUNTS = 1.2


def compiles_shapes() -> bool:
    """Whether a training step is compiled for each shape of its batch, by XLA.

    Not on TensorFlow's CPU: XLA has no fast 16-bit matmul there.
    """
    return keras.backend.backend() == "jax" or has_gpu()


def matmul_seconds(dtype: str, *, rows: int = 2048, repeats: int = 5) -> float:
    """Median seconds of one matmul `[rows, 512] × [512, 2048]` + bias in `dtype`."""
    rng = np.random.default_rng(0)
    x, kernel, bias = (
        ops.cast(rng.standard_normal(shape, dtype=np.float32), dtype)
        for shape in ((rows, 512), (512, 2048), (2048,))
    )
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        y = ops.add(ops.matmul(x, kernel), bias)
        ops.convert_to_numpy(ops.cast(y[0, 0], "float32"))
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds[1:]))


def choose_precision(requested: str = "auto") -> str:
    """The precision to train in: what was asked for, or what this device does fast.

    `auto` is `mixed_float16` on a GPU; on a CPU it is `mixed_bfloat16` where a short timed matmul
    is clearly faster than in float32, else `float32`. float16 is never chosen on a CPU:
    TensorFlow's
    fused matmul + bias is thousands of times slower there.

    Args:
      requested: a `TrainConfig.precision`.

    Returns:
      A Keras dtype policy name.
    """
    if requested == "mixed_float16" and not has_gpu() and keras.backend.backend() == "tensorflow":
        warnings.warn(
            "mixed_float16 on TensorFlow's CPU is thousands of times slower than mixed_bfloat16 in "
            "matmul + bias. Use --precision=mixed_bfloat16 or auto.",
            stacklevel=2,
        )
    if requested != "auto":
        return requested
    if has_gpu():
        return "mixed_float16"
    faster = matmul_seconds("float32") / matmul_seconds("bfloat16")
    return "mixed_bfloat16" if faster >= SPEED_UP_THAT_COUNTS else "float32"


def learning_rate_schedule(config: TrainConfig) -> keras.optimizers.schedules.LearningRateSchedule:
    """Linear warm-up from 0, then cosine decay to the final learning rate at the last step."""
    return keras.optimizers.schedules.CosineDecay(
        0.0 if config.warmup_steps else config.learning_rate,
        decay_steps=max(config.steps - config.warmup_steps, 1),
        alpha=config.final_learning_rate / config.learning_rate,
        warmup_target=config.learning_rate if config.warmup_steps else None,
        warmup_steps=config.warmup_steps,
    )


def _with_embedding_clip(base: type, table: Any, max_norm: float) -> type:
    """`base`, an optimizer class, with dense gradients and one variable's clipped by its L2 norm.

    TensorFlow's gradient of a gathered table is slices, one for each time that a row was read:
    their norm is not the gradient's, and Keras cannot divide them by a loss scale.
    """

    class WithEmbeddingClip(base):  # type: ignore[misc, valid-type]
        def apply(self, grads: Any, trainable_variables: Any = None) -> None:
            known = trainable_variables or self._trainable_variables
            super().apply(
                [self._prepare(grad, v) for grad, v in zip(grads, known, strict=True)],
                trainable_variables,
            )

        def _prepare(self, grad: Any, variable: Any) -> Any:
            # Gradients still carry the loss scale here.
            limit = max_norm * (self.loss_scale_factor or 1.0) if variable is table else 0.0
            if hasattr(grad, "indices"):
                if is_tensorflow_on_cpu():
                    from convert_tf.tensorflow_cpu import dense_gradient

                    return dense_gradient(grad, max_norm=limit)
                grad = ops.zeros(variable.shape, variable.dtype) + grad
            if grad is None or not limit:
                return grad
            norm = ops.sqrt(ops.sum(ops.square(ops.cast(grad, "float32"))))
            return grad * ops.cast(limit / ops.maximum(norm, limit), grad.dtype)

    WithEmbeddingClip.__name__ = base.__name__
    return WithEmbeddingClip


def make_optimizer(
    config: TrainConfig,
    *,
    embedding_table: Any,
    precision: str,
    extend: Callable[[Any], Any] | None = None,
) -> keras.optimizers.Optimizer:
    """The optimizer of a run.

    Args:
      config: reads optimizer, learning rates, steps, rho, weight decay, clip and loss scale.
      embedding_table: the variable whose gradient is clipped.
      precision: a dtype policy name; `mixed_float16` turns the static loss scale on.
      extend: what makes a subclass of the optimizer's class, or None.

    Returns:
      A Keras optimizer.

    Reference: arXiv 1911.03688 §3.1; arXiv 1710.03740 §3.2 (loss scaling).
    """
    classes = {
        "adadelta": (keras.optimizers.Adadelta, {"rho": config.adadelta_rho}),
        "adam": (keras.optimizers.Adam, {}),
        "adamw": (keras.optimizers.AdamW, {"weight_decay": config.weight_decay}),
        "adamax": (keras.optimizers.Adamax, {}),
    }
    base, options = classes[config.optimizer]
    if is_tensorflow_on_cpu():
        from convert_tf.tensorflow_cpu import in_one_pass

        base = in_one_pass(base)
    if extend is not None:
        base = extend(base)
    return _with_embedding_clip(base, embedding_table, config.embedding_clip)(
        learning_rate=learning_rate_schedule(config),
        loss_scale_factor=config.loss_scale if precision == "mixed_float16" else None,
        **options,
    )


class ResponseRanking(keras.Model):
    """A dual encoder under its training objective: pick each context's response from the batch.

    A multi-context model has three such objectives, which are added: given the context (that of a
    single-context model), given the earlier turns only, and given both. An example without earlier
    turns has no second one, and the third from its context alone; its response is a negative of the
    other examples in each.

    Args:
      encoder: the dual encoder.
      scale_start, scale_end, scale_anneal_steps: see `TrainConfig`; `scale_end` 0 means
        √encoding_dim.
      label_smoothing: probability spread over the negatives.
      l2: factor of the sum of squared matrix weights.
      distillation: see `TrainConfig`.
      teacher_dim: width of the teacher's vectors; 0 for no teacher.

    Call arguments:
      inputs: the packed batch that `DualEncoder` takes. Where it has `response_groups`, int32
        `[batch]`, equal responses are no negatives of one another; `negative_slots`, int32 `[batch
        × k]`, are further responses, negatives of each context, whose `negative_groups` go with
        `response_groups`; `teacher_context` and `teacher_response`, float32 `[batch, teacher_dim]`,
        are what is distilled.

    Returns:
      dict of what the encoder returns and the `scale` of the cosines, a scalar.

    Reference: arXiv 1911.03688 §2.1 equation 1, §2.2, §3.1. As J of equation 1 is a sum over
    examples, each objective here is a sum over the examples that have it, divided by the batch
    size; the paper leaves open how the three are combined.
    """

    def __init__(
        self,
        encoder: DualEncoder,
        *,
        scale_start: float = 1.0,
        scale_end: float = 0.0,
        scale_anneal_steps: int = 10_000,
        label_smoothing: float = 0.2,
        l2: float = 1e-5,
        distillation: float = 0.0,
        teacher_dim: int = 0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.encoder = encoder
        self.scale_start = scale_start
        self.scale_end = scale_end or math.sqrt(encoder.config.encoding_dim)
        self.scale_anneal_steps = scale_anneal_steps
        self.label_smoothing = label_smoothing
        self.l2 = l2
        self.distillation = distillation if teacher_dim else 0.0
        if self.distillation:
            self.teacher_projection = keras.layers.Dense(
                teacher_dim,
                use_bias=False,
                kernel_initializer=GlorotUniform(),
                dtype=encoder.dtype_policy,
                name="teacher_projection",
            )
            self.teacher_projection.build((None, encoder.config.reduced_dim))
        self.steps_done = self.add_weight(
            shape=(), initializer="zeros", dtype="int32", trainable=False, name="steps_done"
        )
        self.objectives = OBJECTIVES if encoder.config.multi_context else OBJECTIVES[:1]
        prefixes = {name: "" if name == OBJECTIVES[0] else f"{name}_" for name in self.objectives}
        self.accuracies = {
            name: keras.metrics.Mean(name=f"{prefix}batch_accuracy")
            for name, prefix in prefixes.items()
        }
        self.ranking_losses = {
            name: keras.metrics.Mean(name=f"{prefix}ranking_loss")
            for name, prefix in prefixes.items()
        }
        self.built = True

    def call(self, inputs: dict[str, Any], training: bool = False) -> dict[str, Any]:
        if is_in_micro_batches(inputs):
            encodings = encode_micro_batches(self.encoder, inputs, training=training)
        else:
            encodings = self.encoder(inputs, training=training)
        scale = annealed_scale(
            ops.convert_to_tensor(self.steps_done),
            start=self.scale_start,
            end=self.scale_end,
            anneal_steps=self.scale_anneal_steps,
        )
        if training:
            self.steps_done.assign(self.steps_done + 1)
        return {**encodings, "scale": scale}

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        is_candidate = self._is_candidate(x)
        loss = sum(
            ops.mean(self._ranking_losses(y_pred, cosines, is_candidate) * counts)
            for _, cosines, counts in self._objectives(y_pred)
        )
        loss = loss + self._distillation_loss(x, y_pred)
        if self.l2:
            matrices = [v for v in self.encoder.trainable_variables if len(v.shape) > 1]
            loss = loss + self.l2 * sum(
                ops.sum(ops.square(ops.convert_to_tensor(v))) for v in matrices
            )
        return loss

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        is_candidate = self._is_candidate(x)
        for name, cosines, counts in self._objectives(y_pred):
            losses = self._ranking_losses(y_pred, cosines, is_candidate)
            own = ops.diagonal(cosines)[:, None]
            # Mined negatives are left out, so that the share can be held against runs without.
            cosines = cosines[:, : ops.shape(cosines)[0]]
            is_first = ops.sum(ops.cast(cosines >= own, "int32"), axis=1) == 1
            self.accuracies[name].update_state(ops.cast(is_first, "float32"), counts)
            self.ranking_losses[name].update_state(losses, counts)
        return self.get_metrics_result()

    def _ranking_losses(self, y_pred: dict[str, Any], cosines: Any, is_candidate: Any) -> Any:
        return in_batch_softmax_losses(
            y_pred["scale"] * cosines, self.label_smoothing, is_candidate=is_candidate
        )

    def _is_candidate(self, inputs: dict[str, Any]) -> Any:
        """Which responses each context is ranked among, bool `[batch, columns]`; None for all."""
        if "response_groups" not in inputs:
            return None
        own = inputs["response_groups"]
        groups = own
        if "negative_groups" in inputs:
            groups = ops.concatenate([own, inputs["negative_groups"]])
        return distinct_responses(own, groups)

    def _distillation_loss(self, inputs: dict[str, Any], y_pred: dict[str, Any]) -> Any:
        """How far the reduced encodings, mapped linearly, point away from the teacher's vectors."""
        if not self.distillation:
            return 0.0
        losses = [
            vector_losses(
                self.teacher_projection(y_pred[f"reduced_{name}"]), inputs[f"teacher_{name}"]
            )
            for name in PAIR
        ]
        return self.distillation * sum(ops.mean(loss) for loss in losses)

    def _objectives(self, y_pred: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
        """Each one's name, cosines, and 1 or 0 `[batch]`: who has it.

        Cosines are `[batch, batch]`, or `[batch, batch + batch × k]` with mined negatives.
        """
        encoded = [y_pred[n] for n in ("response_encoding", "negative_encoding") if n in y_pred]
        responses = ops.transpose(ops.concatenate(encoded))
        for name in self.objectives:
            encoding = y_pred[f"{name}_encoding"]
            if name == "extra_context":
                counts = ops.cast(y_pred["has_extra_context"], "float32")
            else:
                counts = ops.ones_like(encoding[:, 0])
            yield name, ops.matmul(encoding, responses), counts


def make_ranking_model(
    encoder: DualEncoder, config: TrainConfig, *, precision: str, teacher_dim: int = 0
) -> ResponseRanking:
    """`encoder` under its objective, compiled with its optimizer, ready for `fit`.

    Args:
      encoder: the dual encoder.
      config: the objective's options and the optimizer's.
      precision: a dtype policy name.
      teacher_dim: width of the vectors of a teacher; 0 for none.
    """
    model = ResponseRanking(
        encoder,
        scale_start=config.scale_start,
        scale_end=config.scale_end,
        scale_anneal_steps=config.scale_anneal_steps,
        label_smoothing=config.label_smoothing,
        l2=config.l2,
        distillation=config.distillation,
        teacher_dim=teacher_dim,
    )
    optimizer = make_optimizer(
        config, embedding_table=encoder.trunk.embedding.table, precision=precision
    )
    optimizer.build(model.trainable_variables)
    # The loss scale is the optimizer's own and static.
    model.compile(optimizer=optimizer, auto_scale_loss=False, jit_compile=compiles_shapes())
    return model
