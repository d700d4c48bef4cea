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
from convert_tf.config.bert import BERT_PRESETS, BertConfig
from convert_tf.config.pretrain import PretrainConfig

INTERRUPTED = "interrupted; the same command goes on from the last checkpoint"
# Fields of BertConfig that come from the vocabulary, not from flags.
FROM_VOCABULARY = (
    "vocab_size", "num_oov_buckets", "tokenizer", "start_id", "separator_id", "mask_id"
)  # fmt: skip


def define_flags(define: Define) -> None:
    define("model", None, "Preset of the trunk.", choices=sorted(BERT_PRESETS))
    define("vocab", None, "Vocabulary file; token ids bring their own.")
    define("num_oov_buckets", 1_000, BertConfig.explanations()["num_oov_buckets"])
    define("output", NEEDED, "Folder of the run.")
    define("init_from", None, "BERT-shaped model directory to start from.")
    define_fields(define, PretrainConfig)
    define_fields(define, BertConfig, leave_out=FROM_VOCABULARY)


def run(values: Any) -> None:
    config = PretrainConfig(**given_fields(values, PretrainConfig))
    if not config.data:
        raise ValueError("--data must name a folder of records or of token ids. Received: none.")
    from convert_tf.training.pretraining.run import pretrain

    pretrain(
        config,
        overrides=given_fields(values, BertConfig, leave_out=FROM_VOCABULARY),
        vocabulary=values.vocab,
        **same(values, "output model num_oov_buckets init_from"),
    )
