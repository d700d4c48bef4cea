"""Logistic regression on the words and letters of a text (TF-IDF).

An encoder learns which texts mean the same, so its vectors say little about names and rare words.
This model counts such words. It is trained with scikit-learn, but predictions only need numpy. An
`.onnx` file therefore works without scikit-learn. Terms are defined by simple rules, so that a
TensorFlow graph can count the same terms (`convert_tf.intents.serving`).

Reference: Joachims, "Text Categorization with Support Vector Machines", 1998 (TF-IDF).
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from convert_tf.intents.head import DenseLayer, Head, train_logistic
from convert_tf.text.characters import fold

# In cross-validation on the training files of BANKING77 and CLINC150, sequences of 3 and 4
# characters were about as accurate as sequences of 2 to 5, and their tables are smaller. Adding
# pairs of words lowered the accuracy.
CHARACTER_WIDTHS = (3, 4)
# Separators between words. \w in `re` is [\p{L}\p{N}_] in RE2.
_BETWEEN = re.compile(r"\W+")
_C = 10.0
_MOST_TERMS = 15_000  # maximum number of terms of each kind; the most frequent ones are kept
_FEW_EXAMPLES = 3_000  # with at most this many examples, the regression has a feature per example


@dataclasses.dataclass(frozen=True)
class LexicalModel:
    """The terms that a classifier counts, and a logistic regression on their TF-IDF.

    Attributes:
      words: the known words.
      characters: the known sequences of three and four characters, including spaces.
      rarity: float32 `[words + characters]`, the inverse document frequencies.
      head: a head with one layer, from TF-IDF to the logits of the intents.

    Example:
      model = train_lexical(["where is my card?", …], labels)
      model.logits(["my card is lost"])
    """

    words: list[str]
    characters: list[str]
    rarity: np.ndarray
    head: Head

    @cached_property
    def _places(self) -> list[tuple[Callable[[str], list[str]], dict[str, int]]]:
        """For words and characters: a function that lists terms, and the row of each known term."""
        words = {term: row for row, term in enumerate(self.words)}
        runs = {term: row for row, term in enumerate(self.characters, len(words))}
        return [(word_terms, words), (character_terms, runs)]

    def logits(self, texts: Sequence[str]) -> np.ndarray:
        """Return the logits of the intents: float32 `[texts, intents]`."""
        logits = np.tile(self.head.layers[0].bias, (len(texts), 1))
        for row, text in enumerate(texts):
            for rows, weights in self.term_weights(text):
                logits[row] += weights @ self.head.layers[0].kernel[rows]
        return logits

    def term_weights(self, text: str) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the rows and the TF-IDF of a text's known terms, for words and for characters.

        The TF-IDF of a term is (1 + ln count) · rarity, divided by the norm of the vector of all
        terms of the same kind in the text.
        """
        terms_and_weights = []
        for terms, places in self._places:
            counts = Counter(places[term] for term in terms(text) if term in places)
            if counts:
                rows = np.array([*counts])
                weights = (1 + np.log([*counts.values()])) * self.rarity[rows]
                terms_and_weights.append(
                    (rows, (weights / np.linalg.norm(weights)).astype(np.float32))
                )
        return terms_and_weights


def plain_words(text: str) -> str:
    """Return a text folded to plain characters, in lower case, with one space between words."""
    return _BETWEEN.sub(" ", fold(text).lower()).strip()


def word_terms(text: str) -> list[str]:
    """Return the words of a text."""
    return plain_words(text).split()


def character_terms(text: str) -> list[str]:
    """Return all sequences of three and four characters in a text padded with spaces."""
    padded = f" {plain_words(text)} "
    first, last = CHARACTER_WIDTHS
    return [
        padded[start : start + width]
        for width in range(first, last + 1)
        for start in range(len(padded) - width + 1)
    ]


def train_lexical(
    texts: Sequence[str], labels: np.ndarray, weights: np.ndarray | None = None
) -> LexicalModel:
    """Collect the terms, compute their weights, and train the regression.

    Args:
      texts: the examples.
      labels: int `[texts]`, the label of each text, numbered from 0 without gaps; or bool
        `[texts, labels]`, if the model is to predict log-odds for each label.
      weights: float `[texts]`, weights of the examples. Default: equal weights.
    """
    if not any(map(word_terms, texts)):  # only punctuation
        number = int(labels.max()) + 1 if labels.ndim == 1 else labels.shape[1]
        kernel, bias = np.zeros((0, number), np.float32), np.zeros(number, np.float32)
        return LexicalModel([], [], kernel[:, 0], Head([DenseLayer(kernel, bias)]))
    from scipy.sparse import hstack
    from sklearn.feature_extraction.text import TfidfVectorizer

    both = [
        TfidfVectorizer(
            analyzer=terms, max_features=_MOST_TERMS, sublinear_tf=True, dtype=np.float32
        )
        for terms in (word_terms, character_terms)
    ]
    features = hstack([vectorizer.fit_transform(texts) for vectorizer in both], format="csr")
    words, characters = (vectorizer.get_feature_names_out().tolist() for vectorizer in both)
    rarity = np.concatenate([vectorizer.idf_ for vectorizer in both]).astype(np.float32)
    return LexicalModel(words, characters, rarity, _regression(features, labels, weights))


def _regression(features: Any, labels: np.ndarray, weights: np.ndarray | None) -> Head:
    """Train logistic regression. If there are few examples, use one feature per example.

    The weights of the best solution are linear combinations X'A of the examples X. With XX' = UΛU',
    the features U√Λ have the same inner products as X, and therefore give the same logits. If V are
    the weights for these features, the weights for X are X'UΛ^-½V.
    """
    if features.shape[0] > _FEW_EXAMPLES:
        return train_logistic(features, labels, c=_C, weights=weights)
    products = (features @ features.T).toarray().astype(np.float64)
    values, vectors = np.linalg.eigh(products)
    is_used = values > 1e-6 * values.max()
    roots, vectors = np.sqrt(values[is_used]), vectors[:, is_used]
    ((kernel, bias),) = train_logistic(vectors * roots, labels, c=_C, weights=weights).layers
    return Head([DenseLayer(features.T @ ((vectors / roots).astype(np.float32) @ kernel), bias)])


def lexical_arrays(model: LexicalModel) -> dict[str, np.ndarray]:
    """Return a model's arrays by name, for storing. Terms are stored as UTF-8, one per line."""
    ((kernel, bias),) = model.head.layers
    return {
        "words": _as_bytes(model.words),
        "characters": _as_bytes(model.characters),
        "rarity": model.rarity,
        "term_kernel": kernel,
        "term_bias": bias,
    }


def lexical_of_arrays(arrays: Mapping[str, np.ndarray]) -> LexicalModel | None:
    """Restore a model from the result of `lexical_arrays`; None if there are no such arrays.

    Raises:
      KeyError: if an array is missing.
      ValueError: if the arrays have different numbers of terms.
    """
    if not {"words", "rarity"} & arrays.keys():
        return None
    words, characters = (
        arrays[name].tobytes().decode().split("\n") if len(arrays[name]) else []
        for name in ("words", "characters")
    )
    rarity, kernel = arrays["rarity"], arrays["term_kernel"]
    if not len(words) + len(characters) == len(rarity) == len(kernel):
        raise ValueError("the numbers of terms and of their weights differ")
    return LexicalModel(words, characters, rarity, Head([DenseLayer(kernel, arrays["term_bias"])]))


def _as_bytes(terms: Sequence[str]) -> np.ndarray:
    return np.array(bytearray("\n".join(terms).encode()), np.uint8)
