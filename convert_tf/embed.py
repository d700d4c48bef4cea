"""Encodes the lines of a file with an exported model.

```
python -m convert_tf.embed --module hub_modules/convert/1 --input texts.txt --output vectors.npy
zcat texts.gz | python -m convert_tf.embed --module hub_modules/convert/1 --input - \
    --kind response --dtype float16 --output vectors.npy
```

Row i of the array is line i of the file, empty lines included. Files of any size stream through.
"""

import contextlib
import io
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
from absl import app, flags

from convert_tf.backend import COMPUTE_DTYPES
from convert_tf.candidate_writer import stored_vectors
from convert_tf.data.array_writer import GrowingArray
from convert_tf.data.dumps import MAX_LINE_BYTES, DumpStats, open_local
from convert_tf.data.progress import Progress
from convert_tf.data.streams import is_cut_off, open_decompressed
from convert_tf.files import FileWriteError
from convert_tf.sentence_encoder import BATCH_SIZE, OUTPUTS, SentenceEncoder

DTYPES = ("float32", "float16")
STANDARD_INPUT = "-"


class TextLines:
    """The lines of a UTF-8 file, empty ones included, without the ends of lines.

    Args:
      path: a `.gz`, `.zst`, `.bz2` or plain file; `"-"` for standard input, compressed or not.

    Attributes:
      total_bytes: of the file as it is; 0 when that is not known.
      bytes_done: how many of them were read.

    Raises:
      OSError: it cannot be opened.
      ValueError: while it is read: a line is no UTF-8 text or too long, or an archive is damaged.
    """

    def __init__(self, path: str):
        self._name = "standard input" if path == STANDARD_INPUT else path
        self._stats = DumpStats(path)
        self._plain_bytes = 0
        self._is_standard_input = path == STANDARD_INPUT
        self.total_bytes = 0 if self._is_standard_input else os.path.getsize(path)

    @property
    def bytes_done(self) -> int:
        is_plain = self._stats.kind in ("", "plain")
        return self._plain_bytes if is_plain else self._stats.compressed_bytes

    def __iter__(self) -> Iterator[str]:
        number = 0
        for number, line in enumerate(self._lines(), 1):
            self._plain_bytes += len(line)
            if len(line) > MAX_LINE_BYTES:
                raise self._unusable(number, f"longer than {MAX_LINE_BYTES:,} bytes")
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise self._unusable(number, str(error)) from error
            yield text.removesuffix("\n").removesuffix("\r")
        if is_cut_off(self._stats):
            raise self._unusable(number, "the archive is truncated or damaged there")

    def _lines(self) -> Iterator[bytes]:
        def open_file(path: str) -> io.BufferedReader:
            return sys.stdin.buffer if self._is_standard_input else open_local(path)  # type: ignore[return-value]

        with open_decompressed(self._stats.path, self._stats, open_file) as file:
            while line := file.readline(MAX_LINE_BYTES + 1):
                yield line

    def _unusable(self, number: int, reason: str) -> ValueError:
        return ValueError(
            "Texts are the lines of a UTF-8 file, compressed or not. "
            f"Received: {self._name}, line {number:,} ({reason}). Repair or convert the file."
        )


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
    path = os.fspath(path)
    temporary = f"{path}.tmp-{os.getpid()}"
    iterator = iter(pieces)
    first = next(iterator)
    with _writing(path):
        array = GrowingArray(temporary, dtype, row_shape=first.shape[1:])
    try:
        for piece in chain([first], iterator):
            stored, _ = stored_vectors(piece, dtype)
            with _writing(path):
                array.append(stored)
        with _writing(path):
            array.close()
            os.replace(temporary, path)
    finally:
        array.abort()
        with contextlib.suppress(OSError):
            os.remove(temporary)
    return array.size, first.shape[1]


@contextlib.contextmanager
def _writing(path: str) -> Iterator[None]:
    """Says which file an error of the disk is about."""
    try:
        yield
    except OSError as error:
        raise FileWriteError(error.errno, error.strerror or str(error), path) from error


def embed(
    module: str,
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
      module: folder of a module, or an `.onnx` file.
      lines: the texts.
      output: the file.
      kind: `"sentence"`, `"context"` or `"response"`.
      batch_size: most texts of a batch.
      compute_dtype: as in `SentenceEncoder`.
      dtype: of the vectors in the file, `"float32"` or `"float16"`.

    Returns:
      The shape of the array.

    Raises:
      ValueError: the module is none or lacks the signature, or a line is no text.
      OSError: a file cannot be read or written.
    """
    encoder = SentenceEncoder(module, batch_size=batch_size, compute_dtype=compute_dtype)

    def pieces() -> Iterator[np.ndarray]:
        with Progress("lines", total_bytes=lines.total_bytes) as progress:
            for piece in encoder.iter_encode(iter(lines), kind=kind):
                yield piece
                progress.add(len(piece), bytes_done=lines.bytes_done)

    return write_vectors(output, pieces(), dtype=dtype)


def _define_flags() -> None:
    flags.DEFINE_string("module", None, "Module that export.py wrote, or an .onnx file.",
                        required=True)  # fmt: skip
    flags.DEFINE_string("input", None, "Text file, compressed or not, a text a line; - for "
                        "standard input.", required=True)  # fmt: skip
    flags.DEFINE_string("output", None, "The .npy file.", required=True)
    flags.DEFINE_enum("kind", "sentence", [*OUTPUTS], "sentence: r; context, response: h.")
    flags.DEFINE_integer("batch_size", BATCH_SIZE, "Most texts of a batch.", lower_bound=1)
    flags.DEFINE_enum("compute_dtype", "auto", COMPUTE_DTYPES, "Of the network; auto: bfloat16 "
                      "where this machine is faster in it.")  # fmt: skip
    flags.DEFINE_enum("dtype", "float32", DTYPES, "Of the vectors in the file.")
    flags.DEFINE_bool("overwrite", False, "Whether a file of that name is replaced.")


def _run(argv: Sequence[str]) -> None:
    values = flags.FLAGS
    if len(argv) > 1:
        raise app.UsageError(f"Flags are given as --name=value. Received: {argv[1:]}.")
    started = time.monotonic()
    try:
        if os.path.exists(values.output) and not values.overwrite:
            raise ValueError(
                f"A file that is there is kept. Received: {values.output!r}. Pass --overwrite, or "
                "choose another --output."
            )
        rows, dim = embed(
            values.module,
            TextLines(values.input),
            values.output,
            kind=values.kind,
            batch_size=values.batch_size,
            compute_dtype=values.compute_dtype,
            dtype=values.dtype,
        )
    except (ValueError, OSError) as error:
        sys.exit(f"embed: {' '.join(str(error).split())}")
    seconds = time.monotonic() - started
    print(f"wrote {values.output}: {rows:,} × {dim} {values.dtype}, in {seconds:.1f} s")


if __name__ == "__main__":
    _define_flags()
    app.run(_run)
