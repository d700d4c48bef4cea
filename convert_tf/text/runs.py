r"""Cuts text into runs inside the graph; `plain_text.restored_texts` puts them together again.

Text is lower-cased. Runs of characters that are neither punctuation nor separators (Unicode `P`
and `Z`) alternate with runs of those that are. A single space between two runs of the first kind is
dropped. Every run that is left begins with the word-start marker, so that where the marker stands
between two characters of the first kind a space was dropped.

The marker may stand in the text itself. It is escaped there, so that a marker in a run always opens
it and the text can be had back: U+FE4E is written twice, the marker U+FE4F becomes U+FE4E U+FE4D,
and NUL, at which TensorFlow's lower-casing stops, becomes U+FE4E U+FE4C. All are punctuation that
hardly ever occurs. Escaped, they also survive clients that strip the marker from tokens.
"""

import re

import tensorflow as tf

from convert_tf.text.plain_text import ESCAPES
from convert_tf.text.subwords import WORD_START

_WORD = r"[^\p{P}\p{Z}]"
_MARK = r"[\p{P}\p{Z}]"
# A byte that no UTF-8 text holds and that no class of characters matches.
_CUT = b"\xff"


def lower(strings: tf.Tensor) -> tf.Tensor:
    """Lower-cases UTF-8 text as the tokenizers see it.

    `tf.strings.lower(encoding="utf-8")`, that is Unicode's full mapping in no particular language.
    Invalid bytes become U+FFFD, and so does NUL, at which that op would stop.

    Args:
        strings: string tensor of any shape, any bytes.

    Returns:
        string tensor of that shape, valid UTF-8.
    """
    # The op follows the locale of the process, where a Turkish one has other rules for the letter
    # I; so that letter is gone before.
    strings = tf.strings.lower(strings)
    strings = tf.strings.regex_replace(strings, "\u0130", "i\u0307")
    strings = tf.strings.regex_replace(strings, "\0", "\ufffd")
    return tf.strings.lower(strings, encoding="utf-8")


def normalize(strings: tf.Tensor) -> tf.Tensor:
    """Escapes and lower-cases text: what `split_runs` cuts.

    Args:
        strings: string tensor of any shape, any bytes.

    Returns:
        string tensor of that shape, valid UTF-8 without NUL and without the word-start marker.
    """
    for character, escaped in ESCAPES.items():
        strings = tf.strings.regex_replace(strings, re.escape(character), escaped)
    return lower(strings)


def split_runs(strings: tf.Tensor) -> tf.RaggedTensor:
    """Cuts texts into runs.

    Args:
        strings: string [B], any bytes.

    Returns:
        string [B, (runs)], each the word-start marker and at least one character.
    """
    text = normalize(strings)
    # Twice, because a word of one character takes part in two matches.
    for _ in range(2):
        text = tf.strings.regex_replace(text, f"({_WORD}) ({_WORD})", b"\\1" + _CUT + b"\\2")
    text = tf.strings.regex_replace(text, f"{_MARK}+", _CUT + b"\\0" + _CUT)
    pieces = tf.strings.split(text, sep=_CUT)
    filled = tf.not_equal(pieces.values, "")
    before = tf.concat([[0], tf.cumsum(tf.cast(filled, tf.int64))], axis=0)
    runs = tf.strings.join([WORD_START, tf.boolean_mask(pieces.values, filled)])
    return tf.RaggedTensor.from_row_splits(
        runs, tf.gather(before, pieces.row_splits), validate=False
    )
