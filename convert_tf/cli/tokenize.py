"""Records to token ids, from which a machine without TensorFlow trains.

```
convert-tf tokenize --data data/ --vocab vocab.txt --output ids/
convert-tf tokenize --utterances 'requests/*.jsonl.zst' --vocab vocab.txt --output utterance_ids/
```

`convert-tf train --data ids/` then gives the same batches as with `--data data/ --vocab vocab.txt`.
`convert_tf.data.token_arrays` says what is in the folder, `convert_tf.data.utterances` what
`--utterances` are: single texts, which a teacher's vectors are learnt of.
"""

from typing import Any

from convert_tf.cli.flags import NEEDED, Define, UsageError, check_read, same


def define_flags(define: Define) -> None:
    define("data", None, "Folder of records.")
    define(
        "utterances",
        [],
        "Files of single texts, JSON lines with text, source and label; instead of --data.",
    )
    define(
        "dev_fraction",
        0.0,
        "Of --utterances: the share of intents, and of texts without one, that are held out as "
        "the split dev.",
    )
    define("ignored_labels", [], "Of --utterances: sources whose labels are no intents.")
    define("vocab", NEEDED, "Vocabulary file.")
    define("output", NEEDED, "Folder of token ids to write.")
    define("max_tokens", 60, "Longer texts are cut to this many tokens.")
    define("num_oov_buckets", 1000, "Ids that unknown tokens share.")
    define("overwrite", False, "Replace token ids that are in --output.")


def run(values: Any) -> None:
    if (values.data is None) == (not values.utterances):
        raise UsageError("Texts come from --data or from --utterances: pass one of them.")
    options = same(values, "max_tokens num_oov_buckets overwrite")
    if values.utterances:
        from convert_tf.data.utterance_writer import tokenize_utterances, utterance_summary

        facts = tokenize_utterances(
            values.utterances,
            values.output,
            vocabulary=values.vocab,
            **same(values, "dev_fraction ignored_labels"),
            **options,
        )
        print(utterance_summary(facts))
        print(f"wrote {values.output}")
        return
    check_read(values, {"without --utterances": ("dev_fraction", "ignored_labels")})
    from convert_tf.data.token_writer import summary, tokenize_records

    facts = tokenize_records(
        values.data,
        values.output,
        vocabulary=values.vocab,
        **options,
    )
    print(summary(facts))
    print(f"wrote {values.output}")
