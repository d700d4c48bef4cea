"""A replica of Rasa 2.x as a client of a module: its tokenizer and ConveRT featurizer.

Written from scratch after Rasa's published source (`convert_featurizer.py`,
`whitespace_tokenizer.py`, `train_utils.align_token_features`, Apache-2.0). It checks for the same
files, makes the same calls of signatures, and combines words, subwords and vectors in the same way.
"""

import os
import re
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
import tensorflow_hub as hub
import tensorflow_text  # noqa: F401 (its ops are in the module's graph)

FILES = (
    "saved_model.pb",
    "variables/variables.index",
    "variables/variables.data-00001-of-00002",
    "variables/variables.data-00000-of-00002",
)

# Rasa's patterns are for the package `regex`, whose \w includes combining marks, unlike re's.
_MARKS = "".join(
    chr(code)
    for code in range(0x300, sys.maxunicode + 1)
    if unicodedata.category(chr(code))[0] == "M"
)
_DROPPED = re.compile(
    rf"[^\w{_MARKS}#@&]+(?=\s|$)"
    rf"|(\s|^)[^\w{_MARKS}#@&]+(?=[^0-9\s])"
    rf"|(?<=[^0-9\s])[^\w{_MARKS}._~:/?#\[\]()@!$&*+,;=-]+(?=[^0-9\s])"
)
# Rasa's pattern for emoji includes all CJK characters.
_EMOJI = re.compile(
    "[\U0001f600-\U0001f64f\U0001f300-\U0001f5ff\U0001f680-\U0001f6ff\U0001f1e0-\U0001f1ff"
    "\u2702-\u27b0\u24c2-\U0001f251\u200d\u200c]+"
)


@dataclass(frozen=True)
class Word:
    """A word of a text and its position there."""

    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def whitespace_words(text: str) -> list[Word]:
    """Return the words found by Rasa's WhitespaceTokenizer, which drops most punctuation."""
    found = [word for word in _DROPPED.sub(" ", text).split() if not _EMOJI.fullmatch(word)]
    words, place = [], 0
    for word in found or [text]:
        start = text.index(word, place)
        words.append(Word(word, start))
        place = start + len(word)
    return words


def joined(words: Sequence[Word]) -> str:
    """Return the text that the featurizer reads instead of the original one."""
    text, place = "", 0
    for word in words:
        text += (" " if place != word.start else "") + word.text
        place = word.end
    return text


class RasaClient:
    """Loads a module as Rasa 2.x does, and computes sentence and word features.

    Args:
      folder: a module.

    Raises:
      FileNotFoundError: a file that Rasa checks for is missing.
    """

    def __init__(self, folder: str):
        for name in FILES:
            if not os.path.exists(os.path.join(folder, name)):
                raise FileNotFoundError(name)
        self._module = hub.load(os.path.abspath(folder))
        signatures = self._module.signatures
        self._tokenize = signatures["tokenize"]
        self._encode_sequence = signatures["encode_sequence"]
        self._encode = signatures["default"]

    def subwords(self, word: str) -> list[str]:
        """Return the module's tokens for a word, without word markers."""
        tokens = self._tokenize(tf.convert_to_tensor([word]))["default"].numpy()[0]
        cleaned = [token.decode("utf-8").replace("\ufe4f", "") for token in tokens]
        return [token for token in cleaned if token]

    def sequence(self, texts: Sequence[str]) -> np.ndarray:
        """Return sequence encodings, `[texts, tokens, dim]`."""
        return self._encode_sequence(tf.convert_to_tensor(texts))["sequence_encoding"].numpy()

    def tokens_read(self, text: str) -> list[str]:
        """Return the tokens to which the vectors of `sequence` belong (Rasa ignores them)."""
        tokens = self._encode_sequence(tf.convert_to_tensor([text]))["tokens"].numpy()[0]
        return [token.decode("utf-8").replace("\ufe4f", "") for token in tokens if token]

    def sentence(self, texts: Sequence[str]) -> np.ndarray:
        """Return sentence features, `[texts, 1, dim]`."""
        vectors = self._encode(tf.convert_to_tensor(texts))["default"].numpy()
        return np.reshape(vectors, (len(texts), 1, -1))

    def word_features(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return `[words, dim]` for each text: the mean over the subwords of each word."""
        all_words = [whitespace_words(text) for text in texts]
        vectors = self.sequence([joined(words) for words in all_words])
        features = []
        for row, words in zip(vectors, all_words, strict=True):
            own, place = np.zeros((len(words), row.shape[-1])), 0
            for number, word in enumerate(words):
                count = max(len(self.subwords(word.text)), 1)
                own[number] = row[place] if count == 1 else row[place : place + count].mean(axis=0)
                place += count
            features.append(own)
        return features
