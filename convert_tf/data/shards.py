"""The files of a folder of records: their names, and which there are."""

import glob
import os
import re
from collections.abc import Mapping

from convert_tf.data.schema import SPLITS

_SHARD_NAME = re.compile(r"\w+-\d{5}-of-\d{5}\.tfrecord")


def shard_name(split: str, index: int, num_shards: int) -> str:
    """The file name of one shard."""
    return f"{split}-{index:05d}-of-{num_shards:05d}.tfrecord"


def is_shard_name(name: str) -> bool:
    """Return whether a file of this name is a shard."""
    return _SHARD_NAME.fullmatch(name) is not None


def record_files(folder: str) -> list[str]:
    """All record files of all splits in a folder, sorted."""
    found = glob.glob(os.path.join(glob.escape(folder), "*-of-*.tfrecord"))
    return sorted(path for path in found if is_shard_name(os.path.basename(path)))


def add_empty_shards(folder: str, num_shards: Mapping[str, int]) -> None:
    """Create the missing shards of each split that has one.

    Args:
        folder: a folder of records.
        num_shards: number of shards of each split.
    """
    splits = {os.path.basename(path).split("-")[0] for path in record_files(folder)}
    for split in splits & num_shards.keys():
        for index in range(num_shards[split]):
            with open(os.path.join(folder, shard_name(split, index, num_shards[split])), "ab"):
                pass


def list_shards(folder: str, split: str) -> list[str]:
    """Paths of the shards of a split, in order.

    Raises:
        ValueError: there is none, one is missing, or two sets are mixed in the folder.
    """
    if split not in SPLITS:
        raise ValueError(f"There is no split {split!r}. Choose one of {', '.join(SPLITS)}.")
    paths = [
        path for path in record_files(folder) if os.path.basename(path).startswith(f"{split}-")
    ]
    if not paths:
        raise ValueError(
            f"{folder!r} holds no records of the split {split} ({split}-?????-of-?????.tfrecord). "
            "Write them with `convert-tf prepare`."
        )
    num_shards = int(paths[-1].rsplit("-", 1)[1].removesuffix(".tfrecord"))
    expected = [shard_name(split, index, num_shards) for index in range(num_shards)]
    names = [os.path.basename(path) for path in paths]
    if names != expected:
        wrong = sorted(set(expected).symmetric_difference(names))
        raise ValueError(
            f"{folder!r} is not a complete set of shards: {', '.join(wrong[:3])} "
            f"{'is' if len(wrong) == 1 else 'are'} missing or left over from another run. Write "
            "the folder again."
        )
    return paths
