"""BERT's WordPiece tokenizer inside the graph, for the `vocab.txt` of a published model.

The ids are those of Hugging Face's `BertTokenizer`, but for one thing: text is text. A literal
`[MASK]` in it is cut like any other, and is not the special token of that name.

Text is cleaned (control characters and U+FFFD go, white space becomes a space), Chinese characters
become words of their own, accents are stripped (uncased models), letters lower-cased, and words cut
at white space and around punctuation. A word is cut into the longest known prefix and, marked `##`,
the longest known pieces behind; a word for which that fails, or of more than 100 characters, is one
[UNK].

Reference: arXiv 1810.04805 §3; the tokenizer that was published with it.
"""

import codecs
import os
from collections.abc import Iterable
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

_ANY_LENGTH = 2**31 - 1
_WHITE_SPACE = r"[\t\n\r\p{Z}]"
# The characters that are not there, and those of `\p{C}` that are not white space.
_REMOVED = r"[\x{FFFD}\p{C}]"
_CHINESE = (
    r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}"
    r"\x{2B740}-\x{2B81F}\x{2B920}-\x{2CEAF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}]"
)
_PUNCTUATION = r"[!-/:-@\[-`{-~\p{P}]"


def is_wordpiece_vocabulary(first_bytes: bytes) -> bool:
    """Whether a file that begins so is a WordPiece vocabulary: BERT's begin with `[PAD]`."""
    first_bytes = first_bytes.removeprefix(codecs.BOM_UTF8)
    return first_bytes.startswith((b"[PAD]", b"[UNK]", b"[CLS]", b"[unused"))


class WordPieceTokenizer(Tokenizer):
    """BERT's tokenizer behind the interface of the others; no id is shared by hashing.

    The special tokens are entries of the vocabulary that no text is cut into, [UNK] apart.
    `padding_id` is `vocab_size`, as of the other tokenizers, and not the vocabulary's [PAD].

    Args:
        path: A `vocab.txt`; a `tokenizer_config.json` beside it says whether letters are
            lower-cased and accents stripped. Without one, a vocabulary without capital letters is
            taken for an uncased one.

    Raises:
        VocabularyError: The file is not a WordPiece vocabulary.

    ```python
    tokenizer = WordPieceTokenizer("vocab.txt")
    tokenizer.tokenize(["Hello embeddings!"])  # [["hello", "em", "##bed", "##ding", "##s", "!"]]
    ```
    """

    def __init__(self, path: str | os.PathLike[str]):
        entries = _read_entries(path)
        # The table of the interface wants a bucket for tokens outside the vocabulary. None gets
        # there: [UNK] is one of the entries.
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

    def token_ids(self, strings: tf.Tensor) -> tf.RaggedTensor:
        tokens = self.tokenize(strings)
        return tokens.with_values(self._ids(tokens.values))

    def count_unknown(self, ids: np.ndarray) -> int:
        return int(np.count_nonzero(ids == self._unknown_id))

    def detokenize(self, tokens: Iterable[str | bytes]) -> str:
        """Words with single spaces between them: what was cleaned away does not come back."""
        text = " ".join(map(tf.compat.as_text, tokens))
        return text.replace(" " + SUFFIX_INDICATOR, "")

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
            # Letter by letter: a final sigma is a sigma like any other.
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
            f"A WordPiece vocabulary is UTF-8 text. Received: {source}, which is not from byte "
            f"{error.start} on. Pass the vocab.txt of a BERT model."
        ) from None
    if entries[-1] == "":
        entries.pop()
    if _UNKNOWN not in entries:
        raise VocabularyError(
            f"A WordPiece vocabulary holds [UNK]. Received: {source}, without it. Pass the "
            "vocab.txt of a BERT model."
        )
    if len(set(entries)) != len(entries):
        double = next(entry for i, entry in enumerate(entries) if entry in entries[:i])
        raise VocabularyError(
            f"The entries of a WordPiece vocabulary are unique. Received: {double!r} twice in "
            f"{source}. Pass the vocab.txt of a BERT model."
        )
    return entries


def _read_settings(path: str | os.PathLike[str], entries: list[str]) -> dict[str, bool]:
    """`do_lower_case`, `strip_accents` and `tokenize_chinese_chars` of a vocabulary."""
    file = Path(path).parent / SETTINGS_FILE
    stated = {}
    if file.is_file():
        try:
            stated = parsed_json(file.read_text(encoding="utf-8"))
            if not isinstance(stated, dict):
                raise ValueError("which is no JSON object")
        except ValueError as error:
            raise VocabularyError(
                f"{SETTINGS_FILE} must hold JSON. Received: {file} ({error}). Copy it again, or "
                "remove it to take the casing from the vocabulary."
            ) from error
    words = (entry for entry in entries if not entry.startswith("["))
    is_uncased = not any(entry != entry.lower() for entry in words)
    lower_case = bool(stated.get("do_lower_case", is_uncased))
    strip_accents = stated.get("strip_accents")
    return {
        "do_lower_case": lower_case,
        "strip_accents": lower_case if strip_accents is None else bool(strip_accents),
        "tokenize_chinese_chars": bool(stated.get("tokenize_chinese_chars", True)),
    }
