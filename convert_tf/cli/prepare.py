r"""Turn conversation dumps, pairs and dialogues into training data.

```
convert-tf prepare --input 'dumps/RC_*.zst' --submissions 'dumps/RS_*.zst' --output data/
convert-tf prepare --pairs faq.csv --dialogues 'chats/*.jsonl.zst' --output data/
convert-tf prepare --engine=spark --master spark://HOST:7077 --input '/shared/RC_*.zst' \
    --output /shared/data
```

From Reddit dumps, the command rebuilds the threads. Each comment becomes a response, and the
comments before it become its context. If you also pass dumps of submissions, their titles become
the first turns.

The command writes `train-*.tfrecord`, `dev-*` and `test-*` to the output folder. `report.json` and
`report.png` show how many examples there are, and why other texts were dropped. With `--tokenize`,
it also writes token ids to the folder `ids/`. A machine without TensorFlow can train on these ids.

With `--engine=spark`, the command runs on a Spark cluster and writes the same files. Spark needs
the extra `[spark]` and Java. The input and the output must have the same paths on all machines.

Flags:
  input: Dumps of Reddit comments: a file or quoted pattern.
  submissions: Dumps of Reddit submissions, whose titles start the threads.
  output: Folder to write.
  overwrite: Replace existing records in --output.
  engine: duckdb runs on this machine and sorts on disk. spark runs on a cluster.
  tokenize: Also write token ids. Needs --vocab.
  vocab: Vocabulary for --tokenize and for the lengths in the report.
"""

import errno
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from absl import flags

from convert_tf.cli.flags import NEEDED, Define, check_read, define_fields, given_fields, same
from convert_tf.corpora.comments import PRESETS, Rules
from convert_tf.corpora.dumps import find_files
from convert_tf.corpora.options import CORPORA, PrepareOptions
from convert_tf.data.schema import SPLITS

_READ = ("input", "submissions", *CORPORA)
_NO_FLAG = ("rules", "corpus_rules", "num_shards")  # fields that are set by flags of other names
# Flags that set several fields.
_TOGETHER = {
    "min_length": ("min_context_length", "min_response_length"),
    "max_length": ("max_context_length", "max_response_length", "max_extra_length"),
}


def define_flags(define: Define) -> None:
    define("input", [], repeats=True)
    define("submissions", [], repeats=True)
    for name, corpus in CORPORA.items():
        define(name, [], corpus.description, repeats=True)
    define("output", NEEDED)
    define("overwrite", False)
    define("engine", "duckdb", choices=["duckdb", "spark"])
    define("master", "local[*]")
    for split, number in PrepareOptions().num_shards.items():
        define(f"num_shards_{split}", number, f"Number of files of the {split} split.")
    preset = f"Rules, which other flags override. clean sets {', '.join(PRESETS['clean'])}."
    define("preset", "polyai", preset, choices=sorted(PRESETS))
    for name, fields in _TOGETHER.items():
        define(name, None, f"Sets --{', --'.join(fields)}.", kind=int)
    define_fields(define, Rules)
    define("tokenize", False)
    define("vocab", None)
    define_fields(define, PrepareOptions, leave_out=_NO_FLAG)


def _options(values: flags.FlagValues, files: Mapping[str, Collection[str]]) -> PrepareOptions:
    """Return the options. Only the rules for corpora with `files` are set by flags."""
    given: dict[str, Any] = dict(PRESETS[values.preset])
    for name, fields in _TOGETHER.items():
        if values[name].value is not None:
            given.update(dict.fromkeys(fields, values[name].value))
    given |= given_fields(values, Rules)
    return PrepareOptions(
        rules=Rules(**given) if files["input"] or files["submissions"] else Rules(),
        corpus_rules={
            name: Rules(**{**corpus.rules, **given})
            for name, corpus in CORPORA.items()
            if files[name]
        },
        num_shards={split: values[f"num_shards_{split}"].value for split in SPLITS},
        **given_fields(values, PrepareOptions, leave_out=_NO_FLAG),
    )


def run(values: Any) -> None:
    started = time.monotonic()
    files = {name: find_files(values[name].value) for name in _READ}
    is_spark = values.engine == "spark"
    unread = {"with --engine=spark": ("memory_limit", "temp_dir")}
    check_read(values, unread if is_spark else {"without --engine=spark": ("master",)})
    if not any(files[name] for name in _READ if name != "submissions"):
        names = ", ".join(f"--{name}" for name in CORPORA)
        raise ValueError(f"There is nothing to read. Pass --input, or one of {names}.")
    prepare: Callable[..., Mapping[str, Any]]
    options = same(values, "overwrite tokenize") | {"options": _options(values, files)}
    if is_spark:
        from convert_tf.corpora.spark.driver import prepare_with_spark

        prepare = prepare_with_spark
        options["master"] = values.master
    else:
        from convert_tf.corpora.local import prepare as prepare_here

        prepare = prepare_here
    try:
        finished = prepare(
            files.pop("input"),
            values.output,
            submissions=files.pop("submissions"),
            corpora={name: paths for name, paths in files.items() if paths},
            vocabulary=values.vocab,
            **options,
        )
    except OSError as error:
        if is_spark or error.errno != errno.ENOSPC:
            raise
        where = f" ({error.filename})" if error.filename else ""
        raise OSError(
            f"the disk is full{where}; {values.output} was not changed. Free some space, or pass "
            "a --temp_dir on another disk."
        ) from error
    from convert_tf.corpora.data_folder import table

    print(table(finished))
    print(f"wrote {values.output} in {time.monotonic() - started:.0f} s")
