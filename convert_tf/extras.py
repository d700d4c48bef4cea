"""Optional libraries and errors about missing ones.

Optional libraries belong to the extras of setup.py. Modules, `SentenceEncoder`, training and
intents need none. `.onnx` files also work without any dependency except numpy and onnxruntime.
"""

import contextlib
from collections.abc import Iterator


class MissingLibraryError(ImportError):
    """Error: a library is not installed. The message says what to install."""


@contextlib.contextmanager
def needs(extra: str, purpose: str, *, package: str = "") -> Iterator[None]:
    """Turn a failed import in this block into an error that says what to install.

    Args:
      extra: name of an extra in setup.py; "" for a library of the base installation.
      purpose: what needs the library, as the subject of a sentence, e.g. "Sorting comments".
      package: package to install, for a library that belongs to no extra.

    Raises:
      MissingLibraryError: if a module is not installed.

    Example:
      with needs("faiss", "Search with FAISS"):
          import faiss
    """
    try:
        yield
    except MissingLibraryError:
        raise
    except ImportError as error:
        wanted = f"the extra [{extra}]" if extra else "the dependencies of convert_tf"
        target = f"'convert_tf[{extra}]'" if extra else "'convert_tf'"
        if package:
            wanted = target = package
        raise MissingLibraryError(
            f"{purpose} needs {wanted} ({error}). Run pip install {target}.", name=error.name
        ) from error
