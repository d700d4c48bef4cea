"""Call encoders and rankers in a separate process that cannot import convert_tf.

`python -I contract_probe.py request.json answer.npz` loads the requested modules with
tensorflow_hub, calls every signature, and writes the outputs. The entry `facts` contains what a
module says about itself, as JSON. A request has columns of texts by module and signature, or
contexts and candidates for rankers. Keras and SentencePiece cannot be imported either, once
TensorFlow's packages, which import Keras, are loaded.
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

for name in [*sys.modules, "sentencepiece"]:
    if name.split(".")[0] in ("keras", "tf_keras", "sentencepiece"):
        sys.modules[name] = None  # type: ignore[assignment]


def specs(tensors):
    return {name: [spec.dtype.name, spec.shape.as_list()] for name, spec in tensors.items()}


def facts_of(module):
    functions = module.signatures.items()
    return {
        "inputs": {name: specs(each.structured_input_signature[1]) for name, each in functions},
        "outputs": {name: specs(each.structured_outputs) for name, each in functions},
        "callable": callable(module),
        "variables": [[v.dtype.name, list(v.numpy().shape)] for v in module.variables],
        "trainable": [list(v.numpy().shape) for v in module.trainable_variables],
        "trainable_are_variables": all(
            any(v is other for other in module.variables) for v in module.trainable_variables
        ),
        "regularization_losses": len(module.regularization_losses),
    }


def vectors_of(module, columns_of):
    """Call every signature on all texts, each text alone, all in reverse order, and no text."""
    for signature, columns in columns_of.items():
        number = min(map(len, columns.values()))
        batches = {"all": slice(None), "backwards": slice(None, None, -1), "none": slice(0)}
        batches.update({f"alone{i}": slice(i, i + 1) for i in range(number)})
        for batch, place in batches.items():
            given = {name: tf.constant(texts[place], tf.string) for name, texts in columns.items()}
            for output, value in module.signatures[signature](**given).items():
                yield f"{signature}/{batch}/{output}", value
    texts = columns_of["default"]["default"]
    yield "called/all/default", module(tf.constant(texts, tf.string))
    yield "called/list/default", module(texts)


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
    arrays, facts = {}, {}
    for kind, folder in request["modules"].items():
        module = hub.load(folder)
        facts[kind] = facts_of(module)
        if "columns" in request:
            found = vectors_of(module, request["columns"][kind])
        else:
            found = scores_of(module, *map(tf.constant, request["texts"]))
        for name, value in found:
            # NumPy loses the types of bytes; lists of bytes stay intact.
            value = value.numpy()
            arrays[f"{kind}/{name}"] = value.astype("S") if value.dtype == object else value
    facts["loaded"] = [name for name in sys.modules if name.split(".")[0] == "convert_tf"]
    np.savez(sys.argv[2], facts=json.dumps(facts), **arrays)


main()
