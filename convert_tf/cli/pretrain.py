"""Pre-trains a BERT-shaped trunk on records of conversations.

```
convert-tf pretrain --data data/ --vocab vocab.txt --model bert_base --output runs/bert
```

Batches of masked language modelling and of next-utterance prediction take turns. Running the same
command again resumes a run that was stopped. The folder of the run is a model directory with the
weights of the lowest loss on the evaluation split; `convert-tf train --init_from=runs/bert
--head=bi` fine-tunes a ranker from it. `--init_from` goes on from such a folder, or from a BERT in
Hugging Face's format, with its vocabulary.

Reference: arXiv 1905.01969 §4.1 ("Pre-training Procedure").
"""

from typing import Any

from convert_tf.cli.flags import NEEDED, Define, define_fields, given_fields, same
from convert_tf.config.base import DATA, MODEL, OUTPUT
from convert_tf.config.bert import BERT_PRESETS, BertConfig
from convert_tf.config.pretrain import Pretraining

INTERRUPTED = "interrupted; the same command goes on from the last checkpoint"
# Fields of BertConfig that come from the vocabulary, not from flags.
FROM_VOCABULARY = (
    "vocab_size", "num_oov_buckets", "tokenizer", "start_id", "separator_id", "mask_id"
)  # fmt: skip


def define_flags(define: Define) -> None:
    define_fields(define, Pretraining)
    define("vocab", None, "Vocabulary file; token ids bring their own.", group=DATA, is_common=True)
    define(
        "model",
        None,
        "Preset of the trunk.",
        choices=sorted(BERT_PRESETS),
        group=MODEL,
        is_common=True,
    )
    define(
        "init_from", None, "BERT-shaped model directory to start from.", group=MODEL, is_common=True
    )
    define("num_oov_buckets", 1_000, "Hash buckets for unknown tokens.", group=MODEL)
    define_fields(define, BertConfig, leave_out=FROM_VOCABULARY)
    define("output", NEEDED, "Folder of the run.", group=OUTPUT, is_common=True)


def run(values: Any) -> None:
    config = Pretraining(**given_fields(values, Pretraining))
    if not config.data:
        raise ValueError("--data must name a folder of records or of token ids. Received: none.")
    from convert_tf.training.pretraining.run import pretrain

    pretrain(
        config,
        overrides=given_fields(values, BertConfig, leave_out=FROM_VOCABULARY),
        vocabulary=values.vocab,
        **same(values, "output model num_oov_buckets init_from"),
    )
