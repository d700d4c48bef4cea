"""Encode texts on a Spark cluster, for `embed --engine=spark`.

The driver writes the texts in parts to a disk that all machines share. Each task encodes a part and
writes its vectors to a file, which appears only when it is complete. The name of a part is a
checksum of its texts and of everything that its vectors depend on. So an interrupted run resumes
with the next part, and parts of other encoders or texts are never used.
"""

import itertools
import os
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.corpora.spark.cluster import check_workers, cluster
from convert_tf.encoding.backends.onnx import OnnxBackend
from convert_tf.encoding.sentence_encoder import SentenceEncoder
from convert_tf.encoding.text_batches import text_bytes, windows
from convert_tf.storage.checksums import checksum, file_checksum
from convert_tf.storage.files import whole_file, write_file

# Parts end where windows end, so that the bytes are the same as on one core.
_WINDOWS_IN_PART = 4
_TASKS_PER_CORE = 8  # so that a slow worker gets fewer parts than a fast one


def _encode_parts(
    parts: Iterable[str], *, encoder: str, kind: str, batch_size: int, dtype: str
) -> Iterator[None]:
    """Task of a worker: encode parts and write their vectors.

    Args:
      parts: paths of the parts, without suffix.
      encoder: an `.onnx` file.
      kind, batch_size: as in `SentenceEncoder`.
      dtype: number format of the vectors.
    """
    # Spark runs one task per core.
    opened = SentenceEncoder(OnnxBackend(encoder, num_threads=1), batch_size=batch_size)
    for part in map(Path, parts):
        vectors = part.with_suffix(".npy")
        if not vectors.exists():  # an earlier attempt may have written it
            texts = part.with_suffix(".txt").read_bytes().split(b"\n")[:-1]
            encodings = np.concatenate([*opened.iter_encode(iter(texts), kind=kind)])
            with whole_file(vectors) as temporary, open(temporary, "wb") as file:
                np.save(file, encodings.astype(dtype))
    return iter(())


def encode_on_spark(
    encoder: str,
    texts: Iterable[str],
    folder: str,
    *,
    master: str,
    kind: str,
    batch_size: int,
    dtype: str,
) -> Iterator[np.ndarray]:
    """Encode texts on the workers of a Spark cluster, which do not need TensorFlow.

    Args:
      encoder: an `.onnx` file, with the same path on all machines.
      texts: any number of texts. They are read once.
      folder: folder for the parts, on a disk that all machines share. Parts of an earlier run are
        not encoded again.
      master: address of the cluster, as Spark's `--master`.
      kind, batch_size: as in `SentenceEncoder`.
      dtype: `"float32"` or `"float16"`.

    Yields:
      `[some, dim]`, in the order of the texts. The first array is empty, `[0, dim]`.

    Raises:
      ValueError: if the encoder is not an `.onnx` file, or as in `SentenceEncoder.iter_encode`.
      OSError: if the cluster cannot be used, or a file cannot be read or written.
    """
    if kind_of(encoder) is not Kind.ONNX:
        raise ValueError(
            f"--engine=spark needs an encoder in an .onnx file. Received: {encoder!r}. Write the "
            "file with convert-tf export --encoder … --output model.onnx."
        )
    encoder = os.path.abspath(encoder)
    yield from SentenceEncoder(encoder).iter_encode([], kind=kind)
    os.makedirs(folder, exist_ok=True)
    facts = f"{file_checksum(encoder)} {kind} {batch_size} {dtype}\n"
    names = _written_parts(texts, Path(folder).absolute(), facts, batch_size)
    missing = [name for name in dict.fromkeys(names) if not os.path.exists(f"{name}.npy")]
    if len(missing) < len(names):
        print(f"{len(names) - len(missing)} of {len(names)} parts are encoded", file=sys.stderr)
    if missing:
        with cluster(master) as context:
            encode = partial(
                _encode_parts, encoder=encoder, kind=kind, batch_size=batch_size, dtype=dtype
            )
            check_workers(context, folder, [encoder], libraries=["onnxruntime"])
            num_tasks = min(len(missing), _TASKS_PER_CORE * context.defaultParallelism)
            context.parallelize(missing, num_tasks).mapPartitions(encode).collect()
    for name in names:
        yield np.load(f"{name}.npy")


def _written_parts(texts: Iterable[str], folder: Path, facts: str, batch_size: int) -> list[str]:
    """Write the texts of parts without vectors. Return the paths of all parts, without suffix.

    Args:
      texts, batch_size: as in `encode_on_spark`.
      folder: folder of the parts.
      facts: everything besides the texts that the vectors depend on.
    """
    pieces = windows([text_bytes(texts)], batch_size=batch_size)
    names = []
    while part := list(itertools.islice(pieces, _WINDOWS_IN_PART)):
        content = b"".join(text + b"\n" for (column,) in part for text in column)
        path = folder / checksum([facts.encode(), content])
        if not path.with_suffix(".npy").exists():
            write_file(path.with_suffix(".txt"), content)
        names.append(str(path))
    return names
