"""Scores a checkpoint or an exported module on a split.

```
python -m convert_tf.evaluate --checkpoint runs/convert --data data/
python -m convert_tf.evaluate --module hub_modules/convert/1 --data data/ --output report.json
```

The protocol is PolyAI's: blocks of 100 examples, where the other 99 responses are the negatives,
and a tie is a miss (`convert_tf.metrics`). A checkpoint cuts texts as in training, a module at its
own limit, so the two may differ on texts longer than the checkpoint's `max_tokens`.

Reference: arXiv 1911.03688 §3.2.
"""

import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from absl import app, flags

from convert_tf import metrics
from convert_tf.files import write_file

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")

Texts = Sequence[bytes] | Sequence[str]


class ModuleEncoder:
    """An exported module, read through its signatures alone.

    Each text is encoded once, in batches of texts of similar length.

    Args:
      folder: a module.
      batch_size: texts of a batch.

    Raises:
      ValueError: the folder is no module, a damaged one, or one without `encode_context` and
        `encode_response`.

    Example:
      h = ModuleEncoder("hub_modules/convert/1").encode_contexts(["how are you?"])
    """

    def __init__(self, folder: str | os.PathLike, *, batch_size: int = 64):
        import tensorflow_hub as hub
        import tensorflow_text  # noqa: F401 (its ops are in the module's graph)

        self.folder = os.fspath(folder)
        try:
            self._module = hub.load(self.folder)
        except Exception as error:  # its reader meets damage with errors of any kind
            raise self._unusable(error) from error
        missing = {"encode_context", "encode_response"} - set(self._module.signatures)
        if missing:
            raise ValueError(
                "A module must encode contexts and responses. "
                f"Received: {self.folder!r}, without {', '.join(sorted(missing))}. "
                "Name a module that export.py wrote."
            )
        self.batch_size = batch_size

    def encode_contexts(self, texts: Texts) -> np.ndarray:
        """float32 `[len(texts), dim]`, of length 1."""
        return self._encode("encode_context", texts)

    def encode_responses(self, texts: Texts) -> np.ndarray:
        """float32 `[len(texts), dim]`, of length 1."""
        return self._encode("encode_response", texts)

    def _unusable(self, error: Exception) -> ValueError:
        return ValueError(
            "A module is a folder that export.py wrote. "
            f"Received: {self.folder!r} ({error}). Name such a folder, or export it again."
        )

    def _encode(self, signature: str, texts: Texts) -> np.ndarray:
        import tensorflow as tf

        encode = self._module.signatures[signature]
        unique = sorted(set(texts), key=len)
        try:
            encodings = [
                encode(tf.constant(unique[start : start + self.batch_size], tf.string))["default"]
                for start in range(0, max(len(unique), 1), self.batch_size)
            ]
        except tf.errors.OpError as error:
            raise self._unusable(error) from error
        place = {text: i for i, text in enumerate(unique)}
        return np.concatenate(encodings)[np.array([place[text] for text in texts], np.int64)]


def _encode_with_checkpoint(
    folder: str, contexts: Texts, responses: Texts, precision: str
) -> tuple[np.ndarray, np.ndarray]:
    from convert_tf.callbacks import encode_pairs
    from convert_tf.checkpoint import check_vocabulary, load_checkpoint
    from convert_tf.data.pipeline import PairBatches
    from convert_tf.text.tokenizer import load_tokenizer

    encoder, vocabulary = load_checkpoint(folder, dtype=precision)
    config = encoder.config
    tokenizer = load_tokenizer(vocabulary, num_oov_buckets=config.num_oov_buckets)
    check_vocabulary(tokenizer, config)
    batches = PairBatches(
        contexts,
        responses,
        tokenizer=tokenizer,
        max_tokens=config.max_tokens,
        row_tokens=max(64, config.max_tokens),
    )
    return encode_pairs(encoder, batches)


def evaluate(
    data: str,
    *,
    checkpoint: str | None = None,
    module: str | None = None,
    split: str = "test",
    ks: Iterable[int] = (1, 3, 10),
    block_size: int = metrics.BLOCK_SIZE,
    max_examples: int | None = None,
    precision: str = "float32",
) -> dict[str, Any]:
    """R_N@k and MRR of a checkpoint or of a module.

    Args:
      data: folder of records.
      checkpoint: a model directory; this or `module`.
      module: an exported module, of which only the signatures are used.
      split: which records.
      ks: the k of R_N@k.
      block_size: N, examples of a block; the last partial block is dropped.
      max_examples: read at most this many, from the first on.
      precision: policy of a checkpoint's computations; a module has its own.

    Returns:
      What was given, by name, and `seconds`, `examples` (scored) and `metrics`.

    Raises:
      ValueError: neither or both of `checkpoint` and `module`, no such split, too few examples, a
        number out of range.
    """
    ks = list(ks)
    if (checkpoint is None) == (module is None):
        raise ValueError(
            "Either a checkpoint or a module is evaluated. Received: "
            f"{'neither' if module is None else 'both'}. Pass --checkpoint or --module."
        )
    if module is not None and precision != "float32":
        raise ValueError(
            f"A module computes in its own precision. Received: --precision={precision} with "
            "--module. Leave it out, or pass --checkpoint."
        )
    if precision not in PRECISIONS:
        raise ValueError(f"precision is one of {', '.join(PRECISIONS)}. Received: {precision!r}.")
    if not ks or not all(1 <= k <= block_size for k in ks):
        raise ValueError(
            f"Each k must be from 1 to the block size. Received: k {ks}, block size {block_size}."
        )
    from convert_tf.data.pipeline import read_pairs

    contexts, responses = read_pairs(data, split, max_examples=max_examples)
    if len(contexts) < block_size:
        raise ValueError(
            f"Ranking among {block_size} needs at least {block_size} examples. Received: "
            f"{len(contexts)} of the split {split!r} in {data!r}. Use more data or a smaller "
            "--block_size."
        )
    start = time.perf_counter()
    if checkpoint is not None:
        encodings = _encode_with_checkpoint(checkpoint, contexts, responses, precision)
    else:
        encoder = ModuleEncoder(str(module))
        encodings = (encoder.encode_contexts(contexts), encoder.encode_responses(responses))
    scores = metrics.ranking_metrics(
        metrics.block_ranks(*encodings, block_size=block_size), block_size=block_size, ks=ks
    )
    return {
        "checkpoint": checkpoint,
        "module": module,
        "data": data,
        "split": split,
        "block_size": block_size,
        "precision": precision if checkpoint is not None else None,
        "seconds": round(time.perf_counter() - start, 2),
        "examples": scores.pop("examples"),
        "metrics": scores,
    }


def table(report: dict[str, Any]) -> str:
    """The report of `evaluate` for reading."""
    lines = [
        f"{report['checkpoint'] or report['module']} on {report['data']} ({report['split']}): "
        f"{report['examples']:,} examples in {report['seconds']:.1f} s"
    ]
    for name, value in report["metrics"].items():
        lines.append(f"{name:<10}{value:8.4f}" if name == "MRR" else f"{name:<10}{value:8.2%}")
    return "\n".join(lines)


def _define_flags() -> None:
    flags.DEFINE_string("checkpoint", None, "Folder that train.py wrote; this or --module.")
    flags.DEFINE_string("module", None, "Module that export.py wrote; this or --checkpoint.")
    flags.DEFINE_string("data", None, "Folder of records.", required=True)
    flags.DEFINE_string("split", "test", "Which records: train, dev or test.")
    flags.DEFINE_list("k", ["1", "3", "10"], "The k of R_N@k.")
    flags.DEFINE_integer("block_size", metrics.BLOCK_SIZE, "N: responses that are ranked.")
    flags.DEFINE_integer("max_examples", None, "Read at most this many.", lower_bound=1)
    flags.DEFINE_enum("precision", "float32", PRECISIONS, "Of a checkpoint's computations.")
    flags.DEFINE_string("output", None, "JSON file to write.")


def _run(argv: Sequence[str]) -> None:
    values = flags.FLAGS
    if len(argv) > 1:
        raise app.UsageError(f"Flags are given as --name=value. Received: {argv[1:]}.")
    if not all(k.strip().isdecimal() for k in values.k):
        raise app.UsageError(f"--k is a list of numbers, as 1,3,10. Received: {values.k}.")
    try:
        report = evaluate(
            values.data,
            checkpoint=values.checkpoint,
            module=values.module,
            split=values.split,
            ks=[int(k) for k in values.k],
            block_size=values.block_size,
            max_examples=values.max_examples,
            precision=values.precision,
        )
        print(table(report))
        if values.output:
            write_file(values.output, json.dumps(report, indent=2) + "\n")
    except (ValueError, OSError) as error:
        sys.exit(f"evaluate: {' '.join(str(error).split())}")


if __name__ == "__main__":
    _define_flags()
    app.run(_run)
