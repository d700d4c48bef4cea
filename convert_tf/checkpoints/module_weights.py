"""Load weights from modules and Hugging Face folders into a Keras encoder."""

import os

import numpy as np

from convert_tf.checkpoints.tensor_bundle import EncoderVariables, ModuleVariables
from convert_tf.models.encoder import DualEncoder


def load_variables(encoder: DualEncoder, values: EncoderVariables) -> None:
    """Load stored weights into an encoder.

    Modules store weights as 16-bit floats, as bytes with a scale for each column, or as float32
    (`convert_tf.export.hub.weights`). Rounded weights stay rounded. A module that was called and
    saved again also has float32 weights, which take precedence.

    Args:
      encoder: an encoder with float32 variables and the configuration of the stored encoder.
      values: the stored weights.

    Raises:
      ValueError: if a weight is missing, damaged, or has another shape.
    """
    folded = [block.feed_forward for block in encoder.trunk.blocks if values.is_folded]
    for layer in folded:
        layer.fold_slope()
    try:
        for number, variable in enumerate(encoder.network_variables):
            variable.assign(values.weight(number))
        embedding = encoder.trunk.embedding
        table, ranges = values.table()
        if (ranges is None) != (embedding.quantizer is None):
            raise ValueError("the subword table has different embedding_bits")
        embedding.table.assign(table)
        if ranges is not None:
            for name, value in zip(("range_min", "range_max"), ranges, strict=True):
                embedding.quantizer_weights[name].assign(value)
    finally:
        for layer in folded:
            layer.unfold_slope()


def module_similarity_map(folder: str | os.PathLike[str]) -> np.ndarray | None:
    """Return the similarity map of a module, float32 `[reduced_dim, dim]`; None if it has none.

    Raises:
      ValueError: if the module's variables are missing or damaged.
    """
    return ModuleVariables(folder).similarity_map
