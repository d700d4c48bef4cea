"""Tokenizers that run inside a TensorFlow graph and are saved with an exported module.

`SubwordTokenizer` (the paper's subwords), `SentencePieceTokenizer` and `WordPieceTokenizer` (BERT)
share the interface `Tokenizer`. `load_tokenizer` chooses one of them by the vocabulary file.
`SubwordTokenizer` and `SentencePieceTokenizer` lower-case text in the same way. If a token is not
in the vocabulary, they hash it to one of the ids that follow the vocabulary's ids.

`WordPieceTokenizer` gives the same ids as Hugging Face's `BertTokenizer`, with one exception:
special tokens in a text, such as a literal `[MASK]`, are split like any other text.

References: arXiv 1911.03688 §3.1; arXiv 1810.04805 §3 and the tokenizer published with it.
"""

import codecs
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from convert_tf.storage.json_text import parsed_json, whole_characters
from convert_tf.text import runs
from convert_tf.text.subwords import WORD_START
from convert_tf.text.vocabulary import SETTINGS_FILE, VocabularyError, read_vocabulary

# TensorFlow's op does not split words that are longer than a limit. This is the highest limit that
# it allows.
_ANY_LENGTH = 2**31 - 1


class _Numbered(tf.lookup.KeyValueTensorInitializer):
    """Maps each entry to its index. The indices are not saved, but computed on loading."""

    def __init__(self, entries: list[str] | list[bytes]) -> None:
        self._entries = tf.constant(entries)
        super().__init__(self._entries, tf.range(len(entries), dtype=tf.int64))

    def initialize(self, table: Any) -> Any:
        return tf.raw_ops.LookupTableImportV2(
            table_handle=table.resource_handle,
            keys=self._entries,
            values=tf.range(tf.size(self._entries, tf.int64)),
        )


class Tokenizer(tf.Module):
    """Base class of all tokenizers.

    Ids from 0 to `vocab_size` - 1 are the line numbers of the vocabulary. Unknown tokens are hashed
    by `tf.strings.to_hash_bucket_fast` to the next `num_oov_buckets` ids. `padding_id` comes last
    and has no row in the embedding table.

    Attributes:
      name: "subword", "sentencepiece" or "wordpiece".
      path: the vocabulary file.
      asset: the vocabulary file as a `tf.saved_model.Asset`, so that exported modules contain it.
      vocab_size: number of entries in the vocabulary.
      num_oov_buckets: number of ids for unknown tokens.
      num_ids: `vocab_size` + `num_oov_buckets`, the number of rows in the embedding table.
      padding_id: id of padding; equal to `num_ids`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        entries: list[str] | list[bytes],
        *,
        num_oov_buckets: int,
        name: str,
    ) -> None:
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
          strings: the texts, string `[B]`, any bytes.

        Returns:
          The tokens of each text, string `[B, (T)]`.
        """
        raise NotImplementedError

    def token_ids(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Fold texts, split them into tokens and return their ids.

        Args:
          strings: the texts, string `[B]`, any bytes.

        Returns:
          The ids of the tokens in `tokenize(fold(strings))`, int32 `[B, (T)]`, below `num_ids`.
        """
        return self.ids_as_written(self.fold(strings))

    def fold(self, strings: tf.Tensor) -> tf.Tensor:
        """Remove differences between texts that a reader cannot see: string `[B]` → string `[B]`.

        See `convert_tf.text.characters.fold`.
        """
        return runs.fold_strings(strings)

    def ids_as_written(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Return the ids of `tokenize(strings)`, for clients that align tokens with the text.

        Args:
          strings: the texts, string `[B]`, any bytes.

        Returns:
          The ids of each text's tokens, int32 `[B, (T)]`, below `num_ids`.
        """
        tokens = self.tokenize(strings)
        return tokens.with_values(self._ids(tokens.values))

    def flat_ids(
        self, texts: Sequence[str] | Sequence[bytes], max_tokens: int, *, keeps_last: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return token ids as numpy arrays.

        Args:
          texts: strings or bytes. Surrogates (half an emoji, for example) are read as U+FFFD.
          max_tokens: maximum number of tokens per text; longer texts are cut.
          keeps_last: whether long texts keep their last tokens instead of their first ones.

        Returns:
          `(ids, row_splits)`: the ids of all texts, one text after another, int32 `[all tokens]`;
          and the boundaries of the texts, int64 `[B + 1]`.
        """
        valid_texts = [whole_characters(text) if isinstance(text, str) else text for text in texts]
        ids = self.token_ids(valid_texts)
        ids = ids[:, -max_tokens:] if keeps_last else ids[:, :max_tokens]
        return ids.flat_values.numpy(), ids.row_splits.numpy()

    def count_unknown(self, ids: np.ndarray) -> int:
        """Count the ids that stand for tokens outside the vocabulary. `ids` is int `[tokens]`."""
        return int(np.count_nonzero(ids >= self.vocab_size))

    def bytes_of(self, num_tokens: int) -> int | None:
        """Return how many bytes of a text determine its first tokens; None if all bytes do.

        Args:
          num_tokens: number of tokens at the start of the text.
        """
        return None

    def _ids(self, tokens: tf.Tensor) -> tf.Tensor:
        return tf.cast(self._table.lookup(tokens), tf.int32)


class SubwordTokenizer(Tokenizer):
    r"""The paper's subword tokenizer.

    Text is lower-cased and split into runs (`convert_tf.text.runs`), each with the word-start
    marker `\ufe4f` in front. A run is cut greedily into the longest known subwords; an unknown
    character is a token. If the first character of a run is unknown, its token includes the marker,
    but has the same id as the character alone. The marker is therefore never a token. For all valid
    UTF-8, `plain_tokenizer.restored_texts` restores the lower-cased text from the joined tokens.

    Args:
      path: vocabulary written by `convert-tf vocabulary`.
      num_oov_buckets: number of ids for unknown characters.

    Raises:
      VocabularyError: if the file is not a subword vocabulary.

    Example:
      tokenizer = SubwordTokenizer("vocab.txt")
      tokenizer.tokenize(["Hello there!"])  # [["\\ufe4fhello", "\\ufe4fthere", "\\ufe4f!"]]
      tokenizer.token_ids(["Hello there!"])

    Reference: arXiv 1911.03688 §3.1. The paper does not describe how spaces are treated. They are
    treated as in the modules that the authors published.
    """

    def __init__(self, path: str | os.PathLike[str], num_oov_buckets: int = 1000) -> None:
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

    def ids_as_written(self, strings: tf.Tensor) -> tf.RaggedTensor:
        pieces, is_marker, row_splits = self._cut(strings)
        ids = self._ids(tf.boolean_mask(pieces, ~is_marker))
        return tf.RaggedTensor.from_row_splits(ids, row_splits, validate=False)

    def bytes_of(self, num_tokens: int) -> int:
        """Return how many bytes of a text determine its first tokens.

        A token covers at most as many characters as the longest subword, plus a space. A character
        has at most 4 bytes. Cutting a text may change its last two tokens, so the result includes
        bytes for two more tokens. (A Greek sigma followed by extremely many accents is not
        handled.)
        """
        return 4 * (self._longest + 1) * (num_tokens + 2)

    def _cut(self, strings: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return pieces `[N]`, whether each is only a marker `[N]`, and row splits without markers.

        If the character after a marker is unknown, the op returns the marker as a separate piece.
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

    def __init__(self, path: str | os.PathLike[str], num_oov_buckets: int = 1000) -> None:
        model = Path(path).read_bytes()
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


_UNKNOWN = "[UNK]"
_PASS = "Pass the vocab.txt of a BERT model."
_FIRST_LINES = (b"[PAD]", b"[UNK]", b"[CLS]", b"[unused")  # in WordPiece vocabularies
_MAX_WORD_CHARACTERS = 100
_WHITE_SPACE = r"[\t\n\r\p{Z}]"
# U+FFFD and control characters. White space has been replaced before these are removed.
_REMOVED = r"[\x{FFFD}\p{C}]"
_CHINESE = (
    r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}"
    r"\x{2B740}-\x{2B81F}\x{2B920}-\x{2CEAF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}]"
)
_ACCENTS = r"\p{Mn}"
_PUNCTUATION = r"[!-/:-@\[-`{-~\p{P}]"


class WordPieceTokenizer(Tokenizer):
    """BERT's tokenizer. Unknown words become [UNK]; there are no hashed ids.

    The tokenizer removes control characters and U+FFFD, and turns white space into spaces. Each
    Chinese character becomes a word. For uncased models, accents are stripped and letters are
    lower-cased. Words are then split at white space and around punctuation. A word is cut greedily
    into the longest known pieces; all but the first have the prefix `##`. If a word cannot be cut
    in this way, or has more than 100 characters, it becomes [UNK].

    Except for [UNK], special tokens never occur in the result. `padding_id` is `vocab_size`, as in
    the other tokenizers, and not the id of [PAD].

    Args:
      path: a `vocab.txt`. If there is a `tokenizer_config.json` in the same folder, it determines
        lower-casing and accents. Otherwise a vocabulary without capital letters counts as uncased.

    Raises:
      VocabularyError: if the file is not a WordPiece vocabulary.

    Example:
      tokenizer = WordPieceTokenizer("vocab.txt")
      tokenizer.tokenize(["Hello embeddings!"])  # [["hello", "em", "##bed", "##ding", "##s", "!"]]
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        entries = _read_entries(path)
        # The lookup table needs at least one bucket, but nothing is hashed: unknown words are
        # [UNK], which is an entry.
        super().__init__(path, entries, num_oov_buckets=1, name="wordpiece")
        self.num_oov_buckets = 0
        self.num_ids = self.padding_id = self.vocab_size
        self._unknown_id = entries.index(_UNKNOWN)
        settings = _read_settings(path)
        words = (entry for entry in entries if not entry.startswith("["))
        is_uncased = all(word == word.lower() for word in words)
        self.lower_case = bool(settings.get("do_lower_case", is_uncased))
        strip_accents = settings.get("strip_accents")
        self.strip_accents = self.lower_case if strip_accents is None else bool(strip_accents)
        self.split_chinese = bool(settings.get("tokenize_chinese_chars", True))
        self._cutter = tf_text.WordpieceTokenizer(
            self._table,
            suffix_indicator="##",
            max_bytes_per_word=_ANY_LENGTH,
            token_out_type=tf.string,
            unknown_token=_UNKNOWN,
        )

    def tokenize(self, strings: tf.Tensor) -> tf.RaggedTensor:
        return self._cutter.tokenize(self._words(tf.convert_to_tensor(strings))).merge_dims(1, 2)

    def fold(self, strings: tf.Tensor) -> tf.Tensor:
        return tf.convert_to_tensor(strings)  # BERT models were trained on text that was not folded

    def count_unknown(self, ids: np.ndarray) -> int:
        return int(np.count_nonzero(ids == self._unknown_id))

    def _words(self, strings: tf.Tensor) -> tf.RaggedTensor:
        text = tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8")
        text = tf.strings.regex_replace(text, _WHITE_SPACE, " ")
        text = tf.strings.regex_replace(text, _REMOVED, "")
        if self.split_chinese:
            text = tf.strings.regex_replace(text, _CHINESE, r" \0 ")
        if self.strip_accents:
            # Accents are also removed first, because NFD takes quadratic time for a run of them.
            text = tf.strings.regex_replace(text, _ACCENTS, "")
            text = tf_text.normalize_utf8(text, "NFD")
            text = tf.strings.regex_replace(text, _ACCENTS, "")
        if self.lower_case:
            # BERT lower-cases letter by letter, so a final sigma does not become ς.
            text = runs.lower(tf.strings.regex_replace(text, "Σ", "σ"))
        text = tf.strings.regex_replace(text, _PUNCTUATION, r" \0 ")
        words = tf.strings.split(text)
        is_long = tf.strings.length(words.values, unit="UTF8_CHAR") > _MAX_WORD_CHARACTERS
        return words.with_values(tf.where(is_long, _UNKNOWN, words.values))


def _read_entries(path: str | os.PathLike[str]) -> list[str]:
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise VocabularyError(f"{path} is not UTF-8 text ({error}). {_PASS}") from None
    entries = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    if _UNKNOWN not in entries:
        raise VocabularyError(f"{path} has no [UNK], so it is not a WordPiece vocabulary. {_PASS}")
    entry, number = Counter(entries).most_common(1)[0]
    if number > 1:
        raise VocabularyError(f"{path} contains {entry!r} twice. {_PASS}")
    return entries


def _read_settings(path: str | os.PathLike[str]) -> dict[str, Any]:
    file = Path(path).with_name(SETTINGS_FILE)
    if not file.is_file():
        return {}
    try:
        settings = parsed_json(file.read_text(encoding="utf-8"))
        if not isinstance(settings, dict):
            raise ValueError("not a JSON object")
    except ValueError as error:
        raise VocabularyError(
            f"{file} is damaged ({error}). Copy it again. If you delete it, the vocabulary decides "
            "whether letters are lower-cased."
        ) from error
    return settings


def load_tokenizer(path: str | os.PathLike[str], num_oov_buckets: int = 1000) -> Tokenizer:
    """Load the tokenizer for a vocabulary file of any kind.

    Args:
      path: a subword vocabulary, a SentencePiece model or a WordPiece vocabulary (BERT).
      num_oov_buckets: number of ids for unknown tokens. WordPiece ignores it.

    Raises:
      FileNotFoundError: if there is no such file.
      VocabularyError: if the file is not a vocabulary of one of these kinds.
    """
    with open(path, "rb") as file:
        first_bytes = file.read(8)
    if first_bytes.removeprefix(codecs.BOM_UTF8).startswith(_FIRST_LINES):
        return WordPieceTokenizer(path)
    # A SentencePiece model starts with byte 10, the tag of its first field. A subword vocabulary
    # never starts with an empty line.
    kind = SentencePieceTokenizer if first_bytes[:1] == b"\n" else SubwordTokenizer
    return kind(path, num_oov_buckets)
