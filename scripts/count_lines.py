"""Print the number of code tokens of each package and folder of tests, and long functions.

    python scripts/count_lines.py

Comments, docstrings, line breaks, indentation and commas are not counted, so the count does not
depend on the layout of the code. A function is long if it has more than 60 lines without its
docstring.
"""

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MAX_LINES = 60
_LAYOUT = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _docstring(node: ast.AST) -> ast.stmt | None:
    """Return the statement that is the docstring of a module, class or function."""
    has_body = isinstance(node, (ast.Module, ast.ClassDef, *_FUNCTIONS))
    return node.body[0] if has_body and ast.get_docstring(node, clean=False) is not None else None


def code_tokens(source: str) -> int:
    """Return the number of code tokens in `source`.

    Args:
      source: content of a Python file.

    Raises:
      SyntaxError: if `source` is not valid Python.
    """
    docstrings = filter(None, map(_docstring, ast.walk(ast.parse(source))))
    lines = {line for node in docstrings for line in range(node.lineno, node.end_lineno + 1)}
    return sum(
        token.type not in _LAYOUT and token.string != "," and token.start[0] not in lines
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
    )


def long_functions(source: str) -> Iterator[tuple[str, int]]:
    """Yield the name of each long function and its number of lines without the docstring."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _FUNCTIONS):
            lines = node.end_lineno - node.lineno + 1
            if docstring := _docstring(node):
                lines -= docstring.end_lineno - docstring.lineno + 1
            if lines > MAX_LINES:
                yield node.name, lines


def _files(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(folder.rglob("*.py")):
        yield path.relative_to(folder), path.read_text(encoding="utf-8")


def count_by_package(folder: Path) -> Counter[str]:
    """Return the number of code tokens for each file and folder directly in `folder`."""
    counts: Counter[str] = Counter()
    for path, source in _files(folder):
        counts[path.parts[0]] += code_tokens(source)
    return counts


def main() -> None:
    code, tests = count_by_package(ROOT / "convert_tf"), count_by_package(ROOT / "tests")
    benchmarks = count_by_package(ROOT / "benchmarks").total()
    print(f"{'tokens':24}{'code':>8}{'tests':>8}")
    for name in sorted({*code, *tests}):
        print(f"{name:24}{code[name] or '':>8}{tests[name] or '':>8}")
    print(f"{'all':24}{code.total():>8}{tests.total():>8}")
    print(f"{'benchmarks':24}{benchmarks:>8}")
    print(f"\nfunctions of more than {MAX_LINES} lines")
    for folder in ("convert_tf", "benchmarks"):
        for path, source in _files(ROOT / folder):
            for name, lines in long_functions(source):
                print(f"  {folder}/{path}: {name}, {lines}")


if __name__ == "__main__":
    main()
