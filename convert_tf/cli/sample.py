"""Write a small conversation dump to try the other commands.

```
convert-tf sample --output dumps/ --seed 0
```

The texts are generated at random. The command writes `RC_sample.zst` (comments) and
`RS_sample.zst` (submissions) in the format of the monthly Reddit dumps. Most threads consist of a
question (the title), one or two answers and the asker's reaction. As with real dumps,
`convert-tf prepare` drops some comments.

Flags:
  output: Folder to write.
  seed: Seed for the texts. The same seed gives the same files.
  num_threads: Number of threads.
"""

import os
from typing import Any

from convert_tf.cli.flags import NEEDED, Define
from convert_tf.corpora.sample import NUM_THREADS, write_sample


def define_flags(define: Define) -> None:
    define("output", NEEDED)
    define("seed", 0)
    define("num_threads", NUM_THREADS, lower_bound=1)


def run(values: Any) -> None:
    for path in write_sample(values.output, seed=values.seed, num_threads=values.num_threads):
        print(f"wrote {path}, {os.path.getsize(path):,} bytes")
