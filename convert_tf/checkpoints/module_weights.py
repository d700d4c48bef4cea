"""Loading of a module's weights into an encoder, for further training."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2

from convert_tf.models.encoder import DualEncoder

_HIGHEST_CODE = 255


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
    values = _ModuleVariables(Path(folder) / "variables" / "variables")
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
    values = _ModuleVariables(Path(folder) / "variables" / "variables")
    if "similarity/_values" not in values:
        return None
    kernel = values["similarity/_values"].astype(np.float32)
    return kernel * values["similarity/_scales"] if "similarity/_scales" in values else kernel


class _ModuleVariables:
    """Variables of a module by their attribute paths, starting at `EncoderModule`."""

    def __init__(self, prefix: Path):
        try:
            self._reader = tf.train.load_checkpoint(str(prefix))
            graph = self._reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH")
        except (tf.errors.OpError, RuntimeError, IndexError, ValueError) as error:
            raise ValueError(f"the variables cannot be read: {error}") from error
        self._nodes = trackable_object_graph_pb2.TrackableObjectGraph.FromString(graph).nodes

    def __getitem__(self, path: str) -> np.ndarray:
        key = self._key(path)
        if key is None:
            raise ValueError(f"{path} is missing")
        try:
            return np.asarray(self._reader.get_tensor(key))
        except (tf.errors.OpError, RuntimeError, IndexError) as error:
            raise ValueError(f"{path} cannot be read: {error}") from error

    def __contains__(self, path: str) -> bool:
        return self._key(path) is not None

    def _key(self, path: str) -> str | None:
        """Return the name of a variable in the file; None if there is none."""
        node = self._nodes[0]
        for name in path.split("/"):
            children = {child.local_name: child.node_id for child in node.children}
            if name not in children:
                return None
            node = self._nodes[children[name]]
        return node.attributes[0].checkpoint_key if node.attributes else None

    def weight(self, number: int) -> np.ndarray:
        """Return a weight of the network, float32."""
        computed = f"weights/_computed/{number}"
        # In modules of earlier versions, which have no flag, this array is always valid.
        flag = "weights/_is_unpacked"
        if computed in self and (flag not in self or self[flag]):
            return self[computed]
        stored = f"weights/_stored/{number}"
        values = self[f"{stored}/0"].astype(np.float32)
        return values * self[f"{stored}/1"] if f"{stored}/1" in self else values


def _load_table(embedding: Any, values: _ModuleVariables) -> None:
    if ("table/_offset" in values) != (embedding.quantizer is not None):
        raise ValueError("the subword table has other embedding_bits")
    codes = values["table/_values"].astype(np.float32)
    if embedding.quantizer is None:
        embedding.table.assign(codes)
        return
    offset, step = values["table/_offset"], values["table/_scale"]
    embedding.table.assign(offset + codes * step)
    embedding.quantizer_weights["range_min"].assign(offset)
    embedding.quantizer_weights["range_max"].assign(offset + _HIGHEST_CODE * step)
