"""Learn a vocabulary from training data or text.

```
convert-tf vocabulary --input data/ --output vocab.txt
convert-tf vocabulary --input data/ --output vocab.model --tokenizer=sentencepiece
convert-tf vocabulary --input 'corpus/*.txt.gz' --output vocab.txt --min_count 50
```

From a folder of records, the command reads the contexts and responses of the train split. A text
that occurs in several examples of a thread is counted once. A text file must have one sentence per
line, and a table must have a column of texts. Files may be compressed (.gz, .bz2, .xz, .zst).

Flags:
  input: Folder of records, text file, table, or quoted pattern.
  output: Vocabulary file to write.
  tokenizer: Kind of vocabulary.
  max_sentences: Maximum number of texts to learn from. If there are more, a random sample is drawn.
  vocab_size: Number of pieces, with --tokenizer=sentencepiece.
  overwrite: Replace an existing file.
"""

import os
import time
from typing import Any

from convert_tf.cli.flags import NEEDED, Define, check_read, define_fields, given_fields, same
from convert_tf.storage.files import check_replaceable
from convert_tf.text.subwords import SubwordConfig

_TOKENIZERS = ("subword", "sentencepiece")
_LARGEST = 2**26  # in bytes; no vocabulary is larger, and it would be read into memory


def define_flags(define: Define) -> None:
    define("input", NEEDED, repeats=True)
    define("output", NEEDED)
    define("tokenizer", "subword", choices=_TOKENIZERS)
    define_fields(define, SubwordConfig)
    define("max_sentences", 10_000_000, lower_bound=1)
    define("vocab_size", 31_476)
    define("overwrite", False)


def run(values: Any) -> None:
    unread = ["vocab_size"] if values.tokenizer == "subword" else [*SubwordConfig.defaults()]
    check_read(values, {f"with --tokenizer={values.tokenizer}": unread})
    check_replaceable(values.output, _is_vocabulary, overwrite=values.overwrite)
    from convert_tf.corpora.vocabulary import learn

    started = time.monotonic()
    line = learn(
        values.input,
        values.output,
        tokenizer=values.tokenizer,
        config=SubwordConfig(**given_fields(values, SubwordConfig)),
        **same(values, "vocab_size max_sentences"),
    )
    print(f"{line}, {time.monotonic() - started:.0f} s")


def _is_vocabulary(path: str) -> bool:
    from convert_tf.text.tokenizer import load_tokenizer

    size = os.path.getsize(path)
    if not 0 < size < _LARGEST:  # an empty file has nothing to lose
        return size == 0
    try:
        return load_tokenizer(path).name in _TOKENIZERS
    except ValueError:
        return False
