"""Trains or fine-tunes a dual encoder.

```
python train.py --data data/ --vocab vocab.txt --model convert --output runs/convert
```

Running the same command again resumes a run that was stopped. A file of one's own pairs (CSV or TSV
with a context and a response, or a question and an answer) or dialogues (JSON lines with `turns`)
is prepared on the way:

```
python train.py --data faq.csv --model tiny --output runs/faq
```

With `--head` a trained model is fine-tuned as a bi-, poly- or cross-encoder, on records or on a
file of given candidates:

```
python train.py --init_from runs/convert --head poly --poly_codes 64 --data train.jsonl.gz \
    --dev_data valid.jsonl.gz --negatives_from given --output runs/poly
```
"""

import dataclasses
import os
import sys
from typing import Any

from absl import app, flags, logging

from convert_tf.config import MODEL_PRESETS, ModelConfig, model_preset
from convert_tf.head_config import HeadConfig, unread_head_options
from convert_tf.train_config import TRAIN_RECIPES, DataConfig, TrainConfig, train_recipe

FLAGS = flags.FLAGS
_MODEL = flags.DEFINE_string(
    "model", None, "Preset of the model: convert, convert_small, convert_multi_context or tiny."
)
_VOCAB = flags.DEFINE_string("vocab", None, "Vocabulary file; token ids bring their own.")
_OUTPUT = flags.DEFINE_string("output", None, "Folder of the run.", required=True)
_RECIPE = flags.DEFINE_enum(
    "recipe",
    None,
    sorted(TRAIN_RECIPES),
    "Training options to start from; other flags count beyond it. paper: ADADELTA, for half a "
    "billion pairs. small: Adam, for a million or fewer. Default: small for a file, else paper.",
)
_DEV_DATA = flags.DEFINE_string(
    "dev_data",
    None,
    "With --head: what is evaluated on. Default: the dev split of a folder of records.",
)
_NUM_PROCESSES = flags.DEFINE_integer(
    "num_processes", None, "Processes that train together, each with its share of every batch."
)
_PROCESS_ID = flags.DEFINE_integer(
    "process_id", None, "Number of this process, from 0, which writes and prints."
)
_COORDINATOR = flags.DEFINE_string(
    "coordinator",
    None,
    "host:port on which process 0 listens; auto asks Slurm, Open MPI, Kubernetes or Cloud TPU for "
    "what is not given of these three.",
)
_INIT_FROM = flags.DEFINE_string(
    "init_from", None, "Model directory or module to start from (fine-tuning)."
)

# Fields that come from the vocabulary, not from flags.
_FROM_VOCABULARY = ("vocab_size", "tokenizer")


def _define(config_class: type) -> list[str]:
    """One flag for each field of a configuration, with the field's line of its docstring."""
    define = {
        bool: flags.DEFINE_boolean,
        int: flags.DEFINE_integer,
        float: flags.DEFINE_float,
        str: flags.DEFINE_string,
    }
    explained = config_class.explanations()
    names = []
    for field in dataclasses.fields(config_class):
        if field.name in _FROM_VOCABULARY:
            continue
        help_text = f"{explained[field.name]} Default: {field.default!r}."
        if isinstance(field.default, tuple):
            flags.DEFINE_list(field.name, None, help_text)
        else:
            define[type(field.default)](field.name, None, help_text)
        names.append(field.name)
    return names


_MODEL_FLAGS = _define(ModelConfig)
_TRAIN_FLAGS = _define(TrainConfig)
_DATA_FLAGS = _define(DataConfig)
_HEAD_FLAGS = _define(HeadConfig)


def _given(names: list[str], config_class: type) -> dict:
    """The flags of a configuration that were given, with lists as tuples of the field's type."""
    defaults = {field.name: field.default for field in dataclasses.fields(config_class)}
    values = {}
    for name in names:
        value = FLAGS[name].value
        if value is None:
            continue
        if isinstance(defaults[name], tuple):
            kind = type(defaults[name][0]) if defaults[name] else str
            value = tuple(kind(item) for item in value)
        values[name] = value
    return values


def _train_head(values: dict) -> None:
    """The run of a ranker; `values` are the flags of its head."""
    foreign = [_MODEL, _VOCAB, _RECIPE]
    unread = [flag.name for flag in foreign if flag.value is not None]
    unread += [*_given(_MODEL_FLAGS, ModelConfig)]
    unread += [name for name in _given(_DATA_FLAGS, DataConfig) if name != "data"]
    if "head" not in values or unread:
        raise ValueError(
            "Flags of a head go with --head, and with none of another model or of packed data. "
            f"Received: {sorted(unread or values)}. "
            f"{'Leave them out' if unread else 'Add --head=bi, poly or cross'}."
        )
    data, dev_data = FLAGS["data"].value, _DEV_DATA.value
    if dev_data is None and data and os.path.isdir(data):
        dev_data = data
    if not data or not dev_data or not _INIT_FROM.value:
        raise ValueError(
            "A head is trained with --init_from, --data and --dev_data (a folder of records, which "
            "has a dev split, or a file of given candidates). Received: "
            f"init_from {_INIT_FROM.value!r}, data {data!r}, dev_data {dev_data!r}."
        )
    if values["head"] == "cross" and "negatives_from" not in values:
        values["negatives_from"] = "sampled" if os.path.isdir(data) else "given"
    ignored = unread_head_options(values)
    if ignored:
        raise ValueError(
            f"Each flag must be read by the head that is trained. Received: {', '.join(ignored)} "
            "with other flags under which nothing reads them. Leave them out."
        )
    head = HeadConfig.from_dict(values)
    train_flags = _given(_TRAIN_FLAGS, TrainConfig)
    for name, other in (("steps", "epochs"), ("eval_every", "evaluations_per_epoch")):
        if name in train_flags and other in values:
            raise ValueError(f"Either --{name} or --{other} is given. Received: both.")
    from convert_tf.ranker_training import train_ranker

    train_ranker(
        head,
        train_flags,
        data=data,
        dev_data=dev_data,
        init_from=_INIT_FROM.value,
        output=_OUTPUT.value,
    )


def _import_own_file() -> Any:
    try:
        from convert_tf.own_file import prepare_own_file
    except ModuleNotFoundError as error:
        raise ValueError(
            "A file is prepared with TensorFlow and TensorFlow Text. Received: neither "
            f"({error}). Install them, or train on token ids that convert_tf.data.tokenize wrote."
        ) from error
    return prepare_own_file


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"Flags are given as --name=value. Received: {argv[1:]}.")
    try:
        head_flags = _given(_HEAD_FLAGS, HeadConfig)
        processes = {
            flag.name: flag.value
            for flag in (_NUM_PROCESSES, _PROCESS_ID, _COORDINATOR)
            if flag.value is not None
        }
        if processes and (head_flags or os.path.isfile(FLAGS["data"].value or "")):
            raise ValueError(
                "Several processes train a dual encoder on a folder of token ids or of records. "
                f"Received: {processes} and {'a head' if head_flags else 'a file'}. Leave these "
                "flags away, or prepare a folder first."
            )
        if head_flags:
            _train_head(head_flags)
            return
        model_flags = _given(_MODEL_FLAGS, ModelConfig)
        if _MODEL.value is None and model_flags:
            raise ValueError(f"Model flags need --model. Received: {sorted(model_flags)}.")
        model = model_preset(_MODEL.value, **model_flags) if _MODEL.value else None
        train_flags = _given(_TRAIN_FLAGS, TrainConfig)
        data = DataConfig(**_given(_DATA_FLAGS, DataConfig))
        vocabulary, recipe = _VOCAB.value, _RECIPE.value or "paper"
        if not data.data:
            raise ValueError(
                "--data must name a folder of records or of token ids, or a file of pairs or "
                "dialogues. Received: none."
            )
        if not os.path.exists(data.data):
            raise ValueError(f"--data must exist. Received: {data.data!r}. Check the path.")
        if model is None and not _INIT_FROM.value:
            raise ValueError(
                "Training needs a model. Received: none. "
                f"Give --model ({', '.join(MODEL_PRESETS)}), or --init_from."
            )
        if os.path.isfile(data.data):
            prepare_own_file = _import_own_file()
            own = prepare_own_file(
                data.data,
                _OUTPUT.value,
                vocabulary=vocabulary,
                learns_vocabulary=not _INIT_FROM.value,
            )
            vocabulary = own.vocabulary
            changes: dict[str, Any] = {"data": own.data}
            if FLAGS["eval_splits"].value is None:
                changes["eval_splits"] = own.eval_splits
            data = dataclasses.replace(data, **changes)
            recipe = _RECIPE.value or "small"
            if recipe == "small":
                train_flags = {**own.sizes(train_flags.get("batch_size")), **train_flags}
        train_config = train_recipe(recipe, **train_flags)
        from convert_tf.distribution import join_processes
        from convert_tf.training import train

        join_processes(**processes)
        train(
            model,
            train_config,
            data,
            output=_OUTPUT.value,
            vocabulary=vocabulary,
            init_from=_INIT_FROM.value,
        )
    except (ValueError, FloatingPointError, OSError) as error:
        logging.debug("--verbosity=1 shows where it happened.", exc_info=True)
        sys.exit(f"train.py: {error}")
    except KeyboardInterrupt:
        sys.exit("train.py: interrupted; the same command goes on from the last checkpoint")


if __name__ == "__main__":
    app.run(main)
