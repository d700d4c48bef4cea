"""Learn a vocabulary from training data or text.

```
convert-tf vocabulary --input data/ --output vocab.txt
convert-tf vocabulary --input data/ --output vocab.model --tokenizer=sentencepiece
convert-tf vocabulary --input 'corpus/*.txt.gz' --output vocab.txt --min_count 50
```

From a folder of records, the contexts and responses of the train split are read. A text that is in
several examples of a thread counts once. A file is text with one sentence per line, plain or
compressed (.gz, .bz2, .xz, .zst).
"""

import time
from typing import Any

from convert_tf.cli.flags import NEEDED, Define, same
from convert_tf.text.subwords import SubwordConfig

# Flags that are fields of `SubwordConfig`.
_SUBWORD_FLAGS = "min_count iterations max_subword_length max_consecutive_digits alphabet_min_count"


def define_flags(define: Define) -> None:
    config = SubwordConfig()
    define("input", NEEDED, "Folder of records, text file, or quoted pattern.", repeats=True)
    define("output", NEEDED, "Vocabulary file to write.")
    define("tokenizer", "subword", "Kind of vocabulary.", choices=["subword", "sentencepiece"])
    for name, default, text in (
        ("min_count", config.min_count, "Smallest number of occurrences of a subword."),
        ("iterations", config.iterations, "Number of learning iterations."),
        ("max_subword_length", config.max_subword_length, "Largest length of a subword."),
        (
            "max_consecutive_digits",
            config.max_consecutive_digits,
            "Largest number of consecutive digits in a subword.",
        ),
        (
            "alphabet_min_count",
            config.alphabet_min_count,
            "Smallest number of occurrences of a character.",
        ),
        ("max_sentences", 10_000_000, "Number of texts to learn from; a random sample of more."),
        ("max_words", 2_000_000, "Number of distinct words to learn from; rare ones are dropped."),
        ("max_word_length", 64, "Words are cut to this many characters."),
        ("vocab_size", 31_476, "Number of pieces, with --tokenizer=sentencepiece."),
    ):
        define(name, default, text)


def run(values: Any) -> None:
    from convert_tf.corpora.vocabulary import learn

    started = time.monotonic()
    line = learn(
        values.input,
        values.output,
        tokenizer=values.tokenizer,
        config=SubwordConfig(**same(values, _SUBWORD_FLAGS)),
        **same(values, "vocab_size max_sentences max_words max_word_length"),
    )
    print(f"{line}, {time.monotonic() - started:.0f} s")
