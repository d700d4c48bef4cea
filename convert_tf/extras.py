"""Errors that say which library is missing and how to install it.

Optional libraries are listed in the extras of pyproject.toml. The base installation can encode
texts, search and classify intents. The extra `train` adds TensorFlow and Keras, which are needed to
train encoders and to open modules. `.onnx` files need only numpy and onnxruntime.
"""

import contextlib
import importlib.metadata
import json
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

_OF_TRAINING = (
    "keras",
    "tensorflow",
    "tensorflow_hub",
    "tensorflow_model_optimization",
    "tensorflow_text",
    "tf_keras",
)


class MissingLibraryError(ImportError):
    """Raised if a library is not installed. The message says what to install."""


def source_folder() -> Path | None:
    """Return the source folder of this package: a clone, or the folder that pip installed it from.

    Return None if the package was installed from an index or a wheel.
    """
    around = Path(__file__).resolve().parents[1]
    if (around / "pyproject.toml").is_file():
        return around
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        # pip records in this file where it installed the package from (PEP 610).
        note = importlib.metadata.distribution("convert_tf").read_text("direct_url.json") or "{}"
        address = urllib.parse.urlsplit(json.loads(note).get("url", ""))  # noqa: TID251 - by pip
        folder = Path(urllib.request.url2pathname(address.path))
        if address.scheme == "file" and folder.is_dir():
            return folder
    return None


@contextlib.contextmanager
def needs(extra: str, purpose: str, *, package: str = "") -> Iterator[None]:
    """Turn a failed import in a `with` block into an error that says what to install.

    Args:
      extra: name of the extra in pyproject.toml that contains the library; "" for a library of the
        base installation.
      purpose: what needs the library, as the subject of a sentence, e.g. "Sorting comments".
      package: name of the package to install, if the library belongs to no extra.

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
        source = str(source_folder() or "convert_tf")
        target = f"'{source}[{extra}]'" if extra else f"'{source}'"
        if package:
            wanted = target = package
        raise MissingLibraryError(
            f"{purpose} needs {wanted} ({error}). Run pip install {target}.", name=error.name
        ) from error


@contextlib.contextmanager
def needs_training(purpose: str) -> Iterator[None]:
    """Turn a failed import of TensorFlow or Keras in a `with` block into an error, as `needs` does.

    Raises:
      MissingLibraryError: if TensorFlow, Keras or a library that extends them is not installed.
    """
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in _OF_TRAINING:
            raise
        with needs("train", purpose):
            raise
