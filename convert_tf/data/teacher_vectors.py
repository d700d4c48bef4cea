"""Vectors of a teacher on disk: what another encoder makes of the texts that are trained on.

A folder that `convert-tf teach` wrote holds

- `teacher.json`: the `version` of the format, the `teacher`, the `dim` and `dtype` of its vectors,
  and of each of the `splits` its number of `examples`, how many of them are `taught`, the first
  ones, or those that a run with `source_shares` draws of the first `of_first`, and the SHA-256 of
  the token ids of their texts (`texts_sha256`); where contexts and responses were encoded each in
  their way, `has_sides`; where several teachers are joined in pairs of some sources alone,
  `joined_sources`; with shares or these, of each split the SHA-256 of its examples' sources
  (`sources_sha256`);
- for each split and each of `context` and `response`, or of single texts `text`,
  `{split}-{name}-vectors.npy`, float16 `[examples, dim]`, of length 1, in the order of the token
  ids; zeros where there is no vector. Those of several teachers are joined to one, or where the
  first is alone followed by zeros;
- `subword-vectors.npy`, float16 `[vocab_size, dim]`: each entry of the vocabulary, read as a text.
"""

import os

import numpy as np

from convert_tf.data.schema import PAIR, Examples
from convert_tf.data.token_arrays import ArrayExamples
from convert_tf.storage.mapped import FolderFormat, MappedFile

FACTS_FILE = "teacher.json"
FORMAT_VERSION = 1
DTYPE = "float16"
SUBWORDS_FILE = "subword-vectors.npy"
_AGAIN = "Write it again with `convert-tf teach`."
_FORMAT = FolderFormat(
    what="folder of teacher vectors",
    facts_file=FACTS_FILE,
    version=FORMAT_VERSION,
    kinds={"teacher": str, "dim": int, "dtype": str, "splits": dict},
    dtypes=(DTYPE,),
    remedy=_AGAIN,
)


def vectors_file(split: str, name: str) -> str:
    """File name of the vectors of one kind of text."""
    return f"{split}-{name}-vectors.npy"


def taught_names(examples: Examples) -> tuple[str, ...]:
    """Return the names of the texts that have vectors: contexts and responses, or single texts."""
    return tuple(name for name in examples.names if name in (*PAIR, "text"))


class TeacherVectors:
    """The vectors of a teacher for a split of token ids.

    Args:
      folder: folder that `convert-tf teach` wrote.
      split: which examples.
      examples: their token ids.
      vocab_size: entries of their vocabulary.
      prefix: of the names of columns.
      of_ranking: whether vectors of which a text may have two are taken.

    Attributes:
      teacher: its name.
      dim: width of its vectors.
      joined_sources: sources in which several teachers are joined, where not in all.
      numbers: int64 `[taught]`, the examples that have vectors, rising.

    Raises:
      ValueError: the folder is incomplete, damaged, or of other token ids, or a text has two
        vectors in it where one is wanted.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        split: str,
        examples: ArrayExamples,
        *,
        vocab_size: int,
        prefix: str = "teacher",
        of_ranking: bool = False,
    ):
        facts = _FORMAT.facts(folder)
        if not of_ranking and (facts.get("has_sides") or "joined_sources" in facts):
            two = "one as a context and another as a response"
            if not facts.get("has_sides"):
                two = "one of all teachers and, in another source, one of the first"
            raise ValueError(
                f"Each text in {str(folder)!r} has two vectors, {two}, and --teacher needs one. "
                "Pass the folder as --ranking_teacher, or write vectors with `convert-tf teach` "
                "without --sides and --joined_sources."
            )
        self.teacher: str = facts["teacher"]
        self.dim: int = facts["dim"]
        self.joined_sources: list[str] = facts.get("joined_sources", [])
        own = facts["splits"].get(split) or {}
        found = own.get("examples"), own.get("texts_sha256")
        shares = own.get("source_shares")
        counts = ["taught", *(["of_first"] if shares else [])]
        is_complete = all(isinstance(own.get(name), int) for name in counts)
        names = taught_names(examples)
        if not is_complete or found != (examples.num_examples, examples.checksum(names)):
            raise ValueError(
                f"The vectors in {str(folder)!r} belong to other texts than {split} of these token "
                f"ids, or there are none for {split}. {_AGAIN}"
            )
        self.numbers = np.arange(own["taught"])
        if shares:
            found_sources = own.get("sources_sha256")
            if found_sources != examples.sources_checksum():
                which = "of other sources" if found_sources else "not known of which sources"
                raise ValueError(
                    f"The vectors in {str(folder)!r} belong to other sources than these token ids: "
                    f"the shares of {split} are {which}. {_AGAIN}"
                )
            self.numbers = examples.thinned(shares, 0, own["of_first"])

        def mapped(name: str, rows: int) -> MappedFile:
            return _FORMAT.mapped(folder, name, DTYPE, (rows, self.dim))

        self._subwords = mapped(SUBWORDS_FILE, vocab_size)
        self._vectors = {
            f"{prefix}_{name}": mapped(vectors_file(split, name), examples.num_examples)
            for name in names
        }

    @property
    def subwords(self) -> np.ndarray:
        """The teacher's vectors of the entries of the vocabulary, float32 `[vocab_size, dim]`."""
        return self._subwords.checked().astype(np.float32)

    def columns(self, examples: np.ndarray) -> dict[str, np.ndarray]:
        """`teacher_context` and `teacher_response` of examples, or `teacher_text`; by the prefix.

        Args:
          examples: int64 `[batch]`, their numbers.

        Returns:
          float16 `[batch, dim]` each: half the memory to move, and the losses are in float32.

        Raises:
          ValueError: a file became shorter.
        """
        return {name: own.checked()[examples] for name, own in self._vectors.items()}
