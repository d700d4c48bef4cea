"""Train Rasa with a module and send messages. Run in the environment of Rasa 2.8 or 3.6.

`python rasa_probe.py MODULE` runs `rasa train nlu` and prints one line of JSON.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["RASA_TELEMETRY_ENABLED"] = "false"

import rasa
import rasa.version

IS_2 = rasa.version.__version__.startswith("2.")
CONFIG = """\
{first}
language: en
pipeline:
- name: {tokenizer}
- name: ConveRTFeaturizer
  model_url: {module}
- name: DIETClassifier
  epochs: 30
  constrain_similarities: true
policies: []
"""
NLU = """\
version: "{version}"
nlu:
- intent: delivery
  examples: |
    - where is my parcel?
    - my package never came
    - the courier left it at the [wrong house](place)
    - when will it arrive?
    - it was delivered to my [neighbour](place)
- intent: refund
  examples: |
    - can you pay me back?
    - I would like to return my [jacket](item)
    - I want my money back!
    - please refund my [order](item)
    - how do I send this back
- intent: login
  examples: |
    - I cannot sign in
    - it says my password is wrong
    - reset my password, please
    - the app does not let me log in
    - my account is locked
"""
EXPECTED = {
    "my parcel has not arrived": "delivery",
    "could I have my money back, please?": "refund",
    "my password does not work!!!": "login",
}
ODD = {
    "punctuation": '"...?!", (he said) - {yes} [no]; 50% off...',
    "emoji": "\U0001f600 hello \U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea",
    "nothing": "",
    "20,000 characters": "where is my parcel? " * 1000,
    "NUL": "where\x00is my \x00parcel",
    "CJK": "\u4f60\u597d \u4e16\u754c \u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8",
}


def parser_of(model):
    """Return a function that parses a text with Rasa."""
    if IS_2:
        import rasa.model
        from rasa.nlu.model import Interpreter

        interpreter = Interpreter.load(os.path.join(rasa.model.get_model(model), "nlu"))
        return interpreter.parse
    from rasa.core.agent import Agent

    agent = Agent.load(model)
    return lambda text: asyncio.run(agent.parse_message(text))


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        config = CONFIG.format(
            first="" if IS_2 else "recipe: default.v1",
            tokenizer="ConveRTTokenizer" if IS_2 else "WhitespaceTokenizer",
            module=os.environ["MODULE"],
        )
        Path("config.yml").write_text(config)
        Path("nlu.yml").write_text(NLU.format(version="2.0" if IS_2 else "3.1"))
        command = [sys.executable, "-m", "rasa", "train", "nlu", "--config", "config.yml"]
        trained = subprocess.run([*command, "--nlu", "nlu.yml", "--out", "models"])
        assert trained.returncode == 0, trained.returncode
        (model,) = Path("models").iterdir()
        parse = parser_of(str(model))
        for text, intent in EXPECTED.items():
            found = parse(text)["intent"]["name"]
            assert found == intent, (text, found)
        for name, text in ODD.items():
            found = parse(text)["intent"]
            assert found["name"] in (*EXPECTED.values(), None), (name, found)
    print(json.dumps({"Rasa": rasa.version.__version__, "messages": len(EXPECTED) + len(ODD)}))


os.environ["MODULE"] = os.path.abspath(sys.argv[1])
main()
