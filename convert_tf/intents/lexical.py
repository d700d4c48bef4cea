"""Which words and letters a text has: logistic regression on TF-IDF, in numpy.

An encoder is trained to see that two texts mean the same, and so forgets names and rare words;
these remember them. What is counted is defined by two patterns and nothing else, so that a graph
counts the same (`convert_tf.intents.serving`).

Reference: Joachims, "Text Categorization with Support Vector Machines", 1998 (TF-IDF).
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from convert_tf.intents.head import DenseLayer, Head, softmax, train_binary, train_logistic

# By cross-validation in training files of BANKING77 and CLINC150 about as good as 2 to 5, with
# smaller tables; pairs of words cost accuracy.
CHARACTER_WIDTHS = (3, 4)
# What stands between words: \w of `re` is RE2's [\p{L}\p{N}_].
_BETWEEN = re.compile(r"\W+")
_C = 10.0
_TEXTS_AT_ONCE = 256
_MOST_TERMS = 15_000  # of one kind; the commonest
_FEW_EXAMPLES = 3_000  # up to which the regression is done in their space


class LexicalModel(NamedTuple):
    """Terms, how rare they are, and what they say.

    Attributes:
      words: the known ones.
      characters: runs of three and four, the space between words among them.
      rarity: float32 `[words + characters]`, inverse document frequencies.
      head: one layer, from TF-IDF to logits of the intents.

    Example:
      model = train_lexical(["where is my card?", …], labels)
      model.probabilities(["my card is lost"])
    """

    words: list[str]
    characters: list[str]
    rarity: np.ndarray
    head: Head

    def probabilities(self, texts: Sequence[str]) -> np.ndarray:
        """Texts → float32 `[texts, intents]`, rows sum to 1."""
        return softmax(self.logits(texts))

    def logits(self, texts: Sequence[str]) -> np.ndarray:
        """What the head makes of texts: float32 `[texts, intents]`."""
        ((kernel, bias),) = self.head.layers
        logits = np.tile(bias, (len(texts), 1))
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            own = slice(start, start + _TEXTS_AT_ONCE)
            for found in self.features(texts[own]):
                logits[own] += found.sums(kernel)
        return logits

    def features(self, texts: Sequence[str]) -> "list[TermWeights]":
        """TF-IDF of words, and of characters."""
        number = len(self.words)
        return [
            _tf_idf(map(word_terms, texts), self.words, self.rarity[:number], 0),
            _tf_idf(map(character_terms, texts), self.characters, self.rarity[number:], number),
        ]


class TermWeights(NamedTuple):
    """How much each of its known terms counts in a text: of length 1, or 0 without such terms.

    Attributes:
      terms: int `[all]`, numbers of terms, those of the first text first.
      weights: float32 `[all]`.
      splits: int `[texts + 1]`, where each text begins and ends in these.
    """

    terms: np.ndarray
    weights: np.ndarray
    splits: np.ndarray

    def sums(self, kernel: np.ndarray) -> np.ndarray:
        """Products with float32 `[terms, intents]`: float32 `[texts, intents]`."""
        found = np.zeros((len(self.splits) - 1, kernel.shape[1]), np.float32)
        is_filled = np.diff(self.splits) > 0  # reduceat takes an empty range for its first number
        if is_filled.any():
            products = kernel[self.terms] * self.weights[:, None]
            found[is_filled] = np.add.reduceat(products, self.splits[:-1][is_filled])
        return found

    def as_rows(self, number: int) -> Any:
        """As a sparse array, float32 `[texts, number]`."""
        from scipy.sparse import csr_array

        parts = self.weights, self.terms, self.splits
        return csr_array(parts, shape=(len(self.splits) - 1, number))


def plain_words(text: str) -> str:
    """Lower case, and one space between words."""
    return _BETWEEN.sub(" ", text.lower()).strip()


def word_terms(text: str) -> list[str]:
    """The words."""
    return plain_words(text).split()


def character_terms(text: str) -> list[str]:
    """Three and four characters, with a space before the first word and behind the last."""
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
    """Learns terms and what they say.

    Args:
      texts: the examples.
      labels: int `[texts]`, from 0 without gaps; or bool `[texts, labels]`, for log-odds of each.
      weights: float `[texts]`: how much an example counts; 1 by default.
    """
    words, word_rarity = _learnt(map(word_terms, texts), len(texts))
    characters, character_rarity = _learnt(map(character_terms, texts), len(texts))
    rarity = np.concatenate([word_rarity, character_rarity]).astype(np.float32)
    untrained = LexicalModel(words, characters, rarity, Head([]))
    one, other = (found.as_rows(len(rarity)) for found in untrained.features(texts))
    return untrained._replace(head=_regression(one + other, labels, weights))


def _learnt(documents: Iterable[list[str]], number: int) -> tuple[list[str], np.ndarray]:
    """The commonest terms, sorted, and their smoothed inverse document frequencies."""
    frequency: Counter[str] = Counter()
    for terms in documents:
        frequency.update({*terms})
    # Of equally common ones the first in the alphabet, whatever order sets have in this process.
    commonest = sorted(frequency, key=lambda term: (-frequency[term], term))
    kept = sorted(commonest[:_MOST_TERMS])
    found = np.array([frequency[term] for term in kept], np.float64)
    return kept, np.log((1 + number) / (1 + found)) + 1


def _tf_idf(
    documents: Iterable[list[str]], terms: Sequence[str], rarity: np.ndarray, first: int
) -> TermWeights:
    """(1 + ln count) · rarity, divided by the length of the row; terms count from `first`."""
    place = {term: number for number, term in enumerate(terms)}
    counts = [Counter(place[term] for term in own if term in place) for own in documents]
    places = np.array([number for own in counts for number in own], np.int64)
    values = np.array([count for own in counts for count in own.values()], np.float32)
    values = (1 + np.log(values)) * rarity[places]
    sizes = [*map(len, counts)]
    rows = np.repeat(np.arange(len(counts)), sizes)
    lengths = np.sqrt(np.bincount(rows, values**2, len(counts)))
    values /= np.maximum(lengths, 1e-12)[rows].astype(np.float32)
    return TermWeights(first + places, values, np.concatenate([[0], np.cumsum(sizes)]).astype(int))


def _regression(features: Any, labels: np.ndarray, weights: np.ndarray | None) -> Head:
    """Logistic regression, which for few examples has as many features as there are examples.

    The weights of the best solution are sums of examples, X'A. With XX' = UΛU' the features U√Λ
    have the same products and so the same logits, and from their weights V those of X are
    X'UΛ^-½V.
    """
    number = int(labels.max()) + 1 if labels.ndim == 1 else labels.shape[1]
    train = train_logistic if labels.ndim == 1 else train_binary
    if not features.nnz:  # texts of dots and dashes
        return Head(
            [
                DenseLayer(
                    np.zeros((features.shape[1], number), np.float32), np.zeros(number, np.float32)
                )
            ]
        )
    if features.shape[0] > _FEW_EXAMPLES:
        return train(features, labels, c=_C, weights=weights)
    products = (features @ features.T).toarray().astype(np.float64)
    values, vectors = np.linalg.eigh(products)
    is_used = values > 1e-6 * values.max()
    roots, vectors = np.sqrt(values[is_used]), vectors[:, is_used]
    ((kernel, bias),) = train(vectors * roots, labels, c=_C, weights=weights).layers
    return Head([DenseLayer(features.T @ ((vectors / roots).astype(np.float32) @ kernel), bias)])


def lexical_arrays(model: LexicalModel) -> dict[str, np.ndarray]:
    """A model by name, for a file; terms as bytes of UTF-8, between line feeds."""
    ((kernel, bias),) = model.head.layers
    return {
        "words": _as_bytes(model.words),
        "characters": _as_bytes(model.characters),
        "rarity": model.rarity,
        "term_kernel": kernel,
        "term_bias": bias,
    }


def lexical_of_arrays(arrays: Mapping[str, np.ndarray]) -> LexicalModel | None:
    """What `lexical_arrays` was given; None where nothing of it is there.

    Raises:
      ValueError: a part is missing.
    """
    names = ("words", "characters", "rarity", "term_kernel", "term_bias")
    missing = [name for name in names if name not in arrays]
    if len(missing) == len(names):
        return None
    if missing:
        raise ValueError(f"without {', '.join(missing)}")
    words, characters = (
        arrays[name].tobytes().decode().split("\n") if len(arrays[name]) else []
        for name in names[:2]
    )
    head = Head([DenseLayer(arrays["term_kernel"], arrays["term_bias"])])
    return LexicalModel(words, characters, arrays["rarity"], head)


def _as_bytes(terms: Sequence[str]) -> np.ndarray:
    return np.array(bytearray("\n".join(terms).encode()), np.uint8)
