"""Conversation dumps and other corpora to training data on one machine.

```
python -m convert_tf.data.prepare --input 'dumps/RC_*.zst' --submissions 'dumps/RS_*.zst' \
    --output data/
python -m convert_tf.data.prepare --pairs faq.csv --dialogues 'chats/*.jsonl.zst' --output data/
```

reads dump files of Reddit comments (and of submissions, whose titles become the root turns),
rebuilds the threads, reads the conversations of other corpora, and writes `data/train-…`, `dev-…`,
`test-….tfrecord` and `data/report.json`, `report.png`, which say how many examples there are and
why the others were dropped. `--tokenize` writes token ids too, to `data/ids/`, which a machine
without TensorFlow can train from.
"""

import dataclasses
import errno
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from absl import app, flags

from convert_tf.data import dumps, report, threads
from convert_tf.data.comments import DEDUPLICATE, PRESETS, Rules
from convert_tf.data.corpora import CORPORA
from convert_tf.data.local_runner import PrepareOptions, prepare

# Flags that set several fields.
_TOGETHER = {
    "min_length": ("min_context_length", "min_response_length"),
    "max_length": ("max_context_length", "max_response_length", "max_extra_length"),
}


def define_input_flags() -> None:
    """Defines a flag for the files of each kind, and the output."""
    flags.DEFINE_multi_string(
        "input", [], "Dumps of Reddit comments: a file or quoted pattern; repeatable."
    )
    flags.DEFINE_multi_string("submissions", [], "Dumps of submissions, for titles; repeatable.")
    for name, corpus in CORPORA.items():
        flags.DEFINE_multi_string(name, [], f"{corpus.description} Repeatable.")
    flags.DEFINE_string("output", None, "The data folder to write.", required=True)
    flags.DEFINE_float(
        "dev_fraction", PrepareOptions().dev_fraction, "Part of all data in the dev split."
    )
    for split, number in PrepareOptions().num_shards.items():
        flags.DEFINE_integer(f"num_shards_{split}", number, f"Files of the {split} split.")


def define_rule_flags() -> None:
    """Defines `--preset` and a flag for each field of `Rules`."""
    defaults = Rules()
    flags.DEFINE_enum(
        "preset",
        "polyai",
        sorted(PRESETS),
        "Rules to start from; other flags count beyond it. clean turns on: "
        f"{', '.join(PRESETS['clean'])}.",
    )
    for name, fields in _TOGETHER.items():
        flags.DEFINE_integer(name, None, f"Sets --{', --'.join(fields)}.")
    explained = Rules.explanations()
    for field in dataclasses.fields(Rules):
        default = getattr(defaults, field.name)
        text = f"{explained[field.name]} Default: {default!r}."
        if isinstance(default, bool):
            flags.DEFINE_bool(field.name, None, text)
        elif field.name == "deduplicate":
            flags.DEFINE_enum(field.name, None, DEDUPLICATE, text)
        elif isinstance(default, tuple):
            flags.DEFINE_list(field.name, None, text)
        else:
            flags.DEFINE_integer(field.name, None, text)


def given_rules(values: flags.FlagValues) -> dict[str, Any]:
    """The fields of `Rules` that the preset and the flags set, flags last."""
    given: dict[str, Any] = dict(PRESETS[values.preset])
    for name, fields in _TOGETHER.items():
        if values[name].value is not None:
            given.update(dict.fromkeys(fields, values[name].value))
    for field in dataclasses.fields(Rules):
        value = values[field.name].value
        if value is not None:
            given[field.name] = tuple(value) if isinstance(value, list) else value
    return given


def corpus_rules(given: Mapping[str, Any]) -> dict[str, Rules]:
    """The rules of each corpus: its own, then the preset's and the flags'."""
    return {name: Rules(**{**corpus.rules, **given}) for name, corpus in CORPORA.items()}


def num_shards(values: flags.FlagValues) -> dict[str, int]:
    """Shards of each split, from the flags."""
    return {split: values[f"num_shards_{split}"].value for split in threads.SPLITS}


def _define_flags() -> None:
    options = PrepareOptions()
    define_input_flags()
    define_rule_flags()
    flags.DEFINE_bool("overwrite", False, "Replace records that are in --output already.")
    flags.DEFINE_bool("tokenize", False, "Write token ids beside the records; needs --vocab.")
    flags.DEFINE_string(
        "vocab", None, "Vocabulary for --tokenize and for the lengths in the report."
    )
    flags.DEFINE_string("memory_limit", options.memory_limit, "Memory for sorting, as 512MB.")
    flags.DEFINE_integer("max_line_bytes", options.max_line_bytes, "Longest dump line in bytes.")
    flags.DEFINE_integer("max_bad_lines", None, "Unusable lines allowed; any number if not given.")
    flags.DEFINE_string("temp_dir", options.temp_dir, "Temporary files; beside --output if empty.")


def _run(argv: Sequence[str]) -> int:
    values = flags.FLAGS
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments {argv[1:]}: quote patterns, as --input 'RC_*'.")
    started = time.monotonic()
    try:
        given = given_rules(values)
        files = {
            name: dumps.find_files(values[name].value)
            for name in ("input", "submissions", *CORPORA)
        }
        if not any(files[name] for name in ("input", *CORPORA)):
            raise ValueError(
                "There must be something to read. Received: no files. "
                f"Pass --input, or one of {', '.join('--' + name for name in CORPORA)}."
            )
        finished = prepare(
            files.pop("input"),
            values.output,
            submissions=files.pop("submissions"),
            corpora={name: paths for name, paths in files.items() if paths},
            overwrite=values.overwrite,
            vocabulary=values.vocab,
            tokenize=values.tokenize,
            options=PrepareOptions(
                rules=Rules(**given),
                corpus_rules=corpus_rules(given),
                dev_fraction=values.dev_fraction,
                num_shards=num_shards(values),
                memory_limit=values.memory_limit,
                max_line_bytes=values.max_line_bytes,
                max_bad_lines=values.max_bad_lines,
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
    print(report.table(finished))
    print(f"wrote {values.output} in {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    _define_flags()
    app.run(_run)
