"""Read TensorFlow checkpoints with numpy. The variables of a SavedModel are such a checkpoint.

`variables.index` is a sorted table of keys and protobufs, in the format of LevelDB. The table gives
the position of each array in the files `variables.data-…`.

Reference: tensorflow/core/protobuf/tensor_bundle.proto and trackable_object_graph.proto.
"""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from convert_tf.numerics.byte_codes import HIGHEST_CODE

FOOTER_BYTES = 48  # size of the footer at the end of a table
_OBJECTS_KEY = b"_CHECKPOINTABLE_OBJECT_GRAPH"
_STRING = 7
# The numbers of data types in types.proto.
_DTYPES = {1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 6: "i1", 9: "<i8", 10: "?", 19: "<f2"}


# Errors that damaged files can cause. A damaged index may have texts in place of numbers, or
# numbers that are far too large.
_OF_DAMAGE = (OSError, LookupError, TypeError, ValueError, OverflowError, MemoryError)


class EncoderVariables(Protocol):
    """Interface of classes that read an encoder's stored weights, such as `ModuleVariables`.

    `ModuleVariables` describes `weight` and `table`.

    Attributes:
      is_folded: whether the weights of feed-forward layers include the slope of the GELU.
      similarity_map: the linear map from r to similarity vectors, float32 `[reduced_dim, dim]`;
        None if there is no such map.
    """

    @property
    def is_folded(self) -> bool: ...

    @property
    def similarity_map(self) -> np.ndarray | None: ...

    def weight(self, number: int) -> np.ndarray: ...

    def table(self) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray] | None]: ...


class ModuleVariables:
    """The variables of a module, by their attribute paths within `EncoderModule`.

    Args:
      folder: folder of the module.

    Attributes:
      is_folded: true, because the weights of feed-forward layers include the slope of the GELU.

    Raises:
      ValueError: if the variables are missing or damaged. Reading a variable may raise it too.

    Example:
      ModuleVariables("hub_modules/convert/2")["table/_values"]
    """

    is_folded = True

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._prefix = Path(folder) / "variables" / "variables"
        try:
            self._entries = dict(read_table(Path(f"{self._prefix}.index").read_bytes()))
            header = _fields(self._entries[b""])
            self._number_of_files = header[1][0]
            graph = _fields(self._content(self._entries[_OBJECTS_KEY]))
            self._objects = [_fields(entry) for entry in graph[1]]
        except _OF_DAMAGE as error:
            raise ValueError(f"the variables cannot be read: {error!r}") from error

    def __getitem__(self, path: str) -> np.ndarray:
        key = self._key(path)
        if key is None:
            raise ValueError(f"{path} is missing")
        try:
            return self._array(key)
        except _OF_DAMAGE as error:
            raise ValueError(f"{path} cannot be read: {error!r}") from error

    def __contains__(self, path: str) -> bool:
        return self._key(path) is not None

    def weight(self, number: int) -> np.ndarray:
        """Return a weight of the network, float32. `number` is its index in `network_variables`."""
        computed = f"weights/_computed/{number}"
        # The flag says whether the computed array is valid. Modules of earlier versions have no
        # flag, and their array is always valid.
        flag = "weights/_is_unpacked"
        if computed in self and (flag not in self or self[flag]):
            return self[computed]
        stored = f"weights/_stored/{number}"
        values = self[f"{stored}/0"].astype(np.float32)
        return values * self[f"{stored}/1"] if f"{stored}/1" in self else values

    def table(self) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray] | None]:
        """Return the subword table and the range of its 8-bit values.

        Returns:
          A pair: the table, float32 `[num_ids, dim]`; and the lowest and the highest value that the
          8-bit codes can express, both scalars, or None if the table is not stored with 8 bits.
        """
        values = self["table/_values"].astype(np.float32)
        if "table/_offset" not in self:
            return values, None
        offset, step = self["table/_offset"], self["table/_scale"]
        return offset + values * step, (offset, offset + np.float32(HIGHEST_CODE) * step)

    @property
    def similarity_map(self) -> np.ndarray | None:
        """The similarity map, float32 `[reduced_dim, dim]`; None if there is none."""
        if "similarity/_values" not in self:
            return None
        kernel = self["similarity/_values"].astype(np.float32)
        return kernel * self["similarity/_scales"] if "similarity/_scales" in self else kernel

    def _key(self, path: str) -> bytes | None:
        """Return a variable's key in the checkpoint; None if there is no such variable."""
        try:
            return self._key_of_node(path)
        except _OF_DAMAGE as error:
            raise ValueError(f"{path} cannot be found: {error!r}") from error

    def _key_of_node(self, path: str) -> bytes | None:
        node = self._objects[0]
        for name in path.encode().split(b"/"):
            # A child has a name and a number. Protobuf omits the number if it is 0.
            children = {
                child[2][0]: child.get(1, [0])[0] for child in map(_fields, node.get(1, []))
            }
            if name not in children:
                return None
            node = self._objects[children[name]]
        return _fields(node[2][0])[3][0] if 2 in node else None

    def _array(self, key: bytes) -> np.ndarray:
        entry = _fields(self._entries[key])
        dims = [_fields(dim) for dim in _fields(entry.get(2, [b""])[0]).get(2, [])]
        shape = [dim.get(1, [0])[0] for dim in dims]
        dtype = np.dtype(_DTYPES[entry[1][0]])
        if 7 not in entry:
            return np.frombuffer(self._content(self._entries[key]), dtype).reshape(shape)
        array = np.empty(shape, dtype)
        for part in entry[7]:
            extents = [
                (extent.get(1, [0])[0], extent[2][0] if 2 in extent else size)
                for extent, size in zip(map(_fields, _fields(part)[1]), shape, strict=True)
            ]
            piece = self._content(self._entries[slice_key(key, extents)])
            place = tuple(slice(start, start + length) for start, length in extents)
            array[place] = np.frombuffer(piece, dtype).reshape(array[place].shape)
        return array

    def _content(self, value: bytes) -> bytes:
        """Return the bytes of an array or of a single string."""
        entry = _fields(value)
        number, offset, size = (entry.get(field, [0])[0] for field in (3, 4, 5))
        name = f"{self._prefix}.data-{number:05}-of-{self._number_of_files:05}"
        with open(name, "rb") as file:
            file.seek(offset)
            content = file.read(size)
        if len(content) < size:
            raise ValueError(f"{os.path.basename(name)} is too short")
        if entry[1][0] != _STRING:
            return content
        _, place = _varints(content, 0, 1)
        return content[place + 4 :]  # after the length and its checksum


def _fields(message: bytes) -> dict[int, list[Any]]:
    """Return the fields of a protobuf message by number. The values are integers or bytes."""
    fields: dict[int, list[Any]] = {}
    value: Any
    place = 0
    while place < len(message):
        tag, place = _varints(message, place, 1)
        if tag & 7 == 0:
            value, place = _varints(message, place, 1)
        elif tag & 7 == 2:
            length, place = _varints(message, place, 1)
            value, place = message[place : place + length], place + length
        else:
            length = {1: 8, 5: 4}[tag & 7]
            value, place = message[place : place + length], place + length
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def slice_key(key: bytes, extents: list[tuple[int, int]]) -> bytes:
    """Return the key of a slice, as TensorFlow's `EncodeTensorNameSlice` does.

    Args:
      key: the key of the whole array.
      extents: for each axis, the start and the length of the slice.
    """
    escaped = key.replace(b"\xff", b"\xff\x00").replace(b"\x00", b"\x00\xff")
    numbers = itertools.chain.from_iterable(extents)
    return b"".join([b"\x00", escaped, b"\x00\x01", bytes([1, len(extents)]),
                     *map(_ordered, numbers)])  # fmt: skip


def _ordered(number: int) -> bytes:
    """Encode a non-negative number with 7 bits per byte, so that codes sort like the numbers."""
    length = number.bit_length() // 7 + 1
    return (number | ((1 << length) - 1) << 7 * length).to_bytes(length, "big")


def read_table(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values in a table."""
    footer = content[-FOOTER_BYTES:]
    _, _, place = _varints(footer, 0, 2)
    offset, size, _ = _varints(footer, place, 2)
    for _, handle in _read_block(content, offset, size):
        offset, size, _ = _varints(handle, 0, 2)
        yield from _read_block(content, offset, size)


def _read_block(content: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    if content[offset + size]:
        raise ValueError("The index of variables is compressed, which TensorFlow never does.")
    block = content[offset : offset + size]
    end = size - 4 - 4 * int.from_bytes(block[-4:], "little")
    place, key = 0, b""
    while place < end:
        shared, added, length, place = _varints(block, place, 3)
        key = key[:shared] + block[place : place + added]
        yield key, block[place + added : place + added + length]
        place += added + length


def _varints(content: bytes, place: int, count: int) -> list[int]:
    """Decode `count` numbers of variable length, starting at `place`.

    Returns:
      The numbers, followed by the position after them.
    """
    numbers = []
    for _ in range(count):
        number, shift = 0, 0
        while content[place] >= 128:
            number += (content[place] - 128) << shift
            place, shift = place + 1, shift + 7
        numbers.append(number + (content[place] << shift))
        place += 1
    return [*numbers, place]
