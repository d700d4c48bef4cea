"""TensorBoard summaries of a run, written without TensorFlow."""

import io
import os
import socket
import time
from typing import Any

import keras

from convert_tf.extras import MissingLibraryError, needs
from convert_tf.storage.files import FileWriteError
from convert_tf.training.kind import RunKind
from convert_tf.training.recorder import Recorder, RunProgress

STEPS_BETWEEN = 50


class EventFile:
    """One event file of TensorBoard. An event is in it whole or not at all.

    Args:
      log_dir: its folder, which is made.

    Raises:
      MissingLibraryError: there is no tensorboard.
      FileWriteError: here and in `scalars`, the file could not be written.
    """

    def __init__(self, log_dir: str):
        with needs("plots", "Writing summaries for TensorBoard"):
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.record_writer import RecordWriter

        self._new_event = event_pb2.Event
        self._new_summary = summary_pb2.Summary
        name = f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}.{os.getpid()}"
        self._path = os.path.join(log_dir, name)
        # tensorboard's own EventFileWriter opens its file with TensorFlow where there is one.
        self._record = io.BytesIO()
        self._records = RecordWriter(self._record)
        try:
            os.makedirs(log_dir, exist_ok=True)
            self._file = open(self._path, "ab", buffering=0)  # noqa: SIM115 (closed by close)
        except OSError as error:
            raise FileWriteError(error.errno, error.strerror, self._path) from error
        self._write(self._new_event(wall_time=time.time(), file_version="brain.Event:2"))

    def scalars(self, step: int, values: dict[str, Any]) -> None:
        """Writes one number for each name."""
        summary = self._new_summary()
        for name, value in values.items():
            summary.value.add(tag=name, simple_value=float(value))
        self._write(self._new_event(wall_time=time.time(), step=step, summary=summary))

    def close(self) -> None:
        """Ends the file."""
        self._file.close()

    def _write(self, event: Any) -> None:
        self._record.seek(0)
        self._record.truncate()
        self._records.write(event.SerializeToString())
        content = self._record.getvalue()
        size = os.fstat(self._file.fileno()).st_size
        try:
            written = self._file.write(content)
            if written < len(content):  # the system says why when asked for the rest
                self._file.write(content[written:])
        except OSError as error:
            os.ftruncate(self._file.fileno(), size)
            raise FileWriteError(error.errno, error.strerror, self._path) from error


class TensorBoardWriter(keras.callbacks.Callback):
    """Writes loss, accuracy, speed and learning rate every 50 steps, and each evaluation.

    Unlike Keras's own callback it counts steps from the start of the run, not of the process, so
    the curves of a resumed run go on. Where there is no tensorboard it says so and writes nothing.

    Args:
      kind: the run, whose folder gets `logs/`.
      progress: tells the step and the speed.
      recorder: holds the evaluations; stands before this callback in the list.
    """

    def __init__(self, kind: RunKind, *, progress: RunProgress, recorder: Recorder):
        super().__init__()
        self.progress = progress
        self.recorder = recorder
        self._kind = kind
        self._log_dir = str(kind.folder / "logs")
        self._written = len(recorder.rows)
        self._file: EventFile | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        try:
            self._file = EventFile(self._log_dir)
        except MissingLibraryError as error:
            print(f"no summaries are written to {self._log_dir}: {error}")
        self._write_evaluations()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        # It changes at evaluations alone, between "epochs". Within one JAX gives its buffer away.
        factor = getattr(self.model.optimizer, "plateau_factor", 1.0)
        self._plateau_factor = float(keras.ops.convert_to_numpy(factor))

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        step = self.progress.step
        if self._file is not None and step % STEPS_BETWEEN == 0:
            # JAX keeps the optimizer's own count elsewhere between the ends of "epochs".
            scheduled = float(keras.ops.convert_to_numpy(self._kind.learning_rate(step)))
            speed = {f"{self._kind.unit}_per_second": self.progress.per_second}
            rate = {"learning_rate": scheduled * self._plateau_factor}
            self._file.scalars(step, {**(logs or {}), **speed, **rate})

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._write_evaluations()

    def on_train_end(self, logs: Any = None) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write_evaluations(self) -> None:
        rows = self.recorder.rows
        if self._file is not None:
            for row in rows[self._written :]:
                for split, found in row.items():
                    if isinstance(found, dict):
                        values = {f"{split}/{name}": value for name, value in found.items()}
                        self._file.scalars(row["step"], values)
        self._written = len(rows)
