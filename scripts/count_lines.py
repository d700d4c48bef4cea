"""Print the lines of code of each package of `convert_tf` and of each folder of tests.

    python scripts/count_lines.py

A line counts if it holds code. Blank lines, comments and docstrings do not count.
"""

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_NOT_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


def code_lines(source: str) -> int:
    """Return how many lines of `source` hold code.

    Args:
      source: the text of a Python file.

    Raises:
      SyntaxError: if it is not Python.
    """
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if first is not None and ast.get_docstring(node, clean=False) is not None:
                lines.difference_update(range(first.lineno, first.end_lineno + 1))
    return len(lines)


def count_by_package(folder: Path) -> Counter[str]:
    """Return the lines of code under `folder`, by the folder or file directly in it."""
    counts: Counter[str] = Counter()
    for path in sorted(folder.rglob("*.py")):
        counts[path.relative_to(folder).parts[0]] += code_lines(path.read_text(encoding="utf-8"))
    return counts


def main() -> None:
    code, tests = count_by_package(ROOT / "convert_tf"), count_by_package(ROOT / "tests")
    print(f"{'':24}{'code':>8}{'tests':>8}")
    for name in sorted({*code, *tests}):
        print(f"{name:24}{code[name] or '':>8}{tests[name] or '':>8}")
    print(f"{'all':24}{code.total():>8}{tests.total():>8}")


if __name__ == "__main__":
    main()
