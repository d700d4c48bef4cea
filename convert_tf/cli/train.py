r"""Trains or fine-tunes a dual encoder, or a ranker on top of it.

```
convert-tf train --data data/ --vocab vocab.txt --model convert --output runs/convert
```

Running the same command again resumes a run that was stopped. A file of one's own pairs (CSV or TSV
with a context and a response, or a question and an answer) or dialogues (JSON lines with `turns`)
is prepared on the way:

```
convert-tf train --data faq.csv --model tiny --output runs/faq
```

With `--head` a trained model is fine-tuned as a bi-, poly- or cross-encoder, on records or on a
file of given candidates:

```
convert-tf train --init_from runs/convert --head poly --poly_codes 64 --data train.jsonl.gz \
    --dev_data valid.jsonl.gz --negatives_from given --output runs/poly
```
"""

import dataclasses
import os
from typing import Any

from convert_tf.cli.flags import NEEDED, Define, define_fields, given_fields, same
from convert_tf.config.head import HeadConfig, unread_head_options
from convert_tf.config.model import MODEL_PRESETS, ModelConfig, model_preset
from convert_tf.config.train import TRAIN_RECIPES, DataConfig, TrainConfig, train_recipe

INTERRUPTED = "interrupted; the same command goes on from the last checkpoint"
# Fields that come from the vocabulary, not from flags.
_FROM_VOCABULARY = ("vocab_size", "tokenizer")
_PROCESSES = ("num_processes", "process_id", "coordinator")


def define_flags(define: Define) -> None:
    define(
        "model", None, "Preset of the model: convert, convert_small, convert_multi_context or tiny."
    )
    define("vocab", None, "Vocabulary file; token ids bring their own.")
    define("output", NEEDED, "Folder of the run.")
    define(
        "recipe",
        None,
        "Training options to start from; other flags count beyond it. paper: ADADELTA, for half a "
        "billion pairs. paper_finetune: what the paper fine-tunes with, from --init_from. small: "
        "Adam, for a million or fewer. Default: small for a file, else paper.",
        choices=sorted(TRAIN_RECIPES),
    )
    define(
        "dev_data",
        None,
        "With --head: what is evaluated on. Default: the dev split of a folder of records.",
    )
    define(
        "num_processes",
        None,
        "Processes that train together, each with its share of every batch.",
        kind=int,
    )
    define("process_id", None, "Number of this process, from 0, which writes and prints.", kind=int)
    define(
        "coordinator",
        None,
        "host:port on which process 0 listens; auto asks Slurm, Open MPI, Kubernetes or Cloud TPU "
        "for what is not given of these three.",
    )
    define("init_from", None, "Model directory or module to start from (fine-tuning).")
    define_fields(define, DataConfig)
    define_fields(define, ModelConfig, leave_out=_FROM_VOCABULARY)
    define_fields(define, TrainConfig)
    define_fields(define, HeadConfig)


def run(values: Any) -> None:
    head = given_fields(values, HeadConfig)
    processes = {
        name: getattr(values, name) for name in _PROCESSES if getattr(values, name) is not None
    }
    if processes and (head or os.path.isfile(values.data or "")):
        raise ValueError(
            "Several processes train a dual encoder on a folder of token ids or of records. "
            f"Received: {processes} and {'a head' if head else 'a file'}. Leave these "
            "flags away, or prepare a folder first."
        )
    if head:
        _train_head(values, head)
    else:
        _train_encoder(values, processes)


def _train_encoder(values: Any, processes: dict[str, Any]) -> None:
    model_flags = given_fields(values, ModelConfig, leave_out=_FROM_VOCABULARY)
    if values.model is None and model_flags:
        raise ValueError(f"Model flags need --model. Received: {sorted(model_flags)}.")
    model = model_preset(values.model, **model_flags) if values.model else None
    train_flags = given_fields(values, TrainConfig)
    data = DataConfig(**given_fields(values, DataConfig))
    vocabulary, recipe = values.vocab, values.recipe or "paper"
    if not data.data:
        raise ValueError(
            "--data must name a folder of records or of token ids, or a file of pairs or "
            "dialogues. Received: none."
        )
    if not os.path.exists(data.data):
        raise ValueError(f"--data must exist. Received: {data.data!r}. Check the path.")
    if model is None and not values.init_from:
        raise ValueError(
            "Training needs a model. Received: none. "
            f"Give --model ({', '.join(MODEL_PRESETS)}), or --init_from."
        )
    if os.path.isfile(data.data):
        prepare_own_file = _import_own_file()
        own = prepare_own_file(
            data.data, values.output, vocabulary=vocabulary, learns_vocabulary=not values.init_from
        )
        vocabulary = own.vocabulary
        changes: dict[str, Any] = {"data": own.data}
        if values.eval_splits is None:
            changes["eval_splits"] = own.eval_splits
        data = dataclasses.replace(data, **changes)
        recipe = values.recipe or "small"
        if recipe == "small":
            train_flags = {**own.sizes(train_flags.get("batch_size")), **train_flags}
    if recipe == "paper_finetune":
        train_flags = {**_scale_of(values.init_from), **train_flags}
    train_config = train_recipe(recipe, **train_flags)
    from convert_tf.training.encoder.run import train
    from convert_tf.training.processes import join_processes

    join_processes(**processes)
    train(
        model,
        train_config,
        data,
        output=values.output,
        vocabulary=vocabulary,
        init_from=values.init_from,
    )


def _scale_of(init_from: str | None) -> dict[str, float]:
    """Fine-tuning keeps the scale that its model was trained with."""
    if init_from is None:
        raise ValueError(
            "The recipe paper_finetune starts from a trained model. Received: no --init_from. "
            "Name a run's folder or a module, or take the recipe paper."
        )
    from convert_tf.checkpoints.ranker import trained_scale

    scale = trained_scale(init_from)
    return {"scale_start": scale, "scale_end": scale}


def _train_head(values: Any, given: dict[str, Any]) -> None:
    """The run of a ranker; `given` are the flags of its head."""
    unread = [name for name in ("model", "vocab", "recipe") if getattr(values, name) is not None]
    unread += given_fields(values, ModelConfig, leave_out=_FROM_VOCABULARY)
    unread += given_fields(values, DataConfig, leave_out=("data",))
    if "head" not in given or unread:
        raise ValueError(
            "Flags of a head go with --head, and with none of another model or of packed data. "
            f"Received: {sorted(unread or given)}. "
            f"{'Leave them out' if unread else 'Add --head=bi, poly or cross'}."
        )
    data, dev_data = values.data, values.dev_data
    if dev_data is None and data and os.path.isdir(data):
        dev_data = data
    if not data or not dev_data or not values.init_from:
        raise ValueError(
            "A head is trained with --init_from, --data and --dev_data (a folder of records, which "
            "has a dev split, or a file of given candidates). Received: "
            f"init_from {values.init_from!r}, data {data!r}, dev_data {dev_data!r}."
        )
    if given["head"] == "cross" and "negatives_from" not in given:
        given["negatives_from"] = "sampled" if os.path.isdir(data) else "given"
    ignored = unread_head_options(given)
    if ignored:
        raise ValueError(
            f"Each flag must be read by the head that is trained. Received: {', '.join(ignored)} "
            "with other flags under which nothing reads them. Leave them out."
        )
    head = HeadConfig.from_dict(given)
    train_flags = given_fields(values, TrainConfig)
    for name, other in (("steps", "epochs"), ("eval_every", "evaluations_per_epoch")):
        if name in train_flags and other in given:
            raise ValueError(f"Either --{name} or --{other} is given. Received: both.")
    from convert_tf.training.ranker.run import train_ranker

    train_ranker(
        head, train_flags, data=data, dev_data=dev_data, **same(values, "init_from output")
    )


def _import_own_file() -> Any:
    try:
        from convert_tf.training.own_file import prepare_own_file
    except ModuleNotFoundError as error:
        raise ValueError(
            "A file is prepared with TensorFlow and TensorFlow Text. Received: neither "
            f"({error}). Install them, or train on token ids that convert-tf tokenize wrote."
        ) from error
    return prepare_own_file
