"""Learns a vocabulary from prepared data or from text.

```
convert-tf vocabulary --input data/ --output vocab.txt
convert-tf vocabulary --input data/ --output vocab.model --tokenizer=sentencepiece
convert-tf vocabulary --input 'corpus/*.txt.gz' --output vocab.txt --min_count 50
```

A folder is read as records: contexts and responses of the train split, each text of a thread once,
in however many examples it stands. A file is text with one sentence a line, plain or compressed
(.gz, .bz2, .xz, .zst).
"""

import time
from typing import Any

from convert_tf.cli.flags import NEEDED, Define, same
from convert_tf.text.subwords import SubwordConfig

# Flags that are fields of `SubwordConfig`.
_LEARNED = "min_count iterations max_subword_length max_consecutive_digits alphabet_min_count"


def define_flags(define: Define) -> None:
    config = SubwordConfig()
    define("input", NEEDED, "Data folder, text file, quoted pattern.", repeats=True)
    define("output", NEEDED, "The vocabulary file to write.")
    define("tokenizer", "subword", "Kind of vocabulary.", choices=["subword", "sentencepiece"])
    for name, default, text in (
        ("min_count", config.min_count, "Occurrences that a subword needs."),
        ("iterations", config.iterations, "Times that words are cut and counted."),
        ("max_subword_length", config.max_subword_length, "Characters of a subword, at most."),
        ("max_consecutive_digits", config.max_consecutive_digits, "Digits in a row, at most."),
        ("alphabet_min_count", config.alphabet_min_count, "Occurrences that a character needs."),
        ("max_sentences", 10_000_000, "Texts to learn from: of more, a random draw."),
        ("max_words", 2_000_000, "Distinct words to learn from, at most."),
        ("max_word_length", 64, "Characters of a word to look at."),
        ("vocab_size", 31_476, "Pieces, with --tokenizer=sentencepiece."),
    ):
        define(name, default, text)


def run(values: Any) -> None:
    from convert_tf.corpora.vocabulary import learn

    started = time.monotonic()
    line = learn(
        values.input,
        values.output,
        tokenizer=values.tokenizer,
        config=SubwordConfig(**same(values, _LEARNED)),
        **same(values, "vocab_size max_sentences max_words max_word_length"),
    )
    print(f"{line}, {time.monotonic() - started:.0f} s")
