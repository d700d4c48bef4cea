"""Train one model in a separate process, for `benchmarks/training.py`.

`python training_worker.py KIND FOLDER` starts it. FOLDER contains the training data. When the
worker has warmed up, it prints `{"ready": true}`. Then it answers each line of standard input
(`steps N`, `profile N`) with one line of JSON. It runs in the Python of the model, with the
`convert_tf` on its PYTHONPATH. Other packages may be missing there, so each class imports only what
it needs.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Matmuls: [tokens, dim] × [dim, hidden], back to [tokens, dim], and a large square.
SHAPES = ((4096, 512, 2048), (4096, 2048, 512), (2048, 2048, 2048))


def measured(run: Callable[[], Any]) -> tuple[float, float]:
    """Return the seconds of a call, and the CPU seconds of all threads of this process."""
    started, cpu_started = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - started, time.process_time() - cpu_started


class Matmul:
    """TensorFlow's matmul in float32 and bfloat16: an upper bound for the speed of a step."""

    def __init__(self, folder: Path):
        import tensorflow as tf

        self._multiply = tf.function(tf.matmul, jit_compile=False)
        self._cases = {
            dtype: [
                tuple(tf.cast(tf.random.normal(shape), dtype) for shape in ((m, k), (k, n)))
                for m, k, n in SHAPES
            ]
            for dtype in ("float32", "bfloat16")
        }
        self.steps(1)

    def steps(self, number: int) -> dict[str, Any]:
        """Return the rate in GFLOP/s of the fastest shape for each dtype."""
        answer: dict[str, Any] = {}
        for dtype, cases in self._cases.items():
            for (m, k, n), (a, b) in zip(SHAPES, cases, strict=True):
                found = [measured(lambda a=a, b=b: self._multiply(a, b)) for _ in range(5)]
                for name, times in zip(("", "_cpu"), zip(*found, strict=True), strict=True):
                    rate = 2 * m * k * n / statistics.median(times) / 1e9
                    answer[dtype + name] = max(rate, answer.get(dtype + name, 0.0))
        return answer


class Convert:
    """The `convert` preset, trained on packed batches."""

    def __init__(self, folder: Path):
        import keras
        import numpy as np

        from convert_tf.config.model import model_preset
        from convert_tf.models.encoder import DualEncoder
        from convert_tf.numerics.devices import choose_precision
        from convert_tf.training.encoder.objective import make_objective

        try:
            from convert_tf.training.encoder.options import train_recipe
        except ModuleNotFoundError:  # an older version
            from convert_tf.config.model import train_recipe

        keras.utils.set_random_seed(0)
        options = json.loads((folder / "options.json").read_text())
        config = train_recipe(options["recipe"], **options["train"])
        precision = choose_precision(options["precision"])
        encoder = DualEncoder(
            model_preset("convert", **options["model"]),
            embedding_dropout=config.embedding_dropout,
            attention_dropout=config.attention_dropout,
            dtype=precision,
        )
        self._model = make_objective(encoder, config, precision=precision)
        self._batches = [dict(np.load(path)) for path in sorted(folder.glob("batch-*.npz"))]
        self._next = 0
        for _ in range(3):
            self._step()
        self.facts = {"precision": precision, **_weights(encoder)}

    def _step(self) -> dict[str, Any]:
        batch = self._batches[self._next % len(self._batches)]
        self._next += 1
        self._model.train_on_batch(batch)
        return batch

    def steps(self, number: int) -> dict[str, Any]:
        """Take steps; return their time and size."""
        done: list[dict[str, Any]] = []
        seconds, cpu = measured(lambda: done.extend(self._step() for _ in range(number)))
        return {
            "seconds": seconds,
            "cpu_seconds": cpu,
            "pairs": sum(len(batch["context_slots"]) for batch in done),
            "tokens": sum(int(batch["segment_lengths"].sum()) for batch in done),
            "positions": sum(batch["token_ids"].size for batch in done),
        }

    def profile(self, steps: int) -> dict[str, Any]:
        """Profile steps on one repeated batch, so that an op always has the same shape."""
        from step_profile import cost_table, self_times

        del self._batches[1:]
        cpu = [measured(self._step)[1] for _ in range(steps)]
        table = cost_table(self_times(self._step, steps), steps)
        return {"cpu_ms": 1e3 * min(cpu), "kinds": table}


def _weights(encoder: Any) -> dict[str, int]:
    """Return the entries in the matrices that each token, and each text, is multiplied with."""
    kernels = {v.path: int(v.shape[0] * v.shape[1]) for v in encoder.trainable_variables
               if "kernel" in v.path}  # fmt: skip
    of_texts = sum(size for path, size in kernels.items() if "_side/" in path)
    # Each text passes through one of the two side networks.
    return {"per_token": sum(kernels.values()) - of_texts, "per_text": of_texts // 2}


class MiniLM:
    """all-MiniLM-L6-v2, trained with in-batch negatives as by `MultipleNegativesRankingLoss`.

    Texts are tokenized beforehand. The contexts of a batch are padded to the longest one, and so
    are the responses. Either the weights are bfloat16 or autocast is used, whichever is faster.

    Reference: arXiv 1908.10084 §3; the loss is from arXiv 1705.00652 §4.
    """

    SCALE = 20.0

    def __init__(self, folder: Path):
        import torch
        from minilm_package import minilm_folder
        from transformers import AutoTokenizer

        path = minilm_folder()
        tokenizer = AutoTokenizer.from_pretrained(path)
        texts = json.loads((folder / "texts.json").read_text(encoding="utf-8"))
        self._torch = torch
        self._batches = [
            [
                tokenizer(side, padding=True, truncation=True, max_length=256, return_tensors="pt")
                for side in batch
            ]
            for batch in texts
        ]
        self._next = 0
        seconds = {}
        for way in ("autocast", "weights"):
            self._start(path, way)
            self._step()
            self._next = 0  # both ways are timed on the same batch
            seconds[way] = measured(self._step)[0]
        way = min(seconds, key=seconds.__getitem__)
        self._start(path, way)
        self._step()
        self.facts = {"precision": f"bfloat16 {way}"}

    def _start(self, path: Path, way: str) -> None:
        from transformers import AutoModel

        self._model = self._optimizer = None  # frees the memory of the previous model first
        self._model = AutoModel.from_pretrained(path, dtype=self._torch.float32).train()
        if way == "weights":
            self._model = self._model.to(self._torch.bfloat16)
        self._is_autocast = way == "autocast"
        self._optimizer = self._torch.optim.AdamW(self._model.parameters(), lr=2e-5)

    def _encode(self, batch: Any) -> Any:
        hidden = self._model(**batch)[0]
        mask = batch["attention_mask"][:, :, None].to(hidden.dtype)
        mean = (hidden * mask).sum(1) / mask.sum(1)
        return self._torch.nn.functional.normalize(mean.float(), dim=1)

    def _step(self) -> Any:
        torch = self._torch
        batch = self._batches[self._next % len(self._batches)]
        self._next += 1
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self._is_autocast):
            contexts, responses = (self._encode(side) for side in batch)
        scores = self.SCALE * contexts @ responses.T
        loss = torch.nn.functional.cross_entropy(scores, torch.arange(len(scores)))
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        return batch

    def steps(self, number: int) -> dict[str, Any]:
        """Take steps; return their time and size."""
        done: list[Any] = []
        seconds, cpu = measured(lambda: done.extend(self._step() for _ in range(number)))
        masks = [side["attention_mask"] for batch in done for side in batch]
        return {
            "seconds": seconds,
            "cpu_seconds": cpu,
            "pairs": sum(len(batch[0]["attention_mask"]) for batch in done),
            "tokens": sum(int(mask.sum()) for mask in masks),
            "positions": sum(mask.numel() for mask in masks),
        }


KINDS = {"matmul": Matmul, "convert": Convert, "minilm": MiniLM}


def main() -> None:
    answers = sys.stdout
    sys.stdout = sys.stderr  # keeps the output of libraries apart from the answers

    def answer(**values: Any) -> None:
        print(json.dumps(values), file=answers, flush=True)

    worker: Any = KINDS[sys.argv[1]](Path(sys.argv[2]))
    answer(ready=True, **getattr(worker, "facts", {}))
    for line in sys.stdin:
        command, number = line.split()
        answer(**getattr(worker, command)(int(number)))


if __name__ == "__main__":
    main()
