"""An intent classifier on encodings and words, as a scikit-learn estimator."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from convert_tf.intents.data import (
    LabelledTexts,
    checked_labels,
    checked_texts,
    held_out,
    listed_labels,
)
from convert_tf.intents.encodings import (
    ANY_KIND,
    KINDS_OF_ENCODING,
    IntentEncodings,
    encodes_similarity,
)
from convert_tf.intents.examples import IntentExamples, examples_of, validated
from convert_tf.intents.explain import nearest
from convert_tf.intents.head import HEADS, Options, best_options, quick_options
from convert_tf.intents.heldout import (
    Answers,
    Fold,
    Mixture,
    accuracy_of_answers,
    answers_of,
    fit_mixture,
    frozen_folds,
    judged_answers,
    scope_scores_of,
    train_parts,
    with_helpful_names,
)
from convert_tf.intents.options import IntentOptions
from convert_tf.intents.scope import KINDS, fit_intent_thresholds, fit_threshold
from convert_tf.intents.text_classifier import TextClassifier

# Thresholds need the scores of a fully trained head. To judge weights, fewer folds are enough.
_FOLDS, _FOLDS_OF_THRESHOLDS = 3, 5
_VALIDATED_SHARE = 0.1  # of the examples, by which a grid is judged without validation data

Validation = tuple[Iterable[str], Iterable[Any]]


class IntentClassifier(IntentOptions, TextClassifier):
    """Classifies texts by intent, from their encodings and their words.

    A scikit-learn estimator of texts: it works in cross-validation, grid search and pipelines. Each
    text is encoded once in each kind of encodings; clones share the encodings.

    Args:
      encoder: a module's folder or `.onnx` file, a `SentenceEncoder` or another object with
        `encode(texts)`, or a callable texts → vectors. The encodings of a list of encoders are
        scaled to length 1 and concatenated.
      head: `"network"`: dropout, one hidden ReLU layer, softmax; `"logistic"`: logistic regression.
      hidden_dim: units of the network's hidden layer.
      dropout: share of the encoding that is set to 0 in training.
      learning_rate: of gradient descent; falls linearly to 0.
      epochs: of `ceil(examples / batch_size)` steps.
      batch_size: examples of a step, drawn with replacement.
      logistic_c: scikit-learn's `C` of logistic regression.
      lexical: `"auto"` combines the head with a model of words and letters, which cross-validation
        weights; None uses the head alone.
      grid: values to try by parameter name, as in `head.GRIDS["network"]`; the best on validation
        data are used, or on a tenth of the examples if `fit` gets none. None tries nothing.
      out_of_scope: `"confidence"` and `"distance"` answer `out_of_scope_label` if the highest
        probability, or the cosine to the nearest mean encoding of an intent, is below a threshold.
        None answers every text with a trained label; `out_of_scope_label` may be one of them.
      threshold: the threshold of all intents. None fits it, and a threshold for each intent with
        enough examples, on validation data or by cross-validation. If no example is out of scope,
        one in twenty of the others is below it.
      min_margin: texts are answered with `out_of_scope_label` if their highest probability leads
        the second one by less. 0 answers all texts.
      upper_levels: for labels with levels such as `"faq/opening_hours"`. A text that would be
        rejected is answered with the upper level, `"faq"`, if the probabilities of its intents
        together reach the threshold.
      out_of_scope_label: label of texts that have no intent. With `out_of_scope` such examples fit
        the thresholds and train nothing else.
      random_state: seed of weights, batches, dropout and folds.
      kind: which encodings to use. `"sentence"` uses those of `encode`, and `"similarity"` the
        encoder's vectors for similarity, which are shorter. If the encoder has both, `"auto"` uses
        the kind that answers more held-out examples right, or similarity if nothing can be held
        out.
      names: whether the names of the intents in plain words (`"card_arrival"`: card arrival) are
        examples too. `"auto"` uses them if logistic regression on encodings then answers more
        held-out examples right, `"always"` uses them, and None does not. The name of
        `out_of_scope_label` is never an example.

    Attributes:
      classes_: the intents, sorted.
      parts_: the head, the words (`lexical`, or None where they do not count) and `centroids`,
        float32 `[intents, dim]`, mean encodings of length 1.
      mixture_: the `weight` of words and the `temperature`, from cross-validation or validation
        data. They are 0 and 1 if neither words nor a threshold need them.
      threshold_: None, or the threshold.
      thresholds_: None, or that of each intent, float64 `[intents]`.
      best_params_: what `grid` chose; empty without.
      kind_: which encodings are read.
      examples_: the texts and labels of `fit`; None if a folder does not keep them.
      names_: whether names are examples.

    Example:
      classifier = IntentClassifier("hub_modules/convert/1").fit(texts, labels)
      classifier.predict(["where is my card?"])

    Reference: arXiv 2003.04807 §2, §4; arXiv 1911.03688 §3.1 (grid search, early stopping).
    """

    def fit(
        self,
        texts: Iterable[str],
        labels: Iterable[Any],
        sample_weight: Any = None,
        *,
        validation: Validation | None = None,
        folds: Sequence[Fold] | None = None,
    ) -> "IntentClassifier":
        """Train the head and the model of words.

        Args:
          texts: the examples, in a list, an array or a table of one column.
          labels: the intent of each example, or `out_of_scope_label`.
          sample_weight: how much each example counts in training; None for equal weights. Examples
            with weight 0 are left out. Thresholds count all other examples equally.
          validation: texts and labels that choose `grid`, `kind`, `names`, the weight of
            words and the thresholds. Nothing else is learnt from them.
          folds: held-out parts of the examples, if the encoder was trained on the examples. Each
            fold then has encodings of an encoder that was not trained on its part. With
            `names="always"` each fold also has a row for each name, after the rows of the examples.

        Raises:
          ValueError: a text is empty, there are fewer than two intents, an option is unknown or out
            of range, or training diverged.
        """
        self.check_options()
        outside = None if self.out_of_scope is None else self.out_of_scope_label
        kinds = self._kinds()
        encode = self._encodings(kinds[0])
        self.examples_ = LabelledTexts(checked_texts(texts), checked_labels(labels).tolist())
        self._example_vectors: np.ndarray | None = None
        examples, self.classes_ = examples_of(*self.examples_, sample_weight, encode, outside)
        num_outside = int((~examples.is_inside).sum())
        if num_outside and self.threshold is not None:
            warnings.warn(
                f"The {num_outside:,} examples of {self.out_of_scope_label!r} are "
                f"ignored: they only fit the threshold, and threshold={self.threshold:g} is set. "
                "Omit the examples or the threshold.",
                stacklevel=2,
            )
        checked = None
        if validation is not None:
            checked = validated(*validation, self.classes_, encode, outside)
        options = {"head": self.head, "seed": self.random_state}
        options |= {name: getattr(self, name) for name in HEADS[self.head]}
        if folds is not None and (len(kinds) > 1 or self.names == "auto"):
            raise ValueError(
                "folds need one kind of encodings and names that are set. Received: "
                f"kind={self.kind!r}, names={self.names!r}."
            )
        self.kind_, known = kinds[0], None
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
        self.best_params_ = self._best_params(options, examples, checked) if self.grid else {}
        options |= self.best_params_
        self.parts_ = train_parts(options, examples, has_lexical=self.lexical is not None)
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
        """Train on descriptions of the intents, with few examples or none.

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
        """Return the kinds of encodings to choose from."""
        if isinstance(self.encoder, IntentEncodings):
            return [self.encoder.kind]
        if self.kind != ANY_KIND:
            return [self.kind]
        kinds = [*KINDS_OF_ENCODING]
        has_both = encodes_similarity(self._encodings(kinds[0]).encoders)
        return kinds if has_both else kinds[:1]

    def _best_params(
        self, options: Options, examples: IntentExamples, checked: IntentExamples | None
    ) -> dict[str, Any]:
        """Return the values of `grid` that are best on validation data, or on held-out examples."""
        rest, validation = examples.rows(examples.is_inside), checked
        if validation is None:
            places = np.flatnonzero(~rest.is_name)
            labels = rest.labels[places].tolist()
            chosen = np.zeros(len(rest.texts), bool)
            chosen[places] = held_out(labels, _VALIDATED_SHARE, seed=self.random_state)
            rest, validation = rest.rows(~chosen), rest.rows(chosen)
        validation = validation.rows(validation.is_inside)
        if not validation.texts:
            raise ValueError(
                "grid needs validation examples, but each intent has one example. Add examples, or "
                "pass validation=(texts, labels)."
            )
        pair = validation.encodings, validation.labels
        return best_options(
            options, self.grid or {}, rest.encodings, rest.labels, pair, rest.weights
        )

    def _choose_kind(
        self,
        kinds: Sequence[str],
        examples: IntentExamples,
        checked: IntentExamples | None,
        options: Options,
    ) -> tuple[IntentExamples, IntentExamples | None, Answers | None]:
        """Set `kind_` to the kind with the most right answers, the first one of equals.

        Returns:
          The examples and the validation data in this kind, and the answers to held-out examples;
          None if nothing was held out.
        """
        found: list[tuple[IntentExamples, IntentExamples | None, Answers]] = []
        options = quick_options(options)
        for kind in kinds:
            if found:
                encode = self._encodings(kind)
                examples = examples._replace(encodings=encode(examples.texts))
                checked = checked and checked._replace(encodings=encode(checked.texts))
            # Words do not depend on the kind.
            has_lexical = self.lexical is not None and not found
            folds = frozen_folds(examples, seed=self.random_state, folds=_FOLDS)
            answers = judged_answers(options, examples, checked, folds, has_lexical=has_lexical)
            if answers is None:  # nothing can be held out, so texts are compared by similarity
                self.kind_ = kinds[-1]
                encodings = self._encodings(self.kind_)(examples.texts)
                return examples._replace(encodings=encodings), None, None
            if found:
                answers = answers._replace(lexical=found[0][-1].lexical)
            found.append((examples, checked, answers))
        best = int(np.argmax([accuracy_of_answers(answers) for *_, answers in found]))
        self.kind_, (examples, checked, answers) = kinds[best], found[best]
        return examples, checked, answers if checked is None else None

    def _fit_on_answers(
        self,
        examples: IntentExamples,
        options: Options,
        checked: IntentExamples | None,
        folds: Sequence[Fold] | None,
        known: Answers | None,
    ) -> None:
        """Set the mixture and the thresholds by answers to held-out examples.

        `known` are such answers, after fewer epochs and without examples out of scope.
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
            answers = judged_answers(options, examples, None, folds, has_lexical=has_lexical)
        else:
            both = checked.followed_by(examples.rows(~examples.is_inside))
            answers = answers_of(self.parts_, *both[:3])
        if answers is not None:
            self.mixture_ = fit_mixture(answers)
        if not self.mixture_.weight:
            self.parts_ = self.parts_._replace(lexical=None)
        if not is_scoped:
            return
        if answers is None:
            raise ValueError(
                "There are no held-out examples in scope to fit the threshold on. Give validation "
                "examples, or two examples of an intent."
            )
        scores = scope_scores_of(answers, self.mixture_, self.out_of_scope)
        self.threshold_ = fit_threshold(scores)
        self.thresholds_ = fit_intent_thresholds(scores, self.threshold_, len(self.classes_))

    def nearest_examples(self, text: str) -> list[dict[str, Any]]:
        """Return the training examples nearest to a text; none if they are not kept."""
        if self.examples_ is None:
            return []
        vectors = self.__dict__.get("_example_vectors")
        if vectors is None:
            vectors = self._example_vectors = self.encode(self.examples_.texts)
        return nearest(self.encode([text])[0], vectors, *self.examples_)

    def _listed_labels(self, labels: Iterable[Any]) -> list[Any]:
        return listed_labels(labels)

    def check_options(self) -> None:
        """Raise `ValueError` for options that are unknown or out of range."""
        names = HEADS.get(self.head, ())
        if self.grid and not (self.grid.keys() <= {*names} and all(map(len, self.grid.values()))):
            raise ValueError(
                f"grid must have values of {', '.join(names)}. Received: {self.grid!r}."
            )
        super().check_options()
        if self.threshold is not None and not np.isfinite(self.threshold):
            raise ValueError(
                f"threshold must be a finite number, or None to fit it. Received: {self.threshold}."
            )
        if self.threshold is not None and self.out_of_scope is None:
            raise ValueError(
                f"threshold={self.threshold} has no effect without out_of_scope. Set that to "
                f"{' or '.join(KINDS)}."
            )
        if self.upper_levels and self.out_of_scope != "confidence" and not self.min_margin:
            raise ValueError(
                "upper_levels needs probabilities that reject texts. Set out_of_scope='confidence' "
                "or min_margin."
            )
