"""Optimizers and learning rate schedules for training runs."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from convert_tf.config.train import RankingTraining
from convert_tf.numerics.devices import is_tensorflow_on_cpu

LOSS_SCALE = 128.0  # the static loss scale for mixed_float16
ADADELTA_RHO = 0.9  # arXiv 1911.03688 §3.1
WEIGHT_DECAY = 0.01  # for AdamW (arXiv 1905.01969 §5.1)


def _say_if_still_rising(config: RankingTraining) -> None:
    if config.warmup_steps >= config.steps:
        print(
            f"the learning rate rises until the last step: {config.warmup_steps} steps of warm-up, "
            f"{config.steps} steps in all; lower --warmup_steps or raise --steps to reach the peak"
        )


def learning_rate_schedule(
    config: RankingTraining,
) -> keras.optimizers.schedules.LearningRateSchedule:
    """Return a schedule with linear warm-up from 0 and cosine decay to `final_learning_rate`.

    With warm-up, the first step has a learning rate of 0. `final_learning_rate` is the end of the
    decay, one step after the last one. The last step itself has a slightly higher learning rate.
    """
    return keras.optimizers.schedules.CosineDecay(
        0.0 if config.warmup_steps else config.learning_rate,
        decay_steps=max(config.steps - config.warmup_steps, 1),
        alpha=config.final_learning_rate / config.learning_rate,
        warmup_target=config.learning_rate if config.warmup_steps else None,
        warmup_steps=config.warmup_steps,
    )


class InverseSquareRoot(keras.optimizers.schedules.LearningRateSchedule):
    """Schedule with linear warm-up from 0, then decay with the inverse square root of the step.

    Args:
      peak: learning rate at the end of the warm-up.
      warmup_steps: length of the warm-up, in steps.

    Reference: arXiv 1706.03762 §5.3, as in XLM.
    """

    def __init__(self, peak: float, warmup_steps: int) -> None:
        self.peak = peak
        self.warmup_steps = warmup_steps

    def __call__(self, step: Any) -> Any:
        share = (ops.cast(step, "float32") + 1.0) / self.warmup_steps
        return self.peak * ops.minimum(share, ops.rsqrt(share))

    def get_config(self) -> dict[str, Any]:
        return {"peak": self.peak, "warmup_steps": self.warmup_steps}


def _with_embedding_clip(base: type, table: Any, max_norm: float) -> type:
    """Return an optimizer class that makes gradients dense and clips the gradient for `table`.

    In TensorFlow, the gradient for an embedding table consists of slices, one for each time that a
    row was read. The norm of the slices is not the norm of the gradient. Also, Keras cannot divide
    slices by a loss scale.
    """

    class WithEmbeddingClip(base):  # type: ignore[misc, valid-type]
        def apply(self, grads: Any, trainable_variables: Any = None) -> None:
            known = trainable_variables or self._trainable_variables
            super().apply(
                [self._prepare(grad, v) for grad, v in zip(grads, known, strict=True)],
                trainable_variables,
            )

        def _prepare(self, grad: Any, variable: Any) -> Any:
            # At this point, gradients are still multiplied by the loss scale.
            limit = max_norm * (self.loss_scale_factor or 1.0) if variable is table else 0.0
            if hasattr(grad, "indices"):
                if is_tensorflow_on_cpu():
                    from convert_tf.numerics.tensorflow_cpu import dense_gradient

                    return dense_gradient(grad, max_norm=limit)
                grad = ops.zeros(variable.shape, variable.dtype) + grad
            if grad is None or not limit:
                return grad
            norm = ops.sqrt(ops.sum(ops.square(ops.cast(grad, "float32"))))
            return grad * ops.cast(limit / ops.maximum(norm, limit), grad.dtype)

    WithEmbeddingClip.__name__ = base.__name__
    return WithEmbeddingClip


def make_optimizer(
    config: RankingTraining,
    *,
    embedding_table: Any,
    embedding_clip: float,
    precision: str,
    extend: Callable[[Any], Any] | None = None,
) -> keras.optimizers.Optimizer:
    """Return the optimizer for a run.

    Args:
      config: training options. Only the optimizer, the learning rates and the numbers of steps are
        used.
      embedding_table: variable whose gradient is clipped.
      embedding_clip: maximum L2 norm of the gradient for `embedding_table`. 0 turns clipping off.
      precision: name of a dtype policy. `mixed_float16` turns on the static loss scale.
      extend: function that takes the optimizer's class and returns a subclass of it, or None.

    Returns:
      A Keras optimizer. If the learning rate still rises in the last step, a note is printed.

    Reference: arXiv 1911.03688 §3.1; arXiv 1710.03740 §3.2 (loss scaling).
    """
    classes = {
        "adadelta": (keras.optimizers.Adadelta, {"rho": ADADELTA_RHO}),
        "adam": (keras.optimizers.Adam, {}),
        "adamw": (keras.optimizers.AdamW, {"weight_decay": WEIGHT_DECAY}),
        "adamax": (keras.optimizers.Adamax, {}),
    }
    _say_if_still_rising(config)
    base, options = classes[config.optimizer]
    if is_tensorflow_on_cpu():
        from convert_tf.numerics.tensorflow_cpu import in_one_pass

        base = in_one_pass(base)
    if extend is not None:
        base = extend(base)
    return _with_embedding_clip(base, embedding_table, embedding_clip)(
        learning_rate=learning_rate_schedule(config),
        loss_scale_factor=LOSS_SCALE if precision == "mixed_float16" else None,
        **options,
    )


def current_learning_rate(optimizer: keras.optimizers.Optimizer) -> float:
    """Return the learning rate that an optimizer will use in its next step.

    The rate is computed from local copies, because a single process cannot compute with arrays that
    are distributed over several processes.
    """
    scalars = [(v, ops.convert_to_numpy(v)) for v in optimizer.variables if v.shape == ()]
    with keras.StatelessScope(scalars):
        return float(ops.convert_to_numpy(optimizer.learning_rate))


def decaying_on_plateau(base: Any) -> Any:
    """Return a subclass of an optimizer class whose learning rate has an adjustable factor.

    The factor is a variable of the optimizer, so it is saved and restored with the optimizer's
    other variables. Compiled steps also see its current value.

    Args:
      base: optimizer class from `keras.optimizers`.

    Returns:
      The subclass. Its variable `plateau_factor`, initially 1, multiplies the learning rate. Its
      method `decay(factor)` multiplies `plateau_factor`.

    Reference: arXiv 1905.01969 §5.1.
    """

    class DecayingOnPlateau(base):
        def build(self, variables: Any) -> None:
            if self.built:
                return
            super().build(variables)
            self.plateau_factor = self.add_variable((), initializer="ones", name="plateau_factor")

        def decay(self, factor: float) -> None:
            self.plateau_factor.assign(self.plateau_factor * factor)

        def _get_current_learning_rate(self) -> Any:
            return super()._get_current_learning_rate() * self.plateau_factor

    DecayingOnPlateau.__name__ = base.__name__
    return DecayingOnPlateau
