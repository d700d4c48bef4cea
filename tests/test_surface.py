"""The public interface changes only together with docs/surface.txt."""

import ast
import difflib
from pathlib import Path

import pytest

import convert_tf
from convert_tf import SentenceEncoder

pytest.importorskip("fastapi")
from scripts import list_surface

LISTED = Path(__file__).resolve().parents[1] / "docs" / "surface.txt"


def test_the_surface_is_the_one_that_is_listed():
    listed, found = LISTED.read_text(encoding="utf-8"), list_surface.surface()
    changes = "\n".join(difflib.unified_diff(listed.splitlines(), found.splitlines(), lineterm=""))
    assert not changes, (
        "Write the list again (python -m scripts.list_surface > docs/surface.txt), and say in "
        f"CHANGELOG.md what users have to change:\n{changes}"
    )


@pytest.mark.parametrize(
    "entry",
    [
        "SentenceEncoder.encode(texts, *, kind='sentence', batch_size=None, show_progress=False)",
        "EncoderTraining.batch_size = 512",
        "train --steps 966000",
        "EncodeRequest.kind 'sentence'",
        "similarity: encode_similarity, similarity_encoding",
    ],
)
def test_parts_of_the_surface_are_listed(entry):
    assert entry in LISTED.read_text(encoding="utf-8").splitlines()


def test_a_changed_default_is_seen(monkeypatch):
    defaults = SentenceEncoder.encode.__kwdefaults__ | {"kind": "similarity"}
    monkeypatch.setattr(SentenceEncoder.encode, "__kwdefaults__", defaults)
    assert list_surface.surface() != LISTED.read_text(encoding="utf-8")


def test_type_checkers_know_the_names_of_the_surface():
    """Type checkers ignore `__getattr__` and computed lists."""
    body = ast.parse(Path(convert_tf.__file__).read_text(encoding="utf-8")).body
    imported = {
        name.name: node.module
        for block in body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        for name in node.names
    }
    assert imported == convert_tf._LAZY_NAMES
    assert {*convert_tf.__all__} == {"__version__", *imported}
