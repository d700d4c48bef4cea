"""Recognise the folders and files that convert_tf writes."""

import enum
import os
from pathlib import Path

from convert_tf.data.shards import record_files
from convert_tf.storage.checksums import CHECKSUMS_FILE, fingerprint
from convert_tf.storage.folders import put_aside
from convert_tf.storage.json_text import parsed_json

CONFIG_FILE = "config.json"
GRAPH_FILE = "saved_model.pb"
# Files in Hugging Face folders: the tokenizer, the weights for PyTorch, and the graphs, with the
# preferred graph first.
TOKENIZER_FILE = "tokenizer.json"
SAFETENSORS_FILE = "model.safetensors"
ONNX_FILES = ("onnx/model_quantized.onnx", "onnx/model.onnx")
HUB_CARD_FILE = "README.md"  # the model card in Hugging Face folders
_MODEL_TYPE = "convert_tf"
STATIC_TYPE = "model2vec"
# Backends that encode texts. With `auto`, the name of an encoder stands for its ONNX form.
BACKENDS = ("auto", "tensorflow")
# TensorFlow adds a number to the name of an asset if the name is already in use.
VOCABULARY_ASSETS = tuple(f"assets/vocab.{kind}" for kind in ("txt", "model", "*_[0-9]"))
# Patterns that match all files in a module's folder.
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
# Only modules of rankers have the signature score_all. These bytes encode its name in the protobuf.
_RANKER_SIGNATURE = b"\n\x09score_all\x12"


class CheckpointError(ValueError):
    """Error: the folder of a model cannot be read or written."""


class Kind(enum.Enum):
    """Kinds of folders and files. The values describe the kinds in error messages."""

    DUAL_ENCODER = "the run of a dual encoder (from convert-tf train)"
    RANKER = "the run of a ranker (from convert-tf train --head)"
    BERT = "the run of a BERT (from convert-tf pretrain)"
    HUGGING_FACE = "the folder of a Hugging Face BERT, which is only a trunk"
    HUGGING_FACE_ENCODER = "an encoder of convert-tf export --format huggingface"
    STATIC = "a folder of static vectors (from convert-tf export), which model2vec can open"
    ENCODER_MODULE = "the module of an encoder (from convert-tf export)"
    RANKER_MODULE = "the module of a ranker (from convert-tf export)"
    ONNX = "an .onnx file (from convert-tf export)"
    INTENT = "an intent model (from convert-tf intent train)"
    TOKEN_IDS = "a folder of token ids (from convert-tf tokenize)"
    NEGATIVES = "a folder of hard negatives (from convert-tf mine)"
    TEACHER_VECTORS = "a folder of teacher vectors (from convert-tf teach)"
    CANDIDATE_CACHE = "an index of candidates (from convert-tf index build)"
    RECORDS = "a folder of records (from convert-tf prepare)"
    UNKNOWN = "not a file or folder that convert-tf writes"

    @property
    def is_module(self) -> bool:
        """Whether this is a SavedModel, of an encoder or a ranker."""
        return self in (Kind.ENCODER_MODULE, Kind.RANKER_MODULE)

    @property
    def runs_onnx(self) -> bool:
        """Whether encoders of this kind run on ONNX Runtime."""
        return self in (Kind.ONNX, Kind.HUGGING_FACE_ENCODER)


_MARKS = {
    "intent.json": Kind.INTENT,
    "arrays.json": Kind.TOKEN_IDS,
    "negatives.json": Kind.NEGATIVES,
    "teacher.json": Kind.TEACHER_VECTORS,
    "candidates.json": Kind.CANDIDATE_CACHE,
}


def kind_of(path: str | os.PathLike[str], *expected: Kind) -> Kind:
    """Return the kind of a folder or file, without checking that it is complete.

    A folder with a damaged `config.json` counts as the run of a dual encoder, and an unknown
    SavedModel counts as the module of an encoder. Reading such a folder raises an error that is
    more helpful than an error from this function would be.

    Args:
      path: a folder or file. An `.onnx` file is recognised by its name.
      *expected: the kinds that are allowed. Without this argument, all kinds are allowed, and the
        result may be `Kind.UNKNOWN`.

    Raises:
      ValueError: if the kind is not one of `expected`.
    """
    kind = _kind_of(Path(path))
    if expected and kind not in expected:
        problem = f"is {kind.value}" if os.path.exists(path) else "does not exist"
        *others, last = (expected_kind.value for expected_kind in expected)
        alternatives = f"{', '.join(others)} or {last}" if others else last
        remedy = put_aside(path) or f"Pass {alternatives}."
        raise CheckpointError(f"{os.fspath(path)!r} {problem}. {remedy}")
    return kind


def checked_backend(path: str, backend: str) -> str:
    """Check that an encoder runs on a backend, and return its path.

    Raises:
      ValueError: if `backend` is not one of `BACKENDS`, or the encoder does not run on it.
    """
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}. Received: {backend!r}.")
    if backend == "tensorflow" and kind_of(path).runs_onnx:
        raise ValueError(
            f"{path!r} runs on ONNX Runtime, not on TensorFlow. Omit the backend, or pass the name "
            "of a released encoder or the folder of a module."
        )
    return path


def model_checksum(path: str | os.PathLike) -> str:
    """Return the SHA-256 of a model's weights and vocabulary, in hexadecimal digits.

    Raises:
      OSError: if a file cannot be read.
    """
    return fingerprint((file.name, file) for file in files_that_count(path))


def _kind_of(path: Path) -> Kind:
    if path.suffix == ".onnx":
        return Kind.ONNX
    if (path / GRAPH_FILE).is_file():
        is_ranker = _RANKER_SIGNATURE in (path / GRAPH_FILE).read_bytes()
        return Kind.RANKER_MODULE if is_ranker else Kind.ENCODER_MODULE
    if (path / "variables").is_dir():  # a SavedModel whose graph is missing
        return Kind.ENCODER_MODULE
    if (path / CONFIG_FILE).is_file():
        return _kind_of_config(path / CONFIG_FILE)
    for name, kind in _MARKS.items():
        if (path / name).is_file():
            return kind
    return Kind.RECORDS if record_files(os.fspath(path)) else Kind.UNKNOWN


def _kind_of_config(path: Path) -> Kind:
    try:
        config = parsed_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Kind.DUAL_ENCODER
    keys = {*config} if isinstance(config, dict) else set()
    if {"model", "trunk", "head"} <= keys:
        return Kind.RANKER
    if "model_type" in keys:
        kinds = {_MODEL_TYPE: Kind.HUGGING_FACE_ENCODER, STATIC_TYPE: Kind.STATIC}
        return kinds.get(str(config["model_type"]), Kind.HUGGING_FACE)
    return Kind.BERT if "mask_id" in keys else Kind.DUAL_ENCODER


def files_that_count(path: str | os.PathLike) -> list[Path]:
    """Return the files that identify a model: weights and vocabulary, or an `.onnx` file.

    The graph of a module is not one of them, because exporting the same model again may change it.
    Hidden files in a module are ignored, because file managers and file systems add them.
    """
    root = Path(path)
    if root.is_file():
        return [root]
    module_files = sorted([*root.glob("variables/[!.]*"), *root.glob("assets/[!.]*")])
    # vocab.txt is listed twice because the checksums in existing indexes include it twice.
    names = (CONFIG_FILE, "model.weights.h5", "model.weights.8bit.npz", "vocab.txt", "vocab.model",
             "vocab.txt", "similarity_map.npy", TOKENIZER_FILE, *ONNX_FILES)  # fmt: skip
    files = module_files or [root / name for name in names if (root / name).is_file()]
    if not any(root / name in files for name in ONNX_FILES):
        files += [path for path in [root / SAFETENSORS_FILE] if path.is_file()]
    return files
