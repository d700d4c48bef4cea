"""The tutorials run with the released modules, each in its own folder."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import own_environment

FOLDER = Path(__file__).resolve().parents[2] / "examples"
# Expected output. It depends on the modules, so it changes with them.
PRINTED = {
    "choose_tool": [
        "Oslo tomorrow?\n  get_forecast", "in yen?\n  convert_currency", "cake out\n  set_timer",
        "file that\n  create_issue", "warehouse?\n  track_parcel",
    ],
    "faq_search": [
        "How do I change my password?", "When will my order arrive?",
        "How do I send something back?", "Do you deliver abroad?",
    ],
    "intent_bot": ["on its way", "a new password", "asked for the refund", "Do you ask about"],
    "intent_map": ["placed 12 examples", "wrote map.png"],
    "log_to_bot": [
        "240 messages are in", "'intent': 'delivery'", "clear changes", "repair",
    ],
    "rasa_pipeline": ["book      do you have room", "complain  my steak", "order     I'll have"],
    "fine_tune": ["The manual of the kettle is on our site"],
    "rerank": ["poly", "cross", "I think the concert is at"],
}  # fmt: skip


def test_each_example_is_tested():
    elsewhere = {"mcp_server"}  # test_mcp_server.py
    assert {path.stem for path in FOLDER.glob("*.py")} == {*PRINTED} | elsewhere


@pytest.mark.parametrize(
    "name", [n if n == "faq_search" else pytest.param(n, marks=pytest.mark.slow) for n in PRINTED]
)
def test_an_example_runs(name, tmp_path):
    done = subprocess.run(
        [sys.executable, FOLDER / f"{name}.py"],
        cwd=tmp_path,
        env={**own_environment(), "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for expected in PRINTED[name]:
        assert expected in done.stdout, done.stdout
    # Other processors round vectors differently, which affects classifiers of few examples.
    shares = [int(share) for share in re.findall(r"(?:accuracy|after:) (\d+)", done.stdout)]
    assert len(shares) == (2 if name == "log_to_bot" else 0), done.stdout
    assert min(shares, default=100) >= 80, done.stdout
