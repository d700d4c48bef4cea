"""Show the examples in docstrings as code. Griffe would otherwise treat them as text."""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^Example:\n((?:[ ]{2,}.*\n?|\n)+)", re.MULTILINE)


class ExamplesAsCode(griffe.Extension):
    """Puts a code fence around each block after `Example:`."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(_fenced, obj.docstring.value)


def _fenced(match: re.Match[str]) -> str:
    lines = match[1].rstrip().splitlines()
    width = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    code = "\n".join(f"    {line[width:]}" for line in lines)
    return f"Example:\n    ```python\n{code}\n    ```\n"
