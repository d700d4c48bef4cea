"""Define flags, some of them from the fields of configurations, and check their values.

The help texts of flags that several commands share are below. If a command's docstring has an entry
for the same flag, the command uses that entry instead.

Flags:
  encoder: Encoder: a released name, the folder of a run or module, a Hugging Face folder, an .onnx
    file, or hf://OWNER/NAME.
  backend: Form of a released encoder to open. auto: its 8-bit ONNX file. tensorflow: its module,
    which needs the extra train.
  kind: response: find answers to the queries. similarity: find texts that are similar to the
    queries. Use the same kind to build an index and to search it.
  mask: First replace numbers and e-mail addresses with placeholders.
  master: Spark cluster for --engine=spark, for example spark://HOST:7077 or yarn.
  min_confidence: Messages whose answer from --model has a lower probability than this count as
    unanswered and are grouped.
  min_size: Minimum number of messages per group.
  model: Classifier: a folder from convert-tf intent train, or an .onnx file from convert-tf intent
    export.
"""

import csv
import dataclasses
import functools
import glob
import itertools
import os
import stat
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, get_args

from absl import flags

from convert_tf.checkpoints.kinds import BACKENDS, checked_backend
from convert_tf.config.base import entries, options_of

DEFAULT_ENCODER = "convert_small"
FLAGS = "Flags"  # the default heading in help pages
NEEDED = object()  # the default value of required flags

COMMON_TEXTS = entries(__doc__, "Flags")

# Flags whose values are files and folders to read. The values may be patterns.
READ = frozenset(
    (
        "add", "against", "amazon_qa", "api_key_file", "article_search", "cache", "candidates",
        "convai2", "data", "dev_data", "dialogues", "documents", "dstc7", "earlier", "encoder",
        "from", "hard_negatives", "init_from", "input", "model", "notes", "opensubtitles", "pairs",
        "ranking_teacher", "since", "submissions", "teacher", "texts", "to", "token_ids",
        "train_data", "triplets", "ubuntu", "utterance_teacher", "utterances", "validation",
        "vectors", "vocab", "wikiqa",
    )
)  # fmt: skip
# Flags for a file with texts, groups or scores. A user who repeats such a flag expects that all
# files are read. For other flags, such as --init_from, the last value counts, because recipes pass
# the user's flags after their own.
READ_ONCE = frozenset(
    ("add", "against", "candidates", "earlier", "from", "input", "remove", "since", "texts")
)
WRITTEN = ("output", "serving_module")  # flags whose values are files and folders to write

# Type of the argument of `define_flags` in commands: `define_flag` without `values`.
Define = Callable[..., None]


class ListFlag(flags.Flag):
    """A comma-separated list. A repeated flag adds to the list, and an empty value empties it."""

    value: Any

    def parse(self, argument: Any) -> None:
        before: list[str] = self.value if self.present and argument else []
        super().parse(argument)
        self.value = [*before, *self.value]


def _define_list(name: str, default: Any, text: str, *, flag_values: Any, module_name: str) -> None:
    flag = ListFlag(flags.ListParser(), flags.CsvListSerializer(","), name, default, text)
    flags.DEFINE_flag(flag, flag_values, module_name)


_DEFINE: dict[type, Callable[..., Any]] = {
    bool: flags.DEFINE_boolean,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
    list: _define_list,
    tuple: _define_list,
}


class UsageError(Exception):
    """Raised for an error in the command line. The exit status is then 2."""


def define_flag(
    values: flags.FlagValues,
    name: str,
    default: Any,
    text: str = "",
    *,
    kind: type | None = None,
    choices: Sequence[str] | None = None,
    repeats: bool = False,
    group: str = FLAGS,
    is_common: bool = False,
    **bounds: float,
) -> None:
    """Define a flag.

    Args:
      values: the flags of the command. The new flag is added to them.
      name: the name of the flag, without dashes.
      default: the default value; `NEEDED` for a required flag.
      text: the help text. By default, it is the entry under `Flags:` in the docstring of the
        command or, if there is none, in the docstring of this module.
      kind: the type of the value. By default, it is the type of `default`, or `str` if `default` is
        None.
      choices: the allowed values.
      repeats: whether the flag may be repeated. Its value is then a list of strings.
      group: the heading under which the help lists the flag.
      is_common: whether the short help lists the flag.
      **bounds: `lower_bound` and `upper_bound` of a number.
    """
    is_needed = default is NEEDED
    default = None if is_needed else default
    if choices:
        flags.DEFINE_enum(name, default, choices, text, values, module_name=group)
    elif repeats:
        flags.DEFINE_multi_string(name, default, text, values, module_name=group)
    else:
        define = _DEFINE.get(kind or type(default), flags.DEFINE_string)
        define(name, default, text, flag_values=values, module_name=group, **bounds)
    flag: Any = values[name]
    # absl adds facts to the help text that `convert_tf.cli.main` prints elsewhere, so the original
    # text is stored too.
    flag.text, flag.is_needed, flag.is_common = text, is_needed, is_common


def define_fields(define: Define, *configs: Any, leave_out: Collection[str] = ()) -> None:
    """Define a flag for each field of some configurations. If a flag is not given, it is None.

    Args:
      define: see `Define`.
      *configs: the configurations. A field that several of them have becomes one flag.
      leave_out: names of fields that get no flag.
    """
    fields: dict[str, list[tuple[dataclasses.Field, dict[str, Any]]]] = {}
    for config in configs:
        options = options_of(config)
        for field in dataclasses.fields(config):
            if field.name not in leave_out:
                fields.setdefault(field.name, []).append((field, options[field.name]))
    for name, same_name in fields.items():
        field, settings = same_name[0]
        text, default = settings["text"], field.default
        # Defaults of 0 and "" mean that another flag or the model decides, so they are not shown.
        other_defaults = [f.default for f, _ in same_name if f.default not in (0, "", default)]
        if default or other_defaults:
            shown = (
                ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
                for value in (default, *other_defaults)
            )
            text += f" Default: {' or '.join(shown)}."
        define(
            name,
            None,
            text,
            kind=get_args(field.type)[0] if default is None else type(default),
            choices=list(dict.fromkeys(c for _, s in same_name for c in s["choices"])),
            group=settings["group"] or FLAGS,
            is_common=settings["is_common"],
        )


def given_fields(
    values: flags.FlagValues, config: Any, *, leave_out: Collection[str] = ()
) -> dict[str, Any]:
    """Return the values of the flags that were given, for the fields of a configuration.

    Lists become tuples, and the choice `none` becomes None.

    Raises:
      ValueError: if an item of a list has the wrong type.
    """
    given = {}
    for field in dataclasses.fields(config):
        if field.name in leave_out or values[field.name].value is None:
            continue
        value = values[field.name].value
        if value == "none" in options_of(config)[field.name]["choices"]:
            value = None
        if isinstance(field.default, tuple):
            kind = type(field.default[0]) if field.default else str
            value = tuple(kind(item) for item in value)
        given[field.name] = value
    return given


def define_encoder(define: Define, default: Any, **options: Any) -> None:
    """Define `--encoder`, for a command that encodes texts, and `--backend`."""
    define("encoder", default, **options)
    define("backend", "auto", choices=BACKENDS)


def resolve_names(values: flags.FlagValues, *, wants_module: bool = False) -> None:
    """Replace names of released encoders by their paths, in flags that take a model.

    Args:
      values: the flags of the command. With `--backend tensorflow`, names stand for modules.
      wants_module: as in `model_path`.

    Raises:
      ValueError: if an encoder cannot be downloaded, or does not run on `--backend`.
    """
    from convert_tf.checkpoints.released import model_path

    backend = values.backend if "backend" in values else "auto"
    wants_module = wants_module or backend == "tensorflow"
    for name in {*values} & {"encoder", "init_from", "rerank_checkpoint", "to", "vectors"}:
        flag = values[name]
        if isinstance(flag.value, list):
            paths = [model_path(model, wants_module=wants_module) for model in flag.value]
            flag.value = [checked_backend(path, backend) for path in paths]
        elif flag.value:
            path = model_path(flag.value, wants_module=wants_module or name == "init_from")
            flag.value = checked_backend(path, backend)


def define_model(define: Define, default: Any = NEEDED) -> None:
    """Define the flags that `loaded_classifier` reads. By default, `--model` is required."""
    define("model", default)
    text = "New path of the classifier's encoder, if it was moved."
    if default is not NEEDED:
        text += f" Without --model: the encoder, {DEFAULT_ENCODER} by default."
    define("encoder", [], text, repeats=True)


def define_groups(define: Define) -> None:
    """Define the flags for commands that group messages without a confident answer."""
    from convert_tf.intents.discover import MIN_SIZE
    from convert_tf.intents.messages import MIN_CONFIDENCE

    define("min_size", MIN_SIZE, lower_bound=1)
    define("min_confidence", MIN_CONFIDENCE, lower_bound=0.0, upper_bound=1.0)
    define("top_k", 10, "Number of intents or groups to print.", lower_bound=1)
    define("seed", 0, "Seed for drawing samples of messages.", lower_bound=0)


def define_log(define: Define, model: Any) -> None:
    """Define `--input` and `--mask` for commands that read a log, and the flags of `define_model`.

    Args:
      define: see `Define`.
      model: the default of `--model`; `NEEDED` if the flag is required.
    """
    define(
        "input",
        NEEDED,
        "Log: a text file with one message per line, or a table with a column of texts; - for "
        "standard input.",
    )
    define("mask", False)
    define_model(define, model)


def loaded_classifier(values: Any) -> Any:
    """Load the classifier of `--model`; see `convert_tf.intents.loading.load_classifier`."""
    from convert_tf.intents.loading import load_classifier

    return load_classifier(values.model, encoder=values.encoder or None)


def same(values: Any, names: str) -> dict[str, Any]:
    """Return the values of some flags by name. `names` are the names, separated by spaces."""
    return {name: values[name].value for name in names.split()}


def split_names(texts: Iterable[str], is_name: Callable[[str], object]) -> list[str]:
    """Split comma-separated lists of names that may contain commas themselves.

    Each list is first split at all commas. Then, from left to right, the longest sequence of parts
    that forms a known name is taken as one name. If no known name starts at a part, the part itself
    is taken as a name.

    Args:
      texts: the comma-separated lists. A name in double quotes is not split.
      is_name: function that returns whether a text is a known name.

    Raises:
      UsageError: if a quotation mark is missing.
    """
    names = []
    for text in texts:
        if is_name(text.strip()):
            names.append(text.strip())
            continue
        try:
            parts = next(csv.reader([text], strict=True), [])
        except csv.Error as error:
            raise UsageError(f"{text!r} is not a list of names: {error}") from error
        while parts:
            runs = {end: ",".join(parts[:end]).strip() for end in range(len(parts), 0, -1)}
            end = next((end for end, run in runs.items() if is_name(run)), 1)
            names += [runs[end]] if runs[end] else []
            parts = parts[end:]
    return names


def check_given_once(values: flags.FlagValues, arguments: Sequence[str]) -> None:
    """Check that no flag for a single file to read is given with different values.

    A flag may override the same flag in a `--flagfile`.

    Args:
      values: the flags of the command.
      arguments: the command line after the name of the command.

    Raises:
      UsageError: if a flag in `READ_ONCE` is repeated.
    """
    given: dict[str, str] = {}
    for argument, following in itertools.pairwise([*arguments, ""]):
        name, equals, value = argument.lstrip("-").partition("=")
        is_flag = argument.startswith("-") and name in READ_ONCE and name in values
        if not is_flag or isinstance(values[name], (flags.MultiFlag, ListFlag)):
            continue
        value = value if equals else following
        if given.setdefault(name, value) != value:
            raise UsageError(
                f"--{name} takes one file. Received: {given[name]!r} and {value!r}. Join the "
                "files, or run the command once for each of them."
            )


def check_not_read(values: flags.FlagValues, written: Sequence[str] = ("",)) -> None:
    """Check that the command does not replace any file that it reads.

    Links and different spellings of a path count as the same file.

    Args:
      values: the flags of the command.
      written: patterns of the files that the command writes or replaces in its outputs. `""` stands
        for the output itself. The outputs are the values of the flags in `WRITTEN`.

    Raises:
      ValueError: if an output is also an input.
    """
    matches = functools.partial(glob.glob, recursive=True)  # as in `corpora.dumps.find_files`
    places: dict[tuple[int, int] | None, tuple[str, str]] = {}
    for flag in {*WRITTEN} & {*values}:
        place = values[flag].value
        for pattern in written if place else ():
            below = os.path.join(glob.escape(place), pattern)
            for path in matches(below) if pattern else [place]:
                places[_identity(path)] = flag, path
    places.pop(None, None)  # removes outputs that do not exist yet
    for name in sorted({*READ} & {*values}) if places else ():
        if isinstance(values[name], flags.EnumFlag):  # `--model` may be a preset instead of a path
            continue
        value = values[name].value or []
        texts = [value] if isinstance(value, str) else value
        if isinstance(values[name], flags.MultiFlag):
            texts = split_names(texts, matches)
        for path in (path for text in texts for path in [text, *matches(text)]):
            if output := places.get(_identity(path)):
                flag, written_path = output
                raise ValueError(
                    f"--{flag} would replace {written_path!r}, which --{name} reads. Choose "
                    f"another --{flag}."
                )


def _identity(path: str) -> tuple[int, int] | None:
    """Return an id that all paths of a file or folder share; None if the path does not exist."""
    try:
        facts = os.fstat(0) if path == "-" else os.stat(path)
    except (OSError, ValueError):
        return None
    # Terminals and /dev/null have no id, because they may be read and written at the same time.
    is_stored = stat.S_ISREG(facts.st_mode) or stat.S_ISDIR(facts.st_mode)
    return (facts.st_dev, facts.st_ino) if is_stored else None


def check_read(values: flags.FlagValues, unread: Mapping[str, Collection[str]]) -> None:
    """Check that all flags that were given have an effect.

    Args:
      values: the flags of the command.
      unread: the flags that have no effect, by the reason, such as `"with --candidates"`.

    Raises:
      ValueError: if a flag without effect was given.
    """
    for reason, names in unread.items():
        if given := sorted(f"--{name}" for name in {*names} & {*values} if values[name].present):
            has, it = ("has", "it") if len(given) == 1 else ("have", "them")
            raise ValueError(f"{', '.join(given)} {has} no effect {reason}. Remove {it}.")
