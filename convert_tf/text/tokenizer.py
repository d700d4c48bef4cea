"""Tokenizers that run inside a TensorFlow graph and are saved with an exported module.

`SubwordTokenizer` (the paper's subwords) and `SentencePieceTokenizer` share the interface
`Tokenizer`. Both lower-case text in the same way. Tokens that are not in the vocabulary are hashed
to one of the ids after it.
"""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from convert_tf.storage.json_text import whole_characters
from convert_tf.text import runs
from convert_tf.text.subwords import WORD_START
from convert_tf.text.vocabulary import VocabularyError, read_vocabulary

# The op gives up on longer words. This is its largest possible limit.
_ANY_LENGTH = 2**31 - 1


class _Numbered(tf.lookup.KeyValueTensorInitializer):
    """Maps each entry to its index. The indices are computed on loading instead of saved."""

    def __init__(self, entries: list[str] | list[bytes]):
        self._entries = tf.constant(entries)
        super().__init__(self._entries, tf.range(len(entries), dtype=tf.int64))

    def initialize(self, table: Any) -> Any:
        return tf.raw_ops.LookupTableImportV2(
            table_handle=table.resource_handle,
            keys=self._entries,
            values=tf.range(tf.size(self._entries, tf.int64)),
        )


class Tokenizer(tf.Module):
    """Base class of the tokenizers.

    Ids from 0 to `vocab_size` - 1 are the lines of the vocabulary. Unknown tokens are hashed by
    `tf.strings.to_hash_bucket_fast` to the `num_oov_buckets` ids after these. `padding_id` comes
    last and has no row in the embedding table.

    Attributes:
      name: "subword", "sentencepiece" or "wordpiece".
      path: the vocabulary file.
      asset: the vocabulary file as a `tf.saved_model.Asset`, so that exported modules contain it.
      vocab_size: number of entries of the vocabulary.
      num_oov_buckets: number of ids for unknown tokens.
      num_ids: `vocab_size` + `num_oov_buckets`, the rows of the embedding table.
      padding_id: id of padding; equal to `num_ids`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        entries: list[str] | list[bytes],
        *,
        num_oov_buckets: int,
        name: str,
    ):
        super().__init__(name=name)
        if num_oov_buckets < 1:
            raise ValueError(
                f"num_oov_buckets must be at least 1. Received: {num_oov_buckets!r}. "
                "The paper uses 1000."
            )
        self.path = os.fspath(path)
        self.asset = tf.saved_model.Asset(self.path)
        self.vocab_size = len(entries)
        self.num_oov_buckets = num_oov_buckets
        self.num_ids = self.vocab_size + num_oov_buckets
        self.padding_id = self.num_ids
        self._table = tf.lookup.StaticVocabularyTable(_Numbered(entries), num_oov_buckets)

    def tokenize(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Split texts into tokens.

        Args:
          strings: string `[B]`, any bytes.

        Returns:
          string `[B, (T)]`.
        """
        raise NotImplementedError

    def token_ids(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Split texts into tokens and return their ids.

        Args:
          strings: string `[B]`, any bytes.

        Returns:
          int32 `[B, (T)]`, the ids of `tokenize(strings)`, below `num_ids`.
        """
        tokens = self.tokenize(strings)
        return tokens.with_values(self._ids(tokens.values))

    def flat_ids(
        self, texts: Sequence[str] | Sequence[bytes], max_tokens: int, *, keeps_last: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return token ids as numpy arrays.

        Args:
          texts: strings or bytes. Surrogates (half an emoji, for example) are read as U+FFFD.
          max_tokens: longer texts are cut.
          keeps_last: whether long texts lose their first tokens instead of their last ones.

        Returns:
          `(ids, row_splits)`: int32 `[all tokens]`, the texts one after another, and int64
          `[B + 1]`, their boundaries.
        """
        valid_texts = [whole_characters(text) if isinstance(text, str) else text for text in texts]
        ids = self.token_ids(valid_texts)
        ids = ids[:, -max_tokens:] if keeps_last else ids[:, :max_tokens]
        return ids.flat_values.numpy(), ids.row_splits.numpy()

    def count_unknown(self, ids: np.ndarray) -> int:
        """Count the ids, int `[tokens]`, of tokens that are not in the vocabulary."""
        return int(np.count_nonzero(ids >= self.vocab_size))

    def bytes_of(self, num_tokens: int) -> int | None:
        """Return how many bytes of a text suffice to find its first tokens. None means all."""
        return None

    def _ids(self, tokens: tf.Tensor) -> tf.Tensor:
        return tf.cast(self._table.lookup(tokens), tf.int32)


class SubwordTokenizer(Tokenizer):
    """The paper's subword tokenizer.

    Text is lower-cased and split into runs (`convert_tf.text.runs`), each with the word-start
    marker `\\ufe4f` in front. A run is cut greedily into the longest known subwords; an unknown
    character is a token. If the first character of a run is unknown, its token includes the marker,
    but its id is that of the character. So the marker is never a token.
    From the joined tokens, `plain_text.restored_texts` makes the lower-cased text, for all valid
    UTF-8.

    Args:
      path: vocabulary written by `convert-tf vocabulary`.
      num_oov_buckets: number of ids for unknown characters.

    Raises:
      VocabularyError: if the file is not a subword vocabulary.

    Example:
      tokenizer = SubwordTokenizer("vocab.txt")
      tokenizer.tokenize(["Hello there!"])  # [["\\ufe4fhello", "\\ufe4fthere", "\\ufe4f!"]]
      tokenizer.token_ids(["Hello there!"])

    Reference: arXiv 1911.03688 §3.1. Spaces are treated as in the modules that the authors
    published, because the paper does not describe them.
    """

    def __init__(self, path: str | os.PathLike[str], num_oov_buckets: int = 1000):
        subwords = read_vocabulary(path)
        super().__init__(path, subwords, num_oov_buckets=num_oov_buckets, name="subword")
        self._longest = max(map(len, subwords))
        self._cutter = tf_text.WordpieceTokenizer(
            self._table,
            suffix_indicator="",
            max_bytes_per_word=_ANY_LENGTH,
            max_chars_per_token=self._longest,
            token_out_type=tf.string,
            unknown_token=None,
            split_unknown_characters=True,
        )

    def tokenize(self, strings: tf.Tensor) -> tf.RaggedTensor:
        pieces, is_marker, row_splits = self._cut(strings)
        follows_marker = tf.concat([[False], is_marker], axis=0)[:-1]
        tokens = tf.strings.join([tf.where(follows_marker, WORD_START, ""), pieces])
        return tf.RaggedTensor.from_row_splits(
            tf.boolean_mask(tokens, ~is_marker), row_splits, validate=False
        )

    def token_ids(self, strings: tf.Tensor) -> tf.RaggedTensor:
        pieces, is_marker, row_splits = self._cut(strings)
        ids = self._ids(tf.boolean_mask(pieces, ~is_marker))
        return tf.RaggedTensor.from_row_splits(ids, row_splits, validate=False)

    def bytes_of(self, num_tokens: int) -> int:
        """Return how many bytes of a text suffice to find its first tokens.

        A token covers at most the characters of the longest subword and a space. A character has at
        most 4 bytes. Cutting a text may change its last two tokens. (A Greek sigma followed by
        extremely many accents is not handled.)
        """
        return 4 * (self._longest + 1) * (num_tokens + 2)

    def _cut(self, strings: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return pieces `[N]`, whether each is only a marker `[N]`, and row splits without these.

        The op cuts off a marker alone if the character after it is unknown.
        """
        words = runs.split_runs(tf.convert_to_tensor(strings))
        pieces = self._cutter.tokenize(words.values)
        is_marker = tf.equal(pieces.values, WORD_START)
        markers = tf.concat([[0], tf.cumsum(tf.cast(is_marker, tf.int64))], axis=0)
        row_splits = tf.gather(pieces.row_splits, words.row_splits)
        return pieces.values, is_marker, row_splits - tf.gather(markers, row_splits)


class SentencePieceTokenizer(Tokenizer):
    """SentencePiece tokenizer.

    Args:
      path: `.model` file, for example from `convert-tf vocabulary --tokenizer=sentencepiece`.
      num_oov_buckets: number of ids for unknown pieces.

    Raises:
      VocabularyError: if the file is not a SentencePiece model.
    """

    def __init__(self, path: str | os.PathLike[str], num_oov_buckets: int = 1000):
        with open(path, "rb") as file:
            model = file.read()
        try:
            cutter = tf_text.SentencepieceTokenizer(model=model, out_type=tf.string)
            entries = cutter.id_to_string(tf.range(cutter.vocab_size())).numpy().tolist()
        except tf.errors.OpError as error:
            raise VocabularyError(
                f"{os.fspath(path)} is neither a subword vocabulary nor a SentencePiece model "
                f"({error.message.splitlines()[0]}). Learn one with convert-tf vocabulary."
            ) from None
        super().__init__(path, entries, num_oov_buckets=num_oov_buckets, name="sentencepiece")
        self._cutter = cutter

    def tokenize(self, strings: tf.Tensor) -> tf.RaggedTensor:
        return self._cutter.tokenize(runs.lower(tf.convert_to_tensor(strings)))
