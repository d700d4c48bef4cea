"""The model directory: `config.json`, the vocabulary, `model.weights.h5`; it stands alone.

In place of `model.weights.h5` it may hold `model.weights.8bit.npz`, a quarter of its size, to carry
a model from the machine where it was trained (`hub_modules/recipes/rounded.py` writes it).

`sha256.json` has the checksums of its files, and none is read that is not as it was written.

A module that `convert-tf export` wrote can be read in its place; its weights are rounded.

A run's folder is such a directory (the best weights on the dev split); what it resumes from is in
`convert_tf.training.state`.
"""

import io
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from convert_tf.checkpoints.facts import TRAINING_FILE, training_facts
from convert_tf.checkpoints.kinds import CONFIG_FILE, CheckpointError, Kind, kind_of
from convert_tf.checkpoints.rounded import rounded_archive, rounded_arrays
from convert_tf.checkpoints.vocabulary import VOCABULARY_FILES, checked_vocabulary
from convert_tf.config.model import ModelConfig
from convert_tf.models.bert import BertTrunk
from convert_tf.models.encoder import DualEncoder
from convert_tf.models.ranker import RankerModel
from convert_tf.numerics.quantization import pack_table
from convert_tf.storage.arrays import load_array
from convert_tf.storage.checksums import check_files, checksum, write_files
from convert_tf.storage.json_text import written_json
from convert_tf.text.vocabulary import SETTINGS_FILE

WEIGHTS_FILE = "model.weights.h5"
ROUNDED_WEIGHTS_FILE = "model.weights.8bit.npz"
# The map to the teacher's vectors, of a distilled model; only training reads it.
PROJECTION_FILE = "teacher_projection.npy"
# The map of r to vectors for similarity, which models may have and modules then do.
SIMILARITY_FILE = "similarity_map.npy"

Model = DualEncoder | RankerModel | BertTrunk
_ConfigT = TypeVar("_ConfigT")


def weights_files(folder: str | os.PathLike) -> list[Path]:
    """The files that hold the weights of a model directory or of a module."""
    if kind_of(folder).is_module:
        return sorted((Path(folder) / "variables").iterdir())
    return [_weights_file(folder)]


def _weights_file(folder: str | os.PathLike) -> Path:
    """The weights of a model directory; the exact ones where there are two kinds, or none."""
    exact, rounded = (Path(folder) / name for name in (WEIGHTS_FILE, ROUNDED_WEIGHTS_FILE))
    return rounded if rounded.is_file() and not exact.is_file() else exact


def shown_name(path: str) -> str:
    """What a card calls a folder: its name, and that of the one above where it is a mere number."""
    *above, name = Path(path).parts or ("",)
    is_numbered = re.fullmatch(r"\d+|step-\d+", name)
    return "/".join([*above[-1:], name]) if is_numbered else name


def write_error(path: Path, error: Exception) -> CheckpointError:
    """What to raise where a checkpoint could not be written."""
    reason = str(getattr(error, "strerror", None) or error)
    return CheckpointError(
        f"A checkpoint must be written whole. Received: {reason} at {path}. "
        "Nothing was left under that name; free some space or choose another folder, and run the "
        "same command again."
    )


def save_checkpoint(
    folder: str | os.PathLike,
    encoder: Model,
    *,
    vocabulary: str | os.PathLike,
    training: dict[str, Any],
    teacher_projection: np.ndarray | None = None,
    similarity_map: np.ndarray | None = None,
    is_rounded: bool = False,
) -> None:
    """Writes a model directory; files that are there are replaced one by one, each whole.

    Args:
      folder: made when it is not there.
      encoder: whose weights and configuration are written.
      vocabulary: the vocabulary file, which is copied, with the settings of WordPiece beside it.
      training: facts about the training, JSON values by name.
      teacher_projection: float32 `[reduced_dim, teacher_dim]`, the linear map of r to the vectors
        of a teacher; None for a model without one.
      similarity_map: float32 `[reduced_dim, dim]`, the linear map of r to vectors for similarity;
        None for a model without one.
      is_rounded: whether matrices are stored in 8 bits, as a module of 8 bits has them.

    Raises:
      CheckpointError: a file could not be written.
    """
    folder = Path(folder)
    if kind_of(folder).is_module:
        raise CheckpointError(
            f"A checkpoint has a folder of its own. Received: {str(folder)!r}, a module. Choose "
            "another folder."
        )
    vocabulary_bytes = Path(vocabulary).read_bytes()
    facts = {**training, "vocabulary_sha256": checksum([vocabulary_bytes])}
    contents = {VOCABULARY_FILES[encoder.config.tokenizer]: vocabulary_bytes}
    settings = Path(vocabulary).with_name(SETTINGS_FILE)
    if encoder.config.tokenizer == "wordpiece" and settings.is_file():
        contents[SETTINGS_FILE] = settings.read_bytes()
    contents[CONFIG_FILE] = encoder.config.to_json().encode()
    if is_rounded:
        contents[ROUNDED_WEIGHTS_FILE] = _rounded_weights(encoder)
    else:
        # In memory: HDF5 may end the process where it meets a full disk.
        weights = _WeightsInMemory()
        encoder.save_weights(weights)
        contents[WEIGHTS_FILE] = weights.getvalue()
    arrays = {PROJECTION_FILE: teacher_projection, SIMILARITY_FILE: similarity_map}
    for name, array in arrays.items():
        if array is not None:
            content = io.BytesIO()
            np.save(content, array)
            contents[name] = content.getvalue()
    contents[TRAINING_FILE] = written_json(facts).encode()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_files(folder, contents)
    except OSError as error:
        raise write_error(folder, error) from error


def _rounded_weights(model: Model) -> bytes:
    """Matrices in 8 bits; a subword table that was trained in 8 bits as training has seen it."""
    tables = {}
    for layer in model._flatten_layers():
        if getattr(layer, "quantizer", None) is not None and layer.built:
            ranges = layer.quantizer_weights
            table = pack_table(layer.table, ranges["range_min"], ranges["range_max"])
            tables[layer.table.path] = table
    arrays = {
        variable.path: np.asarray(variable)
        for variable in model.weights
        if variable.path not in tables
    }
    return rounded_archive(arrays, tables)


def _load_rounded_weights(model: Model, path: Path) -> None:
    arrays = rounded_arrays(path)
    if wrong := {variable.path for variable in model.weights} ^ arrays.keys():
        raise ValueError(f"{min(wrong)} is on one side alone")
    for variable in model.weights:
        variable.assign(arrays[variable.path])


class _WeightsInMemory(io.BytesIO):
    """A file in memory that Keras saves weights to, told by its name."""

    def __str__(self) -> str:
        return WEIGHTS_FILE


def read_config(
    folder: str | os.PathLike, parse: Callable[[str], _ConfigT], *expected: Kind
) -> _ConfigT:
    """The configuration of a model directory, or of a module.

    Args:
      folder: the folder.
      parse: from the text of `config.json` to the configuration.
      *expected: what the folder must hold one of.

    Raises:
      CheckpointError: it holds something else, or its configuration is damaged.
    """
    kind_of(folder, *expected)
    path = Path(folder) / CONFIG_FILE
    try:
        config = parse(path.read_text(encoding="utf-8"))
        check_files(folder, CONFIG_FILE, error=CheckpointError)
        return config
    except FileNotFoundError as error:
        raise CheckpointError(
            f"A module is read further that holds {CONFIG_FILE}. Received: {str(folder)!r}, "
            f"without {CONFIG_FILE}. Export it again with this version."
        ) from error
    except CheckpointError:
        raise
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error


def load_config(folder: str | os.PathLike) -> ModelConfig:
    """The configuration of a dual encoder's model directory, or of its module.

    Raises:
      CheckpointError: the folder is something else.
    """
    return read_config(folder, ModelConfig.from_json, Kind.DUAL_ENCODER, Kind.ENCODER_MODULE)


def load_weights(encoder: Model, folder: str | os.PathLike) -> None:
    """Reads the weights of a model directory, or of a dual encoder's module, into `encoder`.

    Raises:
      CheckpointError: the file is missing, damaged, or of another shape.
    """
    reads_module = kind_of(folder).is_module and isinstance(encoder, DualEncoder)
    path = Path(folder) / "variables" if reads_module else _weights_file(folder)
    check_files(folder, *(() if reads_module else (path.name,)), error=CheckpointError)
    try:
        if reads_module:
            from convert_tf.checkpoints.module_weights import load_module_weights

            load_module_weights(encoder, folder)
        elif path.name == ROUNDED_WEIGHTS_FILE:
            _load_rounded_weights(encoder, path)
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
    # Modules say what is trained in an order, of which a frozen layer is no part.
    is_frozen = not encoder.trunk.trainable
    if not (is_shallower or reads_less or is_frozen):
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
    if training_facts(folder).get("teacher") != teacher:
        return None
    return _load_array(folder, PROJECTION_FILE)


def load_similarity_map(folder: str | os.PathLike) -> np.ndarray | None:
    """The map of r to vectors for similarity, `[reduced_dim, dim]`; None where there is none.

    Args:
      folder: a dual encoder's model directory, or its module.

    Raises:
      CheckpointError: the file is damaged.
    """
    if not kind_of(folder).is_module:
        return _load_array(folder, SIMILARITY_FILE)
    try:
        from convert_tf.checkpoints.module_weights import module_similarity_map

        return module_similarity_map(folder)
    except ValueError as error:
        raise CheckpointError(
            f"The variables of a module must be whole. Received: {os.fspath(folder)!r}: {error}. "
            "Use another module, or export it again."
        ) from error


def _load_array(folder: str | os.PathLike, name: str) -> np.ndarray | None:
    path = Path(folder) / name
    check_files(folder, name, error=CheckpointError)
    if not path.is_file():
        return None
    try:
        return load_array(path)
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{name} must be whole. Received: {path}: {error}. Copy or make the folder again."
        ) from error


def load_checkpoint(
    folder: str | os.PathLike,
    *,
    dtype: str = "float32",
    attention_dropout: float = 0.0,
    is_trained: bool = True,
) -> tuple[DualEncoder, Path]:
    """An encoder and the path of its vocabulary.

    Args:
      folder: a model directory, or a module that `convert-tf export` wrote.
      dtype: precision policy of the encoder's computations.
      attention_dropout: drop rate, where it is trained further.
      is_trained: False leaves the weights as they are initialised.

    Returns:
      `(encoder, vocabulary path)`; give the path to `vocabulary.fitting_tokenizer`.

    Raises:
      CheckpointError: the folder is incomplete or damaged, or its vocabulary was exchanged.
    """
    config = load_config(folder)
    vocabulary = checked_vocabulary(folder, config)
    encoder = DualEncoder(config, attention_dropout=attention_dropout, dtype=dtype)
    if is_trained:
        load_weights(encoder, folder)
    return encoder, vocabulary
