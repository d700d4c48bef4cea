"""Fit the weight of words and the thresholds on outputs for held-out examples.

Each part of the examples is held out once. The outputs for the held-out examples show how much
weight the word model should have compared with the head, and how confident answers should be.

If each text has one intent, labels are the numbers of the intents, int `[n]`. If texts may have
several intents, labels are a matrix that marks the intents of each text, bool `[n, intents]`.

Reference: Wolpert, "Stacked generalization", 1992; arXiv 1706.04599 (temperature scaling).
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from convert_tf.intents.data import distinct_examples, fold_numbers
from convert_tf.intents.decision import COSINE_WEIGHT, Decision, SeveralIntents, SingleIntent
from convert_tf.intents.examples import OUTSIDE, IntentExamples
from convert_tf.intents.head import Head, Options, softmax, train_head
from convert_tf.intents.lexical import LexicalModel, train_lexical
from convert_tf.numerics.vectors import unit_rows

_ENOUGH = 20  # number of examples that an intent needs to get its own threshold
# Share of in-scope examples to reject by default if there are no out-of-scope examples.
_REJECTED_SHARE = 0.05
_SHARED = 20  # total weight of all examples when an intent's threshold is fitted
LEXICAL = ("auto",)
FOLDS = 3
_QUARTERS = 4  # number of groups of intents, each of which is left out once
_ENOUGH_INTENTS = 8  # with fewer intents, none are left out
_EQUAL_AREAS = 0.005
_MANY = 3_000  # with more examples, one fold is enough
WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
TEMPERATURES = np.geomspace(0.25, 4.0, 33)
COSINE_WEIGHTS = (0.0, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 50.0)
_LEAST = 1e-12  # lower bound for probabilities before taking logarithms
_LEAST_OF_SEVERAL = 1e-7  # about the smallest step of 1 - p in float32


class Parts(NamedTuple):
    """The trained parts of a classifier.

    Attributes:
      head: the model that turns encodings into probabilities.
      lexical: the model that turns words into probabilities; None if words have no weight.
      centroids: float32 `[intents, dim]`, the mean encodings of the intents, normalised to length
        1.
    """

    head: Head
    lexical: LexicalModel | None
    centroids: np.ndarray


class Mixture(NamedTuple):
    """Combines the outputs of the head and the word model: ((1 - w) · head + w · lexical) / T.

    The outputs are log-probabilities or log-odds.

    Attributes:
      weight: w, the weight of words, from 0 to 1.
      temperature: T. Values above 1 make the answers less confident.
      cosine: weight of the cosine in the score that decides whether a text is in scope; see
        `SingleIntent`.
    """

    weight: float = 0.0
    temperature: float = 1.0
    cosine: float = COSINE_WEIGHT

    def logits(self, head: np.ndarray, lexical: np.ndarray | None) -> np.ndarray:
        """Combine two arrays of log-probabilities or log-odds, both `[n, intents]`."""
        mixed = head
        if lexical is not None:
            mixed = (1 - self.weight) * head + self.weight * lexical
        return mixed / self.temperature


class Outputs(NamedTuple):
    """The outputs of a classifier's parts for n texts.

    Attributes:
      labels: the correct labels: int `[n]`, with `OUTSIDE` for texts without an intent; or bool
        `[n, intents]`.
      head: the head's log-probabilities, or its log-odds if a text may have several intents,
        float32 `[n, intents]`.
      lexical: the log-probabilities or log-odds of the word model, float32 `[n, intents]`; None if
        words have no weight.
      nearest: the cosine of each text to the nearest centroid, float32 `[n]`.
    """

    labels: np.ndarray
    head: np.ndarray
    lexical: np.ndarray | None
    nearest: np.ndarray

    def probabilities(self, mixture: Mixture) -> np.ndarray:
        """Return the probabilities of the intents: float32 `[n, intents]`."""
        kind = SingleIntent if self.labels.ndim == 1 else SeveralIntents
        return kind.probabilities(mixture.logits(self.head, self.lexical))

    def inside(self) -> "Outputs":
        """Return only the outputs for examples that have an intent."""
        if self.labels.ndim > 1:
            return self
        is_in = self.labels != OUTSIDE
        columns: Iterable[Any] = (None if column is None else column[is_in] for column in self)
        return Outputs(*columns)


class ScopeScores(NamedTuple):
    """Scores of n validation examples. A high score means that the example is in scope.

    Attributes:
      scores: float `[n]`, the scores.
      predicted: int `[n]`, the most probable intents.
      is_right: bool `[n]`, whether the most probable intent is correct.
      is_in: bool `[n]`, whether the example is in scope.
    """

    scores: np.ndarray
    predicted: np.ndarray
    is_right: np.ndarray
    is_in: np.ndarray


class Fold(NamedTuple):
    """A held-out part of the examples.

    Attributes:
      is_held: bool `[n]`, which examples are held out.
      encodings: float32 `[n, dim]`, encodings of all examples, from an encoder that was not trained
        on the held-out part.
    """

    is_held: np.ndarray
    encodings: np.ndarray


# The arguments of `held_out_outputs`.
Trial = tuple[Options, IntentExamples, IntentExamples | None, Sequence[Fold]]


def train_parts(
    options: Options, examples: IntentExamples, validation: IntentExamples | None = None
) -> Parts:
    """Train all parts of a classifier.

    Args:
      options: see `train_head`. A word model is trained if the option `lexical` is given and is not
        None.
      examples: the examples. Out-of-scope examples are not trained on.
      validation: in-scope examples that decide when the training of a network stops (`patience`).
    """
    texts, encodings, labels, is_name, weights = examples.rows(examples.is_inside)
    has_lexical = options.get("lexical") is not None
    truth = labels if labels.ndim > 1 else labels[:, None] == np.arange(labels.max() + 1)
    return Parts(
        train_head(
            options,
            encodings,
            labels,
            weights,
            validation=None if validation is None else (validation.encodings, validation.labels),
        ),
        train_lexical(texts, labels, weights) if has_lexical else None,
        unit_rows(truth[~is_name].T.astype(np.float32) @ encodings[~is_name]),
    )


def outputs_of(
    parts: Parts, texts: Sequence[str], encodings: np.ndarray, labels: np.ndarray
) -> Outputs:
    """Return a classifier's outputs for texts. `labels` are as in `Outputs`."""
    lexical = None if parts.lexical is None else parts.lexical.logits(texts)
    if labels.ndim > 1:
        head = parts.head.logits(encodings)
    else:
        head = log_of(parts.head.probabilities(encodings))
        lexical = None if lexical is None else log_of(softmax(lexical))
    nearest = (encodings @ parts.centroids.T).max(axis=1, initial=-1)
    return Outputs(labels, head, lexical, nearest)


def log_of(probabilities: np.ndarray) -> np.ndarray:
    """Return the logarithms of probabilities, with a lower bound so that none is infinite."""
    return np.log(np.maximum(probabilities, _LEAST))


def frozen_folds(examples: IntentExamples, *, seed: int, folds: int = FOLDS) -> list[Fold]:
    """Return the folds for an encoder that was not trained on the examples; see `held_parts`."""
    parts = held_parts(examples, seed=seed, folds=folds)
    return [Fold(is_held, examples.encodings) for is_held in parts]


def held_parts(examples: IntentExamples, *, seed: int, folds: int = FOLDS) -> list[np.ndarray]:
    """Return masks of the examples to hold out in turn, each bool `[n]`.

    The distinct examples of an intent are spread evenly over the parts, and all copies of an
    example are in the same part. The parts do not depend on the order of the examples.

    Args:
      examples: the examples. Names are never held out. The only example of an intent and its
        copies are not held out either. Out-of-scope examples are in no part.
      seed: seed for the division into parts.
      folds: number of parts. With more than 3,000 examples, only the first part is returned.
    """
    inside = np.flatnonzero(examples.is_inside & ~examples.is_name).tolist()
    # Sort by text, so that the order of the examples does not matter.
    places = np.array(
        sorted(inside, key=lambda place: (examples.texts[place], examples.labels[place])), int
    )
    numbers = np.full(len(examples.texts), -1)
    labels = examples.labels[places]
    first, copy_of = distinct_examples([examples.texts[place] for place in places], labels.tolist())
    numbers[places] = fold_numbers(labels[first].tolist(), folds, seed=seed)[copy_of]
    parts = [numbers == number for number in range(1 if len(places) > _MANY else folds)]
    return [part for part in parts if part.any()]


def held_out_outputs(
    options: Options,
    examples: IntentExamples,
    checked: IntentExamples | None,
    folds: Sequence[Fold],
) -> Outputs | None:
    """Return the outputs that a classifier with these options and encodings is judged by.

    Args:
      options: see `train_parts`.
      examples: the training examples. Out-of-scope examples are distributed over the folds.
      checked: validation data, which a classifier trained on all examples answers. If None, each
        fold's held-out part is answered by a classifier that was trained on the other examples.
      folds: folds of the examples.

    Returns:
      The outputs; None if no example can be held out because each intent has only one example.
    """
    if checked is not None:
        return outputs_of(train_parts(options, examples), *checked[:3])
    by_fold = []
    # Sort by text, as for the folds, so that the order of the examples does not matter.
    outside = np.flatnonzero(~examples.is_inside).tolist()
    outside = np.array(sorted(outside, key=examples.texts.__getitem__), int)
    for index, fold in enumerate(folds):
        is_held = fold.is_held.copy()
        is_held[outside[index :: len(folds)]] = True
        encoded = examples._replace(encodings=fold.encodings)
        parts = train_parts(options, encoded.rows(~is_held))
        by_fold.append(outputs_of(parts, *encoded.rows(is_held)[:3]))
    if not by_fold:
        return None
    columns: Iterable[Any] = (
        None if parts[0] is None else np.concatenate(parts) for parts in zip(*by_fold, strict=True)
    )
    return Outputs(*columns)


def most_right(tried: Sequence[Trial]) -> tuple[int, Outputs, np.ndarray] | None:
    """Find the classifier that answers the most held-out examples correctly, or the first in a tie.

    Args:
      tried: the arguments of `held_out_outputs` for each classifier. All classifiers must be judged
        on the same texts, because the word model is trained only for the first classifier.

    Returns:
      A tuple of the index of the best classifier in `tried`, its outputs, and whether it answers
      each in-scope example correctly, bool `[in scope]`; or None if no example can be held out.
    """
    judged: list[Outputs] = []
    for options, examples, checked, folds in tried:
        if judged:
            options = {**options, "lexical": None}
        answers = held_out_outputs(options, examples, checked, folds)
        if answers is None:
            return None
        judged.append(answers._replace(lexical=judged[0].lexical) if judged else answers)
    right = [are_right(answers) for answers in judged]
    best = int(np.argmax([is_right.mean() for is_right in right]))
    return best, judged[best], right[best]


def fit_mixture(answers: Outputs) -> Mixture:
    """Return the mixture, from a grid, with the highest mean log-probability of correct answers.

    If several mixtures are equally good, the one with the smallest weight for words is used.
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


def left_out_outputs(options: Options, examples: IntentExamples, *, seed: int) -> list[Outputs]:
    """Return outputs for held-out examples, some of which have intents that were not trained.

    Each quarter of the intents is left out of training in turn. Examples of these intents get the
    label `OUTSIDE`.

    Args:
      options: see `train_parts`.
      examples: the training examples, encoded by an encoder that was not trained on them.
      seed: seed for the division into quarters.

    Returns:
      The outputs for each quarter; an empty list if there are fewer than eight intents.
    """
    examples = examples.rows(examples.is_inside)
    number = int(examples.labels.max()) + 1
    if number < _ENOUGH_INTENTS:
        return []
    quarters = np.random.default_rng(seed).permutation(number) % _QUARTERS
    answers = []
    for quarter, fold in enumerate(frozen_folds(examples, seed=seed, folds=_QUARTERS)):
        is_out = quarters[examples.labels] == quarter
        labels = np.full(len(is_out), OUTSIDE)
        labels[~is_out] = np.unique(examples.labels[~is_out], return_inverse=True)[1]
        shown = examples._replace(labels=labels)
        outputs = held_out_outputs(
            options, shown, None, [fold._replace(is_held=fold.is_held & ~is_out)]
        )
        if outputs is not None and 0 < (outputs.labels == OUTSIDE).sum() < len(outputs.labels):
            answers.append(outputs)
    return answers


def fit_cosine(answers: Sequence[Outputs], mixture: Mixture) -> float:
    """Return the weight of the cosine that best separates out-of-scope from in-scope texts.

    It is the smallest weight whose mean area under the ROC curve (AUROC) is at most half a point
    below the maximum. A larger weight would raise the AUROC on these texts only a little. For users
    with other out-of-scope texts, it would lower the AUROC a lot.

    Args:
      answers: outputs for texts, some of which are out of scope.
      mixture: the mixture that turns the outputs into probabilities.
    """
    from sklearn.metrics import roc_auc_score

    def area(weight: float) -> float:
        decision = SingleIntent(np.zeros(0), out_of_scope="both", cosine_weight=weight)
        scores = [scope_scores_of(outputs, mixture, decision) for outputs in answers]
        return float(np.mean([roc_auc_score(one.is_in, one.scores) for one in scores]))

    areas = [*map(area, COSINE_WEIGHTS)]
    return next(
        weight
        for weight, value in zip(COSINE_WEIGHTS, areas, strict=True)
        if value >= max(areas) - _EQUAL_AREAS
    )


def are_right(answers: Outputs) -> np.ndarray:
    """Return which in-scope examples are answered correctly: bool `[in scope]`."""
    answers = answers.inside()
    predicted = answers.probabilities(fit_mixture(answers)).argmax(axis=1)
    return np.asarray(predicted == answers.labels)


def are_clearly_more(others: np.ndarray, first: np.ndarray) -> bool:
    """Return whether one classifier answers clearly more examples correctly than another.

    "Clearly" means that the difference exceeds one standard error of the difference.

    Args:
      others: which examples the one classifier answers correctly, bool `[n]`.
      first: which examples the other classifier answers correctly, bool `[n]`.

    Reference: McNemar, "Note on the sampling error of the difference between correlated proportions
    or percentages", 1947.
    """
    gained, lost = np.sum(others & ~first), np.sum(first & ~others)
    return bool(gained - lost > np.sqrt(gained + lost))


def scope_scores_of(outputs: Outputs, mixture: Mixture, decision: Decision) -> ScopeScores:
    """Return the scores from which `decision` judges whether examples are in scope."""
    probabilities = outputs.probabilities(mixture)
    predicted, labels = probabilities.argmax(axis=1), outputs.labels
    scores = decision.scores(probabilities, outputs.nearest)
    return ScopeScores(scores, predicted, predicted == labels, labels != OUTSIDE)


def calibration_error(confidence: np.ndarray, is_right: np.ndarray, *, bins: int = 15) -> float:
    """Return the expected calibration error: the mean gap between confidence and accuracy in bins.

    Args:
      confidence: float `[n]`, the confidence of each answer, from 0 to 1.
      is_right: bool `[n]`, whether each answer is correct.
      bins: number of bins of equal width.

    Reference: arXiv 1706.04599 §2.
    """
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = np.bincount(place, is_right - confidence, bins)
    return float(np.abs(gaps).sum() / max(len(confidence), 1))


def fit_threshold(scores: ScopeScores, rejected_share: float | None = None) -> float:
    """Return the score below which an example is out of scope.

    Args:
      scores: scores of validation examples, some of which are in scope.
      rejected_share: share of the in-scope examples to reject. If None, the threshold is chosen by
        accuracy and recall or, if no example is out of scope, a share of 0.05 is rejected.

    Returns:
      The score below which `rejected_share` of the in-scope examples lie. If `rejected_share` is
      None and some examples are out of scope, it is the threshold with the highest mean of in-scope
      accuracy and out-of-scope recall, halfway between the neighbouring scores. A rejected in-scope
      example counts as an error.
    """
    if rejected_share is not None or scores.is_in.all():
        share = _REJECTED_SHARE if rejected_share is None else rejected_share
        return float(np.quantile(scores.scores[scores.is_in], share))
    between = _between(scores.scores)
    return float(between[np.argmax(_gain(scores, between))])


def fit_intent_thresholds(
    scores: ScopeScores, threshold: float, num_intents: int, rejected_share: float | None = None
) -> np.ndarray:
    """Return a threshold for each predicted intent.

    Args:
      scores: scores of validation examples.
      threshold: the threshold for all intents. Intents with few examples get this threshold.
      num_intents: number of intents.
      rejected_share: as in `fit_threshold`.

    Returns:
      The thresholds, float64 `[num_intents]`. Each is fitted as in `fit_threshold`, on the examples
      that are answered with the intent and, with a total weight of 20, on all examples.
    """
    thresholds = np.full(num_intents, threshold, np.float64)
    shared = _SHARED / len(scores.scores)
    between = _between(scores.scores)
    for intent in range(num_intents):
        is_own = scores.predicted == intent
        if is_own.sum() < _ENOUGH:
            continue
        if rejected_share is not None or scores.is_in.all():
            share = _REJECTED_SHARE if rejected_share is None else rejected_share
            weights = (is_own + shared) * scores.is_in
            order = np.argsort(scores.scores)
            reached = np.cumsum(weights[order]) >= share * weights.sum()
            thresholds[intent] = scores.scores[order][np.argmax(reached)]
        else:
            gain = _gain(scores, between, is_own) + shared * _gain(scores, between)
            thresholds[intent] = between[np.argmax(gain)]
    return thresholds


def _between(scores: np.ndarray) -> np.ndarray:
    """Return candidate thresholds: the lowest score, all midpoints, and one above all scores."""
    values = np.unique(scores)
    above = np.nextafter(values[-1:], np.inf)  # adding a small constant may not change a float32
    return np.concatenate([values[:1], (values[1:] + values[:-1]) / 2, above])


def _gain(scores: ScopeScores, thresholds: np.ndarray, chosen: Any = True) -> np.ndarray:
    """Return in-scope accuracy plus out-of-scope recall for each threshold.

    Only the examples in `chosen`, bool `[n]`, are counted, but the counts are divided by the
    numbers of all in-scope and all out-of-scope examples.
    """
    right = np.sort(scores.scores[scores.is_right & scores.is_in & chosen])
    rejected = np.sort(scores.scores[~scores.is_in & chosen])
    accuracy = (len(right) - np.searchsorted(right, thresholds)) / scores.is_in.sum()
    return accuracy + np.searchsorted(rejected, thresholds) / (~scores.is_in).sum()
