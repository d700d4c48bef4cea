"""Run notebooks and write their outputs into them.

    python -m scripts.run_notebooks notebooks/*.ipynb

Each notebook runs in an empty folder and a separate process. The cells are plain Python, so the
script does not need Jupyter. The outputs of a cell are what it prints and the value of its last
line. What a cell's child processes print is not an output: it goes to the script's own output.
"""

import ast
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from convert_tf.storage.files import write_file

Cell = dict[str, Any]


def run_cell(source: str, names: dict[str, Any], label: str) -> list[dict[str, Any]]:
    """Run the code of a cell, and return its outputs in the notebook format.

    Args:
      source: the code.
      names: variables of earlier cells; this cell updates them.
      label: name of the cell in tracebacks.

    Raises:
      RuntimeError: if the cell ends the process, as `sys.exit` does.
    """
    body = ast.parse(source, label).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(ast.Module(body, []), label, "exec"), names)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), label, "eval"), names)
        except SystemExit as error:
            raise RuntimeError(f"{label} ends the process. Remove its sys.exit().") from error
    outputs: list[dict[str, Any]] = []
    if text := printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(text)})
    if value is not None:
        data = {"text/plain": _lines(repr(value))}
        outputs.append(
            {"data": data, "execution_count": 0, "metadata": {}, "output_type": "execute_result"}
        )
    return outputs


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def with_outputs(notebook: dict[str, Any], name: str) -> dict[str, Any]:
    """Run the cells of a notebook in the current folder; return the notebook with their outputs."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells: list[Cell] = []
    number = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            outputs = run_cell("".join(cell["source"]), names, f"{name}, cell {number}")
            for output in outputs:
                if "execution_count" in output:
                    output["execution_count"] = number
            cell = {**cell, "execution_count": number, "outputs": outputs}
        cells.append(cell)
    return {**notebook, "cells": cells}


def main() -> None:
    root = Path(__file__).resolve().parents[1]
    if sys.argv[1:2] == ["--here"]:  # runs one notebook in the current folder
        notebook = json.loads(sys.stdin.read())
        done = with_outputs(notebook, sys.argv[2])
        text = json.dumps(done, indent=1, ensure_ascii=False) + "\n"
        Path(sys.argv[3]).write_text(text, encoding="utf-8")
        return
    for path in map(Path, sys.argv[1:]):
        with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile() as written:
            paths = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
            result = subprocess.run(
                [sys.executable, str(Path(__file__).resolve()), "--here", path.name, written.name],
                input=path.read_text(encoding="utf-8"),
                encoding="utf-8",
                cwd=folder,
                env={**os.environ, "PYTHONPATH": paths},
            )
            text = Path(written.name).read_text(encoding="utf-8")
        if result.returncode or not _is_json(text):
            sys.exit(f"run_notebooks.py: {path} failed and was not changed.")
        write_file(path, text)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:  # a cell ended the process, for example with os._exit
        return False
    return True


if __name__ == "__main__":
    main()
