"""Subword tokenizer without TensorFlow.

It gives the same ids as `SubwordTokenizer`, except for texts with combining marks that are newer
than the Unicode version of Python or of TensorFlow: each of them has its own tables for NFC.

`convert_tf.text.runs` describes the runs into which texts are split, and splits texts with
TensorFlow ops. The classes of characters come from TensorFlow (`unicode_tables.json`, made by
`scripts.derive_unicode_tables`), not from Python's version of Unicode.
"""

import itertools
import re
from array import array
from collections.abc import Iterable, Sequence

import numpy as np

from convert_tf.storage.json_text import whole_characters
from convert_tf.text.characters import character_class, fold, numbers_of
from convert_tf.text.subwords import WORD_START

_SIGMA = "Σ"
_ESCAPE = "\ufe4e"
ESCAPES = {_ESCAPE: _ESCAPE * 2, WORD_START: _ESCAPE + "\ufe4d", "\0": _ESCAPE + "\ufe4c"}
_UNESCAPES = {escaped: character for character, escaped in ESCAPES.items()}
# NUL is escaped in runs, so NUL can separate texts.
BETWEEN_TEXTS = "\0"


def _lower_casings() -> dict[int, str]:
    mapped: dict[int, str] = {}
    numbers = numbers_of("lower")
    end = 0
    for gap, number, step, difference in zip(numbers, numbers, numbers, numbers, strict=True):
        start = end + gap
        mapped |= {c: chr(c + difference) for c in range(start, start + number * step, step)}
        end = start + (number - 1) * step + 1
    return mapped


_NORMAL = {
    **_lower_casings(),
    0x130: "i\u0307",
    **{ord(character): escaped for character, escaped in ESCAPES.items()},
}
_MARKS = character_class("marks")
_LETTER = re.compile(f"[{character_class('ignorable')}]*[{character_class('cased')}{_SIGMA}\u0130]")
_RUN = re.compile(f"[{_MARKS}]+|[^{_MARKS}]+")
_SPACE = re.compile(f"(?<=[^{_MARKS}{BETWEEN_TEXTS}]){WORD_START}(?=[^{_MARKS}])")
_ESCAPED = re.compile(f"{_ESCAPE}[{''.join(key[1] for key in _UNESCAPES)}]")


def restored_texts(tokens: str) -> list[str]:
    """Restore lower-cased texts from their tokens.

    Args:
      tokens: the tokens of a text, joined into one string. Several texts are separated by
        `BETWEEN_TEXTS`.

    Returns:
      The texts.
    """
    texts = _SPACE.sub(" ", tokens).replace(WORD_START, "").split(BETWEEN_TEXTS)
    return [
        _ESCAPED.sub(lambda match: _UNESCAPES[match[0]], text) if _ESCAPE in text else text
        for text in texts
    ]


def _normal(text: str) -> str:
    """Escape and lower-case a folded text, which contains no NUL."""
    if text.isascii():
        return text.lower()
    if _SIGMA in text:
        text = _with_lower_sigmas(text)
    return text.translate(_NORMAL)


def _with_lower_sigmas(text: str) -> str:
    """Replace capital sigmas with ς at the end of words and with σ elsewhere, by Unicode's rule."""
    backwards = text[::-1]

    def lower(match: re.Match[str]) -> str:
        start, end = match.span()
        follows_letter = _LETTER.match(backwards, len(text) - start)
        return "ς" if follows_letter and not _LETTER.match(text, end) else "σ"

    return re.sub(_SIGMA, lower, text)


CACHED_RUNS = 100_000
LONGEST_CACHED_RUN = 32  # characters


def _fingerprint(text: bytes) -> int:
    """Return FarmHash's Fingerprint64 of 1 to 4 bytes.

    `tf.strings.to_hash_bucket_fast` returns this number modulo the number of buckets.
    """
    k0, k2, mask = 0xC3A5C85C97CB3127, 0x9AE16A3B2F90404F, 2**64 - 1
    length = len(text)
    if length == 4:
        word = int.from_bytes(text, "little")
        mul = (k2 + 8) & mask
        a = (((4 + (word << 3)) ^ word) * mul) & mask
        a ^= a >> 47
        b = ((word ^ a) * mul) & mask
        b ^= b >> 47
        return (b * mul) & mask
    y = text[0] + (text[length >> 1] << 8)
    z = length + (text[-1] << 2)
    mixed = ((y * k2) & mask) ^ ((z * k0) & mask)
    return ((mixed ^ (mixed >> 47)) * k2) & mask


class _Runs(dict[str, tuple[int, ...]]):
    """Cache of token ids by run. When the cache is full, it is emptied."""

    def __init__(self, tokenizer: "PlainTokenizer") -> None:
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, run: str) -> tuple[int, ...]:
        # The second word's marker stands for the space between two words.
        ids = () if run == " " else tuple(self._tokenizer.run_ids(run))
        if len(run) <= LONGEST_CACHED_RUN:
            if len(self) >= CACHED_RUNS:
                self.clear()
            self[run] = ids
        return ids


class PlainTokenizer:
    """Subword tokenizer in plain Python; see `convert_tf.text.tokenizer.SubwordTokenizer`.

    The tokenizer is thread-safe. It caches the ids for up to `CACHED_RUNS` short runs.

    Args:
      subwords: the vocabulary in the order of ids (`convert_tf.text.vocabulary`).
      num_oov_buckets: number of ids for unknown characters.

    Attributes:
      name: "subword".
      vocab_size: number of entries in the vocabulary.
      num_oov_buckets: number of ids for unknown characters.
      num_ids: number of ids, which is the number of rows in the embedding table.
      padding_id: id of padding; equal to `num_ids`.

    Example:
      ids, row_splits = PlainTokenizer(subwords).flat_ids(["Hello there!"])

    Reference: arXiv 1911.03688 §3.1.
    """

    def __init__(self, subwords: Sequence[str], *, num_oov_buckets: int = 1000) -> None:
        self._id_of = {subword: i for i, subword in enumerate(subwords)}
        self._longest = max(map(len, subwords))
        self.name = "subword"
        self.vocab_size = len(subwords)
        self.num_oov_buckets = num_oov_buckets
        self.num_ids = self.padding_id = len(subwords) + num_oov_buckets
        self._runs = _Runs(self)
        self._outer_space = tuple(self.run_ids(" "))

    def flat_ids(
        self,
        texts: Iterable[str | bytes],
        max_tokens: int | None = None,
        *,
        keeps_last: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Fold texts, split them into tokens and return their ids.

        Args:
          texts: strings or UTF-8 bytes.
          max_tokens: maximum number of tokens per text; longer texts are cut. None for no limit.
          keeps_last: whether long texts keep their last tokens instead of their first ones.

        Returns:
          `(ids, row_splits)`: the ids of all texts, one text after another, int32 `[all tokens]`;
          and the boundaries of the texts, int64 `[texts + 1]`.
        """
        ids = array("i")
        row_splits = array("q", [0])
        for text in texts:
            start = len(ids)
            ids.extend(self._text_ids(text, None if keeps_last else max_tokens))
            if max_tokens is not None and len(ids) > start + max_tokens:
                if keeps_last:
                    del ids[start:-max_tokens]
                else:
                    del ids[start + max_tokens :]
            row_splits.append(len(ids))
        return np.array(ids, np.int32), np.array(row_splits, np.int64)

    def run_ids(self, run: str) -> list[int]:
        """Return the ids of a run's tokens. The run is given without its word-start marker."""
        id_of, longest = self._id_of, self._longest
        text = WORD_START + run
        ids = []
        start, end_of_text = 0, len(text)
        while start < end_of_text:
            for end in range(min(end_of_text, start + longest), start, -1):
                token_id = id_of.get(text[start:end])
                if token_id is not None:
                    ids.append(token_id)
                    start = end
                    break
            else:
                if start:  # the marker alone is not a token
                    ids.append(self._unknown_id(text[start]))
                start += 1
        return ids

    def _text_ids(self, text: str | bytes, max_tokens: int | None) -> Iterable[int]:
        # Everything that is invalid in UTF-8 becomes U+FFFD.
        text = (
            text.decode("utf-8", "replace") if isinstance(text, bytes) else whole_characters(text)
        )
        text = fold(text)
        if max_tokens is not None:
            # A token covers at most as many characters as the longest subword, plus a space.
            # Cutting the text may change its last two tokens, so enough characters for two more
            # tokens are kept.
            text = text[: (self._longest + 1) * (max_tokens + 2)]
        # Unlike the runs from `convert_tf.text.runs.split_runs`, these runs have no marker, and
        # single spaces between words are runs too.
        runs = _RUN.findall(_normal(text))
        if not runs:
            return ()
        ids: Iterable[tuple[int, ...]] = map(self._runs.__getitem__, runs)
        if runs[0] == " ":
            ids = itertools.chain([self._outer_space], ids)
        if runs[-1] == " " and len(runs) > 1:
            ids = itertools.chain(ids, [self._outer_space])
        return itertools.chain.from_iterable(ids)

    def _unknown_id(self, character: str) -> int:
        bucket = _fingerprint(character.encode("utf-8")) % self.num_oov_buckets
        return len(self._id_of) + bucket
