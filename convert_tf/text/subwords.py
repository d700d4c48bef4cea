"""Learn a subword vocabulary from word counts.

The algorithm is Tensor2Tensor's `SubwordTextEncoder.build_from_token_counts`. Each of several
iterations has three steps:

1. Cut every word greedily into the subwords of the previous iteration. In the first iteration, cut
   it into characters.
2. Count each substring that starts where a piece starts. Each occurrence counts as often as its
   word.
3. From the longest to the shortest, accept a substring if its count is at least `min_count`.
   Subtract the count of an accepted substring from the counts of all its prefixes.

All characters in the alphabet are always accepted.

A substring never occurs more often than its prefixes. Therefore substrings are extended one
character at a time, and only substrings that reach `min_count` are extended. All words are
processed together in flat numpy arrays, with one code per character and one node per candidate.

Reference: arXiv 1911.03688 §3.1.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from convert_tf.config.base import Config, option

WORD_START = "\ufe4f"
"""Marker at the start of every word (a run of characters of one class)."""


@dataclasses.dataclass(frozen=True)
class SubwordConfig(Config):
    """Options for learning a vocabulary.

    Attributes:
      min_count: Minimum number of occurrences per subword.
      iterations: Number of learning iterations.
      max_subword_length: Maximum number of characters per subword, including the word-start marker.
      max_consecutive_digits: Maximum number of consecutive digits in a subword.
      alphabet_min_count: Minimum number of occurrences per character. No subword contains a rarer
        character.
    """

    min_count: int = option(250, at_least=1)
    iterations: int = option(4, at_least=1)
    max_subword_length: int = option(20, at_least=2)
    max_consecutive_digits: int = option(4, at_least=1)
    alphabet_min_count: int = option(10, at_least=1)


def learn_subwords(
    word_counts: Mapping[str, int], config: SubwordConfig | None = None
) -> list[str]:
    """Learn subwords from counted words.

    Each character in the alphabet is in the vocabulary twice: alone and after the word-start
    marker. If a word consists of known characters, it can therefore always be cut into tokens, none
    of which is the marker alone. The result does not depend on the order of `word_counts`.

    Args:
      word_counts: number of occurrences of each word. A word is the marker followed by at least
        one character.
      config: options for learning; None for the paper's options.

    Returns:
      The subwords, the most frequent first.

    Raises:
      ValueError: if there are no words, a word does not start with the marker, or no character is
        frequent enough.

    Example:
      learn_subwords({"\ufe4fhello": 500, "\ufe4f!": 300})

    Reference: arXiv 1911.03688 §3.1. The paper does not say whether the marker counts as one of the
    20 characters; here it does.
    """
    config = config or SubwordConfig()
    corpus = _Corpus.from_word_counts(word_counts, config)
    starts = np.flatnonzero(corpus.codes)
    trie = _Trie.count(corpus, starts, config)
    for _ in range(config.iterations - 1):
        trie = _Trie.count(corpus, trie.segment(corpus), config)
    return trie.subwords(corpus)


@dataclasses.dataclass(frozen=True)
class _Corpus:
    """All words as one array of character codes.

    The code of the i-th character in the alphabet is i + 1 within a word and i + 1 + size at the
    start of a word, where size is the size of the alphabet. Markers and unknown characters have
    code 0. No subword contains a 0.
    """

    alphabet: str
    codes: np.ndarray  # int32 [characters + 1], the last code is 0
    weights: np.ndarray  # int64 [characters + 1], count of the character's word

    @property
    def num_codes(self) -> int:
        return 2 * len(self.alphabet) + 1

    @classmethod
    def from_word_counts(cls, word_counts: Mapping[str, int], config: SubwordConfig) -> "_Corpus":
        if not word_counts:
            raise ValueError("There are no words to learn a vocabulary from. Pass more text.")
        for word in word_counts:
            if len(word) < 2 or word.rfind(WORD_START) != 0:
                raise ValueError(
                    f"Words must start with the marker {WORD_START!r} and must not contain it "
                    f"again. Received: {word!r}. Split texts with convert_tf.text.runs.split_runs."
                )
        words = list(word_counts)
        counts = np.fromiter((word_counts[word] for word in words), np.int64, len(words))
        lengths = np.fromiter(map(len, words), np.int64, len(words))
        points = np.frombuffer("".join(words).encode("utf-32-le"), np.uint32)
        weights = np.append(np.repeat(counts, lengths), 0)

        occurrences = np.bincount(points, weights[:-1])
        occurrences[ord(WORD_START)] = 0
        alphabet = np.flatnonzero(occurrences >= config.alphabet_min_count)
        if not alphabet.size:
            raise ValueError(
                f"No character occurs {config.alphabet_min_count} times in these {len(words)} "
                "words. Pass more text or lower alphabet_min_count."
            )
        code_of = np.zeros(len(occurrences), np.int32)
        code_of[alphabet] = np.arange(1, alphabet.size + 1)
        codes = np.append(code_of[points], np.int32(0))
        first = np.cumsum(lengths) - lengths + 1
        codes[first] += np.where(codes[first] > 0, np.int32(alphabet.size), np.int32(0))
        return cls("".join(map(chr, alphabet)), codes, weights)

    def text(self, code: int) -> str:
        """Return the string that a code stands for."""
        size = len(self.alphabet)
        return (
            self.alphabet[code - 1] if code <= size else WORD_START + self.alphabet[code - 1 - size]
        )


@dataclasses.dataclass
class _Level:
    """The candidates with the same number of codes."""

    keys: np.ndarray  # int64 [nodes], ascending: parent node * num_codes + last code
    counts: np.ndarray  # int64 [nodes], later reduced by the counts of accepted extensions
    digits: np.ndarray  # int64 [nodes], number of consecutive digits at the end

    def __post_init__(self) -> None:
        self.accepted = np.zeros(self.keys.size, bool)  # [nodes]
        self.useful = self.accepted.copy()  # [nodes], accepted or a prefix of an accepted one


class _Trie:
    """The candidates of one iteration, accepted or not."""

    def __init__(self, levels: list[_Level], num_codes: int) -> None:
        self.levels = levels
        self.num_codes = num_codes

    @classmethod
    def count(cls, corpus: _Corpus, starts: np.ndarray, config: SubwordConfig) -> "_Trie":
        """Count the substrings that begin at `starts`, then accept or reject each."""
        num_codes = corpus.num_codes
        size = len(corpus.alphabet)
        is_digit = np.zeros(num_codes, np.int64)
        is_digit[1:] = 2 * [character.isdecimal() for character in corpus.alphabet]

        node = corpus.codes[starts].astype(np.int64)
        weights = corpus.weights[starts]
        counts = _sums(node, weights, num_codes)
        levels = [_Level(np.arange(num_codes), counts, is_digit)]
        alive = counts[node] >= config.min_count
        starts, node, weights = starts[alive], node[alive], weights[alive]
        # A code at the start of a word stands for two characters, one of which is the marker.
        length = 1 + (node > size)
        for level in range(1, config.max_subword_length):
            code = corpus.codes[starts + level]
            alive = (code > 0) & (length + level <= config.max_subword_length)
            keys = node[alive] * num_codes + code[alive]
            starts, weights, length = starts[alive], weights[alive], length[alive]
            keys, node = np.unique(keys, return_inverse=True)
            counts = _sums(node, weights, keys.size)
            parent, last = np.divmod(keys, num_codes)
            digits = (levels[-1].digits[parent] + 1) * is_digit[last]
            is_candidate = (counts >= config.min_count) & (digits <= config.max_consecutive_digits)
            if not is_candidate.any():
                break
            levels.append(_Level(keys[is_candidate], counts[is_candidate], digits[is_candidate]))
            alive = is_candidate[node]
            node = (np.cumsum(is_candidate) - 1)[node[alive]]
            starts, weights, length = starts[alive], weights[alive], length[alive]
        trie = cls(levels, num_codes)
        trie._accept(config.min_count)
        return trie

    def _accept(self, min_count: int) -> None:
        """Accept candidates from long to short, and reduce the counts of their prefixes."""
        taken = np.zeros(self.levels[-1].keys.size, np.int64)
        for index in range(len(self.levels) - 1, -1, -1):
            level = self.levels[index]
            level.counts -= taken
            # The first level is the alphabet, which is always accepted.
            level.accepted = (level.counts >= min_count) | (index == 0)
            level.useful |= level.accepted
            taken += np.where(level.accepted, level.counts, 0)
            if index:
                parents = level.keys // self.num_codes
                above = self.levels[index - 1]
                taken = _sums(parents, taken, above.keys.size)
                above.useful |= np.bincount(parents, level.useful, above.keys.size) > 0

    def segment(self, corpus: _Corpus) -> np.ndarray:
        """Cut every word greedily into accepted subwords, and return where the pieces start."""
        codes = corpus.codes
        cursor = np.flatnonzero((codes[1:] > 0) & (codes[:-1] == 0)) + 1
        if codes[0]:
            cursor = np.append(0, cursor)
        starts = []
        while cursor.size:
            starts.append(cursor)
            cursor = cursor + self._longest(codes, cursor)
            cursor = cursor[codes[cursor] > 0]
        return np.sort(np.concatenate(starts))

    def _longest(self, codes: np.ndarray, cursor: np.ndarray) -> np.ndarray:
        """Return the length, in codes, of the longest accepted subword at each cursor."""
        best = np.ones(cursor.size, np.int64)
        active = np.arange(cursor.size)
        node = codes[cursor].astype(np.int64)
        for depth, level in enumerate(self.levels[1:], start=1):
            code = codes[cursor[active] + depth]
            active, node, code = active[code > 0], node[code > 0], code[code > 0]
            key = node * self.num_codes + code
            node = np.minimum(np.searchsorted(level.keys, key), level.keys.size - 1)
            is_match = (level.keys[node] == key) & level.useful[node]
            active, node = active[is_match], node[is_match]
            best[active[level.accepted[node]]] = depth + 1
        return best

    def subwords(self, corpus: _Corpus) -> list[str]:
        """Return the accepted strings, sorted by count, then by code points, both descending."""
        counted: list[tuple[int, str]] = []
        texts: list[str] = [""] + [corpus.text(code) for code in range(1, self.num_codes)]
        for index, level in enumerate(self.levels):
            if index:
                parent, last = np.divmod(level.keys, self.num_codes)
                texts = [texts[p] + corpus.text(c) for p, c in zip(parent, last, strict=True)]
            rows = zip(level.counts.tolist(), texts, level.accepted, strict=True)
            counted += [(count, text) for count, text, accepted in rows if accepted and text]
        return [text for _, text in sorted(counted, reverse=True)]


def _sums(groups: np.ndarray, weights: np.ndarray, size: int) -> np.ndarray:
    """Return the sums of `weights` per group, exact up to 2**53."""
    return np.bincount(groups, weights, size).astype(np.int64)
