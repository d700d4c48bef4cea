"""Readers of text files handle damaged files and files of another format."""

from collections import Counter

import pytest
from support.commands import ROOT
from support.script_calls import script_module

fuzz_readers = script_module(ROOT / "benchmarks" / "fuzz_readers.py")


@pytest.mark.parametrize("name", fuzz_readers.READERS)
@pytest.mark.parametrize("suffix", ["", ".csv", ".jsonl", ".yml", ".gz"])
def test_files_are_read_or_refused_by_name(tmp_path, name, suffix):
    outcomes = Counter()
    fuzz_readers.fuzz(name, str(tmp_path / f"any{suffix}"), 12, 0, outcomes)
    assert outcomes["tried"] >= 12
    assert outcomes["read"] + outcomes["refused"] == outcomes["tried"]


@pytest.mark.parametrize(
    ("reader", "said"),
    [
        (lambda path: {}[path], "any"),
        (lambda path: int("x"), "invalid literal"),
        (lambda path: [], "the reader read nothing and reported nothing"),
        (lambda path: bytes([255]).decode(), "'utf-8' codec"),
    ],
)
def test_planted_faults_are_found(tmp_path, monkeypatch, reader, said):
    monkeypatch.setitem(fuzz_readers.READERS, "planted", reader)
    with pytest.raises((AssertionError, KeyError), match=said):
        fuzz_readers.fuzz("planted", str(tmp_path / "any"), 50, 0, Counter())
