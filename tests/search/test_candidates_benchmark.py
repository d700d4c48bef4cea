"""`benchmarks/candidates.py` measures the search time for each head."""

import json
from pathlib import Path

import pytest
from support.script_calls import call_script

pytestmark = [pytest.mark.slow, pytest.mark.traced]

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "candidates.py"


def test_each_head_is_timed(tmp_path, monkeypatch, capsys):
    call_script(
        monkeypatch, SCRIPT, "--model=tiny", "--vocab_size=100", "--candidates=40", "--turns=1",
        "--cross_turns=1", f"--output={tmp_path / 'candidates.json'}",
    )  # fmt: skip
    report = json.loads((tmp_path / "candidates.json").read_text(encoding="utf-8"))
    assert {"bi, 40", "poly 16 learnt, 40", "poly 360 first_m, 40", "cross, 40"} <= report.keys()
    assert report["poly 16 learnt, 40"]["context_vectors"] == 16
    assert "poly 16 learnt" in capsys.readouterr().out
