"""Write and read the checkpoints `checkpoints/step-N/`, from which a run can be resumed.

Each checkpoint is a model directory (`convert_tf.checkpoints.folder`) that also contains
`training_state.npz` and the checksums of all its files. A checkpoint is written under a temporary
name, and renamed when it is complete. The last few checkpoints are kept. A run that is killed at
any moment can therefore be resumed from the newest complete one.
"""

import io
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np

from convert_tf.checkpoints.folder import CheckpointError, load_weights
from convert_tf.checkpoints.vocabulary import check_same_vocabulary, vocabulary_path
from convert_tf.config.base import DATA, Config
from convert_tf.storage.arrays import load_arrays
from convert_tf.storage.checksums import check_files, record_checksums
from convert_tf.storage.files import write_file
from convert_tf.storage.folders import OutputFolder
from convert_tf.storage.json_text import json_file
from convert_tf.training.step import Objective
from convert_tf.training.task import Task

CHECKPOINTS_FOLDER = "checkpoints"
STATE_FILE = "training_state.npz"
# Data options that do not affect the order of the training examples.
_NOT_OF_ORDER = ("dev_data", "eval_splits", "turn_prefixes")


def step_folder(step: int) -> str:
    """Return the name of the folder for the checkpoint after a step."""
    return f"step-{step:08d}"


def _step_of(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def saved_checkpoints(run: str | os.PathLike) -> list[Path]:
    """Return the checkpoints of a run, newest first, including damaged ones."""
    folders = (Path(run) / CHECKPOINTS_FOLDER).glob("step-*")
    return sorted((p for p in folders if p.name[5:].isdigit()), key=_step_of, reverse=True)


def newest_checkpoint(run: str | os.PathLike) -> Path | None:
    """Return the newest undamaged checkpoint, and print what is wrong with any newer ones.

    Returns:
      The folder of the checkpoint, or None if the run has no checkpoints yet.

    Raises:
      CheckpointError: if the run has checkpoints, but all of them are damaged.
    """
    damages: list[str] = []
    for folder in saved_checkpoints(run):
        try:
            if not (folder / STATE_FILE).is_file():
                raise ValueError(f"it has no {STATE_FILE}.")
            check_files(folder)
        except (OSError, ValueError) as error:
            damages.append(f"{folder} is damaged: {error}")
            continue
        for damage in damages:
            print(
                f"{damage} The previous checkpoint is used instead. When the run saves its next "
                "checkpoint, the damaged one is deleted.",
                file=sys.stderr,
            )
        return folder
    if damages:
        raise CheckpointError(
            f"No checkpoint of the run can be read. {' '.join(damages)} Remove "
            f"{CHECKPOINTS_FOLDER}/ to start the run from the beginning, or choose another "
            "--output."
        )
    return None


def resumed_checkpoint(task: Task) -> Path | None:
    """Return the newest checkpoint in a task's folder, or None if there is none.

    The checkpoint must have the same model, optimizer and vocabulary as the task. Changes to other
    options are printed.
    """
    newest, file = newest_checkpoint(task.folder), task.folder / task.run_file
    if newest is None:
        return None
    if not file.is_file():
        raise CheckpointError(
            f"{str(task.folder)!r} has checkpoints but no {task.run_file}. Choose another "
            "--output, or remove the checkpoints."
        )
    if changes := task.model_changes(newest):
        listed = "\n".join(f"  {name}: {old!r} → {new!r}" for name, (old, new) in changes.items())
        raise CheckpointError(
            "A resumed run must keep its model and optimizer. These options have changed:\n"
            f"{listed}\nUndo these changes, or choose another --output."
        )
    check_same_vocabulary(
        task.vocabulary,
        vocabulary_path(newest, task.model.encoder.config),
        rule="A resumed run must keep its vocabulary",
        remedy="Use that vocabulary, or choose another --output.",
    )
    before, options = options_before(file), task.options()
    changes, known = {}, {*options}
    for name, value in options.items():
        if isinstance(value, Config):
            known |= value.defaults().keys()
            changes |= value.changes_since(before) if name != "model" else {}
        elif before.get(name) != value:
            changes[name] = before.get(name), value
    if gone := sorted(before.keys() - known):
        raise CheckpointError(
            f"The run in {str(task.folder)!r} has options that no longer exist: "
            f"{', '.join(gone)}. Finish it with the version that began it, or choose another "
            "--output."
        )
    for name, (old, new) in changes.items():
        print(f"resuming with changed {name}: {old} → {new}")
    decide = {*task.config.group(DATA), "batch_size", "batch_tokens", "seed"} - {*_NOT_OF_ORDER}
    if changes.keys() & decide:
        print("this may change the order of the examples: some may be repeated, others delayed")
    return newest


def options_before(run_file: Path) -> dict[str, Any]:
    """Return the options in a run file as a dict, without the options of the model.

    Raises:
      ValueError: if the file is not a JSON object.
    """
    stored = json_file(run_file)
    if not isinstance(stored, dict):
        raise CheckpointError(
            f"{str(run_file)!r} is damaged: it is not a JSON object. Copy it again, or choose "
            "another --output."
        )
    options: dict[str, Any] = {}
    for name, value in stored.items():
        if name != "model":
            options |= value if isinstance(value, dict) else {name: value}
    return options


def save_training_state(task: Task, *, step: int, facts: dict[str, Any]) -> Path:
    """Write `checkpoints/step-N/`, and then remove old checkpoints.

    Checkpoints of later steps are removed too. Such checkpoints are damaged, which is why the run
    was resumed from an earlier one.

    Args:
      task: the task, in its state after `step`. Of the new checkpoint and the ones before it, the
        newest `config.keep_checkpoints` are kept.
      step: number of optimizer steps done.
      facts: content of `training.json`.

    Returns:
      The path of the new checkpoint.

    Raises:
      FileWriteError: if the checkpoint cannot be written. Earlier checkpoints remain unchanged.
    """
    final = task.folder / CHECKPOINTS_FOLDER / step_folder(step)
    with OutputFolder(final, replaceable=["*"], overwrite=True).open() as written:
        task.save(written, facts)
        state = {
            f"{kind}_{i}": keras.ops.convert_to_numpy(variable)
            for kind, variables in _state(task.model).items()
            for i, variable in enumerate(variables)
        }
        # Written to memory first. If NumPy cannot write a zip file, it raises a second error later.
        content = io.BytesIO()
        np.savez(content, step=step, **state)
        write_file(written / STATE_FILE, content.getvalue())
        record_checksums(written, [STATE_FILE])
    saved = saved_checkpoints(task.folder)
    newest = saved.index(final)
    for old in saved[:newest] + saved[newest + task.config.keep_checkpoints :]:
        shutil.rmtree(old)
    return final


def load_training_state(folder: str | os.PathLike, model: Objective) -> int:
    """Load the weights and the optimizer state from `checkpoints/step-N/` into `model`.

    Returns:
      The number of steps done before the checkpoint was written.

    Raises:
      CheckpointError: if a file is damaged or belongs to another optimizer.
    """
    load_weights(model.encoder, folder)
    path = Path(folder) / STATE_FILE
    try:
        values = load_arrays(path)
        step = int(values.pop("step"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"The training state {path} is damaged: {error}. Remove the folder that contains this "
            "file to resume from the previous checkpoint."
        ) from error
    for kind, variables in _state(model).items():
        saved = [values[name] for name in values if name.startswith(f"{kind}_")]
        if [v.shape for v in variables] == [v.shape for v in saved]:
            for i, variable in enumerate(variables):
                variable.assign(values[f"{kind}_{i}"])
        elif kind != "dropout" and (kind != "not_trained" or saved):
            raise CheckpointError(
                f"The run began with a different optimizer, whose state has {len(saved)} arrays "
                f"instead of {len(variables)}. Use the same --optimizer, losses and --history_only "
                "as before, or start a run in a new folder with --init_from."
            )
    return step


def _state(model: Objective) -> dict[str, list[Any]]:
    """Return the variables that make up a run's state, apart from the encoder's weights.

    Dropout layers have seeds only if their rate is not 0. A run that is resumed with other rates
    therefore starts with new seeds. Checkpoints of earlier versions lack non-trainable weights. A
    run that is resumed from such a checkpoint starts with the initial values of these weights.
    """
    layers = model._flatten_layers()
    seeds = [seed for layer in layers for seed in getattr(layer, "_seed_generators", ())]
    other_ids = {id(v) for v in (model.steps_done, *model.encoder.weights)}
    return {
        "optimizer": [model.steps_done, *model.optimizer.variables],
        # Weights that belong only to the objective, such as a language model's output layer.
        "objective": [v for v in model.trainable_variables if id(v) not in other_ids],
        # For example, the moving averages of batch normalization in a user's loss.
        "not_trained": [v for v in model.non_trainable_weights if id(v) not in other_ids],
        "dropout": [seed.state for seed in seeds],
    }
