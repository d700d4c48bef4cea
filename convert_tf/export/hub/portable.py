"""Write SavedModels that TensorFlow 2.6 and later can load.

Some clients of the original modules use old versions: Rasa 2.8 uses TensorFlow 2.6, whatlies 2.9,
Rasa 3.6 2.12. The parts that TensorFlow adds to a module's graph are changed so that they can read
them. A graph with ops, attributes or types that are unknown to 2.6 is refused.
"""

import errno
import functools
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow.python.framework import op_def_registry
from tensorflow.python.saved_model import fingerprinting_utils

from convert_tf.export.hub.variables_file import rewrite_variables

# `scripts/list_ops.py` wrote it.
_OPS_FILE = Path(__file__).with_name("ops_of_tensorflow_2_6.txt")
# An op in the function that saves the variables of a loaded module. It has no effect on values.
_WITHOUT_EFFECT = "DisableCopyOnRead"
# Attributes that may be dropped with any value: a name for humans, and a check.
_FREE = {("VarHandleOp", "debug_name"), ("AssignVariableOp", "validate_shape")}
# Up to TensorFlow 2.12, the bfloat16 kernels of these ops only raise an error
# (bfloat16_batch_norm_op.cc). oneDNN replaces them on processors with bfloat16 instructions.
_RAISING = ("_FusedConv2D", "FusedBatchNormV3", "FusedBatchNormGradV3")


class PortabilityError(ValueError):
    """Error: older versions of TensorFlow cannot load a graph."""


def save_portable(module: Any, folder: Path, *, signatures: Mapping[str, Any]) -> None:
    """Call `tf.saved_model.save` for TensorFlow 2.6 and later. Variables are in two files.

    Args:
      module: a `tf.Module`.
      folder: a new folder.
      signatures: functions by name.

    Raises:
      PortabilityError: if the graph has parts that are unknown to 2.6, or custom gradients.
      OSError: if it cannot be written.
    """
    try:
        tf.saved_model.save(module, str(folder), signatures=signatures)
    except tf.errors.ResourceExhaustedError as error:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)) from error
    except tf.errors.OpError as error:
        raise OSError(errno.EIO, error.message, str(folder)) from error
    rewrite_variables(folder)
    path = folder / "saved_model.pb"
    model = SavedModel.FromString(path.read_bytes())
    for graph in model.meta_graphs:
        _make_portable(graph)
    path.write_bytes(model.SerializeToString(deterministic=True))
    (folder / "fingerprint.pb").unlink(missing_ok=True)
    fingerprinting_utils.write_fingerprint(str(folder))


def _make_portable(graph: MetaGraphDef) -> None:
    library, known = graph.graph_def.library, graph.meta_info_def.stripped_op_list
    if library.registered_gradients:
        names = ", ".join(sorted({own.gradient_func for own in library.registered_gradients}))
        raise PortabilityError(
            "A saved graph has no gradients of its own: a process that loads it keeps them, and "
            f"all of the graph, for good. Received: {names}. Write the layer with plain ops "
            "where a graph is saved."
        )
    functions = {function.signature.name for function in library.function}
    for node in _nodes(graph):
        if node.op == _WITHOUT_EFFECT:
            node.op = "NoOp"
            node.attr.clear()
            node.input[:] = [name for name in node.input if name.startswith("^")]
        elif node.op not in functions:
            _check(node)
    kept = [op for op in known.op if op.name != _WITHOUT_EFFECT]
    del known.op[:]
    known.op.extend(kept)


def _nodes(graph: MetaGraphDef) -> Iterator[NodeDef]:
    yield from graph.graph_def.node
    for function in graph.graph_def.library.function:
        yield from function.node_def


def _check(node: NodeDef) -> None:
    """Raise an error for parts that the old version lacks; remove optional attributes."""
    attributes = _known_ops().get(node.op)
    if attributes is None:
        raise _unknown(f"the op {node.op}", node)
    own = op_def_registry.get(node.op)
    defaults = {attribute.name: attribute.default_value for attribute in own.attr}
    for name in [name for name in node.attr if not name.startswith("_")]:
        value = node.attr[name]
        if name not in attributes:
            if value != defaults[name] and (node.op, name) not in _FREE:
                raise _unknown(f"the attribute {name} of {node.op}", node)
            del node.attr[name]
            continue
        types = [value.type] if value.HasField("type") else value.list.type
        for each in types:
            is_raising = node.op in _RAISING and (name, each) == ("T", types_pb2.DT_BFLOAT16)
            if is_raising or each not in (attributes[name] or _known_ops()["types"][""]):
                raise _unknown(f"{node.op} of {types_pb2.DataType.Name(each)} on a CPU", node)


def _unknown(what: str, node: NodeDef) -> PortabilityError:
    return PortabilityError(
        f"A module is made of what TensorFlow 2.6 knows. Received: {what}, in {node.name!r}. Write "
        "it with older ops."
    )


@functools.cache
def _known_ops() -> dict[str, dict[str, set[int]]]:
    """Return the known ops with the types that their attributes allow, and all known types."""
    ops = {}
    for line in _OPS_FILE.read_text(encoding="ascii").splitlines():
        name, *attributes = line.replace("types:", "types :").split()
        ops[name] = {
            own: {
                types_pb2.DataType.Value(f"DT_{each.upper()}") for each in re.findall(r"\w+", types)
            }
            for own, _, types in (attribute.partition(":") for attribute in attributes)
        }
    return ops
