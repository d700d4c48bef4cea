"""Copy the first file of the train split and of the dev split, without some sources.

    python3 hub_modules/recipes/first_shard.py work/data work/first

The first argument is a folder that `convert-tf prepare` wrote. Sources whose licences forbid
commercial use, or whose licences we do not know, are left out.
"""

import sys
from pathlib import Path

import tensorflow as tf

from convert_tf.data.records import parse_texts

_LEFT_OUT = (
    b"deal_or_no_deal", b"esconv", b"swda", b"task_dialogues_msr_kvret_twitter",
    b"twitter_phylliida",
)  # fmt: skip
_AT_ONCE = 4096


def main(data: str, output: str) -> None:
    part = Path(f"{output}.part")
    part.mkdir(parents=True, exist_ok=True)
    for split in ("train", "dev"):
        shard = min(Path(data).glob(f"{split}-00000-of-*.tfrecord"))
        with tf.io.TFRecordWriter(f"{part}/{split}-00000-of-00001.tfrecord") as writer:
            for batch in tf.data.TFRecordDataset(str(shard)).batch(_AT_ONCE):
                (sources,) = parse_texts(batch, ("source",))
                for record, source in zip(batch.numpy(), sources.numpy(), strict=True):
                    if source not in _LEFT_OUT:
                        writer.write(record)
    part.rename(output)


if __name__ == "__main__":
    main(*sys.argv[1:])
