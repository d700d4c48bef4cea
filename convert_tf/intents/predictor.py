"""Answer texts with a trained classifier, and explain the answers."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from convert_tf.intents.cross_validation import Mixture, Outputs, Parts, outputs_of
from convert_tf.intents.data import LabelledTexts
from convert_tf.intents.decision import Decision
from convert_tf.intents.examples import checked_string, checked_texts, column
from convert_tf.intents.head import softmax
from convert_tf.intents.languages import other_languages
from convert_tf.numerics.vectors import unit_rows
from convert_tf.text.characters import fold

if TYPE_CHECKING:
    from convert_tf.intents.folder import Saved

_DIGITS = 4
_NEAREST = 5  # number of nearest examples in an explanation
# To explain n words, the classifier answers n texts of about the same length. The time grows with
# the square of n, so both the number of words and the total length of the texts are limited.
MAX_EXPLAINED_WORDS = 100
_MAX_EXPLAINED_CHARACTERS = 500_000


class Predictor:
    """A trained classifier and its predictions.

    Attributes:
      classes_: the intents, sorted.
      parts_: the head, the word model and the mean encodings.
      mixture_: how the outputs of the head and the word model are combined.
      threshold_: the score below which a text is out of scope, or None. If a text may have several
        intents, the minimum probability of an answered intent.
      thresholds_: a threshold for each intent, float64 `[intents]`; None if there are no separate
        thresholds.
      best_params_: the options that a grid search chose.
      examples_: the texts and labels passed to `fit`, without examples of weight 0; None if they
        are not kept.
    """

    classes_: np.ndarray
    parts_: Parts
    mixture_: Mixture
    threshold_: Any
    thresholds_: np.ndarray | None = None
    best_params_: Mapping[str, Any] = MappingProxyType({})
    examples_: LabelledTexts | None = None
    _example_vectors: np.ndarray | None = None  # computed when an answer is first explained

    @property
    def decision(self) -> Decision:
        """The rule that turns probabilities into answers."""
        raise NotImplementedError

    def _take(self, saved: "Saved") -> None:
        """Take over the trained parts, thresholds and examples from a saved classifier."""
        self.classes_, self.threshold_ = saved.decision.classes, saved.decision.threshold
        self.thresholds_ = saved.decision.thresholds
        self.parts_, self.mixture_ = saved.parts, saved.mixture
        self.best_params_, self.examples_ = saved.best_params, saved.examples

    def encode(self, texts: Iterable[str]) -> np.ndarray:
        """Return the encodings that the head reads: float32 `[texts, dim]`.

        Args:
          texts: a list, an array or a table with one column.
        """
        raise NotImplementedError

    def outputs(self, texts: Iterable[str]) -> Outputs:
        """Return the outputs of the head and the word model, before they are combined.

        Raises:
          ValueError: if a text is empty.
        """
        texts = checked_texts(texts)
        labels = self.decision.unknown_labels(len(texts))
        return outputs_of(self.parts_, texts, self.encode(texts), labels)

    def predict_proba(self, texts: Iterable[str]) -> np.ndarray:
        """Return the probabilities of `classes_`: float32 `[texts, intents]`.

        Rows sum to 1, unless a text may have several intents.

        Raises:
          ValueError: if a text is empty.
        """
        return self.outputs(texts).probabilities(self.mixture_)

    def predict(self, texts: Iterable[str]) -> np.ndarray:
        """Return the intent of each text, or `out_of_scope_label`: `[texts]`.

        A classifier for several intents returns a sorted tuple of intents for each text.

        Raises:
          ValueError: if a text is empty.
        """
        outputs = self.outputs(texts)
        return self.decision.answers(outputs.probabilities(self.mixture_), outputs.nearest)

    def scope_scores(self, texts: Iterable[str]) -> np.ndarray:
        """Return the scores that are compared with `threshold_`: float32 `[texts]`."""
        outputs = self.outputs(texts)
        return self.decision.scores(outputs.probabilities(self.mixture_), outputs.nearest)

    def nearest_examples(self, text: str) -> list[dict[str, Any]]:
        """Return the training examples nearest to a text; `[]` if the examples are not kept."""
        if self.examples_ is None:
            return []
        texts, labels = self.examples_
        if self._example_vectors is None:
            self._example_vectors = self.encode(texts)
        # The concatenated vectors of several encoders do not have length 1.
        cosines = unit_rows(self._example_vectors) @ unit_rows(self.encode([text]))[0]
        return [
            {"text": texts[i], "label": labels[i], "cosine": rounded(cosines[i])}
            for i in np.argsort(-cosines, kind="stable")[:_NEAREST]
        ]

    def explain(self, text: str) -> dict[str, Any]:
        """Explain why the most probable intent of a text is preferred to the second most probable.

        The effect of a word is the amount by which the log-odds between the two intents fall if the
        word is left out. The classifier answers each shortened text, so the effects are exact.
        However, the sum of the effects is not the effect of leaving out all words.

        Args:
          text: a message.

        Returns:
          A dict with
          - `intent`, `second`: the two intents;
          - `margin`: the difference between the probabilities of the two intents;
          - `words`: the words, the largest effect first, each a dict with `word`, `effect` and
            `lexical`, the part of the effect that comes from the word model;
          - `examples`: the five nearest training examples, each a dict with `text`, `label` and
            `cosine`; empty if the classifier does not keep its examples;
          - `words_left_out`: the number of words that are not explained, if the text is long. At
            most the first 100 words of a text are explained.

        Raises:
          ValueError: if the text is empty, or the classifier answers with several intents.
        """
        if self.decision.has_several:
            raise ValueError(
                "A classifier with several intents per text cannot explain its answers. Predict "
                "without explanations."
            )
        (text,) = checked_texts([text])
        words = [*filter(fold, text.split())]  # without words of only invisible characters
        most = min(MAX_EXPLAINED_WORDS, max(_MAX_EXPLAINED_CHARACTERS // len(text), 1))
        number = min(len(words), most)
        shorter = [" ".join(words[:i] + words[i + 1 :]) for i in range(number)]
        outputs = self.outputs([text, *(shorter if len(words) > 1 else [])])
        logits = self.mixture_.logits(outputs.head, outputs.lexical)
        probabilities = softmax(logits[0])
        best, second = np.argsort(-probabilities, kind="stable")[:2]

        def effects_of(logits: np.ndarray) -> np.ndarray:
            """Return the lead in the first row minus the lead in each other row: `[rows - 1]`."""
            leads = logits[:, best] - logits[:, second]
            return leads[0] - leads[1:]

        effects = effects_of(logits)
        lexical = np.zeros_like(effects)
        if outputs.lexical is not None:
            scale = self.mixture_.weight / self.mixture_.temperature
            lexical = scale * effects_of(outputs.lexical)
        explanation = {
            "intent": str(self.classes_[best]),
            "second": str(self.classes_[second]),
            "margin": rounded(probabilities[best] - probabilities[second]),
            "words": [
                {"word": words[i], "effect": rounded(effects[i]), "lexical": rounded(lexical[i])}
                for i in np.argsort(-np.abs(effects), kind="stable")
            ],
            "examples": self.nearest_examples(text),
        }
        if number < len(words):
            explanation["words_left_out"] = len(words) - number
        return explanation


def rounded(value: Any) -> float:
    """Round a number to four decimals, for display."""
    return round(float(value), _DIGITS)


class Answer(NamedTuple):
    """The answer to a text.

    Attributes:
      text: the text.
      intent: the intent, or the classifier's `out_of_scope_label`; None if the text has no answer.
        Several intents are joined by the classifier's `label_separator`.
      confidence: confidence of the answer; see `SingleIntent.confidence` and
        `SeveralIntents.confidence`. 0 if the text has no answer.
      shares: tuples of an intent and its probability, the most probable first; empty if the text
        has no answer.
      explanation: the result of `Predictor.explain`; None if it was not requested.
      language: the language of a text that has no answer because it is not in English; None for
        all other texts.
    """

    text: str
    intent: str | None
    confidence: float
    shares: list[tuple[str, float]]
    explanation: dict[str, Any] | None = None
    language: str | None = None

    def described(self, top_k: int = 1) -> dict[str, Any]:
        """Return the answer as a JSON object.

        If `top_k` is at least 2, the object also has `intents`, the `top_k` most probable intents.
        """
        names = ("text", "intent", "confidence")
        values: dict[str, Any] = {name: getattr(self, name) for name in names}
        if top_k > 1 and self.shares:
            values["intents"] = dict(self.shares[:top_k])
        if self.explanation is not None:
            values["explanation"] = self.explanation
        if self.language is not None:
            values["language"] = self.language
        return values


def answer_texts(
    classifier: Predictor,
    texts: Sequence[str],
    *,
    explains: bool = False,
    english_only: bool = False,
) -> list[Answer]:
    """Return the answers to texts, in the form that commands and services print.

    Args:
      classifier: an `IntentClassifier`, a `MultiIntentClassifier` or an `IntentFile`.
      texts: the texts, in a list, an array or a table with one column. Texts with only white space
        and invisible characters get no intent.
      explains: whether to explain each answer.
      english_only: whether texts that are certainly not in English get their `language` instead of
        an intent.

    Raises:
      ValueError: if a text is not a string, `texts` is not a list or has several columns, or
        `explains` is set and the classifier answers with several intents.
      MissingLibraryError: if `english_only` is set and the extra `languages` is not installed.
    """
    texts = [checked_string(text, index) for index, text in enumerate(column(texts))]
    languages = other_languages(texts) if english_only else [None] * len(texts)
    answers = [
        Answer(text, None, 0.0, [], language=language)
        for text, language in zip(texts, languages, strict=True)
    ]
    places = [
        place
        for place, answer in enumerate(answers)
        if fold(answer.text) and answer.language is None
    ]
    if places:
        filled = [texts[place] for place in places]
        predicted = zip(classifier.predict(filled), classifier.predict_proba(filled), strict=True)
        for place, (intent, probabilities) in zip(places, predicted, strict=True):
            answers[place] = _answer(classifier, texts[place], intent, probabilities, explains)
    return answers


def _answer(
    classifier: Predictor, text: str, intent: Any, probabilities: np.ndarray, explains: bool
) -> Answer:
    decision, shares = classifier.decision, np.array([*map(rounded, probabilities)])
    best = np.argsort(-probabilities, kind="stable")
    return Answer(
        text,
        decision.as_text(intent),
        rounded(decision.confidence(probabilities, intent)),
        [(str(classifier.classes_[i]), float(shares[i])) for i in best],
        classifier.explain(text) if explains else None,
    )
