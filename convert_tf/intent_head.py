"""What stands on frozen encodings: a small network or logistic regression, in numpy.

A step of the network is two small matrix products; a framework's dispatch costs more than they do.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

LOGISTIC_C = 10.0
_ROWS_AT_ONCE = 4096


def of_unit_length(vectors: np.ndarray) -> np.ndarray:
    """Rows divided by their lengths; rows of zeros stay."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


class DenseLayer(NamedTuple):
    """A kernel `[inputs, outputs]` and a bias `[outputs]`, float32."""

    kernel: np.ndarray
    bias: np.ndarray


class Head(NamedTuple):
    """Dense layers with ReLU between them and a softmax after the last.

    Example:
      probabilities = train_network(encodings, labels, seed=0).probabilities(encodings)
    """

    layers: list[DenseLayer]

    def probabilities(self, encodings: np.ndarray) -> np.ndarray:
        """float32 `[n, dim]` → float32 `[n, labels]`, rows sum to 1."""
        num_labels = len(self.layers[-1].bias)
        parts = [np.zeros((0, num_labels), np.float32)]
        for start in range(0, len(encodings), _ROWS_AT_ONCE):
            values = encodings[start : start + _ROWS_AT_ONCE]
            for layer in self.layers[:-1]:
                values = np.maximum(values @ layer.kernel + layer.bias, 0)
            parts.append(softmax(values @ self.layers[-1].kernel + self.layers[-1].bias))
        return np.concatenate(parts)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Along the last axis."""
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def initial_network(
    num_inputs: int, hidden_dim: int, num_labels: int, rng: np.random.Generator
) -> Head:
    """Glorot-uniform kernels and biases of zero, as a Keras `Dense` begins."""
    layers = []
    for rows, columns in ((num_inputs, hidden_dim), (hidden_dim, num_labels)):
        limit = np.sqrt(6 / (rows + columns))
        kernel = rng.uniform(-limit, limit, (rows, columns)).astype(np.float32)
        layers.append(DenseLayer(kernel, np.zeros(columns, np.float32)))
    return Head(layers)


def train_step(head: Head, inputs: np.ndarray, labels: np.ndarray, learning_rate: float) -> float:
    """One step of gradient descent on the mean cross-entropy of a batch, in place.

    Args:
      head: two layers.
      inputs: float32 `[batch, inputs]`, after dropout.
      labels: int `[batch]`.
      learning_rate: of the step.

    Returns:
      The loss before it.
    """
    (kernel, bias), (output_kernel, output_bias) = head.layers
    rate = np.float32(learning_rate / len(inputs))
    hidden = inputs @ kernel
    hidden += bias
    np.maximum(hidden, 0, out=hidden)
    gradient = softmax(hidden @ output_kernel + output_bias)
    rows = np.arange(len(labels))
    loss = -float(np.log(np.maximum(gradient[rows, labels], 1e-30)).mean())
    gradient[rows, labels] -= 1
    hidden_gradient = gradient @ output_kernel.T
    hidden_gradient *= hidden > 0
    output_kernel -= rate * (hidden.T @ gradient)
    output_bias -= rate * gradient.sum(axis=0)
    kernel -= rate * (inputs.T @ hidden_gradient)
    bias -= rate * hidden_gradient.sum(axis=0)
    return loss


def train_network(
    encodings: np.ndarray,
    labels: np.ndarray,
    *,
    seed: int,
    hidden_dim: int = 512,
    dropout: float = 0.75,
    learning_rate: float = 0.7,
    epochs: int = 500,
    batch_size: int = 32,
    validation: tuple[np.ndarray, np.ndarray] | None = None,
    patience: int | None = None,
) -> Head:
    """Trains a network with one hidden layer, of which the defaults are PolyAI's benchmark's.

    Dropout is on the encodings. Batches are drawn with replacement; an epoch is
    `ceil(n / batch_size)` of them, and the learning rate falls by the same amount after each, to 0
    at the end.

    Args:
      encodings: float32 `[n, dim]`, of length 1.
      labels: int `[n]`, from 0 without gaps.
      seed: of weights, batches and dropout; the same gives the same weights.
      hidden_dim: units of the hidden layer.
      dropout: share of the inputs set to 0.
      learning_rate: of the first epoch.
      epochs: how many, at most.
      batch_size: examples of a batch.
      validation: encodings and labels for `patience`.
      patience: epochs without better accuracy on `validation` after which training ends; the best
        weights are returned. None trains all epochs.

    Raises:
      ValueError: an option is out of range.

    Reference: arXiv 2003.04807 §4; arXiv 1911.03688 §3.1 has `patience` 5.
    """
    least = min(hidden_dim, epochs, batch_size, 1 if patience is None else patience)
    if not 0 <= dropout < 1 or least < 1 or learning_rate <= 0:
        raise ValueError(
            "A network has 0 <= dropout < 1, hidden_dim, epochs, batch_size and patience of 1 or "
            f"more and a positive learning_rate. Received: {dropout=}, {hidden_dim=}, {epochs=}, "
            f"{batch_size=}, {patience=}, {learning_rate=}."
        )
    rng = np.random.default_rng(seed)
    head = initial_network(encodings.shape[1], hidden_dim, int(labels.max()) + 1, rng)
    kept, best, best_accuracy, waited = np.float32(1 - dropout), head, -1.0, 0
    shape = (batch_size, encodings.shape[1])
    with _one_blas_thread():
        for epoch in range(epochs):
            rate = learning_rate * (1 - epoch / epochs)
            for _ in range(-(-len(labels) // batch_size)):
                chosen = rng.integers(0, len(labels), batch_size)
                inputs = encodings[chosen]
                if dropout:
                    inputs *= rng.random(shape, dtype=np.float32) < kept
                    inputs /= kept
                train_step(head, inputs, labels[chosen], rate)
            if patience is None or validation is None:
                continue
            accuracy = accuracy_of(head, *validation)
            waited = 0 if accuracy > best_accuracy else waited + 1
            if not waited:
                best = Head([DenseLayer(*map(np.copy, layer)) for layer in head.layers])
                best_accuracy = accuracy
            if waited >= patience:
                break
    return best


def train_logistic(encodings: np.ndarray, labels: np.ndarray, *, c: float = LOGISTIC_C) -> Head:
    """Multinomial logistic regression.

    Args:
      encodings: float32 `[n, dim]`, of length 1.
      labels: int `[n]`, from 0 without gaps.
      c: scikit-learn's `C`: the inverse weight of the L2 penalty.
    """
    from sklearn.linear_model import LogisticRegression

    with _one_blas_thread():
        fitted = LogisticRegression(C=c, max_iter=2000).fit(encodings, labels)
    kernel, bias = fitted.coef_.T.astype(np.float32), fitted.intercept_.astype(np.float32)
    if kernel.shape[1] == 1:  # two classes have one logit: the other's is 0
        kernel, bias = np.concatenate([0 * kernel, kernel], 1), np.concatenate([0 * bias, bias])
    return Head([DenseLayer(kernel, bias)])


def accuracy_of(head: Head, encodings: np.ndarray, labels: np.ndarray) -> float:
    """The share of examples whose label is the most probable."""
    return float(np.mean(head.probabilities(encodings).argmax(axis=1) == labels))


def head_arrays(head: Head) -> dict[str, np.ndarray]:
    """The weights by name, for a file."""
    return {
        f"{name}_{index}": getattr(layer, name)
        for index, layer in enumerate(head.layers)
        for name in DenseLayer._fields
    }


def head_of_arrays(arrays: dict[str, np.ndarray]) -> Head:
    """What `head_arrays` was given.

    Raises:
      KeyError: there is none.
    """
    kernels: Sequence[str] = sorted(name for name in arrays if name.startswith("kernel_"))
    if not kernels:
        raise KeyError("kernel_0")
    return Head(
        [DenseLayer(arrays[name], arrays[name.replace("kernel", "bias")]) for name in kernels]
    )


@contextlib.contextmanager
def _one_blas_thread() -> Iterator[None]:
    """Threads cost more than they save on products so small, and the sums stay the same."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        yield
