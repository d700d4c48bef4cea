"""What programs that were written for sentence-transformers call, on our encoders.

Its evaluators and SetFit's frozen body call these keywords and methods. What they return is theirs
in shape and type; torch is imported where tensors are asked for, and nowhere else.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from convert_tf.extras import needs
from convert_tf.numerics.vectors import unit_rows

# Keywords of `SentenceTransformer.encode` that change nothing here, with the values that ask for
# nothing else.
_WITHOUT_EFFECT: Mapping[str, tuple[Any, ...]] = {
    "prompt_name": (None,),
    "prompt": (None, ""),
    "output_value": ("sentence_embedding",),
    "precision": (None, "float32"),
    "device": (None, "cpu"),
    "truncate_dim": (None,),
    "pool": (None,),
    "chunk_size": (None,),
}


class ReportedMetrics:
    """Where evaluators leave what they found, as in the model card of sentence-transformers.

    Attributes:
      metrics: the last value of each metric, by its name.
    """

    def __init__(self) -> None:
        self.metrics: dict[str, float] = {}

    def set_evaluation_metrics(
        self, evaluator: Any, metrics: Mapping[str, float], epoch: int = 0, step: int = 0
    ) -> None:
        """Adds the metrics of an evaluator, whose names say which it is."""
        self.metrics.update(metrics)


class _Encodes(Protocol):
    def encode(self, texts: Any, **options: Any) -> Any: ...


class SentenceTransformerMethods:
    """The methods of `SentenceTransformer` for a class that has `encode`.

    Attributes:
      similarity_fn_name: `"cosine"`, what `similarity` computes.
      prompts: none.
      device: where tensors are returned; the model computes where its backend does.
      model_card_data: the metrics that evaluators reported.
    """

    similarity_fn_name = "cosine"
    device = "cpu"

    @property
    def prompts(self) -> dict[str, str]:
        return {}

    @property
    def model_card_data(self) -> ReportedMetrics:
        return self.__dict__.setdefault("_reported_metrics", ReportedMetrics())

    def encode_query(self: _Encodes, texts: Any, **options: Any) -> Any:
        """`encode`: one encoding is for queries and documents, as of models without prompts."""
        return self.encode(texts, **options)

    def encode_document(self: _Encodes, texts: Any, **options: Any) -> Any:
        """`encode`, as `encode_query`."""
        return self.encode(texts, **options)

    def get_embedding_dimension(self: _Encodes) -> int:
        """Numbers of a vector of `encode`."""
        return self.encode([]).shape[1]

    def get_sentence_embedding_dimension(self: _Encodes) -> int:
        """`get_embedding_dimension`, by its name in sentence-transformers before 5.4."""
        return self.encode([]).shape[1]

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Cosines of all vectors of one side with all of the other.

        Args:
          embeddings1: `[n, dim]` or `[dim]`; arrays, tensors of torch, or lists of them.
          embeddings2: `[m, dim]` or `[dim]`.

        Returns:
          float32 `[n, m]`; a tensor of torch where one of the two is one.
        """
        (first, second), wrap = _arrays(embeddings1, embeddings2)
        return wrap(first @ second.T)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Cosines of vectors with those of the same row: float32 `[n]`; otherwise `similarity`."""
        (first, second), wrap = _arrays(embeddings1, embeddings2)
        return wrap((first * second).sum(axis=1))


def converted(
    vectors: np.ndarray,
    *,
    normalize_embeddings: bool,
    convert_to_numpy: bool,
    convert_to_tensor: bool,
) -> Any:
    """Vectors as keywords of `SentenceTransformer.encode` ask for them.

    Args:
      vectors: float32 `[n, dim]` or `[dim]`.
      normalize_embeddings: whether they get length 1.
      convert_to_numpy: an array, or else a list of tensors of torch.
      convert_to_tensor: whether it is a tensor of torch, whatever `convert_to_numpy` says.
    """
    if normalize_embeddings:
        vectors = unit_rows(vectors)
    if convert_to_numpy and not convert_to_tensor:
        return vectors
    with needs("", "convert_to_tensor or convert_to_numpy=False", package="torch"):
        import torch

    tensor = torch.from_numpy(vectors)
    return tensor if convert_to_tensor or vectors.ndim == 1 else list(tensor)


def check_options(options: Mapping[str, Any]) -> None:
    """Refuses what nothing reads.

    Raises:
      TypeError: one of the names is no keyword of sentence-transformers.
      ValueError: one asks for what these models do not have.
    """
    if unknown := sorted(options.keys() - _WITHOUT_EFFECT.keys()):
        raise TypeError(
            "encode accepts batch_size, show_progress and the keywords of sentence-transformers. "
            f"Received: {', '.join(unknown)}."
        )
    for name, value in options.items():
        allowed = _WITHOUT_EFFECT[name]
        # A device may be a torch.device, which is named by its str.
        if not any(value is each or str(value) == each for each in allowed):
            reason = (
                "a model computes where its runtime does, and in one process"
                if name in ("device", "pool", "chunk_size")
                else "these models have no prompts, and give whole float32 vectors of texts"
            )
            raise ValueError(
                f"{name} must be {' or '.join(map(repr, allowed))}: {reason}. Received: "
                f"{name}={value!r}. Omit it."
            )


def _arrays(*embeddings: Any) -> tuple[list[np.ndarray], Callable[[np.ndarray], Any]]:
    """Rows of length 1, and what makes their products the type that was given."""
    has_tensors = False
    rows = []
    for each in embeddings:
        parts = each if isinstance(each, list | tuple) else [each]
        has_tensors = has_tensors or any(map(_is_tensor, parts))
        arrays = [np.atleast_2d(_array(part)) for part in parts]
        if not arrays:
            raise ValueError(
                "There are no vectors to compare. Received: an empty list. Pass the array that "
                "`encode` returns, which has a width even for no texts."
            )
        rows.append(unit_rows(np.concatenate(arrays)))
    if has_tensors:
        import torch

        return rows, torch.from_numpy
    return rows, np.asarray


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "detach")


def _array(value: Any) -> np.ndarray:
    return np.asarray(value.detach().cpu() if _is_tensor(value) else value, np.float32)
