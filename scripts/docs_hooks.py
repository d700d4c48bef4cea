"""Generate pages that `mkdocs build` adds to `docs/`: tutorials, the reference, and others.

A tutorial is made from a script in `examples/`. Its docstring becomes the text, and the code below
is the rest of the script, which `tests/examples` runs. The reference lists the names at the top of
the package. Pages such as README.md are copied from outside `docs/`.
"""

import ast
import re
from pathlib import Path
from posixpath import normpath
from typing import Any

from mkdocs.structure.files import File, Files

import convert_tf

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
# Pages outside docs/, with their names on the site.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "hub_modules/README.md": "modules.md",
}
_LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
_IMAGES = (".png", ".webp", ".svg")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in `docs/`, and the images that pages show."""
    for source, name in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=text))
    for path in sorted(EXAMPLES.glob("*.py")):
        name = f"tutorials/{path.stem}.md"
        files.append(File.generated(config, name, content=tutorial(path)))
    files.append(File.generated(config, "reference.md", content=reference()))
    for folder in ("hub_modules/recipes", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in _IMAGES:
                name = path.relative_to(ROOT).as_posix()
                files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def tutorial(path: Path) -> str:
    """Return the page of a script: its docstring, followed by its code."""
    source = path.read_text(encoding="utf-8")
    text = ast.get_docstring(ast.parse(source)) or ""
    code = source.split('"""', 2)[2].strip()
    ran = f"This is the code of `{path.relative_to(ROOT)}`, which the tests run unchanged:"
    return f"{text}\n\n{ran}\n\n```python\n{code}\n```\n"


def reference() -> str:
    """Return the page that documents the names at the top of the package."""
    entries = [f"::: {module}.{name}" for name, module in convert_tf._LAZY_NAMES.items()]
    return "\n\n".join(["# Reference", *entries]) + "\n"


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """Change links to repository files into links within the site, or into plain text."""
    own = page.file.src_uri
    source = next((path for path, name in PAGES.items() if name == own), f"docs/{own}")

    def on_site(match: re.Match[str]) -> str:
        target, _, anchor = match[1].partition("#")
        if "://" in target or not target:
            return match[1]
        path = normpath(f"{Path(source).parent.as_posix()}/{target}")
        name = PAGES.get(path, path.removeprefix("docs/"))
        if files.get_file_from_path(name) is None:
            return match[1] if not (ROOT / path).exists() else ""
        up = "../" * own.count("/")
        return f"{up}{name}{'#' + anchor if anchor else ''}"

    linked = _LINK.sub(on_site, markdown)
    return re.sub(r"\[([^\]]+)\]\(\)", r"\1", linked)
