"""The model directory: `config.json`, the vocabulary, `model.weights.h5`; it stands alone.

A module that `export.py` wrote can be read in its place; its weights are rounded.

A run's folder is such a directory (the best weights on the dev split); what it resumes from is in
`convert_tf.training_state`.
"""

import hashlib
import io
import json
import os
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from convert_tf.config import ModelConfig
from convert_tf.encoders import DualEncoder
from convert_tf.files import write_file

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.weights.h5"
TRAINING_FILE = "training.json"
# The map to the teacher's vectors, of a distilled model; only training reads it.
PROJECTION_FILE = "teacher_projection.npy"
VOCABULARY_FILES = {
    "subword": "vocab.txt",
    "sentencepiece": "vocab.model",
    "wordpiece": "vocab.txt",
}
# Beside a WordPiece vocabulary: whether letters are lower-cased.
TOKENIZER_FILE = "tokenizer_config.json"


class CheckpointError(ValueError):
    """A model directory that cannot be read or written."""


def is_module(folder: str | os.PathLike) -> bool:
    """Whether a folder is a module, and not a model directory."""
    return (Path(folder) / "saved_model.pb").is_file()


def weights_files(folder: str | os.PathLike) -> list[Path]:
    """The files that hold the weights of a model directory or of a module."""
    if is_module(folder):
        return sorted((Path(folder) / "variables").iterdir())
    return [Path(folder) / WEIGHTS_FILE]


def shown_name(path: str) -> str:
    """What a card calls a folder: its name, and that of the one above where it is a mere number."""
    *above, name = Path(path).parts or ("",)
    is_numbered = re.fullmatch(r"\d+|step-\d+", name)
    return "/".join([*above[-1:], name]) if is_numbered else name


def vocabulary_path(folder: str | os.PathLike, config: ModelConfig) -> Path:
    """Where the vocabulary of a model directory, or of a module, is."""
    folder = Path(folder) / "assets" if is_module(folder) else Path(folder)
    return folder / VOCABULARY_FILES[config.tokenizer]


def write_error(path: Path, error: Exception) -> CheckpointError:
    """What to raise where a checkpoint could not be written."""
    reason = str(getattr(error, "strerror", None) or error)
    if said := re.search(r"error message = '([^']*)'", reason):  # HDF5, on lines of its own
        reason = said[1]
    return CheckpointError(
        f"A checkpoint must be written whole. Received: {reason} at {path}. "
        "Nothing was left under that name; free some space or choose another folder, and run the "
        "same command again."
    )


def save_checkpoint(
    folder: str | os.PathLike,
    encoder: DualEncoder,
    *,
    vocabulary: str | os.PathLike,
    training: dict[str, Any],
    teacher_projection: np.ndarray | None = None,
) -> None:
    """Writes a model directory; files that are there are replaced one by one, each whole.

    Args:
      folder: made when it is not there.
      encoder: whose weights and configuration are written.
      vocabulary: the vocabulary file, which is copied, with the settings of WordPiece beside it.
      training: facts about the training, JSON values by name.
      teacher_projection: float32 `[reduced_dim, teacher_dim]`, the linear map of r to the vectors
        of a teacher; None for a model without one.

    Raises:
      CheckpointError: a file could not be written.
    """
    folder = Path(folder)
    if is_module(folder):
        raise CheckpointError(
            f"A checkpoint has a folder of its own. Received: {str(folder)!r}, a module. Choose "
            "another folder."
        )
    vocabulary_bytes = Path(vocabulary).read_bytes()
    facts = {**training, "vocabulary_sha256": hashlib.sha256(vocabulary_bytes).hexdigest()}
    temporary = folder / ("new." + WEIGHTS_FILE)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_file(vocabulary_path(folder, encoder.config), vocabulary_bytes)
        settings = Path(vocabulary).with_name(TOKENIZER_FILE)
        if encoder.config.tokenizer == "wordpiece" and settings.is_file():
            write_file(folder / TOKENIZER_FILE, settings.read_bytes())
        write_file(folder / CONFIG_FILE, encoder.config.to_json())
        encoder.save_weights(temporary)
        os.replace(temporary, folder / WEIGHTS_FILE)
        if teacher_projection is not None:
            content = io.BytesIO()
            np.save(content, teacher_projection)
            write_file(folder / PROJECTION_FILE, content.getvalue())
        write_file(folder / TRAINING_FILE, json.dumps(facts, indent=2) + "\n")
    except (OSError, RuntimeError) as error:  # h5py closes a file on a full disk with the latter
        raise write_error(folder, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def load_config(folder: str | os.PathLike) -> ModelConfig:
    """The configuration of a model directory.

    Raises:
      CheckpointError: the folder is no model directory.
    """
    path = Path(folder) / CONFIG_FILE
    if not path.is_file():
        raise CheckpointError(
            f"A checkpoint must be a folder with {CONFIG_FILE}, a vocabulary and {WEIGHTS_FILE}. "
            f"Received: {str(folder)!r}, without {CONFIG_FILE}. Name the folder that train.py "
            "wrote, or a dual encoder's module that export.py wrote with this version."
        )
    try:
        return ModelConfig.from_json(path.read_text())
    except ValueError as error:
        if _is_of_a_ranker(path):
            raise CheckpointError(
                f"A dual encoder is needed here. Received: {str(folder)!r}, a ranker of "
                "train.py --head. Name the checkpoint that it was trained from."
            ) from error
        raise CheckpointError(f"{path}: {error}") from error


def _is_of_a_ranker(path: Path) -> bool:
    try:
        return {"model", "trunk", "head"} <= set(json.loads(path.read_text()))
    except (ValueError, TypeError):
        return False


def load_weights(encoder: DualEncoder, folder: str | os.PathLike) -> None:
    """Reads the weights of a model directory, or of a module, into `encoder`.

    Raises:
      CheckpointError: the file is missing, damaged, or of another shape.
    """
    path = Path(folder) / ("variables" if is_module(folder) else WEIGHTS_FILE)
    try:
        if is_module(folder):
            from convert_tf.module_weights import load_module_weights

            load_module_weights(encoder, folder)
        else:
            encoder.load_weights(path)
    except ModuleNotFoundError as error:
        raise CheckpointError(
            f"A module is read with TensorFlow. Received: {str(folder)!r}, and {error}. Install "
            "it, or use the folder of a run."
        ) from error
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"The weights must be whole and match {CONFIG_FILE}. Received: {path}: {error}. "
            "Use another checkpoint or module, or make it again."
        ) from error


def load_initial_weights(encoder: DualEncoder, folder: str | os.PathLike) -> None:
    """Reads the weights that a run starts from, of either kind of model.

    A multi-context model takes over all of a single-context one, and a deep one all of one with
    fewer blocks (`DualEncoder.start_from`); a multi-context one gives all that a single-context
    one has.

    Raises:
      CheckpointError: a file is missing, damaged, or of another shape.
    """
    config = load_config(folder)
    is_shallower = len(config.max_relative_attention) < len(encoder.trunk.blocks)
    reads_less = encoder.config.multi_context and not config.multi_context
    if not is_shallower and not reads_less:
        load_weights(encoder, folder)
        return
    other = DualEncoder(config)
    load_weights(other, folder)
    try:
        encoder.start_from(other)
    except ValueError as error:
        raise CheckpointError(
            "Initial weights must have the model's shapes. Received: "
            f"{str(folder)!r}: {error}. Give --model the shapes of that checkpoint, or use another."
        ) from error


def load_teacher_projection(folder: str | os.PathLike, teacher: str) -> np.ndarray | None:
    """The map of `save_checkpoint`; None where there is none, or one to another teacher's vectors.

    Raises:
      CheckpointError: the file is damaged.
    """
    path = Path(folder) / PROJECTION_FILE
    if training_facts(folder).get("teacher") != teacher or not path.is_file():
        return None
    try:
        return np.load(path)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise CheckpointError(
            f"{PROJECTION_FILE} must be whole. Received: {path}: {error}. Remove it to start from "
            "another one."
        ) from error


def load_checkpoint(
    folder: str | os.PathLike, *, dtype: str = "float32"
) -> tuple[DualEncoder, Path]:
    """A trained encoder and the path of its vocabulary.

    Args:
      folder: a model directory, or a module that `export.py` wrote.
      dtype: precision policy of the encoder's computations.

    Returns:
      `(encoder, vocabulary path)`; give the path to `convert_tf.load_tokenizer`.

    Raises:
      CheckpointError: the folder is incomplete or damaged, or its vocabulary was exchanged.
    """
    config = load_config(folder)
    vocabulary = vocabulary_path(folder, config)
    if not vocabulary.is_file():
        raise CheckpointError(
            f"A checkpoint must hold its vocabulary. Received: {str(folder)!r}, without "
            f"{vocabulary.name}. Copy the vocabulary that the model was trained with there."
        )
    trained_with = training_facts(folder).get("vocabulary_sha256")
    if trained_with not in (None, hashlib.sha256(vocabulary.read_bytes()).hexdigest()):
        raise CheckpointError(
            f"A checkpoint must hold the vocabulary it was trained with. Received: {vocabulary}, "
            "which is another one. Put the right file there."
        )
    encoder = DualEncoder(config, dtype=dtype)
    load_weights(encoder, folder)
    return encoder, vocabulary


def training_facts(folder: str | os.PathLike) -> dict[str, Any]:
    """What `save_checkpoint` was told about the training; empty when it was told nothing."""
    path = Path(folder) / TRAINING_FILE
    if not path.is_file():
        return {}
    try:
        facts = json.loads(path.read_text())
    except ValueError as error:
        raise CheckpointError(
            f"{TRAINING_FILE} must hold JSON. Received: {path}: {error}. Remove it to do without "
            "its facts."
        ) from error
    if not isinstance(facts, dict):
        raise CheckpointError(
            f"{TRAINING_FILE} must hold one JSON object. Received: {facts!r} in {path}. Remove it "
            "to do without its facts."
        )
    return facts


def check_vocabulary(tokenizer: Any, config: ModelConfig) -> None:
    """Raises `CheckpointError` unless the tokenizer has the ids that the model has rows for."""
    received = (tokenizer.name, tokenizer.vocab_size, tokenizer.num_oov_buckets)
    expected = (config.tokenizer, config.vocab_size, config.num_oov_buckets)
    if received != expected:
        raise CheckpointError(
            "The vocabulary must be the one that the model was made for: tokenizer, entries and "
            f"hash buckets {expected}. Received: {received}. Use the vocabulary in the folder of "
            "the checkpoint."
        )
