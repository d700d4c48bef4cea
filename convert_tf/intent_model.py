"""The folder of a trained intent classifier, and which encoder it is read with.

`intent.json` (options, intents, threshold, the encoder's path and fingerprint) and `head.npz`
(weights, mean encodings, encodings of two probe texts). A fine-tuned encoder's module is `module/`
beside them.
"""

import json
import os
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from convert_tf.files import FileWriteError, write_file
from convert_tf.intent_classifier import IntentClassifier
from convert_tf.intent_encodings import (
    PROBE_TOLERANCE,
    PROBES,
    IntentEncodings,
    encoders_of,
    fingerprint,
)
from convert_tf.intent_head import head_arrays, head_of_arrays

MODEL_FILE = "intent.json"
HEAD_FILE = "head.npz"
MODULE_FOLDER = "module"
_VERSION = 1


def save_classifier(
    classifier: IntentClassifier,
    folder: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    module: str | os.PathLike[str] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Writes a fitted classifier.

    Args:
      classifier: whose encoder stays where it is, unless it is in `folder` or is `module`.
      folder: made with its parents.
      overwrite: whether a folder of that name is replaced.
      module: the encoder's folder, of which a copy goes to `module/`.
      facts: JSON values to keep with it, as what fine-tuning did.

    Raises:
      ValueError: the folder exists.
      FileWriteError: it could not be written; nothing is left under that name but what was there.
    """
    check_is_fitted(classifier, "head_")
    place = Path(os.path.abspath(folder))
    if place.exists() and not (overwrite and place.is_dir()):
        raise ValueError(
            f"A model is written to a new folder. Received: {str(folder)!r}, which exists. "
            "Choose another --output, or pass --overwrite."
        )
    params = classifier.get_params(deep=False)
    copied = Path(module or place / MODULE_FOLDER)
    described = {
        "version": _VERSION,
        "encoders": [_described(each, copied) for each in encoders_of(params.pop("encoder"))],
        "labels": classifier.classes_.tolist(),
        "threshold": classifier.threshold_,
        "best_params": classifier.best_params_,
        "params": params,
        "facts": dict(facts or {}),
    }
    arrays = {
        **head_arrays(classifier.head_),
        "centroids": classifier.centroids_,
        "probes": classifier.encode(PROBES),
    }
    temporary = place.with_name(f".{place.name}.new-{os.getpid()}")
    replaced = place.with_name(f".{place.name}.old-{os.getpid()}")
    try:
        temporary.mkdir(parents=True)
        write_file(temporary / MODEL_FILE, json.dumps(described, indent=2, default=list) + "\n")
        np.savez(temporary / HEAD_FILE, **arrays)  # type: ignore[arg-type]
        if any(each["path"] == MODULE_FOLDER for each in described["encoders"]):
            shutil.copytree(copied, temporary / MODULE_FOLDER)
        if place.exists():
            os.rename(place, replaced)
        os.rename(temporary, place)
    except OSError as error:
        if replaced.exists():
            os.rename(replaced, place)
        reason = error.strerror or str(error)
        raise FileWriteError(error.errno, reason, str(folder)) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    shutil.rmtree(replaced, ignore_errors=True)


def _described(encoder: Any, copied: Path) -> dict[str, Any]:
    if not isinstance(encoder, str | os.PathLike):
        return {"path": None, "name": getattr(encoder, "__name__", type(encoder).__name__)}
    path = os.path.abspath(encoder)
    is_copied = path == os.path.abspath(copied)
    return {"path": MODULE_FOLDER if is_copied else path, "fingerprint": fingerprint(path)}


def load_classifier(folder: str | os.PathLike[str], *, encoder: Any = None) -> IntentClassifier:
    """Reads a classifier.

    Args:
      folder: what `save_classifier` wrote.
      encoder: the encoder that it was trained with, where its path has changed or it has none.

    Raises:
      ValueError: the folder is none or a damaged one, or the encoder is not the one that it was
        trained with.
    """
    folder = Path(folder)
    described, arrays = _read(folder)
    recorded = described["encoders"]
    if encoder is None:
        encoder = [_recorded_path(each, folder) for each in recorded]
        encoder = encoder[0] if len(encoder) == 1 else encoder
    given = encoders_of(encoder)
    if len(given) != len(recorded):
        raise _other_encoder(folder, f"{len(given)} encoders instead of {len(recorded)}")
    is_known = True  # whether the fingerprints say that all encoders are the same
    for each, record in zip(given, recorded, strict=True):
        is_path = isinstance(each, str | os.PathLike)
        if is_path and not os.path.exists(each):
            raise ValueError(
                "A classifier needs the encoder that it was trained with. Received: "
                f"{os.fspath(each)!r}, which does not exist. Pass its path as --module "
                "(encoder= in Python)."
            )
        if is_path and "fingerprint" in record and fingerprint(each) != record["fingerprint"]:
            raise _other_encoder(folder, f"{os.fspath(each)!r}, whose files differ")
        is_known = is_known and is_path and "fingerprint" in record
    encodings = IntentEncodings(encoder)
    if not is_known:
        probes = encodings(PROBES)
        if probes.shape != arrays["probes"].shape or np.abs(probes - arrays["probes"]).max() > (
            PROBE_TOLERANCE
        ):
            raise _other_encoder(folder, f"one that encodes {PROBES[0]!r} differently")
    classifier = IntentClassifier(encoder, **described["params"])
    classifier._encoded = (encoder, encodings)
    classifier.classes_ = np.array(described["labels"])
    classifier.threshold_ = described["threshold"]
    classifier.best_params_ = described["best_params"]
    classifier.centroids_ = arrays["centroids"]
    classifier.head_ = head_of_arrays(arrays)
    return classifier


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    def unusable(reason: object) -> ValueError:
        return ValueError(
            "An intent model is a folder that `convert_tf.intent train` wrote. Received: "
            f"{str(folder)!r} ({reason}). Name such a folder, or train again."
        )

    try:
        described = json.loads((folder / MODEL_FILE).read_text(encoding="utf-8"))
        with np.load(folder / HEAD_FILE) as file:
            arrays = dict(file)
        version = described["version"]
    except (OSError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise unusable(error) from error
    if version != _VERSION:
        raise unusable(f"version {version} of its format, not {_VERSION}")
    missing = {"encoders", "labels", "threshold", "best_params", "params"} - set(described)
    missing |= {"centroids", "probes", "kernel_0", "bias_0"} - set(arrays)
    if missing:
        raise unusable(f"without {', '.join(sorted(missing))}")
    return described, arrays


def _recorded_path(record: Mapping[str, Any], folder: Path) -> str:
    if record["path"] is None:
        raise ValueError(
            "A classifier that was trained with a function needs it again. Received: "
            f"{str(folder)!r} and no encoder. Pass encoder={record.get('name')}."
        )
    return str(folder / record["path"])  # an absolute path stays as it is


def _other_encoder(folder: Path, reason: str) -> ValueError:
    return ValueError(
        "A classifier reads the encodings that it was trained on. Received: "
        f"{str(folder)!r} with another encoder: {reason}. Use the encoder that it was trained "
        "with, or train again with this one."
    )
