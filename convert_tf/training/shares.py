"""The share that each process has of every batch.

What only one process can know (how many rows its share takes, whether it was told to end, whether
something failed) the processes tell one another in one small gather before each step.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from convert_tf.training.processes import Processes, Termination, num_devices, refuse_failed


def rows_of_a_share(row_multiple: int, processes: Processes) -> int:
    """Return the multiple of rows in a process's share, which keeps the number of shapes small.

    Args:
      row_multiple: what the rows of a whole batch are a multiple of, about.
      processes: those of the run.
    """
    _, local_devices = num_devices(processes)
    own = math.ceil(row_multiple / processes.number)
    return math.ceil(own / local_devices) * local_devices


def as_share(
    batch: Mapping[str, np.ndarray], *, rows: int, index: int, padding_id: int
) -> dict[str, np.ndarray]:
    """A packed batch as a process's share of a larger one.

    Args:
      batch: the dict of `packing.pack_batch` or `pack_micro_batches`; its other keys are left as
        they are.
      rows: rows of every share, not fewer than the batch has.
      index: which share it is.
      padding_id: id of padding.

    Returns:
      The batch with rows of padding added, and slots counted from the first row of the first share.
    """
    segments = batch["segment_lengths"].shape[-1]
    other_axes = [(0, 0)] * (batch["token_ids"].ndim - 1)
    missing = [(0, rows - len(batch["token_ids"])), *other_axes]
    share = dict(batch)
    share["token_ids"] = np.pad(batch["token_ids"], missing, constant_values=padding_id)
    share["segment_lengths"] = np.pad(batch["segment_lengths"], missing)
    for name in batch:
        if name.endswith("_slots"):
            share[name] = batch[name] + np.int32(index * rows * segments)
    return share


class AgreedSteps(Termination):
    """The shares of one process, of which each step takes one in every process or in none.

    Args:
      processes: those of the run.
      termination: whether this process was told to end.
      padding_id: id of padding.

    Attributes:
      is_requested: whether one of the processes was told to end before the step that runs.
    """

    def __init__(self, processes: Processes, termination: Termination, *, padding_id: int):
        super().__init__()
        self.processes = processes
        self.termination = termination
        self.padding_id = padding_id

    def batches(self, packed: Iterator[Any]) -> Iterator[Any]:
        """Each batch as this process's share of a step.

        Args:
          packed: `loop.Batch` of packed batches of this process's examples.

        Raises:
          ValueError: a batch could not be made in another process.
          Exception: what `packed` raises.
        """
        while True:
            raised: Exception | None = None
            batch = None
            try:
                batch = next(packed)
            except Exception as error:
                raised = error
            rows = 0 if batch is None else len(batch.inputs["token_ids"])
            told = self.processes.gather(rows, self.termination.is_requested, batch is None)
            if raised is not None:
                raise raised
            refuse_failed(told[:, 2])
            self.is_requested = bool(told[:, 1].any())
            assert batch is not None
            yield batch._replace(
                inputs=as_share(
                    batch.inputs,
                    rows=int(told[:, 0].max()),
                    index=self.processes.index,
                    padding_id=self.padding_id,
                )
            )
