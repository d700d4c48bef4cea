"""Pre-trains a BERT-shaped trunk on records of conversations.

```
python -m convert_tf.pretrain --data data/ --vocab vocab.txt --model bert_base --output runs/bert
```

Batches of masked language modelling and of next-utterance prediction take turns. Running the same
command again resumes a run that was stopped. The folder of the run is a model directory with the
weights of the lowest loss on the evaluation split; `train.py --init_from=runs/bert --head=bi`
fine-tunes a ranker from it. `--init_from` goes on from such a folder, or from a BERT in Hugging
Face's format, with its vocabulary.

Reference: arXiv 1905.01969 §4.1 ("Pre-training Procedure").
"""

import dataclasses
import sys

from absl import app, flags, logging

from convert_tf.bert_config import BERT_PRESETS, BertConfig, PretrainConfig

# Fields of BertConfig that come from the vocabulary, not from flags.
FROM_VOCABULARY = (
    "vocab_size", "num_oov_buckets", "tokenizer", "start_id", "separator_id", "mask_id"
)  # fmt: skip


CONFIGS = (BertConfig, PretrainConfig)


def _fields(config_class: type) -> list[dataclasses.Field]:
    return [f for f in dataclasses.fields(config_class) if f.name not in FROM_VOCABULARY]


def _define_flags() -> None:
    """One flag for each field of the configurations, with the field's line of its docstring."""
    define = {
        int: flags.DEFINE_integer,
        float: flags.DEFINE_float,
        str: flags.DEFINE_string,
    }
    for config_class in CONFIGS:
        explained = config_class.explanations()
        for field in _fields(config_class):
            help_text = f"{explained[field.name]} Default: {field.default!r}."
            define[type(field.default)](field.name, None, help_text)
    flags.DEFINE_enum("model", None, sorted(BERT_PRESETS), "Preset of the trunk.")
    flags.DEFINE_string("vocab", None, "Vocabulary file; token ids bring their own.")
    flags.DEFINE_integer("num_oov_buckets", 1_000, BertConfig.explanations()["num_oov_buckets"])
    flags.DEFINE_string("output", None, "Folder of the run.", required=True)
    flags.DEFINE_string("init_from", None, "BERT-shaped model directory to start from.")


def _run(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"Flags are given as --name=value. Received: {argv[1:]}.")
    given, bert = (
        {
            field.name: flags.FLAGS[field.name].value
            for field in _fields(config_class)
            if flags.FLAGS[field.name].value is not None
        }
        for config_class in (PretrainConfig, BertConfig)
    )
    try:
        config = PretrainConfig(**given)
        if not config.data:
            raise ValueError(
                "--data must name a folder of records or of token ids. Received: none."
            )
        from convert_tf.pretraining_run import pretrain

        pretrain(
            config,
            output=flags.FLAGS.output,
            model=flags.FLAGS.model,
            overrides=bert,
            vocabulary=flags.FLAGS.vocab,
            num_oov_buckets=flags.FLAGS.num_oov_buckets,
            init_from=flags.FLAGS.init_from,
        )
    except (ValueError, FloatingPointError, OSError) as error:
        logging.debug("--verbosity=1 shows where it happened.", exc_info=True)
        sys.exit(f"pretrain: {error}")
    except KeyboardInterrupt:
        sys.exit("pretrain: interrupted; the same command goes on from the last checkpoint")


if __name__ == "__main__":
    _define_flags()
    app.run(_run)
