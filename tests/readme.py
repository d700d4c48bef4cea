"""The README's own lines, for tests that run them."""

import re
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"


def snippets(section: str) -> list[str]:
    """The Python of a section `### section` of the README, block by block."""
    text = README.read_text(encoding="utf-8").split(f"\n### {section}\n")[1]
    return re.findall(r"```python\n(.*?)```", re.split(r"\n###? ", text)[0], re.DOTALL)


def run_snippet(source: str, names: dict[str, str]) -> dict:
    """The variables after a block, with some of its paths replaced."""
    for path, other in names.items():
        assert path in source
        source = source.replace(path, other)
    found: dict = {}
    exec(source, found)
    return found
