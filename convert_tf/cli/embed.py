r"""Encode the lines of a file.

```
convert-tf embed --input texts.txt --output vectors.npy
zcat texts.gz | convert-tf embed --encoder convert --input - \
    --kind response --dtype float16 --output vectors.npy
```

Row i of the array is the vector of line i of the file. Empty lines have vectors too. The file may
be larger than the memory.

`--engine=spark` encodes on a Spark cluster with an `.onnx` file and writes the same array. It needs
the extra `[spark]` and Java. All machines must see the encoder and the output under the same path.
Run the same command again to resume an interrupted run.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np

from convert_tf.cli.flags import NEEDED, Define, check_read, define_encoder, define_master, same
from convert_tf.encoding.backends.protocol import COMPUTE_DTYPES
from convert_tf.encoding.sentence_encoder import BATCH_SIZE, SentenceEncoder
from convert_tf.encoding.signatures import SIGNATURES
from convert_tf.search.writing import stored_vectors
from convert_tf.storage.files import check_replaceable, only_writer, whole_file, writing
from convert_tf.storage.lines import TextLines
from convert_tf.storage.mapped import GrowingArray
from convert_tf.storage.progress import Progress

DTYPES = ("float32", "float16")
_ARRAY_START = b"\x93NUMPY"  # of an .npy file


def write_vectors(
    path: str | os.PathLike[str], pieces: Iterable[np.ndarray], *, dtype: str = "float32"
) -> tuple[int, int]:
    """Write vectors to an `.npy` file. The file appears only when it is complete.

    Args:
      path: the file. An existing one is replaced.
      pieces: at least one array, float `[texts, dim]`. Each is written before the next is read.
      dtype: `"float32"` or `"float16"`.

    Returns:
      The shape of the array.

    Raises:
      ValueError: if a vector is not finite, or too large for `dtype`.
      FileWriteError: if the file could not be written. An existing file is unchanged.
    """
    iterator = iter(pieces)
    first = next(iterator)
    with (
        whole_file(path) as temporary,
        GrowingArray(temporary, dtype, row_shape=first.shape[1:]) as array,
    ):
        for piece in chain([first], iterator):
            stored, _ = stored_vectors(piece, dtype)
            with writing(path):
                array.append(stored)
        with writing(path):
            array.close()
    return array.size, first.shape[1]


def embed(
    encoder: str,
    lines: TextLines,
    output: str,
    *,
    kind: str = "sentence",
    batch_size: int = BATCH_SIZE,
    compute_dtype: str = "auto",
    dtype: str = "float32",
) -> tuple[int, int]:
    """Encode lines and write an `.npy` file. Progress is shown on standard error.

    Args:
      encoder: anything that `SentenceEncoder` opens.
      lines: the texts.
      output: the file.
      kind: one of `SIGNATURES`.
      batch_size: largest number of texts in a batch.
      compute_dtype: as in `SentenceEncoder`.
      dtype: number format of the file, `"float32"` or `"float16"`.

    Returns:
      The shape of the array.

    Raises:
      ValueError: if the encoder cannot be opened or has no such vectors, or if a line is not text.
      OSError: if a file cannot be read or written.
    """
    opened = SentenceEncoder(encoder, batch_size=batch_size, compute_dtype=compute_dtype)

    def pieces() -> Iterator[np.ndarray]:
        with Progress("lines", total_bytes=lines.total_bytes) as progress:
            for piece in opened.iter_encode(iter(lines), kind=kind):
                yield piece
                progress.add(len(piece), bytes_done=lines.bytes_done)

    return write_vectors(output, pieces(), dtype=dtype)


def _embed_on_spark(
    encoder: str, lines: TextLines, output: str, *, dtype: str, **options: Any
) -> tuple[int, int]:
    """Do the work of `embed` on a Spark cluster."""
    from convert_tf.encoding.spark import encode_on_spark

    folder, name = os.path.split(output)
    parts = os.path.join(folder, f".{name}.parts")
    vectors = encode_on_spark(encoder, lines, parts, dtype=dtype, **options)
    shape = write_vectors(output, vectors, dtype=dtype)
    shutil.rmtree(parts)
    return shape


def _is_array(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(len(_ARRAY_START)) == _ARRAY_START


def define_flags(define: Define) -> None:
    define_encoder(define)
    define(
        "input",
        NEEDED,
        "Text file with one text per line, plain or compressed, or - for standard input.",
    )
    define("output", NEEDED, "Array to write, x.npy.")
    define(
        "kind",
        "sentence",
        "Kind of vectors. sentence: for classifiers. context, response: for ranking responses. "
        "similarity: for comparing texts, of length 1.",
        choices=[*SIGNATURES],
    )
    define(
        "engine",
        "local",
        "local runs on this machine, spark on a cluster.",
        choices=["local", "spark"],
    )
    define_master(define)
    define("batch_size", BATCH_SIZE, "Largest number of texts in a batch.", lower_bound=1)
    define(
        "compute_dtype",
        "auto",
        "Number format of the network. auto chooses bfloat16 if it is faster on this machine.",
        choices=COMPUTE_DTYPES,
    )
    define("dtype", "float32", "Number format of the vectors in the file.", choices=DTYPES)
    define("overwrite", False, "Replace an existing file.")


def run(values: Any) -> None:
    started = time.monotonic()
    check_replaceable(values.output, _is_array, overwrite=values.overwrite)
    write: Callable[..., tuple[int, int]] = embed
    read, unread = "compute_dtype", "master"
    if values.engine == "spark":
        write, read, unread = _embed_on_spark, "master", "compute_dtype"
    check_read(values, {f"with --engine={values.engine}": [unread]})
    with only_writer(values.output):
        rows, dim = write(
            values.encoder,
            TextLines(values.input),
            values.output,
            **same(values, f"kind batch_size dtype {read}"),
        )
    seconds = time.monotonic() - started
    print(f"wrote {values.output}: {rows:,} × {dim} {values.dtype}, in {seconds:.1f} s")
