r"""Train or fine-tune a dual encoder, or a ranker.

```
convert-tf train --data data/ --vocab vocab.txt --model convert_small --output runs/small
```

Run the same command again to resume an interrupted run.

`--data` may also be a file of pairs or dialogues. Pairs are CSV or TSV with a context and a
response, or a question and an answer. Dialogues are JSON lines with `turns`. For example:

```
convert-tf train --data faq.csv --model tiny --output runs/faq
```

With `--head`, a trained encoder is fine-tuned as a bi-, poly- or cross-encoder. `--data` is then a
folder of records, a folder of token ids or a file of candidates. For example:

```
convert-tf train --init_from runs/convert --head poly --poly_codes 64 --data train.jsonl.gz \
    --dev_data valid.jsonl.gz --negatives_from given --output runs/poly
```

Flags:
  vocab: Vocabulary file. Not needed for token ids.
  model: Preset of a new model.
  init_from: Model to fine-tune: a released name, or the folder of a run or module.
  head: Fine-tune --init_from as a ranker of this kind.
  recipe: Set of options, which other flags override. small: Adam, for up to a million pairs. paper:
    ADADELTA, for half a billion pairs. Default: small for a file, else paper. With --head:
    the recipe named after the task that --data belongs to, else paper.
  output: Folder of the run.
  num_processes: Number of processes that share every batch.
  process_id: Number of this process, starting at 0. Process 0 writes and prints.
  coordinator: Address of process 0 as host:port. auto asks Slurm, Open MPI, Kubernetes or Cloud TPU
    for this address, --num_processes and --process_id.
  join_timeout: Seconds to wait until all processes have joined the run.
"""

import functools
import os
from typing import Any

from convert_tf.cli.flags import NEEDED, Define, check_read, define_fields, given_fields, same
from convert_tf.config.base import DATA, MODEL, OPTIMISATION, OUTPUT
from convert_tf.config.model import MODEL_PRESETS, ModelConfig, model_preset
from convert_tf.config.ranker import HEADS, RANKER_RECIPES, HeadConfig, RankerTraining
from convert_tf.config.train import TRAIN_RECIPES
from convert_tf.training.encoder.options import EncoderTraining

INTERRUPTED = "interrupted; run the same command again to resume from the last checkpoint"
# Fields that come from the vocabulary and not from flags.
_FROM_VOCABULARY = ("vocab_size", "tokenizer")
_PROCESSES = ("num_processes", "process_id", "coordinator", "join_timeout")
_JOIN_TIMEOUT = 300  # seconds
# Flags for training encoders, besides the fields of `EncoderTraining` and `ModelConfig`.
_OF_ENCODERS = ("model", "vocab", *_PROCESSES)


def define_flags(define: Define) -> None:
    common = functools.partial(define, is_common=True)
    common("vocab", None, group=DATA)
    common("model", None, choices=sorted(MODEL_PRESETS), group=MODEL)
    common("init_from", None, group=MODEL)
    common("head", None, choices=HEADS, group=MODEL)
    recipes = sorted({*TRAIN_RECIPES, *RANKER_RECIPES})
    common("recipe", None, choices=recipes, group=OPTIMISATION)
    common("output", NEEDED, group=OUTPUT)
    define_fields(
        define,
        EncoderTraining,
        RankerTraining,
        HeadConfig,
        ModelConfig,
        leave_out=(*_FROM_VOCABULARY, "head"),
    )
    of_processes = functools.partial(define, group=OPTIMISATION)
    of_processes("num_processes", None, kind=int)
    of_processes("process_id", None, kind=int)
    of_processes("coordinator", None)
    of_processes("join_timeout", _JOIN_TIMEOUT, lower_bound=1)


def run(values: Any) -> None:
    encoder = {*EncoderTraining.defaults(), *ModelConfig.defaults(), *_OF_ENCODERS}
    ranker = {*RankerTraining.defaults(), *HeadConfig.defaults()}
    if values.head:
        check_read(values, {"with --head, which trains a ranker": encoder - ranker})
        _train_ranker(values)
    else:
        check_read(values, {"without --head": ranker - encoder})
        _train_encoder(values)


def _train_encoder(values: Any) -> None:
    is_file = os.path.isfile(values.data or "")
    check_read(
        values,
        {
            "without --model": () if values.model else ModelConfig.defaults(),
            "with a file as --data": _PROCESSES if is_file else (),
        },
    )
    model_fields = given_fields(values, ModelConfig, leave_out=_FROM_VOCABULARY)
    from convert_tf.training.encoder.task import train
    from convert_tf.training.processes import join_processes

    join_processes(**same(values, " ".join(_PROCESSES)))
    train(
        model_preset(values.model, **model_fields) if values.model else None,
        given_fields(values, EncoderTraining),
        vocabulary=values.vocab,
        **same(values, "output init_from recipe"),
    )


def _train_ranker(values: Any) -> None:
    head = HeadConfig(**given_fields(values, HeadConfig))
    head.check_effect(given_fields(values, HeadConfig))
    from convert_tf.training.ranker.task import train_ranker

    train_ranker(
        head, given_fields(values, RankerTraining), **same(values, "init_from output recipe")
    )
