"""Loading of a module's weights into an encoder, for further training."""

import os
from typing import Any

import numpy as np

from convert_tf.checkpoints.tensor_bundle import ModuleVariables
from convert_tf.models.encoder import DualEncoder
from convert_tf.numerics.byte_codes import HIGHEST_CODE


def load_module_weights(encoder: DualEncoder, folder: str | os.PathLike[str]) -> None:
    """Load the weights of a module into an encoder.

    Modules store weights as 16-bit floats, bytes with a scale for each column, or float32
    (`convert_tf.export.hub.weights`). Rounded weights stay rounded. A module that was called and
    saved again also has float32 weights, which take precedence.

    Args:
      encoder: encoder with the configuration of the module. Its variables are float32.
      folder: the module.

    Raises:
      ValueError: if the file is missing, damaged, or has other shapes.
    """
    values = ModuleVariables(folder)
    for block in encoder.trunk.blocks:
        block.feed_forward.fold_slope()  # modules store folded weights
    try:
        for number, variable in enumerate(encoder.network_variables):
            variable.assign(values.weight(number))
        _load_table(encoder.trunk.embedding, values)
    finally:
        for block in encoder.trunk.blocks:
            block.feed_forward.unfold_slope()


def module_similarity_map(folder: str | os.PathLike[str]) -> np.ndarray | None:
    """Return the similarity map of a module, float32 `[reduced_dim, dim]`; None if it has none.

    Raises:
      ValueError: if the file is missing or damaged.
    """
    return ModuleVariables(folder).similarity_map


def _load_table(embedding: Any, values: ModuleVariables) -> None:
    if ("table/_offset" in values) != (embedding.quantizer is not None):
        raise ValueError("the subword table has other embedding_bits")
    codes = values["table/_values"].astype(np.float32)
    if embedding.quantizer is None:
        embedding.table.assign(codes)
        return
    offset, step = values["table/_offset"], values["table/_scale"]
    embedding.table.assign(offset + codes * step)
    embedding.quantizer_weights["range_min"].assign(offset)
    embedding.quantizer_weights["range_max"].assign(offset + HIGHEST_CODE * step)
