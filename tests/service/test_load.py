"""The load test of a service detects answers that belong to another request."""

import asyncio
import os
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from support.script_calls import script_module
from support.services import letter_encoder, running

from convert_tf import IntentClassifier
from convert_tf.service.application import Model, make_application
from convert_tf.service.batching import Batcher

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "service_load.py"


@pytest.fixture(scope="module")
def script():
    return script_module(SCRIPT)


def said_of(script, model, capsys, *, clients=4):
    with running(make_application(model)) as url:
        asyncio.run(script.load(url, clients=clients, seconds=1, pid=os.getpid()))
    return capsys.readouterr().out


@pytest.fixture(scope="module")
def model():
    encoder, _ = letter_encoder()
    texts = ["where is my parcel", "has it left", "refund me", "money back"]
    classifier = IntentClassifier(encoder, head="logistic").fit(texts, ["a", "a", "b", "b"])
    return Model(encoder, "letters", classifier)


def test_right_answers_are_counted(script, model, capsys):
    said = said_of(script, model, capsys)
    assert "'/encode 200': " in said and "'/classify 200': " in said
    assert not any(word in said for word in ("wrong", "lost", "incomplete"))
    alone = said_of(script, Model(model.encoder, "letters"), capsys)
    assert "'/encode 200': " in alone and "classify" not in alone


def test_answers_of_others_are_found(script, model, capsys, monkeypatch):
    called = Batcher.__call__

    async def mixed_up(self, what, items):
        results = await called(self, what, items)
        return results[1:] + results[:1]

    monkeypatch.setattr(Batcher, "__call__", mixed_up)
    said = said_of(script, model, capsys)
    assert "'/encode wrong vector': " in said
    assert "'/classify wrong texts': " in said
