"""Side networks, which turn reduced encodings into encodings of contexts or of responses."""

from typing import Any

import keras
from keras import ops

from convert_tf.layers.block import fast_gelu
from convert_tf.numerics.initializers import orthogonal


def l2_normalize(x: Any) -> Any:
    """Return `x / ‖x‖₂` over the last axis, in float32. A zero vector stays zero.

    Args:
      x: vectors, `[..., dim]`, of any float dtype.

    Returns:
      The normalised vectors, float32 `[..., dim]`.
    """
    x = ops.cast(x, "float32")
    return x * ops.rsqrt(ops.maximum(ops.sum(ops.square(x), axis=-1, keepdims=True), 1e-12))


@keras.saving.register_keras_serializable(package="convert_tf")
class SideNetwork(keras.layers.Layer):
    """Hidden layers, a linear layer and L2 normalisation: "feed-forward 2" of the paper.

    A hidden layer computes norm(x + gelu(xW + b)), or norm(gelu(xW + b)) if the widths of its input
    and output differ. Kernels are initialised as orthogonal matrices.

    Masking: none, because the input is one vector per text.

    Args:
      num_layers: number of hidden layers; three in the paper.
      hidden_dim: width of the hidden layers.
      encoding_dim: width of the encodings.
      use_skip: whether the hidden layers have skip connections.

    Call arguments:
      reduced: reduced encodings r, `[texts, reduced_dim]`.

    Returns:
      The encodings h, of unit length, float32 `[texts, encoding_dim]`.

    Example:
      h = SideNetwork(3, 1024, encoding_dim=512)(r)

    Reference: arXiv 1911.03688 §2.1, Figure 2.
    """

    def __init__(
        self,
        num_layers: int,
        hidden_dim: int,
        *,
        encoding_dim: int,
        use_skip: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.hidden_dim = hidden_dim
        self.use_skip = use_skip
        policy = self.dtype_policy

        def dense(width: int, name: str, activation: Any = None) -> keras.layers.Dense:
            return keras.layers.Dense(
                width, activation, kernel_initializer=orthogonal(), dtype=policy, name=name
            )

        self.hidden = [dense(hidden_dim, f"hidden_{i}", fast_gelu) for i in range(num_layers)]
        self.norms = [
            keras.layers.LayerNormalization(epsilon=1e-6, dtype=policy, name=f"norm_{i}")
            for i in range(num_layers)
        ]
        self.linear = dense(encoding_dim, "linear")

    def build(self, reduced_shape: Any) -> None:
        shape = reduced_shape
        for hidden, norm in zip(self.hidden, self.norms, strict=True):
            hidden.build(shape)
            shape = (*shape[:-1], self.hidden_dim)
            norm.build(shape)
        self.linear.build(shape)

    def call(self, reduced: Any) -> Any:
        x = reduced
        for hidden, norm in zip(self.hidden, self.norms, strict=True):
            y = hidden(x)
            x = norm(x + y if self.use_skip and x.shape[-1] == self.hidden_dim else y)
        return l2_normalize(self.linear(x))
