"""What only some installations have: the extras of setup.py, and errors that name them.

The base installation has what modules, `SentenceEncoder`, training and intents need. An
installation without dependencies, and with numpy and onnxruntime, reads `.onnx` files.
"""

import contextlib
from collections.abc import Iterator


class MissingLibraryError(ImportError):
    """A library that is not installed; the message says what to install."""


@contextlib.contextmanager
def needs(extra: str, purpose: str, *, package: str = "") -> Iterator[None]:
    """Says in one line what to install where an import in the block fails.

    Args:
      extra: a name of `extras_require` in setup.py; "" for what the base installation has.
      purpose: what needs it, as the beginning of a sentence: "Sorting comments".
      package: instead of an extra, what is installed by itself.

    Raises:
      MissingLibraryError: a module was not found.

    Example:
      with needs("faiss", "Search with FAISS"):
          import faiss
    """
    try:
        yield
    except ModuleNotFoundError as error:
        wanted = f"the extra [{extra}]" if extra else "what pip installs with convert_tf"
        target = f"'convert_tf[{extra}]'" if extra else "'convert_tf'"
        if package:
            wanted = target = package
        raise MissingLibraryError(
            f"{purpose} needs {wanted}. Received: {error}. Run pip install {target}.",
            name=error.name,
        ) from error
