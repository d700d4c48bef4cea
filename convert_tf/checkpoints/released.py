"""Released modules, referred to by name.

A name is looked up in four places, in this order: the folder `hub_modules/NAME/VERSION` in the
current folder; the same folder in the clone that contains the package or from which pip installed
it; the installed package `convert-tf-modules`; and the files of a release, which are downloaded
once. `scripts/release.py` writes releases. When texts are encoded, a name stands for an `.onnx`
file. If this file does not exist, it is made from the module, without TensorFlow, and stored in the
cache of downloads.
"""

import difflib
import importlib.util
import os
import re
import subprocess
import sys
from collections import ChainMap
from pathlib import Path
from typing import NamedTuple

from convert_tf import __version__
from convert_tf.checkpoints.facts import module_form
from convert_tf.checkpoints.kinds import (
    CONFIG_FILE,
    HUB_CARD_FILE,
    ONNX_FILES,
    SAFETENSORS_FILE,
    TOKENIZER_FILE,
    Kind,
    kind_of,
    model_checksum,
)
from convert_tf.checkpoints.limits import LIMIT_FILES
from convert_tf.extras import needs, source_folder
from convert_tf.storage.checksums import checksum
from convert_tf.storage.downloads import (
    ARCHIVE_SUFFIX,
    DownloadError,
    cache_folder,
    fetched,
    made_once,
)
from convert_tf.storage.files import FileWriteError

SCHEME = "hf://"  # for encoders on the Hugging Face hub


class Release(NamedTuple):
    """A version of an encoder or a ranker. Its weights never change.

    Attributes:
      weights: SHA-256 of variables and vocabulary (`convert_tf.checkpoints.identity`).
      graph: SHA-256 of `saved_model.pb`.
      commit: the last commit that contains the version's folder, if the version is no longer
        shipped; otherwise `""`.
    """

    weights: str
    graph: str
    commit: str = ""


RELEASES = {
    "convert_small": {
        1: Release(
            "01eb5f24583e6fbfd51a252c363aecb1e1b04eff79675f2bf6579ff5f492923a",
            "bff175d4d5369b9ac032c291cfd710c8b0f621e47c82d8e6a139f1818cf325a7",
        ),
        2: Release(
            "55b7c228e8ffa5b6443b35b9b12d277178de76feb72e783f30cc96da314217f9",
            "fa58b518c3d9209e490c53638228bd20dfd2a2715524899b911d782c93b2e22b",
        ),
        3: Release(
            "86ed9857c9accdb962e57bdad3e552e4b50c045cba0368a529c09554a35f7ff3",
            "d7310957b69a0f1217d913ac7b85d59da4ac6ee1ea96fd8044bb97496eecf422",
        ),
    },
    "convert": {
        1: Release(
            "334947d82ba47382f9e3a5980cd6dfccade4278ae213473f9ec70a8501494631",
            "93a35e6dbfd31ec74d0771ab850416b4575a258b9f129c81ab469ebbd1b209f4",
        ),
        2: Release(
            "748239da05d07622353a71ae766dda2e34ba8ca22da1f2684c0b306a28ac3251",
            "9bb52ee4700c5dbef79b7a0e89be6b740aeb9dd3adfe62472a7953fea540c74a",
        ),
    },
    "convert_multi_context": {
        1: Release(
            "617d4afa7df15c8183adc15fa40bd4617cb98890f984411ae3ea478f0288abfe",
            "c7c02341a0d2e9241554e26af325ebfa89ce0fbd33635fcaba003502baedf38f",
        ),
        2: Release(
            "db8abcd1bb415ddd21fb6c4ffb02e5aeccc4d35357392010bf461cfeef8760d5",
            "dd34b87c45df8cb546e6a47532478ccc6a2b6722edd87fa37e222684d78e0b96",
        ),
    },
}
RANKER_RELEASES = {
    "convert_rerank_poly": {
        1: Release(
            "3858d29c60020a04c2344cc3634d597aaf25876df78f5ad726144a7f55223b6c",
            "b586988313e80127249d92ec25501d11c7d15656b988111dfaa7b99a758993ba",
        )
    }
}
ALL_RELEASES = ChainMap(RANKER_RELEASES, RELEASES)  # encoders first
# The newest version of each encoder. A name without a version stands for this version.
RELEASED = {name: max(versions) for name, versions in RELEASES.items()}
# Address of the release. It is empty until there is a public release, because somebody else could
# claim an unused address.
RELEASE_URL = ""
URL_VARIABLE = "CONVERT_TF_MODULES_URL"
MODULES_PACKAGE = "convert_tf_modules"
ONNX_SUFFIX = ".onnx"
# Version of the exporter, a part of the identity of .onnx files. Increase it whenever the exporter
# writes different files.
EXPORTER = 5
_NAME = re.compile(
    rf"(?P<name>{'|'.join(ALL_RELEASES)})(?:/(?P<version>[1-9]\d*))?(?P<onnx>\{ONNX_SUFFIX})?"
)


class ModuleNameError(ValueError):
    """Error: there is no model with the given name, or it cannot be downloaded."""


def module_path(name: str) -> str:
    """Return the path of a released module, for example for `hub.load`.

    Args:
      name: `"convert_small"`, `"convert"`, `"convert_multi_context"` or the ranker
        `"convert_rerank_poly"` for the newest version; `"convert/1"` for a specific version. Add
        `.onnx` for the `.onnx` file of an encoder.

    Returns:
      The path of the module's folder, or of the `.onnx` file.

    Raises:
      ModuleNameError: if there is no module with this name, or it cannot be downloaded.

    Example:
      module = hub.load(convert_tf.module_path("convert"))
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise ModuleNameError(
            f"{name!r} is neither a file or folder nor a released module. Pass a path or one of "
            f"{', '.join(ALL_RELEASES)}, optionally followed by /VERSION or, for encoders, .onnx."
        )
    module_name = match["name"]
    releases = ALL_RELEASES[module_name]
    version = match["version"] or str(max(releases))
    suffix = match["onnx"] or ""
    if suffix and module_name in RANKER_RELEASES:
        raise ModuleNameError(f"Rankers have no .onnx file. Pass {name.removesuffix(suffix)}.")
    release = releases.get(int(version))
    if release is None:
        versions = ", ".join(f"{module_name}/{number}" for number in releases)
        raise ModuleNameError(f"There is no version {version} of {module_name}. Pass {versions}.")
    local = Path(module_name, version) if not suffix else Path(f"{module_name}-{version}{suffix}")
    for folder in _local_folders():
        if (folder / local).exists():
            return str(folder / local)
    if suffix:
        for folder in _local_folders():
            if (folder / module_name / version).exists():
                return str(as_onnx(folder / module_name / version))
    try:
        return str(release_file(f"{module_name}-{version}{suffix or ARCHIVE_SUFFIX}"))
    except DownloadError as error:
        if release.commit:
            raise ModuleNameError(
                f"{module_name}/{version} is no longer shipped. In a clone, get its folder with "
                f"git checkout {release.commit} -- hub_modules/{module_name}/{version}, or use "
                f"{module_name}/{max(releases)}."
            ) from error
        raise ModuleNameError(
            f"{name!r} is neither in ./hub_modules nor in the package convert-tf-modules, and the "
            f"clone that convert_tf was installed from no longer exists. {error} Run the command "
            "in a clone of convert_tf, install the wheel convert_tf_modules of a release, or set "
            f"{URL_VARIABLE} to the address of a release (https:// or file://)."
        ) from error


def model_path(path: str | os.PathLike[str], *, wants_module: bool = False) -> str:
    """Return the path of a model that may be given by name.

    Args:
      path: a path, the name of a released encoder or ranker, or `hf://owner/name` for an encoder on
        the Hugging Face hub. An existing path takes precedence over a name.
      wants_module: whether the name of an encoder stands for the module, for example to train or
        export it. Otherwise the name stands for the 8-bit `.onnx` file.

    Raises:
      ModuleNameError: if the model cannot be downloaded, its name is used for something else, or
        the path does not exist and resembles a name.
    """
    text = os.fspath(path)
    if text.startswith(SCHEME):
        return hub_folder(text)
    match = _NAME.fullmatch(text)
    if match is None:
        similar = difflib.get_close_matches(text, ALL_RELEASES, n=1, cutoff=0.8)
        if similar and not (os.sep in text or os.path.exists(text)):
            raise ModuleNameError(f"{text!r} does not exist. Did you mean {similar[0]}?")
        return text
    if os.path.exists(text):
        if kind_of(text) is Kind.UNKNOWN:
            raise ModuleNameError(
                f"{os.path.abspath(text)!r} has the name of the released model {text!r}, but is "
                "not a model. Rename it, or run the command in another folder."
            )
        return text
    wants_module = wants_module or match["name"] in RANKER_RELEASES
    if not (wants_module or text.endswith(ONNX_SUFFIX)):
        text += ONNX_SUFFIX
    return module_path(text)


def as_onnx(folder: Path, *, graph: str = "") -> Path:
    """Return the path of an encoder's 8-bit `.onnx` file in the cache. Make the file if necessary.

    `convert-tf export` makes the file in a separate process, which frees its 800 MB of memory when
    it ends. There is a separate file for each combination of weights, maximum length of texts,
    version of convert_tf and version of the exporter.

    Args:
      folder: the folder of a module, or a Hugging Face folder.
      graph: path in a Hugging Face folder of a file to return instead, such as
        `"onnx/model_quantized.onnx"`.

    Raises:
      ModuleNameError: if the module is damaged, a library is missing, or the cache cannot be
        written.
    """
    name = "-".join(Path(os.path.abspath(folder)).parts[1:][-2:]) or "model"
    weights = model_checksum(folder) + module_form(folder)
    key = checksum([f"{__version__}:{EXPORTER}:{weights}".encode()])[:16]

    def export(work: Path) -> Path:
        print(
            f"note: converting {name} to ONNX in {cache_folder()} (only needed once)",
            file=sys.stderr,
        )
        package = str(Path(__file__).resolve().parents[2])
        paths = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
        output, file = work / f"{name}{ONNX_SUFFIX}", work / f"{name}{ONNX_SUFFIX}"
        if graph:
            output, file = work / "folder", work / "folder" / graph
        done = subprocess.run(
            [sys.executable, "-m", "convert_tf", "export", f"--encoder={folder.resolve()}",
             f"--output={os.path.abspath(output)}", *(["--format=huggingface"] if graph else [])],
            env={**os.environ, "PYTHONPATH": paths}, stdin=subprocess.DEVNULL,
            cwd=work,  # -m adds this folder to the path; the user's folder may have a json.py
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
            raise ModuleNameError(
                f"{str(folder)!r} could not be converted to ONNX: "
                f"{reason.removeprefix('convert-tf export: ')}"
            )
        return file

    try:
        return made_once(cache_folder() / "onnx" / key / f"{name}{ONNX_SUFFIX}", export)
    except FileWriteError as error:
        raise ModuleNameError(
            f"{name} could not be written as ONNX to {str(cache_folder())!r}: {error.strerror}. "
            "Set CONVERT_TF_CACHE to another folder, or pass the path of an .onnx file from "
            "convert-tf export."
        ) from error


def _local_folders() -> list[Path]:
    """Return the folders on this machine that may contain modules as `NAME/VERSION`."""
    folders = [Path("hub_modules")]
    if source := source_folder():
        folders.append(source / "hub_modules")
    package = importlib.util.find_spec(MODULES_PACKAGE)
    if package is not None and package.origin is not None:
        folders.append(Path(package.origin).parent)
    return folders


def release_file(name: str) -> Path:
    """Return the path of a file in the release. For an archive, this is the unpacked folder.

    The file is downloaded if it is not in the cache.

    Args:
      name: name of the file in the release.

    Raises:
      DownloadError: if the download fails, or no address to download from is known.
    """
    base = os.environ.get(URL_VARIABLE) or RELEASE_URL
    if not base:
        raise DownloadError(f"It cannot be downloaded: {URL_VARIABLE} is not set.")
    return fetched(base, name)


def hub_folder(address: str) -> str:
    """Return the folder of an encoder from the Hugging Face hub, downloading it if necessary.

    The folder is in the cache of `huggingface_hub`.

    Args:
      address: `hf://owner/name`.

    Raises:
      ModuleNameError: if `huggingface_hub` is not installed, the encoder cannot be downloaded, or
        the model is not an encoder of convert_tf.
    """
    try:
        folder = _downloaded(address, CONFIG_FILE).parent
        if (kind := kind_of(folder)) is not Kind.HUGGING_FACE_ENCODER:
            raise ValueError(f"it is {kind.value}, not {Kind.HUGGING_FACE_ENCODER.value}")
        # All files come from the same revision, even if a new one is published meanwhile.
        for files in ((TOKENIZER_FILE,), (*ONNX_FILES, SAFETENSORS_FILE)):
            _downloaded(address, *files, revision=folder.name)
        # These files are optional. The ONNX files contain the checksum of the first.
        for file in (SAFETENSORS_FILE, *LIMIT_FILES, HUB_CARD_FILE):
            try:
                _downloaded(address, file, revision=folder.name)
            except FileNotFoundError as error:
                if file in LIMIT_FILES and _is_unanswered(error.__cause__):
                    print(
                        f"warning: the cache does not say whether {address} has a {file}, and the "
                        "hub does not answer, so a limit in this file is ignored",
                        file=sys.stderr,
                    )
    except (ImportError, OSError, ValueError) as error:
        reason = next(iter(str(error).splitlines()), repr(error)).rstrip(". ")
        raise ModuleNameError(
            f"{address!r} could not be read from the Hugging Face hub or its cache: {reason}."
        ) from error
    return str(folder)


def _downloaded(address: str, *files: str, revision: str | None = None) -> Path:
    """Download the first of the given files that exists in the repository, and return its path.

    Args:
      address: `hf://owner/name`.
      *files: paths of files in the model's repository, in order of preference.
      revision: revision of the repository; None for the newest.
    """
    with needs("huggingface", "The hub"):
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError
    for file in files:
        try:
            return Path(hf_hub_download(address.removeprefix(SCHEME), file, revision=revision))
        except EntryNotFoundError as error:
            problem = error
    if files == (CONFIG_FILE,) and _is_unanswered(problem):
        raise problem
    raise FileNotFoundError(f"{files[-1]} is missing there ({problem})") from problem


def _is_unanswered(error: BaseException | None) -> bool:
    """Return whether a file is not in the cache, and the hub was not asked or does not answer."""
    from huggingface_hub.errors import LocalEntryNotFoundError

    return isinstance(error, LocalEntryNotFoundError)
