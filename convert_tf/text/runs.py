r"""Split texts into runs with TensorFlow ops. `plain_tokenizer.restored_texts` restores the texts.

Text is lower-cased. Word runs (characters that are neither punctuation nor separators, Unicode `P`
and `Z`) alternate with runs of punctuation and separators. A single space between two word runs is
dropped. Every remaining run starts with the word-start marker. A marker between two word characters
therefore means that there was a space.

The marker may also occur in a text. There it is escaped, so that a marker in a run is always at the
start of the run and the text can be restored. The escape character U+FE4E is doubled, the marker
U+FE4F becomes U+FE4E U+FE4D, and NUL becomes U+FE4E U+FE4C, because TensorFlow's lower-casing stops
at NUL. The escapes consist of rare punctuation marks. They survive clients that strip the marker
from tokens.
"""

import re
from collections.abc import Callable

import tensorflow as tf
import tensorflow_text as tf_text

from convert_tf.text.characters import MOST_MARKS, ranges_of
from convert_tf.text.plain_tokenizer import ESCAPES
from convert_tf.text.subwords import WORD_START

_WORD = r"[^\p{P}\p{Z}]"
_MARK = r"[\p{P}\p{Z}]"
# This byte never occurs in UTF-8 text, and no character class matches it.
_CUT = b"\xff"
# Letters that some locales lower-case differently.
_LOWER_FIRST = {"\u0130": "i\u0307", "Ì": "ì", "Í": "í", "Ĩ": "ĩ", "Į": "į"}


def _class(*tables: str) -> str:
    """Return the characters in some tables as a class for RE2, without brackets."""
    return "".join(
        rf"\x{{{points.start:x}}}-\x{{{points[-1]:x}}}"
        for table in tables
        for points in ranges_of(table)
    )


_JOINERS, _ALIKE, _COMBINING = (
    f"[{_class(table)}]+" for table in ("joiners", "alike", "combining")
)
_AS_IT_IS = "[^{}]".format(_class("unseen", "joiners", "hyphens", "alike", "composing", "spaces"))
_FOLDED = f"(?:{_AS_IT_IS}+(?: {_AS_IT_IS}+)*)?"


def fold_strings(strings: tf.Tensor) -> tf.Tensor:
    """Fold texts as `convert_tf.text.characters.fold` does.

    If no text has a character that folding might change, all texts are returned unchanged.

    Args:
      strings: string `[B]`, any bytes. Invalid bytes become U+FFFD.

    Returns:
      string `[B]`.
    """

    def folded() -> tf.Tensor:
        text = tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8")
        text = tf.strings.regex_replace(text, f"[{_class('spaces')}]", " ")
        text = tf.strings.regex_replace(text, f"[{_class('unseen')}]", "")
        before = f"(^|[^{_class('pictures', 'joiners')}])"
        text = tf.strings.regex_replace(text, before + _JOINERS, r"\1")
        text = tf.strings.regex_replace(text, f"[{_class('hyphens')}]", "-")
        text = tf_text.normalize_utf8(_without_long_runs(text), "NFC")
        text = _replace_runs(text, _ALIKE, lambda run: tf_text.normalize_utf8(run, "NFKC"))
        text = _without_long_runs(tf_text.normalize_utf8(text, "NFC"))
        text = tf.strings.regex_replace(text, " +", " ")
        return tf.strings.regex_replace(text, "^ | $", "")

    strings = tf.convert_to_tensor(strings, tf.string)
    are_folded = tf.reduce_all(tf.strings.regex_full_match(strings, _FOLDED))
    return tf.cond(are_folded, lambda: strings, folded)


def _without_long_runs(strings: tf.Tensor) -> tf.Tensor:
    return _replace_runs(
        strings, _COMBINING, lambda run: tf.strings.substr(run, 0, MOST_MARKS, unit="UTF8_CHAR")
    )


def _replace_runs(
    strings: tf.Tensor, pattern: str, function: Callable[[tf.Tensor], tf.Tensor]
) -> tf.Tensor:
    """Apply a function to all parts of the texts, string `[B]`, that match a pattern."""
    pieces = tf.strings.split(
        tf.strings.regex_replace(strings, pattern, _CUT + b"\\0" + _CUT), sep=_CUT
    )
    is_run = tf.strings.regex_full_match(pieces.values, pattern)
    replaced = tf.where(is_run, function(pieces.values), pieces.values)
    return tf.strings.reduce_join(pieces.with_values(replaced), axis=1)


def lower(strings: tf.Tensor) -> tf.Tensor:
    """Lower-case UTF-8 text by Unicode's full mapping, without language-specific rules.

    Invalid bytes become U+FFFD, and so does NUL, at which `tf.strings.lower` would stop.

    Args:
      strings: string tensor of any shape, any bytes.

    Returns:
      String tensor of the same shape, valid UTF-8.
    """
    # `tf.strings.lower` depends on the locale: Turkish and Lithuanian have different rules for the
    # letters I and J, with and without accents. Plain I and J are therefore lower-cased as ASCII,
    # and the letters with an accent are replaced.
    strings = tf.strings.lower(strings)
    for capital, small in _LOWER_FIRST.items():
        strings = tf.strings.regex_replace(strings, capital, small)
    strings = tf.strings.regex_replace(strings, "\0", "\ufffd")
    return tf.strings.lower(strings, encoding="utf-8")


def normalize(strings: tf.Tensor) -> tf.Tensor:
    """Escape and lower-case text.

    Args:
      strings: string tensor of any shape, any bytes.

    Returns:
      String tensor of the same shape, valid UTF-8 without NUL and without the word-start marker.
    """
    for character, escaped in ESCAPES.items():
        strings = tf.strings.regex_replace(strings, re.escape(character), escaped)
    return lower(strings)


def split_runs(strings: tf.Tensor) -> tf.RaggedTensor:
    """Split texts into runs.

    Args:
      strings: string `[B]`, any bytes.

    Returns:
      The runs of each text, string `[B, (runs)]`. A run consists of the word-start marker and at
      least one character.
    """
    text = normalize(strings)
    # The replacement runs twice, because matches cannot overlap but a one-letter word belongs to
    # two matches.
    for _ in range(2):
        text = tf.strings.regex_replace(text, f"({_WORD}) ({_WORD})", b"\\1" + _CUT + b"\\2")
    text = tf.strings.regex_replace(text, f"{_MARK}+", _CUT + b"\\0" + _CUT)
    pieces = tf.strings.split(text, sep=_CUT)
    is_run = tf.not_equal(pieces.values, "")
    runs_before = tf.concat([[0], tf.cumsum(tf.cast(is_run, tf.int64))], axis=0)
    runs = tf.strings.join([WORD_START, tf.boolean_mask(pieces.values, is_run)])
    return tf.RaggedTensor.from_row_splits(
        runs, tf.gather(runs_before, pieces.row_splits), validate=False
    )
