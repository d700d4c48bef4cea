"""Read and write the files of a run's model: `config.json`, vocabulary, `model.weights.h5`.

The weights are those with the best result on the dev split. `convert_tf.training.state` reads and
writes the checkpoints that a run resumes from.

Instead of `model.weights.h5` there may be `model.weights.8bit.npz`, which is a quarter of the size
and is written by `hub_modules/recipes/rounded.py`. `sha256.json` contains the checksums of the
files. They are checked when the files are read. Encoders can also be read from modules, which have
rounded weights.
"""

import io
import os
from collections import Counter
from collections.abc import Set
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from convert_tf.checkpoints.configs import load_config
from convert_tf.checkpoints.facts import TRAINING_FILE, training_facts
from convert_tf.checkpoints.kinds import CONFIG_FILE, CheckpointError, kind_of
from convert_tf.checkpoints.rounded import rounded_archive, rounded_arrays
from convert_tf.checkpoints.vocabulary import checked_vocabulary
from convert_tf.models.bert import BertTrunk
from convert_tf.models.encoder import DualEncoder
from convert_tf.models.ranker import RankerModel
from convert_tf.numerics.byte_codes import pack_table
from convert_tf.storage.arrays import load_array
from convert_tf.storage.checksums import CHECKSUMS_FILE, check_files, checksum, write_files
from convert_tf.storage.files import write_file
from convert_tf.storage.folders import OutputFolder
from convert_tf.storage.json_text import json_file, written_json
from convert_tf.text.vocabulary import SETTINGS_FILE, VOCABULARY_FILES

WEIGHTS_FILE = "model.weights.h5"
ROUNDED_WEIGHTS_FILE = "model.weights.8bit.npz"
# Linear map from r to the teacher's vectors. Only further training uses it.
PROJECTION_FILE = "teacher_projection.npy"
# Linear map from r to similarity vectors (optional).
SIMILARITY_FILE = "similarity_map.npy"

Model = DualEncoder | RankerModel | BertTrunk
_ModelT = TypeVar("_ModelT", DualEncoder, RankerModel, BertTrunk)


def weights_files(folder: str | os.PathLike) -> list[Path]:
    """Return the paths of the files with the weights of a run or module, except hidden files."""
    if kind_of(folder).is_module:
        files = (Path(folder) / "variables").iterdir()
        return sorted(file for file in files if not file.name.startswith("."))
    return [_weights_file(folder)]


def _weights_file(folder: str | os.PathLike) -> Path:
    """Return the path of the exact weights, or of the rounded weights if only these exist."""
    exact, rounded = (Path(folder) / name for name in (WEIGHTS_FILE, ROUNDED_WEIGHTS_FILE))
    return rounded if rounded.is_file() and not exact.is_file() else exact


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
    """Write a model to a folder.

    A new folder is written atomically. In an existing folder, each file is replaced atomically, and
    weights in the other format (exact or rounded) are removed.

    Args:
      folder: the folder, which is created if necessary.
      encoder: the model to write.
      vocabulary: the vocabulary file to copy. For WordPiece, the tokenizer's settings in the same
        folder are copied too.
      training: facts about the training, JSON values by name.
      teacher_projection: float32 `[reduced_dim, teacher_dim]`, the linear map from r to a teacher's
        vectors; None for a model without a teacher.
      similarity_map: float32 `[reduced_dim, dim]`, the linear map from r to similarity vectors;
        None for a model without such vectors.
      is_rounded: whether to store matrices with 8 bits per weight.

    Raises:
      CheckpointError: if the folder is a module.
      ValueError: if weights to round are not finite, or existing checksums cannot be read.
      FileWriteError: if a file cannot be written.
    """
    folder = Path(folder)
    if kind_of(folder).is_module:
        raise CheckpointError(f"{str(folder)!r} is a module. Choose another folder.")
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
        contents[WEIGHTS_FILE] = _exact_weights(encoder)
    arrays = {PROJECTION_FILE: teacher_projection, SIMILARITY_FILE: similarity_map}
    for name, array in arrays.items():
        if array is not None:
            content = io.BytesIO()
            np.save(content, array)
            contents[name] = content.getvalue()
    contents[TRAINING_FILE] = written_json(facts).encode()
    if folder.is_dir():
        write_files(folder, contents)
        _remove_files(folder, {WEIGHTS_FILE, ROUNDED_WEIGHTS_FILE} - contents.keys())
        return
    with OutputFolder(folder).open() as new:
        write_files(new, contents)


def remove_maps(folder: str | os.PathLike) -> None:
    """Remove the linear maps of an earlier model, before another model is written to its folder.

    `save_checkpoint` replaces only the files that it writes, so the maps would stay.

    Raises:
      ValueError: if the existing checksums cannot be read.
      FileWriteError: if the checksums cannot be written.
    """
    _remove_files(folder, {PROJECTION_FILE, SIMILARITY_FILE})


def _remove_files(folder: str | os.PathLike, names: Set[str]) -> None:
    """Remove files and their checksums. Files that do not exist are ignored."""
    path = Path(folder) / CHECKSUMS_FILE
    if path.is_file():  # first, because a file with a checksum must not be missing
        sums = json_file(path)
        write_file(path, written_json({n: sums[n] for n in sums if n not in names}))
    for name in names:
        (Path(folder) / name).unlink(missing_ok=True)


def _exact_weights(model: Model) -> bytes:
    """Return the weights as HDF5, written in memory, because HDF5 may crash on a full disk."""
    weights = _WeightsInMemory()
    model.save_weights(weights)
    return weights.getvalue()


def _rounded_weights(model: Model) -> bytes:
    """Return the weights, with 8-bit matrices. The subword table keeps its trained range."""
    tables = {}  # by the id of the variable, because the tables of two trunks have the same path
    for layer in model._flatten_layers():
        if getattr(layer, "quantizer", None) is not None and layer.built:
            ranges = layer.quantizer_weights
            table = pack_table(layer.table, ranges["range_min"], ranges["range_max"])
            tables[id(layer.table)] = table
    weights = _weights_by_name(model)
    return rounded_archive(
        {name: np.asarray(v) for name, v in weights.items() if id(v) not in tables},
        {name: tables[id(v)] for name, v in weights.items() if id(v) in tables},
    )


def _load_rounded_weights(model: Model, path: Path) -> None:
    arrays, weights = rounded_arrays(path), _weights_by_name(model)
    if wrong := weights.keys() ^ arrays.keys():
        raise ValueError(f"{min(wrong)} is in only one of the model and the file")
    for name, variable in weights.items():
        variable.assign(arrays[name])


def _weights_by_name(model: Model) -> dict[str, Any]:
    """Return the variables by path. A path that repeats, as in a second trunk, gets a number."""
    weights: dict[str, Any] = {}
    counts: Counter[str] = Counter()
    for variable in model.weights:
        counts[variable.path] += 1
        number = counts[variable.path]
        weights[variable.path if number == 1 else f"{variable.path}#{number}"] = variable
    return weights


class _WeightsInMemory(io.BytesIO):
    """File in memory. Keras recognises the format of the weights by the name of the file."""

    def __str__(self) -> str:
        return WEIGHTS_FILE


def load_weights(encoder: Model, folder: str | os.PathLike) -> None:
    """Load the weights of a run, or of an encoder's module, into `encoder`.

    Args:
      encoder: a model with the same configuration as the stored model.
      folder: folder of the run or module.

    Raises:
      ValueError: if the weights are missing, damaged, or have other shapes.
    """
    reads_module = kind_of(folder).is_module and isinstance(encoder, DualEncoder)
    path = Path(folder) / "variables" if reads_module else _weights_file(folder)
    check_files(folder, *(() if reads_module else (path.name,)))
    try:
        if reads_module:
            from convert_tf.checkpoints.module_weights import load_variables
            from convert_tf.checkpoints.tensor_bundle import ModuleVariables

            load_variables(encoder, ModuleVariables(folder))
        elif path.name == ROUNDED_WEIGHTS_FILE:
            _load_rounded_weights(encoder, path)
        else:
            encoder.load_weights(path)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        # NumPy raises TypeError, and h5py RuntimeError, for some damaged files.
        if isinstance(error, RuntimeError) and type(error) is not RuntimeError:
            raise  # for example, JAX's error if a GPU has too little memory
        raise CheckpointError(
            f"The weights in {path} are damaged or do not match {CONFIG_FILE} "
            f"({' '.join(str(error).split())}). Use another run or module, or create this one "
            "again."
        ) from error


def load_initial_weights(encoder: DualEncoder, folder: str | os.PathLike) -> None:
    """Load the initial weights of a training run from another encoder.

    Each of the two encoders may be multi-context or not, and the other encoder may have fewer
    blocks (`DualEncoder.start_from`).

    Args:
      encoder: the encoder to train.
      folder: run or module of the other encoder.

    Raises:
      ValueError: if the weights are missing, damaged, or have other shapes.
    """
    config = load_config(folder)
    is_shallower = len(config.max_relative_attention) < len(encoder.trunk.blocks)
    reads_less = encoder.config.multi_context and not config.multi_context
    # Modules number the trainable variables, so a frozen layer would shift the numbers.
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
            f"The weights of {str(folder)!r} do not fit the model ({error}). Choose a --model with "
            "the same shapes, or start from another run or module."
        ) from error


def load_teacher_projection(folder: str | os.PathLike, teacher: str) -> np.ndarray | None:
    """Return the linear map from r to a teacher's vectors; None if the folder has no such map.

    Args:
      folder: folder of a run.
      teacher: name of the teacher, which must be the one that the run was trained with.

    Raises:
      ValueError: if the file is damaged.
    """
    if training_facts(folder).get("teacher") != teacher:
        return None
    return _load_array(folder, PROJECTION_FILE)


def load_similarity_map(folder: str | os.PathLike) -> np.ndarray | None:
    """Return the linear map from r to similarity vectors, `[reduced_dim, dim]`, or None.

    Args:
      folder: run or module of a dual encoder.

    Raises:
      ValueError: if the file is damaged.
    """
    if not kind_of(folder).is_module:
        return _load_array(folder, SIMILARITY_FILE)
    try:
        from convert_tf.checkpoints.module_weights import module_similarity_map

        return module_similarity_map(folder)
    except ValueError as error:
        raise CheckpointError(
            f"The module {os.fspath(folder)!r} is damaged ({error}). Use another module, or export "
            "it again."
        ) from error


def _load_array(folder: str | os.PathLike, name: str) -> np.ndarray | None:
    path = Path(folder) / name
    check_files(folder, name)
    if not path.is_file():
        return None
    try:
        return load_array(path)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged ({error}). Copy the folder again.") from error


def load_checkpoint(
    folder: str | os.PathLike, *, dtype: str = "float32", attention_dropout: float = 0.0
) -> tuple[DualEncoder, Path]:
    """Load a dual encoder.

    Args:
      folder: run or module of a dual encoder.
      dtype: precision policy of the encoder's computations.
      attention_dropout: dropout rate after self-attention, for further training.

    Returns:
      The encoder and the path of its vocabulary, which `vocabulary.fitting_tokenizer` takes.

    Raises:
      ValueError: if the folder is incomplete or damaged, or its vocabulary is not the one that the
        encoder was trained with.
    """
    config = load_config(folder)
    encoder = DualEncoder(config, attention_dropout=attention_dropout, dtype=dtype)
    return with_weights(encoder, folder)


def with_weights(model: _ModelT, folder: str | os.PathLike) -> tuple[_ModelT, Path]:
    """Load the weights of a run or module into a new model with the same configuration.

    Returns:
      The model and the path of its vocabulary.

    Raises:
      ValueError: if the folder is incomplete or damaged, or its vocabulary is not the one that the
        model was trained with.
    """
    vocabulary = checked_vocabulary(folder, model.config)
    load_weights(model, folder)
    return model, vocabulary
