"""Subword tokenizer without TensorFlow, with the same ids as `SubwordTokenizer`."""

import itertools
from array import array
from collections.abc import Iterable, Sequence

import numpy as np

from convert_tf.text import plain_text
from convert_tf.text.subwords import WORD_START

CACHED_RUNS = 100_000
LONGEST_CACHED_RUN = 32  # characters

_MASK = 2**64 - 1
_K0, _K2 = 0xC3A5C85C97CB3127, 0x9AE16A3B2F90404F


def fingerprint_of_character(text: bytes) -> int:
    """Return FarmHash's Fingerprint64 of 1 to 4 bytes.

    `tf.strings.to_hash_bucket_fast` is this number modulo the number of buckets.
    """
    length = len(text)
    if length == 4:
        word = int.from_bytes(text, "little")
        mul = (_K2 + 8) & _MASK
        a = (((4 + (word << 3)) ^ word) * mul) & _MASK
        a ^= a >> 47
        b = ((word ^ a) * mul) & _MASK
        b ^= b >> 47
        return (b * mul) & _MASK
    y = text[0] + (text[length >> 1] << 8)
    z = length + (text[-1] << 2)
    mixed = ((y * _K2) & _MASK) ^ ((z * _K0) & _MASK)
    return ((mixed ^ (mixed >> 47)) * _K2) & _MASK


class _Runs(dict[str, tuple[int, ...]]):
    """Cache of the ids of runs. It is emptied when it is full."""

    def __init__(self, tokenizer: "PlainTokenizer"):
        super().__init__()
        self._tokenizer = tokenizer
        # The marker of the second word stands for a space between two words.
        self[" "] = ()

    def __missing__(self, run: str) -> tuple[int, ...]:
        ids = tuple(self._tokenizer.run_ids(run))
        if len(run) <= LONGEST_CACHED_RUN:
            if len(self) >= CACHED_RUNS:
                self.clear()
                self[" "] = ()
            self[run] = ids
        return ids


class PlainTokenizer:
    """Subword tokenizer in plain Python; see `convert_tf.text.tokenizer.SubwordTokenizer`.

    It caches the ids of up to `CACHED_RUNS` short runs. It is thread-safe.

    Args:
      subwords: the vocabulary in the order of ids (`convert_tf.text.vocabulary`).
      num_oov_buckets: number of ids for unknown characters.

    Attributes:
      name: "subword".
      vocab_size: number of entries of the vocabulary.
      num_oov_buckets: number of ids for unknown characters.
      num_ids: rows of the embedding table.
      padding_id: id of padding; equal to `num_ids`.

    Example:
      ids, row_splits = PlainTokenizer(subwords).token_ids(["Hello there!"])

    Reference: arXiv 1911.03688 §3.1.
    """

    def __init__(self, subwords: Sequence[str], *, num_oov_buckets: int = 1000):
        self._id_of = {subword: i for i, subword in enumerate(subwords)}
        self._longest = max(map(len, subwords))
        self.name = "subword"
        self.vocab_size = len(subwords)
        self.num_oov_buckets = num_oov_buckets
        self.num_ids = self.padding_id = len(subwords) + num_oov_buckets
        self._runs = _Runs(self)
        self._outer_space = tuple(self.run_ids(" "))

    def token_ids(
        self, texts: Iterable[str | bytes], *, max_tokens: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Split texts into tokens and return their ids.

        Args:
          texts: strings or bytes.
          max_tokens: longer texts are cut.

        Returns:
          `(ids, row_splits)`: int32 `[all tokens]`, the texts one after another, and int64
          `[texts + 1]`, their boundaries.
        """
        ids = array("i")
        row_splits = array("q", [0])
        for text in texts:
            start = len(ids)
            ids.extend(self._text_ids(text, max_tokens))
            if max_tokens is not None:
                del ids[start + max_tokens :]
            row_splits.append(len(ids))
        return np.array(ids, np.int32), np.array(row_splits, np.int64)

    def flat_ids(
        self, texts: Iterable[str | bytes], max_tokens: int, *, keeps_last: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the same as `token_ids`. With `keeps_last`, long texts lose their first tokens."""
        if not keeps_last:
            return self.token_ids(texts, max_tokens=max_tokens)
        rows = [array("i", self._text_ids(text, None))[-max_tokens:] for text in texts]
        ids = np.concatenate([np.zeros(0, np.int32), *(np.array(row, np.int32) for row in rows)])
        return ids, np.cumsum([0, *map(len, rows)], dtype=np.int64)

    def run_ids(self, run: str) -> list[int]:
        """Return the ids of a run without marker."""
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
        text = plain_text.as_text(text)
        if max_tokens is not None:
            # A token covers at most the longest subword and a space. Cutting the text may change
            # its last two tokens, so enough characters for two more tokens are read.
            text = text[: (self._longest + 1) * (max_tokens + 2)]
        runs = plain_text.cut_into_runs(text)
        if not runs:
            return ()
        ids: Iterable[tuple[int, ...]] = map(self._runs.__getitem__, runs)
        if runs[0] == " ":
            ids = itertools.chain([self._outer_space], ids)
        if runs[-1] == " " and len(runs) > 1:
            ids = itertools.chain(ids, [self._outer_space])
        return itertools.chain.from_iterable(ids)

    def _unknown_id(self, character: str) -> int:
        bucket = fingerprint_of_character(character.encode("utf-8")) % self.num_oov_buckets
        return len(self._id_of) + bucket
