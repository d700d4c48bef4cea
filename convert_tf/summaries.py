"""TensorBoard summaries of a run."""

from typing import Any

import keras
import tensorflow as tf

from convert_tf.callbacks import Progress, RunRecorder

STEPS_BETWEEN = 50


class TensorBoardWriter(keras.callbacks.Callback):
    """Writes loss, accuracy, speed and learning rate every 50 steps, and each evaluation.

    Unlike Keras's own callback it counts steps from the start of the run, not of the process, so
    the curves of a resumed run go on.

    Args:
      log_dir: folder of the event files.
      progress: tells the step and the speed.
      recorder: holds the evaluations; stands before this callback in the list.
    """

    def __init__(self, log_dir: str, *, progress: Progress, recorder: RunRecorder):
        super().__init__()
        self.progress = progress
        self.recorder = recorder
        self._writer = tf.summary.create_file_writer(log_dir)
        self._written = len(recorder.rows)

    def on_train_begin(self, logs: Any = None) -> None:
        self._write_evaluations()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if self.progress.step % STEPS_BETWEEN == 0:
            self._write(
                self.progress.step,
                {
                    **(logs or {}),
                    "pairs_per_second": self.progress.pairs_per_second,
                    "learning_rate": float(self.model.optimizer.learning_rate),
                },
            )

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._write_evaluations()

    def on_train_end(self, logs: Any = None) -> None:
        self._writer.close()

    def _write_evaluations(self) -> None:
        rows = self.recorder.rows
        for row in rows[self._written :]:
            for split in self.recorder.eval_sets:
                self._write(row["step"], {f"{split}/{k}": v for k, v in row[split].items()})
        self._written = len(rows)
        self._writer.flush()

    def _write(self, step: int, values: dict[str, Any]) -> None:
        with self._writer.as_default(step):
            for name, value in values.items():
                tf.summary.scalar(name, value)
