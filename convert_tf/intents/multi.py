"""Classifiers for texts that may have several intents, or none.

Reference: arXiv 2204.13021 (NLU++: texts with several intents).
"""

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.metrics import f1_score
from sklearn.preprocessing import MultiLabelBinarizer

from convert_tf.intents.classifier import TextClassifier
from convert_tf.intents.cross_validation import Fold, held_out_outputs, train_parts
from convert_tf.intents.data import distinct_examples
from convert_tf.intents.examples import (
    IntentExamples,
    alike_intents,
    check_at_least_two,
    check_equally_many,
    checked_texts,
    checked_weights,
    plain,
)
from convert_tf.intents.options import SEPARATORS, SeveralOptions
from convert_tf.text.characters import fold

_FOLDS = 3
_THRESHOLDS = np.arange(5, 100, 5) / 100

LabelSet = tuple[str, ...]


class MultiIntentClassifier(SeveralOptions, TextClassifier):
    """Classifies texts that may have several intents, or none.

    The classifier is a scikit-learn estimator that takes texts. Each intent has two logistic
    regressions, one on the text's encoding and one on its words. The weight of words, the
    temperature and the threshold are fitted by cross-validation.

    Args:
      encoder: see `IntentClassifier`.
      logistic_c: the parameter `C` of scikit-learn's logistic regression.
      lexical: `"auto"` combines encodings and words; None uses encodings alone.
      threshold: the minimum probability of an answered intent. If None, the threshold with the
        highest micro F1 is used.
      label_separator: the character between two intents of the same text in files.
      random_state: seed for the folds.
      kind: the kind of encodings: `"sentence"`, `"reduced"` or `"similarity"`.

    Attributes:
      classes_: the intents, sorted.
      parts_: the trained head and word model, whose outputs are log-odds.
      mixture_: the weight of words and the temperature.
      threshold_: the threshold.

    Example:
      classifier = MultiIntentClassifier("hub_modules/convert/2")
      classifier.fit(["hi, block my card", "hello"], [["greet", "block"], ["greet"]])
      classifier.predict(["hi there"])  # [("greet",)]
    """

    def _listed_labels(self, labels: Iterable[Any]) -> list[Any]:
        return label_sets(labels)

    def fit(
        self, texts: Iterable[str], labels: Iterable[Collection[str]], sample_weight: Any = None
    ) -> "MultiIntentClassifier":
        """Train a head for each intent.

        If an error is raised, a fitted classifier stays as it was.

        Args:
          texts: the examples, in a list, an array or a table with one column.
          labels: for each example, a list, tuple or set of its intents, which may be empty.
          sample_weight: weight of each example; None for equal weights.

        Raises:
          ValueError: if a text is empty, there are fewer than two intents, a label contains
            `label_separator` or begins or ends with white space, or an option is out of range.
        """
        self.check_options()
        texts, sets = checked_texts(texts), label_sets(labels)
        check_equally_many(texts, sets, are_sets=True)
        weights = checked_weights(sample_weight, len(texts))
        with self._unchanged_on_errors():
            self.examples_ = None  # not kept, because examples cannot be added later
            self.classes_ = np.unique([label for labels in sets for label in labels])
            check_at_least_two(self.classes_.tolist())
            _check_labels(self.classes_.tolist(), self.label_separator)
            for message in alike_intents(self.classes_.tolist()):
                warnings.warn(message, stacklevel=2)
            self.kind_ = self.kind
            encodings, truth = self.encode(texts), truth_of(sets, self.classes_)
            examples = IntentExamples(texts, encodings, truth, np.zeros(len(texts), bool), weights)
            examples = examples.rows(weights > 0)
            options = {"head": "logistic", "logistic_c": self.logistic_c, "lexical": self.lexical}
            self.parts_ = train_parts(options, examples)
            folds = [
                Fold(is_held, examples.encodings)
                for is_held in _held_parts(examples, seed=self.random_state)
            ]
            outputs = held_out_outputs(options, examples, None, folds)
            self._mix(outputs)
            self.threshold_ = 0.5 if self.threshold is None else self.threshold
            if self.threshold is None and outputs is not None:  # there is more than one example
                self.threshold_ = best_threshold(
                    outputs.probabilities(self.mixture_), outputs.labels
                )
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # scikit-learn's folds for classifiers do not accept lists of labels.
        tags.estimator_type = None
        return tags

    def check_options(self) -> None:
        """Raise `ValueError` for options that are unknown or out of range."""
        super().check_options()
        _check_separator(self.label_separator)


def _held_parts(examples: IntentExamples, *, seed: int) -> Iterator[np.ndarray]:
    """Yield masks of the examples to hold out in turn: bool `[n]`. Copies are in the same part."""
    labels = [*map(tuple, examples.labels.tolist())]
    # Sort by text and labels, so that the order of the examples does not matter.
    places = sorted(
        range(len(examples.texts)), key=lambda place: (examples.texts[place], labels[place])
    )
    first, copy_of = distinct_examples(
        [examples.texts[place] for place in places], [labels[place] for place in places]
    )
    order = np.random.default_rng(seed).permutation(len(first))
    for part in np.array_split(order, _FOLDS):
        if 0 < len(part) < len(first):
            is_held = np.zeros(len(places), bool)
            is_held[places] = np.isin(copy_of, part)
            yield is_held


def _check_separator(separator: Any) -> None:
    if not isinstance(separator, str) or not separator:
        raise ValueError(
            "label_separator must be the character between two labels. Received: "
            f"{separator!r}. Pass {' or '.join(map(repr, SEPARATORS))}."
        )


def _check_labels(labels: Sequence[str], separator: str) -> None:
    """Raise `ValueError` unless `split_labels` can read the labels from files."""
    for label in labels:
        if separator in label:
            free = (one for one in SEPARATORS if not any(one in name for name in labels))
            other = next(free, None)
            advice = "" if other is None else f"Pass label_separator={other!r}, or rename it."
            raise ValueError(
                f"The label {label!r} contains {separator!r}, which separates the labels of a text "
                f"in files. {advice or 'Rename it.'}"
            )
        if label != label.strip():
            raise ValueError(
                f"The label {label!r} begins or ends with white space, which is lost when labels "
                "are read from files. Remove the white space."
            )


def split_labels(labels: Iterable[str], separator: str) -> list[LabelSet]:
    """Split labels from files, such as `"greet+block"`. An empty label has no intents.

    Raises:
      ValueError: if the separator is empty or not a string.
    """
    _check_separator(separator)
    return [
        tuple(part.strip() for part in label.split(separator) if fold(part)) for label in labels
    ]


def label_sets(labels: Iterable[Collection[str]]) -> list[LabelSet]:
    """Return the set of labels of each text as a sorted tuple.

    Raises:
      ValueError: if the labels of a text are not a collection of strings, or a label contains only
        white space and invisible characters.
    """
    if labels is None:
        raise ValueError("labels must contain a list for each text. Received: None.")
    sets = []
    for number, names in enumerate(labels):
        if isinstance(names, str | bytes | Mapping) or not isinstance(names, Collection):
            raise ValueError(
                f"labels must contain a list for each text. Received: {names!r} at position "
                f"{number}. Pass [{names!r}]."
            )
        if not all(isinstance(name, str) and fold(name) for name in names):
            raise ValueError(
                f"Labels must be strings, and not empty. Received: {[*names]!r} at position "
                f"{number}."
            )
        sets.append(tuple(sorted({*map(plain, names)})))
    return sets


def truth_of(sets: Sequence[LabelSet], classes: np.ndarray) -> np.ndarray:
    """Return the intents of each text as a matrix: bool `[texts, intents]`."""
    return MultiLabelBinarizer(classes=classes).fit_transform(sets).astype(bool)


def best_threshold(probabilities: np.ndarray, truth: np.ndarray) -> float:
    """Return the threshold from a grid with the highest micro F1; in a tie, the one nearest 0.5.

    Args:
      probabilities: float `[n, intents]`, the predicted probabilities.
      truth: bool `[n, intents]`, the correct intents.
    """

    def f1(threshold: float) -> float:
        answers = probabilities >= threshold
        return float(f1_score(truth, answers, average="micro", zero_division=0))

    return float(
        max(_THRESHOLDS, key=lambda threshold: (round(f1(threshold), 9), -abs(threshold - 0.5)))
    )
