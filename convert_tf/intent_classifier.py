"""An intent classifier on frozen encodings, as a scikit-learn estimator."""

import copy
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from convert_tf.intent_data import check_intents, checked_labels, checked_texts, held_out
from convert_tf.intent_encodings import IntentEncodings
from convert_tf.intent_head import LOGISTIC_C, Head
from convert_tf.intent_scope import KINDS, centroids_of, fit_threshold, scope_scores
from convert_tf.intent_tuning import (
    HEADS,
    OPTIONS,
    best_options,
    fold_scores,
    scores_of,
    train_head,
)

# What `train --tune` tries; the ConveRT paper names the three, not their values.
GRIDS: dict[str, dict[str, tuple[float, ...]]] = {
    "network": {
        "hidden_dim": (256, 512),
        "dropout": (0.5, 0.75),
        "learning_rate": (0.2, 0.7),
    },
    "logistic": {"logistic_c": (1.0, 3.0, 10.0, 30.0, 100.0)},
}
Validation = tuple[Iterable[str], Iterable[Any]]


class IntentClassifier(ClassifierMixin, BaseEstimator):
    """Tells the intent of a text from its frozen encoding.

    A scikit-learn estimator whose inputs are texts: it can be cloned, cross-validated, searched
    over and put at the end of a pipeline. Each text is encoded once; clones share what was encoded.

    Args:
      encoder: a module's folder or `.onnx` file, a `SentenceEncoder` or another object with
        `encode(texts)`, a callable texts → vectors, or a list of these, whose encodings, each of
        length 1, are concatenated.
      head: `"network"`: dropout, one hidden ReLU layer, softmax; `"logistic"`: logistic regression.
      hidden_dim: units of the network's hidden layer.
      dropout: share of the encoding that is set to 0 in training.
      learning_rate: of gradient descent; falls linearly to 0.
      epochs: of `ceil(examples / batch_size)` steps.
      batch_size: examples of a step, drawn with replacement.
      patience: epochs without better validation accuracy after which the network stops; None never
        stops.
      logistic_c: scikit-learn's `C` of logistic regression.
      grid: values to try by parameter name, as `GRIDS["network"]`: the best on validation data is
        trained. None tries nothing.
      validation_fraction: share of the examples that `grid` and `patience` validate on where `fit`
        is given no validation data.
      out_of_scope: None answers every text with an intent; `"confidence"` and `"distance"` answer
        None below a threshold of the highest probability, or of the cosine to the nearest mean
        encoding of an intent.
      threshold: the threshold; None fits it on validation data, or by cross-validation where `fit`
        is given none.
      rejected_share: in-scope validation examples below the threshold where there is no example out
        of scope to fit it with.
      out_of_scope_label: label of examples that have no intent, which fit the threshold and train
        nothing else.
      random_state: seed of weights, batches, dropout and folds.

    Attributes:
      classes_: the intents, sorted.
      head_: its weights.
      threshold_: None, or the threshold.
      centroids_: float32 `[intents, dim]`, mean encodings of length 1.
      best_params_: what `grid` chose; empty without.

    Example:
      classifier = IntentClassifier("hub_modules/convert/1").fit(texts, labels)
      classifier.predict(["where is my card?"])

    Reference: arXiv 2003.04807 §2, §4; arXiv 1911.03688 §3.1 (grid search, early stopping).
    """

    def __init__(
        self,
        encoder: Any,
        head: str = "network",
        *,
        hidden_dim: int = 512,
        dropout: float = 0.75,
        learning_rate: float = 0.7,
        epochs: int = 500,
        batch_size: int = 32,
        patience: int | None = None,
        logistic_c: float = LOGISTIC_C,
        grid: Mapping[str, Sequence[Any]] | None = None,
        validation_fraction: float = 0.1,
        out_of_scope: str | None = None,
        threshold: float | None = None,
        rejected_share: float = 0.05,
        out_of_scope_label: Any = "oos",
        random_state: int = 0,
    ):
        self.encoder = encoder
        self.head = head
        self.hidden_dim = hidden_dim
        self.dropout = dropout
        self.learning_rate = learning_rate
        self.epochs = epochs
        self.batch_size = batch_size
        self.patience = patience
        self.logistic_c = logistic_c
        self.grid = grid
        self.validation_fraction = validation_fraction
        self.out_of_scope = out_of_scope
        self.threshold = threshold
        self.rejected_share = rejected_share
        self.out_of_scope_label = out_of_scope_label
        self.random_state = random_state

    def fit(
        self,
        texts: Iterable[str],
        labels: Iterable[Any],
        *,
        validation: Validation | None = None,
    ) -> "IntentClassifier":
        """Trains the head.

        Args:
          texts: the examples.
          labels: the intent of each, or `out_of_scope_label`.
          validation: texts and labels that choose what `grid`, `patience` and the threshold need;
            nothing else is learnt from them.

        Raises:
          ValueError: a text is empty, there are fewer than two intents, or an option is unknown.
        """
        self._check_options()
        texts, names = checked_texts(texts), checked_labels(labels)
        is_in = self._in_scope(names, len(texts))
        in_texts = [text for text, own in zip(texts, is_in, strict=True) if own]
        for message in check_intents(in_texts, names[is_in].tolist()):
            warnings.warn(message, stacklevel=2)
        self.classes_ = np.unique(names[is_in])
        encodings = self.encode(texts)
        x, outside = encodings[is_in], encodings[~is_in]
        y = np.searchsorted(self.classes_, names[is_in])
        given = None if validation is None else self._validation(*validation)
        options = {name: getattr(self, name) for name in OPTIONS[self.head]}
        options |= {"head": self.head, "seed": self.random_state}
        self.best_params_: dict[str, Any] = {}
        kept = np.ones(len(y), bool)
        patience = options.get("patience")  # logistic regression has none
        if self.grid is not None or patience is not None:
            fitting, checking = (x, y), given and given[:2]
            if checking is None:
                chosen = held_out(y.tolist(), self.validation_fraction, seed=self.random_state)
                fitting, checking = (x[~chosen], y[~chosen]), (x[chosen], y[chosen])
                kept = ~chosen if patience is not None else kept
            if not len(checking[1]):
                raise ValueError(
                    "grid and patience need examples to validate on. Received: none, as each "
                    "intent has one example. Add examples, or pass validation=(texts, labels)."
                )
            self.best_params_ = best_options(options, self.grid or {}, *fitting, checking)
            options |= self.best_params_
            self.head_ = train_head(options, x[kept], y[kept], checking)
        else:
            self.head_ = train_head(options, x, y)
        self._fit_scope(x, y, outside, given, options)
        return self

    def adopt_head(
        self,
        head: Head,
        texts: Iterable[str],
        labels: Iterable[Any],
        *,
        validation: Validation,
    ) -> "IntentClassifier":
        """Takes a head that was trained elsewhere in place of training one.

        Args:
          head: its outputs are the sorted intents of `labels`.
          texts, labels: what it was trained on.
          validation: what the threshold is fitted on.
        """
        self._check_options()
        texts, names = checked_texts(texts), checked_labels(labels)
        is_in = self._in_scope(names, len(texts))
        self.classes_, self.head_, self.best_params_ = np.unique(names[is_in]), head, {}
        encodings = self.encode(texts)
        y = np.searchsorted(self.classes_, names[is_in])
        given = self._validation(*validation)
        self._fit_scope(encodings[is_in], y, encodings[~is_in], given, {})
        return self

    def encode(self, texts: Iterable[str]) -> np.ndarray:
        """What the head reads: float32 `[texts, dim]`."""
        return self._encodings()([*texts])

    def predict_proba(self, texts: Iterable[str]) -> np.ndarray:
        """Probabilities of `classes_`: float32 `[texts, intents]`.

        Raises:
          ValueError: a text is empty.
        """
        check_is_fitted(self, "head_")
        return self.head_.probabilities(self.encode(checked_texts(texts)))

    def predict(self, texts: Iterable[str]) -> np.ndarray:
        """The intent of each text; None where it is out of scope.

        Raises:
          ValueError: a text is empty.
        """
        check_is_fitted(self, "head_")
        texts = checked_texts(texts)
        predicted: np.ndarray = self.classes_[self.predict_proba(texts).argmax(axis=1)]
        if self.threshold_ is None:
            return predicted
        answers = predicted.astype(object)
        answers[self.scope_scores(texts) < self.threshold_] = None
        return answers

    def scope_scores(self, texts: Iterable[str]) -> np.ndarray:
        """How surely texts are in scope, float32 `[texts]`: what `threshold_` is compared with."""
        check_is_fitted(self, "head_")
        return scope_scores(
            self.out_of_scope or KINDS[0],
            self.encode(checked_texts(texts)),
            head=self.head_,
            centroids=self.centroids_,
        )

    def score(
        self, texts: Iterable[str], labels: Iterable[Any], sample_weight: Any = None
    ) -> float:
        """Accuracy; None is right for examples that have `out_of_scope_label`."""
        names = [None if label == self.out_of_scope_label else label for label in labels]
        is_right = [a == b for a, b in zip(self.predict(texts), names, strict=True)]
        return float(np.average(is_right, weights=sample_weight))

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Writes a folder that `load` reads (`convert_tf.intent_model.save_classifier`)."""
        from convert_tf.intent_model import save_classifier

        save_classifier(self, folder, overwrite=overwrite)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, encoder: Any = None) -> "IntentClassifier":
        """Reads what `save` wrote (`convert_tf.intent_model.load_classifier`)."""
        from convert_tf.intent_model import load_classifier

        return load_classifier(folder, encoder=encoder)

    def _check_options(self) -> None:
        if self.head not in HEADS:
            raise ValueError(f"A head is one of {', '.join(HEADS)}. Received: {self.head!r}.")
        if self.out_of_scope not in (None, *KINDS):
            raise ValueError(
                f"out_of_scope is None, {' or '.join(KINDS)}. Received: {self.out_of_scope!r}."
            )
        if self.threshold is not None and self.out_of_scope is None:
            raise ValueError(
                f"A threshold needs out_of_scope. Received: threshold={self.threshold} and "
                f"out_of_scope=None. Pass {' or '.join(KINDS)}."
            )
        unknown = set(self.grid or ()) - set(OPTIONS[self.head])
        if unknown or (self.grid is not None and not all(map(len, self.grid.values()))):
            raise ValueError(
                f"A grid has values of {', '.join(OPTIONS[self.head])}. Received: {self.grid!r}."
            )
        if not 0 < self.validation_fraction < 1 or not 0 <= self.rejected_share < 1:
            raise ValueError(
                "Shares are between 0 and 1. Received: validation_fraction="
                f"{self.validation_fraction}, rejected_share={self.rejected_share}."
            )

    def _in_scope(self, names: np.ndarray, number: int) -> np.ndarray:
        if names.shape != (number,):
            raise ValueError(
                f"Each text has one label. Received: {number} texts and labels of shape "
                f"{names.shape}."
            )
        return np.array([name != self.out_of_scope_label for name in names.tolist()], bool)

    def _validation(
        self, texts: Iterable[str], labels: Iterable[Any]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Encodings and numbers of labels in scope, and encodings out of scope."""
        texts, names = checked_texts(texts), checked_labels(labels)
        is_in = self._in_scope(names, len(texts))
        unseen = sorted({*names[is_in].tolist()} - {*self.classes_.tolist()})
        if unseen:
            raise ValueError(
                "Validation examples have intents that are trained. Received: "
                f"{', '.join(map(repr, unseen[:5]))}. Train on examples of them, leave them out, "
                f"or label them {self.out_of_scope_label!r}."
            )
        encodings = self.encode(texts)
        return encodings[is_in], np.searchsorted(self.classes_, names[is_in]), encodings[~is_in]

    def _fit_scope(
        self,
        x: np.ndarray,
        y: np.ndarray,
        outside: np.ndarray,
        given: tuple[np.ndarray, np.ndarray, np.ndarray] | None,
        options: Mapping[str, Any],
    ) -> None:
        """Sets `centroids_` and `threshold_`."""
        self.centroids_ = centroids_of(x, y)
        self.threshold_ = self.threshold
        if self.out_of_scope is None or self.threshold is not None:
            return
        if given is None:
            scores = fold_scores(options, x, y, outside, kind=self.out_of_scope)
        else:
            checked, numbers, more_outside = given
            outside = np.concatenate([outside, more_outside])
            scores = scores_of(
                self.out_of_scope, self.head_, self.centroids_, checked, numbers, outside
            )
        self.threshold_ = fit_threshold(scores, rejected_share=self.rejected_share)

    def _encodings(self) -> IntentEncodings:
        known = self.__dict__.get("_encoded")
        if known is None or known[0] is not self.encoder:  # set_params may have changed it
            is_kept = isinstance(self.encoder, IntentEncodings)
            encodings = self.encoder if is_kept else IntentEncodings(self.encoder)
            known = self._encoded = (self.encoder, encodings)
        return known[1]

    def __sklearn_clone__(self) -> "IntentClassifier":
        # The encoder is shared, not copied, and so is what it has encoded.
        params = self.get_params(deep=False)
        encoder = params.pop("encoder")
        clone = type(self)(encoder, **copy.deepcopy(params))
        clone._encoded = (encoder, self._encodings())
        return clone

    def __getstate__(self) -> dict[str, Any]:
        # Loaded models and locks cannot be pickled; a path is enough to load one again.
        return {name: value for name, value in super().__getstate__().items() if name != "_encoded"}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags
