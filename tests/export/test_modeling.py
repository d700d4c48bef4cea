"""The PyTorch model of a Hugging Face folder in transformers: half precision, 8 bits, embeddings.

PyTorch and transformers are not in the tests' environment. To run these tests, install both into
a folder (`pip install --target`), and add the folder to PYTHONPATH.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import ROOT, own_environment
from support.huggingface_export import exported_folder

if not all(map(importlib.util.find_spec, ("torch", "transformers"))):
    pytest.skip("PyTorch and transformers are not installed", allow_module_level=True)

pytestmark = pytest.mark.slow

# Runs in its own process, because TensorFlow and PyTorch do not always load into the same one.
PROGRAM = """
import importlib, json, sys, warnings
warnings.simplefilter("ignore")
import numpy as np, torch, transformers

folder = sys.argv[1]
tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
prompts = json.load(open(f"{folder}/config_sentence_transformers.json"))["prompts"]
texts = ["how are you?", "", "hello,world!yes.", "long " * 60]
texts = [prompt + text for prompt in ("", *prompts.values()) for text in texts]
inputs = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")

def opened(**options):
    return transformers.AutoModel.from_pretrained(folder, trust_remote_code=True, **options).eval()

def vectors(model):
    with torch.no_grad():
        return model(**inputs).last_hidden_state[:, 0].float().numpy()

def lowest_cosine(found):
    lengths = np.linalg.norm(expected, axis=1) * np.linalg.norm(found, axis=1)
    cosines = (found * expected).sum(1) / np.maximum(lengths, 1e-9)
    assert np.isfinite(found).all() and 0 < (lengths > 1e-6).sum() < len(lengths)
    return float(cosines[lengths > 1e-6].min())

expected = vectors(opened())
said = {}
for name in ("float16", "bfloat16"):
    dtype = getattr(torch, name)
    model = opened(dtype=dtype)
    assert model(**inputs).last_hidden_state.dtype == dtype
    said[f"dtype {name}"] = lowest_cosine(vectors(model))
    said[f"to {name}"] = lowest_cosine(vectors(opened().to(dtype)))
    with torch.autocast("cpu", dtype=dtype):
        said[f"autocast {name}"] = lowest_cosine(vectors(opened()))

model = torch.ao.quantization.quantize_dynamic(opened(), {torch.nn.Linear})
assert "DynamicQuantizedLinear" in repr(model)
said["bytes"] = lowest_cosine(vectors(model))

model = opened()
table = model.get_input_embeddings()
said["table"] = list(table.weight.shape)
said["rows"] = [model.config.unknown_id + 1, model.config.embedding_dim]
model.set_input_embeddings(torch.nn.Embedding.from_pretrained(table.weight * 0))
said["without table"] = lowest_cosine(vectors(model))

# The squares of r may be larger than the largest number of 16 bits.
module = importlib.import_module("convert_tf.export.huggingface.modeling_convert")
said["row"] = module.unit_rows(torch.full((1, 64), 60.0, dtype=torch.float16))[0, 0].item()
scores = torch.tensor([[[[60_000.0, 5.0]]]], dtype=torch.float16)
said["softmax"] = module.softmax(scores, torch.tensor([[[False, True]]])).flatten().tolist()
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said():
    of_torch = Path(importlib.util.find_spec("torch").origin).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, exported_folder() / "hf"],
        env={**own_environment(), "PYTHONPATH": f"{ROOT}{os.pathsep}{of_torch}"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("way", ["dtype", "to", "autocast"])
@pytest.mark.parametrize(("name", "least"), [("float16", 0.9999), ("bfloat16", 0.99)])
def test_half_precision(said, way, name, least):
    assert least < said[f"{way} {name}"] < 1.0001


def test_large_numbers_in_half_precision(said):
    assert said["row"] == pytest.approx(1 / 8, rel=1e-3)
    assert said["softmax"] == [0, 1]


def test_linear_layers_in_bytes(said):
    assert 0.9 < said["bytes"] < 0.99999


def test_the_table_of_subwords(said):
    assert said["table"] == said["rows"]
    assert said["without table"] < 0.9
