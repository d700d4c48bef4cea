"""Ranks responses with checkpoints, modules and baselines, all on the same examples.

```
python -m convert_tf.evaluate --data data/ --checkpoint runs/convert
python -m convert_tf.evaluate --data data/ --checkpoint runs/a --checkpoint runs/b \
    --module hub_modules/convert/1 --baselines tfidf,bm25,sim,map --vectors hub_modules/convert/1 \
    --output results/
python -m convert_tf.evaluate --candidates mutual.valid.jsonl --module hub_modules/convert/1
```

Records (`--data`) are ranked as PolyAI does it: blocks of 100 examples, where the other 99
responses are the negatives. A file (`--candidates`) brings the candidates of each context
(`convert_tf.data.candidates`). R_N@k is the share of contexts one of whose right candidates is
among the first k of N, and MRR the mean of 1 / rank of the best of them; a tie with a wrong
candidate is a miss (`convert_tf.metrics`). A checkpoint cuts texts as in training, a module at its
own limit, so the two may differ on texts longer than the checkpoint's `max_tokens`.

Reference: arXiv 1911.03688 §3.2; arXiv 1904.06472 §4.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from absl import app, flags

from convert_tf import metrics
from convert_tf.comparison import Report, table, write_report
from convert_tf.evaluation_rows import BASELINES, HISTORY, baseline_rankers, model_rankers
from convert_tf.evaluation_tasks import (
    KS,
    check_ks,
    compare_on_candidates,
    compare_on_records,
)
from convert_tf.files import write_file
from convert_tf.ranking import ALL
from convert_tf.text_encoders import PRECISIONS

TRAIN_EXAMPLES = 10_000


def evaluate(
    data: str,
    *,
    checkpoint: str | None = None,
    module: str | None = None,
    split: str = "test",
    ks: Iterable[int] = KS,
    block_size: int = metrics.BLOCK_SIZE,
    max_examples: int | None = None,
    precision: str = "float32",
) -> dict[str, Any]:
    """R_N@k and MRR of one checkpoint or of one module on records.

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
    if (checkpoint is None) == (module is None):
        raise ValueError(
            "Either a checkpoint or a module is evaluated. Received: "
            f"{'neither' if module is None else 'both'}. Pass one of them."
        )
    check_ks(ks := list(ks), block_size)
    rankers = model_rankers(
        [checkpoint] if checkpoint is not None else [],
        [module] if module is not None else [],
        precision=precision,
    )
    report = compare_on_records(
        rankers, data, split=split, ks=ks, block_size=block_size, max_examples=max_examples
    )
    return _flat(report)


def _flat(report: Report) -> dict[str, Any]:
    task, row = report["task"], report["rows"][0]
    return {
        "checkpoint": row["settings"].get("checkpoint"),
        "module": row["settings"].get("module"),
        "data": task["data"],
        "split": task["split"],
        "block_size": task["block_size"],
        "precision": row["settings"].get("precision"),
        "seconds": row["seconds"],
        "examples": row["groups"][ALL]["examples"],
        "metrics": row["groups"][ALL]["metrics"],
    }


def _define_flags() -> None:
    flags.DEFINE_multi_string("checkpoint", [], "Folder that train.py wrote; repeatable.")
    flags.DEFINE_multi_string("module", [], "Module that export.py wrote; repeatable.")
    flags.DEFINE_list("baselines", [], f"Some of {', '.join(BASELINES)}.")
    flags.DEFINE_multi_string("vectors", [], "Module or checkpoint of sim and map; repeatable.")
    flags.DEFINE_string(
        "vector_signature", None,
        "Signature of --vectors modules that encodes contexts and responses alike, as default.",
    )  # fmt: skip
    flags.DEFINE_string(
        "train_data", None,
        "What tfidf, bm25 and map are fitted on: folder of records (its train split; by default "
        "that of --data) or file of given candidates.",
    )  # fmt: skip
    flags.DEFINE_integer(
        "train_examples", TRAIN_EXAMPLES, "How many of them, at most.", lower_bound=1
    )
    flags.DEFINE_string("data", None, "Folder of records; this or --candidates.")
    flags.DEFINE_string("split", "test", "Which records: train, dev or test.")
    flags.DEFINE_string("candidates", None, "JSON lines with contexts and their candidates.")
    flags.DEFINE_list(
        "k", None, "The k of R_N@k: by default 1,3,10 on records, else those of 1,2,5,10 below N."
    )
    flags.DEFINE_integer(
        "block_size", metrics.BLOCK_SIZE, "N of --data: responses that are ranked.", lower_bound=1
    )
    flags.DEFINE_integer("max_examples", None, "Read at most this many.", lower_bound=1)
    flags.DEFINE_enum(
        "history", HISTORY[0], HISTORY,
        "What is read of a context. own: all turns by those who have a place for earlier ones, "
        "the last by others; joined: those others read all turns as one text; none: the last.",
    )  # fmt: skip
    flags.DEFINE_bool("by_source", False, "Also blocks of 100 within each source of --data.")
    flags.DEFINE_bool("by_history", False, "Also scores of contexts with and without history.")
    flags.DEFINE_enum("precision", "float32", PRECISIONS, "Of a checkpoint's computations.")
    flags.DEFINE_string(
        "output", None,
        "Folder for evaluation.json, .md and .png; rows there of the same examples are kept. "
        "Or, for one model on --data, a .json file.",
    )  # fmt: skip


def _check_used(values: Any) -> None:
    """Raises `ValueError` for a flag that would change nothing."""
    without_effect = {
        "with --candidates": values.candidates and ("split", "block_size", "by_source"),
        "without --vectors": not values.vectors and ("vector_signature",),
        "without a baseline that is fitted": not {*values.baselines} - {"sim"}
        and ("train_data", "train_examples"),
    }
    for reason, names in without_effect.items():
        if unused := [f"--{name}" for name in names or () if values[name].present]:
            raise ValueError(
                f"Each flag must have an effect. Received: {', '.join(unused)} {reason}. "
                "Leave it out."
            )


def _report(values: Any) -> Report:
    if (values.data is None) == (values.candidates is None):
        raise ValueError(
            "Examples come from --data or from --candidates. Received: "
            f"{'neither' if values.data is None else 'both'}. Pass one of them."
        )
    _check_used(values)
    num_models = len(values.checkpoint) + len(values.module)
    is_file = (values.output or "").endswith(".json")
    if is_file and (num_models != 1 or values.baselines or values.candidates):
        raise ValueError(
            "A .json file is written for one model on --data. Received: "
            f"{values.output!r} for more. Name a folder with --output."
        )
    if not (values.checkpoint or values.module or values.baselines):
        raise ValueError(
            "Something must rank. Received: no --checkpoint, --module or --baselines. Pass one."
        )
    ks = None if values.k is None else [int(k) for k in values.k]
    if values.data is not None:
        check_ks(ks := ks or [k for k in KS if k <= values.block_size], values.block_size)
    rankers = model_rankers(
        values.checkpoint,
        values.module,
        precision=values.precision,
        joins_turns=values.history == "joined",
    )
    rankers += baseline_rankers(
        values.baselines,
        values.vectors,
        train_data=values.train_data or values.data,
        train_examples=values.train_examples,
        signature=values.vector_signature,
        history=values.history,
    )
    common: dict[str, Any] = {
        "max_examples": values.max_examples,
        "history": values.history,
        "by_history": values.by_history,
    }
    if values.candidates is not None:
        return compare_on_candidates(rankers, values.candidates, ks=ks, **common)
    return compare_on_records(
        rankers,
        values.data,
        split=values.split,
        ks=ks or [],
        block_size=values.block_size,
        by_source=values.by_source,
        **common,
    )


def _run(argv: Sequence[str]) -> None:
    values = flags.FLAGS
    if len(argv) > 1:
        raise app.UsageError(f"Flags are given as --name=value. Received: {argv[1:]}.")
    if values.k is not None and not all(k.strip().isdecimal() for k in values.k):
        raise app.UsageError(f"--k is a list of numbers, as 1,3,10. Received: {values.k}.")
    try:
        report = _report(values)
        print(table(report), flush=True)  # before what may fail
        if values.output and values.output.endswith(".json"):
            write_file(values.output, json.dumps(_flat(report), indent=2) + "\n")
        elif values.output:
            write_report(report, values.output)
    except (ValueError, OSError) as error:
        sys.exit(f"evaluate: {' '.join(str(error).split())}")


if __name__ == "__main__":
    _define_flags()
    app.run(_run)
