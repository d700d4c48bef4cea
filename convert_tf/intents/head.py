"""Heads on frozen encodings: a small network in numpy, or logistic regression.

The network is trained in numpy because a step consists of small matrix products, which take less
time than the overhead of a framework.
"""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from convert_tf.storage.progress import Progress

LOGISTIC_C = 10.0
_SHARE_OF_EPOCHS = 0.3  # for networks that are only trained to compare encodings or examples

# The options of `train_head`: `head`, `seed` and the options in `HEADS` for the chosen head.
Options = Mapping[str, Any]
# Encodings, float32 `[n, dim]`, and their labels, int `[n]`.
Validation = tuple[np.ndarray, np.ndarray]


# The names of each head's options, which are fields of `IntentClassifier`.
HEADS: dict[str, tuple[str, ...]] = {
    "network": ("hidden_dim", "dropout", "learning_rate", "epochs", "batch_size", "patience"),
    "logistic": ("logistic_c",),
}
# The grids for `convert-tf intent train --tune`. The ConveRT paper names the options of its grid
# search but not the values it tried.
GRIDS: dict[str, dict[str, tuple[float, ...]]] = {
    "network": {"hidden_dim": (256, 512), "dropout": (0.5, 0.75), "learning_rate": (0.2, 0.7)},
    "logistic": {"logistic_c": (1.0, 3.0, 10.0, 30.0, 100.0)},
}


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

    def logits(self, encodings: np.ndarray) -> np.ndarray:
        """Return the outputs of the last layer: float32 `[n, labels]`."""
        values = encodings
        for kernel, bias in self.layers[:-1]:
            values = np.maximum(values @ kernel + bias, 0)
        kernel, bias = self.layers[-1]
        logits: np.ndarray = values @ kernel + bias
        return logits

    def probabilities(self, encodings: np.ndarray) -> np.ndarray:
        """Return the probabilities of the labels: float32 `[n, labels]`; rows sum to 1.

        Raises:
          ValueError: if the weights are so large that a sum is infinite.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # overflows raise an error below
            probabilities = softmax(self.logits(encodings))
        if not np.isfinite(probabilities).all():
            raise ValueError(
                "The probabilities are not finite, because weights go up to "
                f"{max(np.abs(layer.kernel).max() for layer in self.layers):.3g}. Train again "
                "with a lower learning rate."
            )
        return probabilities


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return the softmax along the last axis."""
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def initial_network(
    num_inputs: int, hidden_dim: int, num_labels: int, rng: np.random.Generator
) -> Head:
    """Return a network with Glorot-uniform kernels and zero biases, as in a Keras `Dense`."""
    layers = []
    for rows, columns in ((num_inputs, hidden_dim), (hidden_dim, num_labels)):
        limit = np.sqrt(6 / (rows + columns))
        kernel = rng.uniform(-limit, limit, (rows, columns)).astype(np.float32)
        layers.append(DenseLayer(kernel, np.zeros(columns, np.float32)))
    return Head(layers)


def train_step(head: Head, inputs: np.ndarray, labels: np.ndarray, learning_rate: float) -> float:
    """Update two layers in place by gradient descent on the mean cross-entropy of a batch.

    Args:
      head: two layers.
      inputs: float32 `[batch, inputs]`, after dropout.
      labels: int `[batch]`, the label of each example.
      learning_rate: the learning rate of this step.

    Returns:
      The loss before the step.
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


def quick_options(options: Options) -> dict[str, Any]:
    """Return options that train a head faster, which is enough to compare encodings or examples."""
    if "epochs" not in options:
        return dict(options)
    return {**options, "epochs": max(1, round(_SHARE_OF_EPOCHS * options["epochs"]))}


def train_head(
    options: Options,
    encodings: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray | None = None,
    *,
    validation: Validation | None = None,
) -> Head:
    """Train a head.

    Args:
      options: `head`, `seed` and the options for this kind of head.
      encodings: float32 `[n, dim]`, normalised to length 1.
      labels: int `[n]`, the label of each example, numbered from 0 without gaps. Logistic
        regression also accepts bool `[n, labels]`.
      weights: float `[n]`, positive weights of the examples. Default: equal weights.
      validation: encodings and labels that decide when the training of a network stops
        (`patience`).

    Raises:
      ValueError: if the trained weights are not finite numbers.
    """
    if options["head"] == "logistic":
        return train_logistic(encodings, labels, c=options["logistic_c"], weights=weights)
    network = {name: options[name] for name in (*HEADS["network"], "seed")}
    return train_network(encodings, labels, **network, weights=weights, validation=validation)


def train_network(
    encodings: np.ndarray,
    labels: np.ndarray,
    *,
    hidden_dim: int = 512,
    dropout: float = 0.75,
    learning_rate: float = 0.7,
    epochs: int = 500,
    batch_size: int = 32,
    patience: int = 0,
    seed: int,
    weights: np.ndarray | None = None,
    validation: Validation | None = None,
) -> Head:
    """Train a network: dropout, one hidden layer with ReLU, softmax.

    The defaults are from PolyAI's benchmark. An epoch has `ceil(n / batch_size)` steps. The
    learning rate is lowered after each epoch and falls linearly to 0. If training takes minutes,
    progress is shown on standard error.

    Args:
      encodings: float32 `[n, dim]`, normalised to length 1.
      labels: int `[n]`, the label of each example, numbered from 0 without gaps.
      hidden_dim, dropout, learning_rate, epochs, batch_size: as in `IntentClassifier`.
      patience: training stops after this many epochs without better accuracy on `validation`. The
        weights of the best epoch are then kept. If `patience` is 0 or there are no validation data,
        all epochs are trained.
      seed: seed for weights, batches and dropout. The same seed gives the same weights.
      weights: float `[n]`, positive. Each example is drawn in proportion to its weight. Default:
        equal weights.
      validation: encodings and labels for `patience`.

    Raises:
      ValueError: if the trained weights are not finite numbers.

    Reference: arXiv 2003.04807 §4; arXiv 1911.03688 §3.2 (a patience of 5 epochs).
    """
    from threadpoolctl import threadpool_limits

    rng = np.random.default_rng(seed)
    head = initial_network(encodings.shape[1], hidden_dim, int(labels.max()) + 1, rng)
    kept = np.float32(1 - dropout)
    # With equal shares, NumPy draws different examples than without shares, so None is passed.
    shares = None if weights is None or np.ptp(weights) == 0 else weights / weights.sum()
    shape = (batch_size, encodings.shape[1])
    steps = -(-len(labels) // batch_size)
    best, best_accuracy, best_epoch = head, -1.0, 0
    # More threads do not speed up such small products, and one thread always gives the same sums.
    with threadpool_limits(1, "blas"), Progress("steps", total=epochs * steps) as progress:
        for epoch in range(epochs):
            rate = learning_rate * (1 - epoch / epochs)
            for step in range(steps):
                chosen = rng.choice(len(labels), batch_size, p=shares)
                inputs = encodings[chosen]
                if dropout:
                    inputs *= rng.random(shape, dtype=np.float32) < kept
                    inputs /= kept
                # check_step reports overflows.
                with np.errstate(over="ignore", invalid="ignore"):
                    loss = train_step(head, inputs, labels[chosen], rate)
                check_step(epoch * steps + step + 1, loss, learning_rate)
                progress.add()
            if not patience or validation is None:
                continue
            accuracy = accuracy_of(head, *validation)
            if accuracy > best_accuracy:
                best = Head([DenseLayer(*map(np.copy, layer)) for layer in head.layers])
                best_accuracy, best_epoch = accuracy, epoch
            elif epoch - best_epoch >= patience:
                break
    if not all(np.isfinite(array).all() for layer in best.layers for array in layer):
        check_step(epochs * steps, np.nan, learning_rate)
    return best


def check_step(step: int, loss: float, learning_rate: float) -> None:
    """Raise `ValueError` if the loss is infinite or NaN."""
    if not np.isfinite(loss):
        raise ValueError(
            f"Training diverged at step {step:,}, with a learning rate of {learning_rate:g}. "
            "Nothing was written. Use a lower learning rate."
        )


def train_logistic(
    encodings: Any, labels: np.ndarray, *, c: float = LOGISTIC_C, weights: np.ndarray | None = None
) -> Head:
    """Train logistic regression: multinomial, or one regression for each label.

    Args:
      encodings: float32 `[n, dim]`, or a sparse array.
      labels: int `[n]`, the label of each example, numbered from 0 without gaps; or bool
        `[n, labels]`.
      c: scikit-learn's `C`, the inverse weight of the L2 penalty.
      weights: float `[n]`, weights of the examples. Default: equal weights.

    Returns:
      A head with one layer. Its outputs are logits, or log-odds if labels are bool. For a label
      that all examples or no examples have, the log-odds are constant and computed from the label's
      frequency.
    """
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    regression = LogisticRegression(C=c, max_iter=2000)
    if labels.ndim == 1:
        with threadpool_limits(1, "blas"), warnings.catch_warnings():
            # With fewer than two examples per label, scikit-learn warns that the labels look like a
            # regression target.
            warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
            regression.fit(encodings, labels, weights)
        kernel, bias = regression.coef_.T, regression.intercept_
        if kernel.shape[1] == 1:  # for two classes, scikit-learn returns one logit; the other is 0
            kernel, bias = np.pad(kernel, [(0, 0), (1, 0)]), np.pad(bias, (1, 0))
        return Head([DenseLayer(kernel.astype(np.float32), bias.astype(np.float32))])
    kernel = np.zeros((encodings.shape[1], labels.shape[1]), np.float32)
    bias = np.zeros(labels.shape[1], np.float32)
    with threadpool_limits(1, "blas"), Progress("labels", total=labels.shape[1]) as progress:
        for label, has_label in enumerate(labels.T):
            if has_label.all() or not has_label.any():
                bias[label] = np.log((has_label.sum() + 0.5) / ((~has_label).sum() + 0.5))
            else:
                regression.fit(encodings, has_label, weights)
                kernel[:, label], bias[label] = regression.coef_[0], regression.intercept_[0]
            progress.add()
    return Head([DenseLayer(kernel, bias)])


def accuracy_of(head: Head, encodings: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of examples whose label is the most probable label."""
    return float(np.mean(head.probabilities(encodings).argmax(axis=1) == labels))


def head_arrays(head: Head) -> dict[str, np.ndarray]:
    """Return the weights of a head by name, to store them in a file."""
    return {
        f"{name}_{index}": getattr(layer, name)
        for index, layer in enumerate(head.layers)
        for name in DenseLayer._fields
    }


def head_of_arrays(arrays: Mapping[str, np.ndarray]) -> Head:
    """Restore a head from the result of `head_arrays`.

    Raises:
      KeyError: if a kernel or a bias is missing.
      ValueError: if the shapes of a kernel and a bias do not match.
    """
    kernels = sorted(name for name in arrays if name.startswith("kernel_")) or ["kernel_0"]
    biases = [name.replace("kernel", "bias") for name in kernels]
    layers = [DenseLayer(arrays[a], arrays[b]) for a, b in zip(kernels, biases, strict=True)]
    if any(kernel.ndim != 2 or bias.shape != kernel.shape[1:] for kernel, bias in layers):
        raise ValueError("the shapes of a kernel and a bias do not match")
    return Head(layers)
