"""The released modules by name: found on this machine, or downloaded once.

A name stands for a folder `hub_modules/NAME/VERSION` in the current folder or beside the package;
else for that of the installed package `convert-tf-modules`; else for a file of a release, which
`scripts/release.py` writes: archives, `.onnx` files and `SHA256SUMS` at one address.
"""

import importlib.util
import os
import re
from pathlib import Path

from convert_tf.storage.downloads import ARCHIVE_SUFFIX, DownloadError, fetched

# The newest version of each.
RELEASED = {"convert_small": 1, "convert": 1, "convert_multi_context": 1}
# Where a release is; none is public yet, and an address that is nobody's may become anybody's.
RELEASE_URL = ""
URL_VARIABLE = "CONVERT_TF_MODULES_URL"
MODULES_PACKAGE = "convert_tf_modules"
ONNX_SUFFIX = ".onnx"
_NAME = re.compile(
    rf"(?P<name>{'|'.join(RELEASED)})(?:/(?P<version>[1-9]\d*))?(?P<onnx>\{ONNX_SUFFIX})?"
)


class ModuleNameError(ValueError):
    """A name of no released module, or of one that could not be had."""


def module_path(name: str) -> str:
    """A released module as a folder, for `hub.load` and everything that reads modules.

    Args:
      name: `"convert"`, `"convert_small"` or `"convert_multi_context"`, the newest version of
        each; `"convert/1"` for a certain one; with `.onnx` behind it the file for the light
        runtime.

    Returns:
      The path of a folder, or of an `.onnx` file.

    Raises:
      ModuleNameError: there is none of that name, or it is not here and could not be downloaded.

    Example:
      module = hub.load(convert_tf.module_path("convert"))
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise ModuleNameError(
            f"A released module is one of {', '.join(RELEASED)}, with /VERSION or .onnx behind it "
            f"where wanted. Received: {name!r}. For a folder of your own, pass its path."
        )
    own = match["name"]
    version = match["version"] or str(RELEASED[own])
    suffix = match["onnx"] or ""
    local = Path(own, version) if not suffix else Path(f"{own}-{version}{suffix}")
    for folder in _local_folders():
        if (folder / local).exists():
            return str(folder / local)
    return _downloaded(name, f"{own}-{version}{suffix or ARCHIVE_SUFFIX}")


def model_path(path: str | os.PathLike[str]) -> str:
    """The path of a model that may be given by name.

    Args:
      path: of anything; or the name of a released module, where nothing in the current folder has
        it. Without TensorFlow a name stands for the `.onnx` file.

    Raises:
      ModuleNameError: as in `module_path`.
    """
    text = os.fspath(path)
    if os.path.exists(text) or not _NAME.fullmatch(text):
        return text
    if not text.endswith(ONNX_SUFFIX) and importlib.util.find_spec("tensorflow") is None:
        text += ONNX_SUFFIX
    return module_path(text)


def _local_folders() -> list[Path]:
    """Where modules are, as `NAME/VERSION`, on this machine."""
    found = [Path("hub_modules"), Path(__file__).resolve().parents[2] / "hub_modules"]
    package = importlib.util.find_spec(MODULES_PACKAGE)
    if package is not None and package.origin is not None:
        found.append(Path(package.origin).parent)
    return found


def release_file(name: str) -> Path:
    """A file of the release, downloaded once; an archive as the folder of what is in it.

    Raises:
      DownloadError: it could not be had, or no address of a release is known.
    """
    base = os.environ.get(URL_VARIABLE) or RELEASE_URL
    if not base:
        raise DownloadError(f"no address of a release: {URL_VARIABLE} is not set.")
    return fetched(base, name)


def _downloaded(name: str, file: str) -> str:
    try:
        return str(release_file(file))
    except DownloadError as error:
        raise ModuleNameError(
            f"A module that is named is in ./hub_modules, in the package convert-tf-modules, or "
            f"downloaded. Received: {name!r}, which is not on this machine; {error} Without a "
            f"network: install the wheel convert_tf_modules of a release, set {URL_VARIABLE} to "
            "file:// and the folder of one, or pass the path of a module."
        ) from error
