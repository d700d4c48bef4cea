"""Backends of `SentenceEncoder` that run on ONNX Runtime, without TensorFlow.

The backend for `.onnx` files needs `onnxruntime` and `numpy`. Such files are written by
`convert-tf export --output model.onnx`, and contain the vocabulary.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.data.packing import ROW_TOKENS, assign_rows, joined_ranges
from convert_tf.encoding.backends.pickling import OpenedFromPath
from convert_tf.encoding.signatures import BY_NAME
from convert_tf.encoding.text_batches import Columns
from convert_tf.extras import MissingLibraryError, needs
from convert_tf.numerics.processor import adds_products_of_bytes, allowed_cores, visible_cores
from convert_tf.storage.checksums import checksum
from convert_tf.storage.json_text import parsed_json
from convert_tf.text.plain_tokenizer import PlainTokenizer
from convert_tf.text.vocabulary import parse_vocabulary

FORMAT_VERSION = 1
FACTS_KEY, CONFIG_KEY, VOCABULARY_KEY = "convert_tf", "config.json", "vocab.txt"

_NO_TELEMETRY = "ORT_DISABLE_TELEMETRY"
# The oldest ONNX Runtime that can read the graphs' version of ONNX, as in pyproject.toml.
OLDEST_RUNTIME = (1, 22)
CHECKSUM_KEY = "sha256"
# The start of the last metadata entry in protobuf. The 64 digits of the checksum end the file.
_CHECKSUM = b"\x72\x4a\x0a\x06sha256\x12\x40"
_CHECKSUM_BYTES = len(_CHECKSUM) + 64
# Up to this many tokens, a call uses all threads, unless another call is in progress.
_FEW_TOKENS = 128
# Each text gets its own row if at least this share of the tokens in the rows is not padding.
_LEAST_FILL = 0.9
# The network needs about 30 kB for each token that it reads at once. It is fastest with 256 to 512
# tokens at once. With fewer tokens, more ops are called, and with more, values do not fit into the
# processor's caches.
_TOKENS_PER_RUN = 256


class GraphBackend(OpenedFromPath):
    """A model whose graph runs on ONNX Runtime. Several threads may use it at once.

    The model has two sessions: one with a single thread, and one with all threads for short calls.

    Args:
      path: path of the model.
      num_threads: number of threads; None for one per core that this process may use, given its
        CPU affinity and the quota of its cgroup.

    Attributes:
      concurrent_batches: number of batches to encode at once, each in its own thread. One thread
        per batch is faster than several, which would wait for each other in each op.
    """

    def __init__(self, path: str | os.PathLike[str], *, num_threads: int | None = None) -> None:
        super().__init__(path, num_threads=num_threads)
        self.concurrent_batches = num_threads or allowed_cores()
        self._calls, self._lock = 0, threading.Lock()

    def _open(self, file: str) -> Any:
        """Open the sessions of a graph, and return the one with a single thread.

        Raises:
          MissingLibraryError: if `onnxruntime` is not installed, or is too old.
          ValueError: if ONNX Runtime cannot read the file.
        """
        with needs("", "Reading .onnx files", package="onnxruntime"):
            version = onnx_runtime().__version__
        if tuple(map(int, version.split(".")[:2])) < OLDEST_RUNTIME:
            oldest = ".".join(map(str, OLDEST_RUNTIME))
            raise MissingLibraryError(
                f"Reading .onnx files needs onnxruntime {oldest} or later, and {version} is "
                "installed. Run pip install --upgrade onnxruntime.",
                name="onnxruntime",
            )
        with self._errors():
            self._one_thread = self._all_threads = _session(file, 1)
            if self.concurrent_batches > 1:
                # With 0, ONNX Runtime chooses the number of threads. It takes into account which
                # logical cores share a physical core, but not the quota of the cgroup.
                is_limited = self.concurrent_batches != visible_cores()
                self._all_threads = _session(file, self.concurrent_batches if is_limited else 0)
        return self._one_thread

    def _compute(
        self, output: str, feeds: Mapping[str, np.ndarray], *, num_tokens: int
    ) -> np.ndarray:
        """Compute one output.

        Args:
          output: name of the output.
          feeds: the inputs by name.
          num_tokens: number of tokens in the inputs.

        Raises:
          ValueError: if ONNX Runtime cannot compute the output.
        """
        with self._lock:
            self._calls += 1
            is_alone = self._calls == 1
        try:
            is_short = num_tokens <= _FEW_TOKENS
            session = self._all_threads if is_alone and is_short else self._one_thread
            with self._errors():
                return session.run([output], feeds)[0]
        finally:
            with self._lock:
                self._calls -= 1

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # the errors of ONNX Runtime have no common class
            raise self._unusable(error) from error


class OnnxBackend(GraphBackend):
    """An exported `.onnx` file.

    Texts are cut to the `max_tokens` of the file. Several threads may use the backend at once.

    Args:
      path: the file.
      num_threads: number of threads; None for one per core.

    Attributes:
      outputs: the names of the file's signatures.
      reads_history: whether `encode_context` takes earlier turns as a second column.
      numbers_turns: whether the model was trained with `turn_prefixes`.
      facts: facts from the file's metadata: `max_tokens`, `network_bits` and the dimensions of the
        vectors.
      metadata: all entries of the file's metadata, as texts by name.

    Raises:
      ValueError: if the file is damaged, or was not written by convert-tf export.
      MissingLibraryError: if `onnxruntime` is not installed.

    Example:
      OnnxBackend("model.onnx").run("default", [[b"how do I reset my password?"]])
    """

    _REMEDY = (
        "Pass an .onnx file from convert-tf export. If the file is in the cache of convert_tf, "
        "delete it: it will be written again."
    )

    def __init__(self, path: str | os.PathLike[str], *, num_threads: int | None = None) -> None:
        super().__init__(path, num_threads=num_threads)
        if not os.path.isfile(self.path):
            raise self._unusable("it does not exist")
        if not is_exported(self.path):
            folder = Path(self.path).parent.parent
            if kind_of(folder) is Kind.HUGGING_FACE_ENCODER:
                raise ValueError(
                    f"{self.path!r} is the network of a Hugging Face folder. Pass "
                    f"the folder, {str(folder)!r}."
                )
            raise self._unusable(
                "it has no checksum, or a wrong checksum. An earlier version or another program "
                "wrote it, or it was damaged or changed"
            )
        session = self._open(self.path)
        metadata = self.metadata = dict(session.get_modelmeta().custom_metadata_map)
        try:
            facts = self.facts = _checked_facts(parsed_json(metadata[FACTS_KEY]))
            entries = parse_vocabulary(metadata[VOCABULARY_KEY], source=self.path)
        except (KeyError, ValueError, TypeError) as error:
            raise self._unusable(f"its metadata cannot be read ({error})") from error
        graph_outputs = {node.name for node in session.get_outputs()}
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
          columns: one column of texts, or two columns for `encode_context` of a model that reads
            history. Texts may be any bytes.

        Returns:
          The vectors, float32 `[rows, dim]`.
        """
        reads_both = output == "encode_context" and self.reads_history
        signature = BY_NAME[output]
        name = "both_encoding" if reads_both else signature.output
        width, dim = len(columns), self.facts[signature.dim]

        def encode(ids: np.ndarray, row_splits: np.ndarray) -> np.ndarray:
            inputs = graph_inputs(ids, row_splits)
            slots = inputs.pop("slots")
            chosen = {signature.slots: slots}
            if reads_both:
                has_history = np.diff(row_splits)[1::2, None] > 0
                chosen = {
                    "context_slots": slots[::2],
                    "extra_context_slots": slots[1::2],
                    "has_extra_context": has_history.astype(np.float32),
                }
            feeds = {**self._no_texts, **inputs, **chosen}
            vectors = self._compute(name, feeds, num_tokens=feeds["token_ids"].size)
            shape = (len(row_splits) - 1) // width, dim
            if vectors.shape != shape:
                raise self._unusable(f"{name} has shape {vectors.shape}, not {shape}")
            return vectors

        # The texts of a row are next to each other, so that pieces consist of whole rows.
        texts = [text for row in zip(*columns, strict=True) for text in row]
        return encode_pieces(*self.token_ids(texts), encode, width=width, dim=dim)

    def token_ids(self, texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Return `(ids, row_splits)` as `PlainTokenizer.flat_ids` does."""
        return self._tokenizer.flat_ids(texts, max_tokens=self.facts["max_tokens"])


def _checked_facts(facts: Any) -> dict[str, Any]:
    """Check the facts in a file's metadata, and return them.

    Raises:
      KeyError, TypeError, ValueError: if a fact is missing or has another type.
    """
    if facts["format_version"] != FORMAT_VERSION:
        raise ValueError(
            f"format {facts['format_version']}, and this version reads {FORMAT_VERSION}"
        )
    for name in ("max_tokens", "num_oov_buckets", "reduced_dim", "encoding_dim"):
        checked_number(facts, name)
    checked_number(facts, "similarity_dim", least=0)
    if not isinstance(facts["multi_context"], bool):
        raise ValueError(f"multi_context: {facts['multi_context']!r}")
    return facts


def with_checksum(model: bytes) -> bytes:
    """Append a metadata entry to an ONNX model: the SHA-256 of all bytes before the entry."""
    return model + _CHECKSUM + checksum([model]).encode()


def is_exported(path: str | os.PathLike[str]) -> bool:
    """Return whether a file ends with the correct checksum, as written by `with_checksum`."""
    with open(path, "rb") as file:
        size = max(os.path.getsize(path) - _CHECKSUM_BYTES, 0)
        pieces = iter(lambda: file.read(min(2**16, size - file.tell())), b"")
        actual = checksum(pieces)
        return file.read() == _CHECKSUM + actual.encode()


def checked_number(
    facts: Mapping[str, Any], name: str, least: int = 1, most: int = 2**31 - 1
) -> int:
    """Return an integer from a model's metadata.

    Raises:
      ValueError: if the value is missing, is not an integer, or is less than `least` or greater
        than `most`.
    """
    value = facts.get(name)
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name}: {value!r}")
    return value


def onnx_runtime() -> Any:
    """Import `onnxruntime` with its telemetry turned off.

    From version 1.31 on, ONNX Runtime looks up a host of its vendor and writes a database to the
    user's cache when a model is opened. An environment variable turns this telemetry off. ONNX
    Runtime reads the variable once, when it is loaded. If the user has set the variable, its value
    is not changed.

    Raises:
      ImportError: if `onnxruntime` is not installed.
    """
    os.environ.setdefault(_NO_TELEMETRY, "1")
    import onnxruntime

    return onnxruntime


def _session(path: str, num_threads: int) -> Any:
    onnxruntime = onnx_runtime()
    options = onnxruntime.SessionOptions()
    # If a processor has no instructions that add products of bytes, ONNX Runtime adds the products
    # in 16 bits, which can overflow. This option prevents the overflow. It is not always set,
    # because with this option, processors with AMX take four times as long.
    if not adds_products_of_bytes():
        options.add_session_config_entry("session.x64quantprecision", "1")
    options.intra_op_num_threads = num_threads
    options.log_severity_level = 3
    # ONNX Runtime would keep a memory plan for each shape of a batch, and batches have many shapes.
    options.enable_mem_pattern = False
    # Keep weights out of the memory arena, whose size is a power of two. This saves 12 MB.
    options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def graph_inputs(flat_ids: np.ndarray, row_splits: np.ndarray) -> dict[str, np.ndarray]:
    """Pack texts into rows, and return the inputs of an exported graph.

    Args:
      flat_ids: int32 `[all tokens]`, the token ids of all texts, one text after the other.
      row_splits: int `[texts + 1]`, the indices in `flat_ids` at which texts start and end. There
        must be at least one text.

    Returns:
      A dict with
      - `token_ids`: int32 `[rows, tokens]`, the token ids in each row;
      - `positions`: int32 `[rows, tokens]`, the position of each token in its text;
      - `segment_ids`: int32 `[rows, tokens]`, s for tokens of the s-th text in a row, and 0 for
        padding;
      - `pooling`: float32 `[rows, segments, tokens]`, 1/√N for the N tokens of a text, and 0 for
        all other tokens;
      - `slots`: int32 `[texts]`, the places of the texts. Text i is segment `slots[i] % segments`
        in row `slots[i] // segments`; both count from 0.
    """
    lengths = np.diff(row_splits)
    if len(lengths) == 1:
        return _one_text(flat_ids)
    # Texts of similar length, as in sorted batches, get a row each. Other texts share rows.
    tokens, rows = max(int(lengths.max()), 1), np.arange(len(lengths), dtype=np.int32)
    segments = starts = np.zeros_like(rows)
    if lengths.mean() < _LEAST_FILL * tokens:
        tokens = max(ROW_TOKENS, tokens)
        rows, segments, starts = assign_rows(lengths, tokens)
    num_rows, num_segments = int(rows.max()) + 1, int(segments.max()) + 1
    shape = (num_rows, tokens)
    token_ids, positions, segment_ids = (np.zeros(shape, np.int32) for _ in range(3))
    pooling = np.zeros((num_rows, num_segments, tokens), np.float32)

    columns = joined_ranges(starts, lengths)
    places = np.repeat(rows, lengths) * tokens + columns
    own_segment = np.repeat(segments, lengths)
    token_ids.reshape(-1)[places] = flat_ids
    positions.reshape(-1)[places] = columns - np.repeat(starts, lengths)
    segment_ids.reshape(-1)[places] = own_segment + 1
    spread = np.float32(1) / np.sqrt(np.maximum(lengths, 1).astype(np.float32))
    pooling[np.repeat(rows, lengths), own_segment, columns] = np.repeat(spread, lengths)
    return {
        "token_ids": token_ids,
        "positions": positions,
        "segment_ids": segment_ids,
        "pooling": pooling,
        "slots": (rows * num_segments + segments).astype(np.int32),
    }


def no_texts(session: Any) -> dict[str, np.ndarray]:
    """Return inputs that select no texts, for the outputs that are not needed.

    Args:
      session: an ONNX Runtime session for an exported graph.
    """
    names = {node.name for node in session.get_inputs()}
    inputs: dict[str, np.ndarray] = {
        name: np.zeros(0, np.int32) for name in names if name.endswith("slots")
    }
    if "has_extra_context" in names:
        inputs["has_extra_context"] = np.zeros((0, 1), np.float32)
    return inputs


def encode_pieces(
    ids: np.ndarray,
    row_splits: np.ndarray,
    encode: Callable[[np.ndarray, np.ndarray], np.ndarray],
    *,
    width: int = 1,
    dim: int,
) -> np.ndarray:
    """Encode a few texts at a time, sorted by the number of tokens.

    If texts have the same number of tokens, each can have its own row without padding. Callers
    already sort the texts by their length in bytes, but this is only an estimate of the number of
    tokens.

    Args:
      ids, row_splits: the tokens of the texts, as returned by `PlainTokenizer.flat_ids`.
      encode: function that takes the `ids` and `row_splits` of some texts and returns their
        vectors, float `[rows, dim]`.
      width: number of texts that one row of the result is computed from.
      dim: number of dimensions of a vector.

    Returns:
      The vectors, float32 `[rows, dim]`, in the order of the texts.
    """
    number = (len(row_splits) - 1) // width
    order = np.argsort(np.diff(row_splits[::width]), kind="stable")
    if number > 1:
        texts = (order[:, None] * width + np.arange(width)).ravel()
        lengths = np.diff(row_splits)[texts]
        ids = ids[joined_ranges(row_splits[texts], lengths)]
        row_splits = np.concatenate([[0], np.cumsum(lengths)])
    encodings = np.empty((number, dim), np.float32)
    end = 0
    while end < number:
        start, ends = end, row_splits[::width]
        limit = int(np.searchsorted(ends, ends[start] + _TOKENS_PER_RUN, side="right")) - 1
        # Encode at least one row. The number of rows is limited too, because texts without tokens
        # also have a row in the result.
        end = min(max(limit, start + 1), number, start + _TOKENS_PER_RUN)
        splits = row_splits[start * width : end * width + 1]
        rows = encode(ids[splits[0] : splits[-1]], splits - splits[0])
        encodings[order[start:end]] = rows
    return encodings


def _one_text(ids: np.ndarray) -> dict[str, np.ndarray]:
    """Return the inputs for a single text. A text without tokens gets one padded position."""
    length = len(ids)
    tokens = max(length, 1)
    token_ids = np.zeros((1, tokens), np.int32)
    token_ids[0, :length] = ids
    return {
        "token_ids": token_ids,
        "positions": np.arange(tokens, dtype=np.int32)[None],
        "segment_ids": np.full((1, tokens), int(length > 0), np.int32),
        "pooling": np.full((1, 1, tokens), length and length**-0.5, np.float32),
        "slots": np.zeros(1, np.int32),
    }
