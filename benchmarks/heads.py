"""Compare bi-, poly- and cross-encoders that are fine-tuned from the same trunk.

```
python benchmarks/heads.py --task given --trunk runs/small --data train.jsonl.gz \
    --eval_data valid.jsonl.gz --output given.json
python benchmarks/heads.py --task records --trunk runs/small --data data/ --eval_data data/ \
    --output records.json
python benchmarks/heads.py --tables given.json,records.json
```

There are three tasks:

- `given` trains on candidates from files, and ranks candidates from files.
- `records` trains bi- and poly-encoders against the other responses of the batch, and
  cross-encoders against sampled responses. It ranks each response among the 100 of its block.
- `in_batch` trains like `records`, and ranks candidates from files.

Results are added to the output after each run. If you repeat a command, finished runs are skipped.
Only `--heads` and `--seeds` may then differ: an output with runs of other flags is refused. The
third command prints means and standard deviations over seeds.
"""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import app, flags

from convert_tf.metrics import right_ranks

_TASK = flags.DEFINE_enum(
    "task", "given", ["given", "records", "in_batch"], "Data and negatives to use."
)
_TRUNK = flags.DEFINE_string("trunk", None, "Dual encoder or BERT-like trunk to start from.")
_DATA = flags.DEFINE_string("data", None, "Candidates file or folder of records to train on.")
_EVAL = flags.DEFINE_string("eval_data", None, "Candidates file or folder of records to rank.")
_OUTPUT = flags.DEFINE_string("output", None, "JSON file; runs in it are skipped.")
_HEADS = flags.DEFINE_list("heads", [], "Heads; all except those in EXTRA by default.")
_SEEDS = flags.DEFINE_integer("seeds", 3, "Number of seeds, starting at 0.")
_EXAMPLES = flags.DEFINE_integer("examples", 1_200, "Training examples, each used once.")
_EVALUATED = flags.DEFINE_integer("evaluated", 1_000, "Contexts that bi and poly rank.")
_JOINT = flags.DEFINE_integer("evaluated_jointly", 100, "Contexts that cross ranks.")
_BATCH = flags.DEFINE_integer("batch_size", 32, "Contexts per step.")
_RATE = flags.DEFINE_float("learning_rate", 1e-3, "Peak rate; Adamax, cosine decay to a tenth.")
_TOKENS = flags.DEFINE_integer("max_context_tokens", 96, "Last tokens kept per context.")
_FREEZE = flags.DEFINE_string(
    "freeze", "embeddings", "Weights to freeze, unless a head says otherwise."
)
_NEGATIVES = flags.DEFINE_integer("negatives", 3, "Negatives from given or sampled candidates.")
_PRECISION = flags.DEFINE_string("precision", "auto", "As in train.py.")
_TABLES = flags.DEFINE_list("tables", [], "Outputs to print instead of training.")
# The flags that change the figures of a run.
_CONFIGURATION = (
    _TASK, _TRUNK, _DATA, _EVAL, _EXAMPLES, _EVALUATED, _JOINT, _BATCH, _RATE, _TOKENS, _FREEZE,
    _NEGATIVES, _PRECISION,
)  # fmt: skip

HEADS: dict[str, dict[str, Any]] = {
    "bi": {"head": "bi"},
    **{
        f"poly {m} {variant}": {"head": "poly", "poly_codes": m, "poly_variant": variant}
        for m in (16, 64)
        for variant in ("learnt", "first_m", "last_m", "last_m_and_first")
    },
    "cross": {"head": "cross"},
}
EXTRA: dict[str, dict[str, Any]] = {
    "untrained bi": {"head": "bi"},
    "untrained bi mean": {"head": "bi", "reduction": "mean"},
    "untrained cross": {"head": "cross"},
    "bi learnt scale": {"head": "bi", "learn_scale": True},
    "poly 64 learnt learnt scale": {"head": "poly", "learn_scale": True},
    "bi first": {"head": "bi", "reduction": "first"},
    "bi mean": {"head": "bi", "reduction": "mean"},
    "bi mean top block": {"head": "bi", "reduction": "mean", "freeze": "all_but_top_k"},
    "bi mean top 4 blocks": {
        "head": "bi",
        "reduction": "mean",
        "freeze": "all_but_top_k",
        "trainable_blocks": 4,
    },
    "bi mean all layers": {"head": "bi", "reduction": "mean", "freeze": "nothing"},
    "bi mean without first": {"head": "bi", "reduction": "mean_without_first"},
    **{
        f"bi mean of first {m}": {"head": "bi", "reduction": "first_m_mean", "reduction_tokens": m}
        for m in (16, 64)
    },
    **{
        f"poly {m} {variant}": {"head": "poly", "poly_codes": m, "poly_variant": variant}
        for m in (1, 4, 360)
        for variant in ("learnt", "first_m", "last_m", "last_m_and_first")
    },
    **{
        f"poly {m} learnt mean": {"head": "poly", "poly_codes": m, "reduction": "mean"}
        for m in (16, 64, 360)
    },
    **{
        f"poly {m} {variant} mean": {
            "head": "poly",
            "poly_codes": m,
            "poly_variant": variant,
            "reduction": "mean",
        }
        for m, variant in ((4, "last_m"), (64, "last_m"), (64, "first_m"))
    },
    **{
        f"poly {m} {variant} mean at a scale of 0.1": {
            "head": "poly",
            "poly_codes": m,
            "poly_variant": variant,
            "reduction": "mean",
            "scale": 0.1,
        }
        for m in (1, 4, 16, 64)
        for variant in ("learnt", "first_m", "last_m")
    },
    "poly 64 last_m at a scale of 0.1": {
        "head": "poly",
        "poly_codes": 64,
        "poly_variant": "last_m",
        "scale": 0.1,
    },
    "bi mean at a scale of 0.1": {"head": "bi", "reduction": "mean", "scale": 0.1},
    **{f"bi batches of {size}": {"head": "bi", "batch_size": size} for size in (64, 128, 256, 512)},
    "bi separate trunks": {"head": "bi", "separate_trunks": True},
    "bi mean separate trunks": {"head": "bi", "reduction": "mean", "separate_trunks": True},
    "poly 16 last_m separate trunks": {
        "head": "poly",
        "poly_codes": 16,
        "poly_variant": "last_m",
        "separate_trunks": True,
    },
    "cross first": {"head": "cross", "reduction": "first"},
    "cross mean": {"head": "cross", "reduction": "mean"},
    "cross all layers": {"head": "cross", "freeze": "nothing"},
    "cross top block": {"head": "cross", "freeze": "all_but_top_k"},
    "cross top 4 blocks": {"head": "cross", "freeze": "all_but_top_k", "trainable_blocks": 4},
    "cross 15 negatives": {"head": "cross", "negatives": 15},
    "cross across 0": {"head": "cross"},
    "cross across -4": {"head": "cross"},
}


class Runs:
    """The models of a task. Each is compiled once and reset for every seed."""

    def __init__(self) -> None:
        from convert_tf.checkpoints.loading import initial_ranker
        from convert_tf.config.ranker import HeadConfig
        from convert_tf.numerics.devices import choose_precision
        from convert_tf.ranking.checkpoint import make_tokenize

        self.precision = choose_precision(_PRECISION.value)
        ranker, vocabulary = initial_ranker(_TRUNK.value, HeadConfig())
        self.tokenize = make_tokenize(vocabulary, ranker.config)
        self.train = self._read(_DATA.value, "train", _EXAMPLES.value)
        self.evaluated = self._read(_EVAL.value, "test", _EVALUATED.value)
        self.models: dict[str, Any] = {}

    def _read(self, data: str, split: str, number: int) -> Any:
        from convert_tf.data.candidates import read_examples
        from convert_tf.data.ranking_batches import tokenize_examples

        return tokenize_examples(
            read_examples(data, split, max_examples=number),
            self.tokenize,
            max_context_tokens=_TOKENS.value,
            max_candidate_tokens=40,
        )

    def head(self, name: str) -> tuple[Any, dict[str, Any]]:
        """Return the head of a row and its training options."""
        from convert_tf.config.ranker import HeadConfig, RankerTraining

        values = {"freeze": _FREEZE.value, "batch_size": _BATCH.value, **{**HEADS, **EXTRA}[name]}
        source = "given" if _TASK.value == "given" else "sampled"
        if _TASK.value != "given" and values["head"] != "cross":
            source = "in_batch"
        training = {n: values.pop(n) for n in [*values] if n in RankerTraining.defaults()}
        return HeadConfig(**values), {
            "negatives": _NEGATIVES.value,
            "negatives_from": source,
            **training,
        }

    def run(self, name: str, seed: int) -> dict[str, Any]:
        """Train and evaluate a head, and return its results."""
        from convert_tf.checkpoints.loading import initial_ranker
        from convert_tf.config.ranker import RankerTraining
        from convert_tf.numerics.initializers import set_seed
        from convert_tf.training.ranker.task import make_ranker_training

        head, options = self.head(name)
        set_seed(seed)
        ranker, _ = initial_ranker(_TRUNK.value, head, dtype=self.precision)
        if name.startswith("cross across"):
            bias = ranker.trunk.across_bias
            bias.assign(np.full(bias.shape, float(name.split()[-1])))
        steps = self.train.num_examples // options["batch_size"]
        if name not in self.models:
            config = RankerTraining(
                steps=steps,
                optimizer="adamax",
                learning_rate=_RATE.value,
                final_learning_rate=_RATE.value / 10,
                warmup_steps=max(1, steps // 10),
                **options,
            )
            model = make_ranker_training(ranker, config, precision=self.precision)
            self.models[name] = model, [np.asarray(v).copy() for v in model.optimizer.variables]
        model, optimizer_start = self.models[name]
        for variable, value in zip(model.optimizer.variables, optimizer_start, strict=True):
            variable.assign(value)
        for variable, fresh in zip(model.encoder.variables, ranker.variables, strict=True):
            variable.assign(fresh)
        batches = self._batches(options, ranker.padding_id, seed)
        start, losses, cpu_seconds = time.perf_counter(), [], []
        for _ in range(0 if name.startswith("untrained") else steps):
            cpu_start = time.process_time()
            logs = model.train_on_batch(next(batches), return_dict=True)
            cpu_seconds.append(time.process_time() - cpu_start)
            losses.append(float(logs["loss"]))
        trained = time.perf_counter()
        ranks = self._ranks(model.encoder)
        return {
            "head": name,
            "seed": seed,
            "loss_first_last": [float(np.mean(losses[:5])), float(np.mean(losses[-5:]))]
            if losses
            else None,
            "ranks": ranks,
            "train_seconds": round(trained - start, 1),
            "eval_seconds": round(time.perf_counter() - trained, 1),
            "batch_size": options["batch_size"],
            "steps": len(losses),
            # The median leaves out the first step, which compiles.
            "cpu_ms_per_step": 1000 * float(np.median(cpu_seconds)) if cpu_seconds else 0.0,
            "num_candidates": 100
            if _TASK.value == "records"
            else len(self.evaluated.candidates[0]),
            "examples": self.train.num_examples,
            "learning_rate": _RATE.value,
            "max_context_tokens": _TOKENS.value,
            "precision": self.precision,
            "flags": configuration(),
        }

    def _batches(self, options: Mapping[str, Any], padding_id: int, seed: int) -> Any:
        from convert_tf.data.ranking_batches import NegativeSampler, RankingBatches

        sampler, source = None, options["negatives_from"]
        if source != "in_batch":
            sampler = NegativeSampler(self.train, source=source, count=options["negatives"])
        return iter(
            RankingBatches(
                self.train,
                batch_size=options["batch_size"],
                padding_id=padding_id,
                seed=seed,
                sampler=sampler,
            )
        )

    def _ranks(self, ranker: Any) -> list[int]:
        from convert_tf.ranking.checkpoint import score_lists
        from convert_tf.training.ranker.data import with_dev_candidates

        examples = self.evaluated
        if _TASK.value != "given":
            number = min(
                examples.num_examples, _JOINT.value if ranker.is_joint else _EVALUATED.value
            )
            examples = examples._replace(
                contexts=examples.contexts.take(np.arange(number)),
                candidates=examples.candidates[:number],
                labels=examples.labels[:number],
            )
        if _TASK.value == "records":
            examples = with_dev_candidates(examples, is_joint=False)
        scores = score_lists(ranker, examples.contexts, examples.pool, examples.candidates)
        return ranks_of(scores, examples.labels)


def ranks_of(scores: Sequence[np.ndarray], labels: Sequence[Sequence[int]]) -> list[int]:
    """Return the rank of the best correct candidate of each context.

    Args:
      scores: for each context, the scores of its candidates.
      labels: for each context, the positions of the correct candidates.

    Raises:
      ValueError: if a score is NaN or infinite.
    """
    ranks = []
    for row, right in zip(scores, labels, strict=True):
        if not np.isfinite(row).all():
            raise ValueError("Some scores are NaN or infinite. Lower the learning rate.")
        ranks.append(int(right_ranks(row, np.isin(np.arange(len(row)), right))))
    return ranks


def configuration() -> dict[str, Any]:
    """Return the flags that change the figures of a run, by name."""
    return {flag.name: flag.value for flag in _CONFIGURATION}


def finished_rows(output: Path) -> list[dict[str, Any]]:
    """Return the rows of an output, or an empty list if it does not exist.

    Raises:
      ValueError: if a row was measured with other flags.
    """
    rows: list[dict[str, Any]] = json.loads(output.read_text()) if output.exists() else []
    for row in rows:
        if (before := row.get("flags", "not stored")) != configuration():
            raise ValueError(
                f"The flags of the runs in {str(output)!r} are others: {before}. Now they "
                f"are {configuration()}. Choose another --output, or remove this file."
            )
    return rows


def print_table(path: str) -> None:
    """Print R@1, R@2 and MRR of each head: mean ± standard deviation over seeds."""
    rows = json.loads(Path(path).read_text())
    subset = min(len(row["ranks"]) for row in rows)
    print(f"\n{path}\n\n| head | seeds | R@1 | R@2 | MRR | R@1 of the first {subset} | train s |")
    print("|---|---|---|---|---|---|---|")
    for name in dict.fromkeys(row["head"] for row in rows):
        own = [row for row in rows if row["head"] == name]
        ranks = [np.array(row["ranks"]) for row in own]
        columns = [
            [100 * np.mean(r <= 1) for r in ranks],
            [100 * np.mean(r <= 2) for r in ranks],
            [100 * np.mean(1 / r) for r in ranks],
            [100 * np.mean(r[:subset] <= 1) for r in ranks],
        ]
        cells = [
            f"{np.mean(c):.1f}" + (f" ± {np.std(c, ddof=1):.1f}" if len(c) > 1 else "")
            for c in columns
        ]
        seconds = np.mean([row["train_seconds"] for row in own])
        print(f"| {name} | {len(own)} | {' | '.join(cells)} | {seconds:.0f} |")


def main(argv: list[str]) -> None:
    if _TABLES.value:
        for path in _TABLES.value:
            print_table(path)
        return
    try:
        measure(Path(_OUTPUT.value))
    except ValueError as error:
        sys.exit(f"heads.py: {error}")


def measure(output: Path) -> None:
    """Train and evaluate the heads that are not in the output yet, and add their results to it.

    Raises:
      ValueError: if the output has runs with other flags, or a score is NaN or infinite.
    """
    done = finished_rows(output)
    runs = Runs()
    for seed in range(_SEEDS.value):
        for name in _HEADS.value or HEADS:
            if any(row["head"] == name and row["seed"] == seed for row in done):
                continue
            done.append(runs.run(name, seed))
            output.write_text(json.dumps(done))
            ranks = np.array(done[-1]["ranks"])
            print(
                f"{name}  seed {seed}  R@1 {100 * np.mean(ranks <= 1):.2f}  "
                f"MRR {100 * np.mean(1 / ranks):.2f}  loss {done[-1]['loss_first_last']}  "
                f"{done[-1]['train_seconds']} + {done[-1]['eval_seconds']} s",
                file=sys.stderr,
                flush=True,
            )


if __name__ == "__main__":
    app.run(main)
