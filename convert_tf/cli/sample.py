"""Writes a small conversation dump, made by a seeded generator.

```
convert-tf sample --output dumps/ --seed 0
```

`RC_sample.zst` (comments) and `RS_sample.zst` (submissions) are in the format of the monthly Reddit
dumps. Most threads are a question (the title), one or two answers and the asker's reaction; a few
comments break the rules of `convert-tf prepare`, as in real dumps.
"""

import os
from typing import Any

from convert_tf.cli.flags import NEEDED, Define
from convert_tf.corpora.sample import NUM_THREADS, write_sample


def define_flags(define: Define) -> None:
    define("output", NEEDED, "The folder to write.")
    define("seed", 0, "The same seed gives the same files.")
    define("num_threads", NUM_THREADS, "How many threads.", lower_bound=1)


def run(values: Any) -> None:
    for path in write_sample(values.output, seed=values.seed, num_threads=values.num_threads):
        print(f"wrote {path}, {os.path.getsize(path):,} bytes")
