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
"""

import dataclasses
import os
import sys

from absl import app, flags, logging

from convert_tf.config import (
    TRAIN_RECIPES,
    DataConfig,
    ModelConfig,
    TrainConfig,
    model_preset,
    train_recipe,
)

FLAGS = flags.FLAGS
_MODEL = flags.DEFINE_string(
    "model", None, "Preset of the model: convert, convert_multi_context or tiny."
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
_INIT_FROM = flags.DEFINE_string("init_from", None, "Model directory to start from (fine-tuning).")

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


def _given(names: list[str], config_class: type) -> dict:
    """The flags of a configuration that were given, with lists as tuples of the field's type."""
    defaults = {field.name: field.default for field in dataclasses.fields(config_class)}
    values = {}
    for name in names:
        value = FLAGS[name].value
        if value is None:
            continue
        if isinstance(defaults[name], tuple):
            value = tuple(type(defaults[name][0])(item) for item in value)
        values[name] = value
    return values


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"Flags are given as --name=value. Received: {argv[1:]}.")
    try:
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
        if os.path.isfile(data.data):
            from convert_tf.own_file import prepare_own_file

            own = prepare_own_file(
                data.data,
                _OUTPUT.value,
                vocabulary=vocabulary,
                learns_vocabulary=not _INIT_FROM.value,
            )
            vocabulary = own.vocabulary
            changes = {"data": own.data}
            if FLAGS["eval_splits"].value is None:
                changes["eval_splits"] = own.eval_splits
            data = dataclasses.replace(data, **changes)
            train_flags = {**own.sizes(), **train_flags}
            recipe = _RECIPE.value or "small"
        train_config = train_recipe(recipe, **train_flags)
        from convert_tf.training import train

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
