"""Draw mutants of the package and report which ones the tests do not detect.

```
python -m scripts.mutate --mutants 300 --seed 0 --output mutants.json
python -m scripts.mutate --only layers,text --mutants 40 --output mutants.json
```

A mutant is a copy of the project with one change: another number, comparison or operator, a negated
condition, or a removed call whose result is not used. Each package and module in `TESTED` has a
folder or file of tests. A mutant is killed if one of these tests fails.

The tests first run without a mutant, and coverage.py records which lines each test reaches. Each
mutant is then tried with the tests that reach its change. If no test does, all tests are tried,
because coverage.py does not record processes that tests start.

Mutants that are already in the output are skipped, so you can repeat the command to resume an
interrupted run. Surviving mutants are printed as diffs.
"""

import ast
import collections
import contextlib
import copy
import difflib
import importlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from absl import app, flags

ROOT = Path(__file__).resolve().parents[1]
# Packages and modules to mutate, with the tests that should detect the changes.
TESTED = {
    "layers": "tests/layers",
    "models/losses.py": "tests/models/test_losses.py",
    "numerics": "tests/numerics",
    "text": "tests/text",
    "storage": "tests/storage",
    "search": "tests/search",
    "intents/decision.py": "tests/intents/test_decision.py",
    "evaluation": "tests/evaluation",
}
_MUTANTS = flags.DEFINE_integer("mutants", 300, "Number of mutants to draw.")
_SEED = flags.DEFINE_integer("seed", 0, "Seed of the draw.")
_ONLY = flags.DEFINE_list("only", [], "Keys of TESTED; all by default.")
_OUTPUT = flags.DEFINE_string(
    "output", None, "JSON file of mutants that were tried.", required=True
)
_TIMEOUT = flags.DEFINE_float("timeout", 600, "Time limit in seconds for the tests of an entry.")
# Imported once, before the processes that run the tests are forked.
_LARGE = ("numpy", "sklearn", "hypothesis", "onnxruntime", "tensorflow_text", "keras")

_COMPARISONS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_OPERATIONS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
_CHANGED = (
    ast.Compare, ast.BinOp, ast.BoolOp, ast.UnaryOp, ast.Constant, ast.IfExp, ast.Expr,
)  # fmt: skip


class Mutant(NamedTuple):
    """A change of one expression.

    Attributes:
      path: file, relative to the project.
      number: number of the node in the order of `ast.walk`.
      before: source of the node.
      after: source of the changed node.
      line: line of the node.
    """

    path: str
    number: int
    before: str
    after: str
    line: int

    @property
    def name(self) -> str:
        return f"{self.path}:{self.line} ({self.number}) {self.before} -> {self.after}"


def changed(node: ast.AST) -> ast.AST | None:
    """Return a changed copy of a node, or None if there is no change for this kind of node."""
    if not isinstance(node, _CHANGED):
        return None
    other = copy.deepcopy(node)
    if isinstance(other, ast.Compare) and type(other.ops[0]) in _COMPARISONS:
        other.ops[0] = _COMPARISONS[type(other.ops[0])]()
    elif isinstance(other, ast.BinOp) and type(other.op) in _OPERATIONS:
        other.op = _OPERATIONS[type(other.op)]()
    elif isinstance(other, ast.BoolOp):
        other.op = ast.And() if isinstance(other.op, ast.Or) else ast.Or()
    elif isinstance(other, ast.UnaryOp) and isinstance(other.op, ast.Not):
        return other.operand
    elif isinstance(other, ast.Constant) and isinstance(other.value, bool):
        other.value = not other.value
    elif isinstance(other, ast.Constant) and isinstance(other.value, int):
        other.value += 1
    elif isinstance(other, ast.Constant) and isinstance(other.value, float):
        other.value = 10 * other.value or 1.0
    elif isinstance(other, ast.IfExp):
        other.body, other.orelse = other.orelse, other.body
    elif isinstance(other, ast.Expr) and isinstance(other.value, ast.Call):
        return ast.Pass()
    else:
        return None
    return other


def mutants_of(path: str, source: str) -> Iterator[Mutant]:
    """Yield all mutants of a file. Annotations and `raise` statements are not changed."""
    tree = ast.parse(source)
    left_out: set[int] = set()
    for node in ast.walk(tree):
        skipped = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        if isinstance(node, ast.Raise):
            skipped.append(node)
        left_out.update(id(below) for part in skipped if part for below in ast.walk(part))
    for number, node in enumerate(ast.walk(tree)):
        if id(node) not in left_out and (other := changed(node)) is not None:
            before, after = (" ".join(ast.unparse(part).split()) for part in (node, other))
            yield Mutant(path, number, before, after, node.lineno)  # type: ignore[attr-defined]


def _nodes(source: str) -> list[Any]:
    """Return the nodes of a file. The `where` of a node is its parent, field, and index there."""
    nodes = [*ast.walk(ast.parse(source))]
    for parent in nodes:
        for name, value in ast.iter_fields(parent):
            for place, child in enumerate(value if isinstance(value, list) else [value]):
                if isinstance(child, ast.AST):
                    child.where = (parent, name, place)  # type: ignore[attr-defined]
    return nodes


def mutated(source: str, mutant: Mutant) -> str:
    """Return the source of a file after the change of a mutant."""
    nodes = _nodes(source)
    node = nodes[mutant.number]
    parent, name, place = node.where
    if isinstance(getattr(parent, name), list):
        getattr(parent, name)[place] = changed(node)
    else:
        setattr(parent, name, changed(node))
    return ast.unparse(ast.fix_missing_locations(nodes[0]))


def drawn(number: int, seed: int, only: list[str]) -> list[tuple[str, Mutant]]:
    """Draw the same number of mutants for each entry of `TESTED`.

    The mutants of an entry do not depend on the other entries.

    Args:
      number: number of mutants.
      seed: seed of the draw.
      only: entries to use; all if it is empty.

    Returns:
      A list of `(entry, mutant)`.
    """
    entries = only or [*TESTED]
    pairs: list[tuple[str, Mutant]] = []
    for i, entry in enumerate(entries):
        whole = ROOT / "convert_tf" / entry
        files = sorted(whole.rglob("*.py")) if whole.is_dir() else [whole]
        known = [
            mutant
            for file in files
            for mutant in mutants_of(str(file.relative_to(ROOT)), file.read_text(encoding="utf-8"))
        ]
        share = number * (i + 1) // len(entries) - number * i // len(entries)
        sampled = random.Random(f"{seed} {entry}").sample(known, min(share, len(known)))
        pairs += [(entry, mutant) for mutant in sampled]
    return pairs


class Recording(NamedTuple):
    """The lines that the tests of an entry reach.

    Attributes:
      seconds: time of each test by id.
      reached: ids of the tests that run a line, by path and line.
    """

    seconds: dict[str, float]
    reached: dict[str, dict[int, set[str]]]


class _Recorder:
    """A pytest plugin that records which lines of the package each test runs."""

    def __init__(self, project: Path) -> None:
        import coverage

        self._project = project
        self._coverage = coverage.Coverage(
            data_file=None, config_file=False, include=[f"{project}/convert_tf/*"]
        )
        self._context = ""
        self._seconds: dict[str, float] = {}
        self._fixtures: dict[str, list[str]] = {}

    def pytest_sessionstart(self) -> None:
        self._coverage.start()

    @contextlib.contextmanager
    def _in_context(self, name: str) -> Iterator[None]:
        before, self._context = self._context, name
        self._coverage.switch_context(name)
        try:
            yield
        finally:
            self._context = before
            self._coverage.switch_context(before)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        started = time.monotonic()
        with self._in_context(item.nodeid):
            done = yield
        self._seconds[item.nodeid] = time.monotonic() - started
        self._fixtures[item.nodeid] = item.fixturenames  # type: ignore[attr-defined]
        return done

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        with self._in_context(fixturedef.argname):  # counts for all tests that use it
            return (yield)

    def recording(self) -> Recording:
        self._coverage.stop()
        tests_of = collections.defaultdict(set)
        for test, fixtures in self._fixtures.items():
            for context in (test, *fixtures):
                tests_of[context].add(test)
        data = self._coverage.get_data()
        return Recording(
            self._seconds,
            {
                str(Path(path).relative_to(self._project)): {
                    line: set().union(*(tests_of[context] for context in contexts))
                    for line, contexts in data.contexts_by_lineno(path).items()
                }
                for path in data.measured_files()
            },
        )


class _Selection:
    """A pytest plugin that runs only the given tests, in the given order."""

    def __init__(self, tests: list[str]) -> None:
        self._places = {test: place for place, test in enumerate(tests)}

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Iterator[None]:
        yield
        items[:] = [item for item in items if item.nodeid in self._places]
        items.sort(key=lambda item: self._places[item.nodeid])


def executed_lines(source: str, mutant: Mutant) -> range | None:
    """Return the lines of the statement that a mutant changes, or None if it runs at import.

    If the statement has a body, these are only the lines before the body.
    """
    node = _nodes(source)[mutant.number]
    statement, is_in_function = None, False
    while hasattr(node, "where"):
        if statement is None and isinstance(node, ast.stmt):
            statement = node
        node, name, _ = node.where
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        is_in_function |= is_function and name == "body"
    if statement is None or not is_in_function:
        return None
    last = statement.end_lineno or statement.lineno
    if body := getattr(statement, "body", None):
        last = max(statement.lineno, body[0].lineno - 1)
    return range(statement.lineno, last + 1)


def selected(recording: Recording, source: str, mutant: Mutant) -> list[str]:
    """Return the tests that may detect a mutant, fastest first.

    Tests of the same file stay together, so that they can share fixtures. If the changed statement
    runs at import or in no test, all tests are returned. Tests that run other lines of the changed
    file then come first.
    """
    reached = recording.reached.get(mutant.path, {})
    of_file = set().union(*reached.values())
    lines = executed_lines(source, mutant)
    tests = {*recording.seconds}
    if lines is not None:
        tests = set().union(*(reached.get(line, ()) for line in lines)) or tests
    seconds_of_files: collections.Counter[str] = collections.Counter()
    for test in tests:
        seconds_of_files[test.split("::")[0]] += recording.seconds[test]

    def order(test: str) -> tuple[bool, float, str, float]:
        file = test.split("::")[0]
        return test not in of_file, seconds_of_files[file], file, recording.seconds[test]

    return sorted(tests, key=order)


def _in_fork(project: Path, call: Callable[[], Any], seconds: float) -> Any:
    """Return the result of `call` in a fork of this process, or None if it takes too long or dies.

    At that point the large libraries are imported, but no module of convert_tf.

    Args:
      project: folder of the project to import.
      call: the function to call.
      seconds: time limit.
    """

    def run() -> None:
        os.setsid()
        os.chdir(project)
        sys.path.insert(0, str(project))
        os.environ.update(PYTHONPATH=str(project), PYTHONDONTWRITEBYTECODE="1")
        sys.dont_write_bytecode = True
        for flag in (_MUTANTS, _SEED, _ONLY, _OUTPUT, _TIMEOUT):
            delattr(flags.FLAGS, flag.name)  # tests load scripts that define the same names
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        writing.send(call())

    forking = multiprocessing.get_context("fork")
    reading, writing = forking.Pipe(duplex=False)
    child = forking.Process(target=run)
    child.start()
    writing.close()
    try:
        return reading.recv() if reading.poll(seconds) else None
    except EOFError:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.join()


def _pytest(arguments: list[str], plugin: object) -> int:
    return pytest.main(["-q", "-x", "-p", "no:cacheprovider", *arguments], [plugin])


def recorded(project: Path, entry: str) -> Recording:
    """Run the tests of an entry, except slow ones, in a copy of the project without a mutant.

    Args:
      project: the copy.
      entry: key of `TESTED`.

    Raises:
      ValueError: if a test fails, or the tests take too long.
    """

    def call() -> tuple[Any, ...] | None:
        recorder = _Recorder(project)
        return None if _pytest([TESTED[entry]], recorder) else tuple(recorder.recording())

    fields = _in_fork(project, call, _TIMEOUT.value)
    if fields is None:
        raise ValueError(f"{TESTED[entry]} fails without a mutant, or takes longer than --timeout.")
    return Recording(*fields)


def is_killed(project: Path, mutant: Mutant, tests: list[str], seconds: float) -> bool:
    """Return whether tests fail in a copy of the project with the change of a mutant.

    Args:
      project: the copy. It is restored afterwards.
      mutant: the change.
      tests: ids of the tests.
      seconds: time limit, after which the mutant counts as killed.
    """
    path = project / mutant.path
    source = path.read_text(encoding="utf-8")
    files = [*dict.fromkeys(test.split("::")[0] for test in tests)]
    try:
        path.write_text(mutated(source, mutant), encoding="utf-8")
        status = _in_fork(project, lambda: int(_pytest(files, _Selection(tests))), seconds)
    finally:
        path.write_text(source, encoding="utf-8")
    return status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def difference(source: str, mutant: Mutant) -> str:
    """Return the change of a mutant as a diff."""
    before, after = ast.unparse(ast.parse(source)), mutated(source, mutant)
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1)
    return "\n".join([mutant.name, *[*lines][2:]])


def main(_: list[str]) -> None:
    output = Path(_OUTPUT.value)
    tried = json.loads(output.read_text(encoding="utf-8")) if output.exists() else {}
    pairs = drawn(_MUTANTS.value, _SEED.value, _ONLY.value)
    for library in _LARGE:
        importlib.import_module(library)
    recordings: dict[str, Recording] = {}
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder).resolve() / "project"
        shutil.copytree(ROOT, project, ignore=shutil.ignore_patterns(".git", ".venv", "runs"))
        for i, (entry, mutant) in enumerate(pairs):
            if mutant.name in tried:
                continue
            if entry not in recordings:
                recordings[entry] = recorded(project, entry)
            source = (project / mutant.path).read_text(encoding="utf-8")
            tests = selected(recordings[entry], source, mutant)
            seconds = 60 + 10 * sum(recordings[entry].seconds[test] for test in tests)
            is_dead = is_killed(project, mutant, tests, seconds)
            tried[mutant.name] = {"entry": entry, "killed": is_dead, "tests": len(tests)}
            output.write_text(json.dumps(tried, indent=1), encoding="utf-8")
            print(
                f"{i + 1}/{len(pairs)}  {time.monotonic() - started:.0f} s  "
                f"{'killed by' if is_dead else 'SURVIVED'} {len(tests)} tests  {mutant.name}",
                flush=True,
            )
        for _, mutant in pairs:
            if not tried[mutant.name]["killed"]:
                print(difference((project / mutant.path).read_text(encoding="utf-8"), mutant))
    counts: dict[str, collections.Counter[bool]] = collections.defaultdict(collections.Counter)
    for facts in tried.values():
        counts[facts["entry"]][facts["killed"]] += 1
    for entry, count in counts.items():
        print(f"{entry}: {count[True]} killed, {count[False]} survived")


if __name__ == "__main__":
    app.run(main)
