"""The model directory: `config.json`, the vocabulary, `model.weights.h5`; it stands alone.

A run's folder is such a directory (the best weights on the dev split), with `checkpoints/step-N/`
beside it, each one such a directory plus `training_state.npz`, from which training resumes.
"""

import hashlib
import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import keras
import numpy as np

from convert_tf.config import ModelConfig, TrainConfig
from convert_tf.encoders import DualEncoder
from convert_tf.files import write_file

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.weights.h5"
TRAINING_FILE = "training.json"
STATE_FILE = "training_state.npz"
VOCABULARY_FILES = {
    "subword": "vocab.txt",
    "sentencepiece": "vocab.model",
    "wordpiece": "vocab.txt",
}
# Beside a WordPiece vocabulary: whether letters are lower-cased.
TOKENIZER_FILE = "tokenizer_config.json"
CHECKPOINTS_FOLDER = "checkpoints"


class CheckpointError(ValueError):
    """A model directory that cannot be read or written."""


def vocabulary_path(folder: str | os.PathLike, config: ModelConfig) -> Path:
    """Where the vocabulary of a model directory is."""
    return Path(folder) / VOCABULARY_FILES[config.tokenizer]


def _write_error(path: Path, error: Exception) -> CheckpointError:
    reason = getattr(error, "strerror", None) or error
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
) -> None:
    """Writes a model directory; files that are there are replaced one by one, each whole.

    Args:
      folder: made when it is not there.
      encoder: whose weights and configuration are written.
      vocabulary: the vocabulary file, which is copied, with the settings of WordPiece beside it.
      training: facts about the training, JSON values by name.

    Raises:
      CheckpointError: a file could not be written.
    """
    folder = Path(folder)
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
        write_file(folder / TRAINING_FILE, json.dumps(facts, indent=2) + "\n")
    except (OSError, RuntimeError) as error:  # h5py closes a file on a full disk with the latter
        raise _write_error(folder, error) from error
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
            "wrote."
        )
    try:
        return ModelConfig.from_json(path.read_text())
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error


def load_weights(encoder: DualEncoder, folder: str | os.PathLike) -> None:
    """Reads the weights of a model directory into `encoder`.

    Raises:
      CheckpointError: the file is missing, damaged, or of another shape.
    """
    path = Path(folder) / WEIGHTS_FILE
    try:
        encoder.load_weights(path)
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"The weights must be whole and match {CONFIG_FILE}. Received: {path}: {error}. "
            "Use another checkpoint or train again."
        ) from error


def load_initial_weights(encoder: DualEncoder, folder: str | os.PathLike) -> None:
    """Reads the weights that a run starts from, of either kind of model.

    A multi-context model takes over all of a single-context one
    (`DualEncoder.start_from_single_context`), and gives all that a single-context one has.

    Raises:
      CheckpointError: a file is missing, damaged, or of another shape.
    """
    config = load_config(folder)
    if config.multi_context or not encoder.config.multi_context:
        load_weights(encoder, folder)
        return
    single = DualEncoder(config)
    load_weights(single, folder)
    try:
        encoder.start_from_single_context(single)
    except ValueError as error:
        raise CheckpointError(
            "Initial weights must have the model's shapes. Received: "
            f"{str(folder)!r}: {error}. Give --model the shapes of that checkpoint, or use another."
        ) from error


def load_checkpoint(
    folder: str | os.PathLike, *, dtype: str = "float32"
) -> tuple[DualEncoder, Path]:
    """A trained encoder and the path of its vocabulary.

    Args:
      folder: a model directory.
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


def _step_of(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def resumable_checkpoints(run: str | os.PathLike) -> list[Path]:
    """The checkpoints of a run from which training can resume, newest first."""
    found = (Path(run) / CHECKPOINTS_FOLDER).glob("step-*")
    complete = [p for p in found if p.name[5:].isdigit() and (p / STATE_FILE).is_file()]
    return sorted(complete, key=_step_of, reverse=True)


def save_training_state(
    run: str | os.PathLike,
    model: keras.Model,
    *,
    step: int,
    vocabulary: str | os.PathLike,
    training: dict[str, Any],
    config: TrainConfig,
) -> Path:
    """Writes `checkpoints/step-N/` whole, then removes all but the newest `keep_checkpoints`.

    Args:
      run: the run's folder.
      model: a compiled model whose `encoder` is a `DualEncoder`.
      step: optimizer steps done.
      vocabulary: the vocabulary file.
      training: facts for the model directory.
      config: reads `keep_checkpoints`.

    Returns:
      The new folder.

    Raises:
      CheckpointError: it could not be written; earlier checkpoints are left as they are.
    """
    final = Path(run) / CHECKPOINTS_FOLDER / f"step-{step:08d}"
    temporary = final.with_name(final.name + ".tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        save_checkpoint(temporary, model.encoder, vocabulary=vocabulary, training=training)
        state = {
            f"{kind}_{i}": keras.ops.convert_to_numpy(variable)
            for kind, variables in _state(model).items()
            for i, variable in enumerate(variables)
        }
        np.savez(temporary / STATE_FILE, step=step, **state)
        shutil.rmtree(final, ignore_errors=True)
        os.rename(temporary, final)
    except OSError as error:
        raise _write_error(final, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    for old in resumable_checkpoints(run)[config.keep_checkpoints :]:
        shutil.rmtree(old)
    return final


def load_training_state(folder: str | os.PathLike, model: keras.Model) -> int:
    """Reads weights and optimizer state of `checkpoints/step-N/` into `model`.

    Returns:
      Steps done so far.

    Raises:
      CheckpointError: a file is damaged or of another optimizer.
    """
    load_weights(model.encoder, folder)
    path = Path(folder) / STATE_FILE
    try:
        with np.load(path) as saved:
            values = {name: saved[name] for name in saved.files}
            step = int(values.pop("step"))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise CheckpointError(
            f"A training state must be whole. Received: {path}: {error}. Remove its folder to "
            "resume from the checkpoint before it."
        ) from error
    for kind, variables in _state(model).items():
        found = [values[name] for name in values if name.startswith(f"{kind}_")]
        if [v.shape for v in variables] == [v.shape for v in found]:
            for i, variable in enumerate(variables):
                variable.assign(values[f"{kind}_{i}"])
        elif kind != "dropout":
            raise CheckpointError(
                "A run must resume with the optimizer it began with. Received: a state of "
                f"{len(found)} arrays for an optimizer of {len(variables)}. Use the same "
                "--optimizer, or --init_from in a new folder."
            )
    return step


def _state(model: keras.Model) -> dict[str, list[Any]]:
    """What a run needs beyond the encoder's weights.

    Dropout has seeds only where its rate is not 0: a run may resume with other rates, and then
    starts them anew.
    """
    dropouts = [x for x in model._flatten_layers() if isinstance(x, keras.layers.Dropout)]
    own = {id(v) for v in model.encoder.trainable_variables}
    return {
        "optimizer": [model.steps_done, *model.optimizer.variables],
        # What an objective trains beside the encoder, as the output layer of a language model.
        "objective": [v for v in model.trainable_variables if id(v) not in own],
        "dropout": [v for layer in dropouts for v in layer.variables],
    }
