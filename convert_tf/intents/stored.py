"""A trained classifier as JSON values and arrays by name, and back.

A folder holds them (`convert_tf.intents.folder`), or one file (`convert_tf.intents.one_file`).
"""

import itertools
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from convert_tf.intents.data import LabelledTexts
from convert_tf.intents.encodings import KINDS_OF_ENCODING
from convert_tf.intents.head import head_arrays, head_of_arrays
from convert_tf.intents.heldout import Answers, Mixture, Parts, sureness
from convert_tf.intents.lexical import lexical_arrays, lexical_of_arrays
from convert_tf.intents.scope import answered, margins, with_upper_levels

_VERSION = 2
_WITHOUT_WORDS = 1  # a version that knew heads alone
_READ_PARAMS = {"out_of_scope", "out_of_scope_label"}  # where the classifier itself is not made
# What reading damaged files of JSON and arrays raises.
UNREADABLE = (OSError, AttributeError, KeyError, TypeError, ValueError, RecursionError)


class ClassifierParts(NamedTuple):
    """A trained classifier without its encoder, as it is stored.

    Attributes:
      params: of `IntentClassifier`, without `encoder`.
      labels: the intents, sorted.
      threshold: None, or that of out of scope.
      best_params: what a grid chose.
      parts: head, words and mean encodings.
      mixture: of head and words.
      thresholds: None, or that of each intent, float64 `[intents]`.
      examples: the texts and labels that it was trained on; None if they are not kept.
    """

    params: dict[str, Any]
    labels: np.ndarray
    threshold: float | None
    best_params: dict[str, Any]
    parts: Parts
    mixture: Mixture
    thresholds: np.ndarray | None
    examples: LabelledTexts | None = None

    def scope_scores(self, answers: Answers) -> np.ndarray:
        """How surely texts are in scope, float32 `[n]`: what thresholds are compared with."""
        return sureness(answers, self.mixture, self.params["out_of_scope"])

    def answered(self, answers: Answers) -> np.ndarray:
        """The intent of each text, or `out_of_scope_label`: `[n]`."""
        probabilities = self.mixture.probabilities(answers.head, answers.lexical)
        best = probabilities.argmax(axis=1)
        scores = None if self.threshold is None else self.scope_scores(answers)
        limits = self.threshold if self.thresholds is None else self.thresholds
        # Files written before there were margins have none.
        min_margin = self.params.get("min_margin", 0)
        is_close = margins(probabilities) < min_margin
        outside = self.params["out_of_scope_label"]
        found = answered(best, scores, limits, self.labels, outside, is_close)
        if not self.params.get("upper_levels", False):
            return found
        threshold = self.threshold or 0.0
        return with_upper_levels(found, probabilities, self.labels, outside, threshold, min_margin)


def stored(parts: ClassifierParts) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """JSON values and arrays by name."""
    described = {
        "version": _VERSION,
        "labels": parts.labels.tolist(),
        "threshold": parts.threshold,
        "best_params": parts.best_params,
        "mixture": parts.mixture._asdict(),
        "params": parts.params,
    }
    if parts.examples is not None:
        described["examples"] = parts.examples._asdict()
    arrays = {**head_arrays(parts.parts.head), "centroids": parts.parts.centroids}
    if parts.parts.lexical is not None:
        arrays |= lexical_arrays(parts.parts.lexical)
    if parts.thresholds is not None:
        arrays["thresholds"] = parts.thresholds
    return described, arrays


def restored(described: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> ClassifierParts:
    """Return the parts that `stored` was given, from values that `check_stored` accepted."""
    return ClassifierParts(
        described["params"],
        np.array(described["labels"]),
        described["threshold"],
        described["best_params"],
        Parts(head_of_arrays({**arrays}), lexical_of_arrays(arrays), arrays["centroids"]),
        Mixture(**described["mixture"]),
        arrays.get("thresholds"),
        LabelledTexts(**described["examples"]) if "examples" in described else None,
    )


def has_several(described: Mapping[str, Any]) -> bool:
    """Return whether JSON values are those of a classifier of several intents."""
    return "label_separator" in described["params"]


def check_stored(described: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Check that values and arrays are complete and fit together.

    Args:
      described: JSON values; values that an earlier version did not write are added.
      arrays: by name, with `probes`, float `[n, dim]`, encodings.

    Raises:
      ValueError: they do not; the message is the reason alone.
    """
    if not isinstance(described, dict) or "version" not in described:
        raise ValueError("without 'version'")
    version = described["version"]
    if version == _WITHOUT_WORDS and isinstance(described.get("params"), dict):
        described["mixture"] = Mixture()._asdict()
        described["params"]["lexical"] = None
    elif version not in (_VERSION, _WITHOUT_WORDS):
        raise ValueError(f"version {version} of its format, not {_VERSION}")
    missing = {"labels", "threshold", "best_params", "params"} - set(described)
    missing |= {"mixture"} - set(described) if version == _VERSION else set()
    missing |= {"centroids", "probes", "kernel_0", "bias_0"} - set(arrays)
    if not missing and isinstance(described["params"], dict) and not has_several(described):
        missing = _READ_PARAMS - set(described["params"])
    if missing:
        raise ValueError(f"without {', '.join(sorted(missing))}")
    _check_described(described)
    _check_arrays(arrays, len(described["labels"]))


def _check_described(described: Mapping[str, Any]) -> None:
    kinds = {
        "labels": list,
        "best_params": dict,
        "mixture": dict,
        "params": dict,
    }
    wrong = [name for name, kind in kinds.items() if not isinstance(described[name], kind)]
    threshold = described["threshold"]
    if threshold is not None and not _is_number(threshold):
        wrong.append("threshold")
    mixture = described["mixture"]
    if isinstance(mixture, dict) and not (
        set(mixture) == {*Mixture._fields}
        and all(map(_is_number, mixture.values()))
        and 0 <= mixture["weight"] <= 1
        and 0 < mixture["temperature"] < np.inf
    ):
        wrong.append("mixture")
    params = described["params"]
    if isinstance(params, dict) and params.get("kind", "sentence") not in [*KINDS_OF_ENCODING]:
        wrong.append("kind")
    if "examples" in described and not _are_examples(described["examples"]):
        wrong.append("examples")
    if wrong:
        raise ValueError(f"{', '.join(wrong)} of another kind")
    labels = described["labels"]
    is_scalar = all(isinstance(label, str | int | float) for label in labels)
    if not is_scalar or len({*map(type, labels)}) != 1 or labels != sorted({*labels}):
        raise ValueError("whose labels are not the intents, sorted")


def _are_examples(found: Any) -> bool:
    """Whether a JSON value is what `LabelledTexts` has."""
    return (
        isinstance(found, dict)
        and {*found} == {*LabelledTexts._fields}
        and all(isinstance(column, list) for column in found.values())
        and len(found["texts"]) == len(found["labels"])
        and all(isinstance(text, str) for text in found["texts"])
    )


def _num_dims(name: str) -> int:
    is_matrix = "kernel" in name or name in ("centroids", "probes")
    return 2 if is_matrix else 1


def _is_number(value: Any) -> bool:
    """Whether a JSON value is a number that a float holds."""
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max


def _check_arrays(arrays: Mapping[str, np.ndarray], num_labels: int) -> None:
    for name, array in arrays.items():
        is_text = name in ("words", "characters") and array.dtype == np.uint8
        if not is_text and (array.dtype.kind != "f" or not np.isfinite(array).all()):
            raise ValueError(f"whose {name} are not finite numbers")
        if array.ndim != _num_dims(name):
            raise ValueError(f"whose {name} have shape {array.shape}")
    layers = head_of_arrays({**arrays}).layers
    shapes = [kernel.shape for kernel, _ in layers]
    dim = arrays["probes"].shape[-1]
    widths = [dim, *(bias.shape[-1] for _, bias in layers)]
    if arrays["centroids"].shape != (widths[-1], dim) or shapes != [*itertools.pairwise(widths)]:
        raise ValueError(
            f"whose arrays have shapes that do not fit: kernels {shapes}, encodings of {dim}, "
            f"centroids {arrays['centroids'].shape}"
        )
    if widths[-1] != num_labels:
        raise ValueError(f"a head of {widths[-1]} outputs for {num_labels} intents")
    if "thresholds" in arrays and arrays["thresholds"].shape != (num_labels,):
        raise ValueError(f"thresholds of shape {arrays['thresholds'].shape}")
    lexical = lexical_of_arrays(arrays)
    if lexical is not None:
        terms = len(lexical.words) + len(lexical.characters)
        ((kernel, bias),) = lexical.head.layers
        shapes = [lexical.rarity.shape, kernel.shape, bias.shape]
        if shapes != [(terms,), (terms, num_labels), (num_labels,)]:
            raise ValueError(f"whose {terms} terms have arrays of shapes {shapes}")
