"""Facts about the training of a model, read without TensorFlow and Keras."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from convert_tf.checkpoints.kinds import CheckpointError, Kind, kind_of
from convert_tf.checkpoints.limits import lowered_max_tokens
from convert_tf.config.base import check
from convert_tf.config.model import MAX_TOKENS
from convert_tf.storage.checksums import check_files
from convert_tf.storage.json_text import parsed_json

TRAINING_FILE = "training.json"
READ_TOKENS = "read_tokens"  # key in training.json: number of tokens that a module reads per text
_OBJECTS = ("train", "evaluation", "time")


def read_tokens(training: Mapping[str, Any], max_tokens: int | None) -> int:
    """Return the maximum number of tokens per text for an exported network.

    Args:
      training: training facts of the model to export.
      max_tokens: the maximum that the user asked for. If None, a module keeps its maximum, and
        other models get 512.

    Raises:
      ValueError: if `max_tokens` is not positive.
    """
    if max_tokens is None:
        return int(training.get(READ_TOKENS, MAX_TOKENS))
    check(max_tokens >= 1, "max_tokens must be at least 1.", max_tokens)
    return max_tokens


def training_facts(folder: str | os.PathLike) -> dict[str, Any]:
    """Return the content of a model's `training.json`, or an empty dict if there is no such file.

    Raises:
      ValueError: if the file is damaged, or is missing although it has a checksum.
    """
    path = Path(folder) / TRAINING_FILE
    if not path.is_file():
        check_files(folder, TRAINING_FILE)
        return {}
    try:
        facts = parsed_json(path.read_text())
        if not all(isinstance(facts.get(name), dict | None) for name in _OBJECTS):
            raise ValueError(f"{', '.join(_OBJECTS)} must be objects")
        tokens = facts.get(READ_TOKENS, MAX_TOKENS)
        if type(tokens) is not int or tokens < 1:
            raise ValueError(f"{READ_TOKENS} must be a whole number of at least 1")
    except (ValueError, AttributeError) as error:
        raise CheckpointError(
            f"{path} does not describe a run ({error}). Copy the folder again."
        ) from error
    check_files(folder, TRAINING_FILE)
    return facts


def module_form(path: str | os.PathLike) -> str:
    """Return the form of an encoder's module: `"module-60"` if it reads 60 tokens per text.

    The form is part of the encoder's identity. The maximum number of tokens is in the graph of a
    module, not in its weights, so modules with the same weights may give different vectors. A
    module that reads 512 tokens has the form `""`, because earlier versions stored no form for
    modules.

    A Hugging Face folder has the form `"folder-60"` if sentence-transformers lowered its limit to
    60 tokens. Otherwise the limit is in `config.json`, which is part of the checksum.

    Args:
      path: any model. The result is `""` if it is neither the module of an encoder nor such a
        folder.

    Raises:
      ValueError: if the `training.json` of a module is damaged or missing, or a file with a limit
        in a Hugging Face folder is damaged.
    """
    kind = kind_of(path)
    if kind is Kind.HUGGING_FACE_ENCODER:
        lowered = lowered_max_tokens(Path(path))
        return "" if lowered is None else f"folder-{lowered}"
    if kind is not Kind.ENCODER_MODULE:
        return ""
    tokens = read_tokens(training_facts(path), None)
    return "" if tokens == MAX_TOKENS else f"module-{tokens}"


def numbers_turns(folder: str | os.PathLike) -> bool:
    """Return whether the model was trained with `--turn_prefixes`.

    Raises:
      ValueError: if `training.json` is damaged.
    """
    return bool(data_facts(training_facts(folder)).get("turn_prefixes"))


def unknown_in_training(facts: Mapping[str, Any]) -> float:
    """Return the share of unknown tokens in the training texts; 0 if it was not recorded."""
    share = facts.get("unknown_tokens")
    return share if isinstance(share, int | float) else 0.0


def data_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of the training facts that describes an encoder's data; `{}` for rankers."""
    data = facts.get("data")
    return data if isinstance(data, dict) else {}


def shown_name(path: str) -> str:
    """Return a folder's name for model cards, with its parent if it is a version or a step."""
    *parents, name = Path(path).parts or ("",)
    is_numbered = re.fullmatch(r"\d+|step-\d+", name)
    return "/".join([*parents[-1:], name]) if is_numbered else name
