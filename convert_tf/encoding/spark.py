"""Encode texts on a Spark cluster, for `embed --engine=spark`.

The driver writes the texts in parts to a disk that all machines share. Each task encodes a part and
writes the vectors atomically to a file. The name of a part is a checksum of its texts and of
everything else that the vectors depend on. An interrupted run can therefore continue with the next
part, and vectors from other encoders or texts are never used. A file of vectors ends with a
checksum of the vectors, so a damaged part is encoded again.
"""

import io
import itertools
import json
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
from convert_tf.storage.files import write_file
from convert_tf.storage.json_text import parsed_json

# Parts consist of whole windows, so that the vectors have the same bytes as on a single core.
_WINDOWS_IN_PART = 4
_TASKS_PER_CORE = 8  # with several tasks per core, a slow worker gets fewer parts than a fast one
_CHECKSUM_BYTES = 64
_TEXTS = ".jsonl"  # suffix of the texts of a part: a JSON string per line, as texts may have lines


def _encode_parts(
    parts: Iterable[str], *, encoder: str, facts: str, kind: str, batch_size: int, dtype: str
) -> Iterator[None]:
    """Encode parts and write their vectors, as a task on a worker.

    Args:
      parts: the paths of the parts, without their suffixes.
      encoder: the `.onnx` file of the encoder.
      facts: everything that the vectors depend on, except for the texts.
      kind, batch_size: as in `SentenceEncoder`.
      dtype: number format of the vectors.

    Raises:
      OSError: if the texts of a part are damaged.
    """
    # Spark runs one task per core.
    opened = SentenceEncoder(OnnxBackend(encoder, num_threads=1), batch_size=batch_size)
    for part in map(Path, parts):
        if _read_part(part) is None:  # an earlier attempt of this task may have written the part
            source = part.with_suffix(_TEXTS)
            content = source.read_bytes()
            if part.name != _part_name(facts, content):
                raise OSError(f"{source} is damaged. Run the same command again.")
            texts = map(parsed_json, content.splitlines())
            encodings = np.concatenate([*opened.iter_encode(texts, kind=kind)])
            _write_part(part, encodings.astype(dtype))
    return iter(())


def _part_name(facts: str, content: bytes) -> str:
    return checksum([facts.encode(), content])


def _write_part(part: Path, vectors: np.ndarray) -> None:
    """Write the vectors of a part and their checksum."""
    buffer = io.BytesIO()
    np.save(buffer, vectors)
    content = buffer.getvalue()
    write_file(part.with_suffix(".npy"), content + checksum([content]).encode())


def _read_part(part: Path) -> np.ndarray | None:
    """Return the vectors of a part; None if they are missing or damaged."""
    try:
        content = part.with_suffix(".npy").read_bytes()
    except FileNotFoundError:
        return None
    vectors, expected = content[:-_CHECKSUM_BYTES], content[-_CHECKSUM_BYTES:]
    if checksum([vectors]).encode() != expected:
        return None
    return np.load(io.BytesIO(vectors))


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
      encoder: the `.onnx` file of the encoder. It must have the same path on all machines.
      texts: any number of texts. They are read once.
      folder: the folder for the parts. It must be on a disk that all machines share. Parts from an
        earlier run are not encoded again.
      master: the address of the cluster, as in Spark's `--master`.
      kind, batch_size: as in `SentenceEncoder`.
      dtype: `"float32"` or `"float16"`.

    Yields:
      The vectors of some texts, `[some, dim]`, in the order of the texts. The first array is empty,
      `[0, dim]`.

    Raises:
      ValueError: if the encoder is not an `.onnx` file, or as in `SentenceEncoder.iter_encode`.
      OSError: if the cluster cannot be used, a file cannot be read or written, or a part was
        damaged after it was encoded. The next run encodes a damaged part again.
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
    names, missing = _written_parts(texts, Path(folder).absolute(), facts, batch_size)
    if len(missing) < len(names):
        print(f"{len(names) - len(missing)} of {len(names)} parts are encoded", file=sys.stderr)
    if missing:
        with cluster(master) as context:
            encode = partial(
                _encode_parts,
                encoder=encoder,
                facts=facts,
                kind=kind,
                batch_size=batch_size,
                dtype=dtype,
            )
            check_workers(context, folder, [encoder], libraries=["onnxruntime"])
            num_tasks = min(len(missing), _TASKS_PER_CORE * context.defaultParallelism)
            context.parallelize(missing, num_tasks).mapPartitions(encode).collect()
    for name in names:
        vectors = _read_part(Path(name))
        if vectors is None:
            raise OSError(
                f"{name}.npy was damaged or removed after it was encoded. Run the same command "
                "again: it encodes this part again and keeps all other parts."
            )
        yield vectors


def _written_parts(
    texts: Iterable[str], folder: Path, facts: str, batch_size: int
) -> tuple[list[str], list[str]]:
    """Write the texts of all parts whose vectors are missing or damaged.

    Args:
      texts, batch_size: as in `encode_on_spark`.
      folder: the folder of the parts.
      facts: everything that the vectors depend on, except for the texts.

    Returns:
      Two lists of paths without suffixes. The first contains all parts, in the order of the texts.
      The second contains the parts to encode, each only once.
    """
    pieces = windows([text_bytes(texts)], batch_size=batch_size)
    names: list[str] = []
    missing: dict[str, None] = {}
    while part := list(itertools.islice(pieces, _WINDOWS_IN_PART)):
        lines = (json.dumps(text.decode()) for (column,) in part for text in column)
        content = "".join(f"{line}\n" for line in lines).encode()
        path = folder / _part_name(facts, content)
        if _read_part(path) is None:
            write_file(path.with_suffix(_TEXTS), content)
            missing[str(path)] = None
        names.append(str(path))
    return names, [*missing]
