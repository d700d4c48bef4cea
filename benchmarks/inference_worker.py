"""Encode sentences with one model in a separate process, for `benchmarks/inference.py`.

`python inference_worker.py KIND PATH SENTENCES` starts it. SENTENCES is a JSON file with a list of
strings. When the worker has loaded the model and encoded one sentence, it prints `{"ready": true}`.
Then it answers each line of standard input (`encode BATCH_SIZE`, `single N`, `peak`, `facts`) with
one line of JSON. It runs in the Python of the model, where other packages may be missing, so each
class imports only what it needs.
"""

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

_RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # ru_maxrss: bytes on macOS, else KiB


class Ours:
    """A module with a compute dtype, or an `.onnx` file, opened with `SentenceEncoder`."""

    def __init__(self, path: str, compute_dtype: str):
        from convert_tf import SentenceEncoder

        self._encoder = SentenceEncoder(path, compute_dtype=compute_dtype)
        self._path, self._compute_dtype = path, compute_dtype

    def encode(self, texts: list[str], batch_size: int) -> Any:
        return self._encoder.encode(texts, batch_size=batch_size)

    def facts(self, sentences: list[str]) -> dict[str, Any]:
        if self._compute_dtype != "auto":
            return {"gmac_per_second": _tensorflow_rate(self._compute_dtype)}
        from convert_tf.encoding.backends.onnx import OnnxBackend

        backend = OnnxBackend(self._path)
        tokens = len(backend.token_ids([text.encode() for text in sentences])[0])
        bits = backend.facts["network_bits"]
        return {"tokens": tokens, "gmac_per_second": _onnx_rate(bits)}


class SentenceTransformers:
    """MiniLM in sentence-transformers, as most users run it."""

    def __init__(self, path: str, dtype: str):
        import torch
        from sentence_transformers import SentenceTransformer

        self._model = SentenceTransformer(
            path, device="cpu", model_kwargs={"dtype": getattr(torch, dtype)}
        )

    def encode(self, texts: list[str], batch_size: int) -> Any:
        return self._model.encode(
            texts, batch_size=batch_size, normalize_embeddings=True, show_progress_bar=False
        )

    def facts(self, sentences: list[str]) -> dict[str, Any]:
        return {}


class MiniLMOnnx:
    """MiniLM in ONNX Runtime: normalised means of the tokens, in batches of similar length."""

    def __init__(self, path: str, _: str):
        import onnxruntime
        from tokenizers import Tokenizer

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = len(os.sched_getaffinity(0))
        self._session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )
        self._tokenizer = Tokenizer.from_file(str(Path(path).with_name("tokenizer.json")))
        self._tokenizer.enable_truncation(256)
        self._tokenizer.enable_padding()

    def encode(self, texts: list[str], batch_size: int) -> Any:
        import numpy as np

        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        vectors = np.empty((len(texts), 384), np.float32)
        for start in range(0, len(texts), batch_size):
            batch = order[start : start + batch_size]
            encoded = self._tokenizer.encode_batch([texts[i] for i in batch])
            ids = np.array([each.ids for each in encoded], np.int64)
            mask = np.array([each.attention_mask for each in encoded], np.int64)
            hidden = self._session.run(None, {"input_ids": ids, "attention_mask": mask})[0]
            mean = (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
            vectors[batch] = mean / np.linalg.norm(mean, axis=1, keepdims=True)
        return vectors

    def facts(self, sentences: list[str]) -> dict[str, Any]:
        return {}


def export_minilm(folder: str) -> None:
    """Write MiniLM as `minilm.onnx`, and with dynamic quantization as `minilm_int8.onnx`."""
    import shutil

    import torch
    from minilm_package import minilm_folder
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from transformers import AutoModel

    model_folder = minilm_folder()
    model = AutoModel.from_pretrained(model_folder, attn_implementation="eager").eval()

    class LastHidden(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return self.model(input_ids=input_ids, attention_mask=attention_mask)[0]

    example = (torch.ones(2, 9, dtype=torch.long), torch.ones(2, 9, dtype=torch.long))
    sizes = {0: "texts", 1: "tokens"}
    whole = Path(folder) / "minilm.onnx"
    torch.onnx.export(
        LastHidden(),
        example,
        str(whole),
        input_names=["input_ids", "attention_mask"],
        output_names=["hidden"],
        dynamic_axes={"input_ids": sizes, "attention_mask": sizes, "hidden": sizes},
        opset_version=17,
        dynamo=False,
    )
    quantize_dynamic(
        str(whole), str(whole.with_name("minilm_int8.onnx")), weight_type=QuantType.QInt8
    )
    shutil.copy(model_folder / "tokenizer.json", folder)


def _seconds(run: Any, times: int = 15) -> float:
    """Return the seconds of the fastest of several calls."""
    found = []
    for _ in range(times):
        started = time.perf_counter()
        run()
        found.append(time.perf_counter() - started)
    return min(found)


# Shape of the largest matmul of a block, with about as many rows as a batch has tokens.
_ROWS, _DEPTH, _WIDTH = 1024, 512, 2048


def _tensorflow_rate(dtype: str) -> float:
    """Return 10⁹ multiplications per second of TensorFlow's matmul."""
    import tensorflow as tf

    a, b = (
        tf.cast(tf.random.normal(shape), dtype) for shape in ((_ROWS, _DEPTH), (_DEPTH, _WIDTH))
    )
    multiply = tf.function(tf.matmul, jit_compile=False)
    return _ROWS * _DEPTH * _WIDTH / _seconds(lambda: multiply(a, b)) / 1e9


def _onnx_rate(bits: int) -> float:
    """Return 10⁹ multiplications per second of the matmul op that `.onnx` files use."""
    import numpy as np
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    if bits == 32:
        kind, node = np.float32, helper.make_node("MatMul", ["x", "kernel"], ["y"])
        values = {"kernel": np.ones((_DEPTH, _WIDTH), np.float32)}
    else:
        kind = np.uint8
        values = {
            "kernel": np.ones((_DEPTH, _WIDTH), np.int8), "step": np.float32(1),
            "scales": np.ones(_WIDTH, np.float32), "zero": np.uint8(128),
        }  # fmt: skip
        inputs = ["x", "kernel", "step", "scales", "zero"]
        node = helper.make_node("MatMulIntegerToFloat", inputs, ["y"], domain="com.microsoft")
    graph = helper.make_graph(
        [node],
        "rate",
        [helper.make_tensor_value_info(
            "x", TensorProto.FLOAT if bits == 32 else TensorProto.UINT8, (_ROWS, _DEPTH)
        )],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (_ROWS, _WIDTH))],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    x = np.ones((_ROWS, _DEPTH), kind)
    return _ROWS * _DEPTH * _WIDTH / _seconds(lambda: session.run(None, {"x": x})) / 1e9


KINDS = {
    "module_float32": lambda path: Ours(path, "float32"),
    "module_bfloat16": lambda path: Ours(path, "bfloat16"),
    "light": lambda path: Ours(path, "auto"),
    "minilm_float32": lambda path: SentenceTransformers(path, "float32"),
    "minilm_bfloat16": lambda path: SentenceTransformers(path, "bfloat16"),
    "minilm_onnx": lambda path: MiniLMOnnx(path, ""),
}


def peak_mb() -> float:
    """Return the peak resident memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT / 1e6


def main() -> None:
    if sys.argv[1] == "export_minilm":
        export_minilm(sys.argv[2])
        return
    if sys.argv[1] == "minilm_folder":
        from minilm_package import minilm_folder

        print(minilm_folder())
        return
    answers = sys.stdout
    sys.stdout = sys.stderr  # keeps the output of libraries apart from the answers
    kind, path, sentences_file = sys.argv[1:]
    sentences = json.loads(Path(sentences_file).read_text(encoding="utf-8"))

    def answer(**values: Any) -> None:
        print(json.dumps(values), file=answers, flush=True)

    model = KINDS[kind](path)
    model.encode([sentences[0]], 1)
    answer(ready=True)
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "encode":
            started, cpu = time.perf_counter(), time.process_time()
            model.encode(sentences, int(arguments[0]))
            answer(
                seconds=time.perf_counter() - started,
                cpu_milliseconds=1e3 * (time.process_time() - cpu) / len(sentences),
            )
        elif command == "single":
            found, cpu = [], time.process_time()
            for text in sentences[: int(arguments[0])]:
                started = time.perf_counter()
                model.encode([text], 1)
                found.append(time.perf_counter() - started)
            answer(
                milliseconds=1e3 * sorted(found)[len(found) // 2],
                cpu_milliseconds=1e3 * (time.process_time() - cpu) / len(found),
            )
        elif command == "peak":
            answer(peak_mb=peak_mb())
        else:
            answer(**model.facts(sentences))


if __name__ == "__main__":
    main()
