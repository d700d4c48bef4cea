"""Backend of `SentenceEncoder` for `.onnx` files, without TensorFlow.

It needs `onnxruntime` and `numpy`. `convert-tf export --output model.onnx` writes such files, which
contain the vocabulary.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from convert_tf.encoding.backends.onnx_inputs import graph_inputs, no_texts, pieces, sorted_rows
from convert_tf.encoding.backends.onnx_sessions import Sessions, checked_number
from convert_tf.encoding.backends.pickling import OpenedFromPath
from convert_tf.encoding.signatures import BY_NAME
from convert_tf.encoding.text_batches import Columns
from convert_tf.storage.checksums import checksum
from convert_tf.storage.json_text import parsed_json
from convert_tf.text.plain_tokenizer import PlainTokenizer
from convert_tf.text.vocabulary import parse_vocabulary

FORMAT_VERSION = 1
FACTS_KEY, CONFIG_KEY, VOCABULARY_KEY = "convert_tf", "config.json", "vocab.txt"

# The start of the last entry of the metadata in protobuf. Its 64 digits end the file.
_CHECKSUM = b"\x72\x4a\x0a\x06sha256\x12\x40"
# The key of an entry that every file has.
_FACTS = b"\x0a" + bytes([len(FACTS_KEY)]) + FACTS_KEY.encode() + b"\x12"
_CHECKSUM_BYTES = len(_CHECKSUM) + 64


class OnnxError(ValueError):
    """Error: an `.onnx` file cannot be read or written."""


class OnnxBackend(OpenedFromPath):
    """An exported `.onnx` file.

    Texts are cut to the `max_tokens` of the file. Several threads may use the backend at once.

    Args:
      path: the file.
      num_threads: number of threads; None for one per core.

    Attributes:
      concurrent_batches: number of batches to encode at once, each in a thread. This is faster than
        several threads that wait for each other in each op.
      outputs: names of the signatures of the file.
      reads_history: whether `encode_context` has earlier turns as a second column.
      numbers_turns: whether it was trained with `turn_prefixes`. Older files do not say.
      facts: facts in the file: `max_tokens`, `network_bits` and widths.
      metadata: all metadata of the file, texts by name.

    Raises:
      OnnxError: if the file is damaged, or was not written by convert-tf export.
      MissingLibraryError: if `onnxruntime` is not installed.

    Example:
      OnnxBackend("model.onnx").run("default", [[b"how do I reset my password?"]])
    """

    def __init__(self, path: str | os.PathLike[str], *, num_threads: int | None = None):
        self.path = os.fspath(path)
        super().__init__(self.path, num_threads=num_threads)
        if not os.path.isfile(self.path):
            raise self._unusable("it does not exist")
        has_checksum = _is_as_written(self.path)
        if has_checksum is False:
            raise self._unusable("it was damaged or changed, because its checksum is wrong")
        self._sessions = Sessions(self.path, self._unusable, num_threads=num_threads)
        self.concurrent_batches = self._sessions.concurrent_batches
        session = self._sessions.one_thread
        metadata = self.metadata = dict(session.get_modelmeta().custom_metadata_map)
        try:
            facts = self.facts = _checked_facts(parsed_json(metadata[FACTS_KEY]))
            entries = parse_vocabulary(metadata[VOCABULARY_KEY], source=self.path)
        except KeyError as error:
            raise self._unusable(f"it has no metadata of convert_tf ({error})") from error
        except (ValueError, TypeError) as error:
            raise self._unusable(f"its metadata cannot be read ({error})") from error
        if facts.get("has_checksum") and not has_checksum:
            raise self._unusable("it was damaged or changed, because its checksum is missing")
        graph_outputs = {each.name for each in session.get_outputs()}
        self.outputs = {
            name
            for name, signature in BY_NAME.items()
            if signature.output in graph_outputs and facts.get(signature.dim)
        }
        self.reads_history = bool(facts["multi_context"])
        self.numbers_turns = bool(facts.get("turn_prefixes"))
        self._tokenizer = PlainTokenizer(entries, num_oov_buckets=facts["num_oov_buckets"])
        self._no_texts = no_texts(session)

    def run(self, output: str, columns: Columns) -> np.ndarray:
        """Encode a batch.

        Args:
          output: one of `outputs`.
          columns: one column of texts, any bytes; or two for `encode_context` of a model that reads
            history.

        Returns:
          float32 `[rows, dim]`.
        """
        reads_both = output == "encode_context" and self.reads_history
        signature = BY_NAME[output]
        name = "both_encoding" if reads_both else signature.output
        dim = self.facts[signature.dim]
        encodings = np.empty((len(columns[0]), dim), np.float32)
        # The columns of a row are next to each other, so that pieces consist of whole rows.
        ids, row_splits = self.token_ids(
            [text for row in zip(*columns, strict=True) for text in row]
        )
        width = len(columns)
        order, ids, row_splits = sorted_rows(ids, row_splits, width)
        for start, end in pieces(row_splits[::width]):
            splits = row_splits[start * width : end * width + 1]
            inputs = graph_inputs(ids[splits[0] : splits[-1]], splits - splits[0])
            feeds = {**self._no_texts, **inputs, **_slots(name, inputs["slots"], splits)}
            found = self._sessions.run(name, feeds, num_tokens=feeds["token_ids"].size)
            if found.shape != (end - start, dim):
                raise self._unusable(f"{name} has shape {found.shape}, not {end - start, dim}")
            encodings[order[start:end]] = found
        return encodings

    def token_ids(self, texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Return `(ids, row_splits)` as `PlainTokenizer.token_ids` does."""
        return self._tokenizer.token_ids(texts, max_tokens=self.facts["max_tokens"])

    def _unusable(self, reason: object) -> OnnxError:
        return OnnxError(
            f"{self.path!r} cannot be used: {reason}. Pass an .onnx file from convert-tf export."
        )


def _checked_facts(facts: Any) -> dict[str, Any]:
    """Return the facts of a file.

    Raises:
      KeyError, TypeError: if they are another program's.
      ValueError: if a fact is missing or has another type.
    """
    if facts["format_version"] != FORMAT_VERSION:
        raise ValueError(
            f"format {facts['format_version']}, and this version reads {FORMAT_VERSION}"
        )
    for name in ("max_tokens", "num_oov_buckets", "reduced_dim", "encoding_dim"):
        checked_number(facts, name)
    checked_number({"similarity_dim": 0, **facts}, "similarity_dim", least=0)
    if not isinstance(facts["multi_context"], bool):
        raise ValueError(f"multi_context: {facts['multi_context']!r}")
    return facts


def is_exported(path: str | os.PathLike[str]) -> bool:
    """Return whether a file has the metadata that convert-tf export writes."""
    with open(path, "rb") as file:
        return _FACTS in file.read()


def with_checksum(model: bytes) -> bytes:
    """Return an ONNX model with metadata at its end: the SHA-256 of all bytes before."""
    return model + _CHECKSUM + checksum([model]).encode()


def _is_as_written(path: str) -> bool | None:
    """Return whether the checksum at the end of a file is right; None if it has none."""
    with open(path, "rb") as file:
        size = max(os.path.getsize(path) - _CHECKSUM_BYTES, 0)
        pieces = iter(lambda: file.read(min(2**16, size - file.tell())), b"")
        found = checksum(pieces)
        end = file.read()
    if not end.startswith(_CHECKSUM):
        return None
    return end == _CHECKSUM + found.encode()


def _slots(name: str, slots: np.ndarray, row_splits: np.ndarray) -> Mapping[str, np.ndarray]:
    """Return the inputs that select the texts for an output."""
    if name == "default":
        return {"slots": slots}
    if name == "both_encoding":
        has_extra_context = (np.diff(row_splits) > 0)[1::2, None]
        return {
            "slots": slots[:0],
            "context_slots": slots[::2],
            "extra_context_slots": slots[1::2],
            "has_extra_context": has_extra_context.astype(np.float32),
        }
    return {"slots": slots[:0], name.replace("_encoding", "_slots"): slots}
