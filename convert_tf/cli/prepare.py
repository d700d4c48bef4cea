r"""Conversation dumps and other corpora to training data.

```
convert-tf prepare --input 'dumps/RC_*.zst' --submissions 'dumps/RS_*.zst' --output data/
convert-tf prepare --pairs faq.csv --dialogues 'chats/*.jsonl.zst' --output data/
convert-tf prepare --engine=beam --input 'gs://dumps/RC_*.zst' --output gs://data/reddit \
    --runner DataflowRunner --project my-project --region europe-west1 \
    --temp_location gs://data/tmp --sdk_container_image my-image
```

reads dump files of Reddit comments (and of submissions, whose titles become the root turns),
rebuilds the threads, reads the conversations of other corpora, and writes `data/train-…`, `dev-…`,
`test-….tfrecord` and `data/report.json`, `report.png`, which say how many examples there are and
why the others were dropped. `--tokenize` writes token ids too, to `data/ids/`, which a machine
without TensorFlow can train from.

`--engine=beam` does it on a cluster and writes the same files; it needs the extra `[beam]`, and
takes Beam's own options, too. Without `--runner` it runs in this process and holds everything in
memory.
"""

import errno
import functools
import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from convert_tf.cli.flags import (
    NEEDED,
    Define,
    UsageError,
    check_read,
    define_fields,
    define_flag,
    given_fields,
    same,
)
from convert_tf.corpora.comments import PRESETS, Rules
from convert_tf.corpora.dumps import find_files
from convert_tf.corpora.options import PrepareOptions
from convert_tf.corpora.registry import CORPORA
from convert_tf.data.schema import SPLITS
from convert_tf.extras import needs

_READ = ("input", "submissions", *CORPORA)
# What DuckDB's engine reads and Beam's does not.
_ON_ONE_MACHINE = ("long", "more_pairs", "single_texts", "tokenize", "memory_limit", "temp_dir")
# Flags that set several fields.
_TOGETHER = {
    "min_length": ("min_context_length", "min_response_length"),
    "max_length": ("max_context_length", "max_response_length", "max_extra_length"),
}


def define_flags(define: Define) -> None:
    options = PrepareOptions()
    define("input", [], "Dumps of Reddit comments: a file or quoted pattern.", repeats=True)
    define("submissions", [], "Dumps of submissions, for titles.", repeats=True)
    for name, corpus in CORPORA.items():
        define(name, [], corpus.description, repeats=True)
    define("output", NEEDED, "The data folder to write.")
    define("overwrite", False, "Replace records that are in --output already.")
    _define_engine(define)
    define("dev_fraction", options.dev_fraction, "Part of all data in the dev split.")
    for split, number in options.num_shards.items():
        define(f"num_shards_{split}", number, f"Files of the {split} split.")
    define(
        "preset",
        "polyai",
        "Rules to start from; other flags count beyond it. clean turns on: "
        f"{', '.join(PRESETS['clean'])}.",
        choices=sorted(PRESETS),
    )
    for name, fields in _TOGETHER.items():
        define(name, None, f"Sets --{', --'.join(fields)}.", kind=int)
    define_fields(define, Rules)
    define("tokenize", False, "Write token ids beside the records; needs --vocab.")
    define("vocab", None, "Vocabulary for --tokenize and for the lengths in the report.")
    define("memory_limit", options.memory_limit, "Memory for sorting, as 512MB.")
    define("temp_dir", options.temp_dir, "Temporary files; beside --output if empty.")
    define("max_line_bytes", options.max_line_bytes, "Longest dump line in bytes.")
    define(
        "max_bad_lines",
        None,
        "Unusable lines allowed; by default any number, but not nearly all of a file.",
        kind=int,
    )


def _define_engine(define: Define) -> None:
    define(
        "engine",
        "duckdb",
        "duckdb: on this machine, with sorting on disk. beam: with Apache Beam, on a cluster.",
        choices=["duckdb", "beam"],
    )


def passes_on(arguments: Sequence[str]) -> bool:
    """Whether `run` gets what is no flag, as options of Beam's."""
    values = flags.FlagValues()
    values.set_gnu_getopt(True)
    _define_engine(functools.partial(define_flag, values))
    values(["", *arguments], known_only=True)
    return values.engine == "beam"


def _given_rules(values: flags.FlagValues) -> dict[str, Any]:
    """The fields of `Rules` that the preset and the flags set, flags last."""
    given: dict[str, Any] = dict(PRESETS[values.preset])
    for name, fields in _TOGETHER.items():
        if values[name].value is not None:
            given.update(dict.fromkeys(fields, values[name].value))
    return given | given_fields(values, Rules)


def _options(values: flags.FlagValues) -> PrepareOptions:
    given = _given_rules(values)
    return PrepareOptions(
        rules=Rules(**given),
        corpus_rules={name: Rules(**{**own.rules, **given}) for name, own in CORPORA.items()},
        dev_fraction=values.dev_fraction,
        num_shards={split: values[f"num_shards_{split}"].value for split in SPLITS},
        **same(values, "memory_limit max_line_bytes max_bad_lines temp_dir"),
    )


def check_values(beam_arguments: Sequence[str]) -> None:
    """Refuses what belongs to no option, which Beam ignores.

    Raises:
      UsageError: there is such a value, as of a pattern that was not quoted.
    """
    for before, one in itertools.pairwise(["", *beam_arguments]):
        if not one.startswith("-") and (not before.startswith("-") or "=" in before):
            raise UsageError(f"Unexpected argument {one!r}: quote patterns, as --input 'RC_*'.")


def run(values: Any, beam_arguments: Sequence[str] = ()) -> None:
    started = time.monotonic()
    patterns = {name: values[name].value for name in _READ}
    if values.engine == "beam":
        check_read(values, {"with --engine=beam": _ON_ONE_MACHINE})
        check_values(beam_arguments)
        finished = _on_a_cluster(values, patterns, beam_arguments)
    else:
        finished = _on_this_machine(values, patterns)
    if not finished:
        print(f"submitted; {values.output} will be complete when it holds report.json")
        return
    from convert_tf.corpora.report import table

    print(table(finished))
    print(f"wrote {values.output} in {time.monotonic() - started:.0f} s")


def _on_a_cluster(
    values: Any, patterns: dict[str, list[str]], beam_arguments: Sequence[str]
) -> Mapping[str, Any]:
    with needs("beam", "Preparing data on a cluster"):
        from convert_tf.corpora.beam.runner import prepare_with_beam

    _check_something(patterns)
    try:
        return prepare_with_beam(
            patterns.pop("input"),
            values.output,
            submissions=patterns.pop("submissions"),
            corpora=patterns,
            options=_options(values),
            vocabulary=values.vocab,
            overwrite=values.overwrite,
            beam_arguments=beam_arguments,
        )
    except RuntimeError as error:  # what Beam makes of most others
        raise OSError(str(error)) from error


def _on_this_machine(values: Any, patterns: dict[str, list[str]]) -> Mapping[str, Any]:
    from convert_tf.corpora.local import prepare

    files = {name: find_files(some) for name, some in patterns.items()}
    _check_something(files)
    try:
        return prepare(
            files.pop("input"),
            values.output,
            submissions=files.pop("submissions"),
            corpora={name: paths for name, paths in files.items() if paths},
            overwrite=values.overwrite,
            vocabulary=values.vocab,
            tokenize=values.tokenize,
            options=_options(values),
        )
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        where = f" ({error.filename})" if error.filename else ""
        raise OSError(
            f"the disk is full{where}; {values.output} was not changed. Free space, or pass "
            "--temp_dir on another disk."
        ) from error


def _check_something(files: Mapping[str, Sequence[str]]) -> None:
    if not any(files[name] for name in _READ if name != "submissions"):
        raise ValueError(
            "There must be something to read. Received: no files. "
            f"Pass --input, or one of {', '.join('--' + name for name in CORPORA)}."
        )
