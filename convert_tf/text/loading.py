"""The tokenizer of a vocabulary file of any kind."""

import os

from convert_tf.text.tokenizer import SentencePieceTokenizer, SubwordTokenizer, Tokenizer
from convert_tf.text.wordpiece import WordPieceTokenizer, is_wordpiece_vocabulary


def load_tokenizer(path: str | os.PathLike[str], num_oov_buckets: int = 1000) -> Tokenizer:
    """Reads a vocabulary file of any kind.

    Args:
        path: A subword vocabulary, a SentencePiece model, or the WordPiece vocabulary of a BERT.
        num_oov_buckets: Ids that unknown tokens share; WordPiece has none.

    Raises:
        FileNotFoundError: There is no such file.
        VocabularyError: It is none of these.
    """
    with open(path, "rb") as file:
        first = file.read(8)
    if is_wordpiece_vocabulary(first):
        return WordPieceTokenizer(path)
    # A model begins with the tag of its first field, a vocabulary never with an empty line.
    kind = SentencePieceTokenizer if first[:1] == b"\n" else SubwordTokenizer
    return kind(path, num_oov_buckets)
