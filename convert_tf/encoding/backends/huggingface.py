"""Backend of `SentenceEncoder` for folders from `convert-tf export --format huggingface`.

The backend needs `onnxruntime` and `numpy`. It reads the ONNX file and two JSON files in the
folder, and does not run the folder's code. If another program saved the folder without ONNX files,
the network is converted to ONNX once and cached. A folder whose PyTorch weights were trained
further, but whose ONNX files still have the old weights, raises an error.
"""

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from convert_tf.checkpoints.kinds import CONFIG_FILE, ONNX_FILES, SAFETENSORS_FILE, TOKENIZER_FILE
from convert_tf.checkpoints.limits import folder_max_tokens
from convert_tf.checkpoints.released import as_onnx
from convert_tf.encoding.backends.onnx import GraphBackend, checked_number, encode_pieces
from convert_tf.encoding.signatures import SIGNATURES
from convert_tf.encoding.text_batches import Columns
from convert_tf.storage.checksums import checksum
from convert_tf.storage.json_text import json_file, parsed_json
from convert_tf.text.plain_tokenizer import PlainTokenizer
from convert_tf.text.subwords import WORD_START
from convert_tf.text.vocabulary import check_subwords

WEIGHTS_KEY = "weights"  # the key of the weights' checksum in the metadata of a graph

_OUTPUT = "last_hidden_state"
# Files in which PyTorch programs store weights.
PYTORCH_FILES = ("*.safetensors", "pytorch_model*.bin")


class HuggingFaceBackend(GraphBackend):
    """A Hugging Face folder. The 8-bit network is used if the folder contains one.

    All characters outside the vocabulary have the same id. Several threads may use the backend at
    once.

    Args:
      path: the folder.
      num_threads: number of threads; None for one per core.

    Attributes:
      concurrent_batches: number of batches to encode at once, each in its own thread.
      outputs: the names of the signatures for the kinds of vectors that the folder has.
      reads_history: False, because such folders encode single texts.

    Raises:
      ValueError: if a file is missing or damaged, or does not match the other files.
      MissingLibraryError: if `onnxruntime` is not installed.

    Example:
      HuggingFaceBackend("my-encoder").run("default", [[b"how do I reset my password?"]])
    """

    reads_history = False
    _REMEDY = "Pass a folder from convert-tf export --format huggingface, or download it again."

    def __init__(self, path: str | os.PathLike[str], *, num_threads: int | None = None) -> None:
        super().__init__(path, num_threads=num_threads)
        folder = Path(path)
        onnx_file = next((file for file in ONNX_FILES if (folder / file).is_file()), None)
        for name in (CONFIG_FILE, TOKENIZER_FILE):
            if not (folder / name).is_file():
                raise self._unusable(f"{name} is missing")
        if onnx_file is None and not (folder / SAFETENSORS_FILE).is_file():
            raise self._unusable(f"{ONNX_FILES[-1]} and {SAFETENSORS_FILE} are missing")
        try:
            subwords, config = folder_subwords(folder), json_file(folder / CONFIG_FILE)
            self._read_config(config, len(subwords))
            self._max_tokens = folder_max_tokens(folder, config)
        except ValueError as error:
            raise self._unusable(error) from error
        graph = folder / onnx_file if onnx_file else as_onnx(folder, graph=ONNX_FILES[0])
        session = self._open(str(graph))
        if onnx_file:
            self._check_weights(folder, session.get_modelmeta().custom_metadata_map, onnx_file)
        shapes = {output.name: output.shape for output in session.get_outputs()}
        width = shapes.get(_OUTPUT, [None])[-1]
        if width != self._width:
            raise self._unusable(
                f"{graph.name} has vectors of {width} numbers, but {CONFIG_FILE} says {self._width}"
            )
        self.outputs = {*self._kinds}
        # All unknown characters share one hash bucket, whose id follows the vocabulary's ids.
        self._tokenizer = PlainTokenizer(subwords, num_oov_buckets=1)

    def _check_weights(self, folder: Path, metadata: dict[str, str], onnx_file: str) -> None:
        """Raise `ValueError` if the PyTorch weights differ from the weights in the graph.

        Graphs that earlier versions wrote have no checksum and are not checked.
        """
        expected = metadata.get(WEIGHTS_KEY)
        names = sorted({path.name for name in PYTORCH_FILES for path in folder.glob(name)})
        if expected is None or not names:
            return
        try:
            is_same = (
                names == [SAFETENSORS_FILE] and weights_checksum(folder / names[0]) == expected
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._unusable(f"{SAFETENSORS_FILE} is damaged ({error})") from error
        if not is_same:
            other = next((name for name in names if name != SAFETENSORS_FILE), SAFETENSORS_FILE)
            raise ValueError(
                f"{self.path!r} has two different sets of weights: {other} was written after "
                f"{onnx_file}, for example by sentence-transformers. To use {SAFETENSORS_FILE}, "
                f"run convert-tf export --format huggingface --encoder {self.path} --output NEW "
                f"and open NEW. To use {onnx_file}, remove {other}."
            )

    def _read_config(self, config: dict[str, Any], vocab_size: int) -> None:
        try:
            self._padding_id = checked_number(config, "pad_token_id")
            self._width = checked_number(config, "hidden_size")
            checked_number(config, "unknown_id", vocab_size, vocab_size)
            kind_ids = config.get("kind_ids")
            if not isinstance(kind_ids, dict) or not {"sentence"} <= {*kind_ids} <= {*SIGNATURES}:
                raise ValueError(f"kind_ids: {kind_ids!r}")
            dims = {**config, "reduced_dim": self._width}
            self._kinds: dict[str, tuple[int, int]] = {}
            for signature in map(SIGNATURES.__getitem__, kind_ids):
                # A token that is not a subword selects the kind.
                kind_id = checked_number(kind_ids, signature.kind, least=vocab_size + 1)
                dim = checked_number(dims, signature.dim, most=self._width)
                self._kinds[signature.name] = (kind_id, dim)
        except ValueError as error:
            raise ValueError(f"{CONFIG_FILE} has {error}") from error

    def run(self, output: str, columns: Columns) -> np.ndarray:
        """Encode a batch.

        Args:
          output: one of `outputs`.
          columns: one column of texts. Texts may be any bytes.

        Returns:
          The vectors, float32 `[rows, dim]`.
        """
        kind_id, dim = self._kinds[output]

        def encode(ids: np.ndarray, row_splits: np.ndarray) -> np.ndarray:
            lengths = np.diff(row_splits)
            # The first token selects the kind of vector.
            is_token = np.arange(lengths.max() + 1) <= lengths[:, None]
            input_ids = np.where(is_token, kind_id, self._padding_id)
            input_ids[:, 1:][is_token[:, 1:]] = ids
            feeds = {"input_ids": input_ids, "attention_mask": is_token.astype(np.int64)}
            vectors = self._compute(_OUTPUT, feeds, num_tokens=input_ids.size)[:, 0]
            if vectors[:, dim:].any():
                raise self._unusable(f"the vectors of {output} have more than {dim} dimensions")
            return vectors[:, :dim]

        token_ids = self._tokenizer.flat_ids(columns[0], max_tokens=self._max_tokens)
        return encode_pieces(*token_ids, encode, dim=dim)


def weights_checksum(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of the tensors in a safetensors file.

    The checksum ignores the metadata and the order of the tensors in the file, because other
    programs change both when they write the same weights again.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        start = 8 + int.from_bytes(content[:8], "little")
        tensors = parsed_json(content[8:start].decode())
        tensors.pop("__metadata__", None)

        def pieces() -> Iterator[bytes]:
            for name, tensor in sorted(tensors.items()):
                first, stop = tensor["data_offsets"]
                yield f"{name}:{tensor['dtype']}:{tensor['shape']}:".encode()
                yield content[start + first : start + stop]

        return checksum(pieces())


def folder_subwords(folder: Path) -> list[str]:
    """Return the vocabulary that `convert_tf.export.huggingface.writing` wrote to a folder.

    Raises:
      ValueError: if the folder has the tokenizer of another program.
    """
    tokenizer: Any = json_file(folder / TOKENIZER_FILE)
    try:
        model = tokenizer["model"]
        is_known = (model["type"], model["continuing_subword_prefix"]) == ("WordPiece", WORD_START)
        entries = dict(model["vocab"])
        for token in tokenizer["added_tokens"]:
            entries.pop(token["content"], None)
        ids = {swapped_mark(entry): i for entry, i in entries.items()}
        subwords = sorted(ids, key=ids.__getitem__)
        is_known = is_known and [ids[subword] for subword in subwords] == [*range(len(ids))]
    except (KeyError, TypeError, AttributeError):
        is_known = False
    if not is_known:
        raise ValueError(f"{TOKENIZER_FILE} belongs to a tokenizer of another kind")
    check_subwords(subwords, source=TOKENIZER_FILE)
    return subwords


def swapped_mark(entry: str) -> str:
    """Convert a subword to an entry for WordPiece, or an entry for WordPiece to a subword.

    Subwords mark the first piece of a word, and WordPiece marks all later pieces.
    """
    if entry.startswith(WORD_START):
        return entry.removeprefix(WORD_START)
    return WORD_START + entry
