"""Draw mutants of the package, and say which of them the tests of their package do not notice.

```
python -m scripts.mutate --mutants 300 --seed 0 --output mutants.json
python -m scripts.mutate --only layers,text --mutants 40 --output mutants.json
```

A mutant is a copy of the project with one change: another number, comparison or operation, a
condition that is negated, a call whose result nobody reads left out. It is killed if a test of the
folder in `tests/` that is named like its package fails. Mutants that are in the output already are
not tried again, so a run goes on where it was stopped. Survivors are printed as diffs.
"""

import ast
import collections
import copy
import difflib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from absl import app, flags

from convert_tf.storage.files import write_file
from convert_tf.storage.json_text import written_json

ROOT = Path(__file__).resolve().parents[1]
# Packages and modules whose formulas and promises tests should hold, with their tests.
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
_ONLY = flags.DEFINE_list("only", [], "Names of TESTED; all by default.")
_OUTPUT = flags.DEFINE_string("output", None, "JSON file of the mutants tried.", required=True)
_TIMEOUT = flags.DEFINE_float("timeout", 600, "Seconds for the tests; a mutant that hangs is dead.")

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
      number: of the node, in the order of `ast.walk`.
      before, after: source of the node.
      line: of the node.
    """

    path: str
    number: int
    before: str
    after: str
    line: int

    @property
    def name(self) -> str:
        return f"{self.path}:{self.line} {self.before} -> {self.after}"


def changed(node: ast.AST) -> ast.AST | None:
    """Return a node that stands for another value, or None where there is no change to make."""
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
    """Yield all mutants of a file, except in annotations and in messages of errors."""
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


def mutated(source: str, mutant: Mutant) -> str:
    """Return the source of a file with the change of a mutant."""
    tree = ast.parse(source)
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            values = value if isinstance(value, list) else [value]
            for place, child in enumerate(values):
                if isinstance(child, ast.AST):
                    child.where = (parent, name, place if isinstance(value, list) else None)  # type: ignore[attr-defined]
    node = list(ast.walk(tree))[mutant.number]
    parent, name, place = node.where  # type: ignore[attr-defined]
    other = changed(node)
    if place is None:
        setattr(parent, name, other)
    else:
        getattr(parent, name)[place] = other
    return ast.unparse(ast.fix_missing_locations(tree))


def drawn(number: int, seed: int, only: list[str]) -> list[tuple[str, Mutant]]:
    """Draw mutants: the same number of each entry of `TESTED`, in the order of `TESTED`.

    Returns:
      `(entry, mutant)` of each.
    """
    rng = random.Random(seed)
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
        pairs += [(entry, mutant) for mutant in rng.sample(known, min(share, len(known)))]
    return pairs


def tests_pass(project: Path, entry: str) -> bool:
    """Run the tests of an entry in a copy of the project. Those marked slow do not run."""
    environment = {**os.environ, "PYTHONPATH": str(project), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", TESTED[entry]]
    try:
        done = subprocess.run(
            command, cwd=project, env=environment, capture_output=True, timeout=_TIMEOUT.value
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def is_killed(project: Path, entry: str, mutant: Mutant) -> bool:
    """Run the tests of an entry in a copy of the project that has the change of a mutant."""
    path = project / mutant.path
    source = path.read_text(encoding="utf-8")
    try:
        path.write_text(mutated(source, mutant), encoding="utf-8")
        return not tests_pass(project, entry)
    finally:
        path.write_text(source, encoding="utf-8")


def difference(mutant: Mutant) -> str:
    """Return the change of a mutant as a diff."""
    source = (ROOT / mutant.path).read_text(encoding="utf-8")
    before, after = ast.unparse(ast.parse(source)), mutated(source, mutant)
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1)
    return "\n".join([mutant.name, *[*lines][2:]])


def main(_: list[str]) -> None:
    output = Path(_OUTPUT.value)
    tried = json.loads(output.read_text(encoding="utf-8")) if output.exists() else {}
    pairs = drawn(_MUTANTS.value, _SEED.value, _ONLY.value)
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "project"
        shutil.copytree(ROOT, project, ignore=shutil.ignore_patterns(".git", ".venv", "runs"))
        for entry in {entry: None for entry, mutant in pairs if mutant.name not in tried}:
            if not tests_pass(project, entry):
                raise ValueError(f"{TESTED[entry]} fails without a mutant, or takes too long.")
        started = time.monotonic()
        for i, (entry, mutant) in enumerate(pairs):
            if mutant.name in tried:
                continue
            is_dead = is_killed(project, entry, mutant)
            tried[mutant.name] = {"entry": entry, "killed": is_dead}
            write_file(output, written_json(tried).encode())
            print(
                f"{i + 1}/{len(pairs)}  {time.monotonic() - started:.0f} s  "
                f"{'killed' if is_dead else 'SURVIVED'}  {mutant.name}",
                flush=True,
            )
    counts: dict[str, collections.Counter[bool]] = collections.defaultdict(collections.Counter)
    for facts in tried.values():
        counts[facts["entry"]][facts["killed"]] += 1
    for entry, count in counts.items():
        print(f"{entry}: {count[True]} killed, {count[False]} survived")
    for _, mutant in pairs:
        if not tried[mutant.name]["killed"]:
            print(difference(mutant))


if __name__ == "__main__":
    app.run(main)
