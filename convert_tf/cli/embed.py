r"""Encodes the lines of a file.

```
convert-tf embed --input texts.txt --output vectors.npy
zcat texts.gz | convert-tf embed --encoder convert --input - \
    --kind response --dtype float16 --output vectors.npy
```

Row i of the array is line i of the file, empty lines included. Files of any size stream through.

`--engine=spark` encodes on a Spark cluster with an `.onnx` file and writes the same array. It needs
the extra `[spark]` and Java. All machines must see the encoder and the output under the same path.
A run that was stopped goes on when the same command starts again.
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
    """Writes vectors as an `.npy` file, which appears whole or not at all.

    Args:
      path: the file; one that is there is replaced.
      pieces: float `[some, dim]`, one at least; each is written before the next is asked for.
      dtype: `"float32"` or `"float16"`.

    Returns:
      The shape of the array.

    Raises:
      ValueError: a vector is no number, or too large for `dtype`.
      FileWriteError: it could not be written; what was at `path` is as it was.
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
    """Encodes lines and writes an `.npy` file, with a line of progress on standard error.

    Args:
      encoder: folder of a run or of a module, or an `.onnx` file.
      lines: the texts.
      output: the file.
      kind: one of `SIGNATURES`.
      batch_size: most texts of a batch.
      compute_dtype: as in `SentenceEncoder`.
      dtype: of the vectors in the file, `"float32"` or `"float16"`.

    Returns:
      The shape of the array.

    Raises:
      ValueError: the encoder is none or lacks the signature, or a line is no text.
      OSError: a file cannot be read or written.
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
    """As `embed`, by the workers of a cluster."""
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
    define("input", NEEDED, "Text file, compressed or not, a text a line; - for standard input.")
    define("output", NEEDED, "The .npy file.")
    define(
        "kind",
        "sentence",
        "sentence: for classifiers; context, response: h; similarity: of length 1, both texts in "
        "one space.",
        choices=[*SIGNATURES],
    )
    define(
        "engine",
        "local",
        "local: on this machine. spark: on a cluster.",
        choices=["local", "spark"],
    )
    define_master(define)
    define("batch_size", BATCH_SIZE, "Most texts of a batch.", lower_bound=1)
    define(
        "compute_dtype",
        "auto",
        "Of the network; auto: bfloat16 where this machine is faster in it.",
        choices=COMPUTE_DTYPES,
    )
    define("dtype", "float32", "Of the vectors in the file.", choices=DTYPES)
    define("overwrite", False, "Whether a file of that name is replaced.")


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
