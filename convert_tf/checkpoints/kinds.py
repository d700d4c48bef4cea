"""What a folder or file of convert_tf holds, told by its name and by one file in it."""

import enum
import os
from pathlib import Path

from convert_tf.data.shards import record_files
from convert_tf.storage.checksums import CHECKSUMS_FILE
from convert_tf.storage.folders import put_aside
from convert_tf.storage.json_text import parsed_json

CONFIG_FILE = "config.json"
GRAPH_FILE = "saved_model.pb"
# Of several of one name TensorFlow numbers all but the first.
VOCABULARY_ASSETS = tuple(f"assets/vocab.{kind}" for kind in ("txt", "model", "*_[0-9]"))
# All that is written into the folder of a module, as patterns of paths.
MODULE_FILES = (
    GRAPH_FILE,
    "fingerprint.pb",
    "variables/variables.*",
    "variables",
    *VOCABULARY_ASSETS,
    "assets",
    CONFIG_FILE,
    "training.json",
    "MODEL_CARD.md",
    CHECKSUMS_FILE,
)
# A ranker's module has this signature: the key of an entry in a map of protobuf strings.
_RANKER_SIGNATURE = b"\n\x09score_all\x12"


class CheckpointError(ValueError):
    """A model directory that cannot be read or written."""


class Kind(enum.Enum):
    """The kinds of folders and files; the values are how messages name them."""

    DUAL_ENCODER = "the folder of a dual encoder, which convert-tf train wrote (config.json)"
    RANKER = "the folder of a ranker, which convert-tf train --head wrote (config.json)"
    BERT = "the folder of a BERT, which convert-tf pretrain wrote (config.json)"
    HUGGING_FACE = "the folder of a Hugging Face BERT (config.json with model_type)"
    ENCODER_MODULE = "a module, which convert-tf export wrote (saved_model.pb)"
    RANKER_MODULE = "the module of a ranker, which convert-tf export wrote (saved_model.pb)"
    ONNX = "an .onnx file, which convert-tf export wrote"
    INTENT = "an intent model, which convert-tf intent train wrote (intent.json)"
    TOKEN_IDS = "token ids, which convert-tf tokenize wrote (arrays.json)"
    NEGATIVES = "hard negatives, which convert-tf mine wrote (negatives.json)"
    TEACHER_VECTORS = "teacher vectors, which convert-tf teach wrote (teacher.json)"
    CANDIDATE_CACHE = "encoded candidates, which convert-tf index build wrote (candidates.json)"
    RECORDS = "records, which convert-tf prepare wrote (train-00000-of-00016.tfrecord)"
    UNKNOWN = "which is not there, or none of what convert_tf writes"

    @property
    def is_module(self) -> bool:
        """Whether it is a SavedModel, of an encoder or of a ranker."""
        return self in (Kind.ENCODER_MODULE, Kind.RANKER_MODULE)


_MARKS = {
    "intent.json": Kind.INTENT,
    "arrays.json": Kind.TOKEN_IDS,
    "negatives.json": Kind.NEGATIVES,
    "teacher.json": Kind.TEACHER_VECTORS,
    "candidates.json": Kind.CANDIDATE_CACHE,
}


def kind_of(path: str | os.PathLike[str], *expected: Kind) -> Kind:
    """What a folder or file holds; whether that is whole is seen when it is read.

    A `config.json` that cannot be read is taken for a dual encoder's, and a SavedModel that is not
    a ranker's for an encoder's: whoever reads them says what is wrong.

    Args:
      path: a folder, or a file that need not be there if it is named `x.onnx`.
      *expected: what it must be one of; without any it may be `Kind.UNKNOWN`.

    Raises:
      CheckpointError: it is none of `expected`.
    """
    kind = _kind_of(Path(path))
    if expected and kind not in expected:
        raise CheckpointError(
            f"The path must hold {', or '.join(each.value for each in expected)}. Received: "
            f"{os.fspath(path)!r}, {kind.value}. Name another one."
            f"{put_aside(path)}"
        )
    return kind


def _kind_of(path: Path) -> Kind:
    if path.suffix == ".onnx":
        return Kind.ONNX
    if (path / GRAPH_FILE).is_file():
        is_ranker = _RANKER_SIGNATURE in (path / GRAPH_FILE).read_bytes()
        return Kind.RANKER_MODULE if is_ranker else Kind.ENCODER_MODULE
    if (path / "variables").is_dir():  # of a SavedModel that has lost its graph
        return Kind.ENCODER_MODULE
    if (path / CONFIG_FILE).is_file():
        return _kind_of_config(path / CONFIG_FILE)
    for name, kind in _MARKS.items():
        if (path / name).is_file():
            return kind
    return Kind.RECORDS if record_files(os.fspath(path)) else Kind.UNKNOWN


def _kind_of_config(path: Path) -> Kind:
    try:
        keys = set(parsed_json(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return Kind.DUAL_ENCODER
    if {"model", "trunk", "head"} <= keys:
        return Kind.RANKER
    if "model_type" in keys:
        return Kind.HUGGING_FACE
    return Kind.BERT if "mask_id" in keys else Kind.DUAL_ENCODER


def files_that_count(path: str | os.PathLike) -> list[Path]:
    """The files that decide what a model computes: weights and vocabulary, or an `.onnx` file.

    A module's graph names no weights, and its bytes may differ between writings of one model.
    """
    root = Path(path)
    if root.is_file():
        return [root]
    found = sorted([*root.glob("variables/*"), *root.glob("assets/*")])
    # A vocab.txt counts twice: so the caches of candidates that are there name their encoders.
    names = (CONFIG_FILE, "model.weights.h5", "model.weights.8bit.npz", "vocab.txt", "vocab.model",
             "vocab.txt", "similarity_map.npy")  # fmt: skip
    return found or [root / name for name in names if (root / name).is_file()]
