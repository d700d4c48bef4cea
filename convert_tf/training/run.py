"""One training run of any kind: its folder, resuming, the steps, and what stops them.

A run calls `fit` with "epochs" of a fixed number of steps; evaluation and checkpoints come at their
ends, when every backend has its variables in place. An epoch also ends, with a checkpoint, when the
process is told to end.
"""

import contextlib
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

from convert_tf.checkpoints import folder as checkpoint
from convert_tf.checkpoints.kinds import kind_of
from convert_tf.checkpoints.vocabulary import VOCABULARY_FILES, check_same_vocabulary
from convert_tf.config.base import PRECISIONS, Config
from convert_tf.data.prefetch import Prefetch
from convert_tf.numerics.devices import choose_precision
from convert_tf.storage.checksums import file_checksum
from convert_tf.storage.files import remove_leftovers, write_file
from convert_tf.storage.json_text import json_file, written_json
from convert_tf.storage.locks import holder_or_locked, opened_lock
from convert_tf.training.kind import RunKind
from convert_tf.training.objective import Objective
from convert_tf.training.processes import check_same, check_shared
from convert_tf.training.recorder import Recorder, RunProgress
from convert_tf.training.shares import AgreedSteps
from convert_tf.training.state import load_training_state, newest_checkpoint
from convert_tf.training.tensorboard import TensorBoardWriter
from convert_tf.training.termination import Termination, termination_noted

LOCK_FILE = ".lock"


@contextlib.contextmanager
def only_run_in(folder: Path) -> Iterator[None]:
    """Holds the folder of a run; the lock ends with the process, however it ends."""
    if kind_of(folder).is_module:
        raise ValueError(
            f"A run has a folder of its own. Received: {str(folder)!r}, a module. Choose another "
            "--output."
        )
    folder.mkdir(parents=True, exist_ok=True)
    with opened_lock(folder / LOCK_FILE) as lock:
        holder = holder_or_locked(lock)
        if holder is not None:
            raise ValueError(
                f"One folder holds one run at a time. Received: {str(folder)!r}, in which another "
                f"process is training. Wait for it, or choose another --output.{holder}"
            )
        remove_leftovers(folder)
        yield


def carry_out(kind: RunKind) -> Path:
    """Trains until the last step, from the newest checkpoint in the folder where there is one.

    Call it with the folder held (`only_run_in`) and the seed set.

    Returns:
      The run's folder, a model directory with the best weights.

    Raises:
      CheckpointError: the checkpoints there are of another model, or damaged.
      FloatingPointError: the loss or a weight became NaN; the last checkpoint is kept.
      OSError: a file cannot be read or written.

    On SIGTERM the state is saved after the step that runs, and this returns. Of several processes
    (`processes.join_processes`) all do where one is told to end.
    """
    processes, steps = kind.processes, kind.config.steps
    with termination_noted() as termination:
        resume_from = None
        with processes.together():
            if processes.is_first:
                resume_from = _resumed_checkpoint(kind)
                written = {name: _as_json(value) for name, value in kind.options.items()}
                write_file(kind.folder / kind.run_file, written_json(written))
        if processes.number > 1:
            check_shared(processes, kind.folder)
            with processes.together():
                resume_from = newest_checkpoint(kind.folder)
            vocabulary = file_checksum(kind.vocabulary)
            facts = (kind.facts_to_agree_on(resume_from), vocabulary, resume_from)
            check_same(processes, repr(facts))
        chosen = PRECISIONS.index(choose_precision(kind.precision))
        # Timings differ between processes.
        kind.precision = PRECISIONS[processes.gather(chosen)[0, 0]]
        model = kind.make_model()
        step = 0
        with processes.together():
            if resume_from is None:
                kind.begin(model)
            else:
                step = load_training_state(resume_from, model)
                print(f"resuming at step {step} from {resume_from}")
                kind.resume(checkpoint.training_facts(resume_from))
        if step >= steps:
            print(f"nothing to do: the run has its {steps} steps")
        else:
            kind.open_batches()
            fit(kind, model, step, termination)
    return kind.folder


def _as_json(value: Any) -> Any:
    return value.to_dict() if isinstance(value, Config) else value


def _resumed_checkpoint(kind: RunKind) -> Path | None:
    """The newest checkpoint, of the same model and vocabulary; None where there is none.

    What else is not as before is printed.
    """
    newest, file = newest_checkpoint(kind.folder), kind.folder / kind.run_file
    if newest is None:
        return None
    if not file.is_file():
        raise checkpoint.CheckpointError(
            f"A run must have its {kind.run_file}. Received: {str(kind.folder)!r}, which has "
            "checkpoints but not that file. Choose another --output, or remove its checkpoints."
        )
    if changes := kind.changes_of_model(newest):
        listed = "\n".join(f"  {name}: {old!r} → {new!r}" for name, (old, new) in changes.items())
        raise checkpoint.CheckpointError(
            f"A resumed run must keep its {kind.keeps}. Received another one:\n{listed}\n"
            "Take these flags back, or choose another --output."
        )
    check_same_vocabulary(
        kind.vocabulary,
        newest / VOCABULARY_FILES[kind.tokenizer],
        rule="A resumed run must keep its vocabulary",
        remedy="Use that one or another --output.",
    )
    changes = _changed_options(options_before(kind), kind.options)
    for name, (old, new) in changes.items():
        print(f"resuming with another {name}: {old} → {new}")
    if changes.keys() & kind.decides_order:
        print("these decide the order of the pairs: some may be seen again, some later")
    return newest


def options_before(kind: RunKind) -> dict[str, Any]:
    """What the run file says, but for the model: name → value, of all configurations together."""
    options: dict[str, Any] = {}
    for name, value in json_file(kind.folder / kind.run_file).items():
        if name != "model":
            options |= value if isinstance(value, dict) else {name: value}
    return options


def _changed_options(before: dict[str, Any], options: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    changes: dict[str, tuple[Any, Any]] = {}
    for name, value in options.items():
        if name == "model":
            continue
        if isinstance(value, Config):
            changes |= value.changes_since(before)
        elif before.get(name) != value:
            changes[name] = (before.get(name), value)
    return changes


def fit(kind: RunKind, model: Objective, step: int, termination: Termination) -> None:
    """The steps from `step` on, until the last one or until the process is told to end."""
    config, processes = kind.config, kind.processes
    agreed = None
    if processes.number > 1:
        termination = agreed = AgreedSteps(processes, termination, padding_id=kind.padding_id)
    progress = RunProgress(kind, step, termination=termination)
    recorder = Recorder(kind, progress)
    callbacks: list[keras.callbacks.Callback] = [progress, recorder]
    if processes.is_first:
        callbacks += [TensorBoardWriter(kind, progress=progress, recorder=recorder)]
    interval = math.gcd(config.eval_every, config.checkpoint_every)
    while not progress.is_over:
        # Off the grid only the steps to its next point, so that a run that resumes there is
        # evaluated at the steps at which an uninterrupted one is.
        off_grid = progress.step % interval
        epochs = 1 if off_grid else math.ceil((config.steps - progress.step) / interval)
        with Prefetch(kind.batches_from(progress.step)) as prefetched:
            if kind.varies_in_width:
                _fit_any_widths(model, prefetched, callbacks, epochs, interval - off_grid)
                continue
            model.fit(
                _until_error(prefetched) if agreed is None else agreed.batches(prefetched),
                epochs=epochs,
                steps_per_epoch=interval - off_grid,
                shuffle=False,
                verbose=0,
                callbacks=callbacks if agreed else [_InputError(prefetched), *callbacks],
            )


def _fit_any_widths(
    model: Objective,
    batches: Iterator[dict[str, np.ndarray]],
    callbacks: list[keras.callbacks.Callback],
    epochs: int,
    steps: int,
) -> None:
    """`fit` where widths vary; the logs of a step are of its batch alone.

    Keras takes a dimension behind the first in which its first two batches agree for a fixed one.
    """
    listed = keras.callbacks.CallbackList(callbacks, model=model)
    model.stop_training = False
    listed.on_train_begin()
    for epoch in range(epochs):
        listed.on_epoch_begin(epoch)
        for number, batch in enumerate(itertools.islice(batches, steps)):
            listed.on_train_batch_end(number, model.train_on_batch(batch, return_dict=True))
            if model.stop_training:
                break
        listed.on_epoch_end(epoch)
        if model.stop_training:
            break
    listed.on_train_end()


class _InputError(keras.callbacks.Callback):
    """Raises what went wrong while batches were made, behind the step during which it did."""

    def __init__(self, prefetched: Prefetch):
        super().__init__()
        self.prefetched = prefetched

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.prefetched.error is not None:
            raise self.prefetched.error


def _until_error(prefetched: Prefetch) -> Iterator[tuple[dict[str, np.ndarray]]]:
    """The batches; from an error on the one before it, until `_InputError` raises.

    An error in a generator would reach `fit` as one of TensorFlow's, with a traceback in the log.
    """
    batch = None
    while True:
        try:
            batch = next(prefetched)
        except StopIteration:  # it was closed
            return
        except Exception:
            if batch is None:  # `fit` takes the first batches itself
                raise
        yield (batch,)
