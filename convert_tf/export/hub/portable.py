"""Write SavedModels that TensorFlow 2.6 and later can load.

Some clients of the original modules use old versions of TensorFlow: Rasa 2.8 uses 2.6, whatlies
uses 2.9, and Rasa 3.6 uses 2.12. A new TensorFlow adds parts to the graph of a module that old
versions cannot read, so these parts are changed or removed. If the module itself uses ops,
attributes or types that are unknown to TensorFlow 2.6, saving it raises an error.
"""

import errno
import functools
import os
import re
import shutil
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow.core.protobuf.tensor_bundle_pb2 import BundleEntryProto, BundleHeaderProto
from tensorflow.python.framework import op_def_registry
from tensorflow.python.saved_model import fingerprinting_utils

from convert_tf.checkpoints.tensor_bundle import FOOTER_BYTES, read_table, slice_key
from convert_tf.data.shards import varint

# The ops of TensorFlow 2.6, as listed by `scripts/list_ops.py`.
_OPS_FILE = Path(__file__).with_name("ops_of_tensorflow_2_6.txt")
# An op in the function that saves a loaded module's variables. It does not change their values.
_WITHOUT_EFFECT = "DisableCopyOnRead"
# Attributes that may be dropped, whatever their values: a name for humans, and a check.
_FREE = {("VarHandleOp", "debug_name"), ("AssignVariableOp", "validate_shape")}
# Up to TensorFlow 2.12, the bfloat16 kernels for these ops only raise an error
# (bfloat16_batch_norm_op.cc). On processors with bfloat16 instructions, oneDNN replaces these
# kernels.
_RAISING = ("_FusedConv2D", "FusedBatchNormV3", "FusedBatchNormGradV3")


class PortabilityError(ValueError):
    """Raised if older versions of TensorFlow cannot load a graph."""


def save_portable(
    module: Any, folder: Path, *, signatures: Mapping[str, Any], earlier: Path | None = None
) -> None:
    """Write a SavedModel for TensorFlow 2.6 and later, with the variables in two files.

    Args:
      module: the `tf.Module` to save.
      folder: the folder to write. It must not exist.
      signatures: the functions to save as signatures, by name.
      earlier: the folder of the SavedModel from which `module` was made, or None. If both have the
        same variables up to rounding, the files of variables are copied from `earlier`, so that the
        old signatures return exactly the same numbers.

    Raises:
      PortabilityError: if the graph has custom gradients, or parts that are unknown to TensorFlow
        2.6.
      OSError: if the folder cannot be written.
    """
    try:
        _save(module, folder, signatures, earlier)
    except tf.errors.ResourceExhaustedError as error:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)) from error
    except tf.errors.OpError as error:
        raise OSError(errno.EIO, error.message, str(folder)) from error


def _save(module: Any, folder: Path, signatures: Mapping[str, Any], earlier: Path | None) -> None:
    tf.saved_model.save(module, str(folder), signatures=signatures)
    if earlier is not None and _are_close(earlier, folder):
        shutil.rmtree(folder / "variables")
        shutil.copytree(earlier / "variables", folder / "variables")
    else:
        rewrite_variables(folder)
    path = folder / "saved_model.pb"
    model = SavedModel.FromString(path.read_bytes())
    for graph in model.meta_graphs:
        _make_portable(graph)
    path.write_bytes(model.SerializeToString(deterministic=True))
    (folder / "fingerprint.pb").unlink(missing_ok=True)
    fingerprinting_utils.write_fingerprint(str(folder))


def _are_close(*folders: Path) -> bool:
    """Return whether two SavedModels have the same variables, apart from rounding.

    The variables of the first SavedModel must be stored in two files.
    """
    prefixes = [folder / "variables" / "variables" for folder in folders]
    if not all(path.is_file() for path in _data_files(prefixes[0], 2)):
        return False
    readers = [tf.train.load_checkpoint(str(prefix)) for prefix in prefixes]
    shapes, dtypes = (
        [getattr(reader, f"get_variable_to_{what}_map")() for reader in readers]
        for what in ("shape", "dtype")
    )
    if shapes[0] != shapes[1] or dtypes[0] != dtypes[1]:
        return False
    names = [name for name, dtype in dtypes[0].items() if dtype != tf.string]
    first, second = (
        [reader.get_tensor(name).astype(float) for name in names] for reader in readers
    )
    return all(
        np.allclose(one, other, rtol=1e-6, atol=0) for one, other in zip(first, second, strict=True)
    )


def _make_portable(graph: MetaGraphDef) -> None:
    library, known = graph.graph_def.library, graph.meta_info_def.stripped_op_list
    if library.registered_gradients:
        names = ", ".join(
            sorted({gradient.gradient_func for gradient in library.registered_gradients})
        )
        raise PortabilityError(
            f"The saved graph has custom gradients: {names}. A process that loads such a graph "
            "never frees it. Use plain ops in saved graphs."
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
    """Remove unneeded attributes of a node. Raise an error if TensorFlow 2.6 cannot load it."""
    attributes = _known_ops().get(node.op)
    if attributes is None:
        raise _unknown(f"the op {node.op}", node)
    definition = op_def_registry.get(node.op)
    defaults = {attribute.name: attribute.default_value for attribute in definition.attr}
    for name in [name for name in node.attr if not name.startswith("_")]:
        value = node.attr[name]
        if name not in attributes:
            if value != defaults[name] and (node.op, name) not in _FREE:
                raise _unknown(f"the attribute {name} of {node.op}", node)
            del node.attr[name]
            continue
        types = [value.type] if value.HasField("type") else value.list.type
        for type_ in types:
            is_raising = node.op in _RAISING and (name, type_) == ("T", types_pb2.DT_BFLOAT16)
            if is_raising or type_ not in (attributes[name] or _known_ops()["types"][""]):
                raise _unknown(f"{node.op} of {types_pb2.DataType.Name(type_)} on a CPU", node)


def _unknown(what: str, node: NodeDef) -> PortabilityError:
    return PortabilityError(
        f"TensorFlow 2.6 does not support {what}, in {node.name!r}. Use older ops."
    )


@functools.cache
def _known_ops() -> dict[str, dict[str, set[int]]]:
    """Return the ops of TensorFlow 2.6, each with the types that its attributes allow.

    The additional entry `types` contains all types of TensorFlow 2.6.
    """
    ops = {}
    for line in _OPS_FILE.read_text(encoding="ascii").splitlines():
        name, *attributes = line.replace("types:", "types :").split()
        ops[name] = {
            attribute_name: {
                types_pb2.DataType.Value(f"DT_{type_.upper()}")
                for type_ in re.findall(r"\w+", types)
            }
            for attribute_name, _, types in (attribute.partition(":") for attribute in attributes)
        }
    return ops


# TensorFlow stores variables as a table of entries (`variables.index`) with the position of each
# array's bytes. An array may be stored in slices, and slices may share their bytes. Here all slices
# of an array of zeros share their bytes. A variable that is computed after loading therefore has a
# value, which distribution strategies, graphs and Keras need, but takes no space. References:
# tensorflow/core/protobuf/tensor_bundle.proto; tensorflow/core/lib/io/table_format.txt.
_MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
_ZERO_BYTES = 2**18  # size in bytes of the largest slice of zeros
# Types whose slices TensorFlow can join. It cannot join slices of float16.
_SLICED_TYPES = (types_pb2.DT_FLOAT, types_pb2.DT_BFLOAT16, types_pb2.DT_INT32)
# The position of each array is a multiple of this number of bytes, which suits every type.
_ALIGNMENT = 8


class _Array(NamedTuple):
    """An array in the files of variables: its entry in the index, and its bytes."""

    entry: BundleEntryProto
    content: bytes


def rewrite_variables(folder: Path) -> None:
    """Rewrite the `variables/` folder of a SavedModel with two data files of about equal size.

    Clients of the original modules look for `variables.data-00000-of-00002` and `-00001-of-00002`.

    Args:
      folder: the SavedModel.
    """
    prefix = folder / "variables" / "variables"
    index = prefix.with_name("variables.index")
    table = dict(read_table(index.read_bytes()))
    header = BundleHeaderProto.FromString(table.pop(b""))
    old = _data_files(prefix, header.num_shards)
    shards = [path.read_bytes() for path in old]
    arrays = {key: _array(value, shards) for key, value in table.items()}
    header.num_shards = 2
    entries, data = _laid_out(arrays)
    for path in old:
        path.unlink()
    for path, content in zip(_data_files(prefix, 2), data, strict=True):
        path.write_bytes(content)
    entries[b""] = header.SerializeToString()
    index.write_bytes(_table(dict(sorted(entries.items()))))


def _data_files(prefix: Path, number: int) -> list[Path]:
    return [prefix.with_name(f"variables.data-{i:05}-of-{number:05}") for i in range(number)]


def _array(value: bytes, shards: list[bytes]) -> _Array:
    entry = BundleEntryProto.FromString(value)
    shard = shards[entry.shard_id]
    return _Array(entry, shard[entry.offset : entry.offset + entry.size])


def _laid_out(arrays: Mapping[bytes, _Array]) -> tuple[dict[bytes, bytes], list[bytes]]:
    """Return the entries of the index and the contents of the two data files."""
    entries: dict[bytes, bytes] = {}
    zeros = {key for key, array in arrays.items() if _is_zeros(*array)}
    longest = max((len(arrays[key].content) for key in zeros), default=0)
    # The first data file starts with the bytes that all zeros share.
    data = [bytearray(min(longest, _ZERO_BYTES)), bytearray()]
    by_size = sorted(arrays.items(), key=lambda item: -len(item[1].content))
    for key, (entry, content) in by_size:
        if key in zeros and len(content) > _ZERO_BYTES:
            entries |= _zero_entries(key, entry)
            continue
        if key in zeros:
            shard, place = 0, 0
        else:
            shard = min(range(2), key=lambda number: len(data[number]))
            data[shard] += bytes(-len(data[shard]) % _ALIGNMENT)
            place = len(data[shard])
            data[shard] += content
        entry.shard_id, entry.offset = shard, place
        entries[key] = entry.SerializeToString()
    return entries, [bytes(content) for content in data]


def _is_zeros(entry: BundleEntryProto, content: bytes) -> bool:
    if entry.dtype == types_pb2.DT_STRING or content.count(0) < len(content):
        return False
    if len(content) <= _ZERO_BYTES:
        return True
    # Larger arrays are divided into slices of rows.
    row_bytes = len(content) // entry.shape.dim[0].size
    return entry.dtype in _SLICED_TYPES and row_bytes <= _ZERO_BYTES


def _zero_entries(key: bytes, entry: BundleEntryProto) -> dict[bytes, bytes]:
    """Return the entries for an array of zeros: slices that share the zeros in the first file."""
    sizes = [dim.size for dim in entry.shape.dim]
    row_bytes = entry.size // sizes[0]
    rows = _ZERO_BYTES // row_bytes
    whole = BundleEntryProto(dtype=entry.dtype, shape=entry.shape)
    entries = {}
    for start in range(0, sizes[0], rows):
        number = min(rows, sizes[0] - start)
        extents = [(start, number), *((0, size) for size in sizes[1:])]
        spec = whole.slices.add()
        for first, length in extents:
            spec.extent.add(start=first, length=length)
        part = BundleEntryProto(
            dtype=entry.dtype, size=number * row_bytes, crc32c=_crc(bytes(number * row_bytes))
        )
        for size in (number, *sizes[1:]):
            part.shape.dim.add(size=size)
        entries[slice_key(key, extents)] = part.SerializeToString()
    return {key: whole.SerializeToString(), **entries}


def _table(entries: Mapping[bytes, bytes]) -> bytes:
    """Return a table of sorted entries, all in one block."""
    content = bytearray()

    def append(block: Mapping[bytes, bytes]) -> bytes:
        """Append a block, and return its position in the form that the index needs."""
        body, restarts = bytearray(), []
        for key, value in block.items():
            restarts.append(len(body))
            body += varint(0) + varint(len(key)) + varint(len(value)) + key + value
        for number in (*(restarts or [0]), max(len(restarts), 1)):
            body += number.to_bytes(4, "little")
        handle = varint(len(content)) + varint(len(body))
        content.extend(body)
        content.extend(b"\x00" + _crc(bytes(body) + b"\x00").to_bytes(4, "little"))
        return handle

    index = {max(entries): append(entries)}
    footer = append({}) + append(index)
    return bytes(content) + footer.ljust(FOOTER_BYTES - len(_MAGIC), b"\x00") + _MAGIC


@functools.lru_cache(64)
def _crc(content: bytes) -> int:
    """Return the masked CRC-32C that TensorFlow uses as a checksum of `content`.

    The checksum is computed by writing a TFRecord file, whose last four bytes are the checksum of
    its last record.
    """
    file = f"ram://convert_tf/{threading.get_ident()}"  # in memory
    with tf.io.TFRecordWriter(file) as writer:
        writer.write(content)
    with tf.io.gfile.GFile(file, "rb") as written:
        record = written.read()
    tf.io.gfile.remove(file)
    return int.from_bytes(record[-4:], "little")
