"""Explain an answer: its margin, the words that count, the nearest examples."""

from typing import Any

import numpy as np

from convert_tf.intents.data import checked_texts
from convert_tf.intents.head import softmax

_DIGITS = 4
_EXAMPLES = 5


def explanation(classifier: Any, text: str) -> dict[str, Any]:
    """Explain the most probable intent of a text against the second.

    The effect of a word is how far the log-odds of the two intents fall when the word is left out.
    The classifier answers each shorter text, so effects are exact, but they do not add up.

    Args:
      classifier: a fitted `IntentClassifier`, or an `IntentFile`.
      text: a message.

    Returns:
      `intent` and `second`; `margin`, the difference of their probabilities; `words`, the largest
      effect first, each with `word`, `effect` and `lexical`, the part of the effect that comes from
      the model of words; `examples`, the five nearest training examples, each with `text`,
      `label` and `cosine`. It is empty if the classifier does not keep its examples.

    Raises:
      ValueError: the text is empty, or the classifier answers with several intents.
    """
    if hasattr(classifier, "label_separator"):
        raise ValueError("A classifier of several intents cannot explain its answers.")
    (text,) = checked_texts([text])
    words = text.split()
    shorter = [" ".join(words[:i] + words[i + 1 :]) for i in range(len(words))]
    answers = classifier.raw_answers([text, *(shorter if len(words) > 1 else [])])
    mixture = classifier.mixture_
    logits = mixture.logits(answers.head, answers.lexical)
    probabilities = softmax(logits[0])
    best, second = np.argsort(-probabilities, kind="stable")[:2]
    effects = _effects(logits, best, second)
    lexical = np.zeros_like(effects)
    if answers.lexical is not None:
        scale = mixture.weight / mixture.temperature
        lexical = scale * _effects(answers.lexical, best, second)
    order = np.argsort(-np.abs(effects), kind="stable")
    return {
        "intent": str(classifier.classes_[best]),
        "second": str(classifier.classes_[second]),
        "margin": _rounded(probabilities[best] - probabilities[second]),
        "words": [
            {"word": words[i], "effect": _rounded(effects[i]), "lexical": _rounded(lexical[i])}
            for i in order
        ],
        "examples": classifier.nearest_examples(text),
    }


def nearest(
    vector: np.ndarray, vectors: np.ndarray, texts: list[str], labels: list[Any]
) -> list[dict[str, Any]]:
    """Return the five examples with the largest cosines, the nearest first.

    Args:
      vector: float `[dim]`, of length 1.
      vectors: float `[examples, dim]`, of length 1.
      texts, labels: of the examples.
    """
    cosines = vectors @ vector
    # Concatenated vectors of several encoders are longer than 1.
    cosines = cosines / np.maximum(np.linalg.norm(vector) * np.linalg.norm(vectors, axis=1), 1e-12)
    return [
        {"text": texts[i], "label": labels[i], "cosine": _rounded(cosines[i])}
        for i in np.argsort(-cosines, kind="stable")[:_EXAMPLES]
    ]


def _effects(logits: np.ndarray, best: int, second: int) -> np.ndarray:
    """Return how far each other row has a smaller lead than the first: float `[rows - 1]`."""
    leads = logits[:, best] - logits[:, second]
    return leads[0] - leads[1:]


def _rounded(value: Any) -> float:
    return round(float(value), _DIGITS)
