"""An intent classifier on encodings and words, as a scikit-learn estimator."""

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from convert_tf.intents.data import (
    checked_labels,
    checked_texts,
    checked_weights,
    held_out,
    listed_labels,
)
from convert_tf.intents.encodings import (
    ANY_KIND,
    KINDS_OF_ENCODING,
    IntentEncodings,
    encodes_similarity,
)
from convert_tf.intents.examples import OUTSIDE, IntentExamples, Validated, examples_of, validated
from convert_tf.intents.head import LOGISTIC_C
from convert_tf.intents.heldout import (
    Answers,
    Fold,
    Mixture,
    Parts,
    accuracy_of_answers,
    answers_of,
    fit_mixture,
    frozen_folds,
    held_out_answers,
    scope_scores_of,
    train_parts,
    with_helpful_names,
)
from convert_tf.intents.names import NAMES
from convert_tf.intents.scope import KINDS, fit_intent_thresholds, fit_threshold
from convert_tf.intents.stored import ClassifierParts
from convert_tf.intents.text_classifier import TextClassifier
from convert_tf.intents.tuning import (
    HEADS,
    OPTIONS,
    Options,
    best_options,
    check_head,
    quick_options,
)

# Thresholds need scores as they will be; to judge weights, fewer folds are enough.
_FOLDS, _FOLDS_OF_THRESHOLDS = 3, 5

Validation = tuple[Iterable[str], Iterable[Any]]


class IntentClassifier(TextClassifier):
    """Tells the intent of a text from its encoding and its words.

    A scikit-learn estimator whose inputs are texts: it can be cloned, cross-validated, searched
    over and put at the end of a pipeline. Each text is encoded once in each kind of
    encodings; clones share what was encoded.

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
      lexical: `"auto"`: the words and letters of a text count beside its encoding, as much as
        cross-validation says; None: they do not.
      grid: values to try by parameter name, as `GRIDS["network"]`: the best on validation data is
        trained. None tries nothing.
      validation_fraction: share of the examples that `grid` and `patience` validate on where `fit`
        is given no validation data.
      out_of_scope: None answers every text with a label that was trained, of which
        `out_of_scope_label` may be one; `"confidence"` and `"distance"` answer `out_of_scope_label`
        below a threshold of the highest probability, or of the cosine to the nearest mean encoding
        of an intent.
      threshold: the threshold of all intents; None fits it, and another one for each intent that
        has examples enough, on validation data, or by cross-validation where `fit` is given none.
      rejected_share: in-scope validation examples below the threshold where there is no example out
        of scope to fit it with.
      out_of_scope_label: label of texts that have no intent. With `out_of_scope` such examples fit
        the thresholds and train nothing else.
      random_state: seed of weights, batches, dropout and folds.
      kind: which encodings: `"sentence"`, those of `encode`; `"similarity"`, the encoder's vectors
        for similarity, which are shorter; or `"auto"`: of an encoder that has both, those from
        which more held-out examples are answered right, and those for similarity where none can be
        held out.
      names: `"auto"`: the names of the intents in plain words (`"card_arrival"`: card arrival) are
        examples, too, where logistic regression on encodings answers more held-out examples right
        with them; `"always"`: they are; None: they are not. That of `out_of_scope_label` never is.

    Attributes:
      classes_: the intents, sorted.
      parts_: the head, the words (`lexical`, or None where they do not count) and `centroids`,
        float32 `[intents, dim]`, mean encodings of length 1.
      mixture_: the `weight` of words and the `temperature`, both from cross-validation or from
        validation data; 1 where neither words nor a threshold need these.
      threshold_: None, or the threshold.
      thresholds_: None, or that of each intent, float64 `[intents]`.
      best_params_: what `grid` chose; empty without.
      kind_: which encodings are read.
      names_: whether names are examples.

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
        lexical: str | None = "auto",
        grid: Mapping[str, Sequence[Any]] | None = None,
        validation_fraction: float = 0.1,
        out_of_scope: str | None = None,
        threshold: float | None = None,
        rejected_share: float = 0.05,
        out_of_scope_label: Any = "oos",
        random_state: int = 0,
        kind: str = ANY_KIND,
        names: str | None = NAMES[0],
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
        self.lexical = lexical
        self.grid = grid
        self.validation_fraction = validation_fraction
        self.out_of_scope = out_of_scope
        self.threshold = threshold
        self.rejected_share = rejected_share
        self.out_of_scope_label = out_of_scope_label
        self.random_state = random_state
        self.kind = kind
        self.names = names

    def fit(
        self,
        texts: Iterable[str],
        labels: Iterable[Any],
        sample_weight: Any = None,
        *,
        validation: Validation | None = None,
        folds: Sequence[Fold] | None = None,
    ) -> "IntentClassifier":
        """Trains the head, and learns which words matter.

        Args:
          texts: the examples, in a list, an array or a table of one column.
          labels: the intent of each, or `out_of_scope_label`; likewise.
          sample_weight: how much each counts in training; None for equally much. Those of 0 are
            left out. Thresholds count the others alike.
          validation: texts and labels that choose what `grid`, `patience`, `kind`, `names`, words
            and thresholds need; nothing else is learnt from them.
          folds: of the examples of intents, where the encoder was trained on them: others judge.
            With `names="always"` each also has a row for each name, behind those of examples.

        Raises:
          ValueError: a text is empty, there are fewer than two intents, an option is unknown or out
            of range, or training ended in weights that are no numbers.
        """
        self.check_options()
        outside = None if self.out_of_scope is None else self.out_of_scope_label
        kinds = self._kinds()
        encode = self._encodings(kinds[0])
        examples, self.classes_ = examples_of(texts, labels, sample_weight, encode, outside)
        if examples.outside_texts and self.threshold is not None:
            warnings.warn(
                f"Examples of {self.out_of_scope_label!r} fit thresholds: the "
                f"{len(examples.outside_texts):,} given are not used, as a threshold of "
                f"{self.threshold:g} is given, too. Leave one of them out.",
                stacklevel=2,
            )
        checked = None
        if validation is not None:
            checked = validated(*validation, self.classes_, encode, outside)
        options = {name: getattr(self, name) for name in OPTIONS[self.head]}
        options |= {"head": self.head, "seed": self.random_state}
        self.kind_, known = kinds[0], None
        if folds is not None and (len(kinds) > 1 or self.names == "auto"):
            raise ValueError(
                "Folds are of one kind of encodings, with names of intents or without. Received: "
                f"folds, kind={self.kind!r} and names={self.names!r}. Set both to theirs."
            )
        examples = with_helpful_names(
            examples,
            self.classes_,
            encode,
            self.names,
            checked,
            left_out=self.out_of_scope_label,
            seed=self.random_state,
        )
        self.names_ = bool(examples.is_name.any())
        if len(kinds) > 1:
            examples, checked, known = self._choose_kind(kinds, examples, checked, options)
        self.best_params_: dict[str, Any] = {}
        kept, own = examples, {}
        # Logistic regression has no patience.
        if self.grid is not None or options.get("patience") is not None:
            checking = None if checked is None else checked.inside()
            fitting = examples
            if checking is None:
                labels_of = examples.labels[~examples.is_name].tolist()
                chosen = examples.spread(
                    held_out(labels_of, self.validation_fraction, seed=self.random_state)
                )
                fitting = examples.kept(~chosen)
                checking = examples.encodings[chosen], examples.labels[chosen]
            if not len(checking[1]):
                raise ValueError(
                    "grid and patience need examples to validate on. Received: none, as each "
                    "intent has one example. Add examples, or pass validation=(texts, labels)."
                )
            self.best_params_ = best_options(
                options,
                self.grid or {},
                fitting.encodings,
                fitting.labels,
                checking,
                fitting.weights,
            )
            options |= self.best_params_
            kept = examples if options.get("patience") is None else fitting
            own = {"validation": checking}
        has_lexical = self.lexical is not None
        self.parts_: Parts = train_parts(options, kept, has_lexical=has_lexical, **own)
        self._fit_on_answers(examples, options, checked, folds, known)
        return self

    @classmethod
    def from_descriptions(
        cls,
        descriptions: Mapping[Any, str],
        encoder: Any,
        *,
        examples: Validation = ((), ()),
        **params: Any,
    ) -> "IntentClassifier":
        """Trains without examples, or with few: what an intent means is one.

        Args:
          descriptions: by intent, as `{"refund": "the customer wants money back"}`.
          encoder: see the class.
          examples: texts and labels that refine it; intents may be without any.
          **params: see the class; `names` is None by default, as descriptions say more.

        Raises:
          ValueError: see `fit`.
        """
        texts, labels = checked_texts(examples[0]), checked_labels(examples[1]).tolist()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Intents with one example")
            return cls(encoder, **{"names": None, **params}).fit(
                [*descriptions.values(), *texts], [*descriptions, *labels]
            )

    def _kinds(self) -> list[str]:
        """Which encodings are chosen from."""
        if isinstance(self.encoder, IntentEncodings):
            return [self.encoder.kind]
        if self.kind != ANY_KIND:
            return [self.kind]
        kinds = [*KINDS_OF_ENCODING]
        # A clone need not ask a model anew.
        is_known = kinds[-1] in self._encoded_by_kind()
        return kinds if is_known or encodes_similarity(self.encoder) else kinds[:1]

    def _choose_kind(
        self,
        kinds: Sequence[str],
        examples: IntentExamples,
        checked: Validated | None,
        options: Options,
    ) -> tuple[IntentExamples, Validated | None, Answers | None]:
        """Sets `kind_` to that of the most right answers, the first among equals.

        Returns:
          Examples and validation data in it; and the answers to what was held out, None for none.
        """
        found: list[tuple[str, IntentExamples, Validated | None, Answers]] = []
        options, has_lexical = quick_options(options), self.lexical is not None
        for kind in kinds:
            if found:
                encode = self._encodings(kind)
                examples = examples.encoded(encode)
                checked = checked and checked._replace(encodings=encode(checked.texts))
            # Words are what they are.
            has_lexical = has_lexical and not found
            answers: Answers | None
            if checked is None:
                folds = frozen_folds(examples, seed=self.random_state, folds=_FOLDS)
                answers = held_out_answers(options, examples, folds, has_lexical=has_lexical)
                if answers is None:  # a description and a text are two texts of one kind
                    self.kind_ = kinds[-1]
                    return examples.encoded(self._encodings(self.kind_)), None, None
            else:
                parts = train_parts(options, examples, has_lexical=has_lexical)
                answers = answers_of(parts, *checked)
            if found:
                answers = answers._replace(lexical=found[0][-1].lexical)
            found.append((kind, examples, checked, answers))
        accuracies = [accuracy_of_answers(answers) for *_, answers in found]
        self.kind_, examples, checked, answers = found[int(np.argmax(accuracies))]
        return examples, checked, answers if checked is None else None

    def _fit_on_answers(
        self,
        examples: IntentExamples,
        options: Options,
        checked: Validated | None,
        folds: Sequence[Fold] | None,
        known: Answers | None,
    ) -> None:
        """Sets what depends on answers to examples that were not trained on.

        `known` are such answers, of fewer epochs and without examples out of scope.
        """
        self.mixture_, self.threshold_, self.thresholds_ = Mixture(), self.threshold, None
        is_scoped = self.out_of_scope is not None and self.threshold is None
        if self.lexical is None and not is_scoped:
            return
        if not is_scoped:
            options = quick_options(options)
        answers: Answers | None
        if checked is None and known is not None and not is_scoped:
            answers = known
        elif checked is None:
            if folds is None:
                number = _FOLDS_OF_THRESHOLDS if is_scoped else _FOLDS
                folds = frozen_folds(examples, seed=self.random_state, folds=number)
            has_lexical = self.lexical is not None
            answers = held_out_answers(options, examples, folds, has_lexical=has_lexical)
        else:
            answers = answers_of(self.parts_, *checked.with_outside(examples))
        if answers is not None:
            self.mixture_ = fit_mixture(answers)
        if not self.mixture_.weight:
            self.parts_ = self.parts_._replace(lexical=None)
        if self.out_of_scope is None or not is_scoped:
            return
        if answers is None:
            answers = answers_of(self.parts_, [], examples.encodings[:0], examples.labels[:0])
        scores = scope_scores_of(answers, self.mixture_, self.out_of_scope)
        share = self.rejected_share
        self.threshold_ = fit_threshold(scores, rejected_share=share)
        self.thresholds_ = fit_intent_thresholds(
            scores, self.threshold_, len(self.classes_), rejected_share=share
        )

    def predict_proba(self, texts: Iterable[str]) -> np.ndarray:
        """Probabilities of `classes_`: float32 `[texts, intents]`.

        Raises:
          ValueError: a text is empty.
        """
        answers = self._answers(checked_texts(texts))
        return self.mixture_.probabilities(answers.head, answers.lexical)

    def predict(self, texts: Iterable[str]) -> np.ndarray:
        """The intent of each text, or `out_of_scope_label`.

        Raises:
          ValueError: a text is empty.
        """
        return self.stored_parts().answered(self._answers(checked_texts(texts)))

    def scope_scores(self, texts: Iterable[str]) -> np.ndarray:
        """How surely texts are in scope, float32 `[texts]`: what thresholds are compared with."""
        return self.stored_parts().scope_scores(self._answers(checked_texts(texts)))

    def _answers(self, texts: list[str]) -> Answers:
        check_is_fitted(self, "parts_")
        return answers_of(self.parts_, texts, self.encode(texts), np.full(len(texts), OUTSIDE))

    def score(
        self, texts: Iterable[str], labels: Iterable[Any], sample_weight: Any = None
    ) -> float:
        """Accuracy; `out_of_scope_label` is right for examples that have it."""
        found, expected = self.predict(texts).tolist(), listed_labels(labels)
        if len(found) != len(expected):
            raise ValueError(
                f"Each text has one label. Received: {len(found)} texts and {len(expected)} "
                "labels. Pass one for each text."
            )
        is_right = [bool(a == b) for a, b in zip(found, expected, strict=True)]
        return float(np.average(is_right, weights=checked_weights(sample_weight, len(found))))

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, encoder: Any = None) -> "IntentClassifier":
        """Reads what `save` wrote; arguments and errors as in `read_classifier`."""
        classifier = super().load(folder, encoder=encoder)
        classifier.names_ = classifier.names == "always"
        return classifier

    def stored_parts(self) -> ClassifierParts:
        """All that was learnt, for a file."""
        parts = super().stored_parts()
        names = "always" if self.names_ else None
        return parts._replace(params={**parts.params, "names": names})

    def check_options(self) -> None:
        """Refuses options that are unknown or out of range, as `fit` does at first."""
        super().check_options()
        if self.names not in (None, *NAMES):
            raise ValueError(
                f"names is None, {' or '.join(map(repr, NAMES))}. Received: {self.names!r}."
            )
        if self.kind not in (ANY_KIND, *KINDS_OF_ENCODING):
            raise ValueError(
                f"kind is one of {', '.join((ANY_KIND, *KINDS_OF_ENCODING))}. Received: "
                f"{self.kind!r}."
            )
        if self.head not in HEADS:
            raise ValueError(f"A head is one of {', '.join(HEADS)}. Received: {self.head!r}.")
        if self.out_of_scope not in (None, *KINDS):
            raise ValueError(
                f"out_of_scope is None, {' or '.join(KINDS)}. Received: {self.out_of_scope!r}."
            )
        if self.threshold is not None and not np.isfinite(self.threshold):
            raise ValueError(
                f"A threshold is a finite number. Received: {self.threshold}. None fits it."
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
        tried = {name: list(values) for name, values in (self.grid or {}).items()}
        first = {name: values[0] for name, values in tried.items()}
        options = {name: getattr(self, name) for name in OPTIONS[self.head]} | first
        each = [{name: value} for name, values in tried.items() for value in values]
        for changed in each or [{}]:
            check_head(self.head, options | changed)
        if not 0 < self.validation_fraction < 1 or not 0 <= self.rejected_share < 1:
            raise ValueError(
                "Shares are between 0 and 1. Received: validation_fraction="
                f"{self.validation_fraction}, rejected_share={self.rejected_share}."
            )
