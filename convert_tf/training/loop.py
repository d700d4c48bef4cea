"""Training runs: their folder, their steps, and what happens between the steps.

`carry_out` trains from the newest checkpoint in the folder of a run. It draws a batch and takes a
step, again and again; every so many steps it evaluates and writes a checkpoint. A run ends at its
last step, when the process is told to end, or when the loss or a weight is no number.
"""

import contextlib
import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import keras
import numpy as np

from convert_tf.checkpoints.folder import CheckpointError, save_checkpoint, training_facts
from convert_tf.checkpoints.kinds import kind_of
from convert_tf.checkpoints.vocabulary import check_same_vocabulary, vocabulary_path
from convert_tf.config.base import DATA, Config
from convert_tf.config.train import Training
from convert_tf.data.prefetch import prefetched
from convert_tf.figures import write_picture
from convert_tf.storage.checksums import file_checksum
from convert_tf.storage.files import lock_output, opened_lock, remove_leftovers, write_file
from convert_tf.storage.json_text import json_file, parsed_json, written_json
from convert_tf.training.objective import Objective, current_learning_rate
from convert_tf.training.processes import (
    ALONE,
    Processes,
    Termination,
    agreed_batches,
    check_same,
    check_shared,
    termination_noted,
)
from convert_tf.training.state import (
    CHECKPOINTS_FOLDER,
    load_training_state,
    newest_checkpoint,
    save_training_state,
    step_folder,
)
from convert_tf.training.summaries import opened_summaries

METRICS_FILE = "metrics.jsonl"
RUN_FILE = "train_config.json"
CURVE_FILE = "curve.png"
SECONDS_BETWEEN_LINES = 10.0
STEPS_BETWEEN_SUMMARIES = 50
LOCK_FILE = ".lock"
_NOT_OF_ORDER = ("dev_data", "eval_splits", "turn_prefixes")  # of the options of the data


class Batch(NamedTuple):
    """The input of one training step.

    Attributes:
      inputs: what the model takes.
      units: pairs or tokens in it, for the speed.
      facts: added to the facts of the next checkpoints, such as where the data go on.
    """

    inputs: dict[str, np.ndarray]
    units: int
    facts: Mapping[str, Any] = MappingProxyType({})


@dataclasses.dataclass
class Run:
    """A training run: its model, data, options and folder, as `make_run` of each kind returns it.

    Attributes:
      folder: the run's folder.
      config: the options of training.
      options: configurations and JSON values that the run file stores.
      vocabulary: the vocabulary file that is copied into each checkpoint.
      model: the compiled model under its objective.
      facts: what checkpoints say of the training.
      batches_from: takes the steps done; yields batches without end from the next step on.
      evaluate: takes the steps done, the means of the metrics since the last evaluation or
        checkpoint, and the rows so far; returns what `metrics.jsonl` says further of this step.
      score: of such a row; the row with the highest has the best weights. None keeps the last.
      curve: makes `curve.png` of the rows.
      model_changes: takes an earlier checkpoint; returns how its model differs, as name → (value
        there, value now).
      start: called once before the steps if any are left: with None in a new run, else with the
        facts of the checkpoint whose weights were loaded.
      to_save: further arguments of `save_checkpoint` for the best weights.
      to_agree_on: takes the checkpoint to resume from; returns what must be the same in all
        processes.
      run_file: name of the file of `options`.
      unit: what speed counts.
      padding_id: of packed batches, where several processes train.
      processes: those that train together.
    """

    folder: Path
    config: Training
    options: dict[str, Any]
    vocabulary: Path
    model: Objective
    facts: dict[str, Any]
    batches_from: Callable[[int], Iterable[Batch]]
    evaluate: Callable[[int, dict[str, float], list[dict[str, Any]]], dict[str, Any]]
    score: Callable[[dict[str, Any]], float | None]
    curve: Callable[[list[dict[str, Any]]], bytes]
    model_changes: Callable[[Path], dict[str, tuple[Any, Any]]]
    start: Callable[[dict[str, Any] | None], None] = lambda facts: None
    to_save: Callable[[], dict[str, Any]] = dict
    to_agree_on: Callable[[Path | None], Any] = lambda resume_from: None
    run_file: str = RUN_FILE
    unit: str = "pairs"
    padding_id: int = 0
    processes: Processes = ALONE


class NonFiniteError(FloatingPointError):
    """The loss or a weight is NaN or infinite.

    Args:
      what: what is NaN or infinite, and how, as "the loss is nan".
      step: number of the step.
    """

    def __init__(self, what: str, step: int):
        super().__init__(
            f"Training stopped: {what} at step {step}. The checkpoints written so far are kept. "
            "Lower --learning_rate or change --precision, and run the same command again to resume "
            "from the last one."
        )


class Clock:
    """Time of the steps; evaluations and checkpoints do not count.

    Args:
      before: the `total` of earlier processes of the run.

    Attributes:
      per_second, steps_per_second: units and steps a second since the clock was started.
    """

    def __init__(self, before: dict[str, float]):
        self._total = {"seconds": 0.0, "cpu_seconds": 0.0, **before}
        self.per_second = self.steps_per_second = 0.0
        self.start()

    def start(self) -> None:
        """Go on after a pause."""
        self._started = time.perf_counter(), time.process_time()
        self._units = self._steps = 0

    def count(self, units: int) -> None:
        """Count a step."""
        self._units += units
        self._steps += 1
        seconds = max(time.perf_counter() - self._started[0], 1e-9)
        self.per_second, self.steps_per_second = self._units / seconds, self._steps / seconds

    def pause(self) -> None:
        """Add the time since the start to the total."""
        self._total["seconds"] += time.perf_counter() - self._started[0]
        self._total["cpu_seconds"] += time.process_time() - self._started[1]

    def total(self) -> dict[str, float]:
        """`seconds` of all steps, and `cpu_seconds` of all threads in them.

        Other programs on the machine hardly change the latter.
        """
        return {name: round(seconds, 3) for name, seconds in self._total.items()}


def take_steps(run: Run, step: int, termination: Termination) -> None:
    """Take the steps after `step`, until the last one or until the process is told to end.

    Raises:
      NonFiniteError: the loss or a weight became NaN or infinite.
      ValueError, OSError: as the batches and the files of the run raise.
    """
    steps = _Steps(run, step)
    try:
        if step == 0:
            steps.evaluate({})
        with prefetched(run.batches_from(step)) as batches:
            if run.processes.number > 1:
                local, termination = termination, Termination()
                batches = agreed_batches(
                    run.processes, batches, local, termination, padding_id=run.padding_id
                )
            steps.go_on()
            for batch in batches:
                steps.take(batch)
                is_ending = termination.is_requested and steps.step < run.config.steps
                steps.pause_where_due(is_ending=is_ending)
                if is_ending or steps.step >= run.config.steps:
                    break
    finally:
        if steps.summaries is not None:
            steps.summaries.close()


class _Steps:
    """The state of a run between two steps."""

    def __init__(self, run: Run, step: int):
        self.run = run
        self.step = step
        self.rows = _rows_up_to(run.folder, step)
        resumed = run.folder / CHECKPOINTS_FOLDER / step_folder(step)
        self.clock = Clock(training_facts(resumed).get("time", {}))
        self.summaries = opened_summaries(run.folder / "logs") if run.processes.is_first else None
        self._train_step = make_step(run.model)
        self._shown_at = 0.0

    def take(self, batch: Batch) -> None:
        """Train on a batch, and show how far the run is."""
        logs = self._train_step(batch.inputs)
        self.step += 1
        self.count(batch, logs)
        now = time.perf_counter()
        is_last = self.step == self.run.config.steps
        if now - self._shown_at >= SECONDS_BETWEEN_LINES or is_last:
            self._shown_at = now
            self._print_progress(_floats(logs))
        if self.summaries is not None and self.step % STEPS_BETWEEN_SUMMARIES == 0:
            self._train_step.sync()
            speed = {f"{self.run.unit}_per_second": self.clock.per_second}
            rate = {"learning_rate": current_learning_rate(self.run.model.optimizer)}
            self.summaries.scalars(self.step, {**_floats(logs), **speed, **rate})

    def count(self, batch: Batch, logs: dict[str, Any]) -> None:
        """Note that a batch was trained on, with these means of the metrics."""
        loss = float(logs["loss"])
        if not math.isfinite(loss):
            raise NonFiniteError(f"a loss of {loss}", self.step)
        self.run.facts |= batch.facts
        self.clock.count(batch.units)
        self._logs = logs

    def _print_progress(self, logs: dict[str, float]) -> None:
        total = self.run.config.steps
        left = int((total - self.step) / self.clock.steps_per_second)
        losses = {name: loss for name, loss in logs.items() if name.endswith("_loss")}
        self.run.processes.say(
            f"step {self.step}/{total}  {_as_text(losses or logs)}  "
            f"{self.clock.steps_per_second:.2f} steps/s  "
            f"{self.clock.per_second:.0f} {self.run.unit}/s  "
            f"{left // 3600}:{left // 60 % 60:02d}:{left % 60:02d} left"
        )

    def pause_where_due(self, *, is_ending: bool) -> None:
        """Evaluate and write a checkpoint after the steps at which they are due."""
        config, processes = self.run.config, self.run.processes
        is_last = self.step >= config.steps
        is_evaluated = (is_last or self.step % config.eval_every == 0) and not is_ending
        is_saved = is_last or is_ending or self.step % config.checkpoint_every == 0
        if not is_evaluated and not is_saved:
            return
        self.clock.pause()
        self._train_step.sync()
        self._refuse_non_finite_weights()
        if is_evaluated:
            self.evaluate(_floats(self._logs))
        if is_saved:
            with processes.together():
                if processes.is_first:
                    save_training_state(
                        self.run.folder,
                        self.run.model,
                        step=self.step,
                        vocabulary=self.run.vocabulary,
                        training=self._training_facts(),
                        keep=config.keep_checkpoints,
                    )
        if is_ending:
            processes.say(
                f"told to end: saved step {self.step}; the same command goes on from there"
            )
        self.go_on()

    def go_on(self) -> None:
        """Begin the means of the metrics and the speed anew."""
        self.run.model.reset_metrics()
        self.clock.start()

    def _refuse_non_finite_weights(self) -> None:
        """Raise before they are saved: the loss is no number only a step after a weight."""
        for variable in self.run.model.trainable_variables:
            if not np.isfinite(keras.ops.convert_to_numpy(variable)).all():
                raise NonFiniteError(f"a value that is no number in {variable.path}", self.step)

    def evaluate(self, logs: dict[str, float]) -> None:
        """Add a row to `metrics.jsonl`; in all processes, of which the first one writes."""
        run = self.run
        row = {
            "step": self.step,
            f"{run.unit}_per_second": round(self.clock.per_second, 1),
            **self.clock.total(),
            **run.evaluate(self.step, logs, self.rows),
        }
        measured = {name: v for name, v in row.items() if isinstance(v, dict) and v}
        for name, values in measured.items():
            run.processes.say(f"step {self.step}  {name}  {_as_text(values)}")
        score, before = run.score(row), [run.score(earlier) for earlier in self.rows]
        is_best = score is None or all(score > other for other in before if other is not None)
        self.rows.append(row)
        with run.processes.together():
            if run.processes.is_first:
                self._write_rows()
                if is_best:
                    save_checkpoint(
                        run.folder,
                        run.model.encoder,
                        vocabulary=run.vocabulary,
                        training=self._training_facts(),
                        **run.to_save(),
                    )
                if self.summaries is not None:
                    for name, values in measured.items():
                        named = {f"{name}/{metric}": value for metric, value in values.items()}
                        self.summaries.scalars(self.step, named)

    def _write_rows(self) -> None:
        folder = self.run.folder
        write_file(folder / METRICS_FILE, "".join(json.dumps(r) + "\n" for r in self.rows))
        if len(self.rows) > 1:  # one point is no curve
            write_picture(folder / CURVE_FILE, lambda: self.run.curve(self.rows))

    def _training_facts(self) -> dict[str, Any]:
        evaluation = self.rows[-1] if self.rows else None
        return {**self.run.facts, "evaluation": evaluation, "time": self.clock.total()}


def _as_text(measured: dict[str, float]) -> str:
    def shown(name: str, value: float) -> str:
        if "@" in name:  # R100@1 and its like
            return f"{100 * value:.2f} %"
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    return "  ".join(f"{name} {shown(name, value)}" for name, value in measured.items())


def _floats(logs: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in logs.items()}


def _rows_up_to(run: Path, step: int) -> list[dict[str, Any]]:
    path = run / METRICS_FILE
    if step == 0 or not path.is_file():
        return []
    rows = [parsed_json(line) for line in path.read_text().splitlines()]
    return [row for row in rows if row["step"] <= step]


class _TensorFlowStep:
    def __init__(self, model: Objective):
        import tensorflow as tf

        self._step = tf.function(
            model.train_step, reduce_retracing=True, jit_compile=model.jit_compile
        )
        self._is_traced = tf.config.functions_run_eagerly()

    def __call__(self, inputs: dict[str, np.ndarray]) -> dict[str, Any]:
        if not self._is_traced:
            self._trace(inputs)
        return self._step((inputs,))

    def _trace(self, inputs: dict[str, np.ndarray]) -> None:
        """Trace the step for any number of rows, or it would be traced for the first number too."""
        import tensorflow as tf

        specs = {name: tf.TensorSpec((None, *x.shape[1:]), x.dtype) for name, x in inputs.items()}
        self._step.get_concrete_function((specs,))
        self._is_traced = True

    def sync(self) -> None:
        """Do nothing: the step assigns its variables itself."""


class _JaxStep:
    def __init__(self, model: Objective):
        import jax

        self._model = model
        self._distribution = keras.distribution.distribution()
        shardings = None
        if self._distribution is not None:
            shardings = (None, jax.tree.map(lambda x: x.sharding, self._read()))
        self._step = jax.jit(model.train_step, donate_argnums=0, out_shardings=shardings)
        self._state: Any = None

    def __call__(self, inputs: dict[str, np.ndarray]) -> dict[str, Any]:
        state = self._read() if self._state is None else self._state
        logs, self._state = self._step(state, (self._on_devices(inputs),))
        return logs

    def sync(self) -> None:
        if self._state is not None:
            for variables, values in zip(self._variables(), self._state, strict=True):
                for variable, value in zip(variables, values, strict=True):
                    variable.assign(value)
            self._state = None

    def _variables(self) -> tuple[list[Any], ...]:
        model = self._model
        return (
            model.trainable_variables,
            model.non_trainable_variables,
            model.optimizer.variables,
            model.metrics_variables,
        )

    def _read(self) -> tuple[list[Any], ...]:
        return tuple([variable.value for variable in of_kind] for of_kind in self._variables())

    def _on_devices(self, inputs: dict[str, np.ndarray]) -> dict[str, Any]:
        """Return a batch on all devices; each process gives its share of it."""
        if self._distribution is None:
            return inputs
        import jax

        layouts = {name: self._distribution.get_data_layout(x.shape) for name, x in inputs.items()}
        return {
            name: jax.make_array_from_process_local_data(layouts[name].backend_layout, x)
            for name, x in inputs.items()
        }


def make_step(model: Objective) -> _JaxStep | _TensorFlowStep:
    """Return the step of a compiled model, on Keras's backend.

    It takes the inputs of a batch and returns the metrics since they were reset, as scalars. Its
    `sync` writes the state into the variables of the model; call it before you read or set them.
    """
    return _JaxStep(model) if keras.backend.backend() == "jax" else _TensorFlowStep(model)


@contextlib.contextmanager
def only_run_in(folder: Path) -> Iterator[None]:
    """Hold the folder of a run. The lock ends with the process, however it ends."""
    if kind_of(folder).is_module:
        raise ValueError(
            f"{str(folder)!r} is a module and cannot hold a training run. Choose another --output."
        )
    folder.mkdir(parents=True, exist_ok=True)
    with opened_lock(folder / LOCK_FILE) as lock:
        lock_output(lock, f"training in {str(folder)!r}")
        remove_leftovers(folder)
        yield


def carry_out(run: Run) -> Path:
    """Train until the last step, from the newest checkpoint in the folder where there is one.

    Call it with the folder held (`only_run_in`) and the seed set.

    Returns:
      The run's folder, a model directory with the best weights.

    Raises:
      CheckpointError: if the checkpoints in the folder are of another model, or damaged.
      FloatingPointError: if the loss or a weight became NaN; the last checkpoint is kept.
      OSError: if a file cannot be read or written.

    On SIGTERM the state is saved after the step that runs, and this returns. If one of several
    processes (`processes.join_processes`) is told to end, all end.
    """
    processes, steps = run.processes, run.config.steps
    with termination_noted() as termination:
        resume_from = None
        with processes.together():
            if processes.is_first:
                resume_from = _resumed_checkpoint(run)
                options = {
                    name: value.to_dict() if isinstance(value, Config) else value
                    for name, value in run.options.items()
                }
                write_file(run.folder / run.run_file, written_json(options))
        if processes.number > 1:
            check_shared(processes, run.folder)
            with processes.together():
                resume_from = newest_checkpoint(run.folder)
            vocabulary = file_checksum(run.vocabulary)
            check_same(processes, repr((run.to_agree_on(resume_from), vocabulary, resume_from)))
        step, facts = 0, None
        with processes.together():
            if resume_from is not None:
                step = load_training_state(resume_from, run.model)
                print(f"resuming at step {step} from {resume_from}")
                facts = training_facts(resume_from)
            if step < steps:
                run.start(facts)
        if step >= steps:
            print(f"nothing to do: the run has its {steps} steps")
        else:
            take_steps(run, step, termination)
    return run.folder


def _resumed_checkpoint(run: Run) -> Path | None:
    """Return the newest checkpoint, or None. It must be of the same model and vocabulary.

    Other options that changed are printed.
    """
    newest, file = newest_checkpoint(run.folder), run.folder / run.run_file
    if newest is None:
        return None
    if not file.is_file():
        raise CheckpointError(
            f"{str(run.folder)!r} has checkpoints but no {run.run_file}. Choose another --output, "
            "or remove the checkpoints."
        )
    if changes := run.model_changes(newest):
        listed = "\n".join(f"  {name}: {old!r} → {new!r}" for name, (old, new) in changes.items())
        raise CheckpointError(
            f"A resumed run must keep its model. Received another one:\n{listed}\n"
            "Take these flags back, or choose another --output."
        )
    check_same_vocabulary(
        run.vocabulary,
        vocabulary_path(newest, run.model.encoder.config),
        rule="A resumed run must keep its vocabulary",
        remedy="Use that one or another --output.",
    )
    before = options_before(file)
    changes, known = {}, {*run.options}
    for name, value in run.options.items():
        if isinstance(value, Config):
            known |= value.defaults().keys()
            changes |= value.changes_since(before) if name != "model" else {}
        elif before.get(name) != value:
            changes[name] = before.get(name), value
    if gone := sorted(before.keys() - known):
        raise CheckpointError(
            f"The run in {str(run.folder)!r} has options that are gone: {', '.join(gone)}. Finish "
            "it with the version that began it, or choose another --output."
        )
    for name, (old, new) in changes.items():
        print(f"resuming with another {name}: {old} → {new}")
    decide = {*run.config.group(DATA), "batch_size", "batch_tokens", "seed"} - {*_NOT_OF_ORDER}
    if changes.keys() & decide:
        print("these may change the order of the examples: some may be seen again, some later")
    return newest


def options_before(run_file: Path) -> dict[str, Any]:
    """Return the options in a run file, of all configurations but the model: name → value."""
    options: dict[str, Any] = {}
    for name, value in json_file(run_file).items():
        if name != "model":
            options |= value if isinstance(value, dict) else {name: value}
    return options
