"""`benchmarks/intents.py`: its rows and figures, on sentences that two encoders separate."""

import json
from pathlib import Path

import numpy as np
from support.intent_examples import LABELS, OUTSIDE, TEXTS, WordEncoder, write_csv
from support.script_calls import call_script

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "intents.py"


def test_rows_regimes_and_seeds(tmp_path, monkeypatch, capsys):
    train = write_csv(tmp_path / "train.csv")
    test = write_csv(tmp_path / "test.csv", [*TEXTS, *OUTSIDE], [*LABELS, "oos", "oos", "oos"])
    texts = [*TEXTS, *OUTSIDE]
    np.savez(tmp_path / "words.npz", texts=texts, vectors=WordEncoder()(texts))
    call_script(
        monkeypatch, SCRIPT, f"--train={train}", f"--test={test}", f"--validation={test}",
        "--shots=2,full", f"--vectors=words={tmp_path / 'words.npz'}", "--heads=logistic",
        "--lexical", "--tfidf", "--seeds=2", f"--output={tmp_path / 'results.json'}",
    )  # fmt: skip
    results = json.loads((tmp_path / "results.json").read_text())
    assert [*results] == ["TF-IDF + logistic regression", "words + logistic",
                          "words + logistic + words"]  # fmt: skip
    runs = results["words + logistic"]["2"]
    assert len(runs) == 2 and runs[0]["accuracy"] != runs[1]["accuracy"]
    assert results["words + logistic"]["full"][0]["accuracy"] == 1
    assert runs[0]["out_of_scope_recall"] >= 0.5
    mean = 100 * np.mean([run["accuracy"] for run in runs])
    assert f"{mean:.1f} ± " in capsys.readouterr().out
