"""Teacher vectors on disk: encodings of the training texts, made by another encoder.

A folder written by `convert-tf teach` contains

- `teacher.json`: the `version` of the format, the name of the `teacher`, and the `dim` and `dtype`
  of its vectors. `splits` describes the split `train`: the number of `examples`, the number of
  `taught` examples (those with vectors), and the SHA-256 of the texts' token ids (`texts_sha256`).
  The taught examples are the first ones of the split. With `source_shares`, they are the examples
  that a run with these shares draws from the first `of_first` examples, and `sources_sha256` is the
  SHA-256 of the sources. `has_sides` is true if contexts and responses were encoded differently;
- `train-{name}-vectors.npy` for `context` and `response`, or for `text` in folders of single texts:
  float16 `[examples, dim]`, normalised to length 1, in the order of the token ids; zeros for
  examples without a vector. The vectors of several teachers are concatenated;
- `subword-vectors.npy`, float16 `[vocab_size, dim]`: the encoding of each vocabulary entry as a
  text.
"""

import os
from typing import Any

import numpy as np

from convert_tf.data.schema import PAIR, Examples
from convert_tf.data.token_arrays import ArrayExamples
from convert_tf.storage.arrays import FolderFormat, MappedFile

DTYPE = "float16"
SUBWORDS_FILE = "subword-vectors.npy"
EVERY_SUBWORD = 64  # every 64th subword's vector is compared to see if two teachers are the same
_SAME_VECTORS = 0.02  # absolute tolerance, because bfloat16 results depend on the machine
_SAMPLE_SIZE = 64
FORMAT = FolderFormat(
    what="folder of teacher vectors",
    facts_file="teacher.json",
    kinds={"teacher": str, "dim": int, "splits": dict},
    dtypes=(DTYPE,),
    remedy="Write it again with `convert-tf teach`.",
)


def vectors_file(name: str) -> str:
    """Return the name of the file with the vectors for one kind of text."""
    return f"train-{name}-vectors.npy"


def taught_names(examples: Examples) -> tuple[str, ...]:
    """Return which texts of the examples get vectors: context and response, or single texts."""
    return tuple(name for name in examples.names if name in (*PAIR, "text"))


def are_same_vectors(vectors: Any, others: Any) -> bool:
    """Return whether two arrays of teacher vectors are equal except for rounding errors."""
    is_same_shape = np.shape(vectors) == np.shape(others)
    return is_same_shape and np.allclose(vectors, others, atol=_SAME_VECTORS)


class TeacherVectors:
    """A teacher's vectors for the training examples, to add to batches.

    Args:
      folder: folder written by `convert-tf teach`.
      examples: the token ids of the training examples.
      vocab_size: number of vocabulary entries.
      flag: the flag that the user passed the folder with, `teacher` or `ranking_teacher`. Column
        names begin with this flag. With `ranking_teacher`, a text may have two vectors, one as a
        context and one as a response.

    Attributes:
      teacher: name of the teacher.
      dim: dimension of the vectors.
      numbers: int64 `[taught]`, the numbers of the examples that have vectors, ascending.

    Raises:
      ValueError: if the folder is incomplete or damaged, belongs to other token ids, or has two
        vectors for a text although the flag is `teacher`.
    """

    names: tuple[str, ...] = ()

    def __init__(
        self,
        folder: str | os.PathLike[str],
        examples: ArrayExamples,
        *,
        vocab_size: int,
        flag: str = "teacher",
    ) -> None:
        facts = FORMAT.facts(folder)
        if flag == "teacher" and facts.get("has_sides"):
            raise ValueError(
                f"A text in {str(folder)!r} may have one vector as a context and another as a "
                "response, but --teacher needs a single vector per text. Pass the folder as "
                "--ranking_teacher, or write vectors with `convert-tf teach` without --sides."
            )
        if "joined_sources" in facts:
            raise ValueError(
                f"{str(folder)!r} was written by an earlier version, with two teachers for some "
                f"texts. {FORMAT.remedy}"
            )
        self.teacher: str = facts["teacher"]
        self.dim: int = facts["dim"]
        split = facts["splits"].get("train")
        split = split if isinstance(split, dict) else {}
        names, shares = taught_names(examples), split.get("source_shares")
        expected = {"examples": examples.num_examples, "texts_sha256": examples.checksum(names)}
        if shares:
            expected["sources_sha256"] = examples.sources_checksum()
        needed = ("taught", "of_first") if shares else ("taught",)
        is_complete = all(isinstance(split.get(name), int) for name in needed)
        is_complete = is_complete and isinstance(shares, dict | None)
        if not is_complete or not expected.items() <= split.items():
            raise ValueError(
                f"The vectors in {str(folder)!r} belong to different texts or sources: they do "
                f"not match the train split of these token ids. {FORMAT.remedy}"
            )
        self.numbers = np.arange(split["taught"])
        if shares:
            self.numbers = examples.thinned(shares, 0, split["of_first"])

        def mapped(name: str, rows: int) -> MappedFile:
            return FORMAT.mapped(folder, name, DTYPE, (rows, self.dim))

        self._subwords = mapped(SUBWORDS_FILE, vocab_size)
        self._vectors = {
            f"{flag}_{name}": mapped(vectors_file(name), examples.num_examples) for name in names
        }

    @property
    def subwords(self) -> np.ndarray:
        """The vectors of the vocabulary entries, float32 `[vocab_size, dim]`."""
        return self._subwords.checked().astype(np.float32)

    @property
    def sample(self) -> list[float]:
        """A few numbers from the subword vectors, by which a later run recognises the teacher."""
        flat = self._subwords.checked().reshape(-1)
        # Places at equal distances could all be in a few columns.
        places = np.random.default_rng(0).integers(len(flat), size=_SAMPLE_SIZE)
        return [round(float(value), 4) for value in flat[places]]

    def is_same_teacher(self, other: "TeacherVectors") -> bool:
        """Return whether another folder's vectors come from the same teacher.

        Different teachers may have the same name, because names lack the version (`joined_name`)
        and a run can be trained further. So every 64th subword's vector is compared too.

        Args:
          other: teacher vectors for token ids with the same vocabulary.
        """
        if (self.teacher, self.dim) != (other.teacher, other.dim):
            return False
        some, others = (
            vectors._subwords.checked()[::EVERY_SUBWORD].astype(np.float32)
            for vectors in (self, other)
        )
        return are_same_vectors(some, others)

    def of_batch(
        self, numbers: np.ndarray, positions: np.ndarray, epochs: np.ndarray
    ) -> tuple[None, dict[str, np.ndarray]]:
        """Return the vectors for a batch; see `convert_tf.data.schema.Addition`."""
        return None, self.columns(numbers)

    def columns(self, examples: np.ndarray) -> dict[str, np.ndarray]:
        """Return the vectors for examples, as batch columns.

        Args:
          examples: int64 `[batch]`, numbers of examples.

        Returns:
          A dict of `{flag}_context` and `{flag}_response`, or of `{flag}_text` for single texts,
          float16 `[batch, dim]` each. Losses are computed in float32, but transferring float16
          arrays takes half the memory.

        Raises:
          ValueError: if a file was truncated.
        """
        return {name: file.checked()[examples] for name, file in self._vectors.items()}
