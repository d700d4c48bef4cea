"""Examples as bytes of records, without TensorFlow.

A record is a `tf.train.Example` of bytes features (see `convert_tf.data.records`). The bytes
are those that TensorFlow's deterministic serialisation gives.
"""

import struct

from convert_tf.data.schema import EXTRA_FEATURES, Example
from convert_tf.extras import needs

_32_BITS = 0xFFFFFFFF
_TEXTS = (
    *("context", "response", "subreddit", "thread_id"),
    *("context_author", "response_author", "source"),
)
# protobuf sorts names by their bytes, but puts a name after those that continue it.
_SORTED = sorted((*_TEXTS, *EXTRA_FEATURES), key=lambda name: f"{name}\x7f")


def _varint(number: int) -> bytes:
    groups = []
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])


_SHORT = [_varint(number) for number in range(1 << 11)]
# Each field has a tag (the number 1 or 2, with protobuf's type of texts and messages), a length and
# bytes. An entry of the map of features begins with its name.
_NAMES = [(name, b"\x0a" + _varint(len(name)) + name.encode("ascii")) for name in _SORTED]


def serialize_example(example: Example) -> bytes:
    """Return the record of an example."""
    extras = dict(zip(EXTRA_FEATURES, example.extra_contexts, strict=False))
    entries = []
    for name, field in _NAMES:
        text = extras.get(name) if name in EXTRA_FEATURES else getattr(example, name)
        if text is None:
            continue
        value = text.encode("utf-8")
        value = b"\x0a" + _length(value) + value  # the value of a list of bytes
        value = b"\x0a" + _length(value) + value  # the list of a feature
        entry = field + b"\x12" + _length(value) + value  # the feature of an entry
        entries.append(b"\x0a" + _length(entry) + entry)  # an entry of the map
    content = b"".join(entries)
    return b"\x0a" + _length(content) + content  # the map of an example


def _length(value: bytes) -> bytes:
    number = len(value)
    return _SHORT[number] if number < len(_SHORT) else _varint(number)


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
