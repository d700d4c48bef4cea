"""Tokenizers that run inside the graph and travel with an exported module.

Two kinds with one interface (`Tokenizer`): the paper's subwords and SentencePiece. Both lower-case
text in the same way and give a token that is not in the vocabulary one of the hashed ids behind it.
"""

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from convert_tf.storage.json_text import whole_characters
from convert_tf.text import runs
from convert_tf.text.plain_text import restored_texts
from convert_tf.text.subwords import WORD_START
from convert_tf.text.vocabulary import VocabularyError, read_vocabulary

# The op gives up words that are longer; it holds the number in 32 bits.
_ANY_LENGTH = 2**31 - 1


class _Numbered(tf.lookup.KeyValueTensorInitializer):
    """Entries with their numbers, which are counted where a table is made, and not saved."""

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
    """What the tokenizers share: the vocabulary table and the ids behind it.

    Ids from 0 to `vocab_size` - 1 are the lines of the vocabulary, the `num_oov_buckets` after them
    are shared by unknown tokens (`tf.strings.to_hash_bucket_fast` of the token), and `padding_id`
    comes after those, so that an embedding table of `num_ids` rows has none for it.

    Attributes:
        name: "subword" or "sentencepiece".
        path: The vocabulary file that was read.
        asset: The same file as a `tf.saved_model.Asset`; an exported module that has the tokenizer
            as an attribute holds a copy.
        vocab_size: Entries of the vocabulary.
        num_oov_buckets: Ids that unknown tokens share.
        num_ids: Both together: rows of the embedding table.
        padding_id: The id that no token has; equal to `num_ids`.
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
                "Unknown tokens need at least one id. Received: "
                f"num_oov_buckets={num_oov_buckets!r}. Pass 1 or more; the paper has 1000."
            )
        self.path = os.fspath(path)
        self.asset = tf.saved_model.Asset(self.path)
        self.vocab_size = len(entries)
        self.num_oov_buckets = num_oov_buckets
        self.num_ids = self.vocab_size + num_oov_buckets
        self.padding_id = self.num_ids
        self._table = tf.lookup.StaticVocabularyTable(_Numbered(entries), num_oov_buckets)

    @property
    def asset_path(self) -> tf.Tensor:
        """string []: where the vocabulary file is, also in a module that was loaded."""
        return self.asset.asset_path

    def tokenize(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Cuts texts into tokens.

        Args:
            strings: string [B], any bytes.

        Returns:
            string [B, (T)].
        """
        raise NotImplementedError

    def token_ids(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Cuts texts into tokens and looks up their ids.

        Args:
            strings: string [B], any bytes.

        Returns:
            int32 [B, (T)], the ids of `tokenize(strings)`, below `num_ids`.
        """
        raise NotImplementedError

    def flat_ids(
        self, texts: Sequence[str] | Sequence[bytes], max_tokens: int, *, keeps_last: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """The ids of texts as arrays, outside of a graph.

        Args:
            texts: Any strings, or any bytes; half an emoji is read as U+FFFD.
            max_tokens: Longer texts are cut.
            keeps_last: Whether they lose their start, and not their end.

        Returns:
            `(ids, row_splits)`: int32 [all tokens], the texts one behind the other, and int64
            [B + 1], where each begins and ends.
        """
        whole = [whole_characters(text) if isinstance(text, str) else text for text in texts]
        ids = self.token_ids(whole)
        ids = ids[:, -max_tokens:] if keeps_last else ids[:, :max_tokens]
        return ids.flat_values.numpy(), ids.row_splits.numpy()

    def count_unknown(self, ids: np.ndarray) -> int:
        """How many of the ids, int `[tokens]`, are of tokens that the vocabulary does not hold."""
        return int(np.count_nonzero(ids >= self.vocab_size))

    def bytes_of(self, num_tokens: int) -> int | None:
        """Bytes of a text that decide its first tokens, whatever follows; None: all of them."""
        return None

    def detokenize(self, tokens: Iterable[str | bytes]) -> str:
        """Returns the text that was cut into `tokens`, one row of what `tokenize` returns."""
        raise NotImplementedError

    def _ids(self, tokens: tf.Tensor) -> tf.Tensor:
        return tf.cast(self._table.lookup(tokens), tf.int32)


class SubwordTokenizer(Tokenizer):
    """The paper's subwords: the longest known prefix first, an unknown character by itself.

    Text is lower-cased and cut into runs as `convert_tf.text.runs` says; every run opens with the
    word-start marker `\\ufe4f`. When the first character of a run is unknown, the marker is part of
    its token, so no token is a lone marker; the id is that of the character.
    `detokenize(tokenize(text))` is the lower-cased text, for every valid UTF-8 text.

    Args:
        path: A vocabulary that `convert-tf vocabulary` wrote.
        num_oov_buckets: Ids that unknown characters share.

    Raises:
        VocabularyError: The file is not a subword vocabulary.

    ```python
    tokenizer = SubwordTokenizer("vocab.txt")
    tokenizer.tokenize(["Hello there!"])  # [["\\ufe4fhello", "\\ufe4fthere", "\\ufe4f!"]]
    tokenizer.token_ids(["Hello there!"])
    ```

    Reference: arXiv 1911.03688 §3.1. The paper does not say how spaces are kept; this follows the
    tokens that its published modules gave.
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
        pieces, lone, row_splits = self._cut(strings)
        follows_lone = tf.concat([[False], lone], axis=0)[:-1]
        tokens = tf.strings.join([tf.where(follows_lone, WORD_START, ""), pieces])
        return tf.RaggedTensor.from_row_splits(
            tf.boolean_mask(tokens, ~lone), row_splits, validate=False
        )

    def token_ids(self, strings: tf.Tensor) -> tf.RaggedTensor:
        pieces, lone, row_splits = self._cut(strings)
        ids = self._ids(tf.boolean_mask(pieces, ~lone))
        return tf.RaggedTensor.from_row_splits(ids, row_splits, validate=False)

    def bytes_of(self, num_tokens: int) -> int:
        """Bytes of a text that decide its first tokens, whatever follows.

        A token stands for no more characters than the longest subword has, and a space before it;
        a character is at most 4 bytes; where a text ends, that may change its last two tokens.
        (A Greek sigma before more than so many bytes of accents is not looked after.)
        """
        return 4 * (self._longest + 1) * (num_tokens + 2)

    def detokenize(self, tokens: Iterable[str | bytes]) -> str:
        return restored_texts("".join(map(tf.compat.as_text, tokens)))[0]

    def _cut(self, strings: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns pieces [N], which of them are lone markers [N], and row splits without those."""
        words = runs.split_runs(tf.convert_to_tensor(strings))
        pieces = self._cutter.tokenize(words.values)
        lone = tf.equal(pieces.values, WORD_START)
        markers = tf.concat([[0], tf.cumsum(tf.cast(lone, tf.int64))], axis=0)
        row_splits = tf.gather(pieces.row_splits, words.row_splits)
        return pieces.values, lone, row_splits - tf.gather(markers, row_splits)


class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece model behind the same interface; unknown pieces are hashed by their text.

    Args:
        path: A `.model` file, such as `convert-tf vocabulary --tokenizer=sentencepiece` writes.
        num_oov_buckets: Ids that unknown pieces share.

    Raises:
        VocabularyError: The file is not a SentencePiece model.

    `detokenize` gives the text as TensorFlow Text decodes it: without spaces at its start.
    """

    def __init__(self, path: str | os.PathLike[str], num_oov_buckets: int = 1000):
        with open(path, "rb") as file:
            model = file.read()
        try:
            cutter = tf_text.SentencepieceTokenizer(model=model, out_type=tf.string)
            entries = cutter.id_to_string(tf.range(cutter.vocab_size())).numpy().tolist()
        except tf.errors.OpError as error:
            raise VocabularyError(
                "A tokenizer is read from a subword vocabulary or a SentencePiece model. Received: "
                f"{os.fspath(path)}, which is neither ({error.message.splitlines()[0]}). "
                "Learn one with convert-tf vocabulary."
            ) from None
        super().__init__(path, entries, num_oov_buckets=num_oov_buckets, name="sentencepiece")
        self._cutter = cutter

    def tokenize(self, strings: tf.Tensor) -> tf.RaggedTensor:
        return self._cutter.tokenize(runs.lower(tf.convert_to_tensor(strings)))

    def token_ids(self, strings: tf.Tensor) -> tf.RaggedTensor:
        tokens = self.tokenize(strings)
        return tokens.with_values(self._ids(tokens.values))

    def detokenize(self, tokens: Iterable[str | bytes]) -> str:
        pieces = tf.constant([list(tokens)], dtype=tf.string)
        return self._cutter.detokenize(pieces).numpy()[0].decode("utf-8")
