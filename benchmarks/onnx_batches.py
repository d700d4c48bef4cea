"""Find the ops that make encodings of an `.onnx` file depend on the batch.

```
convert-tf export --encoder hub_modules/convert_small/3 --output model.onnx
python benchmarks/onnx_batches.py --model model.onnx
```

Fuzzed texts are encoded one by one and in one batch. For the text that differs most, the result of
every op for the text alone is compared with its rows in the batch.
"""

import random
from itertools import islice

import numpy as np
import onnx
from absl import app, flags
from fuzzing import fuzzed_texts

from convert_tf.encoding.backends.onnx import OnnxBackend, graph_inputs, no_texts
from convert_tf.numerics.processor import adds_products_of_bytes

_MODEL = flags.DEFINE_string("model", None, "An 8-bit .onnx file.", required=True)
_TEXTS = flags.DEFINE_integer("texts", 400, "Number of texts.")
_ROUNDING = 1e-6
_SEED = flags.DEFINE_integer("seed", 5, "Seed of the texts.")


def all_results(path: str):
    """Open a model with the results of all ops as outputs.

    Returns:
      `(run, ops)`. `run` maps inputs to results by name, and `ops` is the op of each result.
    """
    import onnxruntime

    model = onnx.load(path)
    ops = {name: node.op_type for node in model.graph.node for name in node.output if name}
    for name in ops.keys() - {output.name for output in model.graph.output}:
        model.graph.output.append(onnx.ValueInfoProto(name=name))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if not adds_products_of_bytes():
        options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda feeds: dict(zip(ops, session.run([*ops], feeds), strict=True)), ops


def by_token(result: np.ndarray, tokens: int) -> np.ndarray | None:
    """Reshape a result to `[tokens, dim]`; return None if it does not have a row per token."""
    if result.ndim < 3 or result.size != tokens * result.shape[-1]:
        return None
    return result.reshape(tokens, -1)


def main(argv: list[str]) -> None:
    del argv
    backend = OnnxBackend(_MODEL.value)
    texts = [
        text.encode() for text in islice(fuzzed_texts(random.Random(_SEED.value)), _TEXTS.value)
    ]
    together = backend.run("default", [texts])
    alone = np.concatenate([backend.run("default", [[text]]) for text in texts])
    lengths = np.maximum(np.linalg.norm(alone, axis=1), 1.0)  # an empty text has length 0
    relative = np.abs(together - alone).max(1) / lengths
    worst = int(np.argmax(relative))
    differing = int(np.sum(relative > _ROUNDING))
    print(f"{differing} of {len(texts)} texts differ by more than {_ROUNDING:.0e} of their length")
    print(f"the largest difference: {relative[worst]:.1e}, {texts[worst][:40]!r}")
    if not differing:
        return

    run, ops = all_results(_MODEL.value)
    nothing = no_texts(backend._one_thread)
    batches = ([texts[worst], *texts[i : i + 20]] for i in range(0, len(texts), 20))
    # Only in some batches does a rounding difference change a byte.
    batch = next(
        (
            batch
            for batch in batches
            if np.abs(backend.run("default", [batch])[0] - alone[worst]).max()
            > _ROUNDING * lengths[worst]
        ),
        texts,
    )
    found = []
    for some in ([texts[worst]], batch):
        ids, row_splits = backend.token_ids(some)
        found.append({**nothing, **graph_inputs(ids, row_splits)})
    rows = [feeds["token_ids"].size for feeds in found]
    own = found[0]["token_ids"].ravel()
    windows = np.lib.stride_tricks.sliding_window_view(found[1]["token_ids"].ravel(), len(own))
    place = int(np.flatnonzero((windows == own).all(1))[0])
    results = [run(feeds) for feeds in found]
    for name, op in ops.items():
        one, many = (by_token(result[name], n) for result, n in zip(results, rows, strict=True))
        if one is None or many is None or one.shape[1] != many.shape[1]:
            continue
        difference = np.abs(one.astype(float) - many[place : place + len(own)])
        if one.dtype in (np.float32, np.uint8) and difference.any():
            print(
                f"{op}, {name}, {one.dtype}: {np.count_nonzero(difference):,} of {one.size:,} "
                f"differ, by up to {difference.max():.1e}"
            )


if __name__ == "__main__":
    app.run(main)
