"""Find hard negatives for `convert-tf train --hard_negatives`.

```
convert-tf mine --encoder runs/convert --data ids/ --output negatives/
convert-tf train --data ids/ --hard_negatives negatives/ --init_from runs/convert …
```

Hard negatives are wrong responses that an encoder ranks high. For each context, the encoder ranks
all responses in a block of examples. The highest-ranked `--skip_top` wrong responses are skipped,
because many of them would also be correct answers. The next `--negatives` responses are written.
`convert_tf.data.negatives` describes the output folder.

Flags:
  encoder: Encoder: a released name, or the folder of a run or module.
  data: Folder of token ids.
  output: Folder of negatives to write.
  max_examples: Mine only for this many examples from the start of the data. 0 uses all.
  negatives: Maximum number of negatives per example.
  skip_top: Number of highest-ranked wrong responses to skip.
  margin: Skip responses whose cosine exceeds the cosine of the correct response by more than this
    number, which may be negative. Default: skip none.
  block_size: Number of responses to rank for each context. Time and memory grow with this number.
  precision: Number format of the encoder.
  overwrite: Replace existing negatives in --output.
"""

from typing import Any

from convert_tf.cli.flags import NEEDED, Define, same
from convert_tf.config.base import PRECISIONS
from convert_tf.data.mining import BLOCK_SIZE

OF_MODULES = ("encoder",)  # because mining computes with TensorFlow or JAX


def define_flags(define: Define) -> None:
    define("encoder", NEEDED)
    define("data", NEEDED)
    define("output", NEEDED)
    define("max_examples", 0, lower_bound=0)
    define("negatives", 8, lower_bound=1)
    define("skip_top", 10, lower_bound=0)
    define("margin", None, kind=float)
    define("block_size", BLOCK_SIZE, lower_bound=2)
    define("precision", "auto", choices=PRECISIONS)
    define("overwrite", False)


def run(values: Any) -> None:
    from convert_tf.training.mining import mine

    facts = mine(
        values.encoder,
        values.data,
        values.output,
        **same(values, "max_examples negatives skip_top margin block_size precision overwrite"),
    )
    print(
        f"{facts['mined_examples']:,} examples of {facts['split']} with up to {facts['negatives']} "
        f"negatives each; {100 * facts['found']:.1f} % of them found, one response at most "
        f"{facts['most_used']:,} times; {facts['seconds']:,.0f} s"
    )
    print(f"wrote {values.output}")
