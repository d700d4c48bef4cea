"""Conversation dumps to training data on one machine.

```
python -m convert_tf.data.prepare --input 'dumps/RC_*.zst' --submissions 'dumps/RS_*.zst' \
    --output data/
```

reads dump files of comments (and of submissions, whose titles become the root turns), rebuilds
the threads, and writes `data/train-…`, `dev-…`, `test-….tfrecord` and `data/report.json`, which
says how many examples there are and why the others were dropped.
"""

import errno
import itertools
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from absl import app, flags

from convert_tf.data import dumps, threads
from convert_tf.data.comments import Rules
from convert_tf.data.local_runner import PrepareOptions, prepare


def summary(report: Mapping[str, Any]) -> str:
    """The counts of a report as a short table."""
    counts = report["threads"]
    rows = [("comments", counts["comments"]), ("threads", counts["threads"])]
    rows += [("titles", counts["titles"])]
    skipped: dict[str, int] = {}
    for stats in itertools.chain(*report["files"].values()):
        for reason, number in stats["skipped"].items():
            skipped[reason] = skipped.get(reason, 0) + number
    rows += [(f"skipped: {reason}", number) for reason, number in sorted(skipped.items())]
    rows += [
        ("duplicates", counts["duplicates"]),
        ("top level, no title", counts["top_level"]),
        ("orphans", counts["orphans"]),
        ("in a reply cycle", counts["cyclic"]),
    ]
    rows += [(f"dropped: {reason}", number) for reason, number in sorted(counts["dropped"].items())]
    rows += [(f"{split} examples", report["splits"][split]["examples"]) for split in threads.SPLITS]
    return "\n".join(f"{name:<32}{number:>14,}" for name, number in rows)


def _define_flags() -> None:
    rules, options = Rules(), PrepareOptions()
    flags.DEFINE_multi_string("input", None, "Comment dumps: a file or quoted pattern; repeatable.")
    flags.DEFINE_multi_string("submissions", [], "Submission dumps, for titles; repeatable.")
    flags.DEFINE_string("output", None, "The data folder to write.")
    flags.DEFINE_bool("overwrite", False, "Replace records that are in --output already.")
    flags.DEFINE_integer("min_length", rules.min_length, "Shortest context and response.")
    flags.DEFINE_integer("max_length", rules.max_length, "Longest context and response.")
    flags.DEFINE_integer("max_path_length", rules.max_path_length, "Most comments in a path.")
    flags.DEFINE_bool("unescape_html", rules.unescape_html, "Turn HTML entities into characters.")
    flags.DEFINE_float("dev_fraction", options.dev_fraction, "Part of all data in the dev split.")
    for split, number in options.num_shards.items():
        flags.DEFINE_integer(f"num_shards_{split}", number, f"Files of the {split} split.")
    flags.DEFINE_string("memory_limit", options.memory_limit, "Memory for sorting, as 1GB.")
    flags.DEFINE_integer("max_line_bytes", options.max_line_bytes, "Longest dump line in bytes.")
    flags.DEFINE_string("temp_dir", options.temp_dir, "Temporary files; beside --output if empty.")
    flags.mark_flags_as_required(["input", "output"])


def _run(argv: Sequence[str]) -> int:
    values = flags.FLAGS
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments {argv[1:]}: quote patterns, as --input 'RC_*'.")
    started = time.monotonic()
    try:
        report = prepare(
            dumps.find_files(values.input),
            values.output,
            submissions=dumps.find_files(values.submissions),
            overwrite=values.overwrite,
            options=PrepareOptions(
                rules=Rules(
                    min_length=values.min_length,
                    max_length=values.max_length,
                    max_path_length=values.max_path_length,
                    unescape_html=values.unescape_html,
                ),
                dev_fraction=values.dev_fraction,
                num_shards={split: values[f"num_shards_{split}"].value for split in threads.SPLITS},
                memory_limit=values.memory_limit,
                max_line_bytes=values.max_line_bytes,
                temp_dir=values.temp_dir,
            ),
        )
    except (ValueError, MemoryError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        if error.errno == errno.ENOSPC:
            where = f" ({error.filename})" if error.filename else ""
            print(
                f"error: the disk is full{where}; {values.output} was not changed. "
                "Free space, or pass --temp_dir on another disk.",
                file=sys.stderr,
            )
        else:
            print(f"error: {error}", file=sys.stderr)
        return 1
    print(summary(report))
    print(f"wrote {values.output} in {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    _define_flags()
    app.run(_run)
