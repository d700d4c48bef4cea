"""Hard negatives for `convert-tf train --hard_negatives`: wrong responses that a model ranks high.

```
convert-tf mine --encoder runs/convert --data ids/ --output negatives/
convert-tf train --data ids/ --hard_negatives negatives/ --init_from runs/convert …
```

Each context is held against the responses of its own block of examples, which are neighbours in the
token ids and otherwise have nothing to do with each other. Of the wrong ones the best `--skip_top`
are left out, as many of them would be right, and the next `--negatives` are kept.
`convert_tf.data.negatives` says what is in the folder.
"""

from typing import Any

from convert_tf.cli.flags import NEEDED, Define, define_encoder, same
from convert_tf.config.base import PRECISIONS
from convert_tf.data.mining import BLOCK_SIZE


def define_flags(define: Define) -> None:
    define_encoder(define, NEEDED, text="a released name, or the folder of a run or of a module.")
    define("data", NEEDED, "Folder of token ids.")
    define("output", NEEDED, "Folder of negatives to write.")
    define("split", "train", "Which examples.")
    define("max_examples", 0, "Mine for the first examples only, this many.", lower_bound=0)
    define("negatives", 8, "Kept for an example at most.", lower_bound=1)
    define("skip_top", 10, "So many of the best wrong responses are left out.", lower_bound=0)
    define(
        "margin",
        None,
        "Responses with a cosine above the right one's plus this are left out; may be negative. "
        "Default: none is.",
        kind=float,
    )
    define(
        "block_size",
        BLOCK_SIZE,
        "Responses that a context is held against: time and memory grow with it.",
        lower_bound=2,
    )
    define("precision", "auto", "Of the encoder.", choices=PRECISIONS)
    define("overwrite", False, "Replace negatives that are in --output.")


def run(values: Any) -> None:
    from convert_tf.training.mining import mine

    facts = mine(
        values.encoder,
        values.data,
        values.output,
        **same(
            values, "split max_examples negatives skip_top margin block_size precision overwrite"
        ),
    )
    print(
        f"{facts['mined_examples']:,} examples of {facts['split']} with up to {facts['negatives']} "
        f"negatives each; {100 * facts['found']:.1f} % of them found, one response at most "
        f"{facts['most_used']:,} times; {facts['seconds']:,.0f} s"
    )
    print(f"wrote {values.output}")
