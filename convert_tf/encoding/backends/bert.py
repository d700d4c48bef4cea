"""Backend of `SentenceEncoder` for BERTs: Hugging Face folders and runs of `convert-tf pretrain`.

It is used for baselines (`convert-tf evaluate --vectors`). The network runs in Keras, without
PyTorch.
"""

import os
from pathlib import Path

import numpy as np

from convert_tf.checkpoints.bert import json_object, load_bert
from convert_tf.checkpoints.limits import file_limit
from convert_tf.checkpoints.vocabulary import plain_tokenizer
from convert_tf.config.bert import SENTENCE_LAYERS
from convert_tf.encoding.backends.pickling import OpenedFromPath
from convert_tf.encoding.text_batches import Columns
from convert_tf.numerics.forks import check_not_forked
from convert_tf.storage.json_text import json_file
from convert_tf.storage.messages import shortened

_MODULES_FILE = "modules.json"
_POOLING_FILE = Path("1_Pooling", "config.json")
_LENGTH_FILE = "sentence_bert_config.json"
_POOLINGS = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "first"}


class BertBackend(OpenedFromPath):
    """A BERT whose outputs for a text are reduced to one vector, which is not normalised.

    The vector is the mean of all outputs or the first output, as specified in the folder's
    configuration files for sentence-transformers. Without these files, the vector is the mean, as
    in the MAP baseline with BERT. Long texts are cut at their end.

    Args:
      folder: a run of `convert-tf pretrain`, or the folder of a Hugging Face BERT.

    Attributes:
      outputs: `{"default"}`.
      reads_history: False, because a BERT encodes single texts.

    Raises:
      ValueError: if the folder is incomplete or damaged, has further layers, or reduces the outputs
        to something other than their mean or the first output.
      ForkedError: if the process was forked after a model had been opened. `run` raises it too.

    Example:
      BertBackend("all-MiniLM-L6-v2/").run("default", [[b"how do I reset my password?"]])

    Reference: arXiv 1911.03688 §3.1, "Baselines".
    """

    outputs = frozenset({"default"})
    reads_history = False
    _REMEDY = "Pass the folder of a BERT that uses the mean of its outputs, or its first output."

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        super().__init__(folder)
        check_not_forked(self.path)
        self._trunk, vocabulary = load_bert(folder)
        self._tokenizer = plain_tokenizer(vocabulary, self._trunk.config)
        self._check_modules(Path(folder) / _MODULES_FILE)
        self._pooling = self._pooling_of(Path(folder) / _POOLING_FILE)
        self._max_tokens = self._trunk.max_tokens
        try:
            limit = file_limit(Path(folder) / _LENGTH_FILE, "max_seq_length", special_tokens=2)
        except ValueError as error:
            raise self._unusable(error) from error
        if limit is not None:
            self._max_tokens = min(self._max_tokens, limit)

    def _check_modules(self, path: Path) -> None:
        """Raise an error if the folder has further layers, such as the dense layer of LaBSE.

        The layer `Normalize` is ignored, because it does not change cosines.
        """
        modules = json_file(path) if path.is_file() else []
        try:
            kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
        except (KeyError, TypeError) as error:
            raise self._unusable(f"{_MODULES_FILE} is not a list of layers") from error
        if other := [kind for kind in kinds if kind not in SENTENCE_LAYERS]:
            raise self._unusable(f"it has a layer of the kind {shortened(', '.join(other), 200)}")

    def _pooling_of(self, path: Path) -> str:
        if not path.is_file():
            return "mean"
        settings = json_object(path)
        modes = [name for name, value in settings.items() if "_mode_" in name and value is True]
        if len(modes) != 1 or modes[0] not in _POOLINGS:
            raise self._unusable(f"its pooling is {', '.join(modes) or 'unknown'}")
        return _POOLINGS[modes[0]]

    def run(self, output: str, columns: Columns) -> np.ndarray:
        """Return the vectors of a batch of texts, float32 `[rows, dim]`."""
        check_not_forked(self.path)
        if not columns[0]:
            return np.zeros((0, self._trunk.dim), np.float32)
        flat, row_splits = self._tokenizer.flat_ids(columns[0], self._max_tokens)
        lengths = np.diff(row_splits)
        is_token = np.arange(max(lengths.max(), 1)) < lengths[:, None]
        token_ids = np.full(is_token.shape, self._trunk.padding_id, np.int32)
        token_ids[is_token] = flat
        outputs, mask = (np.asarray(tensor) for tensor in self._trunk.sequence(token_ids))
        if self._pooling == "first":
            return outputs[:, 0]
        return (outputs * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
