"""The subword learner compared with a plain version of the published algorithm."""

import collections
import random

import pytest

from convert_tf.text.subwords import WORD_START, SubwordConfig, learn_subwords

WORDS = ["low", "lower", "lowest", "new", "newer", "newest", "wide", "widest", "2015", "123456789"]


def naive_learn(word_counts, config):
    """Learn subwords by Tensor2Tensor's algorithm, one word and substring at a time."""
    characters = collections.Counter()
    for word, count in word_counts.items():
        for character in word[1:]:
            characters[character] += count
    known = {c for c, count in characters.items() if count >= config.alphabet_min_count}
    alphabet = known | {WORD_START + c for c in known}
    subwords = set(alphabet)
    ranked = []
    for _ in range(config.iterations):
        counts = collections.Counter()
        for word, count in word_counts.items():
            start = 0
            while start < len(word):
                longest = 0
                for end in range(start + 1, len(word) + 1):
                    if word[start:end] in subwords:
                        longest = end - start
                for end in range(start + 1, min(len(word), start + config.max_subword_length) + 1):
                    piece = word[start:end]
                    if longest and set(piece) <= known | {WORD_START}:
                        counts[piece] += count
                start += longest or 1
        ranked = []
        for length in range(config.max_subword_length, 0, -1):
            for piece in [p for p in counts if len(p) == length and p != WORD_START]:
                digits = longest_digits(piece)
                if counts[piece] < config.min_count or digits > config.max_consecutive_digits:
                    continue
                if piece not in alphabet:
                    ranked.append((counts[piece], piece))
                for end in range(1, length):
                    counts[piece[:end]] -= counts[piece]
        ranked += [(counts[piece], piece) for piece in alphabet]
        subwords = {piece for _, piece in ranked}
    return [piece for _, piece in sorted(ranked, reverse=True)]


def longest_digits(text):
    runs = "".join(c if c.isdecimal() else " " for c in text).split(" ")
    return max(map(len, runs))


def random_corpus(seed, characters="aabbbc1234é ", size=300):
    generator = random.Random(seed)
    counts = collections.Counter()
    for _ in range(size):
        length = min(30, 1 + int(generator.expovariate(0.3)))
        word = "".join(generator.choice(characters) for _ in range(length))
        counts[WORD_START + word] += 1 + int(generator.paretovariate(0.8))
    return dict(counts)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    "config",
    [
        SubwordConfig(min_count=5, alphabet_min_count=1),
        SubwordConfig(min_count=12, alphabet_min_count=60, iterations=3),
        SubwordConfig(min_count=2, iterations=2, max_subword_length=5, max_consecutive_digits=2),
        SubwordConfig(min_count=1, iterations=5, max_subword_length=2, max_consecutive_digits=1),
    ],
)
def test_equals_the_published_algorithm(seed, config):
    words = random_corpus(seed)
    assert learn_subwords(words, config) == naive_learn(words, config)


def test_alphabet_min_count_is_kept():
    words = {WORD_START + "aab": 300, WORD_START + "z": 9}
    for minimum, expected in ((10, {"a", "b"}), (9, {"a", "b", "z"})):
        learned = learn_subwords(words, SubwordConfig(alphabet_min_count=minimum))
        assert {subword for subword in learned if len(subword) == 1} == expected


def test_words_that_begin_with_unknown_characters_equal_the_published_algorithm():
    words = random_corpus(1) | {WORD_START + "\U00012000ab": 7, WORD_START + "a\U00012001b": 6}
    words[WORD_START + "\U00012002"] = 3
    config = SubwordConfig(min_count=4, alphabet_min_count=20)
    learned = learn_subwords(words, config)
    assert learned == naive_learn(words, config)
    assert not any(character >= "\U00012000" for character in "".join(learned))


def test_golden():
    words = {f"{WORD_START}{word}": 10 * (index + 1) for index, word in enumerate(WORDS)}
    learned = learn_subwords(words, SubwordConfig(min_count=50, alphabet_min_count=1))
    assert learned[:12] == [
        "﹏1234", "9", "5678", "﹏2015", "﹏widest", "﹏wide",
        "﹏newest", "﹏newer", "﹏lowe", "w", "﹏n", "e",
    ]  # fmt: skip
    assert len(learned) == 8 + 2 * 20


def test_does_not_depend_on_order():
    words = random_corpus(3)
    config = SubwordConfig(min_count=5)
    items = list(words.items())
    expected = learn_subwords(words, config)
    for seed in range(3):
        random.Random(seed).shuffle(items)
        assert learn_subwords(dict(items), config) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({}, "no words to learn"),
        ({"word": 300}, "Received: 'word'"),
        ({WORD_START: 300}, "must start with the marker"),
        ({WORD_START + "a" + WORD_START: 300}, "not contain it again"),
        ({WORD_START + "rare": 1}, "lower alphabet_min_count"),
    ],
)
def test_refuses_what_is_not_words(words, message):
    with pytest.raises(ValueError, match=message):
        learn_subwords(words)
