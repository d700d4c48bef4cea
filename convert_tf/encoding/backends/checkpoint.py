"""Backend of `SentenceEncoder` for the runs of dual encoders."""

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from convert_tf.checkpoints.facts import numbers_turns
from convert_tf.checkpoints.folder import load_checkpoint, load_similarity_map
from convert_tf.checkpoints.vocabulary import plain_tokenizer
from convert_tf.data.packing import ROW_MULTIPLE, ROW_TOKENS, TokenIds, pack_batch
from convert_tf.encoding.backends.pickling import OpenedFromPath
from convert_tf.encoding.signatures import BY_NAME, SIGNATURES
from convert_tf.encoding.text_batches import Columns
from convert_tf.models.distillation import sentence_encodings
from convert_tf.numerics.devices import choose_precision, compiles_shapes
from convert_tf.numerics.forks import check_not_forked
from convert_tf.numerics.vectors import unit_rows

# Signatures that are computed from r and the similarity map. All others are outputs of the network.
_OF_REDUCED: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "default": sentence_encodings,
    "reduced": lambda reduced, similarity_map: reduced,
    "encode_similarity": lambda reduced, similarity_map: unit_rows(reduced @ similarity_map),
}


class CheckpointBackend(OpenedFromPath):
    """A dual encoder with its vocabulary.

    Args:
      folder: the folder of a run or a module. Only the weights of a module are used, not its graph.
      precision: compute precision; see `choose_precision`.
      keeps_newest: whether long contexts are cut at their start, which contains the oldest turns.
        By default, they are cut at their end, as in training. Contexts of multi-context models are
        always cut at their end.

    Attributes:
      config: the configuration of the model.
      outputs: the names of the signatures that the model has.
      reads_history: whether the model is a multi-context model.
      numbers_turns: whether the model was trained with `turn_prefixes`.

    Raises:
      CheckpointError: if the folder is incomplete or damaged.
      ForkedError: if the process was forked after a model had been opened. `run` raises it too.
    """

    def __init__(
        self, folder: str | os.PathLike, *, precision: str = "float32", keeps_newest: bool = False
    ) -> None:
        super().__init__(folder, precision=precision, keeps_newest=keeps_newest)
        check_not_forked(self.path)
        self._encoder, vocabulary = load_checkpoint(folder, dtype=choose_precision(precision))
        self.config = self._encoder.config
        self._tokenizer = plain_tokenizer(vocabulary, self.config)
        self._similarity_map = load_similarity_map(folder)
        self.outputs = {*BY_NAME}
        if self._similarity_map is None:
            self.outputs.remove("encode_similarity")
        self._lock = threading.Lock()  # because Keras compiles its function in the first call
        self.keeps_newest = keeps_newest
        self.reads_history = self.config.multi_context
        self.numbers_turns = numbers_turns(folder)

    def run(self, output: str, columns: Columns) -> np.ndarray:
        """Return the vectors of a batch, float32 `[rows, dim]`.

        For contexts with history, `columns` are two columns of texts.
        """
        if output in _OF_REDUCED:
            reduced = self._outputs("reduced_context", columns, self.config.reduced_dim)
            if self._similarity_map is None:
                return reduced
            return _OF_REDUCED[output](reduced, self._similarity_map)
        signature = BY_NAME[output]
        reads_both = output == "encode_context" and self.reads_history
        name = "both_encoding" if reads_both else signature.output
        return self._outputs(name, columns, getattr(self.config, signature.dim))

    def _outputs(self, name: str, columns: Columns, dim: int) -> np.ndarray:
        check_not_forked(self.path)
        if not columns[0]:
            return np.zeros((0, dim), np.float32)
        packed = self._packed(columns, self.keeps_newest and name == "context_encoding")
        with self._lock:
            return np.asarray(self._encoder.predict_on_batch(packed)[name], np.float32)

    def _packed(self, columns: Columns, keeps_newest: bool) -> dict[str, Any]:
        """Return the inputs of the network.

        They include the inputs for outputs that are not used, because the network always computes
        all outputs.
        """
        limit = self.config.max_tokens
        texts = [text for column in columns for text in column]
        packed = pack_batch(
            TokenIds(*self._tokenizer.flat_ids(texts, limit, keeps_last=keeps_newest)),
            ("context", "extra_context")[: len(columns)],
            row_tokens=max(ROW_TOKENS, limit),
            padding_id=self._tokenizer.padding_id,
            row_multiple=ROW_MULTIPLE if compiles_shapes() else 1,
        )
        for signature in SIGNATURES.values():
            if signature.name not in _OF_REDUCED:
                packed[signature.slots] = packed["context_slots"]
        if self.reads_history:
            packed.setdefault("extra_context_slots", packed["context_slots"])
        return packed
