"""What the folder of a model says of its training, read without TensorFlow and Keras."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from convert_tf.checkpoints.kinds import CheckpointError
from convert_tf.storage.checksums import check_files
from convert_tf.storage.json_text import parsed_json

TRAINING_FILE = "training.json"
_OBJECTS = ("train", "evaluation", "time")


def training_facts(folder: str | os.PathLike) -> dict[str, Any]:
    """What a model directory or a module says of its training; empty where it says nothing.

    Raises:
      CheckpointError: it is damaged, or gone where its checksum is there.
    """
    path = Path(folder) / TRAINING_FILE
    if not path.is_file():
        check_files(folder, TRAINING_FILE, error=CheckpointError)
        return {}
    try:
        facts = parsed_json(path.read_text())
    except ValueError as error:
        raise CheckpointError(
            f"{TRAINING_FILE} must hold JSON. Received: {path}: {error}. Copy or make the folder "
            "again."
        ) from error
    if not isinstance(facts, dict):
        raise CheckpointError(
            f"{TRAINING_FILE} must hold one JSON object. Received: {facts!r} in {path}. Copy or "
            "make the folder again."
        )
    if wrong := [name for name in _OBJECTS if not isinstance(facts.get(name, {}), dict | None)]:
        raise CheckpointError(
            f"{', '.join(wrong)} in {TRAINING_FILE} must be JSON objects. Received: "
            f"{facts[wrong[0]]!r} in {path}. Copy or make the folder again."
        )
    check_files(folder, TRAINING_FILE, error=CheckpointError)
    return facts


def numbers_turns(folder: str | os.PathLike) -> bool:
    """Whether the turns before a context are numbered, as with `--turn_prefixes` in training.

    Raises:
      CheckpointError: `training.json` is damaged.
    """
    return bool(data_facts(training_facts(folder)).get("turn_prefixes"))


def unknown_in_training(facts: Mapping[str, Any]) -> float:
    """The share of unknown tokens in the texts of a training, by its facts; 0 where not known."""
    share = facts.get("unknown_tokens")
    return share if isinstance(share, int | float) else 0.0


def data_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What training facts say of the data of an encoder; of a ranker they have its path alone."""
    data = facts.get("data")
    return data if isinstance(data, dict) else {}
