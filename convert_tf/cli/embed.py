r"""Encode the texts of a file.

```
convert-tf embed --input texts.txt --output vectors.npy
zcat texts.gz | convert-tf embed --encoder convert --input - \
    --kind response --dtype float16 --output vectors.npy
```

Row i of the output array is the vector of line i in the input file. Empty lines get vectors too.
The input may also be a table with a column of texts, such as CSV, JSON lines or Parquet. It may be
larger than the machine's memory. `vectors.npy.json` records which encoder computed the vectors.

With `--engine=spark`, a Spark cluster encodes the texts and writes the same array. The encoder must
be an `.onnx` file, and Spark needs the extra `[spark]` and Java. The encoder and the output must
have the same paths on all machines. Run the same command again to resume an interrupted run.

Flags:
  input: Text file with one text per line, or a table with a column of texts; - for standard input.
  output: Array to write, x.npy.
  kind: Kind of vectors. sentence: for classifiers. reduced: r, the pooled output of the network.
    context, response: for ranking responses. similarity: vectors of length 1, for comparing texts.
  engine: local encodes on this machine, spark on a cluster.
  batch_size: Maximum number of texts per batch. From 256 up, a batch may have up to 512 texts on
    several cores.
  compute_dtype: Number format of the network. auto chooses bfloat16 if it is faster on this
    machine.
  dtype: Number format of the vectors in the file.
  overwrite: Replace an existing file.
"""

import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np

from convert_tf.checkpoints.identity import EncoderIdentity, identity_of
from convert_tf.cli.flags import DEFAULT_ENCODER, NEEDED, Define, check_read, define_encoder, same
from convert_tf.encoding.sentence_encoder import COMPUTE_DTYPES, SentenceEncoder
from convert_tf.encoding.signatures import SIGNATURES
from convert_tf.encoding.text_batches import BATCH_SIZE
from convert_tf.readers.columns import name_of_candidate, name_of_text
from convert_tf.readers.texts import Texts
from convert_tf.search.cache import stored_vectors
from convert_tf.storage.arrays import GrowingArray
from convert_tf.storage.checksums import file_checksum
from convert_tf.storage.files import check_replaceable, only_writer, whole_file, write_file, writing
from convert_tf.storage.json_text import json_file, written_json
from convert_tf.storage.progress import Progress

DESCRIPTION_SUFFIX = ".json"  # suffix of the description, which is a file next to the array
ARRAY_CHECKSUM = "array_sha256"  # key of the array's checksum in the description


def write_vectors(
    path: str | os.PathLike[str], pieces: Iterable[np.ndarray], *, dtype: str = "float32"
) -> tuple[int, int]:
    """Write vectors to an `.npy` file. The file appears only when it is complete.

    Args:
      path: the file to write. An existing file is replaced.
      pieces: at least one array, float `[texts, dim]`. Each array is written before the next is
        read.
      dtype: the number format in the file, `"float32"` or `"float16"`.

    Returns:
      The shape of the array.

    Raises:
      ValueError: if a vector is not finite, or too large for `dtype`.
      FileWriteError: if the file could not be written. An existing file is unchanged.
    """
    iterator = iter(pieces)
    first = next(iterator)
    with (
        whole_file(path, follows_links=True) as temporary,
        GrowingArray(temporary, dtype, row_shape=first.shape[1:]) as array,
    ):
        for piece in chain([first], iterator):
            stored, _ = stored_vectors(piece, dtype)
            with writing(path):
                array.append(stored)
        with writing(path):
            array.close()
    return array.size, first.shape[1]


def write_array(
    path: str,
    pieces: Iterable[np.ndarray],
    encoder: EncoderIdentity,
    *,
    kind: str,
    dtype: str = "float32",
    facts: Mapping[str, Any] | None = None,
) -> tuple[int, int]:
    """Write vectors as `write_vectors` does, and describe their encoder in a file next to them.

    The description contains the checksum of the array. If the process ends after it has written the
    array, the checksum shows that an older description does not belong to the new array.

    Args:
      path, pieces, dtype: as in `write_vectors`.
      encoder: the encoder that computed the vectors.
      kind: the kind of the vectors.
      facts: further entries of the description, JSON values by name.

    Returns:
      The shape of the array.

    Raises:
      ValueError, FileWriteError: as in `write_vectors`.
    """
    shape = write_vectors(path, pieces, dtype=dtype)
    described = {
        "encoder": encoder.to_json(),
        "kind": kind,
        "dtype": dtype,
        ARRAY_CHECKSUM: file_checksum(path),
        **(facts or {}),
    }
    write_file(f"{path}{DESCRIPTION_SUFFIX}", written_json(described))
    return shape


def check_array_replaceable(path: str, *, overwrite: bool) -> None:
    """Raise `ValueError` if an array or its description exists and may not be replaced."""
    check_replaceable(path, _is_array, overwrite=overwrite)
    check_replaceable(f"{path}{DESCRIPTION_SUFFIX}", _is_description, overwrite=overwrite)


def _local_vectors(values: Any, texts: Texts) -> Iterator[np.ndarray]:
    """Encode texts on this machine. Progress is shown on standard error."""
    encoder = SentenceEncoder(values.encoder, **same(values, "batch_size compute_dtype"))
    with Progress("lines", total_bytes=texts.total_bytes) as progress:
        for piece in encoder.iter_encode(iter(texts), kind=values.kind):
            yield piece
            progress.add(len(piece), bytes_done=texts.bytes_done)


def _is_array(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(6) == b"\x93NUMPY"


def _is_description(path: str) -> bool:
    try:
        described = json_file(path)
    except ValueError:
        return False
    return isinstance(described, dict) and {"encoder", "kind"} <= described.keys()


def define_flags(define: Define) -> None:
    define_encoder(define, DEFAULT_ENCODER)
    define("input", NEEDED)
    define("output", NEEDED)
    define("kind", "sentence", choices=[*SIGNATURES])
    define("engine", "local", choices=["local", "spark"])
    define("master", "local[*]")
    define("batch_size", BATCH_SIZE, lower_bound=1)
    define("compute_dtype", "auto", choices=COMPUTE_DTYPES)
    define("dtype", "float32", choices=["float32", "float16"])
    define("overwrite", False)


def run(values: Any) -> None:
    started = time.monotonic()
    check_array_replaceable(values.output, overwrite=values.overwrite)
    is_local = values.engine == "local"
    unread = "master" if is_local else "compute_dtype"
    check_read(values, {f"with --engine={values.engine}": [unread]})
    find = name_of_candidate if values.kind == "response" else name_of_text
    texts = Texts(values.input, find=find)
    with only_writer(values.output):
        if is_local:
            pieces = _local_vectors(values, texts)
        else:
            from convert_tf.encoding.spark import encode_on_spark

            folder, name = os.path.split(values.output)
            parts = os.path.join(folder, f".{name}.parts")
            options = same(values, "kind batch_size master dtype")
            pieces = encode_on_spark(values.encoder, texts, parts, **options)
        rows, dim = write_array(
            values.output, pieces, identity_of(values.encoder), **same(values, "kind dtype")
        )
        if not is_local:
            shutil.rmtree(parts)
    seconds = time.monotonic() - started
    print(f"wrote {values.output}: {rows:,} × {dim} {values.dtype}, in {seconds:.1f} s")
