"""Measure the time to rank cached candidates with bi-, poly- and cross-encoders.

```
python benchmarks/candidates.py --output candidates.json
python benchmarks/candidates.py --init_from convert --contexts valid_self_original.txt
```

The script repeats the measurements of Tables 5 and 9 of arXiv 1905.01969. Contexts are encoded one
at a time, with random weights or with a trained trunk (`--init_from`). Contexts are random tokens
or come from a file (`--contexts`). Candidates are random vectors of length 1, because only their
shape matters.

The rows are measured in turns, so that other programs on the machine slow all of them equally. The
script prints medians, and ratios to the bi-encoder of the same turn. The cross-encoder is timed
with 1,000 candidates, and times for other numbers of candidates are extrapolated. The column
"floor" is a lower bound of the time to score. It is the larger of two times: reading all vectors at
the memory rate of the machine, and multiplying at the rate of a large matrix product. Both rates
are measured in the same turns.
"""

import dataclasses
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from absl import app, flags

from convert_tf.checkpoints.loading import initial_ranker
from convert_tf.checkpoints.released import model_path
from convert_tf.config.bert import BertConfig
from convert_tf.config.model import model_preset
from convert_tf.config.ranker import HeadConfig, RankerConfig
from convert_tf.data.candidates import read_examples
from convert_tf.data.ranking_batches import tokenize_examples
from convert_tf.models.ranker import RankerModel, make_ranker
from convert_tf.ranking.checkpoint import make_tokenize
from convert_tf.search.cache import DTYPES, CandidateCache, write_cache
from convert_tf.search.index import CandidateIndex

_COUNTS = flags.DEFINE_list("candidates", ["1000", "100000"], "Numbers of candidates.")
_MODEL = flags.DEFINE_string("model", "convert", "Preset of the trunk.")
_VOCAB_SIZE = flags.DEFINE_integer("vocab_size", 24_000, "Vocabulary size of the trunk.")
_INIT_FROM = flags.DEFINE_string(
    "init_from", None, "Trained encoder or trunk to use instead of --model with random weights."
)
_CONTEXTS = flags.DEFINE_string("contexts", None, "Candidates file whose contexts are encoded.")
_CONTEXT_TOKENS = flags.DEFINE_integer(
    "context_tokens", 60, "Tokens of each context. Longer contexts are cut."
)
_CANDIDATE_TOKENS = flags.DEFINE_integer("candidate_tokens", 15, "Tokens of each candidate.")
_DTYPE = flags.DEFINE_enum("dtype", "float32", DTYPES, "Number format of cached vectors.")
_TURNS = flags.DEFINE_integer("turns", 15, "Measurements of each row.", lower_bound=1)
_CROSS_TURNS = flags.DEFINE_integer("cross_turns", 3, "Measurements of the cross-encoder.")
_OUTPUT = flags.DEFINE_string("output", None, "JSON file to write.")

TOP_K = 10
CROSS_BATCH = 100
FINGERPRINT = "random vectors"


class TimedEncoder:
    """Encodes `token_ids` instead of the context that it is given, and records the seconds."""

    fingerprint = FINGERPRINT
    name = "an encoder whose calls are timed"
    logit_scale = 1.0

    def __init__(self, ranker: RankerModel, scale: float):
        self.ranker = ranker
        self.scale = np.float32(scale)
        self.token_ids = np.zeros(0, np.int32)
        self.seconds = 0.0
        self.vectors = 0

    def encode_candidates(self, texts):
        raise NotImplementedError

    def encode_contexts(self, contexts):
        start = time.perf_counter()
        vectors, mask = self.ranker.predict_on_batch({"context_ids": self.token_ids[None]})
        result = np.asarray(vectors, np.float32) * self.scale, np.asarray(mask)
        self.seconds = time.perf_counter() - start
        self.vectors = int(result[1].sum())
        return result


def heads() -> dict[str, HeadConfig]:
    """Return the heads of the rows by name."""
    rows = {"bi": HeadConfig(head="bi")}
    for variant in ("learnt", "first_m"):
        for codes in (16, 64, 360):
            rows[f"poly {codes} {variant}"] = HeadConfig(
                head="poly", poly_codes=codes, poly_variant=variant
            )
    return rows


def rankers() -> tuple[dict[str, RankerModel], RankerModel, Path | None]:
    """Return the rankers of the rows by name, a cross-encoder, and a trained trunk's vocabulary."""
    cross = HeadConfig(head="cross")
    if _INIT_FROM.value:
        folder = model_path(_INIT_FROM.value, wants_module=True)
        found = {name: initial_ranker(folder, head) for name, head in heads().items()}
        vocabulary = next(iter(found.values()))[1]
        return (
            {name: ranker for name, (ranker, _) in found.items()},
            initial_ranker(folder, cross)[0],
            vocabulary,
        )
    config = model_preset(_MODEL.value, vocab_size=_VOCAB_SIZE.value)
    scale = config.encoding_dim**0.5
    made = {
        name: make_ranker(RankerConfig(config, dataclasses.replace(head, scale=scale)))
        for name, head in heads().items()
    }
    return made, make_ranker(RankerConfig(config, cross)), None


def contexts_of(ranker: RankerModel, vocabulary: Path | None) -> Iterator[np.ndarray]:
    """Yield token ids of contexts without end, each int32 `[tokens]`."""
    if not _CONTEXTS.value:
        ids = np.random.default_rng(0).integers(
            0, ranker.config.model.num_ids, _CONTEXT_TOKENS.value
        )
        return itertools.repeat(ids.astype(np.int32))
    if vocabulary is None:
        sys.exit(
            "candidates.py: --contexts needs the vocabulary of a trained encoder. Set --init_from."
        )
    examples = tokenize_examples(
        read_examples(_CONTEXTS.value, "test", max_examples=100),
        make_tokenize(vocabulary, ranker.config),
        max_context_tokens=_CONTEXT_TOKENS.value,
        max_candidate_tokens=_CANDIDATE_TOKENS.value,
    )
    texts = examples.contexts
    # All contexts have the same length, because each shape is compiled separately.
    whole = np.flatnonzero(texts.lengths == _CONTEXT_TOKENS.value)
    if not len(whole):
        sys.exit(
            f"candidates.py: no context has {_CONTEXT_TOKENS.value} tokens. Lower --context_tokens."
        )
    return itertools.cycle(texts.take([number]).flat for number in whole)


def random_cache(folder: Path, count: int, dim: int) -> CandidateCache:
    """Write a cache of random vectors of length 1."""
    rng = np.random.default_rng(count)

    def encode(texts):
        vectors = rng.standard_normal((len(texts), dim), dtype=np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    return write_cache(
        folder, map(str, range(count)), encode, fingerprint=FINGERPRINT, dtype=_DTYPE.value
    )


def timed(function) -> float:
    """Return the seconds of a call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


class Machine:
    """Measures the rates that limit any search: bytes read and FLOPs of a matrix product."""

    def __init__(self):
        rng = np.random.default_rng(0)
        # A bi-encoder's search is a product of a matrix and a vector, so reading is timed as one.
        self._read = rng.standard_normal((2**17, 512), dtype=np.float32)
        self._vector = np.ones(512, np.float32)
        self._square = rng.standard_normal((2048, 2048), dtype=np.float32)
        self._out = np.empty((2048, 2048), np.float32)

    def measure(self) -> dict[str, float]:
        """Return both rates per second by name."""
        reading = min(timed(lambda: self._read @ self._vector) for _ in range(2))
        product = timed(lambda: np.matmul(self._square, self._square, out=self._out))
        return {"bytes_per_s": self._read.nbytes / reading, "flop_per_s": 2 * 2048**3 / product}


def main(argv: list[str]) -> None:
    del argv
    counts = [int(count) for count in _COUNTS.value]
    by_name, cross, vocabulary = rankers()
    contexts = contexts_of(cross, vocabulary)
    trunk = cross.config.model
    dim = trunk.dim if isinstance(trunk, BertConfig) else trunk.encoding_dim
    encoders = {
        name: TimedEncoder(ranker, ranker.config.head.scale) for name, ranker in by_name.items()
    }
    report: dict[str, dict] = {}
    rates: dict[str, list[float]] = {"bytes_per_s": [], "flop_per_s": []}
    with tempfile.TemporaryDirectory() as folder:
        caches = {n: random_cache(Path(folder) / str(n), n, dim) for n in counts}
        row_bytes = caches[counts[0]].stored(0, 1)[0].nbytes
        machine = Machine()
        samples: dict[tuple[str, int], list[tuple[float, float]]] = {}
        for turn in range(-2, _TURNS.value):  # the first two turns are for warm-up
            for key, value in machine.measure().items():
                rates[key] += [value] * (turn >= 0)
            context = next(contexts)
            for name, encoder in encoders.items():
                encoder.token_ids = context
                for count, cache in caches.items():
                    index = CandidateIndex(cache, encoder)
                    total = timed(lambda i=index: i.search(["context"], top_k=TOP_K))
                    if turn >= 0:
                        samples.setdefault((name, count), []).append((encoder.seconds, total))
    peak = {key: max(values) for key, values in rates.items()}
    print(
        f"{_DTYPE.value}, {_CONTEXT_TOKENS.value} context tokens; memory read at "
        f"{peak['bytes_per_s'] / 1e9:.1f} GB/s, matrix product {peak['flop_per_s'] / 1e9:.0f} "
        "GFLOP/s (best of the run)"
    )
    print(f"{'':<18}{'candidates':>11}{'encode':>9}{'score':>9}{'total':>9}{'× bi':>7}{'floor':>9}")
    for (name, count), pairs in samples.items():
        encode, total = (1e3 * statistics.median(column) for column in zip(*pairs, strict=True))
        score = 1e3 * statistics.median(t - e for e, t in pairs)
        of_bi = zip(pairs, samples["bi", count], strict=True)
        ratio = statistics.median(own[1] / bi[1] for own, bi in of_bi)
        vectors = encoders[name].vectors
        flops = 2 * count * dim * vectors
        floor = 1e3 * max(count * row_bytes / peak["bytes_per_s"], flops / peak["flop_per_s"])
        report[f"{name}, {count}"] = {
            "encode_ms": encode,
            "score_ms": score,
            "total_ms": total,
            "ratio_to_bi": ratio,
            "floor_of_score_ms": floor,
            "context_vectors": vectors,
        }
        print(
            f"{name:<18}{count:>11,}{encode:9.1f}{score:9.1f}{total:9.1f}{ratio:7.2f}{floor:9.1f}"
        )
    report |= time_cross(cross, context, counts)
    report["rates"] = {key: statistics.median(values) for key, values in rates.items()}
    if _OUTPUT.value:
        Path(_OUTPUT.value).write_text(json.dumps(report, indent=2) + "\n")


def time_cross(ranker: RankerModel, context: np.ndarray, counts: list[int]) -> dict[str, dict]:
    """Measure the cross-encoder with 1,000 candidates in batches, and print its rows."""
    if not _CROSS_TURNS.value:
        return {}
    shape = (1, CROSS_BATCH, _CANDIDATE_TOKENS.value)
    rng = np.random.default_rng(0)
    ids = rng.integers(0, ranker.config.model.num_ids, shape).astype(np.int32)
    inputs = {"context_ids": context[None], "candidate_ids": ids}
    ranker.predict_on_batch(inputs)
    seconds = [
        sum(timed(lambda: ranker.predict_on_batch(inputs)) for _ in range(1000 // CROSS_BATCH))
        for _ in range(_CROSS_TURNS.value)
    ]
    rows = {}
    for count in counts:
        total = 1e3 * statistics.median(seconds) * count / 1000
        rows[f"cross, {count}"] = {"total_ms": total, "is_measured": count == 1000}
        print(f"{'cross':<18}{count:>11,}{total:27.0f}{'' if count == 1000 else '  extrapolated'}")
    return rows


if __name__ == "__main__":
    app.run(main)
