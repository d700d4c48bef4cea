"""Learns the subword vocabulary from word counts.

The algorithm is Tensor2Tensor's `SubwordTextEncoder.build_from_token_counts`. It runs a few times:
every word is cut greedily by the subwords of the time before (at first by its characters); each
substring that begins where a cut begins is counted with the count of its word; then, from the
longest to the shortest, a substring is accepted when its count is still at least `min_count`, and
an accepted one takes its count away from all its prefixes. Characters of the alphabet stay whatever
their count.

A count of a substring is never above the count of its prefixes, so substrings are grown one
character at a time and those below `min_count` are not grown further. All words are handled
together in flat numpy arrays: there is one code per character, one node per candidate.

Reference: arXiv 1911.03688 §3.1.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

WORD_START = "\ufe4f"
"""Opens every word (a run of characters of one class); appears nowhere else in it."""


@dataclasses.dataclass(frozen=True)
class SubwordConfig:
    """Rules of the learner.

    Args:
        min_count: Occurrences a subword needs, at least.
        iterations: How often words are cut and substrings counted.
        max_subword_length: Characters in a subword, at most, the word-start marker included.
        max_consecutive_digits: Decimal digits in a row in a subword, at most.
        alphabet_min_count: Occurrences that a character needs to belong to the alphabet. One that
            does not is unknown: no subword holds it.

    Raises:
        ValueError: A number is out of range.
    """

    min_count: int = 250
    iterations: int = 4
    max_subword_length: int = 20
    max_consecutive_digits: int = 4
    alphabet_min_count: int = 10

    def __post_init__(self) -> None:
        lowest = {field.name: 1 for field in dataclasses.fields(self)}
        lowest["max_subword_length"] = 2
        for name, bound in lowest.items():
            value = getattr(self, name)
            if not isinstance(value, int) or value < bound:
                raise ValueError(
                    f"{name} must be an integer of at least {bound}. "
                    f"Received: {name}={value!r}. Pass a larger number."
                )


def learn_subwords(
    word_counts: Mapping[str, int], config: SubwordConfig | None = None
) -> list[str]:
    """Returns the subwords learned from counted words, most frequent first.

    The alphabet is every character seen `alphabet_min_count` times; each is there twice: alone and
    behind the word-start marker, so that any word of known characters can be cut without a lone
    marker. The result does not depend on the order of `word_counts`.

    Args:
        word_counts: Occurrences of each word; a word is the marker and at least one more character.
        config: The rules; the paper's by default.

    Raises:
        ValueError: There are no words, or one is not a marker followed by other characters, or
            no character is frequent enough.

    ```python
    learn_subwords({"\ufe4fhello": 500, "\ufe4f!": 300})
    ```

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
    """All words, one after the other, as codes of characters.

    The code of the i-th character of the alphabet is i + 1 within a word and i + 1 + size at its
    start; 0 stands where there was a marker or an unknown character, which no subword crosses.
    """

    alphabet: str
    codes: np.ndarray  # int32 [characters + 1], the last is 0
    weights: np.ndarray  # int64 [characters + 1], the count of the word

    @property
    def num_codes(self) -> int:
        return 2 * len(self.alphabet) + 1

    @classmethod
    def from_word_counts(cls, word_counts: Mapping[str, int], config: SubwordConfig) -> "_Corpus":
        if not word_counts:
            raise ValueError(
                "A vocabulary needs at least one counted word. Received: none. Give more text."
            )
        for word in word_counts:
            if len(word) < 2 or word.rfind(WORD_START) != 0:
                raise ValueError(
                    f"A word is the marker {WORD_START!r} followed by other characters. Received: "
                    f"{word!r}. Cut the text with convert_tf.text.runs.split_runs."
                )
        words = list(word_counts)
        counts = np.fromiter((word_counts[word] for word in words), np.int64, len(words))
        lengths = np.fromiter(map(len, words), np.int64, len(words))
        points = np.frombuffer("".join(words).encode("utf-32-le"), np.uint32)
        weights = np.append(np.repeat(counts, lengths), 0)

        seen = np.bincount(points, weights[:-1])
        seen[ord(WORD_START)] = 0
        known = np.flatnonzero(seen >= config.alphabet_min_count)
        if not known.size:
            raise ValueError(
                f"The alphabet needs a character seen {config.alphabet_min_count} times. Received: "
                f"{len(words)} words without one. Give more text or lower alphabet_min_count."
            )
        code_of = np.zeros(len(seen), np.int32)
        code_of[known] = np.arange(1, known.size + 1)
        codes = np.append(code_of[points], np.int32(0))
        first = np.cumsum(lengths) - lengths + 1
        codes[first] += np.where(codes[first] > 0, np.int32(known.size), np.int32(0))
        return cls("".join(map(chr, known)), codes, weights)

    def text(self, code: int) -> str:
        """The string that a code stands for."""
        size = len(self.alphabet)
        return (
            self.alphabet[code - 1] if code <= size else WORD_START + self.alphabet[code - 1 - size]
        )


@dataclasses.dataclass
class _Level:
    """The candidates of one length, in codes."""

    keys: np.ndarray  # int64 [nodes], ascending: parent node * num_codes + last code
    counts: np.ndarray  # int64 [nodes], as counted, then less what accepted extensions took
    digits: np.ndarray  # int64 [nodes], digits in a row at the end
    accepted: np.ndarray  # bool [nodes]
    useful: np.ndarray  # bool [nodes], itself or an extension is accepted


class _Trie:
    """The candidates of one iteration and which of them were accepted."""

    def __init__(self, levels: list[_Level], num_codes: int):
        self.levels = levels
        self.num_codes = num_codes

    @classmethod
    def count(cls, corpus: _Corpus, starts: np.ndarray, config: SubwordConfig) -> "_Trie":
        """Counts the substrings that begin at `starts` and accepts from long to short."""
        num_codes = corpus.num_codes
        size = len(corpus.alphabet)
        is_digit = np.zeros(num_codes, np.int64)
        is_digit[1:] = 2 * [character.isdecimal() for character in corpus.alphabet]

        node = corpus.codes[starts].astype(np.int64)
        weights = corpus.weights[starts]
        counts = _sums(node, weights, num_codes)
        levels = [_new_level(np.arange(num_codes), counts, is_digit)]
        alive = counts[node] >= config.min_count
        starts, node, weights = starts[alive], node[alive], weights[alive]
        # A start of a word stands for two characters: the marker and itself.
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
            kept = (counts >= config.min_count) & (digits <= config.max_consecutive_digits)
            if not kept.any():
                break
            levels.append(_new_level(keys[kept], counts[kept], digits[kept]))
            alive = kept[node]
            node = (np.cumsum(kept) - 1)[node[alive]]
            starts, weights, length = starts[alive], weights[alive], length[alive]
        trie = cls(levels, num_codes)
        trie._accept(config.min_count)
        return trie

    def _accept(self, min_count: int) -> None:
        """Decides from the longest candidates to the shortest, which lose what was accepted."""
        taken = np.zeros(self.levels[-1].keys.size, np.int64)
        for index in range(len(self.levels) - 1, -1, -1):
            level = self.levels[index]
            level.counts -= taken
            # The first level is the alphabet, which stays.
            level.accepted = (level.counts >= min_count) | (index == 0)
            level.useful |= level.accepted
            taken += np.where(level.accepted, level.counts, 0)
            if index:
                parents = level.keys // self.num_codes
                above = self.levels[index - 1]
                taken = _sums(parents, taken, above.keys.size)
                above.useful |= np.bincount(parents, level.useful, above.keys.size) > 0

    def segment(self, corpus: _Corpus) -> np.ndarray:
        """Returns where the greedy cut of every word by the accepted subwords begins a piece."""
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
        """Returns how many codes the longest accepted subword at each cursor covers."""
        best = np.ones(cursor.size, np.int64)
        active = np.arange(cursor.size)
        node = codes[cursor].astype(np.int64)
        for depth, level in enumerate(self.levels[1:], start=1):
            code = codes[cursor[active] + depth]
            active, node, code = active[code > 0], node[code > 0], code[code > 0]
            key = node * self.num_codes + code
            node = np.minimum(np.searchsorted(level.keys, key), level.keys.size - 1)
            found = (level.keys[node] == key) & level.useful[node]
            active, node = active[found], node[found]
            best[active[level.accepted[node]]] = depth + 1
        return best

    def subwords(self, corpus: _Corpus) -> list[str]:
        """Returns the accepted strings, by count and then by code points, both descending."""
        found: list[tuple[int, str]] = []
        texts: list[str] = [""] + [corpus.text(code) for code in range(1, self.num_codes)]
        for index, level in enumerate(self.levels):
            if index:
                parent, last = np.divmod(level.keys, self.num_codes)
                texts = [texts[p] + corpus.text(c) for p, c in zip(parent, last, strict=True)]
            rows = zip(level.counts.tolist(), texts, level.accepted, strict=True)
            found += [(count, text) for count, text, accepted in rows if accepted and text]
        return [text for _, text in sorted(found, reverse=True)]


def _new_level(keys: np.ndarray, counts: np.ndarray, digits: np.ndarray) -> _Level:
    nothing = np.zeros(keys.size, bool)
    return _Level(keys, counts, digits, accepted=nothing, useful=nothing.copy())


def _sums(groups: np.ndarray, weights: np.ndarray, size: int) -> np.ndarray:
    """Sums of `weights` per group; exact up to 2**53."""
    return np.bincount(groups, weights, size).astype(np.int64)
