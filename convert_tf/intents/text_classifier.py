"""The base of both classifiers: one encoder for all clones, and a folder."""

import abc
import copy
import dataclasses
import os
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from convert_tf.config.base import check_field
from convert_tf.intents.data import LabelledTexts, checked_weights, column
from convert_tf.intents.encodings import ANY_KIND, PROBES, IntentEncodings
from convert_tf.intents.folder import read_classifier, write_classifier
from convert_tf.intents.options import ClassifierOptions
from convert_tf.intents.stored import ClassifierParts, Predictor

_Self = TypeVar("_Self", bound="TextClassifier")
_FITTED = [f"{name}_" for name in ClassifierParts._fields[1:]]
# Options of earlier versions, which had no effect after training.
_OF_EARLIER_TRAININGS = ("patience", "rejected_share", "validation_fraction")


class TextClassifier(ClassifierOptions, Predictor, ClassifierMixin, BaseEstimator):
    """A scikit-learn estimator on encodings of texts.

    Clones share the encoder and its encodings. A pickle holds the path of the encoder.
    """

    kind_: str
    names_: bool
    examples_: LabelledTexts | None
    # `MultiIntentClassifier` does not set these two.
    thresholds_: np.ndarray | None = None
    best_params_: Mapping[str, Any] = MappingProxyType({})
    _encoded: tuple[Any, dict[str, IntentEncodings]]

    def encode(self, texts: Iterable[str]) -> np.ndarray:
        """Return the encodings that the head reads: float32 `[texts, dim]`.

        Args:
          texts: a list, an array or a table of one column.
        """
        return self._encodings()(column(texts))

    def score(
        self, texts: Iterable[str], labels: Iterable[Any], sample_weight: Any = None
    ) -> float:
        """Return the share of texts whose answer is the label, or has exactly the labels.

        `out_of_scope_label` is right for texts that have it as their label.

        Raises:
          ValueError: there are more texts or more labels, or a text is empty.
        """
        found, expected = self.predict(texts).tolist(), self._listed_labels(labels)
        if len(found) != len(expected):
            raise ValueError(
                f"There are {len(found)} texts and {len(expected)} labels. Pass one label, or one "
                "set of labels, for each text."
            )
        is_right = [bool(a == b) for a, b in zip(found, expected, strict=True)]
        return float(np.average(is_right, weights=checked_weights(sample_weight, len(found))))

    @abc.abstractmethod
    def _listed_labels(self, labels: Iterable[Any]) -> list[Any]:
        """Return labels as a list, in the form of the answers of `predict`."""

    def save(
        self,
        folder: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        module: str | os.PathLike[str] | None = None,
        facts: Mapping[str, Any] | None = None,
        keep_examples: bool = True,
    ) -> None:
        """Write a folder that `load` reads; arguments as in `write_classifier`.

        With `keep_examples` the folder also holds the texts and labels of the examples, so that
        others can be added later and `explain` shows the nearest ones.
        """
        parts = self.stored_parts()
        write_classifier(
            folder,
            parts if keep_examples else parts._replace(examples=None),
            self.encoder,
            probes=self.encode(PROBES),
            overwrite=overwrite,
            module=module,
            facts=facts,
        )

    def stored_parts(self) -> ClassifierParts:
        """Return everything that was learnt."""
        check_is_fitted(self, "parts_")
        params = {**self.get_params(deep=False), "kind": self.kind_}
        del params["encoder"]
        if "names" in params:
            params["names"] = "always" if self.names_ else None
        return ClassifierParts(params, *(getattr(self, name) for name in _FITTED))

    @classmethod
    def load(cls: type[_Self], folder: str | os.PathLike[str], *, encoder: Any = None) -> _Self:
        """Read a folder of `save`; arguments and errors as in `read_classifier`."""
        parts, encoder, encodings = read_classifier(folder, encoder)

        def unusable(reason: object) -> ValueError:
            return ValueError(
                f"{os.fspath(folder)!r} is no {cls.__name__} of this version ({reason}). Use the "
                "version that wrote it, or train again."
            )

        params = {k: value for k, value in parts.params.items() if k not in _OF_EARLIER_TRAININGS}
        # The behaviour of versions that did not write these options.
        params.setdefault("kind", "sentence")
        if "names" in cls._get_param_names():
            params.setdefault("names", None)
        try:
            classifier = cls(encoder, **params)
            classifier.check_options()
        except (TypeError, OverflowError) as error:  # unknown options, or values of other types
            raise unusable(error) from error
        classifier.kind_ = classifier.kind
        classifier.names_ = parts.params.get("names") == "always"
        classifier._encoded = (encoder, {classifier.kind: encodings})
        for name, value in zip(_FITTED, parts[1:], strict=True):
            setattr(classifier, name, value)
        return classifier

    def check_options(self) -> None:
        """Raise `ValueError` for options that are unknown or out of range."""
        grid = getattr(self, "grid", None) or {}  # values that replace an option
        for field in dataclasses.fields(self):
            for value in grid.get(field.name, [getattr(self, field.name)]):
                if value is not None or field.default is not None:
                    check_field(field.name, value, field.metadata)

    def _encodings(self, kind: str | None = None) -> IntentEncodings:
        """Return the encodings of `kind`, by default of the chosen kind."""
        if isinstance(self.encoder, IntentEncodings):
            return self.encoder
        by_kind = self._encoded_by_kind()
        if kind is None:
            kind = self.kind if self.kind != ANY_KIND else getattr(self, "kind_", "sentence")
        if kind not in by_kind:
            others = [*by_kind.values()]
            by_kind[kind] = (
                others[0].of_kind(kind) if others else IntentEncodings(self.encoder, kind=kind)
            )
        return by_kind[kind]

    def _encoded_by_kind(self) -> dict[str, IntentEncodings]:
        known = self.__dict__.get("_encoded")
        if known is None or known[0] is not self.encoder:  # set_params may have changed it
            known = self._encoded = (self.encoder, {})
        return known[1]

    def __sklearn_clone__(self: _Self) -> _Self:
        # The clone shares the encoder and its encodings.
        params = self.get_params(deep=False)
        encoder = params.pop("encoder")
        clone = type(self)(encoder, **copy.deepcopy(params))
        clone._encoded = (encoder, self._encoded_by_kind())
        return clone

    def __getstate__(self) -> dict[str, Any]:
        # Loaded models and locks cannot be pickled, and vectors can be computed again.
        left_out = ("_encoded", "_example_vectors")
        return {name: v for name, v in super().__getstate__().items() if name not in left_out}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags
