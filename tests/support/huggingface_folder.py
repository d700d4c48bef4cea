"""A small BERT folder in Hugging Face's format."""

import json
import string
from pathlib import Path

import numpy as np
import safetensors.numpy

SPECIAL = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [
    *string.ascii_lowercase, *"0123456789!?.,'-", *(f"##{c}" for c in string.ascii_lowercase),
    "the", "cat", "sat", "hello", "##ing", "em", "##bed", "how", "are", "you", "中", "σασ",
]  # fmt: skip
VOCABULARY = [*SPECIAL, *WORDS]
CONFIG = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 20,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "vocab_size": len(VOCABULARY) + 2,
}
DIM, HIDDEN = CONFIG["hidden_size"], CONFIG["intermediate_size"]


def random_tensors(seed: int = 0) -> dict[str, np.ndarray]:
    """Return tensors with `BertModel`'s names and shapes; the word table has two extra rows."""
    shapes = {
        "embeddings.word_embeddings.weight": (CONFIG["vocab_size"], DIM),
        "embeddings.position_embeddings.weight": (CONFIG["max_position_embeddings"], DIM),
        "embeddings.token_type_embeddings.weight": (2, DIM),
        "pooler.dense.weight": (DIM, DIM),
        "pooler.dense.bias": (DIM,),
    }
    norms = ["embeddings.LayerNorm"]
    for i in range(CONFIG["num_hidden_layers"]):
        layer = f"encoder.layer.{i}"
        for name, (inputs, outputs) in {
            "attention.self.query": (DIM, DIM),
            "attention.self.key": (DIM, DIM),
            "attention.self.value": (DIM, DIM),
            "attention.output.dense": (DIM, DIM),
            "intermediate.dense": (DIM, HIDDEN),
            "output.dense": (HIDDEN, DIM),
        }.items():
            shapes[f"{layer}.{name}.weight"] = (outputs, inputs)
            shapes[f"{layer}.{name}.bias"] = (outputs,)
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
    for norm in norms:
        shapes[f"{norm}.weight"] = shapes[f"{norm}.bias"] = (DIM,)
    random = np.random.RandomState(seed)
    return {name: random.standard_normal(s).astype("float32") for name, s in shapes.items()}


def write_safetensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    safetensors.numpy.save_file(tensors, path, metadata={"format": "pt"})


def write_folder(folder: Path, tensors: dict[str, np.ndarray] | None = None, **config) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    (folder / "vocab.txt").write_text("".join(f"{w}\n" for w in VOCABULARY), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    write_safetensors(folder / "model.safetensors", tensors or random_tensors())
    return folder
