"""What stands on frozen encodings: a small network or logistic regression, in numpy.

A step of the network is two small matrix products; a framework's dispatch costs more than they do.
"""

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from convert_tf.storage.progress import Progress

LOGISTIC_C = 10.0
_ROWS_AT_ONCE = 4096


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
        """float32 `[n, dim]` → float32 `[n, labels]`, rows sum to 1.

        Raises:
          ValueError: the weights are so large that a sum is infinite.
        """
        num_labels = len(self.layers[-1].bias)
        parts = [np.zeros((0, num_labels), np.float32)]
        with np.errstate(over="ignore", invalid="ignore"):  # told below
            for start in range(0, len(encodings), _ROWS_AT_ONCE):
                values = encodings[start : start + _ROWS_AT_ONCE]
                for layer in self.layers[:-1]:
                    values = np.maximum(values @ layer.kernel + layer.bias, 0)
                parts.append(softmax(values @ self.layers[-1].kernel + self.layers[-1].bias))
        found = np.concatenate(parts)
        if not np.isfinite(found).all():
            raise ValueError(
                "Probabilities are finite numbers. Received: others, of weights up to "
                f"{max(np.abs(layer.kernel).max() for layer in self.layers):.3g}. Train again, "
                "with a lower learning rate."
            )
        return found


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
    weights: np.ndarray | None = None,
) -> Head:
    """Trains a network with one hidden layer, of which the defaults are PolyAI's benchmark's.

    Dropout is on the encodings. Batches are drawn with replacement; an epoch is
    `ceil(n / batch_size)` of them, and the learning rate falls by the same amount after each, to 0
    at the end. A training of minutes says on standard error how far it is.

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
      weights: float `[n]`, positive: how often an example is drawn, relative to others.

    Raises:
      ValueError: an option is out of range, or training ended in weights that are no numbers.

    Reference: arXiv 2003.04807 §4; arXiv 1911.03688 §3.1 has `patience` 5.
    """
    check_network(
        hidden_dim=hidden_dim,
        dropout=dropout,
        learning_rate=learning_rate,
        epochs=epochs,
        batch_size=batch_size,
        patience=patience,
    )
    rng = np.random.default_rng(seed)
    head = initial_network(encodings.shape[1], hidden_dim, int(labels.max()) + 1, rng)
    kept, best, best_accuracy, waited = np.float32(1 - dropout), head, -1.0, 0
    shape = (batch_size, encodings.shape[1])
    steps = -(-len(labels) // batch_size)
    with _one_blas_thread(), Progress("steps", total=epochs * steps) as progress:
        for epoch in range(epochs):
            rate = learning_rate * (1 - epoch / epochs)
            for step in range(steps):
                chosen = _drawn(rng, len(labels), batch_size, weights)
                inputs = encodings[chosen]
                if dropout:
                    inputs *= rng.random(shape, dtype=np.float32) < kept
                    inputs /= kept
                # What overflows is told below, and once.
                with np.errstate(over="ignore", invalid="ignore"):
                    loss = train_step(head, inputs, labels[chosen], rate)
                check_step(epoch * steps + step + 1, loss, learning_rate)
                progress.add()
            if patience is None or validation is None:
                continue
            accuracy = accuracy_of(head, *validation)
            waited = 0 if accuracy > best_accuracy else waited + 1
            if not waited:
                best = Head([DenseLayer(*map(np.copy, layer)) for layer in head.layers])
                best_accuracy = accuracy
            if waited >= patience:
                break
    if not all(np.isfinite(array).all() for layer in best.layers for array in layer):
        check_step(epochs * steps, np.nan, learning_rate)
    return best


def check_network(
    *,
    hidden_dim: int,
    dropout: float,
    learning_rate: float,
    epochs: int,
    batch_size: int,
    patience: int | None,
) -> None:
    """Raises `ValueError` for options of `train_network` that are out of range."""
    is_right = False
    with contextlib.suppress(TypeError):  # of what is no number
        least = min(hidden_dim, epochs, batch_size, 1 if patience is None else patience)
        is_right = 0 <= dropout < 1 and least >= 1 and 0 < learning_rate < np.inf
    if not is_right:
        raise ValueError(
            "A network has 0 <= dropout < 1, hidden_dim, epochs, batch_size and patience of 1 or "
            f"more and a positive, finite learning_rate. Received: {dropout=}, {hidden_dim=}, "
            f"{epochs=}, {batch_size=}, {patience=}, {learning_rate=}."
        )


def _drawn(
    rng: np.random.Generator, number: int, size: int, weights: np.ndarray | None
) -> np.ndarray:
    if weights is None:
        return rng.integers(0, number, size)
    return rng.choice(number, size, p=weights / weights.sum())


def check_step(step: int, loss: float, learning_rate: float) -> None:
    """Ends a training whose loss is no number.

    Raises:
      ValueError: the loss is infinite or NaN.
    """
    if not np.isfinite(loss):
        raise ValueError(
            f"Training stays with finite numbers. Received: a loss or weights that are none at "
            f"step {step:,}, with a learning rate of {learning_rate:g}. Nothing was written; use a "
            "lower one."
        )


def train_logistic(
    encodings: np.ndarray,
    labels: np.ndarray,
    *,
    c: float = LOGISTIC_C,
    weights: np.ndarray | None = None,
) -> Head:
    """Multinomial logistic regression.

    Args:
      encodings: float32 `[n, dim]`, of length 1.
      labels: int `[n]`, from 0 without gaps.
      c: scikit-learn's `C`: the inverse weight of the L2 penalty.
      weights: float `[n]`: how much an example counts; 1 by default.

    Raises:
      ValueError: `c` is not positive and finite.
    """
    from sklearn.linear_model import LogisticRegression

    check_logistic(c)
    with _one_blas_thread(), warnings.catch_warnings():
        # One or two examples of an intent are no regression problem.
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        fitted = LogisticRegression(C=c, max_iter=2000).fit(encodings, labels, weights)
    kernel, bias = fitted.coef_.T.astype(np.float32), fitted.intercept_.astype(np.float32)
    if kernel.shape[1] == 1:  # two classes have one logit: the other's is 0
        kernel, bias = np.concatenate([0 * kernel, kernel], 1), np.concatenate([0 * bias, bias])
    return Head([DenseLayer(kernel, bias)])


def check_logistic(logistic_c: float) -> None:
    """Raises `ValueError` for a `logistic_c` that is not positive and finite."""
    is_right = False
    with contextlib.suppress(TypeError):  # of what is no number
        is_right = 0 < logistic_c < np.inf
    if not is_right:
        raise ValueError(
            f"Logistic regression has a positive, finite logistic_c. Received: {logistic_c}. A "
            "small one, as 0.01, keeps weights close to 0."
        )


def train_binary(
    encodings: Any,
    truth: np.ndarray,
    *,
    c: float = LOGISTIC_C,
    weights: np.ndarray | None = None,
) -> Head:
    """Logistic regression of each label against its absence.

    Args:
      encodings: float32 `[n, dim]`, or a sparse array.
      truth: bool `[n, labels]`.
      c: see `train_logistic`.
      weights: see `train_logistic`.

    Returns:
      One layer, whose outputs are log-odds. A label that all examples have, or none, has those of
      its share.

    Raises:
      ValueError: `c` is not positive and finite.
    """
    from sklearn.linear_model import LogisticRegression

    check_logistic(c)
    kernel = np.zeros((encodings.shape[1], truth.shape[1]), np.float32)
    bias = np.zeros(truth.shape[1], np.float32)
    with _one_blas_thread(), Progress("labels", total=truth.shape[1]) as progress:
        for label, own in enumerate(truth.T):
            if own.all() or not own.any():
                bias[label] = np.log((own.sum() + 0.5) / (len(own) - own.sum() + 0.5))
            else:
                fitted = LogisticRegression(C=c, max_iter=2000).fit(encodings, own, weights)
                kernel[:, label], bias[label] = fitted.coef_[0], fitted.intercept_[0]
            progress.add()
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
      ValueError: a kernel or a bias is missing.
    """
    kernels = sorted(name for name in arrays if name.startswith("kernel_")) or ["kernel_0"]
    biases = [name.replace("kernel", "bias") for name in kernels]
    if missing := [name for name in (*kernels, *biases) if name not in arrays]:
        raise ValueError(f"without {', '.join(missing)}")
    return Head([DenseLayer(arrays[a], arrays[b]) for a, b in zip(kernels, biases, strict=True)])


@contextlib.contextmanager
def _one_blas_thread() -> Iterator[None]:
    """Threads cost more than they save on products so small, and the sums stay the same."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        yield
