"""Draw the curves of a run for `curve.png`, and write the run's summaries for TensorBoard."""

import io
import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from convert_tf.extras import MissingLibraryError, needs
from convert_tf.figures import picture
from convert_tf.storage.files import writing

# Labels of the vertical axes in the curves for encoders and rankers.
RECALL = "recall, %"
LOSS = "loss since the last point or checkpoint,\nnats per pair"


class EventFile:
    """An event file for TensorBoard.

    Args:
      log_dir: folder for the file. It is created if it does not exist.

    Raises:
      MissingLibraryError: if tensorboard is not installed.
      FileWriteError: if the file cannot be written. `scalars` may also raise this error.
    """

    def __init__(self, log_dir: str) -> None:
        with needs("plots", "Writing summaries for TensorBoard"):
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.record_writer import RecordWriter

        self._new_event = event_pb2.Event
        self._new_summary = summary_pb2.Summary
        name = f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}.{os.getpid()}"
        self._path = os.path.join(log_dir, name)
        with writing(self._path):
            os.makedirs(log_dir, exist_ok=True)
            # tensorboard's EventFileWriter would open the file with TensorFlow if it is installed.
            self._file = open(self._path, "xb", buffering=0)  # noqa: SIM115 (closed by close)
        self._record = io.BytesIO()
        self._records = RecordWriter(self._record)
        self._write(self._new_event(wall_time=time.time(), file_version="brain.Event:2"))

    def scalars(self, step: int, values: dict[str, Any]) -> None:
        """Write the values measured at a step, given as a dict from name to value."""
        summary = self._new_summary()
        for name, value in values.items():
            summary.value.add(tag=name, simple_value=float(value))
        self._write(self._new_event(wall_time=time.time(), step=step, summary=summary))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, event: Any) -> None:
        self._record.seek(0)
        self._record.truncate()
        self._records.write(event.SerializeToString())
        size, rest = self._file.tell(), self._record.getvalue()
        with writing(self._path):
            try:
                while rest:
                    rest = rest[self._file.write(rest) :]
            except OSError:  # remove the partly written event
                self._file.truncate(size)
                self._file.seek(size)
                raise


def opened_summaries(log_dir: Path) -> EventFile | None:
    """Return a new event file in `log_dir`. Without tensorboard, print a note and return None."""
    try:
        return EventFile(str(log_dir))
    except MissingLibraryError as error:
        print(f"no summaries are written to {log_dir}: {error}")
        return None


@picture
def curves(
    rows: Sequence[Mapping[str, Any]],
    panels: Mapping[str, Sequence[tuple[str, str]]],
    *,
    horizontal: str = "pairs",
) -> Any:
    """Draw the measurements of a run as curves.

    Args:
      rows: rows of `metrics.jsonl`.
      panels: curves in each panel, by the label of the panel's vertical axis. There must be at
        least two panels. A curve is a pair of names, such as `("dev", "R100@1")`: an entry of the
        rows and a metric in this entry. The first name is `""` for a metric in the row itself.
        Recalls are shown in percent.
      horizontal: entry of the rows to show on the horizontal axis.

    Returns:
      A figure, which `picture` converts to PNG.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots(1, len(panels))
    for axis, (label, lines) in zip(axes, panels.items(), strict=True):
        for source, metric in lines:
            factor = 100 if "@" in metric else 1
            entries = [row.get(source, {}) if source else row for row in rows]
            points = [
                (row[horizontal], factor * entry[metric])
                for row, entry in zip(rows, entries, strict=True)
                if entry.get(metric) is not None
            ]
            if points:
                name = f"{source} {metric}".strip()
                axis.plot(*zip(*points, strict=True), marker="o", label=name)
        axis.set(xlabel=horizontal, ylabel=label)
        axis.grid()
        if axis.lines:
            axis.legend()
    return figure
