"""Conversation dumps and other corpora to training data on a cluster, with Apache Beam.

```
python -m convert_tf.data.prepare_beam --input 'gs://dumps/RC_*.zst' --output gs://data/reddit \
    --runner DataflowRunner --project my-project --region europe-west1 \
    --temp_location gs://data/tmp --sdk_container_image my-image
```

takes the flags of `convert_tf.data.prepare` that tell what to read and which examples to make, and
Beam's own options, and writes the same files; it needs the extra `[beam]`. Without `--runner` it
runs in this process and holds everything in memory.
"""

import itertools
import sys
import time
from collections.abc import Sequence

from absl import app, flags

from convert_tf.data import report
from convert_tf.data.beam_runner import prepare
from convert_tf.data.comments import Rules
from convert_tf.data.corpora import CORPORA
from convert_tf.data.local_runner import PrepareOptions
from convert_tf.data.prepare import (
    corpus_rules,
    define_input_flags,
    define_rule_flags,
    given_rules,
    num_shards,
)


def _define_flags() -> None:
    define_input_flags()
    define_rule_flags()
    flags.DEFINE_bool("overwrite", False, "Replace records that are in --output already.")
    flags.DEFINE_string("vocab", None, "Vocabulary for the lengths in the report.")
    flags.DEFINE_integer(
        "max_line_bytes", PrepareOptions().max_line_bytes, "Longest dump line in bytes."
    )
    flags.DEFINE_integer("max_bad_lines", None, "Unusable lines allowed; any number if not given.")


def _parse(argv: Sequence[str]) -> list[str]:
    """Reads the flags of this command; gives the program's name and what is left for Beam."""
    flags.FLAGS.set_gnu_getopt(True)  # the value of an option of Beam's ends nothing
    program, *rest = flags.FLAGS(list(argv), known_only=True)
    return [program, *rest]


def check_values(beam_arguments: Sequence[str]) -> None:
    """Refuses what belongs to no option, which Beam ignores.

    Raises:
        app.UsageError: there is such a value, as of a pattern that was not quoted.
    """
    for before, one in itertools.pairwise(["", *beam_arguments]):
        if not one.startswith("-") and (not before.startswith("-") or "=" in before):
            raise app.UsageError(f"Unexpected argument {one!r}: quote patterns, as --input 'RC_*'.")


def _run(argv: Sequence[str]) -> int:
    values = flags.FLAGS
    check_values(argv[1:])
    started = time.monotonic()
    try:
        given = given_rules(values)
        patterns = {name: values[name].value for name in ("input", "submissions", *CORPORA)}
        if not any(patterns[name] for name in ("input", *CORPORA)):
            raise ValueError(
                "There must be something to read. Received: no files. "
                f"Pass --input, or one of {', '.join('--' + name for name in CORPORA)}."
            )
        finished = prepare(
            patterns.pop("input"),
            values.output,
            submissions=patterns.pop("submissions"),
            corpora=patterns,
            options=PrepareOptions(
                rules=Rules(**given),
                corpus_rules=corpus_rules(given),
                dev_fraction=values.dev_fraction,
                num_shards=num_shards(values),
                max_line_bytes=values.max_line_bytes,
                max_bad_lines=values.max_bad_lines,
            ),
            vocabulary=values.vocab,
            overwrite=values.overwrite,
            beam_arguments=argv[1:],
        )
    except (ValueError, OSError, RuntimeError) as error:  # Beam makes the last of most others
        print(f"error: {error}", file=sys.stderr)
        return 1
    if not finished:
        print(f"submitted; {values.output} will be complete when it holds report.json")
        return 0
    print(report.table(finished))
    print(f"wrote {values.output} in {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    _define_flags()
    app.run(_run, flags_parser=_parse)
