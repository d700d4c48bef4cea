"""Losses for dual encoders. `LOSSES` lists the losses that are defined in this folder."""

import importlib
import pkgutil

from convert_tf.training.encoder.losses.base import Loss


def _found() -> tuple[type[Loss], ...]:
    """Return the subclasses of `Loss` that are defined in this folder, in order of file name."""
    modules = [
        importlib.import_module(f"{__name__}.{module.name}")
        for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name)
    ]
    return tuple(
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Loss)
        and value.__module__ == module.__name__
        and value is not Loss
    )


LOSSES = _found()
