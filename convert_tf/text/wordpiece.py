"""BERT's WordPiece tokenizer as TensorFlow ops, for the `vocab.txt` of published models.

The ids equal those of Hugging Face's `BertTokenizer`, with one exception: special tokens in a text,
such as a literal `[MASK]`, are split like any other text.

The tokenizer removes control characters and U+FFFD and turns white space into spaces. It makes
each Chinese character a word. For uncased models it strips accents and lower-cases letters. It then
splits words at white space and around punctuation. A word is cut greedily into the longest known
pieces; all but the first have the prefix `##`. If this fails, or if the word has more than 100
characters, the word becomes [UNK].

Reference: arXiv 1810.04805 §3; the tokenizer that was published with it.
"""

import codecs
import os
from pathlib import Path

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from convert_tf.storage.json_text import parsed_json
from convert_tf.text import runs
from convert_tf.text.tokenizer import Tokenizer
from convert_tf.text.vocabulary import SETTINGS_FILE, VocabularyError

SUFFIX_INDICATOR = "##"
MAX_WORD_CHARACTERS = 100
_UNKNOWN = "[UNK]"
_PASS = "Pass the vocab.txt of a BERT model."

_ANY_LENGTH = 2**31 - 1
_WHITE_SPACE = r"[\t\n\r\p{Z}]"
# U+FFFD and control characters. White space is replaced before.
_REMOVED = r"[\x{FFFD}\p{C}]"
_CHINESE = (
    r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}"
    r"\x{2B740}-\x{2B81F}\x{2B920}-\x{2CEAF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}]"
)
_PUNCTUATION = r"[!-/:-@\[-`{-~\p{P}]"


def is_wordpiece_vocabulary(first_bytes: bytes) -> bool:
    """Tell from its first bytes whether a file is a WordPiece vocabulary."""
    first_bytes = first_bytes.removeprefix(codecs.BOM_UTF8)
    return first_bytes.startswith((b"[PAD]", b"[UNK]", b"[CLS]", b"[unused"))


class WordPieceTokenizer(Tokenizer):
    """BERT's tokenizer. Unknown words become [UNK]; there are no hashed ids.

    Except for [UNK], special tokens never occur in the result. `padding_id` is `vocab_size`, as in
    the other tokenizers, and not the id of [PAD].

    Args:
      path: a `vocab.txt`. If there is a `tokenizer_config.json` in the same folder, it decides
        about lower-casing and accents. Otherwise a vocabulary without capital letters is taken as
        uncased.

    Raises:
      VocabularyError: if the file is not a WordPiece vocabulary.

    Example:
      tokenizer = WordPieceTokenizer("vocab.txt")
      tokenizer.tokenize(["Hello embeddings!"])  # [["hello", "em", "##bed", "##ding", "##s", "!"]]
    """

    def __init__(self, path: str | os.PathLike[str]):
        entries = _read_entries(path)
        # The lookup table needs at least one bucket, but nothing is hashed: unknown words are
        # [UNK], which is an entry.
        super().__init__(path, entries, num_oov_buckets=1, name="wordpiece")
        self.num_oov_buckets = 0
        self.num_ids = self.padding_id = self.vocab_size
        self._unknown_id = entries.index(_UNKNOWN)
        settings = _read_settings(path, entries)
        self.lower_case = settings["do_lower_case"]
        self.strip_accents = settings["strip_accents"]
        self.split_chinese = settings["tokenize_chinese_chars"]
        self._cutter = tf_text.WordpieceTokenizer(
            self._table,
            suffix_indicator=SUFFIX_INDICATOR,
            max_bytes_per_word=_ANY_LENGTH,
            token_out_type=tf.string,
            unknown_token=_UNKNOWN,
        )

    def tokenize(self, strings: tf.Tensor) -> tf.RaggedTensor:
        return self._cutter.tokenize(self._words(tf.convert_to_tensor(strings))).merge_dims(1, 2)

    def count_unknown(self, ids: np.ndarray) -> int:
        return int(np.count_nonzero(ids == self._unknown_id))

    def _words(self, strings: tf.Tensor) -> tf.RaggedTensor:
        text = tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8")
        text = tf.strings.regex_replace(text, _WHITE_SPACE, " ")
        text = tf.strings.regex_replace(text, _REMOVED, "")
        if self.split_chinese:
            text = tf.strings.regex_replace(text, _CHINESE, r" \0 ")
        if self.strip_accents:
            text = tf_text.normalize_utf8(text, "NFD")
            text = tf.strings.regex_replace(text, r"\p{Mn}", "")
        if self.lower_case:
            # BERT lower-cases letter by letter, so a final sigma does not become ς.
            text = runs.lower(tf.strings.regex_replace(text, "Σ", "σ"))
        text = tf.strings.regex_replace(text, _PUNCTUATION, r" \0 ")
        words = tf.strings.split(text)
        is_long = tf.strings.length(words.values, unit="UTF8_CHAR") > MAX_WORD_CHARACTERS
        return words.with_values(tf.where(is_long, _UNKNOWN, words.values))


def _read_entries(path: str | os.PathLike[str]) -> list[str]:
    with open(path, "rb") as file:
        content = file.read()
    source = os.fspath(path)
    try:
        entries = content.decode("utf-8-sig").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        raise VocabularyError(
            f"{source} is not UTF-8 text (invalid byte {error.start}). {_PASS}"
        ) from None
    if entries[-1] == "":
        entries.pop()
    if _UNKNOWN not in entries:
        raise VocabularyError(
            f"{source} has no [UNK], so it is not a WordPiece vocabulary. {_PASS}"
        )
    if len(set(entries)) != len(entries):
        duplicate = next(entry for i, entry in enumerate(entries) if entry in entries[:i])
        raise VocabularyError(f"{source} contains {duplicate!r} twice. {_PASS}")
    return entries


def _read_settings(path: str | os.PathLike[str], entries: list[str]) -> dict[str, bool]:
    """Return `do_lower_case`, `strip_accents` and `tokenize_chinese_chars` of a vocabulary."""
    file = Path(path).parent / SETTINGS_FILE
    settings = {}
    if file.is_file():
        try:
            settings = parsed_json(file.read_text(encoding="utf-8"))
            if not isinstance(settings, dict):
                raise ValueError("not a JSON object")
        except ValueError as error:
            raise VocabularyError(
                f"{file} is damaged ({error}). Copy it again, or delete it to take the casing from "
                "the vocabulary."
            ) from error
    words = (entry for entry in entries if not entry.startswith("["))
    is_uncased = not any(entry != entry.lower() for entry in words)
    lower_case = bool(settings.get("do_lower_case", is_uncased))
    strip_accents = settings.get("strip_accents")
    return {
        "do_lower_case": lower_case,
        "strip_accents": lower_case if strip_accents is None else bool(strip_accents),
        "tokenize_chinese_chars": bool(settings.get("tokenize_chinese_chars", True)),
    }
