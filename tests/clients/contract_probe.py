"""Run by `test_module_contract.py` in a process of its own, where convert_tf cannot be imported.

`python -I contract_probe.py request.json answer.npz` loads the modules of the request with
tensorflow_hub, calls every signature, and writes what came out, with what the module says of itself
as JSON in the entry `facts`.
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


def facts_of(module):
    return {
        "signatures": {
            name: {
                "inputs": specs(function.structured_input_signature[1]),
                "outputs": specs(function.structured_outputs),
            }
            for name, function in module.signatures.items()
        },
        "callable": callable(module),
        "variables": [[v.dtype.name, list(v.numpy().shape)] for v in module.variables],
        "trainable": [list(v.numpy().shape) for v in module.trainable_variables],
        "trainable_are_variables": all(
            any(v is other for other in module.variables) for v in module.trainable_variables
        ),
        "regularization_losses": len(module.regularization_losses),
    }


def call(module, signature, columns):
    """The outputs of a signature for texts, by its inputs' names."""
    function = module.signatures[signature]
    tensors = {name: tf.constant(column, tf.string) for name, column in columns.items()}
    return {name: value.numpy() for name, value in function(**tensors).items()}


def called(module, columns_of):
    """Every signature on all texts, on each text alone, on all backwards, and on none."""
    for signature, columns in columns_of.items():
        number = min(map(len, columns.values()))
        batches = {
            "all": columns,
            "backwards": {name: texts[::-1] for name, texts in columns.items()},
            "none": {name: [] for name in columns},
            **{
                f"alone{i}": {name: texts[i : i + 1] for name, texts in columns.items()}
                for i in range(number)
            },
        }
        for batch, own in batches.items():
            for output, value in call(module, signature, own).items():
                yield f"{signature}/{batch}/{output}", value
    texts = columns_of["default"]["default"]
    yield "called/all/default", module(tf.constant(texts, tf.string)).numpy()
    yield "called/list/default", module(texts).numpy()


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        request = json.load(file)
    arrays, facts = {}, {}
    for kind, folder in request["modules"].items():
        module = hub.load(folder)
        facts[kind] = facts_of(module)
        for name, value in called(module, request["columns"][kind]):
            # numpy keeps bytes without their types; lists of them come back whole.
            arrays[f"{kind}/{name}"] = value.astype("S") if value.dtype == object else value
    try:
        import convert_tf  # noqa: F401

        facts["imported"] = True
    except ImportError:
        facts["imported"] = False
    facts["loaded"] = [name for name in sys.modules if name.split(".")[0] == "convert_tf"]
    np.savez(sys.argv[2], facts=json.dumps(facts), **arrays)


main()
