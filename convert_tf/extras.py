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


KERAS_BACKENDS = ("tensorflow", "jax")  # Keras backends that convert_tf can use
_OTHER_BACKENDS = ("torch", "openvino")


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


def check_unpacked() -> None:
    """Raise `ImportError` if this package is inside a zip file, where its data cannot be read."""
    if not Path(__file__).parent.is_dir():
        raise ImportError(
            "convert_tf cannot run from a zip file: it reads files next to its code. Unpack it."
        )


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
      ValueError: if the module belongs to a Keras backend that convert_tf cannot use.

    Example:
      with needs("faiss", "Search with FAISS"):
          import faiss
    """
    try:
        yield
    except MissingLibraryError:
        raise
    except ImportError as error:
        if extra == "train":
            _check_backend(error)
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
      ValueError: if Keras lacks the library of a backend that convert_tf cannot use.
    """
    try:
        yield
    except MissingLibraryError:
        raise
    except ImportError as error:
        _check_backend(error)
        if (error.name or "").partition(".")[0] not in _OF_TRAINING:
            raise
        with needs("train", purpose):
            raise


def unusable_setting(name: str, value: str) -> ValueError:
    """Return the error for a Keras setting that convert_tf cannot use.

    Args:
      name: `"backend"` or `"floatx"`, as in `keras.json`.
      value: the user's value.
    """
    where, usable = "keras.json or keras.config.set_floatx sets", "float32"
    remedy = "Change it there"
    if name == "backend":
        where, usable = "KERAS_BACKEND or keras.json sets", " or ".join(KERAS_BACKENDS)
        remedy = f"Set KERAS_BACKEND={KERAS_BACKENDS[0]}"
    return ValueError(
        f"{where} Keras's {name} to {value!r}, which convert_tf cannot use. It needs {usable}. "
        f"{remedy} and start Python again."
    )


def _check_backend(error: ImportError) -> None:
    # TensorFlow replaces the error of Keras by one that does not name the library.
    cause: BaseException | None = error
    while cause is not None:
        library = (getattr(cause, "name", None) or "").partition(".")[0]
        if library in _OTHER_BACKENDS:
            raise unusable_setting("backend", library) from error
        cause = cause.__context__
