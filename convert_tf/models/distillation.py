"""Learning from another sentence encoder: its vectors of texts, and of single subwords."""

import math
from typing import Any

import numpy as np
from keras import ops

from convert_tf.layers.side_network import l2_normalize
from convert_tf.numerics.vectors import unit_rows

_RIDGE = 0.01
SIMILARITY_DIM = 512  # numbers of a vector for similarity, at most
_ADDED = 1.5  # length of what sentence encodings add to r, by that of r
SENTENCE_SCALE = 1 / (1 + _ADDED)  # makes them about as long as r


def vector_losses(predicted: Any, teacher: Any) -> Any:
    """How far vectors point away from the teacher's: 1 − cosine.

    Args:
      predicted: `[texts, dim]`, of any length.
      teacher: float `[texts, dim]`, of length 1, or zeros where there is none.

    Returns:
      float32 `[texts]`, from 0 to 2; 0 where there is no teacher.
    """
    teacher = ops.cast(teacher, "float32")
    cosines = ops.sum(l2_normalize(predicted) * teacher, axis=-1)
    has_vector = ops.sum(ops.square(teacher), axis=-1) > 0.5
    return ops.where(has_vector, 1.0 - cosines, 0.0)


def fitted_map(reduced: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """The linear map of reduced encodings to a teacher's vectors, by ridge regression.

    Args:
      reduced: float32 `[texts, reduced_dim]`, of any length.
      vectors: float32 `[texts, teacher_dim]`, the teacher's of the same texts; of length 1, or
        zeros where there is none.

    Returns:
      float32 `[reduced_dim, teacher_dim]`, with the root mean square of a Glorot initialisation:
      `vector_losses` sees angles alone, and optimizers see the size.
    """
    taught = vectors.any(axis=1) & reduced.any(axis=1)  # an empty text is encoded as zeros
    inputs = unit_rows(reduced[taught])
    products = inputs.T @ inputs
    ridge = _RIDGE * len(inputs) / len(products)  # of the mean square of an input
    kernel = np.linalg.solve(products + ridge * np.eye(len(products)), inputs.T @ vectors[taught])
    size = math.sqrt(2 / sum(kernel.shape))
    return (kernel * size / np.sqrt(np.mean(kernel**2))).astype(np.float32)


def similarity_map(
    reduced: np.ndarray, kernel: np.ndarray, *, dim: int = SIMILARITY_DIM
) -> np.ndarray:
    """A map to a teacher's vectors, turned so that the first numbers of its results say most.

    The axes are the principal ones of the mapped encodings of some texts, those of length 1 and not
    centred: of all turns this is the one after which the first n numbers keep most of the inner
    products. All of them keep every one. Its size is that by which `sentence_encodings` adds one
    and a half times the length of r to it, on the mean of these texts.

    Args:
      reduced: float32 `[texts, reduced_dim]`, encodings of texts, of any length.
      kernel: float32 `[reduced_dim, teacher_dim]`, the map.
      dim: most numbers of a result.

    Returns:
      float32 `[reduced_dim, n]`, where n is `dim`, or teacher_dim if that is less.
    """
    mapped = unit_rows(reduced @ kernel)
    _, axes = np.linalg.eigh(mapped.T @ mapped)
    turned = kernel @ axes[:, ::-1][:, :dim]
    added = np.linalg.norm(_read(reduced, turned), axis=1).mean()
    if added > 0:  # else it maps all to zeros, whatever its size
        turned = turned * (_ADDED * np.linalg.norm(reduced, axis=1).mean() / added)
    return turned.astype(np.float32)


def sentence_encodings(reduced: Any, similarity_map: np.ndarray) -> Any:
    """What a model with vectors for similarity gives for sentences: r, leaning towards meaning.

    r is long in some directions that say little of what a text means, and short in others. To r is
    added what the map reads of it: 0.4 (r + (r K / |k|) Kᵀ), |k| the lengths of the columns of K.
    It has all of r, from which responses are ranked; its cosines are nearly those of vectors for
    similarity, and intents are told better from its direction than from that of r. It is about as
    long as r, which networks on top were made for (docs/decisions.md).

    Args:
      reduced: float32 `[..., reduced_dim]`, an array or a tensor.
      similarity_map: float32 `[reduced_dim, dim]`, K, as of `similarity_map`, which sizes it.

    Returns:
      float32 `[..., reduced_dim]`, not normalised; zeros for zeros.
    """
    return SENTENCE_SCALE * (reduced + _read(reduced, similarity_map))


def _read(reduced: Any, similarity_map: np.ndarray) -> Any:
    """What a map reads of r, in the space of r."""
    return reduced @ similarity_map @ unit_rows(similarity_map.T)


def initial_rows(vectors: np.ndarray, dim: int, *, seed: int = 0) -> np.ndarray:
    """Rows of an embedding table that lie to one another as the teacher's vectors do.

    What all of them share is taken out. Where rows are narrower than vectors, these are projected
    to their principal components; where they are wider, turned into the larger space.

    Args:
      vectors: float32 `[rows, teacher_dim]`.
      dim: width of a row.
      seed: of the turn.

    Returns:
      float32 `[rows, dim]` with a root mean square of 1 / √dim, as the initial table has.
    """
    centred = vectors - vectors.mean(axis=0)
    if dim < vectors.shape[1]:
        _, axes = np.linalg.eigh(centred.T @ centred)
        rows = centred @ axes[:, ::-1][:, :dim]
    else:
        turn = np.random.default_rng(seed).standard_normal((dim, vectors.shape[1]))
        rows = centred @ np.linalg.qr(turn)[0].T
    return (rows / np.sqrt(np.mean(rows**2)) / math.sqrt(dim)).astype(np.float32)
