"""A model with its loss, and a function that trains it for one step on TensorFlow or JAX."""

from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from convert_tf.numerics.devices import compiles_shapes


class Objective(keras.Model):
    """A model with its loss and its metrics.

    Subclasses define `outputs_of`, `loss_of` and `measures_of`.

    Args:
      encoder: the model to train. A run saves it without the objective.
      means: names of the metrics. Each metric is reported as a mean over batches.
      l2: factor for the L2 penalty, the sum of the encoder's squared matrix weights. Biases are not
        penalised, not even the relative position biases, which are matrices with a row per head.

    Attributes:
      steps_done: number of training steps so far, int32 `[]`.
    """

    def __init__(
        self, encoder: Any, means: Sequence[str] = (), *, l2: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.encoder = encoder
        self.l2 = l2
        self.steps_done = self.add_weight(
            shape=(), initializer="zeros", dtype="int32", trainable=False, name="steps_done"
        )
        self.means = {name: keras.metrics.Mean(name=name) for name in means}

    def outputs_of(self, inputs: dict[str, Any], training: bool) -> Any:
        """Return the outputs of the model for a batch."""
        raise NotImplementedError

    def loss_of(self, inputs: dict[str, Any], outputs: Any) -> Any:
        """Return the loss of a batch, a scalar, without the L2 penalty."""
        raise NotImplementedError

    def measures_of(self, inputs: dict[str, Any], outputs: Any) -> Iterator[tuple[str, Any, Any]]:
        """For each metric, yield its name, its values for a batch, and their weights or None."""
        yield from ()

    def call(self, inputs: dict[str, Any], training: bool = False) -> Any:
        outputs = self.outputs_of(inputs, training)
        if training:
            self.steps_done.assign(self.steps_done + 1)
        return outputs

    def compute_loss(self, x: Any, y: Any = None, y_pred: Any = None, *_: Any) -> Any:
        loss = self.loss_of(x, y_pred)
        if not self.l2:
            return loss
        matrices = [
            v
            for v in self.encoder.trainable_variables
            if len(v.shape) > 1 and not v.name.endswith("_bias")
        ]
        return loss + self.l2 * sum(ops.sum(ops.square(ops.convert_to_tensor(v))) for v in matrices)

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        for name, values, weights in self.measures_of(x, y_pred):
            self.means[name].update_state(values, sample_weight=weights)
        return self.get_metrics_result()


def compile_with(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> None:
    """Compile a model with an optimizer, without the dynamic loss scale that Keras would add."""
    optimizer.build(model.trainable_variables)
    model.compile(optimizer=optimizer, auto_scale_loss=False, jit_compile=compiles_shapes())


class _TensorFlowStep:
    def __init__(self, model: Objective) -> None:
        import tensorflow as tf

        self._step = tf.function(
            model.train_step, reduce_retracing=True, jit_compile=model.jit_compile
        )
        self._is_traced = tf.config.functions_run_eagerly()

    def __call__(self, inputs: dict[str, np.ndarray]) -> dict[str, Any]:
        if not self._is_traced:
            self._trace(inputs)
        return self._step((inputs,))

    def _trace(self, inputs: dict[str, np.ndarray]) -> None:
        """Trace the step once, for batches with any number of rows."""
        import tensorflow as tf

        specs = {name: tf.TensorSpec((None, *x.shape[1:]), x.dtype) for name, x in inputs.items()}
        self._step.get_concrete_function((specs,))
        self._is_traced = True

    def sync(self) -> None:
        """Do nothing, because a step on TensorFlow updates the model's variables itself."""


class _JaxStep:
    def __init__(self, model: Objective) -> None:
        import jax

        self._model = model
        self._distribution = keras.distribution.distribution()
        shardings = None
        if self._distribution is not None:
            shardings = (None, jax.tree.map(lambda x: x.sharding, self._read()))
        self._step = jax.jit(model.train_step, donate_argnums=0, out_shardings=shardings)
        self._state: Any = None

    def __call__(self, inputs: dict[str, np.ndarray]) -> dict[str, Any]:
        state = self._read() if self._state is None else self._state
        logs, self._state = self._step(state, (self._on_devices(inputs),))
        return logs

    def sync(self) -> None:
        if self._state is not None:
            for variables, values in zip(self._variables(), self._state, strict=True):
                for variable, value in zip(variables, values, strict=True):
                    variable.assign(value)
            self._state = None

    def _variables(self) -> tuple[list[Any], ...]:
        model = self._model
        return (
            model.trainable_variables,
            model.non_trainable_variables,
            model.optimizer.variables,
            model.metrics_variables,
        )

    def _read(self) -> tuple[list[Any], ...]:
        return tuple([variable.value for variable in of_kind] for of_kind in self._variables())

    def _on_devices(self, inputs: dict[str, np.ndarray]) -> dict[str, Any]:
        """Distribute a batch over all devices. Each process passes its own share of the batch."""
        if self._distribution is None:
            return inputs
        import jax

        layouts = {name: self._distribution.get_data_layout(x.shape) for name, x in inputs.items()}
        return {
            name: jax.make_array_from_process_local_data(layouts[name].backend_layout, x)
            for name, x in inputs.items()
        }


def make_step(model: Objective) -> _JaxStep | _TensorFlowStep:
    """Return a function that trains a compiled model for one step on Keras's backend.

    The function takes the inputs of a batch and returns the means of the metrics since their last
    reset, as scalars. Its method `sync` writes the state of training to the model's variables. Call
    `sync` before you read or set these variables.
    """
    return _JaxStep(model) if keras.backend.backend() == "jax" else _TensorFlowStep(model)
