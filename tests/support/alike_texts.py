"""Texts rewritten with look-alike characters and unusual white space."""

import itertools
import random
import unicodedata
from collections import defaultdict

from convert_tf.corpora.sample import SampleThreads
from convert_tf.text.characters import ranges_of

EXTRA = [
    "10²", "½", "wait…", "№ 5", "cafe\u0301", "❤\ufe0f", "🤷\u200d♀\ufe0f", "it´s", "™",
    "¯\\_(ツ)_/¯",
    "don’t", "“so”", "¨", "⁉", "e\u2010mail", "ﬁne", "x\u200d", "Å\u0301", "d\u0323",
]  # fmt: skip


def _characters(table):
    return [chr(point) for points in ranges_of(table) for point in points]


def _ways_to_write():
    ways = defaultdict(list)
    for character in _characters("alike"):
        plain = unicodedata.normalize("NFKC", character)
        if plain.isascii():
            ways[plain].append(character)
    return ways


def sample_texts(number, seed=1):
    """Return titles and comments from sample dumps."""
    found = []
    for one in itertools.count(seed):
        for submission, comments in SampleThreads(one).generate(500):
            found += [submission["title"], *(comment["body"] for comment in comments)]
            if len(found) >= number:
                return found[:number]


class OtherWriter:
    """Rewrites texts with unusual spaces, invisible characters and look-alike letters.

    Args:
      seed: seed of the random choices.
    """

    def __init__(self, seed=0):
        self._random = random.Random(seed)
        self._ways = _ways_to_write()
        self._spaces, self._unseen = _characters("spaces"), _characters("unseen")

    def spaced(self, text):
        """Return the text with other white space between its words and at both ends."""
        draw = self._random
        words = [word for word in text.split(" ") if word]
        gaps = ["".join(draw.choices(self._spaces, k=draw.choice((1, 1, 2)))) for _ in words]
        last = draw.choice(["", " ", "\n", "\r\n"])
        return "".join(word + gap for word, gap in zip(words, [*gaps[1:], last], strict=True))

    def shaped(self, text):
        """Return the text with look-alike letters and invisible characters."""
        draw, parts = self._random, []
        for character in text:
            ways = self._ways.get(character)
            parts.append(draw.choice(ways) if ways and draw.random() < 0.3 else character)
            if draw.random() < 0.05:
                parts.append(draw.choice(self._unseen))
        return "".join(parts)

    def mixed(self, text):
        """Return the text with all of these changes and a foreign word or emoji inserted."""
        words = text.split(" ")
        words.insert(self._random.randint(0, len(words)), self._random.choice(EXTRA))
        return self.spaced(self.shaped(" ".join(words)))
