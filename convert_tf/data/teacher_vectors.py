"""Vectors of a teacher on disk: what another encoder makes of the texts that are trained on.

A folder that `python -m convert_tf.data.teach` wrote holds

- `teacher.json`: the `version` of the format, the `teacher`, the `dim` and `dtype` of its vectors,
  the SHA-256 of the vocabulary of the token ids that it goes with, and the examples of each split;
- for each split and each of `context` and `response` `{split}-{name}-vectors.npy`, float16
  `[examples, dim]`, of length 1, in the order of the token ids; zeros where there is no vector;
- `subword-vectors.npy`, float16 `[vocab_size, dim]`: each entry of the vocabulary, read as a text.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np

from convert_tf.data.batches import PAIR
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
    "vocabulary_sha256": str,
    "splits": dict,
}


def vectors_file(split: str, name: str) -> str:
    """File name of the vectors of one kind of text."""
    return f"{split}-{name}-vectors.npy"


class TeacherVectors:
    """What a teacher makes of a split of token ids.

    The arrays stay on disk, mapped.

    Args:
      folder: folder that `convert_tf.data.teach` wrote.
      split: which examples.
      num_examples: how many the token ids have.
      vocabulary_sha256: of the vocabulary of the token ids.

    Attributes:
      teacher: its name.
      dim: width of its vectors.
      subwords: float32 `[vocab_size, dim]`: its vectors of the entries of the vocabulary.

    Raises:
      ValueError: the folder is incomplete, damaged, or of other token ids.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        split: str,
        *,
        num_examples: int,
        vocabulary_sha256: str,
    ):
        facts = read_facts(
            Path(folder) / FACTS_FILE,
            what="folder of teacher vectors",
            version=FORMAT_VERSION,
            kinds=_FACTS,
            dtypes=(DTYPE,),
            remedy=_AGAIN,
        )
        self.folder = folder
        self.teacher: str = facts["teacher"]
        self.dim: int = facts["dim"]
        if (
            facts["splits"].get(split) != num_examples
            or facts["vocabulary_sha256"] != vocabulary_sha256
        ):
            raise ValueError(
                "Teacher vectors must be those of the token ids that are trained on. Received: "
                f"{str(folder)!r} with {facts['splits'].get(split)} examples of {split}, for "
                f"{num_examples} of them, or made with another vocabulary. {_AGAIN}"
            )
        self._vectors = {
            f"teacher_{name}": self._mapped(vectors_file(split, name), num_examples)
            for name in PAIR
        }

    @property
    def subwords(self) -> np.ndarray:
        return np.asarray(self._mapped(SUBWORDS_FILE, None), np.float32)

    def columns(self, examples: np.ndarray) -> dict[str, np.ndarray]:
        """`teacher_context` and `teacher_response` of examples.

        Args:
          examples: int64 `[batch]`, their numbers.

        Returns:
          float32 `[batch, dim]` each.
        """
        return {name: own[examples].astype(np.float32) for name, own in self._vectors.items()}

    def _mapped(self, name: str, rows: int | None) -> Any:
        path = Path(self.folder) / name
        try:
            array = np.load(path, mmap_mode="r")
        except (OSError, ValueError, EOFError) as error:
            raise ValueError(
                f"A folder of teacher vectors must be whole. Received: {path} ({error}). {_AGAIN}"
            ) from error
        expected = (array.shape[0] if rows is None else rows, self.dim)
        if array.dtype != DTYPE or array.shape != expected:
            raise ValueError(
                f"{name} must be {DTYPE} of shape {expected}. Received: {array.dtype} of shape "
                f"{array.shape} in {path}. {_AGAIN}"
            )
        return array
