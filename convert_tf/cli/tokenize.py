"""Turn training data into token ids, for training without TensorFlow.

```
convert-tf tokenize --data data/ --vocab vocab.txt --output ids/
convert-tf tokenize --utterances 'requests/*.jsonl.zst' --vocab vocab.txt --output utterance_ids/
convert-tf tokenize --triplets 'triplets/*.jsonl.zst' --vocab vocab.txt --output triplet_ids/
```

`convert-tf train --data ids/` uses the same batches as
`convert-tf train --data data/ --vocab vocab.txt`. `--utterances` are single texts. An encoder can
learn from them with a teacher or with intent labels. From `--triplets`, an encoder can learn to
tell paraphrases from opposites. The module `convert_tf.data.token_arrays` describes the output
folder. `convert_tf.data.utterances` and `convert_tf.data.triplets` describe the files of single
texts and of triplets.

Flags:
  data: Folder of records from convert-tf prepare.
  utterances: Files of single texts instead of --data: JSON lines with text, source and label.
  triplets: Files of triplets instead of --data, with the columns anchor, positive and negative.
  dev_fraction: Share of the intents, and of the unlabelled texts, in --utterances that becomes the
    dev split.
  ignored_labels: With --utterances: sources whose labels are not intents.
  vocab: Vocabulary file.
  output: Folder of token ids to write.
  max_tokens: Maximum number of tokens per text; longer texts are cut.
  num_oov_buckets: Number of ids for unknown tokens.
  overwrite: Replace existing token ids in --output.
"""

import glob
from typing import Any

from convert_tf.cli.flags import NEEDED, Define, UsageError, check_read, same, split_names


def define_flags(define: Define) -> None:
    define("data", None)
    define("utterances", [], repeats=True)
    define("triplets", [], repeats=True)
    define("dev_fraction", 0.0)
    define("ignored_labels", [])
    define("vocab", NEEDED)
    define("output", NEEDED)
    define("max_tokens", 60, lower_bound=1)
    define("num_oov_buckets", 1000)
    define("overwrite", False)


def run(values: Any) -> None:
    if [not values.data, not values.utterances, not values.triplets].count(False) != 1:
        raise UsageError("Pass one of --data, --utterances and --triplets.")
    from convert_tf.data.token_writer import (
        summary,
        tokenize_records,
        tokenize_triplets,
        tokenize_utterances,
    )

    options = same(values, "max_tokens num_oov_buckets overwrite")
    if values.utterances:
        options |= same(values, "dev_fraction ignored_labels")
        facts = tokenize_utterances(
            split_names(values.utterances, glob.glob),
            values.output,
            vocabulary=values.vocab,
            **options,
        )
    else:
        check_read(values, {"without --utterances": ("dev_fraction", "ignored_labels")})
    if values.triplets:
        facts = tokenize_triplets(
            split_names(values.triplets, glob.glob),
            values.output,
            vocabulary=values.vocab,
            **options,
        )
    elif values.data:
        facts = tokenize_records(values.data, values.output, vocabulary=values.vocab, **options)
    print(summary(facts))
    print(f"wrote {values.output}")
