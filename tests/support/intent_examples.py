"""A dozen labelled sentences and an encoder of words, for tests of intents."""

import zlib
from collections.abc import Sequence

import numpy as np

from convert_tf.intents.cross_validation import Mixture
from convert_tf.intents.lexical import train_lexical

EXAMPLES = {
    "greet": ["hello there", "hi, how are you", "good morning to you", "hello again, friend"],
    "reset": ["reset my password please", "i forgot the password", "new password for my account",
              "the password is lost"],
    "order": ["where is my order", "has the order left yet", "when will my order come",
              "track the order of today"],
}  # fmt: skip
OUTSIDE = ["seven purple elephants sing", "gravity bends starlight", "knit wool socks"]
TEXTS = [text for own in EXAMPLES.values() for text in own]
LABELS = [label for label, own in EXAMPLES.items() for _ in own]
DIM = 256


class WordEncoder:
    """Sums a random vector for each word, and counts the texts that it encodes."""

    def __init__(self, seed: int = 0):
        self.seed = seed
        self.texts: list[str] = []

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        self.texts += texts
        return np.stack([sum(map(self._vector, text.lower().split())) for text in texts])

    def _vector(self, word: str) -> np.ndarray:
        rng = np.random.default_rng(zlib.crc32(word.encode()) + self.seed)
        return rng.standard_normal(DIM)


class Series:
    """The used part of pandas' column of a table whose rows were reordered.

    Items are looked up by their label in the index, here the reversed positions.
    """

    def __init__(self, values):
        self.values = [*values]
        self.shape = (len(self.values),)

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, object)

    def __len__(self):
        return len(self.values)

    def __iter__(self):
        return iter(self.values)

    def __getitem__(self, label):
        return self.values[::-1][label]

    def __bool__(self):
        raise ValueError("The truth value of a Series is ambiguous.")


def write_csv(path, texts=TEXTS, labels=LABELS):
    """Write a file for `read_labelled`, and return its path."""
    rows = "".join(f'"{text}",{label}\n' for text, label in zip(texts, labels, strict=True))
    path.write_text("text,label\n" + rows, encoding="utf-8")
    return str(path)


def give_words(classifier, weight):
    """Give a fitted classifier a word model with this weight, and make its answers less certain."""
    places = np.searchsorted(classifier.classes_, LABELS)
    lexical = train_lexical(TEXTS, places)
    classifier.parts_ = classifier.parts_._replace(lexical=lexical)
    classifier.mixture_ = Mixture(weight, 1.3)
