"""The folder of a trained intent classifier.

The folder contains:
- `intent.json`: the options, the intents, the threshold, the examples, and the path and fingerprint
  of the encoder;
- `head.npz`: the weights of the head, the words with their weights, the mean encoding and the
  threshold of each intent, and the encodings of two probe texts;
- `module/`: the encoder's module, if the encoder was fine-tuned.
"""

import errno
import io
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from convert_tf.checkpoints.facts import module_form
from convert_tf.checkpoints.identity import identity_from_json, identity_of
from convert_tf.checkpoints.kinds import MODULE_FILES, files_that_count
from convert_tf.checkpoints.released import model_path
from convert_tf.config.base import options_of
from convert_tf.intents.cross_validation import Mixture, Parts, outputs_of
from convert_tf.intents.data import LabelledTexts
from convert_tf.intents.decision import Decision, decision_of
from convert_tf.intents.encodings import (
    KINDS_OF_ENCODING,
    PROBES,
    IntentEncodings,
    encoder_paths,
    encoders_of,
)
from convert_tf.intents.head import head_arrays, head_of_arrays
from convert_tf.intents.lexical import lexical_arrays, lexical_of_arrays
from convert_tf.intents.options import IntentOptions, SeveralOptions
from convert_tf.storage.arrays import load_arrays
from convert_tf.storage.checksums import CHECKSUMS_FILE, check_files, fingerprint, write_files
from convert_tf.storage.files import writing
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
_VERSION = 2
# Largest difference allowed between two values of the probes' encodings, which have length 1.
# Computing in bfloat16 instead of float32 changes the values by less than this.
_TOLERANCE = 0.02
# Errors that reading damaged JSON and array files may raise.
UNREADABLE = (
    OSError, AttributeError, KeyError, OverflowError, TypeError, ValueError, RecursionError,
)  # fmt: skip


class MissingEncoderError(ValueError):
    """An error for a classifier whose encoder is not at the recorded path."""


def classifier_folder(folder: str | os.PathLike[str], *, overwrite: bool = False) -> OutputFolder:
    """Return the folder that a classifier is written to.

    Raises:
      ValueError: if the folder exists and may not be replaced, or contains other files.
    """
    return OutputFolder(folder, replaceable=_FILES, overwrite=overwrite)


def write_classifier(
    classifier: Any,
    folder: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    module: str | os.PathLike[str] | None = None,
    notes: Mapping[str, Any] | None = None,
    keep_examples: bool = True,
) -> None:
    """Write a trained classifier.

    Args:
      classifier: an `IntentClassifier` or a `MultiIntentClassifier`. Only the path of its encoder
        is written, or the encoder's name if it has no path. The encoder itself is copied only if it
        is `folder/module` or `module`. Links to these folders count too.
      folder: the folder to write. Missing parent folders are created.
      overwrite: whether to replace an existing folder.
      module: the encoder's folder, to copy to `module/`.
      notes: JSON values to keep with the classifier, such as the results of fine-tuning.
      keep_examples: whether to store the texts and labels of the examples. If they are stored, more
        examples can be added later, and `explain` can show the nearest examples.

    Raises:
      ValueError: if the folder exists and may not be replaced, contains other files, or contains
        an encoder of the classifier that is not copied.
      OSError: if the folder could not be written. An existing folder is unchanged.
    """
    output = classifier_folder(folder, overwrite=overwrite)
    encoders = encoder_paths(classifier.encoder)
    copied = module_to_copy(encoders, folder, module)
    described, arrays = stored(classifier, keep_examples=keep_examples)
    described["encoders"] = [_record(encoder, copied) for encoder in encoders]
    described["facts"] = dict(notes or {})
    head = io.BytesIO()
    np.savez(head, **arrays)
    model = written_json(described, default=for_json)
    with output.open() as written, writing(folder):
        write_files(written, {MODEL_FILE: model, HEAD_FILE: head.getvalue()})
        if copied is not None:
            try:
                shutil.copytree(copied, written / MODULE_FOLDER)
            except shutil.Error as error:  # its argument is a list of (source, target, reason)
                raise OSError(errno.EIO, str(error.args[0][0][2])) from error


def for_json(value: Any) -> Any:
    """Return a NumPy number as a Python number, and any other value as a list.

    Raises:
      ValueError: for bytes, which would become a list of numbers.
    """
    if isinstance(value, bytes):
        raise ValueError(f"Bytes cannot be saved. Received: {value!r}. Use a string instead.")
    return value.item() if isinstance(value, np.generic) else list(value)


def module_to_copy(
    encoders: Sequence[Any],
    folder: str | os.PathLike[str],
    module: str | os.PathLike[str] | None = None,
) -> str | None:
    """Return the real path of the encoder to copy to `folder/module`; None to copy none.

    Args:
      encoders: paths of the classifier's encoders. Encoders without a path are ignored.
      folder, module: see `write_classifier`.

    Raises:
      ValueError: if another encoder is in `folder`, which would be deleted with the folder.
    """
    place = os.path.realpath(folder)
    paths = [os.path.realpath(path) for path in encoders if isinstance(path, str | os.PathLike)]
    copyable = [os.path.realpath(os.path.join(place, MODULE_FOLDER))]
    if module is not None:
        copyable.insert(0, os.path.realpath(module))
    copied = next((path for path in copyable if path in paths), None)
    for path in paths:
        if path != copied and Path(path).is_relative_to(place):
            raise ValueError(
                f"{path!r} is an encoder of this classifier, and it would be deleted because "
                f"{place!r} is replaced. Choose another --output."
            )
    return copied


def _record(encoder: Any, copied: str | None) -> dict[str, Any]:
    """Return the entry for an encoder in `intent.json`; see `module_to_copy` for `copied`."""
    if not isinstance(encoder, str | os.PathLike):
        return {"path": None, "name": getattr(encoder, "__name__", type(encoder).__name__)}
    path = os.path.abspath(encoder)
    return {
        "path": MODULE_FOLDER if os.path.realpath(path) == copied else path,
        "fingerprint": _fingerprint(path),
        "identity": identity_of(path).to_json(),
    }


def _fingerprint(path: str | os.PathLike[str]) -> str:
    """Return a digest of an encoder's weights, vocabulary and maximum length of texts."""
    root = Path(model_path(path))
    weights = fingerprint(
        ("" if file == root else file.relative_to(root).as_posix(), file)
        for file in files_that_count(root)
    )
    return weights + module_form(root)


def is_recorded(path: str | os.PathLike[str], record: Mapping[str, Any]) -> bool:
    """Return whether an encoder is the one in an entry of `intent.json`, even at another path."""
    if _fingerprint(path) == record.get("fingerprint"):
        return True
    former = identity_from_json(record.get("identity"))
    return former is not None and identity_of(path) == former


class Saved(NamedTuple):
    """The content of a classifier's folder or file.

    Attributes:
      params: the parameters of the classifier, without the encoder.
      decision: the rule that turns probabilities into answers.
      parts, mixture: the trained parts, and how their outputs are combined.
      best_params: the values that a grid search chose.
      examples: texts and labels; None if they were not kept.
    """

    params: dict[str, Any]
    decision: Decision
    parts: Parts
    mixture: Mixture
    best_params: dict[str, Any]
    examples: LabelledTexts | None


def read_classifier(
    folder: str | os.PathLike[str], encoder: Any = None, *, is_new: bool = False
) -> tuple[Saved, IntentEncodings, Any]:
    """Read a folder that `write_classifier` wrote.

    Args:
      folder: the folder of the classifier.
      encoder: the encoder that the classifier was trained with, or None to use the recorded path.
        The encoder must be passed if it has been moved or has no path.
      is_new: whether `encoder` replaces the recorded encoder. Fingerprints are then not compared.

    Returns:
      A tuple of the content of the folder, an object that computes encodings, and the encoder: the
      argument `encoder`, or the recorded path if the argument is None.

    Raises:
      MissingEncoderError: if `encoder` is None and the recorded path does not exist.
      ValueError: if the folder is not a classifier or is damaged, or the encoder has changed.
    """
    folder = Path(folder)
    try:
        check_files(folder, MODEL_FILE, HEAD_FILE)
        described, arrays = json_file(folder / MODEL_FILE), load_arrays(folder / HEAD_FILE)
        records = described["encoders"]
        if not records or not all("path" in record for record in records):
            raise ValueError("it has no paths of encoders")
        saved = restored(described, arrays)
    except UNREADABLE as error:
        remedy = "Pass a folder that convert-tf intent train wrote, or train again."
        raise ValueError(
            f"{str(folder)!r} is not an intent model ({reason_of(error)}). "
            f"{put_aside(folder) or remedy}"
        ) from error
    is_given = encoder is not None
    if encoder is None:
        encoder = [_recorded_path(record, folder) for record in records]
        encoder = encoder[0] if len(encoder) == 1 else encoder
    encoders = encoders_of(encoder)
    if is_new:
        return saved, IntentEncodings(encoder, kind=saved.params["kind"]), encoder
    if len(encoders) != len(records):
        raise _other_encoder(folder, saved, f"{len(encoders)} encoders instead of {len(records)}")
    is_known = True  # whether the fingerprints show that no encoder has changed
    for path, record in zip(encoders, records, strict=True):
        if not isinstance(path, str | os.PathLike) or "fingerprint" not in record:
            is_known = False
        elif is_given and not os.path.exists(path):
            raise ValueError(f"The encoder {os.fspath(path)!r} does not exist. Pass another path.")
        elif not os.path.exists(path):
            raise _missing_encoder(folder, path, encoders)
        elif not is_recorded(path, record):
            former, given = identity_from_json(record.get("identity")), identity_of(path)
            reason = f"{former or 'other files'}, not {given} in {os.fspath(path)!r}"
            raise _other_encoder(folder, saved, reason)
    encodings = IntentEncodings(encoder, kind=saved.params["kind"])
    if not is_known:
        probes, expected = encodings(PROBES), arrays["probes"]
        if probes.shape != expected.shape or np.abs(probes - expected).max() > _TOLERANCE:
            raise _other_encoder(folder, saved, f"one that encodes {PROBES[0]!r} differently")
    return saved, encodings, encoder


def _recorded_path(record: Mapping[str, Any], folder: Path) -> str:
    if record["path"] is None:
        raise MissingEncoderError(
            f"{str(folder)!r} was trained with an encoder that has no path ({record.get('name')}). "
            "Pass the encoder as encoder= in Python, or pass a module that returns the same "
            "encodings as --encoder."
        )
    path = folder / record["path"]  # an absolute path does not change
    identity = identity_from_json(record.get("identity"))
    if not path.exists() and identity is not None and identity.name:
        return model_path(identity.name, wants_module=not identity.form.startswith("onnx"))
    return str(path)


def _missing_encoder(folder: Path, missing: Any, encoders: Sequence[Any]) -> MissingEncoderError:
    role, remedy = "The encoder", "its present path as --encoder (encoder= in Python)"
    if len(encoders) > 1:
        role = "An encoder"
        remedy = (
            f"the present paths of all {len(encoders)} encoders (encoder= in Python, and one "
            "--encoder for each of them in the commands of `convert-tf intent`), in this order: "
            f"{', '.join(map(repr, encoders))}"
        )
    return MissingEncoderError(
        f"{role} of {str(folder)!r} is {os.fspath(missing)!r}, which does not exist. Move it "
        f"back, or pass {remedy}."
    )


def _other_encoder(folder: Path, saved: Saved, reason: str) -> ValueError:
    again = "train again on all examples"
    if saved.examples is not None and not saved.decision.has_several:
        again = (
            "train again on the stored examples: convert-tf intent train --model "
            f"{shlex.quote(str(folder))} --encoder NEW --output OTHER"
        )
    return ValueError(
        f"{str(folder)!r} was trained with another encoder: {reason}. Use the encoder that it was "
        f"trained with, or {again}."
    )


def stored(
    classifier: Any, *, keep_examples: bool = False
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the content of a classifier as a dict of JSON values and a dict of arrays.

    Args:
      classifier: the fitted classifier.
      keep_examples: see `write_classifier`.
    """
    described = {
        "version": _VERSION,
        "labels": classifier.classes_.tolist(),
        "threshold": classifier.threshold_,
        "best_params": dict(classifier.best_params_),
        "mixture": classifier.mixture_._asdict(),
        "params": classifier.stored_params(),
    }
    if keep_examples and classifier.examples_ is not None:
        described["examples"] = classifier.examples_._asdict()
    head, lexical, centroids = classifier.parts_
    arrays = {**head_arrays(head), "centroids": centroids, "probes": classifier.encode(PROBES)}
    if lexical is not None:
        arrays |= lexical_arrays(lexical)
    if classifier.thresholds_ is not None:
        arrays["thresholds"] = classifier.thresholds_
    return described, arrays


def restored(described: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Saved:
    """Restore a classifier's content from the result of `stored`.

    The probes are classified, so that arrays whose shapes do not match raise an error here.

    Args:
      described: the JSON values.
      arrays: the arrays by name.

    Raises:
      One of `UNREADABLE`: if a value is missing, or values do not match each other.
    """
    if described["version"] != _VERSION:
        raise ValueError(f"its format is version {described['version']} instead of {_VERSION}")
    params, mixture = described["params"], Mixture(**described["mixture"])
    threshold, labels = described["threshold"], described["labels"]
    is_possible = 0 <= mixture.weight <= 1 and 0 <= mixture.cosine <= sys.float_info.max
    if not (is_possible and 0 < mixture.temperature <= sys.float_info.max):
        raise ValueError(f"{mixture} is out of range")
    if threshold is not None and not np.isfinite(float(threshold)):
        raise ValueError(f"the threshold {threshold} is not finite")
    options = options_of(SeveralOptions if "label_separator" in params else IntentOptions)
    if missing := options.keys() - params.keys() - {"encoder"}:
        raise ValueError(f"it has no {', '.join(sorted(missing))}: an earlier version wrote it")
    if params["kind"] not in [*KINDS_OF_ENCODING]:
        raise ValueError(f"the kind {params['kind']!r} is unknown")
    if not isinstance(labels, list) or labels != sorted({*labels}):
        raise ValueError("the labels are not sorted intents")
    examples = None
    if "examples" in described:
        examples = LabelledTexts(**described["examples"])
        if not all(isinstance(text, str) for text in examples.texts):
            raise ValueError("the texts of its examples are not strings")
        if len(examples.texts) != len(examples.labels):
            raise ValueError("the examples have different numbers of texts and labels")
    for name, array in arrays.items():
        kind = "u" if name in ("words", "characters") else "f"
        if array.dtype.kind != kind or not np.isfinite(array).all():
            raise ValueError(f"{name} contains values that are not finite numbers")
    cosine = mixture.cosine
    # Earlier versions scored "both" without this weight. Their files lack it and raise an error.
    if params.get("out_of_scope") == "both":
        cosine = described["mixture"]["cosine"]
    decision = decision_of(params, np.array(labels), threshold, arrays.get("thresholds"), cosine)
    parts = Parts(head_of_arrays(arrays), lexical_of_arrays(arrays), arrays["centroids"])
    outputs = outputs_of(parts, PROBES, arrays["probes"], decision.unknown_labels(len(PROBES)))
    if not outputs.head.shape[1] == len(parts.centroids) == len(labels):
        raise ValueError(f"the head or the mean encodings do not have {len(labels)} intents")
    decision.answers(outputs.probabilities(mixture), outputs.nearest)
    return Saved(params, decision, parts, mixture, dict(described["best_params"]), examples)


def reason_of(error: Exception) -> str:
    """Return why a classifier is unreadable, from an exception of `UNREADABLE`."""
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)
