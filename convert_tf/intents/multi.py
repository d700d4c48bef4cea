"""Classifiers of texts with several intents, or none.

Reference: arXiv 2204.13021 (NLU++: texts with several intents).
"""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from convert_tf.intents.classifier import IntentClassifier
from convert_tf.intents.data import checked_texts, checked_weights
from convert_tf.intents.folder import MODEL_FILE
from convert_tf.intents.head import LOGISTIC_C, LogisticOptions, train_binary
from convert_tf.intents.heldout import (
    Mixture,
    Parts,
    log_odds_of,
    mixtures,
    several_answers,
    several_probabilities,
)
from convert_tf.intents.lexical import train_lexical
from convert_tf.intents.stored import UNREADABLE, has_several
from convert_tf.intents.text_classifier import TextClassifier
from convert_tf.numerics.vectors import unit_rows
from convert_tf.storage.json_text import json_file

SEPARATORS = ("+", "|")
_FOLDS = 3
_THRESHOLDS = np.arange(5, 100, 5) / 100
_LEAST = 1e-7

LabelSet = tuple[str, ...]


class MultiIntentClassifier(TextClassifier):
    """Classifies texts that may have several intents, or none.

    A scikit-learn estimator of texts. Each intent has two logistic regressions, on the encoding of
    the text and on its words. Cross-validation sets how much words count, how sure the answers are,
    and from which probability on an intent is answered.

    Args:
      encoder: see `IntentClassifier`.
      logistic_c: scikit-learn's `C`.
      lexical: `"auto"`, or None where words do not count.
      threshold: probability from which on an intent is answered; None fits it, for the highest
        micro F1.
      label_separator: the character between the intents of a text in files.
      random_state: seed of the folds.
      kind: which encodings: `"sentence"` or `"similarity"`.

    Attributes:
      classes_: the intents, sorted.
      parts_: the heads, whose outputs are log-odds.
      mixture_: the weight of words and the temperature.
      threshold_: the threshold.

    Example:
      classifier = MultiIntentClassifier("hub_modules/convert/1")
      classifier.fit(["hi, block my card", "hello"], [["greet", "block"], ["greet"]])
      classifier.predict(["hi there"])  # [("greet",)]
    """

    def __init__(
        self,
        encoder: Any,
        *,
        logistic_c: float = LOGISTIC_C,
        lexical: str | None = "auto",
        threshold: float | None = None,
        label_separator: str = SEPARATORS[0],
        random_state: int = 0,
        kind: str = "sentence",
    ):
        self.encoder = encoder
        self.logistic_c = logistic_c
        self.lexical = lexical
        self.threshold = threshold
        self.label_separator = label_separator
        self.random_state = random_state
        self.kind = kind

    def fit(
        self,
        texts: Iterable[str],
        labels: Iterable[Collection[str]],
        sample_weight: Any = None,
    ) -> "MultiIntentClassifier":
        """Train a head for each intent.

        Args:
          texts: the examples, in a list, an array or a table of one column.
          labels: the intents of each, in a list, a tuple or a set, which may be empty.
          sample_weight: how much each counts; None for equally much.

        Raises:
          ValueError: a text is empty, there are fewer than two intents, or an option is out of
            range.
        """
        self.check_options()
        found, sets = checked_texts(texts), label_sets(labels)
        if len(found) != len(sets):
            raise ValueError(
                f"There are {len(found)} texts and {len(sets)} sets of labels. Pass a set for each "
                "text, an empty one for no intent."
            )
        weights = checked_weights(sample_weight, len(found))
        self.examples_ = None  # nothing is added to such a classifier
        self.classes_ = np.array(sorted({label for own in sets for label in own}))
        if len(self.classes_) < 2:
            raise ValueError(
                f"There must be two or more intents. Received: {len(self.classes_)}. Add examples "
                "of others."
            )
        self.kind_ = self.kind
        encodings, truth = self.encode(found), truth_of(sets, self.classes_)
        everything = np.flatnonzero(weights > 0)
        self.parts_ = self._trained(found, encodings, truth, weights, everything)
        self.mixture_, self.threshold_ = Mixture(), self.threshold
        folds = np.random.default_rng(self.random_state).permutation(everything)
        self._fit_on_answers(found, encodings, truth, weights, np.array_split(folds, _FOLDS))
        return self

    def _trained(
        self,
        texts: Sequence[str],
        encodings: np.ndarray,
        truth: np.ndarray,
        weights: np.ndarray,
        places: np.ndarray,
    ) -> Parts:
        own, counts = truth[places], weights[places]
        return Parts(
            train_binary(encodings[places], own, c=self.logistic_c, weights=counts),
            None
            if self.lexical is None
            else train_lexical([texts[place] for place in places], own, counts),
            unit_rows(own.T.astype(np.float32) @ encodings[places]),
        )

    def _fit_on_answers(
        self,
        texts: Sequence[str],
        encodings: np.ndarray,
        truth: np.ndarray,
        weights: np.ndarray,
        folds: Sequence[np.ndarray],
    ) -> None:
        """Sets what depends on answers to examples that were not trained on."""
        folds = [fold for fold in folds if len(fold)]
        if len(folds) < 2:  # one example
            self.threshold_ = 0.5 if self.threshold is None else self.threshold
            return
        heads: list[np.ndarray] = []
        words: list[np.ndarray] = []
        for number, fold in enumerate(folds):
            others = np.concatenate([each for i, each in enumerate(folds) if i != number])
            parts = self._trained(texts, encodings, truth, weights, np.sort(others))
            head, lexical = log_odds_of(parts, [texts[place] for place in fold], encodings[fold])
            heads.append(head)
            words += [] if lexical is None else [lexical]
        right = np.concatenate([truth[fold] for fold in folds])
        lexical = np.concatenate(words) if words else None
        self.mixture_ = fit_binary_mixture(np.concatenate(heads), lexical, right)
        if not self.mixture_.weight:
            self.parts_ = self.parts_._replace(lexical=None)
        if self.threshold is None:
            probabilities = several_probabilities(self.mixture_, np.concatenate(heads), lexical)
            self.threshold_ = best_threshold(probabilities, right)

    def predict_proba(self, texts: Iterable[str]) -> np.ndarray:
        """The probability of each of `classes_`, float32 `[texts, intents]`; rows have any sum.

        Raises:
          ValueError: a text is empty.
        """
        check_is_fitted(self, "parts_")
        found = checked_texts(texts)
        return several_probabilities(
            self.mixture_, *log_odds_of(self.parts_, found, self.encode(found))
        )

    def predict(self, texts: Iterable[str]) -> np.ndarray:
        """The intents of each text, sorted: an array of tuples.

        Raises:
          ValueError: a text is empty.
        """
        return several_answers(self.predict_proba(texts), self.threshold_, self.classes_)

    def score(
        self,
        texts: Iterable[str],
        labels: Iterable[Collection[str]],
        sample_weight: Any = None,
    ) -> float:
        """Return the share of texts with exactly the right intents."""
        found, expected = self.predict(texts), label_sets(labels)
        if len(found) != len(expected):
            raise ValueError(
                f"There are {len(found)} texts and {len(expected)} sets of labels. Pass a set for "
                "each text."
            )
        is_right = [{*answer} == {*own} for answer, own in zip(found, expected, strict=True)]
        return float(np.average(is_right, weights=checked_weights(sample_weight, len(found))))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # A classifier's folds are of one label a text, or of a matrix, and refuse lists of labels.
        tags.estimator_type = None
        return tags

    def check_options(self) -> None:
        """Raise `ValueError` for options that are unknown or out of range."""
        super().check_options()
        LogisticOptions(self.logistic_c)
        if not isinstance(self.label_separator, str) or not self.label_separator:
            raise ValueError(
                "label_separator must be the character between two labels. Received: "
                f"{self.label_separator!r}. Pass {' or '.join(map(repr, SEPARATORS))}."
            )
        if self.threshold is not None and not 0 < self.threshold < 1:
            raise ValueError(
                f"threshold must be between 0 and 1. Received: {self.threshold}. None fits it."
            )


def load_classifier(
    folder: str | os.PathLike[str], *, encoder: Any = None
) -> IntentClassifier | MultiIntentClassifier:
    """Read either kind of classifier; arguments and errors as in `read_classifier`."""
    try:
        is_multi = has_several(json_file(Path(folder) / MODEL_FILE))
    except UNREADABLE:  # `load` says what is wrong
        is_multi = False
    return (MultiIntentClassifier if is_multi else IntentClassifier).load(folder, encoder=encoder)


def split_labels(labels: Iterable[str], separator: str) -> list[LabelSet]:
    """Split labels of files, as `"greet+block"`; an empty label has no intent."""
    return [
        tuple(part.strip() for part in label.split(separator) if part.strip()) for label in labels
    ]


def label_sets(labels: Iterable[Collection[str]]) -> list[LabelSet]:
    """Return sets of labels as sorted tuples.

    Raises:
      ValueError: one is no collection, or holds something that is no text.
    """
    if labels is None:
        raise ValueError("labels must have a list for each text. Received: None.")
    found = []
    for number, own in enumerate(labels):
        if isinstance(own, str | bytes | Mapping) or not isinstance(own, Collection):
            raise ValueError(
                f"labels must have a list for each text. Received: {own!r} at position {number}. "
                f"Pass [{own!r}]."
            )
        if not all(isinstance(label, str) and label for label in own):
            raise ValueError(f"Labels must be strings. Received: {[*own]!r} at position {number}.")
        found.append(tuple(sorted({*map(str, own)})))
    return found


def truth_of(sets: Sequence[LabelSet], classes: np.ndarray) -> np.ndarray:
    """Return which texts have which of `classes`: bool `[texts, intents]`."""
    place = {label: number for number, label in enumerate(classes.tolist())}
    truth = np.zeros((len(sets), len(classes)), bool)
    for row, own in enumerate(sets):
        truth[row, [place[label] for label in own if label in place]] = True
    return truth


def fit_binary_mixture(head: np.ndarray, lexical: np.ndarray | None, truth: np.ndarray) -> Mixture:
    """The weight of words and the temperature of the least mean binary cross-entropy, of a grid.

    Args:
      head: log-odds by encodings, float `[n, intents]`.
      lexical: by words; None where they do not count.
      truth: bool `[n, intents]`.
    """

    def likelihood(mixture: Mixture) -> float:
        probabilities = several_probabilities(mixture, head, lexical)
        right = np.where(truth, probabilities, 1 - probabilities)
        return float(np.log(np.maximum(right, _LEAST)).mean())

    return max(mixtures(has_lexical=lexical is not None), key=likelihood)


def best_threshold(probabilities: np.ndarray, truth: np.ndarray) -> float:
    """The threshold of the highest micro F1, of a grid; the one nearest to 0.5 among equals.

    Args:
      probabilities: float `[n, intents]`.
      truth: bool `[n, intents]`.
    """

    def f1(threshold: float) -> float:
        is_there = probabilities >= threshold
        both = is_there.sum() + truth.sum()
        return 2 * float((is_there & truth).sum()) / float(both) if both else 0.0

    return float(max(_THRESHOLDS, key=lambda each: (round(f1(each), 9), -abs(each - 0.5))))
