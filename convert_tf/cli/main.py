"""The command line `convert-tf`, which can also be called as `python -m convert_tf`.

Each command is a module of this package with the functions `define_flags(define)` and
`run(values)`. The module's docstring is the help page of the command: an example, a description,
and the help texts of the flags under `Flags:`. The constant `REPLACED` of a module lists patterns
of the files that the command replaces in `--output`. The default is `--output` itself. This module
lists the commands, parses flags and prints errors.
"""

import contextlib
import difflib
import functools
import importlib.util
import io
import logging
import os
import shutil
import signal
import sys
import textwrap
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from absl import flags

from convert_tf import __version__
from convert_tf.cli.flags import (
    COMMON_TEXTS,
    FLAGS,
    ListFlag,
    UsageError,
    check_given_once,
    check_not_read,
    define_flag,
    resolve_names,
)
from convert_tf.config.base import DATA, MODEL, OPTIMISATION, OUTPUT, entries
from convert_tf.extras import KERAS_BACKENDS, check_unpacked, needs_training
from convert_tf.numerics.imports import skip_optional_imports
from convert_tf.numerics.quiet import quieten
from convert_tf.storage.json_text import parsed_json

# The commands, in the order in which they are typically used. A command such as "index build" is
# the module `convert_tf.cli.index.build`.
COMMANDS = {
    "sample": "write a small conversation dump to try the other commands",
    "prepare": "turn conversation dumps, pairs or dialogues into training data",
    "split-dump": "split a large dump into files that a cluster reads in parallel",
    "vocabulary": "learn a vocabulary from training data or text",
    "tokenize": "turn training data into token ids, for training without TensorFlow",
    "teach": "encode training texts with a teacher model, for distillation",
    "similarity": "add similarity vectors to a trained encoder",
    "mine": "find hard negatives: wrong responses that an encoder ranks high",
    "train": "train or fine-tune an encoder or a ranker",
    "pretrain": "pre-train a BERT-like trunk on conversations",
    "evaluate": "compare encoders, rankers and baselines on response ranking",
    "export": "export a run as a TensorFlow Hub module, an .onnx file or a Hugging Face folder",
    "embed": "encode the lines of a file",
    "translate": "turn the vectors of one encoder into vectors of another encoder",
    "index build": "encode candidates once, for many searches",
    "index edit": "add and remove candidates of an index; only new texts are encoded",
    "index search": "find the best candidates for a query, with or without an index",
    "demo": "serve a page that runs a model in the browser",
    "serve": "answer HTTP requests: vectors, rankings, intents, OpenAI's embeddings",
    "intent discover": "group the messages in a log that no intent answers",
    "intent suggest": "choose the messages in a log that are most useful to label",
    "intent inspect": "find overlapping intents, wrong labels and duplicates in examples",
    "intent train": "train an intent classifier on frozen encodings, or fine-tune the encoder",
    "intent evaluate": "evaluate an intent classifier and show which intents it confuses",
    "intent predict": "predict the intents of the lines of a file",
    "intent monitor": "report what a classifier was asked in a period, and what has changed",
    "intent export": "write a classifier and its encoder as one file, for onnxruntime and numpy",
}
_LISTING = """
{program} COMMAND --help shows an example and common flags, --helpfull shows all flags.
--flagfile=FILE reads flags from a file, one per line.
{program} --version prints the version.

Exit status: 0 done, 1 error, 2 wrong usage, 75 stopped by a signal after saving, 76 another process
of the run was lost. After 75 and 76, run the same command again to continue."""
_HELP = ("--help", "-h", "-help", "--helpfull")
_EXPECTED = (ValueError, OSError, FloatingPointError, ImportError, MemoryError)
# The headings in the order of the help. All other headings, such as the losses, come after
# Optimisation.
_GROUPS = (DATA, MODEL, OPTIMISATION, OUTPUT, FLAGS)
_FORMER = ("module", "checkpoint")  # earlier names of --encoder
_NEED_TENSORFLOW = ("export", "intent train")
_USE_KERAS = (*_NEED_TENSORFLOW, "train", "pretrain", "mine", "teach", "similarity", "evaluate")
_COLUMN = 26  # column at which the help texts of flags start
_BROKEN_PIPE = 141  # the exit status of a program that was ended by SIGPIPE


def main(arguments: Sequence[str] | None = None, *, program: str = "convert-tf") -> int:
    """Run a command. Print errors as one line on standard error.

    Args:
      arguments: the name of a command and its flags; `sys.argv` by default.
      program: the name of this program in messages and help. A script for a single command passes
        its file name, for example `"train.py"`.

    Returns:
      The exit status: 0 for success, 1 for an error, 2 for an invalid command line, 75 if a
      training run was told to end and saved its state, 76 if another process of the run was lost.
      After 75 and 76, the same command resumes the run.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    _prepare_streams()
    quieten()
    skip_optional_imports()
    try:
        check_unpacked()
    except ImportError as error:
        return _fail(program, error, 1)
    status = 0
    try:
        with _cleaning_up_on_sigterm():
            status = _main(arguments, program)
        sys.stdout.flush()
    except OSError as error:
        # Otherwise Python would try to write the buffer again at exit and print another error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # the reader has ended, as in `convert-tf … | head`
            return status or _BROKEN_PIPE
        reason = error.strerror or error
        return status or _fail(program, f"Output could not be written: {reason}.", 1)
    return status


class _Terminated(BaseException):
    """Raised if the process is told to end by SIGTERM."""


@contextlib.contextmanager
def _cleaning_up_on_sigterm() -> Iterator[None]:
    """On SIGTERM, raise an exception, so that temporary files and locks are removed.

    The process then ends by the signal. Training and the service have their own handlers.
    """
    process = os.getpid()

    def end(number: int, frame: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second SIGTERM ends the process at once
        if os.getpid() != process:  # this process was forked from the command's process
            signal.raise_signal(signal.SIGTERM)
        raise _Terminated

    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    except _Terminated:
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _check_keras_settings(command: str) -> None:
    """Replace the user's Keras settings if a command cannot run with them, and print a note.

    Keras reads the settings, `KERAS_BACKEND` and `keras.json`, when it is imported.
    """
    folder = os.environ.get("KERAS_HOME") or os.path.join(os.path.expanduser("~"), ".keras")
    source = os.path.join(folder, "keras.json")
    try:
        with open(source, encoding="utf-8") as file:
            settings = {**parsed_json(file.read())}
    except (OSError, ValueError, TypeError):
        settings = {}
    variable = os.environ.get("KERAS_BACKEND")
    backend = variable or settings.get("backend") or KERAS_BACKENDS[0]
    floats = settings.get("floatx", "float32")

    def say(source: str, name: str, value: Any, ours: str) -> None:
        print(
            f"note: {source} sets the {name} {value!r}, which this command cannot use. The command "
            f"uses {ours}.",
            file=sys.stderr,
        )

    usable = KERAS_BACKENDS[:1] if command in _NEED_TENSORFLOW else KERAS_BACKENDS
    if backend not in usable and importlib.util.find_spec("tensorflow"):
        if command in _USE_KERAS:
            say("KERAS_BACKEND" if variable else source, "backend", backend, KERAS_BACKENDS[0])
        os.environ["KERAS_BACKEND"] = backend = KERAS_BACKENDS[0]
    if floats != "float32" and command in _USE_KERAS and importlib.util.find_spec(backend):
        from convert_tf.numerics.keras_settings import use_float32

        say(source, "floatx", floats, "float32")
        use_float32()


def _prepare_streams() -> None:
    """Redirect closed standard streams to /dev/null, and let standard output accept any text.

    Otherwise the next opened file would get the number of a closed stream, and TensorFlow would
    write its log to this file.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, that of the closed stream
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    # Code pages of Windows cannot encode emoji, and UTF-8 cannot encode surrogates.
    # In the C locale, Python uses "surrogateescape" and ASCII, which cannot encode "é" either.
    handlers = ("strict", "surrogateescape")
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in handlers:
        sys.stdout.reconfigure(errors="backslashreplace")


def _main(arguments: list[str], program: str) -> int:
    names = [name for name in (" ".join(arguments[:2]), *arguments[:1]) if name in COMMANDS]
    if not names:
        return _list_or_refuse(arguments, program)
    name = names[0]
    called = program if program.endswith(".py") else f"{program} {name}"
    values = flags.FlagValues()
    define = functools.partial(define_flag, values)
    define("verbosity", 0, "1 also prints the traceback of an error.")
    interrupted = "interrupted"
    try:
        module = name.replace(" ", ".").replace("-", "_")
        with needs_training(called):
            command = importlib.import_module(f"convert_tf.cli.{module}")
        interrupted = getattr(command, "INTERRUPTED", interrupted)
        _check_keras_settings(name)
        command.define_flags(define)
        flag_arguments = arguments[len(name.split()) :]
        if {*flag_arguments} & {*_HELP}:
            if command.__doc__ is None:
                raise ValueError(
                    "The help texts are in docstrings, which python -OO removes. Omit -OO."
                )
            print(_help(command, values, called, is_full="--helpfull" in flag_arguments))
            return 0
        with warnings.catch_warnings():
            _show_own_warnings()
            with needs_training(called):
                _run(command, values, flag_arguments)
        return 0
    except (UsageError, flags.Error) as error:
        message = str(error).removeprefix("ERROR:: ")
        stop = "" if message.endswith((".", "?")) else "."
        return _fail(called, f"{message}{stop} {called} --help lists the flags.", 2)
    except BrokenPipeError:
        raise
    except _EXPECTED as error:
        if values["verbosity"].value > 0:
            traceback.print_exc()
        return _fail(called, _sentence(error), 1)
    except KeyboardInterrupt:
        return _fail(called, interrupted, 1)
    except SystemExit as ending:  # training raises `NotFinishedError`, and has said what it saved
        if isinstance(ending.code, str):
            return _fail(called, ending.code, 1)
        return 1 if ending.code is None else ending.code


def _show_own_warnings() -> None:
    """Print warnings of this package in one line, and hide the warnings of other libraries."""
    for library in ("absl", "tensorflow"):
        logging.getLogger(library).setLevel(logging.ERROR)
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
        warnings.filterwarnings("default", category=UserWarning, module=r"convert_tf\.")
        warnings.showwarning = lambda message, *_: print(f"note: {message}", file=sys.stderr)


def _sentence(error: BaseException) -> object:
    """Return the message of an error. For an `OSError`, say which file failed and why."""
    if type(error).__str__ is not OSError.__str__ or not (reason := error.strerror):  # type: ignore[attr-defined]
        return error
    where = error.filename  # type: ignore[attr-defined]
    return f"Cannot open {os.fsdecode(where)!r}: {reason}." if where else f"{reason}."


def _fail(called: str, message: object, status: int) -> int:
    print(f"{called}: {' '.join(str(message).split())}", file=sys.stderr)
    return status


def _list_or_refuse(arguments: list[str], program: str) -> int:
    """Handle a command line without a valid command: list the commands, or print an error."""
    group = arguments[0] if arguments else ""
    if group == "--version":
        print(f"convert_tf {__version__}")
        return 0
    within = [name for name in COMMANDS if name.startswith(f"{group} ")]
    names = within or [*COMMANDS]
    first = arguments[1] if within and arguments[1:] else "" if within else group
    if first in ("", *_HELP):
        print(f"usage: {program} COMMAND [--flag=value ...]\n")
        for name in names:
            print(f"  {name:<18}{COMMANDS[name]}")
        print(_LISTING.format(program=program))
        return 0
    wanted = f"{group} {first}" if within else first
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)
    tip = f" Did you mean {' or '.join(near)}?" if near else ""
    message = f"There is no command {wanted!r}.{tip} {program} --help lists the commands."
    return _fail(program, message, 2)


def _run(command: Any, values: flags.FlagValues, arguments: Sequence[str]) -> None:
    values.set_gnu_getopt(True)
    try:
        _, *rest = values(["", *arguments])
    except flags.UnrecognizedFlagError as error:
        if error.flagname in _FORMER and "encoder" in values:
            raise UsageError(f"--{error.flagname} is now called --encoder") from error
        raise
    check_given_once(values, arguments)
    flags_by_name: dict[str, Any] = {f"--{name}": values[name] for name in values}
    if missing := [n for n, flag in flags_by_name.items() if flag.is_needed and flag.value is None]:
        raise UsageError(f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} required")
    of_modules = getattr(command, "OF_MODULES", ())
    resolve_names(values, wants_module=any(values[name].value for name in of_modules))
    if rest:
        raise UsageError(
            f"{' '.join(rest)!r} is not a flag. Write flags as --name=value, and put patterns such "
            "as '*.txt' in quotes."
        )
    check_not_read(values, getattr(command, "REPLACED", ("",)))
    command.run(values)


def _help(command: ModuleType, values: flags.FlagValues, called: str, *, is_full: bool) -> str:
    """Return the help page of a command: the example, the description and the flags.

    If the command marks some flags as common, the short page has only these flags and the first
    paragraph of the description.
    """
    before, _, rest = (command.__doc__ or "").partition("```")
    example, _, after = rest.partition("\n\nFlags:\n")[0].partition("```")
    texts = {**COMMON_TEXTS, **entries(command.__doc__, "Flags")}
    text = "\n".join(line for line in f"{before.strip()}{after}".splitlines() if line != "```")
    groups: dict[str, list[Any]] = values.flags_by_module_dict()
    common = {name: [flag for flag in group if flag.is_common] for name, group in groups.items()}
    is_short = any(common.values()) and not is_full
    if is_short:
        text = text.partition("\n\n")[0]
        groups = {name: group for name, group in common.items() if group}
    lines = [example.strip(), "", text.strip()]
    for name in sorted(groups, key=_place):
        lines += ["", "Other:" if name == FLAGS and len(groups) > 1 else f"{name}:"]
        for flag in sorted(groups[name], key=lambda flag: flag.name == "verbosity"):
            lines += _flag_help(flag, flag.text or texts.get(flag.name, ""))
    if is_short:
        lines += ["", f"{called} --helpfull lists all {len([*values])} flags."]
    return "\n".join(lines)


def _place(heading: str) -> tuple[int, str]:
    if heading in _GROUPS:
        return _GROUPS.index(heading), ""
    return _GROUPS.index(OPTIMISATION), heading


def _flag_help(flag: Any, text: str) -> list[str]:
    """Return the lines about a flag: the name, the default and the help text."""
    default = ",".join(flag.default) if isinstance(flag.default, list) else flag.default
    form = f"  --{flag.name}={'' if default is None else default}"
    if flag.boolean:
        form = f"  --[no]{flag.name}" + (", on by default" if flag.default else "")
    if isinstance(flag, flags.EnumFlag):
        text = f"{', '.join(flag.parser.enum_values)}. {text}"
    if isinstance(flag, (flags.MultiFlag, ListFlag)):
        text += " Repeatable."
    if flag.is_needed:
        text += " Required."
    width = min(shutil.get_terminal_size().columns, 100)
    indent = " " * _COLUMN
    if len(form) < _COLUMN - 1:
        return textwrap.wrap(form.ljust(_COLUMN) + text, width, subsequent_indent=indent)
    return [form, *textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent)]
