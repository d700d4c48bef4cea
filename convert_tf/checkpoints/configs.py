"""Configurations of runs and modules, read without TensorFlow and Keras."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from convert_tf.checkpoints.kinds import CONFIG_FILE, CheckpointError, Kind, kind_of
from convert_tf.config.model import ModelConfig
from convert_tf.storage.checksums import check_files

_ConfigT = TypeVar("_ConfigT")


def read_config(
    folder: str | os.PathLike, parse: Callable[[str], _ConfigT], *expected: Kind
) -> _ConfigT:
    """Read the configuration of a run or module.

    Args:
      folder: folder of the run or module.
      parse: function that turns the text of `config.json` into the configuration.
      *expected: the kinds of folders that are allowed.

    Raises:
      ValueError: if the folder is of another kind, or its configuration is damaged.
    """
    kind_of(folder, *expected)
    path = Path(folder) / CONFIG_FILE
    try:
        config = parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(
            f"The module {str(folder)!r} has no {CONFIG_FILE}. Export it again with this version."
        ) from error
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error
    check_files(folder, CONFIG_FILE)
    return config


def load_config(folder: str | os.PathLike) -> ModelConfig:
    """Return the configuration of a dual encoder.

    Raises:
      ValueError: if the folder is neither the run nor the module of a dual encoder.
    """
    return read_config(folder, ModelConfig.from_json, Kind.DUAL_ENCODER, Kind.ENCODER_MODULE)
