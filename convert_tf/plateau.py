"""A learning rate that falls when an evaluation is no better than the best before it."""

from typing import Any

import keras


def decay_on_plateau(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """An optimizer like `optimizer`, not yet built, with a factor on its learning rate.

    The factor is one of the optimizer's variables: it is saved and resumed with the others, and a
    compiled step sees it change.

    Args:
      optimizer: not built; its schedule is kept and multiplied.

    Returns:
      An optimizer whose variable `plateau_factor`, 1 at first, multiplies its learning rate.
      `decay(factor)` multiplies that variable.

    Reference: arXiv 1905.01969 §5.1.
    """
    base: Any = type(optimizer)

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
    return DecayingOnPlateau.from_config(optimizer.get_config())
