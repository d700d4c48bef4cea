"""Vectors of a teacher on disk: what another encoder makes of the texts that are trained on.

A folder that `python -m convert_tf.data.teach` wrote holds

- `teacher.json`: the `version` of the format, the `teacher`, the `dim` and `dtype` of its vectors,
  and of each of the `splits` its number of `examples`, how many of them are `taught`, the first
  ones, and the SHA-256 of the token ids of their texts (`texts_sha256`);
- for each split and each of `context` and `response` `{split}-{name}-vectors.npy`, float16
  `[examples, dim]`, of length 1, in the order of the token ids; zeros where there is no vector;
- `subword-vectors.npy`, float16 `[vocab_size, dim]`: each entry of the vocabulary, read as a text.
"""

import os
from pathlib import Path

import numpy as np

from convert_tf.data.arrays import ArrayExamples
from convert_tf.data.batches import PAIR
from convert_tf.data.mapped_file import MappedFile
from convert_tf.files import read_facts

FACTS_FILE = "teacher.json"
FORMAT_VERSION = 1
DTYPE = "float16"
SUBWORDS_FILE = "subword-vectors.npy"
_AGAIN = "Write it again with `python -m convert_tf.data.teach`."
_FACTS = {
    "teacher": str,
    "dim": int,
    "dtype": str,
    "splits": dict,
}


def vectors_file(split: str, name: str) -> str:
    """File name of the vectors of one kind of text."""
    return f"{split}-{name}-vectors.npy"


class TeacherVectors:
    """What a teacher makes of a split of token ids.

    Args:
      folder: folder that `convert_tf.data.teach` wrote.
      split: which examples.
      examples: their token ids.
      vocab_size: entries of their vocabulary.

    Attributes:
      teacher: its name.
      dim: width of its vectors.
      num_taught: how many examples have vectors, from the first on.

    Raises:
      ValueError: the folder is incomplete, damaged, or of other token ids.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        split: str,
        examples: ArrayExamples,
        *,
        vocab_size: int,
    ):
        facts = read_facts(
            Path(folder) / FACTS_FILE,
            what="folder of teacher vectors",
            version=FORMAT_VERSION,
            kinds=_FACTS,
            dtypes=(DTYPE,),
            remedy=_AGAIN,
        )
        self.teacher: str = facts["teacher"]
        self.dim: int = facts["dim"]
        own = facts["splits"].get(split) or {}
        found = own.get("examples"), own.get("texts_sha256")
        is_complete = isinstance(own.get("taught"), int)
        if not is_complete or found != (examples.num_examples, examples.checksum(PAIR)):
            raise ValueError(
                "Teacher vectors must be those of the token ids that are trained on. Received: "
                f"{str(folder)!r}, which has those of other texts than {split}, or none for "
                f"{split}. {_AGAIN}"
            )
        self.num_taught: int = own["taught"]

        def mapped(name: str, rows: int) -> MappedFile:
            return MappedFile(
                Path(folder) / name,
                DTYPE,
                (rows, self.dim),
                what="folder of teacher vectors",
                remedy=_AGAIN,
            )

        self._subwords = mapped(SUBWORDS_FILE, vocab_size)
        self._vectors = {
            f"teacher_{name}": mapped(vectors_file(split, name), examples.num_examples)
            for name in PAIR
        }

    @property
    def subwords(self) -> np.ndarray:
        """The teacher's vectors of the entries of the vocabulary, float32 `[vocab_size, dim]`."""
        return self._subwords.checked().astype(np.float32)

    def columns(self, examples: np.ndarray) -> dict[str, np.ndarray]:
        """`teacher_context` and `teacher_response` of examples.

        Args:
          examples: int64 `[batch]`, their numbers.

        Returns:
          float32 `[batch, dim]` each.

        Raises:
          ValueError: a file became shorter.
        """
        return {
            name: own.checked()[examples].astype(np.float32) for name, own in self._vectors.items()
        }
