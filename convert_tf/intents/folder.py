"""The folder of a trained intent classifier.

`intent.json` has the options, the intents, the threshold, the examples, and the encoder's path and
fingerprint. `head.npz` has the weights, the words and their weights, mean encodings, thresholds of
intents, and the encodings of two probe texts. `module/` is the module of a fine-tuned encoder.
"""

import errno
import io
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from convert_tf.checkpoints.kinds import MODULE_FILES
from convert_tf.intents.encodings import (
    PROBE_TOLERANCE,
    PROBES,
    IntentEncodings,
    encoder_fingerprint,
    encoder_paths,
    encoders_of,
)
from convert_tf.intents.stored import (
    UNREADABLE,
    ClassifierParts,
    reason_of,
    restored,
    stored,
)
from convert_tf.storage.arrays import load_arrays
from convert_tf.storage.checksums import CHECKSUMS_FILE, check_files, record_checksums
from convert_tf.storage.files import write_file, writing
from convert_tf.storage.folders import OutputFolder, put_aside
from convert_tf.storage.json_text import json_file, written_json

MODEL_FILE = "intent.json"
HEAD_FILE = "head.npz"
MODULE_FOLDER = "module"
_FILES = (
    MODEL_FILE,
    HEAD_FILE,
    CHECKSUMS_FILE,
    *(f"{MODULE_FOLDER}/{name}" for name in MODULE_FILES),
)


def classifier_folder(folder: str | os.PathLike[str], *, overwrite: bool = False) -> OutputFolder:
    """Return the folder that a classifier is written to.

    Raises:
      ValueError: the folder exists and may not be replaced, or holds something else.
    """
    return OutputFolder(folder, replaceable=_FILES, overwrite=overwrite)


def write_classifier(
    folder: str | os.PathLike[str],
    parts: ClassifierParts,
    encoder: Any,
    *,
    probes: np.ndarray,
    overwrite: bool = False,
    module: str | os.PathLike[str] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Write a trained classifier.

    Args:
      folder: made with its parents.
      parts: what is written.
      encoder: the encoder. Its path is written, or its name if it has no path. It is copied only if
        it is in `folder` or is `module`.
      probes: the encodings of `PROBES`.
      overwrite: whether a folder of that name is replaced.
      module: the encoder's folder, to copy to `module/`.
      facts: JSON values to keep with the classifier, such as the results of fine-tuning.

    Raises:
      ValueError: the folder exists, or holds something else.
      FileWriteError: it could not be written; nothing is left under that name but what was there.
    """
    place = Path(os.path.abspath(folder))
    output = classifier_folder(place, overwrite=overwrite)
    copied = Path(module or place / MODULE_FOLDER)
    described, head_arrays = stored(parts)
    described |= {
        "encoders": [_described(each, copied) for each in encoder_paths(encoder)],
        "facts": dict(facts or {}),
    }
    arrays: dict[str, Any] = {**head_arrays, "probes": probes}
    with writing(folder), output.open() as written:
        write_file(written / MODEL_FILE, written_json(described, default=list))
        head = io.BytesIO()  # an unfinished zip file on a full disk would raise a second error
        np.savez(head, **arrays)
        write_file(written / HEAD_FILE, head.getvalue())
        record_checksums(written, [MODEL_FILE, HEAD_FILE])
        if any(each["path"] == MODULE_FOLDER for each in described["encoders"]):
            _copy_folder(copied, written / MODULE_FOLDER)


def _copy_folder(source: Path, target: Path) -> None:
    try:
        shutil.copytree(source, target)
    except shutil.Error as error:  # a list of source, target and reason of each file
        raise OSError(errno.EIO, str(error.args[0][0][2])) from error


def _described(encoder: Any, copied: Path) -> dict[str, Any]:
    if not isinstance(encoder, str | os.PathLike):
        return {"path": None, "name": getattr(encoder, "__name__", type(encoder).__name__)}
    path = os.path.abspath(encoder)
    is_copied = path == os.path.abspath(copied)
    return {"path": MODULE_FOLDER if is_copied else path, "fingerprint": encoder_fingerprint(path)}


def read_classifier(
    folder: str | os.PathLike[str], encoder: Any = None
) -> tuple[ClassifierParts, Any, IntentEncodings]:
    """Read a folder of `write_classifier`.

    Args:
      folder: of the classifier.
      encoder: the encoder that it was trained with, if its path has changed or it has none.

    Returns:
      The parts, the encoder, and its encodings.

    Raises:
      ValueError: the folder is no classifier or damaged, or the encoder is another one.
    """
    folder = Path(folder)
    parts, recorded, expected = _read(folder)
    if encoder is None:
        encoder = [_recorded_path(each, folder) for each in recorded]
        encoder = encoder[0] if len(encoder) == 1 else encoder
    given = encoders_of(encoder)
    if len(given) != len(recorded):
        raise _other_encoder(folder, f"{len(given)} encoders instead of {len(recorded)}")
    is_known = True  # whether the fingerprints say that all encoders are the same
    for each, record in zip(given, recorded, strict=True):
        if not isinstance(each, str | os.PathLike) or "fingerprint" not in record:
            is_known = False
        elif not os.path.exists(each):
            raise ValueError(
                f"This classifier's encoder is {os.fspath(each)!r}, which does not exist. Pass its "
                "path as --encoder (encoder= in Python)."
            )
        elif encoder_fingerprint(each) != record["fingerprint"]:
            raise _other_encoder(folder, f"{os.fspath(each)!r}, whose files differ")
    encodings = IntentEncodings(encoder, kind=parts.params.get("kind", "sentence"))
    if not is_known:
        probes = encodings(PROBES)
        if probes.shape != expected.shape or np.abs(probes - expected).max() > PROBE_TOLERANCE:
            raise _other_encoder(folder, f"one that encodes {PROBES[0]!r} differently")
    return parts, encoder, encodings


def _read(folder: Path) -> tuple[ClassifierParts, list[dict[str, Any]], np.ndarray]:
    """Return the classifier, what is known about its encoders, and their encodings of probes."""
    try:
        check_files(folder, MODEL_FILE, HEAD_FILE)
        described = json_file(folder / MODEL_FILE)
        arrays = load_arrays(folder / HEAD_FILE)
        encoders = described["encoders"]
        if not encoders or not all("path" in each for each in encoders):
            raise ValueError("without paths of encoders")
        return restored(described, arrays), encoders, arrays["probes"]
    except UNREADABLE as error:
        raise ValueError(
            f"{str(folder)!r} is not an intent model ({reason_of(error)}). Name a folder that "
            f"convert-tf intent train wrote, or train again.{put_aside(folder)}"
        ) from error


def _recorded_path(record: Mapping[str, Any], folder: Path) -> str:
    if record["path"] is None:
        raise ValueError(
            f"{str(folder)!r} was trained with an encoder that has no path ({record.get('name')}). "
            "Pass it as encoder= in Python, or --encoder with a module that encodes the same."
        )
    return str(folder / record["path"])  # an absolute path stays as it is


def _other_encoder(folder: Path, reason: str) -> ValueError:
    return ValueError(
        f"{str(folder)!r} was trained with another encoder: {reason}. Use the encoder that it was "
        "trained with, or train again with this one."
    )
