"""Pre-train a BERT-like trunk on conversations.

```
convert-tf pretrain --data data/ --vocab vocab.txt --model bert_base --output runs/bert
```

Training alternates between masked language modelling and next-utterance prediction. Run the same
command again to resume an interrupted run. The run keeps the weights with the lowest loss on the
dev split. To fine-tune a ranker from these weights, run
`convert-tf train --init_from=runs/bert --head=bi`. With `--init_from`, pre-training itself starts
from such a run, or from a BERT in Hugging Face's format, and uses the vocabulary of this model.

Reference: arXiv 1905.01969 §4.1 ("Pre-training Procedure").

Flags:
  vocab: Vocabulary file. Not needed for token ids.
  model: Preset of a new trunk.
  init_from: Run or Hugging Face folder of a BERT-like trunk to start from.
  num_oov_buckets: Number of hash buckets for unknown tokens.
  output: Folder of the run.
"""

from typing import Any

from convert_tf.cli.flags import NEEDED, Define, define_fields, given_fields, same
from convert_tf.config.base import DATA, MODEL, OUTPUT
from convert_tf.config.bert import BERT_PRESETS, BertConfig
from convert_tf.config.train import Pretraining

INTERRUPTED = "interrupted; run the same command again to resume from the last checkpoint"
# Fields of BertConfig that come from the vocabulary, not from flags.
FROM_VOCABULARY = (
    "vocab_size", "num_oov_buckets", "tokenizer", "start_id", "separator_id", "mask_id"
)  # fmt: skip


def define_flags(define: Define) -> None:
    define_fields(define, Pretraining)
    define("vocab", None, group=DATA, is_common=True)
    define("model", None, choices=sorted(BERT_PRESETS), group=MODEL, is_common=True)
    define("init_from", None, group=MODEL, is_common=True)
    define("num_oov_buckets", 1_000, group=MODEL)
    define_fields(define, BertConfig, leave_out=FROM_VOCABULARY)
    define("output", NEEDED, group=OUTPUT, is_common=True)


def run(values: Any) -> None:
    config = Pretraining(**given_fields(values, Pretraining))
    if not config.data:
        raise ValueError("--data is required: a folder of records or of token ids.")
    from convert_tf.training.pretraining.task import pretrain

    pretrain(
        config,
        overrides=given_fields(values, BertConfig, leave_out=FROM_VOCABULARY),
        vocabulary=values.vocab,
        **same(values, "output model num_oov_buckets init_from"),
    )
