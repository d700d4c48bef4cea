"""The weights of a module that `convert-tf export` wrote, in an encoder again, for training."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2

from convert_tf.models.encoder import DualEncoder

_HIGHEST_CODE = 255


def load_module_weights(encoder: DualEncoder, folder: str | os.PathLike[str]) -> None:
    """Gives an encoder what the file of a module holds, as the module computes with it.

    Rounded weights stay rounded: 16-bit floats, or bytes with a scale for each column
    (`convert_tf.export.hub.weights`); the subword table as `convert_tf.export.hub.table` has it. A
    module that was called and saved again has float32 weights, which are taken; one in 32 bits has
    no others.

    Args:
      encoder: of the module's configuration, in float32 or with float32 variables.
      folder: of the module.

    Raises:
      ValueError: the file is missing, damaged, or of another shape.
    """
    values = _Values(Path(folder) / "variables" / "variables")
    for block in encoder.trunk.blocks:
        block.feed_forward.fold_slope()  # as it is in modules
    try:
        for number, variable in enumerate(encoder.network_variables):
            variable.assign(values.weight(number))
        _load_table(encoder.trunk.embedding, values)
    finally:
        for block in encoder.trunk.blocks:
            block.feed_forward.unfold_slope()


def module_similarity_map(folder: str | os.PathLike[str]) -> np.ndarray | None:
    """The map of r to vectors for similarity in a module, float32; None where it has none.

    Raises:
      ValueError: the file is missing or damaged.
    """
    values = _Values(Path(folder) / "variables" / "variables")
    if "similarity/_values" not in values:
        return None
    kernel = values["similarity/_values"].astype(np.float32)
    return kernel * values["similarity/_scales"] if "similarity/_scales" in values else kernel


class _Values:
    """Arrays of a module's file, by the path of attributes from `EncoderModule` to them."""

    def __init__(self, prefix: Path):
        try:
            self._reader = tf.train.load_checkpoint(str(prefix))
            graph = self._reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH")
        except (tf.errors.OpError, RuntimeError, IndexError, ValueError) as error:
            raise ValueError(f"no variables can be read there: {error}") from error
        self._nodes = trackable_object_graph_pb2.TrackableObjectGraph.FromString(graph).nodes

    def __getitem__(self, path: str) -> np.ndarray:
        key = self._key(path)
        if key is None:
            raise ValueError(f"there is no {path}")
        try:
            return np.asarray(self._reader.get_tensor(key))
        except (tf.errors.OpError, RuntimeError, IndexError) as error:
            raise ValueError(f"{path} cannot be read: {error}") from error

    def __contains__(self, path: str) -> bool:
        return self._key(path) is not None

    def _key(self, path: str) -> str | None:
        """The name of an array in the file; None for what is not there, or has no value there."""
        node = self._nodes[0]
        for name in path.split("/"):
            children = {child.local_name: child.node_id for child in node.children}
            if name not in children:
                return None
            node = self._nodes[children[name]]
        return node.attributes[0].checkpoint_key if node.attributes else None

    def weight(self, number: int) -> np.ndarray:
        """One of the network's weights, float32."""
        computed = f"weights/_computed/{number}"
        # Modules of before had no such array, or the one that was trained, and no flag.
        flag = "weights/_is_unpacked"
        if computed in self and (flag not in self or self[flag]):
            return self[computed]
        stored = f"weights/_stored/{number}"
        values = self[f"{stored}/0"].astype(np.float32)
        return values * self[f"{stored}/1"] if f"{stored}/1" in self else values


def _load_table(embedding: Any, values: _Values) -> None:
    if ("table/_offset" in values) != (embedding.quantizer is not None):
        raise ValueError("its subword table was trained with other embedding_bits")
    codes = values["table/_values"].astype(np.float32)
    if embedding.quantizer is None:
        embedding.table.assign(codes)
        return
    offset, step = values["table/_offset"], values["table/_scale"]
    embedding.table.assign(offset + codes * step)
    embedding.quantizer_weights["range_min"].assign(offset)
    embedding.quantizer_weights["range_max"].assign(offset + _HIGHEST_CODE * step)
