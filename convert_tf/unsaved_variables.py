"""Variables that a module has and its file does not: what loading computes from the rest."""

from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2

_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


def leave_out_of_files(variable: Any) -> None:
    """Has a variable saved with its shape, and without its value."""
    export = variable._export_to_saved_model_graph

    def export_without_value(object_map: Any = None, **kwargs: Any) -> Any:
        exported = export(object_map=object_map, **kwargs)
        object_map[variable]._serialize_to_tensors = dict  # what TensorFlow 1 and Serving restore
        return exported

    # There is no public way. A saved variable without a value could instead be an empty array of
    # unknown shape, with which neither optimizers nor the summary of a model can work.
    variable._serialize_to_tensors = dict
    variable._export_to_saved_model_graph = export_without_value


def variables_without_values(module: Any, folder: Path) -> list[Any]:
    """The variables of a loaded module that its file has no values of.

    Args:
      module: what `tf.saved_model.load(folder)` returned.
      folder: of the module.
    """
    prefix = folder / "variables" / "variables"
    if not prefix.with_name("variables.index").is_file():  # a module without variables
        return []
    reader = tf.train.load_checkpoint(str(prefix))
    if not reader.has_tensor(_OBJECT_GRAPH):  # TensorFlow 1 wrote it, with all values
        return []
    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    graph.ParseFromString(reader.get_tensor(_OBJECT_GRAPH))
    found = tf.train.CheckpointView(str(prefix)).match(module)
    return [
        each
        for number, each in found.items()
        if hasattr(each, "assign") and not graph.nodes[number].attributes
    ]
