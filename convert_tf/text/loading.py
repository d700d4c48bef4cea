"""Loading of tokenizers."""

import os

from convert_tf.text.tokenizer import SentencePieceTokenizer, SubwordTokenizer, Tokenizer
from convert_tf.text.wordpiece import WordPieceTokenizer, is_wordpiece_vocabulary


def load_tokenizer(path: str | os.PathLike[str], num_oov_buckets: int = 1000) -> Tokenizer:
    """Load the tokenizer of a vocabulary file of any kind.

    Args:
      path: a subword vocabulary, a SentencePiece model or a WordPiece vocabulary (BERT).
      num_oov_buckets: number of ids for unknown tokens. WordPiece ignores it.

    Raises:
      FileNotFoundError: if there is no such file.
      VocabularyError: if the file is not a vocabulary of one of these kinds.
    """
    with open(path, "rb") as file:
        first_bytes = file.read(8)
    if is_wordpiece_vocabulary(first_bytes):
        return WordPieceTokenizer(path)
    # A SentencePiece model starts with byte 10, the tag of its first field. A subword vocabulary
    # never starts with an empty line.
    kind = SentencePieceTokenizer if first_bytes[:1] == b"\n" else SubwordTokenizer
    return kind(path, num_oov_buckets)
