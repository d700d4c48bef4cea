"""scikit-learn estimators that classify texts by intent, from their encodings and words."""

import copy
import dataclasses
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import compress, product
from typing import Any, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from convert_tf.config.base import check, check_field, options_of
from convert_tf.intents.cross_validation import (
    FOLDS,
    Fold,
    Mixture,
    Outputs,
    Trial,
    fit_cosine,
    fit_intent_thresholds,
    fit_mixture,
    fit_threshold,
    frozen_folds,
    held_out_outputs,
    left_out_outputs,
    most_right,
    outputs_of,
    scope_scores_of,
    train_parts,
)
from convert_tf.intents.data import LabelledTexts, distinct_examples, held_out
from convert_tf.intents.decision import KINDS, Decision, decision_of
from convert_tf.intents.encodings import ANY_KIND, IntentEncodings, different_kinds
from convert_tf.intents.examples import (
    OUTSIDE,
    Encode,
    IntentExamples,
    check_equally_many,
    checked_labels,
    checked_texts,
    checked_weights,
    column,
    examples_of,
    listed_labels,
    validated,
)
from convert_tf.intents.folder import Saved, read_classifier, write_classifier
from convert_tf.intents.head import HEADS, Options, accuracy_of, quick_options, train_head
from convert_tf.intents.options import ClassifierOptions, IntentOptions
from convert_tf.intents.predictor import Predictor

# Thresholds are fitted on the scores of heads that are trained on fewer examples than the final
# head. The more folds, the more similar these scores are to the scores of the final head.
_FOLDS_OF_THRESHOLDS = 5
# If there are no validation data, this share of the examples is held out for `grid` and `patience`.
_VALIDATED_SHARE = 0.1

Validation = tuple[Iterable[str], Iterable[Any]]


_Self = TypeVar("_Self", bound="TextClassifier")


class TextClassifier(ClassifierOptions, Predictor, ClassifierMixin, BaseEstimator):
    """Base class of the classifiers: a scikit-learn estimator that encodes texts.

    Clones share the encoder and the encodings that it has computed. A pickle contains the path of
    the encoder, not the encoder.
    """

    kind_: str
    names_: bool
    _encoded: tuple[Any, IntentEncodings]

    @property
    def decision(self) -> Decision:
        """The rule that turns probabilities into answers, with the fitted thresholds."""
        check_is_fitted(self, "parts_")
        cosine = self.mixture_.cosine
        return decision_of(vars(self), self.classes_, self.threshold_, self.thresholds_, cosine)

    def encode(self, texts: Iterable[str]) -> np.ndarray:
        """Return the encodings that the head reads: float32 `[texts, dim]`.

        Args:
          texts: a list, an array or a table with one column.
        """
        return self._encodings()(column(texts))

    def score(
        self, texts: Iterable[str], labels: Iterable[Any], sample_weight: Any = None
    ) -> float:
        """Return the share of texts whose answer is exactly their label or labels.

        For texts labelled `out_of_scope_label`, this label is the correct answer.

        Raises:
          ValueError: if there are no texts, the numbers of texts and labels differ, or a text is
            empty.
        """
        answers, expected = self.predict(texts).tolist(), self._listed_labels(labels)
        check_equally_many(answers, expected, are_sets=self.decision.has_several)
        if not answers:
            raise ValueError("There is no text to score. Pass labelled texts.")
        is_right = [bool(a == b) for a, b in zip(answers, expected, strict=True)]
        return float(np.average(is_right, weights=checked_weights(sample_weight, len(answers))))

    def _listed_labels(self, labels: Iterable[Any]) -> list[Any]:
        """Return labels as a list, in the same form as the answers from `predict`."""
        return listed_labels(labels)

    def save(self, folder: str | os.PathLike[str], **options: Any) -> None:
        """Write the classifier to a folder that `load` can read.

        Args:
          folder: the folder to write. Missing parent folders are created.
          **options: the options `overwrite`, `module`, `notes` and `keep_examples` of
            `write_classifier`.
        """
        write_classifier(self, folder, **options)

    def stored_params(self) -> dict[str, Any]:
        """Return the parameters without the encoder, with `"auto"` replaced by what `fit` chose."""
        check_is_fitted(self, "parts_")
        params = {**self.get_params(deep=False), "kind": self.kind_}
        del params["encoder"]
        if "names" in params:
            params["names"] = "always" if self.names_ else None
        return params

    @classmethod
    def load(cls: type[_Self], folder: str | os.PathLike[str], *, encoder: Any = None) -> _Self:
        """Read a folder that `save` wrote; see `read_classifier` for arguments and errors."""
        return cls.restored(*read_classifier(folder, encoder), folder)

    @classmethod
    def restored(
        cls: type[_Self],
        saved: Saved,
        encodings: IntentEncodings,
        encoder: Any,
        folder: str | os.PathLike[str],
    ) -> _Self:
        """Build the classifier from what `read_classifier` returned.

        Raises:
          ValueError: if the folder's classifier belongs to another class, or has options that this
            version does not know.
        """
        try:
            classifier = cls(encoder, **saved.params)
            classifier.check_options()
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            raise ValueError(
                f"{os.fspath(folder)!r} is not a {cls.__name__} of this version ({error}). Use "
                "the version that wrote it, or train again."
            ) from error
        classifier._take(saved)
        classifier.kind_ = classifier.kind
        classifier.names_ = saved.params.get("names") == "always"
        classifier._encoded = (encoder, encodings)
        return classifier

    def _mix(self, outputs: Outputs | None) -> None:
        """Fit the mixture on held-out outputs, and drop the word model if its weight is 0."""
        self.mixture_ = Mixture() if outputs is None else fit_mixture(outputs)
        if not self.mixture_.weight:
            self.parts_ = self.parts_._replace(lexical=None)

    def check_options(self) -> None:
        """Raise `ValueError` for options that are unknown or out of range."""
        grid = getattr(self, "grid", None) or {}  # values to try instead of the option's value
        options = options_of(type(self))
        for field in dataclasses.fields(self):
            for value in grid.get(field.name, [getattr(self, field.name)]):
                if value is not None or field.default is not None:
                    check_field(field.name, value, options[field.name])

    def _encodings(self, kind: str | None = None) -> IntentEncodings:
        """Return the object that computes encodings of `kind` or, if None, of the chosen kind."""
        if isinstance(self.encoder, IntentEncodings):
            return self.encoder
        known = self.__dict__.get("_encoded")
        if known is None or known[0] is not self.encoder:  # set_params may replace the encoder
            known = self._encoded = (self.encoder, IntentEncodings(self.encoder))
        if kind is None:
            # A fitted head reads encodings of `kind_`, even if `set_params` has changed `kind`.
            kind = getattr(self, "kind_", "sentence" if self.kind == ANY_KIND else self.kind)
        return known[1].of_kind(kind)

    @contextmanager
    def _unchanged_on_errors(self) -> Iterator[None]:
        """Restore all attributes if the `with` block raises an error.

        If `fit` is refused, a fitted classifier keeps its intents and weights.
        """
        self._encodings()  # set before, so that texts encoded in the block stay encoded
        before = dict(vars(self))
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def __sklearn_clone__(self: _Self) -> _Self:
        # The clone shares the encoder and its encodings.
        params = self.get_params(deep=False)
        encoder = params.pop("encoder")
        clone = type(self)(encoder, **copy.deepcopy(params))
        clone._encoded = (encoder, self._encodings())
        return clone

    def __getstate__(self) -> dict[str, Any]:
        # Loaded models and locks cannot be pickled. The example vectors can be computed again.
        left_out = ("_encoded", "_example_vectors")
        return {name: v for name, v in super().__getstate__().items() if name not in left_out}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags


class IntentClassifier(IntentOptions, TextClassifier):
    """Classifies texts by intent, from their encodings and their words.

    The classifier is a scikit-learn estimator that takes texts. It works in cross-validation, grid
    search and pipelines. Each text is encoded only once per kind of encoding, and clones share the
    encodings.

    Args:
      encoder: a module's folder, an `.onnx` file, a `SentenceEncoder` or another object with
        `encode(texts)`, or a function from texts to vectors. You may also pass a list of encoders,
        whose encodings are scaled to length 1 and concatenated.
      head: `"logistic"` for logistic regression, or `"network"` for dropout, one hidden ReLU layer
        and softmax.
      hidden_dim: number of units in the network's hidden layer.
      dropout: share of the encoding's values that are set to 0 during training.
      learning_rate: initial learning rate. It falls linearly to 0.
      epochs: number of epochs. An epoch has `ceil(examples / batch_size)` steps.
      batch_size: number of examples per step, drawn with replacement.
      patience: training of the network stops after this many epochs without better accuracy on
        validation data, and the weights of the best epoch are kept. If there are no validation
        data, a tenth of the examples is held out as validation data. If 0, all epochs are trained.
      logistic_c: the parameter `C` of scikit-learn's logistic regression.
      lexical: `"auto"` combines the head with a model of words and letters, whose weight is chosen
        by cross-validation. If None, the head is used alone.
      grid: lists of values to try, by parameter name, as in `head.GRIDS[head]`. The combination
        with the best accuracy on validation data is used. If there are no validation data, a tenth
        of the examples is held out as validation data. If None, no other values are tried.
      out_of_scope: `"confidence"` and `"distance"` answer `out_of_scope_label` if the highest
        probability, or the cosine to the nearest mean encoding of an intent, is below a threshold.
        `"both"` uses a weighted sum of this cosine and a measure of how certain the probabilities
        are. The weight is fitted on intents that cross-validation leaves out, or on out-of-scope
        examples. If None, every text is answered with a trained label, which may be
        `out_of_scope_label`.
      threshold: the threshold for all intents. If None, this threshold is fitted on validation data
        or by cross-validation, and so is a separate threshold for each intent with enough examples.
      rejected_share: share of the in-scope texts that the fitted thresholds reject. None means
        0.05, unless there are out-of-scope examples. In that case, the thresholds with the highest
        mean of in-scope accuracy and out-of-scope recall are chosen.
      min_margin: a text is answered with `out_of_scope_label` if the difference between its two
        highest probabilities is smaller than this. If 0, no text is rejected for this reason.
      upper_levels: whether to use the levels of labels such as `"faq/opening_hours"`. If so, a text
        that would be rejected because of its probabilities is answered with an upper level such as
        `"faq"`, provided that the probabilities of all intents in this level together reach the
        threshold. Texts that the score of `"distance"` or `"both"` rejects have no upper level.
      out_of_scope_label: label for texts that have no intent. If `out_of_scope` is set, examples
        with this label are only used to fit the thresholds.
      random_state: seed for weights, batches, dropout and folds.
      kind: the kind of encodings to use. `"sentence"` uses `encode`, `"reduced"` uses
        `encode_reduced`, and `"similarity"` uses the encoder's similarity vectors, which are
        shorter. `"auto"` uses the kind that answers more held-out examples correctly, or
        `"similarity"` if no examples can be held out.
      names: whether to use the intents' names in plain words as additional examples, such as "card
        arrival" for `"card_arrival"`. `"auto"` uses the names if logistic regression on encodings
        then answers more held-out examples correctly. `"always"` always uses the names, and None
        never does. The name of `out_of_scope_label` is not used.

    Attributes:
      classes_: the intents, sorted.
      parts_: the trained parts: `head`; `lexical`, the word model, or None if its weight is 0; and
        `centroids`, the mean encodings of the intents, normalised to length 1, float32
        `[intents, dim]`.
      mixture_: the `weight` of the word model, the `temperature` and the weight of the `cosine`,
        fitted by cross-validation or on validation data.
      threshold_: the threshold for all intents; None if no text is rejected by a threshold.
      thresholds_: a threshold for each intent, float64 `[intents]`; None if there are no separate
        thresholds.
      best_params_: the values chosen from `grid`; empty without a grid.
      kind_: the kind of encodings in use.
      examples_: the texts and labels passed to `fit`, without examples of weight 0; None if the
        classifier's folder does not contain them.
      names_: whether intent names are used as examples.

    Example:
      classifier = IntentClassifier("hub_modules/convert/2").fit(texts, labels)
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
        """Train the head and the word model.

        If an error is raised, a fitted classifier stays as it was.

        Args:
          texts: the examples, in a list, an array or a table with one column.
          labels: the intent of each example, or `out_of_scope_label`.
          sample_weight: weight of each example in training; None for equal weights. Examples with
            weight 0 are left out. Thresholds are fitted with equal weights for all other examples.
          validation: texts and labels that are not trained on. They are used to choose the values
            from `grid`, the `kind`, whether to use `names`, the epoch (`patience`), the weight of
            words and the thresholds. If None, held-out examples are used instead.
          folds: held-out parts of the examples. They are needed if the encoder was trained on the
            examples: each fold has encodings from an encoder that was not trained on the fold's
            held-out part. With validation data, there may be none: `()` says only that the encoder
            was trained on the examples. `kind` and `names` must not be `"auto"`, and `grid` and
            `patience` need validation data. With `names="always"`, each fold must also have a row
            for each name, after the rows for the examples.

        Raises:
          ValueError: if a text is empty; a label is not a string, a number of at most 64 bits or a
            boolean; there are fewer than two intents; an option is unknown or out of range;
            training diverged; or if there are folds but no validation data, and `grid` or
            `patience` is set.
        """
        self.check_options()
        kinds = self._kinds()
        if folds is not None and (len(kinds) > 1 or self.names == "auto"):
            raise ValueError(
                "folds can only be used if kind and names are fixed. Received: "
                f"kind={self.kind!r}, names={self.names!r}."
            )
        if folds is not None and validation is None:
            check_unvalidated(self)
        with self._unchanged_on_errors():
            data = LabelledTexts(checked_texts(texts), checked_labels(labels).tolist())
            check_equally_many(*data)
            weights = checked_weights(sample_weight, len(data.texts))
            self.examples_ = LabelledTexts(*([*compress(part, weights > 0)] for part in data))
            self._example_vectors = None
            encode = self._encodings(kinds[0])
            examples, checked = self.prepared(data, weights, validation, encode)
            num_outside = int((~examples.is_inside).sum())
            if num_outside and self.threshold is not None:
                warnings.warn(
                    f"The {num_outside:,} examples of {self.out_of_scope_label!r} are ignored: "
                    "they would only be used to fit a threshold, but "
                    f"threshold={self.threshold:g} is set. Omit the examples or the threshold.",
                    stacklevel=2,
                )
            options = {"head": self.head, "lexical": self.lexical, "seed": self.random_state}
            options |= {name: getattr(self, name) for name in HEADS[self.head]}
            self.names_ = bool(examples.is_name.any())
            self.kind_, held_outputs = kinds[0], None
            if len(kinds) > 1:
                examples, checked, held_outputs = self._choose_kind(
                    kinds, examples, checked, options
                )
            self.best_params_ = {}
            trained, judge = examples, None
            if self.grid or options.get("patience"):
                rest, judge = self._validation_split(examples, checked)
                if self.grid:
                    self.best_params_ = self._best_params(options, rest, judge, self.grid)
                options |= self.best_params_
                # The examples that decide when to stop must not be trained on.
                trained = rest if options.get("patience") else examples
            self.parts_ = train_parts(options, trained, judge)
            self._fit_on_outputs(examples, options, checked, folds, held_outputs)
        return self

    def prepared(
        self, data: LabelledTexts, sample_weight: Any, validation: Validation | None, encode: Encode
    ) -> tuple[IntentExamples, IntentExamples | None]:
        """Check and encode examples, add intent names if requested or helpful, and set `classes_`.

        Args:
          data: the examples.
          sample_weight, validation: see `fit`.
          encode: function from texts to encodings, float32 `[texts, dim]`.

        Returns:
          The examples and the validation data.

        Raises:
          ValueError: see `fit`.
        """
        outside = None if self.out_of_scope is None else self.out_of_scope_label
        examples, self.classes_ = examples_of(*data, sample_weight, encode, outside)
        checked = None
        if validation is not None:
            checked = validated(*validation, self.classes_, encode, outside)
        return self._with_helpful_names(examples, checked, encode), checked

    def _with_helpful_names(
        self, examples: IntentExamples, checked: IntentExamples | None, encode: Encode
    ) -> IntentExamples:
        """Return the examples, followed by intent names if names are requested or helpful.

        Names are helpful if logistic regression on encodings answers more examples correctly when
        it is also trained on the names.
        """
        if self.names is None:
            return examples
        named = examples.with_names(self.classes_, encode, left_out=self.out_of_scope_label)
        if self.names == "always" or not named.is_name.any():
            return named
        options = {"head": "logistic", "logistic_c": IntentOptions.logistic_c}
        trials = [
            (options, variant, checked, frozen_folds(variant, seed=self.random_state))
            for variant in (examples, named)
        ]
        judged = most_right(trials)
        return named if judged is not None and judged[0] == 1 else examples

    @classmethod
    def from_descriptions(
        cls,
        descriptions: Mapping[Any, str],
        encoder: Any,
        *,
        examples: Validation = ((), ()),
        validation: Validation | None = None,
        **params: Any,
    ) -> "IntentClassifier":
        """Train a classifier on descriptions of the intents, with few examples or none.

        Args:
          descriptions: a description for each intent, such as `{"refund": "the customer wants money
            back"}`.
          encoder: see the class.
          examples: texts and labels of additional examples. Not every intent needs examples.
          validation: see `fit`. `grid` and `patience` need these texts if each intent has only its
            description.
          **params: further parameters of the class. By default, `names` is None here, because
            descriptions say more about intents than their names.

        Raises:
          ValueError: see `fit`.
        """
        texts, labels = checked_texts(examples[0]), checked_labels(examples[1]).tolist()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Intents with one example")
            return cls(encoder, **{"names": None, **params}).fit(
                [*descriptions.values(), *texts], [*descriptions, *labels], validation=validation
            )

    def _kinds(self) -> list[str]:
        """Return the kinds of encodings to choose from."""
        if isinstance(self.encoder, IntentEncodings):
            return [self.encoder.kind]
        if self.kind != ANY_KIND:
            return [self.kind]
        return different_kinds(self._encodings("sentence").encoders)

    def _validation_split(
        self, examples: IntentExamples, checked: IntentExamples | None
    ) -> tuple[IntentExamples, IntentExamples]:
        """Return the in-scope examples to train on and the in-scope examples to validate on."""
        rest = examples.rows(examples.is_inside)
        if checked is None:
            # Sort by text and label, so that the order of the examples does not matter.
            places = sorted(
                np.flatnonzero(~rest.is_name),
                key=lambda place: (rest.texts[place], rest.labels[place]),
            )
            is_held = np.zeros(len(rest.texts), bool)
            labels = rest.labels[places]
            first, copy_of = distinct_examples(
                [rest.texts[place] for place in places], labels.tolist()
            )
            chosen = held_out(labels[first].tolist(), _VALIDATED_SHARE, seed=self.random_state)
            is_held[places] = chosen[copy_of]
            rest, checked = rest.rows(~is_held), rest.rows(is_held)
        checked = checked.rows(checked.is_inside)
        if not checked.texts:
            raise ValueError(
                "grid and patience need validation examples, but each intent has only one "
                "distinct example. Add examples, or pass validation=(texts, labels)."
            )
        return rest, checked

    def _best_params(
        self,
        options: Options,
        examples: IntentExamples,
        checked: IntentExamples,
        grid: Mapping[str, Sequence[Any]],
    ) -> dict[str, Any]:
        """Return the combination of values in `grid` with the best accuracy on validation data."""
        validation = (checked.encodings, checked.labels)
        tried = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]

        def accuracy(values: Mapping[str, Any]) -> float:
            head = train_head(
                {**options, **values},
                examples.encodings,
                examples.labels,
                examples.weights,
                validation=validation,
            )
            return accuracy_of(head, *validation)

        return max(tried, key=accuracy)  # the first one if several are equal

    def _choose_kind(
        self,
        kinds: Sequence[str],
        examples: IntentExamples,
        checked: IntentExamples | None,
        options: Options,
    ) -> tuple[IntentExamples, IntentExamples | None, Outputs | None]:
        """Set `kind_` to the kind with the most correct answers. In a tie, the first kind is used.

        Returns:
          A tuple of the examples, the validation data and the outputs for held-out examples. The
          examples and the validation data have encodings of the chosen kind. The outputs are None
          if no examples were held out.
        """
        tried: list[Trial] = []
        for kind in kinds:
            encode = self._encodings(kind)
            examples = examples._replace(encodings=encode(examples.texts))
            checked = checked and checked._replace(encodings=encode(checked.texts))
            folds = frozen_folds(examples, seed=self.random_state)
            tried.append((quick_options(options), examples, checked, folds))
        judged = most_right(tried)
        if judged is None:  # no example can be held out, so similarity vectors are used
            self.kind_ = kinds[-1]
            return examples, checked, None
        best, answers, _ = judged
        self.kind_ = kinds[best]
        _, examples, checked, _ = tried[best]
        return examples, checked, answers if checked is None else None

    def _fit_on_outputs(
        self,
        examples: IntentExamples,
        options: Options,
        checked: IntentExamples | None,
        folds: Sequence[Fold] | None,
        held_outputs: Outputs | None,
    ) -> None:
        """Fit the mixture and the thresholds on outputs for held-out examples.

        `held_outputs` are the outputs that `_choose_kind` computed for held-out in-scope examples,
        with heads that were trained for fewer epochs; None if it computed none. They are not used
        if `grid` chose other values afterwards.
        """
        self.threshold_, self.thresholds_ = self.threshold, None
        is_scoped = self.out_of_scope is not None and self.threshold is None
        is_frozen = folds is None
        outputs: Outputs | None
        if checked is not None:
            both = checked.followed_by(examples.rows(~examples.is_inside))
            outputs = outputs_of(self.parts_, *both[:3])
        elif held_outputs is not None and not is_scoped and not self.best_params_:
            outputs = held_outputs
        else:
            if folds is None:
                number = _FOLDS_OF_THRESHOLDS if is_scoped else FOLDS
                folds = frozen_folds(examples, seed=self.random_state, folds=number)
            options = options if is_scoped else quick_options(options)
            outputs = held_out_outputs(options, examples, None, folds)
        self._mix(outputs)
        if is_scoped:
            if outputs is None:
                raise ValueError(
                    "There are no in-scope held-out examples to fit the threshold on. Pass "
                    "validation examples, or at least two distinct examples of an intent."
                )
            if self.out_of_scope == "both":
                answers = [outputs]
                if not (outputs.labels == OUTSIDE).any():
                    words = None if self.parts_.lexical is None else self.lexical
                    quick = {**quick_options(options), "lexical": words}
                    seed = self.random_state
                    answers = left_out_outputs(quick, examples, seed=seed) if is_frozen else []
                if answers:
                    cosine = fit_cosine(answers, self.mixture_)
                    self.mixture_ = self.mixture_._replace(cosine=cosine)
            scores = scope_scores_of(outputs, self.mixture_, self.decision)
            self.threshold_ = fit_threshold(scores, self.rejected_share)
            self.thresholds_ = fit_intent_thresholds(
                scores, self.threshold_, len(self.classes_), self.rejected_share
            )

    def check_options(self) -> None:
        """Raise `ValueError` for options that are unknown or out of range."""
        names, grid = HEADS.get(self.head, ()), self.grid or {}
        has_values = grid.keys() <= {*names} and all(map(len, grid.values()))
        check(has_values, f"grid must have values of {', '.join(names)}.", self.grid)
        super().check_options()
        is_finite = self.threshold is None or bool(np.isfinite(self.threshold))
        check(is_finite, "threshold must be a finite number, or None to fit it.", self.threshold)
        if self.threshold is not None and self.out_of_scope is None:
            raise ValueError(
                f"threshold={self.threshold} has no effect without out_of_scope. Set "
                f"out_of_scope to {' or '.join(KINDS)}."
            )
        if self.rejected_share is not None and (
            self.out_of_scope is None or self.threshold is not None
        ):
            raise ValueError(
                f"rejected_share={self.rejected_share} has no effect without out_of_scope, or "
                "with a threshold. Set out_of_scope, and omit threshold."
            )
        if self.upper_levels and self.out_of_scope != "confidence" and not self.min_margin:
            raise ValueError(
                "upper_levels needs a rule that rejects texts because of their probabilities. Set "
                "out_of_scope='confidence' or min_margin."
            )


def check_unvalidated(options: IntentOptions) -> None:
    """Raise `ValueError` for options that need validation data if the encoder is fine-tuned.

    Held-out examples cannot replace these data, because the encoder was trained on them.
    """
    has_patience = options.patience and "patience" in HEADS[options.head]
    if options.grid or has_patience:
        raise ValueError(
            "A grid (--tune) and patience (--patience) need validation data if the encoder is "
            f"fine-tuned. Received: grid={options.grid}, patience={options.patience}. Pass "
            "validation data (--validation), or omit these options."
        )
