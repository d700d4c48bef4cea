"""One step of training: a function of a batch, compiled by the backend.

It does what `keras.Model.train_on_batch` does, and less between two steps: on JAX the variables are
only written when someone needs them, and metrics go on until someone resets them.
"""

from typing import Any

import keras
import numpy as np

from convert_tf.training.objective import Objective


class _TensorFlowStep:
    def __init__(self, model: Objective):
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
        """Trace the step for any number of rows, or it would be traced for the first number too."""
        import tensorflow as tf

        specs = {name: tf.TensorSpec((None, *x.shape[1:]), x.dtype) for name, x in inputs.items()}
        self._step.get_concrete_function((specs,))
        self._is_traced = True

    def sync(self) -> None:
        """Do nothing: the step assigns its variables itself."""


class _JaxStep:
    def __init__(self, model: Objective):
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
        """Each process gives its share of a batch."""
        if self._distribution is None:
            return inputs
        import jax

        layouts = {name: self._distribution.get_data_layout(x.shape) for name, x in inputs.items()}
        return {
            name: jax.make_array_from_process_local_data(layouts[name].backend_layout, x)
            for name, x in inputs.items()
        }


def make_step(model: Objective) -> _JaxStep | _TensorFlowStep:
    """Return the step of a compiled model, on Keras's backend.

    It takes the inputs of a batch and returns the metrics since they were reset, as scalars. Its
    `sync` writes the state into the variables of the model; call it before you read or set them.
    """
    return _JaxStep(model) if keras.backend.backend() == "jax" else _TensorFlowStep(model)
