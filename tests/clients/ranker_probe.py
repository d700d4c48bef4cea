"""Run by `test_ranker_module.py` in a process of its own, where convert_tf cannot be imported.

`python -I ranker_probe.py request.json answer.npz` scores the texts of the request with every
module of it, in every way that there is, and writes the scores and what the modules say.
"""

import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
sys.modules["convert_tf"] = None  # type: ignore[assignment]  # importing it fails

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
import tensorflow_hub as hub  # noqa: E402
import tensorflow_text  # noqa: E402, F401 (its ops are in the graphs)


def specs(tensors):
    return {name: [spec.dtype.name, spec.shape.as_list()] for name, spec in tensors.items()}


def scores_of(module, contexts, candidates, matrix):
    signatures = module.signatures
    yield "shared", module.score(contexts, candidates)
    yield "all", signatures["score_all"](context=contexts, candidates=candidates)["default"]
    yield "matrix", signatures["score"](context=contexts, candidates=matrix)["default"]
    yield "own", module.score(contexts, matrix)
    ragged = tf.RaggedTensor.from_tensor(matrix, padding="")
    yield "ragged", module.score(contexts, ragged).flat_values
    flat = {"candidates": ragged.flat_values, "row_lengths": ragged.row_lengths()}
    yield "flat", signatures["score_ragged"](context=contexts, **flat)["default"]
    if "score_encoded" not in signatures:
        return
    encoded = signatures["encode_candidates"](candidates=candidates)["default"]
    yield "candidates", encoded
    yield "encoded", signatures["score_encoded"](context=contexts, candidates=encoded)["default"]
    vectors = signatures["encode_context"](context=contexts)
    yield "vectors", signatures["score_vectors"](**vectors, candidates=encoded)["default"]


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        request = json.load(file)
    contexts, candidates, matrix = (
        tf.constant(request[name]) for name in ("contexts", "candidates", "matrix")
    )
    arrays, facts = {}, {}
    for name, folder in request["modules"].items():
        module = hub.load(folder)
        for kind, value in scores_of(module, contexts, candidates, matrix):
            arrays[f"{name}/{kind}"] = value.numpy()
        facts[name] = {
            "inputs": {
                signature: specs(function.structured_input_signature[1])
                for signature, function in module.signatures.items()
            },
            "outputs": {
                signature: specs(function.structured_outputs)
                for signature, function in module.signatures.items()
            },
            "trainable": len(module.trainable_variables),
            "variables": len(module.variables),
            "regularization_losses": len(module.regularization_losses),
        }
    np.savez(sys.argv[2], facts=json.dumps(facts), **arrays)


main()
