"""Split a dump into many files, so that many cluster tasks can read it at once.

```
convert-tf split-dump --input dumps/RC_2023-01.zst --output parts/
convert-tf prepare --engine=spark --master spark://HOST:7077 --input 'parts/RC_*.zst' --output data/
```

A monthly Reddit dump is one zstd stream with a window of 2 GiB. Only one task can read such a dump,
and this task needs 2 GiB of memory. The parts contain the same lines as the dump, so `prepare`
writes the same records.

Flags:
  input: The dump to split, compressed or not.
  output: Folder for the parts. It may contain parts of other dumps.
  part_megabytes: Size of a part before compression, in MB.
  overwrite: Replace earlier parts of this dump.
"""

from typing import Any

from convert_tf.cli.flags import NEEDED, Define


def define_flags(define: Define) -> None:
    define("input", NEEDED)
    define("output", NEEDED)
    define("part_megabytes", 1024, lower_bound=1)
    define("overwrite", False)


def run(values: Any) -> None:
    from convert_tf.corpora.dumps import split_dump

    part_bytes = values.part_megabytes * 10**6
    names = split_dump(
        values.input, values.output, part_bytes=part_bytes, overwrite=values.overwrite
    )
    print(f"wrote {values.output}: {names[0]} to {names[-1]}")
