"""Word counts in bounded memory equal word counts."""

import collections
import random

from convert_tf.text.counting import WordCounter


def zipf_words(size=5000):
    generator = random.Random(0)
    return [f"w{int(generator.paretovariate(0.7)) % 3000}" for _ in range(size)]


def counted(words, size, **limits):
    counter = WordCounter()
    for name, limit in limits.items():
        setattr(counter, name, limit)
    for start in range(0, len(words), size):
        counter.add(words[start : start + size])
    return counter


def test_spilled_counts_are_exact():
    words = zipf_words()
    counter = counted(words, 50, max_table=100)
    assert len(counter._parts) > 3
    assert counter.counts() == collections.Counter(words)


def test_rarest_words_are_dropped_whatever_the_order():
    words = zipf_words()
    exact = collections.Counter(words)
    results = []
    for seed in range(3):
        random.Random(seed).shuffle(words)
        counter = counted(words, 25, max_words=40, max_table=60)
        results.append(counter.counts())
    assert results[0] == results[1] == results[2]
    lowest = min(results[0].values())
    assert results[0] == {word: count for word, count in exact.items() if count >= lowest}
    assert 0 < len(results[0]) <= 40
    assert sum(count >= lowest - 1 for count in exact.values()) > 40


def test_bytes_are_decoded_and_long_words_cut():
    counter = counted(["éabc".encode(), "éabd".encode(), b"xy"], 3, max_word_length=3)
    assert counter.counts() == {"éab": 2, "xy": 1}
