"""The names of record files."""

import re

_SHARD_NAME = re.compile(r"\w+-\d{5}-of-\d{5}\.tfrecord")


def shard_name(split: str, index: int, num_shards: int) -> str:
    """The file name of one shard."""
    return f"{split}-{index:05d}-of-{num_shards:05d}.tfrecord"


def is_shard_name(name: str) -> bool:
    """Whether a file of this name is a shard."""
    return _SHARD_NAME.fullmatch(name) is not None
