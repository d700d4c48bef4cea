"""Distillation: losses and maps for learning from the vectors of another sentence encoder."""

import math
from typing import Any

import numpy as np
from keras import ops

from convert_tf.layers.side_network import l2_normalize
from convert_tf.numerics.vectors import ADDED_LENGTH, SENTENCE_SCALE, unit_rows

_RIDGE = 0.01
SIMILARITY_DIM = 512  # maximum width of a similarity vector


def vector_losses(predicted: Any, teacher: Any) -> Any:
    """Return 1 − cosine between predicted vectors and the teacher's vectors.

    Args:
      predicted: predicted vectors, `[texts, dim]`. They need not be normalised.
      teacher: the teacher's vectors, float `[texts, dim]`. They must have length 1, or be zeros for
        a text without a teacher vector.

    Returns:
      The loss of each text, float32 `[texts]`, from 0 to 2. It is 0 for a text without a teacher
      vector.
    """
    teacher = ops.cast(teacher, "float32")
    cosines = ops.sum(l2_normalize(predicted) * teacher, axis=-1)
    has_vector = ops.sum(ops.square(teacher), axis=-1) > 0.5
    return ops.where(has_vector, 1.0 - cosines, 0.0)


def fitted_map(reduced: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Fit a linear map from reduced encodings to a teacher's vectors by ridge regression.

    Args:
      reduced: reduced encodings of texts, float32 `[texts, reduced_dim]`. They need not be
        normalised.
      vectors: the teacher's vectors for these texts, float32 `[texts, teacher_dim]`. They must have
        length 1, or be zeros for a text without a teacher vector.

    Returns:
      The matrix of the map, float32 `[reduced_dim, teacher_dim]`. Its root mean square is that of a
      Glorot initialisation. The scale does not affect `vector_losses`, but it affects the steps of
      optimizers.
    """
    has_vectors = vectors.any(axis=1) & reduced.any(axis=1)  # an empty text is encoded as zeros
    inputs = unit_rows(reduced[has_vectors])
    products = inputs.T @ inputs
    ridge = _RIDGE * len(inputs) / len(products)  # proportional to the mean square of the inputs
    targets = inputs.T @ vectors[has_vectors]
    kernel = np.linalg.solve(products + ridge * np.eye(len(products)), targets)
    size = math.sqrt(2 / sum(kernel.shape))
    return (kernel * size / np.sqrt(np.mean(kernel**2))).astype(np.float32)


def similarity_map(
    reduced: np.ndarray, kernel: np.ndarray, *, dim: int = SIMILARITY_DIM
) -> np.ndarray:
    """Rotate a map to a teacher's vectors so that its first columns matter most.

    The new axes are the principal axes of the mapped encodings, which are normalised but not
    centred. Among all rotations, this one keeps most of the inner products in the first n columns.
    The map is scaled so that the norm of the second term of `sentence_encodings` is on average 1.5
    times that of r.

    Args:
      reduced: reduced encodings r of sample texts, float32 `[texts, reduced_dim]`. They need not be
        normalised.
      kernel: matrix of the map, float32 `[reduced_dim, teacher_dim]`.
      dim: maximum number of columns to keep.

    Returns:
      The matrix of the map, float32 `[reduced_dim, n]`, where n is the smaller of `dim` and
      teacher_dim.
    """
    mapped = unit_rows(reduced @ kernel)
    _, axes = np.linalg.eigh(mapped.T @ mapped)
    rotated = kernel @ axes[:, ::-1][:, :dim]
    added_length = np.linalg.norm(_added(reduced, rotated), axis=1).mean()
    if added_length > 0:  # otherwise the map is zero, and its scale does not matter
        rotated = rotated * (ADDED_LENGTH * np.linalg.norm(reduced, axis=1).mean() / added_length)
    return rotated.astype(np.float32)


def sentence_encodings(reduced: Any, similarity_map: np.ndarray) -> Any:
    """Return sentence encodings for a model with similarity vectors.

    Sentence encodings are 0.4 (r + (r K / |k|) Kᵀ), where K is the similarity map and |k| contains
    the norms of its columns. The first term keeps r, from which responses are ranked. The second
    term brings the cosines close to those of the similarity vectors. Intent classifiers are more
    accurate with these encodings than with r. The encodings have about the same norm as r, because
    networks on top of r expect this norm (docs/decisions.md).

    Args:
      reduced: reduced encodings r, float32 `[..., reduced_dim]`, as an array or a tensor.
      similarity_map: matrix of the similarity map, float32 `[reduced_dim, dim]`, as returned by
        `similarity_map`.

    Returns:
      The sentence encodings, float32 `[..., reduced_dim]`, not normalised. A zero vector stays
      zero.
    """
    return SENTENCE_SCALE * (reduced + _added(reduced, similarity_map))


def _added(reduced: Any, similarity_map: np.ndarray) -> Any:
    """Return (r K / |k|) Kᵀ, the second term of `sentence_encodings`."""
    return reduced @ similarity_map @ unit_rows(similarity_map.T)


def initial_rows(vectors: np.ndarray, dim: int, *, seed: int = 0) -> np.ndarray:
    """Return initial rows for an embedding table, made from a teacher's vectors for the subwords.

    The mean vector is subtracted. Vectors wider than `dim` are projected to their principal
    components. Narrower vectors are embedded by a random rotation, which keeps the angles between
    them.

    Args:
      vectors: the teacher's vectors for the subwords, float32 `[rows, teacher_dim]`.
      dim: width of a row.
      seed: seed for the random rotation.

    Returns:
      The rows, float32 `[rows, dim]`, with a root mean square of 1 / √dim, as in an untrained
      table.
    """
    centred = vectors - vectors.mean(axis=0)
    if dim < vectors.shape[1]:
        _, axes = np.linalg.eigh(centred.T @ centred)
        rows = centred @ axes[:, ::-1][:, :dim]
    else:
        random_matrix = np.random.default_rng(seed).standard_normal((dim, vectors.shape[1]))
        rows = centred @ np.linalg.qr(random_matrix)[0].T
    return (rows / np.sqrt(np.mean(rows**2)) / math.sqrt(dim)).astype(np.float32)
