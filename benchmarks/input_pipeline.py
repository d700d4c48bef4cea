"""Measure the speed of reading training batches, and the delay of the first batch on resuming.

```
python benchmarks/input_pipeline.py --data data/ --vocab vocab.txt --token_ids ids/
```

Records and token ids are read in turns. If other programs use the machine too, compare the pairs
per CPU second.
"""

import itertools
import time

from absl import app, flags

from convert_tf.data.batches import TrainingBatches
from convert_tf.data.prefetch import prefetched
from convert_tf.data.records import RecordFolder
from convert_tf.data.token_arrays import ArrayFolder

_DATA = flags.DEFINE_string("data", None, "Folder of records.", required=True)
_VOCAB = flags.DEFINE_string("vocab", None, "Vocabulary file.", required=True)
_TOKEN_IDS = flags.DEFINE_string(
    "token_ids", None, "Folder of the same records as token ids.", required=True
)
_BATCH = flags.DEFINE_integer("batch", 512, "Pairs per batch.")
_BATCHES = flags.DEFINE_integer("batches", 100, "Batches to time per repeat.")
_RESUME = flags.DEFINE_integer("resume", 5000, "Batches that the resumed run has already seen.")
_REPEATS = flags.DEFINE_integer("repeats", 3, "How often each folder is timed.")


def main(argv: list[str]) -> None:
    del argv
    folders = {
        "records": RecordFolder(_DATA.value, vocabulary=_VOCAB.value, num_oov_buckets=1000),
        "token ids": ArrayFolder(_TOKEN_IDS.value),
    }
    for _, (name, folder) in itertools.product(range(_REPEATS.value), folders.items()):
        start = time.perf_counter()
        batches = TrainingBatches(
            folder.open("train", max_tokens=60),
            batch_size=_BATCH.value,
            row_tokens=64,
            shuffle_buffer=100_000,
            seed=0,
            skip_batches=_RESUME.value,
        )
        with prefetched(batches) as ready:
            next(ready)
            first = time.perf_counter() - start
            clocks = time.perf_counter(), time.process_time()
            for _ in range(_BATCHES.value):
                next(ready)
            seconds = time.perf_counter() - clocks[0]
            cpu_seconds = time.process_time() - clocks[1]
        pairs = _BATCHES.value * _BATCH.value
        print(
            f"{name:<10} first batch after {first:5.2f} s, {pairs / seconds:9,.0f} pairs/s, "
            f"{pairs / cpu_seconds:9,.0f} pairs per CPU second"
        )


if __name__ == "__main__":
    app.run(main)
