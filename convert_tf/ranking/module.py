"""Rank texts with an exported ranker."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (the module's graph uses its ops)

from convert_tf.data.candidates import joined_context
from convert_tf.encoding.text_batches import text_bytes
from convert_tf.numerics.forks import check_not_forked
from convert_tf.numerics.quiet import quieten_float16
from convert_tf.ranking.protocol import TextRanker, Turns, runs_of_lists
from convert_tf.storage.checksums import check_files


class ExportedRanker(TextRanker):
    """A ranker that was exported as a module.

    All turns of a context are joined into one text. If a context is too long, the module drops its
    oldest tokens.

    Args:
      folder: module that `convert-tf export` wrote from the run of a ranker.

    Attributes:
      name: path of the folder.
      settings: facts for the ranker's row in a report.

    Raises:
      ValueError: if the folder is not the module of a ranker, or is damaged.
      ForkedError: if the process was forked after a model had been opened. Every call may raise
        this error too.

    Example:
      ranker = ExportedRanker("hub_modules/poly/1")
      ranker.scores([("hello", "how are you?")], ["fine", "a fish"])  # [1, 2]
    """

    def __init__(self, folder: str | os.PathLike) -> None:
        self.name = os.fspath(folder)
        self.settings = {"module": self.name}
        check_not_forked(self.name)
        check_files(self.name)
        try:
            quieten_float16()
            self._module = tf.saved_model.load(self.name)
            self._score_all = self._module.signatures["score_all"]
            self._score_ragged = self._module.signatures["score_ragged"]
        except Exception as error:  # damaged files may raise any kind of error
            raise ValueError(
                f"{self.name!r} is not the module of a ranker ({error}). Pass the folder of a "
                "ranker from convert-tf export."
            ) from error

    def candidate_scores(
        self, contexts: Sequence[Turns], candidate_lists: Sequence[Sequence[str]]
    ) -> list[np.ndarray]:
        check_not_forked(self.name)
        runs = list(runs_of_lists(candidate_lists))
        if len(runs) < len(candidate_lists) or len(runs) == 1:  # shared candidates are encoded once
            return [
                row
                for run in runs
                for row in self._score_all(
                    context=_joined(contexts[run]), candidates=_strings(candidate_lists[run.start])
                )["default"].numpy()
            ]
        lengths = [len(candidates) for candidates in candidate_lists]
        outputs: Any = self._score_ragged(
            context=_joined(contexts),
            candidates=_strings([text for candidates in candidate_lists for text in candidates]),
            row_lengths=tf.constant(lengths, tf.int64),
        )
        return np.split(outputs["default"].numpy(), np.cumsum(lengths)[:-1])


def _joined(contexts: Sequence[Turns]) -> tf.Tensor:
    return _strings([joined_context(turns) for turns in contexts])


def _strings(texts: Sequence[str]) -> tf.Tensor:
    return tf.constant([*text_bytes(texts)], tf.string)
