"""Import TensorFlow and Keras without optional libraries, so that commands start sooner.

At their import, TensorFlow Lite imports JAX, and Keras imports scikit-learn and matplotlib, for
functions that no command calls. Each of them continues without the library if it is missing.
"""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

# The optional libraries, and the modules that import them.
_LIBRARIES = ("jax", "matplotlib", "sklearn")
_IMPORTERS = (
    "tensorflow.lite.python.util",
    "keras.src.callbacks.orbax_checkpoint",
    *("keras.src.wrappers.fixes", "keras.src.wrappers.sklearn_wrapper", "keras.src.wrappers.utils"),
    "keras.src.visualization.plot_bounding_box_gallery",
    "keras.src.visualization.plot_image_gallery",
)


def skip_optional_imports() -> None:
    """Let TensorFlow and Keras find none of these libraries. All other modules find them.

    This function changes how the process imports modules, so libraries must not call it.
    """
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    """Import hook that finds no module, and reports `_LIBRARIES` as missing to `_IMPORTERS`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] in _LIBRARIES and _importer() in _IMPORTERS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def _importer() -> str | None:
    """Return the name of the module whose import statement is being carried out."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_globals.get("__name__") not in (__name__, "importlib._bootstrap"):
            return frame.f_globals.get("__name__")
    return None
