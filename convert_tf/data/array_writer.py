"""Writing token ids as `convert_tf.data.arrays` reads them, in little memory."""

import contextlib
import hashlib
import io
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from convert_tf.data.arrays import (
    FACTS_FILE,
    FORMAT_VERSION,
    SOURCES_DTYPE,
    dtype_of_ids,
    ids_file,
    is_array_folder,
    offsets_file,
    sources_file,
)
from convert_tf.data.packing import TokenIds
from convert_tf.files import write_file

_VOCABULARY_FILES = {"subword": "vocab.txt", "sentencepiece": "vocab.model"}
_FILE_NAME = re.compile(
    "|".join([r"\w+-(\w+-ids|\w+-offsets|sources)\.npy", *_VOCABULARY_FILES.values(), FACTS_FILE])
)

TextsAndSources: TypeAlias = tuple[Sequence[TokenIds], Sequence[bytes]]  # of a batch of examples


class GrowingArray:
    """A `.npy` file that is written piece by piece.

    Args:
      path: the file.
      dtype: of its values.
      row_shape: of one entry of the array; `()` for an array of one dimension.

    Attributes:
      size: entries so far.
    """

    def __init__(
        self, path: str | os.PathLike[str], dtype: str, *, row_shape: tuple[int, ...] = ()
    ):
        self._dtype = np.dtype(dtype)
        self._row_shape = row_shape
        self.size = 0
        self._file: BinaryIO = open(path, "wb")  # noqa: SIM115 (closed by close)
        self._file.write(self._header())

    def append(self, values: np.ndarray) -> None:
        """Writes more entries, converted to the array's type."""
        self._file.write(values.astype(self._dtype, copy=False).tobytes())
        self.size += len(values)

    def close(self) -> None:
        """Writes the number of entries where it belongs, and everything to the disk."""
        with self._file as file:
            file.seek(0)
            file.write(self._header())
            file.flush()
            os.fsync(file.fileno())

    def abort(self) -> None:
        """Gives the file up."""
        with contextlib.suppress(OSError):  # of a full disk, which was reported already
            self._file.close()

    def _header(self) -> bytes:
        # Its length is the same for all sizes: it is padded to a multiple of 64 bytes, with room
        # for any number.
        header = io.BytesIO()
        shape = (self.size, *self._row_shape)
        description = {"descr": self._dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(header, description)
        return header.getvalue()


class ArrayFolderWriter:
    """Writes a folder of token ids.

    Args:
      folder: where; it must exist.
      tokenizer: a tokenizer of `convert_tf.text`, of which the attributes and the file are read.
      max_tokens: tokens that texts are cut to.
    """

    def __init__(self, folder: str, tokenizer: Any, *, max_tokens: int):
        self._folder = Path(folder)
        self._dtype = dtype_of_ids(tokenizer.padding_id)
        vocabulary = Path(tokenizer.path).read_bytes()
        name = _VOCABULARY_FILES[tokenizer.name]
        write_file(self._folder / name, vocabulary)
        self._facts: dict[str, Any] = {
            "version": FORMAT_VERSION,
            "tokenizer": tokenizer.name,
            "vocab_size": tokenizer.vocab_size,
            "num_oov_buckets": tokenizer.num_oov_buckets,
            "padding_id": tokenizer.padding_id,
            "max_tokens": max_tokens,
            "dtype": self._dtype,
            "vocabulary": name,
            "vocabulary_sha256": hashlib.sha256(vocabulary).hexdigest(),
            "splits": {},
        }
        self._source_places: dict[str, int] = {}

    def write_split(
        self,
        split: str,
        names: Sequence[str],
        batches: Iterator[TextsAndSources],
    ) -> None:
        """Writes the texts of a split and where they are from.

        Args:
          split: its name.
          names: what the texts are.
          batches: for each name some texts, equally many, and the source of each example, in
            the order of the examples.
        """
        files: dict[str, tuple[GrowingArray, GrowingArray]] = {}
        arrays: list[GrowingArray] = []

        def new(file: str, dtype: str) -> GrowingArray:
            arrays.append(GrowingArray(self._folder / file, dtype))
            return arrays[-1]

        try:
            sources = new(sources_file(split), SOURCES_DTYPE)
            for name in names:
                offsets = new(offsets_file(split, name), "int64")
                files[name] = new(ids_file(split, name), self._dtype), offsets
                offsets.append(np.zeros(1, np.int64))
            for batch, own_sources in batches:
                known = self._source_places
                names_of = [source.decode("utf-8", "replace") for source in own_sources]
                sources.append(np.array([known.setdefault(n, len(known)) for n in names_of]))
                for name, texts in zip(names, batch, strict=True):
                    ids, offsets = files[name]
                    offsets.append(ids.size + texts.row_splits[1:].astype(np.int64))
                    ids.append(texts.flat)
            for array in arrays:
                array.close()
        finally:
            for array in arrays:
                array.abort()
        self._facts["splits"][split] = {
            "examples": files[names[0]][1].size - 1,
            "tokens": {name: ids.size for name, (ids, _) in files.items()},
        }

    def finish(self) -> dict[str, Any]:
        """Writes `arrays.json`, without which the folder is none; returns what it says."""
        self._facts["sources"] = list(self._source_places)
        write_file(self._folder / FACTS_FILE, json.dumps(self._facts, indent=2) + "\n")
        return self._facts


def array_files(folder: str) -> list[str]:
    """The files of a folder of token ids; last `arrays.json`, without which it is none."""
    if not is_array_folder(folder):
        return []
    names = [name for name in os.listdir(folder) if _FILE_NAME.fullmatch(name)]
    names.sort(key=lambda name: (name == FACTS_FILE, name))
    return [os.path.join(folder, name) for name in names]


def check_output(output: str, *, overwrite: bool) -> None:
    """Raises `ValueError` unless token ids may be written to a folder.

    Args:
      output: a folder that is not there, is empty, or holds token ids.
      overwrite: whether token ids that are there may be replaced.
    """
    if is_array_folder(output):
        if not overwrite:
            raise ValueError(
                f"Token ids that are there are kept. Received: {output!r}, which holds some. Pass "
                "--overwrite, or choose another --output."
            )
    elif os.path.isdir(output) and any(not name.startswith(".") for name in os.listdir(output)):
        raise ValueError(
            "Token ids are written to a folder of their own. Received: "
            f"{output!r}, which holds something else. Choose another --output, or empty it."
        )
