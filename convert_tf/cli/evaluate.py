r"""Rank responses with encoders, rankers and baselines, all on the same examples.

```
convert-tf evaluate --data data/ --encoder runs/convert
convert-tf evaluate --data data/ --encoder runs/a --encoder runs/b \
    --encoder convert_small --baselines tfidf,bm25,sim,map --vectors runs/a --output results/
convert-tf evaluate --data faq.csv --encoder convert_small
convert-tf evaluate --candidates mutual.valid.jsonl --encoder convert_small
convert-tf evaluate --candidates valid_self_original.txt --encoder convert_small  # ConvAI2
```

`--data` is a folder of records, or a file of pairs or dialogues. As in PolyAI's evaluation, each
context is compared with the responses in a block of 100 examples: one correct response and 99 wrong
responses. A `--candidates` file lists the candidates for each context
(`convert_tf.data.candidates`). The published files of ConvAI2, DSTC7, Ubuntu V2, WikiQA and article
search are recognised by their first lines.

R_N@k is the share of contexts with a correct candidate among the first k of N candidates. MRR is
the mean over contexts of 1 / rank, where rank is the best rank of a correct candidate. MAP is the
mean over contexts of the average precision. It is reported if a context has several correct
candidates. In a tie, wrong candidates are ranked before correct ones (`convert_tf.metrics`).

A run cuts texts to the length used in training, and a module cuts them at the module's limit. For
texts longer than the run's `max_tokens`, the results of a run and its module may therefore differ.

Reference: arXiv 1911.03688 §3.2; arXiv 1904.06472 §4.

Flags:
  encoder: Encoder or ranker: a released name, or the folder of a run or module.
  vectors: Encoder for the baselines sim and map: a value as for --encoder, another SavedModel that
    turns strings into vectors, or the folder of a Hugging Face BERT.
  vector_signature: Signature of --vectors for both contexts and responses, for example default. For
    another output of a signature, add its name, as in serving_default:outputs.
  train_data: Data to fit tfidf, bm25 and map to: a folder of records, whose train split is used, or
    a file of candidates. Default: --data.
  train_examples: Maximum number of examples from --train_data.
  data: Folder of records, or file of pairs or dialogues.
  split: Split of --data: train, dev or test.
  candidates: File of contexts and their candidates, instead of --data: JSON lines, or a file as
    published for ConvAI2, DSTC7, Ubuntu V2, WikiQA or article search.
  k: Values of k in R_N@k. Default: 1,3,10 for --data; for --candidates, those values among 1,2,5,10
    that are below N.
  block_size: N in R_N@k for --data: number of responses to rank.
  max_examples: Maximum number of examples to evaluate.
  history: Use of earlier turns. own: models with an input for earlier turns read these turns, and
    all other models read only the last turn. joined: models without such an input read all turns as
    one text. none: all models read only the last turn.
  by_source: Also evaluate each source of --data separately.
  by_history: Also evaluate contexts with and without earlier turns separately.
  output: Folder for evaluation.json, evaluation.md and evaluation.png. If it already contains a
    report on the same examples, rows with the same name are replaced and other rows are kept.
"""

import os
from typing import Any

from convert_tf import metrics
from convert_tf.cli.flags import Define, UsageError, check_read, define_encoder, same
from convert_tf.cli.printing import printed_after_writing
from convert_tf.evaluation.compare import compare, make_task
from convert_tf.evaluation.tables import ranking_table, write_report
from convert_tf.ranking.baselines import BASELINES, HISTORY, baseline_rankers, check_baselines
from convert_tf.ranking.ranker import open_ranker

REPLACED = ("evaluation.*",)
TRAIN_EXAMPLES = 10_000  # for MAP (arXiv 1911.03688 §3.1)


def define_flags(define: Define) -> None:
    define_encoder(define, [], repeats=True)
    define("baselines", [], f"Baselines to compare: {', '.join(BASELINES)}.")
    define("vectors", [], repeats=True)
    define("vector_signature", None)
    define("train_data", None)
    define("train_examples", TRAIN_EXAMPLES, lower_bound=1)
    define("data", None)
    define("split", "test")
    define("candidates", None)
    define("k", None, kind=list)
    define("block_size", metrics.BLOCK_SIZE, lower_bound=1)
    define("max_examples", None, kind=int, lower_bound=1)
    define("history", HISTORY[0], choices=HISTORY)
    define("by_source", False)
    define("by_history", False)
    define("output", None)


def run(values: Any) -> None:
    if values.k is not None and not all(k.strip().isdecimal() for k in values.k):
        raise UsageError(f"--k {','.join(values.k)} is not a list of numbers such as 1,3,10.")
    if values.output and values.output.endswith(".json"):
        raise UsageError("--output must be a folder. Pass a name without .json.")
    is_file_of_pairs = os.path.isfile(values.data or "")
    is_fitted = bool({*values.baselines} - {"sim"})
    unread: dict[str, tuple[str, ...]] = {
        "with a file as --data": ("split",) if is_file_of_pairs else (),
        "with --candidates": ("split", "block_size", "by_source") if values.candidates else (),
        "without --vectors": () if values.vectors else ("vector_signature",),
        "without a baseline that is fitted": () if is_fitted else ("train_data", "train_examples"),
    }
    check_read(values, unread)
    train_data = values.train_data or (None if is_file_of_pairs else values.data)
    check_baselines(values.baselines, values.vectors, train_data=train_data)
    task = make_task(
        ks=None if values.k is None else [int(k) for k in values.k],
        **same(values, "data candidates split block_size max_examples"),
        **same(values, "history by_source by_history"),
    )
    if not (values.encoder or values.baselines):
        raise ValueError("There is nothing to evaluate. Pass --encoder or --baselines.")
    rankers = [open_ranker(path, joins_turns=values.history == "joined") for path in values.encoder]
    rankers += baseline_rankers(
        values.baselines,
        values.vectors,
        train_data=train_data,
        signature=values.vector_signature,
        **same(values, "train_examples history"),
    )
    report = compare(rankers, task)
    with printed_after_writing(ranking_table(report)):
        if values.output:
            write_report(report, values.output)
