"""Answers to held-out examples, and what is fitted on them.

Each part of the examples is held out once. The answers to it show how much words should count
compared with the encoding, and how sure the classifier may be.

A text has one intent, or any number of intents. Labels are then numbers, int `[n]`, or a matrix,
bool `[n, intents]`.

Reference: Wolpert, "Stacked generalization", 1992; arXiv 1706.04599 (temperature scaling).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from convert_tf.intents.data import fold_numbers
from convert_tf.intents.examples import OUTSIDE, Encode, IntentExamples
from convert_tf.intents.head import LOGISTIC_C, Head, softmax, train_head
from convert_tf.intents.lexical import LexicalModel, train_lexical
from convert_tf.intents.scope import ScopeScores, centroids_of, nearest_cosines

LEXICAL = ("auto",)
_FOLDS = 5
_FEW_FOLDS = 3  # to compare examples with and without names
_MANY = 3_000  # with more examples, one fold is enough
_LOGISTIC = {"head": "logistic", "logistic_c": LOGISTIC_C}
WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
TEMPERATURES = np.geomspace(0.25, 4.0, 33)
_LEAST = 1e-12  # probability
_LEAST_OF_SEVERAL = 1e-7  # 1 - p of float32 has no smaller steps


class Parts(NamedTuple):
    """The trained parts of a classifier.

    Attributes:
      head: encodings to probabilities.
      lexical: words to probabilities; None if they do not count.
      centroids: float32 `[intents, dim]`.
    """

    head: Head
    lexical: LexicalModel | None
    centroids: np.ndarray


class Mixture(NamedTuple):
    """Combines log-probabilities or log-odds: ((1 - w) · head + w · lexical) / T.

    Attributes:
      weight: w, from 0 to 1, of words.
      temperature: T; above 1 the answers are less sure.
    """

    weight: float = 0.0
    temperature: float = 1.0

    def logits(self, head: np.ndarray, lexical: np.ndarray | None) -> np.ndarray:
        """Return the combination; all have shape `[n, intents]`."""
        mixed = head
        if lexical is not None:
            mixed = (1 - self.weight) * head + self.weight * lexical
        return mixed / self.temperature


class Answers(NamedTuple):
    """Answers to n examples.

    Attributes:
      labels: the right labels: int `[n]`, with `OUTSIDE` for texts without an intent; or bool
        `[n, intents]`.
      head: log-probabilities of the head, or log-odds for any number of intents: float32
        `[n, intents]`.
      lexical: the same by the model of words; None if words do not count.
      nearest: cosines to the nearest centroid, float32 `[n]`.
    """

    labels: np.ndarray
    head: np.ndarray
    lexical: np.ndarray | None
    nearest: np.ndarray

    def probabilities(self, mixture: Mixture) -> np.ndarray:
        """Return the probabilities of the intents: float32 `[n, intents]`."""
        logits = mixture.logits(self.head, self.lexical)
        if self.labels.ndim == 1:
            return softmax(logits)
        return 0.5 + 0.5 * np.tanh(0.5 * logits)  # the sigmoid, without overflow

    def inside(self) -> "Answers":
        """Return the answers to examples with an intent."""
        if self.labels.ndim > 1:
            return self
        is_in = self.labels != OUTSIDE
        lexical = None if self.lexical is None else self.lexical[is_in]
        return Answers(self.labels[is_in], self.head[is_in], lexical, self.nearest[is_in])


class Fold(NamedTuple):
    """A part that is held out.

    Attributes:
      is_held: bool `[n]`, the examples of the part.
      encodings: float32 `[n, dim]`, by an encoder that was not trained on the part.
    """

    is_held: np.ndarray
    encodings: np.ndarray


def train_parts(
    options: Mapping[str, Any], examples: IntentExamples, *, has_lexical: bool
) -> Parts:
    """Train all parts of a classifier.

    Args:
      options: see `train_head`.
      examples: what is trained on, except those out of scope.
      has_lexical: whether words count.
    """
    texts, encodings, labels, is_name, weights = examples.rows(examples.is_inside)
    return Parts(
        train_head(options, encodings, labels, weights),
        train_lexical(texts, labels, weights) if has_lexical else None,
        centroids_of(encodings[~is_name], labels[~is_name]),
    )


def answers_of(
    parts: Parts, texts: Sequence[str], encodings: np.ndarray, labels: np.ndarray
) -> Answers:
    """Return answers to texts; arguments as in `Answers`."""
    lexical = None
    if labels.ndim > 1:
        ((kernel, bias),) = parts.head.layers
        head = encodings @ kernel + bias
        if parts.lexical is not None:
            lexical = parts.lexical.logits(texts)
    else:
        head = log_of(parts.head.probabilities(encodings))
        if parts.lexical is not None:
            lexical = log_of(parts.lexical.probabilities(texts))
    return Answers(labels, head, lexical, nearest_cosines(encodings, parts.centroids))


def log_of(probabilities: np.ndarray) -> np.ndarray:
    """Return logarithms, none of them infinite."""
    return np.log(np.maximum(probabilities, _LEAST))


def frozen_folds(examples: IntentExamples, *, seed: int, folds: int = _FOLDS) -> list[Fold]:
    """Return folds of an encoder that was not trained on the examples; see `held_parts`."""
    parts = held_parts(examples, seed=seed, folds=folds)
    return [Fold(is_held, examples.encodings) for is_held in parts]


def held_parts(examples: IntentExamples, *, seed: int, folds: int = _FOLDS) -> list[np.ndarray]:
    """Return the part that each fold holds out, bool `[n]`: a part of each intent.

    Args:
      examples: names and the only example of an intent are never held out. Examples out of scope
        are in no part.
      seed: of the parts.
      folds: how many. Of more than 3,000 examples only the first part is held out.
    """
    places = np.flatnonzero(examples.is_inside & ~examples.is_name)
    numbers = np.full(len(examples.texts), -1)
    numbers[places] = fold_numbers(examples.labels[places].tolist(), folds, seed=seed)
    parts = [numbers == number for number in range(1 if len(places) > _MANY else folds)]
    return [part for part in parts if part.any()]


def judged_answers(
    options: Mapping[str, Any],
    examples: IntentExamples,
    checked: IntentExamples | None,
    folds: Sequence[Fold],
    *,
    has_lexical: bool,
) -> Answers | None:
    """Return answers that show how good a classifier with these options and encodings is.

    Args:
      options: see `train_head`.
      examples: what is trained on. Those out of scope are distributed over the folds.
      checked: validation data to answer. Without them the part of each fold is answered by a
        classifier that was trained on the rest.
      folds: of the examples.
      has_lexical: whether words count.

    Returns:
      None if nothing can be held out, because each intent has one example.
    """
    if checked is not None:
        return answers_of(train_parts(options, examples, has_lexical=has_lexical), *checked[:3])
    found = []
    outside = np.flatnonzero(~examples.is_inside)
    for index, fold in enumerate(folds):
        is_held = fold.is_held.copy()
        is_held[outside[index :: len(folds)]] = True
        encoded = examples._replace(encodings=fold.encodings)
        parts = train_parts(options, encoded.rows(~is_held), has_lexical=has_lexical)
        found.append(answers_of(parts, *encoded.rows(is_held)[:3]))
    if not found:
        return None
    labels, head, lexical, nearest = zip(*found, strict=True)
    return Answers(
        np.concatenate(labels),
        np.concatenate(head),
        np.concatenate(lexical) if has_lexical else None,
        np.concatenate(nearest),
    )


def with_helpful_names(
    examples: IntentExamples,
    classes: Iterable[Any],
    encode: Encode,
    names: str | None,
    checked: IntentExamples | None,
    *,
    left_out: Any,
    seed: int,
) -> IntentExamples:
    """Return examples with the names of intents if that is asked for or helps.

    It helps where logistic regression on encodings is right more often with them.

    Args:
      examples: without names.
      classes: the intents, sorted.
      encode: what the encodings are by.
      names: as in `IntentClassifier`.
      checked: what is judged on; None holds parts out.
      left_out: an intent whose name is no example.
      seed: of the parts.
    """
    named = examples
    if names is not None:
        named = examples.with_names(classes, encode, left_out=left_out)
    if names == "always" or not named.is_name.any():
        return named
    accuracies = []
    for own in (examples, named):
        folds = frozen_folds(own, seed=seed, folds=_FEW_FOLDS)
        answers = judged_answers(_LOGISTIC, own, checked, folds, has_lexical=False)
        if answers is None:
            return examples
        accuracies.append(accuracy_of_answers(answers))
    return named if accuracies[1] > accuracies[0] else examples


def fit_mixture(answers: Answers) -> Mixture:
    """Return the mixture of a grid that makes the right answers most probable.

    It has the highest mean log-probability. Of equal ones it has the smallest weight of words.
    """
    answers = answers.inside()
    if not len(answers.labels):
        return Mixture()

    def likelihood(mixture: Mixture) -> float:
        probabilities, labels = answers.probabilities(mixture), answers.labels
        if labels.ndim > 1:
            right = np.where(labels, probabilities, 1 - probabilities)
            return float(np.log(np.maximum(right, _LEAST_OF_SEVERAL)).mean())
        return float(log_of(probabilities[np.arange(len(labels)), labels]).mean())

    weights = (0.0,) if answers.lexical is None else WEIGHTS
    tried = (Mixture(weight, float(heat)) for weight in weights for heat in TEMPERATURES)
    return max(tried, key=likelihood)


def right_answers(answers: Answers) -> np.ndarray:
    """Return which examples in scope are answered right: bool `[in scope]`."""
    answers = answers.inside()
    predicted = answers.probabilities(fit_mixture(answers)).argmax(axis=1)
    return np.asarray(predicted == answers.labels)


def accuracy_of_answers(answers: Answers) -> float:
    """Return the share of examples in scope that are answered right."""
    return float(right_answers(answers).mean())


def are_clearly_more(others: np.ndarray, own: np.ndarray) -> bool:
    """Return whether others are right more often, by more than a standard error.

    Args:
      others, own: which of the same examples they answer right, bool `[n]`.

    Reference: McNemar, "Note on the sampling error of the difference between correlated proportions
    or percentages", 1947.
    """
    gained, lost = np.sum(others & ~own), np.sum(own & ~others)
    return bool(gained - lost > np.sqrt(gained + lost))


def sureness(answers: Answers, mixture: Mixture, kind: str | None) -> np.ndarray:
    """Return how surely texts are in scope, float32 `[n]`; `kind` as in `IntentClassifier`."""
    if kind == "distance":
        return answers.nearest
    return answers.probabilities(mixture).max(axis=1, initial=0)


def scope_scores_of(answers: Answers, mixture: Mixture, kind: str | None) -> ScopeScores:
    """Return how surely the examples are in scope; `kind` as in `IntentClassifier`."""
    predicted = answers.probabilities(mixture).argmax(axis=1)
    scores = sureness(answers, mixture, kind)
    return ScopeScores(scores, predicted, predicted == answers.labels, answers.labels != OUTSIDE)


def calibration_error(confidence: np.ndarray, is_right: np.ndarray, *, bins: int = 15) -> float:
    """Return the expected calibration error: how far confidence is from accuracy, in bins.

    Args:
      confidence: float `[n]`, from 0 to 1.
      is_right: bool `[n]`.
      bins: of equal width.

    Reference: arXiv 1706.04599 §2.
    """
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = np.bincount(place, is_right - confidence, bins)
    return float(np.abs(gaps).sum() / max(len(confidence), 1))
