"""Make the n-th input or output of a command fail, for every n, and check the files it leaves.

```
python benchmarks/io_faults.py
python benchmarks/io_faults.py --commands "sample,intent train" --every 7 --seed 3
```

A library in C, loaded with LD_PRELOAD, intercepts the command's calls to the C library. It counts
the calls that act on files in the command's folder: open, read, write, close after writing, fsync,
rename, remove, lock, make a folder and truncate. The n-th call fails with an operating system error
that fits the call. In some runs all later calls of certain kinds fail too, as on a full disk ("from
then on" in reports). The script checks each run against these rules:

- The folder holds either the files from before the run or those of a successful run, and no others.
  If a command writes several independent results, each of them is the old or the new one. If the
  failing call removes a file or lists a folder, hidden files may remain.
- If the exit status is 0, the files are those of a successful run.
- Otherwise, standard error is one line that begins with the name of the command.
- If all renames fail from some call on, the command cannot undo its moves. The same command then
  undoes them when it is run again, and writes the files of a successful run.
- If the last rename fails, a hidden folder may keep the complete new files. The error names it.
- A command that resumes, such as `train`, may leave other files. The same command then continues
  and ends with the results of a successful run.

The script prints one line per command. Its exit status is 1 if a rule was broken. It needs a C
compiler.
"""

import contextlib
import ctypes
import errno
import fnmatch
import importlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static char root[PATH_MAX];
static const char *kinds;  // that fail from the n-th call on; "" for that call alone
static long calls, nth;
static int armed, error, log_file;

void io_faults_arm(const char *folder, long n, int code, const char *later, int log) {
  strncpy(root, folder, PATH_MAX - 1);
  calls = 0, nth = n, error = code, kinds = later, log_file = log, armed = 1;
}
void io_faults_disarm(void) { armed = 0; }

static int is_inside(const char *path) {  // the command runs in the folder
  return path && (path[0] != '/' || !strncmp(path, root, strlen(root)));
}
static int is_inside_file(int file);
static int is_inside_at(int at, const char *path) {
  return is_inside(path) && (path[0] == '/' || at == AT_FDCWD || is_inside_file(at));
}
static int is_inside_file(int file) {
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0 || path[0] != '/') return 0;
  path[length] = 0;
  return is_inside(path);
}
static int fails(char kind) {
  long n = __sync_add_and_fetch(&calls, 1);
  if (log_file >= 0) syscall(SYS_write, log_file, &kind, 1);
  if (n != nth && !(nth && n > nth && strchr(kinds, kind))) return 0;
  errno = error;
  return 1;
}
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define AT_PATH(kind, path, failed) if (armed && is_inside(path) && fails(kind)) return failed
#define AT_FILE(kind, file, failed) if (armed && is_inside_file(file) && fails(kind)) return failed
static char opening(int at, const char *path, int flags) {
  struct stat facts;
  if (flags & O_ACCMODE || flags & O_CREAT) return 'c';
  return fstatat(at, path, &facts, 0) || !S_ISDIR(facts.st_mode) ? 'o' : 'd';
}
#define OPENING(at) if (armed && is_inside(path) && fails(opening(at, path, flags))) return -1
#define MODE(flags) \
  mode_t mode = 0; \
  if ((flags) & (O_CREAT | __O_TMPFILE)) { \
    va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }

int open(const char *path, int flags, ...) {
  MODE(flags) OPENING(AT_FDCWD); return REAL(open)(path, flags, mode); }
int open64(const char *path, int flags, ...) {
  MODE(flags) OPENING(AT_FDCWD); return REAL(open64)(path, flags, mode); }
int openat(int at, const char *path, int flags, ...) {
  MODE(flags) OPENING(at); return REAL(openat)(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) {
  MODE(flags) OPENING(at); return REAL(openat64)(at, path, flags, mode); }
FILE *fopen(const char *path, const char *how) {
  AT_PATH(*how == 'r' ? 'o' : 'c', path, NULL); return REAL(fopen)(path, how); }
FILE *fopen64(const char *path, const char *how) {
  AT_PATH(*how == 'r' ? 'o' : 'c', path, NULL); return REAL(fopen64)(path, how); }
ssize_t read(int f, void *to, size_t n) { AT_FILE('r', f, -1); return REAL(read)(f, to, n); }
ssize_t pread(int f, void *to, size_t n, off_t at) {
  AT_FILE('r', f, -1); return REAL(pread)(f, to, n, at); }
ssize_t pread64(int f, void *to, size_t n, off64_t at) {
  AT_FILE('r', f, -1); return REAL(pread64)(f, to, n, at); }
ssize_t write(int f, const void *of, size_t n) {
  AT_FILE('w', f, -1); return REAL(write)(f, of, n); }
ssize_t pwrite(int f, const void *of, size_t n, off_t at) {
  AT_FILE('w', f, -1); return REAL(pwrite)(f, of, n, at); }
ssize_t pwrite64(int f, const void *of, size_t n, off64_t at) {
  AT_FILE('w', f, -1); return REAL(pwrite64)(f, of, n, at); }
ssize_t writev(int f, const struct iovec *of, int n) {
  AT_FILE('w', f, -1); return REAL(writev)(f, of, n); }
ssize_t sendfile64(int to, int of, off64_t *at, size_t n) {
  AT_FILE('w', to, -1);
  return ((ssize_t (*)(int, int, off64_t *, size_t))dlsym(RTLD_NEXT, "sendfile64"))(to, of, at, n);
}
ssize_t copy_file_range(int of, off64_t *a, int to, off64_t *b, size_t n, unsigned flags) {
  AT_FILE('w', to, -1); return REAL(copy_file_range)(of, a, to, b, n, flags); }
// The C library's own calls do not come by here, so numpy's writing is seen at these.
size_t fwrite(const void *of, size_t size, size_t n, FILE *file) {
  AT_FILE('w', fileno(file), 0); return REAL(fwrite)(of, size, n, file); }
int fflush(FILE *file) {
  if (file) AT_FILE('w', fileno(file), EOF);
  return REAL(fflush)(file);
}
int fsync(int f) { AT_FILE('f', f, -1); return REAL(fsync)(f); }
int fdatasync(int f) { AT_FILE('f', f, -1); return REAL(fdatasync)(f); }
int ftruncate(int f, off_t n) { AT_FILE('t', f, -1); return REAL(ftruncate)(f, n); }
int ftruncate64(int f, off64_t n) { AT_FILE('t', f, -1); return REAL(ftruncate64)(f, n); }
int flock(int f, int how) {
  AT_FILE('l', f, -1); return ((int (*)(int, int))dlsym(RTLD_NEXT, "flock"))(f, how); }
// Of the commands of fcntl, only locks act on the file, not just on its descriptor.
#define IS_LOCK(how) ((how) == F_SETLK || (how) == F_SETLKW || (how) == F_OFD_SETLK \
                      || (how) == F_OFD_SETLKW)
#define FCNTL(name) int name(int f, int how, ...) { \
  va_list rest; va_start(rest, how); void *value = va_arg(rest, void *); va_end(rest); \
  if (IS_LOCK(how)) AT_FILE('l', f, -1); \
  return ((int (*)(int, int, ...))dlsym(RTLD_NEXT, #name))(f, how, value); }
FCNTL(fcntl)
FCNTL(fcntl64)
// The file is closed even if an error is reported, as by Linux.
int close(int f) {
  int flags = armed ? REAL(fcntl)(f, F_GETFL) : -1;
  int is_failing = flags >= 0 && flags & O_ACCMODE && is_inside_file(f) && fails('e');
  int result = REAL(close)(f);
  if (!is_failing) return result;
  errno = error;
  return -1;
}
int unlink(const char *path) { AT_PATH('u', path, -1); return REAL(unlink)(path); }
int unlinkat(int at, const char *path, int flags) {
  if (armed && is_inside_at(at, path) && fails('u')) return -1;
  return REAL(unlinkat)(at, path, flags);
}
int rename(const char *of, const char *to) { AT_PATH('n', to, -1); return REAL(rename)(of, to); }
int renameat(int a, const char *of, int b, const char *to) {
  AT_PATH('n', to, -1); return REAL(renameat)(a, of, b, to); }
int mkdir(const char *path, mode_t mode) { AT_PATH('m', path, -1); return REAL(mkdir)(path, mode); }
int mkdirat(int at, const char *path, mode_t mode) {
  AT_PATH('m', path, -1); return REAL(mkdirat)(at, path, mode); }
"""

# By kind of call: its possible errors, each with the kinds of later calls that then fail too.
ERRORS = {
    "o": [(errno.EACCES, ""), (errno.EIO, "or"), (errno.EINTR, "")],
    # Only one call fails: a command that cannot read folders cannot remove half-written files.
    "d": [(errno.EACCES, ""), (errno.EINTR, "")],
    "c": [(errno.ENOSPC, "cwm"), (errno.EACCES, ""), (errno.EINTR, "")],
    "r": [(errno.EIO, ""), (errno.EINTR, "")],
    "w": [(errno.ENOSPC, ""), (errno.ENOSPC, "cwmf"), (errno.EIO, "wf"), (errno.EINTR, "")],
    "f": [(errno.EIO, ""), (errno.ENOSPC, "cwmf"), (errno.EINTR, "")],
    "e": [(errno.EIO, ""), (errno.EDQUOT, "cwmfe")],  # by NFS, after writes that seemed to succeed
    "t": [(errno.EIO, "")],
    "l": [(errno.EIO, ""), (errno.ENOLCK, "l"), (errno.EINTR, "")],
    "n": [(errno.ENOSPC, ""), (errno.EACCES, "n"), (errno.EIO, "")],
    "m": [(errno.ENOSPC, "cwm"), (errno.EACCES, "")],
    "u": [(errno.EACCES, ""), (errno.EIO, "")],
}
_LIBRARY = "IO_FAULTS_LIBRARY"
_SECONDS = 600
_NOT_ERRORS = re.compile(
    r"(note:|resuming|step|WARNING:|[IWE]0000|[\d,]+ of [\d,]+|\S+ is a table;) "
)
_HIDDEN = re.compile(r"(^|/)\.")
_LABELLED = {
    "delivery": ["where is my parcel?", "has my order left?", "when does it arrive?"],
    "refund": ["I want my money back", "how do I return this?", "please refund my order"],
    "login": ["I forgot my password", "my account is locked", "I cannot sign in"],
}


class Case(NamedTuple):
    """A command to attack.

    Attributes:
      command: the command.
      before: commands that write its inputs.
      needs_encoder: whether it contains ENCODER.
      each_alone: whether the files it writes are independent of each other.
      resumed: patterns of its results, if the same command resumes an interrupted run.
      libraries: modules to import once for all runs.
    """

    command: str
    before: tuple[str, ...] = ()
    needs_encoder: bool = False
    each_alone: bool = False
    resumed: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()


_TENSORFLOW = ("tensorflow", "keras", "matplotlib.pyplot")
_PREPARE = "prepare --pairs pairs.csv --output data --num_shards_train 2"
_VOCABULARY = "vocabulary --input log.txt --output vocab.txt --min_count 1"
_INTENTS = "intent train --encoder ENCODER --data train.csv --output model"
_TOKENIZE = "tokenize --data data --vocab vocab.txt --output ids"
_TRAIN = "train --data ids --model tiny --output run --batch_size 8 --steps 2 --eval_splits="
_TEACH = "teach --token_ids ids --teacher ENCODER --output teacher"
_EMBED = "embed --encoder ENCODER --input log.txt --output v.npy"
_IDS = (_PREPARE, _VOCABULARY, _TOKENIZE)
_RUN = (*_IDS, _TRAIN)
_MODULE = (*_RUN, "export --encoder run --output module/1")
_SERVED = "intent train --encoder module/1 --data train.csv --output model"
_RESULTS = ("run/model.weights.h5", "run/training.json")
CASES = {
    "sample": Case("sample --output dumps", each_alone=True),
    "prepare": Case(_PREPARE, libraries=_TENSORFLOW),
    "prepare again": Case(
        f"{_PREPARE[:-1]}3 --overwrite", (_PREPARE,), libraries=_TENSORFLOW
    ),
    "split-dump": Case("split-dump --input dumps/RC_sample.zst --output parts",
                       ("sample --output dumps",)),
    "vocabulary": Case(_VOCABULARY, libraries=_TENSORFLOW),
    "tokenize": Case(_TOKENIZE, (_PREPARE, _VOCABULARY), libraries=_TENSORFLOW),
    "tokenize again": Case(f"{_TOKENIZE} --max_tokens 4 --overwrite", _IDS, libraries=_TENSORFLOW),
    "tokenize --triplets": Case(
        "tokenize --triplets triplets.csv --vocab vocab.txt --output triplet_ids", (_VOCABULARY,),
        libraries=_TENSORFLOW,
    ),
    "train": Case(_TRAIN, _IDS, resumed=_RESULTS, libraries=_TENSORFLOW),
    "train --head": Case(
        "train --head bi --init_from run --data ranked.jsonl --dev_data ranked.jsonl "
        "--output ranker --batch_size 4 --steps 2",
        _RUN, resumed=tuple(path.replace("run/", "ranker/") for path in _RESULTS),
        libraries=_TENSORFLOW,
    ),
    "pretrain": Case(
        "pretrain --data ids --model bert_tiny --max_tokens 60 --output run --batch_tokens 256 "
        "--steps 2", _IDS, resumed=_RESULTS, libraries=_TENSORFLOW,
    ),
    "teach": Case(_TEACH, _IDS, True, resumed=("teacher/*",), libraries=_TENSORFLOW),
    "similarity": Case(
        "similarity --encoder run --token_ids ids --teacher teacher --output similar",
        (*_RUN, _TEACH), True, libraries=_TENSORFLOW,
    ),
    "mine": Case("mine --encoder run --data ids --output negatives --skip_top 1", _RUN,
                 libraries=_TENSORFLOW),
    "evaluate": Case("evaluate --encoder ENCODER --data pairs.csv --output results", (), True, True,
                     libraries=_TENSORFLOW),
    "export": Case("export --encoder run --output module/1", _RUN, libraries=_TENSORFLOW),
    "export of an .onnx file": Case("export --encoder run --output run.onnx", _RUN,
                                    libraries=_TENSORFLOW),
    "export again": Case(
        "export --encoder run --format huggingface --max_tokens 9 --output hf --overwrite",
        (*_RUN, "export --encoder run --format huggingface --output hf"), libraries=_TENSORFLOW,
    ),
    "export of static vectors": Case(
        "export --encoder run --format static --texts many.txt --output static", _RUN,
        libraries=_TENSORFLOW,
    ),
    "embed": Case(_EMBED, (), True, True),
    "embed again": Case(
        "embed --encoder ENCODER --input log.txt --kind response --output v.npy --overwrite",
        (_EMBED,), True, True,
    ),
    "translate": Case(
        "translate --encoder ENCODER --to run.onnx --input v.npy --output w.npy",
        (*_RUN, "export --encoder run --output run.onnx", _EMBED), True, True,
        libraries=_TENSORFLOW,
    ),
    "index build": Case("index build --encoder ENCODER --input log.txt --output index", (), True),
    "index build again": Case(
        "index build --encoder ENCODER --input log.txt --dtype int8 --output index --overwrite",
        ("index build --encoder ENCODER --input log.txt --output index",), True,
    ),
    "index edit": Case(
        "index edit --encoder ENCODER --cache index --remove log.txt --add train.csv",
        ("index build --encoder ENCODER --input log.txt --output index",), True,
    ),
    "index search": Case(
        "index search --encoder ENCODER --cache index --queries hi --faiss flat",
        ("index build --encoder ENCODER --input log.txt --output index",), True,
        resumed=("index/*",),  # writing is optional, and a note says if it failed
    ),
    "intent train": Case(_INTENTS, (), True),
    "intent train --serving_module": Case(
        f"{_SERVED} --serving_module served", _MODULE, each_alone=True, libraries=_TENSORFLOW
    ),
    "intent train --finetune": Case(f"{_SERVED} --finetune", _MODULE, libraries=_TENSORFLOW),
    "intent train again": Case(f"{_INTENTS} --kind reduced --overwrite", (_INTENTS,), True),
    "intent export": Case("intent export --model model --output one.onnx", (_INTENTS,), True),
    "intent export again": Case(
        "intent export --model model --output one.onnx --overwrite",
        (_INTENTS, "intent export --model model --output one.onnx",
         f"{_INTENTS} --kind reduced --overwrite"), True,
    ),
    "intent evaluate": Case(
        "intent evaluate --model model --data train.csv --output results", (_INTENTS,), True, True
    ),
    "intent inspect": Case(
        "intent inspect --encoder ENCODER --data train.csv --output found", (), True, True
    ),
    "intent discover": Case(
        "intent discover --encoder ENCODER --input log.txt --groups 3 --output groups", (),
        True, True,
    ),
    "intent suggest": Case(
        "intent suggest --encoder ENCODER --input log.txt --budget 4 --output label.csv", (), True
    ),
    "intent monitor": Case(
        "intent monitor --model model --input log.txt --output week.json", (_INTENTS,), True
    ),
}  # fmt: skip


class Failure(NamedTuple):
    """A failure of a call.

    Attributes:
      nth: number of the call, starting at 1.
      error: the errno value.
      later: kinds of later calls that fail too.
    """

    nth: int
    error: int
    later: str

    def __str__(self) -> str:
        rest = " from then on" * bool(self.later)
        return f"call {self.nth} with {errno.errorcode[self.error]}{rest}"


def _write_inputs(folder: Path) -> None:
    rows = [f"{text},{label}" for label, texts in _LABELLED.items() for text in texts]
    (folder / "train.csv").write_text("\n".join(["text,label", *rows, ""]))
    texts = [text for some in _LABELLED.values() for text in some]
    rows = [f"{a},{b},not {a}" for a, b in itertools.pairwise(texts)]
    (folder / "triplets.csv").write_text("\n".join(["anchor,positive,negative", *rows, ""]))
    (folder / "log.txt").write_text("\n".join([*texts, ""]))
    pairs = [f"{text} number {i},here is {i}" for i in range(20) for text in texts]
    ranked = [
        json.dumps({"context": text, "candidates": [text, *texts[:3]], "label": 0})
        for text in texts[3:]
    ]
    (folder / "ranked.jsonl").write_text("\n".join([*ranked, ""]))
    many = [f"{text} number {i}" for i in range(20) for text in texts]
    (folder / "many.txt").write_text("\n".join([*many, ""]))
    (folder / "pairs.csv").write_text("\n".join(["context,response", *pairs, ""]))


def _tree(folder: Path) -> dict[str, bytes]:
    """Return the content of the files below a folder by path.

    Hidden folders are included with empty content, because no command should leave one.
    """
    return {
        str(path.relative_to(folder)): b"" if path.is_dir() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.name[0] == "." or not path.is_dir()
    }


_NONE = Failure(0, 0, "")


class Attack:
    """Runs commands in forks of this process, which has loaded the library.

    Args:
      folder: folder for all files.
      run: runs a command, given as arguments, and returns its exit status.
      encoder: path that replaces ENCODER in commands.
    """

    def __init__(self, folder: Path, run: Callable[[list[str]], int], encoder: str = ""):
        self._folder = folder
        self._command = run
        self._encoder = encoder
        self._library = ctypes.CDLL(os.environ[_LIBRARY])
        self._starts: dict[tuple[str, ...], Path] = {}

    def _run(self, folder: Path, command: str, failure: Failure) -> tuple[int, str, str]:
        """Run a command; return its exit status, its standard error, and the kinds of its calls."""
        said, log = self._folder / "said", self._folder / "calls"
        sys.stdout.flush()
        child = os.fork()
        if not child:
            status = 99
            try:
                os.chdir(folder)
                for number, path in ((1, os.devnull), (2, said)):
                    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                    os.dup2(file, number)
                calls = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                signal.alarm(_SECONDS)
                later = failure.later.encode()
                self._library.io_faults_arm(
                    str(folder).encode(), ctypes.c_long(failure.nth), failure.error, later, calls
                )
                status = self._command(command.replace("ENCODER", self._encoder).split())
                self._library.io_faults_disarm()
            except BaseException:
                self._library.io_faults_disarm()
                import traceback

                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return status, said.read_text(errors="replace"), log.read_text()

    def _start(self, before: tuple[str, ...]) -> Path:
        """Return a folder with the inputs and the outputs of the commands `before`."""
        start = self._starts.get(before)
        if start is None:
            former = self._start(before[:-1]) if before else None
            start = self._folder / f"start{len(self._starts)}"
            if former:
                shutil.copytree(former, start)
                status, said, _ = self._run(start, before[-1], _NONE)
                assert status == 0, (before[-1], said)
            else:
                start.mkdir()
                _write_inputs(start)
            self._starts[before] = start
        return start

    def attack(
        self, name: str, case: Case, *, every: int = 1, rng: random.Random | None = None
    ) -> tuple[dict[str, int], list[str]]:
        """Attack a command.

        Args:
          name: name of the command in descriptions.
          case: the command.
          every: with 1, each call fails in one run; with 7, about one call in seven does.
          rng: draws the calls to fail.

        Returns:
          Counts of outcomes, and descriptions of broken rules.
        """
        start, work = self._start(case.before), self._folder / "work"
        old = _tree(start)

        def attempt(failure: Failure) -> tuple[int, str, str, dict[str, bytes]]:
            shutil.rmtree(work, ignore_errors=True)
            shutil.copytree(start, work)
            status, said, calls = self._run(work, case.command, failure)
            return status, said, calls, _tree(work)

        status, said, calls, new = attempt(_NONE)
        assert status == 0, (case.command, said)
        again = attempt(_NONE)[3]
        varying = {path for path in new if again.get(path) != new[path]}  # files that contain times

        def same(tree: dict[str, bytes], wanted: dict[str, bytes]) -> bool:
            return _is_same(tree, wanted, varying)

        def resumes(tree: dict[str, bytes]) -> str:
            """Run the same command again; return what is wrong with its results, or ""."""
            inputs = {path: old[path] for path in old if path not in _matching(old, case.resumed)}
            if any(tree.get(path) != content for path, content in inputs.items()):
                return _difference(tree, inputs)
            status, said, _ = self._run(work, case.command, _NONE)
            results, wanted = _matching(_tree(work), case.resumed), _matching(new, case.resumed)
            if status == 0 and wanted and same(results, wanted):
                return ""
            return f"went on to {status}, {_difference(results, wanted)}, said {said[-200:]!r}"

        def is_whole(tree: dict[str, bytes], failure: Failure, said: str) -> bool:
            if same(tree, old) or same(tree, new) or _keeps_new(tree, old, new, said):
                return True
            if case.each_alone or failure.later != "n":
                return case.each_alone and _is_mixed(tree, old, new, varying)
            return not self._run(work, case.command, _NONE)[0] and same(_tree(work), new)

        counts: Counter[str] = Counter()
        faults = []
        for failure in _failures(calls, every, rng or random.Random(0)):
            status, said, _, tree = attempt(failure)
            tree = _compared(tree, {*old, *new}, calls[failure.nth - 1])
            counts["failed" if status else "went on"] += 1
            what = f"{name}, {failure} ({calls[failure.nth - 1]}): "
            if case.resumed:
                # If the command succeeded, it may refuse to run again.
                is_done = not status and same(
                    _matching(tree, case.resumed), _matching(new, case.resumed)
                )
                if not is_done and (lacking := resumes(tree)):
                    faults.append(what + lacking)
            elif status == 0 and not same(tree, new):
                faults.append(f"{what}status 0, but {_difference(tree, new)}")
            elif status and not is_whole(tree, failure, said):
                faults.append(f"{what}{_difference(tree, old)}; said {said[-200:]!r}")
            if words := _wrong_words(status, said):
                faults.append(what + words)
        return {"calls": len(calls), **counts}, faults


def _is_same(tree: dict[str, bytes], wanted: dict[str, bytes], varying: set[str]) -> bool:
    """Return whether two folders have the same files, with equal content except for `varying`."""
    return tree.keys() == wanted.keys() and all(
        tree[path] == wanted[path] for path in wanted if path not in varying
    )


def _wrong_words(status: int, said: str) -> str:
    """Return what is wrong with the exit status and standard error, or "" if nothing is."""
    lines = [line for line in said.splitlines() if not _NOT_ERRORS.match(line)]
    if status == 0:
        return f"status 0, but said {said[-300:]!r}" if lines else ""
    if status == 1 and len(lines) == 1 and lines[0].startswith("convert-tf"):
        return ""
    return f"ended with status {status} and said {said[-400:]!r}"


def _failures(calls: str, every: int, rng: random.Random) -> Iterator[Failure]:
    for nth, kind in enumerate(calls, 1):
        if every == 1 or rng.randrange(every) == 0:
            options = ERRORS[kind] if every == 1 else [rng.choice(ERRORS[kind])]
            for error, later in options:
                yield Failure(nth, error, later)


def _matching(tree: dict[str, bytes], patterns: tuple[str, ...]) -> dict[str, bytes]:
    return {
        path: content
        for path, content in tree.items()
        if any(fnmatch.fnmatch(path, pattern) for pattern in patterns)
    }


def _compared(tree: dict[str, bytes], expected: set[str], kind: str) -> dict[str, bytes]:
    """Return the files to compare: without hidden leftovers if they could not be removed."""
    kept = expected if kind in "ud" else {*tree}
    return {path: tree[path] for path in tree if path in kept or not _HIDDEN.search(path)}


def _keeps_new(
    tree: dict[str, bytes], old: dict[str, bytes], new: dict[str, bytes], said: str
) -> bool:
    """Return whether the old files stay, and the new ones are where the error says they are."""
    named = re.search(r"The new files are complete, in '.*?/work/([^']+)'", said)
    if not named:
        return False
    kept = {(Path(path).name, tree[path]) for path in tree if path.startswith(f"{named[1]}/")}
    changed = {(Path(path).name, new[path]) for path in new if old.get(path) != new[path]}
    visible = {path: tree[path] for path in tree if not _HIDDEN.search(path)}
    return visible == old and changed <= kept


def _is_mixed(
    tree: dict[str, bytes], old: dict[str, bytes], new: dict[str, bytes], varying: set[str]
) -> bool:
    """Return whether each file is either the old or the new one."""
    return old.keys() <= tree.keys() <= new.keys() and all(
        path in varying or content in (old.get(path), new[path]) for path, content in tree.items()
    )


def _difference(tree: dict[str, bytes], wanted: dict[str, bytes]) -> str:
    more = sorted(tree.keys() - wanted.keys())
    less = sorted(wanted.keys() - tree.keys())
    changed = sorted(path for path in tree.keys() & wanted.keys() if tree[path] != wanted[path])
    return f"left {more[:4]}, lost {less[:4]}, changed {changed[:4]}"


def _imported(cases: Sequence[Case]) -> Callable[[list[str]], int]:
    """Import what the commands need, so that forks need not, and return the main function."""
    from convert_tf.cli.main import COMMANDS, main

    for case in cases:
        name = next(name for name in COMMANDS if case.command.startswith(name))
        importlib.import_module(f"convert_tf.cli.{name.replace(' ', '.').replace('-', '_')}")
    libraries = dict.fromkeys(library for case in cases for library in case.libraries)
    if any(case.needs_encoder for case in cases):
        libraries |= dict.fromkeys(
            ("sklearn.cluster", "sklearn.linear_model", "onnxruntime", "faiss")
        )
    for library in libraries:
        with contextlib.suppress(ImportError):
            importlib.import_module(library)
    return main


def compiled(folder: Path) -> Path:
    """Compile the library in a folder, and return its path."""
    source, library = folder / "io_faults.c", folder / "io_faults.so"
    source.write_text(SOURCE)
    command = ["cc", "-shared", "-fPIC", "-w", "-o", library, source, "-ldl"]
    subprocess.run(command, check=True)
    return library


def main(arguments: Sequence[str]) -> int:
    """Run the attack; the script first starts itself again with the library loaded."""
    import argparse

    parser = argparse.ArgumentParser()
    parser.add_argument("--commands", default="", help="Keys of CASES; all by default.")
    parser.add_argument("--encoder", default="convert_small.onnx", help="An .onnx file.")
    parser.add_argument("--every", type=int, default=1, help="Fail one call in this many.")
    parser.add_argument(
        "--seed", type=int, default=0, help="Seed that draws the calls for --every."
    )
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="io_faults") as name:
        folder = Path(name).resolve()
        if _LIBRARY not in os.environ:
            library = str(compiled(folder))
            again = {"LD_PRELOAD": library, _LIBRARY: library, "OMP_NUM_THREADS": "1"}
            again |= {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
            return subprocess.run(
                [sys.executable, __file__, *arguments], env={**os.environ, **again}
            ).returncode
        rng = random.Random(options.seed)
        names = options.commands.split(",") if options.commands else [*CASES]
        cases = [CASES[name] for name in names]
        encoder = options.encoder
        if any(case.needs_encoder for case in cases):
            from convert_tf.checkpoints.released import model_path

            encoder = os.path.abspath(model_path(encoder))
        attack = Attack(folder, _imported(cases), encoder)
        broken = 0
        for name in names:
            counts, faults = attack.attack(name, CASES[name], every=options.every, rng=rng)
            shown = ", ".join(f"{key} {value}" for key, value in counts.items())
            print(f"{name}: {shown}, faults {len(faults)}", flush=True)
            for fault in faults:
                print(f"  {fault}", flush=True)
            broken += len(faults)
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
