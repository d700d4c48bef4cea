"""Texts of token ids for teachers, and which of them are equal."""

import itertools
from collections.abc import Sequence

import numpy as np

from convert_tf.data.negatives import scattered
from convert_tf.data.packing import TokenIds
from convert_tf.data.token_arrays import ArrayExamples, ArrayFolder
from convert_tf.extras import needs
from convert_tf.text.plain_tokenizer import BETWEEN_TEXTS, restored_texts
from convert_tf.text.subwords import WORD_START
from convert_tf.text.vocabulary import read_vocabulary

CHUNK = 8_192  # examples between two notes of the progress
_UNKNOWN = "\ufffd"


class StoredTexts:
    """Restores texts from token ids: in lower case, and cut as they are stored.

    Characters outside the vocabulary are hashed in the ids. In the texts they are U+FFFD.

    Args:
      folder: the token ids.

    Attributes:
      entries: the entries of the vocabulary as texts, without the marker of a word's start.

    Raises:
      ValueError: if the vocabulary cannot be read, or a package is missing.

    Example:
      texts = StoredTexts(folder)(examples.texts("context", np.arange(10)))
    """

    def __init__(self, folder: ArrayFolder):
        self._model = None
        if folder.tokenizer_name == "sentencepiece":
            with needs("data", "A SentencePiece vocabulary"):
                import sentencepiece

            self._model = sentencepiece.SentencePieceProcessor(model_file=str(folder.vocabulary))
            pieces = [self._model.id_to_piece(i) for i in range(folder.vocab_size)]
            self.entries = [piece.lstrip("▁") for piece in pieces]
            self._unknown = self._model.unk_id()
        else:
            pieces = read_vocabulary(folder.vocabulary)
            self.entries = [piece.removeprefix(WORD_START) for piece in pieces]
            pieces += [_UNKNOWN] * folder.num_oov_buckets
            # The last one ends a text.
            self._pieces = np.array([*pieces, BETWEEN_TEXTS], object)

    def __call__(self, ids: TokenIds) -> list[str]:
        """Return the texts of some token ids."""
        if self._model is not None:
            known = np.where(ids.flat < len(self.entries), ids.flat, self._unknown).tolist()
            bounds = ids.row_splits.tolist()
            rows = [known[start:stop] for start, stop in itertools.pairwise(bounds)]
            return list(self._model.decode(rows)) if rows else []
        if len(ids.row_splits) == 1:
            return []
        ended = np.insert(ids.flat, ids.row_splits[1:-1], len(self._pieces) - 1)
        return restored_texts("".join(self._pieces[ended]))


def first_places(examples: ArrayExamples, names: Sequence[str], numbers: np.ndarray) -> np.ndarray:
    """Return where each text occurs first. A turn is often a response and then a context.

    It takes about 50 bytes of memory for each text.

    Args:
      examples: the token ids.
      names: names of the texts of an example.
      numbers: int64 `[n]`, numbers of the examples.

    Returns:
      int64 `[names × n]`: for text c of example e, at `names · e + c`, the first index of the same
      text. Two different texts are mistaken for the same once in 2⁶⁴ pairs.
    """
    digests = np.empty((len(numbers), len(names)), np.uint64)
    for start in range(0, len(numbers), CHUNK):
        some = slice(start, start + CHUNK)
        for column, name in enumerate(names):
            digests[some, column] = _digests(examples.texts(name, numbers[some]))
    _, first, kinds = np.unique(digests.ravel(), return_index=True, return_inverse=True)
    return first[kinds]


def _digests(texts: TokenIds) -> np.ndarray:
    """Return uint64 `[texts]`: sums of hashes of the tokens with their positions and the length."""
    splits = texts.row_splits.astype(np.int64)
    places = np.arange(len(texts.flat)) - np.repeat(splits[:-1], np.diff(splits))
    tokens = (places.astype(np.uint64) << np.uint64(32)) + texts.flat.astype(np.uint64)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(scattered(tokens), dtype=np.uint64)])
    of_texts = sums[splits[1:]] - sums[splits[:-1]]
    return scattered(of_texts + scattered(np.diff(splits).astype(np.uint64)))
