"""A training run's folder: one run holds it, and goes on from the newest checkpoint in it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from convert_tf.checkpoints import folder as checkpoint
from convert_tf.checkpoints.kinds import kind_of
from convert_tf.checkpoints.vocabulary import VOCABULARY_FILES, check_same_vocabulary
from convert_tf.config.base import Config
from convert_tf.storage.checksums import file_checksum
from convert_tf.storage.files import lock_output, opened_lock, remove_leftovers, write_file
from convert_tf.storage.json_text import json_file, written_json
from convert_tf.training.loop import Run, take_steps
from convert_tf.training.processes import check_same, check_shared, termination_noted
from convert_tf.training.state import load_training_state, newest_checkpoint

LOCK_FILE = ".lock"


@contextlib.contextmanager
def only_run_in(folder: Path) -> Iterator[None]:
    """Holds the folder of a run; the lock ends with the process, however it ends."""
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
      CheckpointError: the checkpoints in the folder are of another model, or damaged.
      FloatingPointError: the loss or a weight became NaN; the last checkpoint is kept.
      OSError: a file cannot be read or written.

    On SIGTERM the state is saved after the step that runs, and this returns. If one of several
    processes (`processes.join_processes`) is told to end, all end.
    """
    processes, steps = run.processes, run.config.steps
    with termination_noted() as termination:
        resume_from = None
        with processes.together():
            if processes.is_first:
                resume_from = _resumed_checkpoint(run)
                written = {name: _as_json(value) for name, value in run.options.items()}
                write_file(run.folder / run.run_file, written_json(written))
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
                facts = checkpoint.training_facts(resume_from)
            if step < steps:
                run.start(facts)
        if step >= steps:
            print(f"nothing to do: the run has its {steps} steps")
        else:
            take_steps(run, step, termination)
    return run.folder


def _as_json(value: Any) -> Any:
    return value.to_dict() if isinstance(value, Config) else value


def _resumed_checkpoint(run: Run) -> Path | None:
    """The newest checkpoint, of the same model and vocabulary; None where there is none.

    What else is not as before is printed.
    """
    newest, file = newest_checkpoint(run.folder), run.folder / run.run_file
    if newest is None:
        return None
    if not file.is_file():
        raise checkpoint.CheckpointError(
            f"{str(run.folder)!r} has checkpoints but no {run.run_file}. Choose another --output, "
            "or remove the checkpoints."
        )
    if changes := run.model_changes(newest):
        listed = "\n".join(f"  {name}: {old!r} → {new!r}" for name, (old, new) in changes.items())
        raise checkpoint.CheckpointError(
            f"A resumed run must keep its {run.keeps}. Received another one:\n{listed}\n"
            "Take these flags back, or choose another --output."
        )
    check_same_vocabulary(
        run.vocabulary,
        newest / VOCABULARY_FILES[run.tokenizer],
        rule="A resumed run must keep its vocabulary",
        remedy="Use that one or another --output.",
    )
    changes = _changed_options(options_before(run.folder / run.run_file), run.options)
    for name, (old, new) in changes.items():
        print(f"resuming with another {name}: {old} → {new}")
    if changes.keys() & run.decides_order:
        print("these decide the order of the pairs: some may be seen again, some later")
    return newest


def options_before(run_file: Path) -> dict[str, Any]:
    """The options in a run file except the model: name → value, of all configurations together."""
    options: dict[str, Any] = {}
    for name, value in json_file(run_file).items():
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
