"""Examples as bytes of records, without TensorFlow.

A record is a `tf.train.Example` of bytes features (see `convert_tf.data.records`). The bytes
are those that TensorFlow's deterministic serialisation gives.
"""

import struct

from convert_tf.data.schema import EXTRA_FEATURES, Example
from convert_tf.extras import needs

_32_BITS = 0xFFFFFFFF
_LENGTH_DELIMITED = 2  # protobuf's wire type of texts and messages


def serialize_example(example: Example) -> bytes:
    """Return the record of an example."""
    values = {
        "context": example.context,
        "response": example.response,
        "subreddit": example.subreddit,
        "thread_id": example.thread_id,
        "context_author": example.context_author,
        "response_author": example.response_author,
        "source": example.source,
    }
    values.update(zip(EXTRA_FEATURES, example.extra_contexts, strict=False))
    # protobuf sorts names by their bytes, but puts a name after those that continue it.
    names = sorted(values, key=lambda name: f"{name}\x7f")
    return _field(1, b"".join(_feature(name, values[name].encode("utf-8")) for name in names))


def _feature(name: str, value: bytes) -> bytes:
    """An entry of the map of features: its name and a list of one bytes value."""
    feature = _field(1, _field(1, value))
    return _field(1, _field(1, name.encode("ascii")) + _field(2, feature))


def _field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | _LENGTH_DELIMITED]) + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    groups = []
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])


def in_record_file(record: bytes) -> bytes:
    """Return a record as a TFRecord file holds it: length, checksum, record, checksum."""
    length = struct.pack("<Q", len(record))
    return length + _masked_checksum(length) + record + _masked_checksum(record)


def _masked_checksum(content: bytes) -> bytes:
    with needs("spark", "Writing records without TensorFlow"):
        import google_crc32c
    checksum = google_crc32c.value(content)
    rotated = (checksum >> 15 | checksum << 17) & _32_BITS
    return struct.pack("<I", (rotated + 0xA282EAD8) & _32_BITS)
