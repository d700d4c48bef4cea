r"""Train or fine-tune a dual encoder, or a ranker.

```
convert-tf train --data data/ --vocab vocab.txt --model convert_small --output runs/small
```

Run the same command again to resume an interrupted run.

`--data` may also be a file of pairs (CSV or TSV with a context and a response, or a question and an
answer) or of dialogues (JSON lines with `turns`):

```
convert-tf train --data faq.csv --model tiny --output runs/faq
```

With `--head`, a trained encoder is fine-tuned as a bi-, poly- or cross-encoder. The data are
records, token ids or a file of candidates:

```
convert-tf train --init_from runs/convert --head poly --poly_codes 64 --data train.jsonl.gz \
    --dev_data valid.jsonl.gz --negatives_from given --output runs/poly
```

Flags:
  vocab: Vocabulary file. Not needed for token ids.
  model: Preset of a new model.
  init_from: Model to start from (fine-tuning): a released name, a run's folder or a module.
  head: Fine-tune --init_from as a ranker of this kind.
  recipe: Options to start from; flags that you set override them. small: Adam, for up to a million
    pairs. paper: ADADELTA, for half a billion. Default: small for a file, else paper. With --head,
    paper or convai2 (batches of 512, and 19 given negatives for cross). Default: paper.
  output: Folder of the run.
  num_processes: Processes that share every batch.
  process_id: Number of this process, from 0. Process 0 writes and prints.
  coordinator: Address of process 0 as host:port. auto asks Slurm, Open MPI, Kubernetes or Cloud TPU
    for this address and the two numbers.
"""

import functools
import os
from typing import Any

from convert_tf.cli.flags import NEEDED, Define, check_read, define_fields, given_fields, same
from convert_tf.config.base import DATA, MODEL, OPTIMISATION, OUTPUT
from convert_tf.config.model import MODEL_PRESETS, ModelConfig, model_preset
from convert_tf.config.ranker import (
    HEADS,
    RANKER_RECIPES,
    HeadConfig,
    RankerTraining,
    ranker_recipe,
)
from convert_tf.config.train import TRAIN_RECIPES, EncoderTraining, train_recipe
from convert_tf.extras import needs

INTERRUPTED = "interrupted; run the same command again to resume from the last checkpoint"
# Fields that come from the vocabulary, not from flags.
_FROM_VOCABULARY = ("vocab_size", "tokenizer")
_PROCESSES = ("num_processes", "process_id", "coordinator")
_OF_ENCODERS = ("model", "vocab", *_PROCESSES)  # and the fields of configurations


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
    model = model_preset(values.model, **model_fields) if values.model else None
    options = given = given_fields(values, EncoderTraining)
    vocabulary, recipe = values.vocab, values.recipe or "paper"
    if not os.path.exists(values.data or ""):
        problem = f"--data={values.data} does not exist" if values.data else "--data is missing"
        raise ValueError(
            f"{problem}. Pass a folder of records or of token ids, or a file of pairs or dialogues."
        )
    if model is None and not values.init_from:
        raise ValueError(
            f"There is no model to train. Pass --model ({', '.join(MODEL_PRESETS)}), or "
            "--init_from."
        )
    if is_file:
        with needs("", "Preparing a file"):
            from convert_tf.training.own_file import prepare_own_file
        own = prepare_own_file(
            values.data, values.output, vocabulary=vocabulary,
            learns_vocabulary=not values.init_from,
        )  # fmt: skip
        vocabulary = own.vocabulary
        recipe = values.recipe or "small"
        sizes = own.sizes(given.get("batch_size")) if recipe == "small" else {}
        options = {"eval_splits": own.eval_splits, **sizes, **given, "data": own.data}
    if recipe == "paper_finetune":
        if values.init_from is None:
            raise ValueError(
                "The recipe paper_finetune starts from a trained model. Pass --init_from with the "
                "folder of a run or a module, or use the recipe paper."
            )
        from convert_tf.checkpoints.loading import trained_scale

        scale = trained_scale(values.init_from)
        options = {"scale_start": scale, "scale_end": scale, **options}
    config = train_recipe(recipe, **options)
    config.check_effect(given)
    from convert_tf.training.encoder.run import train
    from convert_tf.training.processes import join_processes

    join_processes(**same(values, "num_processes process_id coordinator"))
    train(model, config, vocabulary=vocabulary, **same(values, "output init_from"))


def _train_ranker(values: Any) -> None:
    head = HeadConfig(**given_fields(values, HeadConfig))
    options = given_fields(values, RankerTraining)
    data = options.get("data", "")
    if os.path.isdir(data):
        options.setdefault("dev_data", data)
    if not data or not options.get("dev_data") or not values.init_from:
        raise ValueError(
            "A head is trained with --init_from, --data and --dev_data (a folder of records or of "
            "token ids, which has a dev split, or a file of given candidates). Received: "
            f"init_from {values.init_from!r}, data {data!r}, dev_data {options.get('dev_data')!r}."
        )
    recipe = values.recipe or "paper"
    if head.head == "cross" and recipe == "paper":
        options.setdefault("negatives_from", "sampled" if os.path.isdir(data) else "given")
    head.check_effect(given_fields(values, HeadConfig))
    ranker_recipe(head.head, recipe=recipe, **options).check_effect(options)
    from convert_tf.training.ranker import train_ranker

    train_ranker(head, options, recipe=recipe, **same(values, "init_from output"))
