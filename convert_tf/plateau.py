"""A learning rate that falls when an evaluation is no better than the best before it."""

from typing import Any


def decaying_on_plateau(base: Any) -> Any:
    """A subclass of an optimizer's class, with a factor on the learning rate.

    The factor is one of the optimizer's variables: it is saved and resumed with the others, and a
    compiled step sees it change.

    Args:
      base: a class of `keras.optimizers`.

    Returns:
      The class. Its variable `plateau_factor`, 1 at first, multiplies the learning rate, and
      `decay(factor)` multiplies that variable.

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
