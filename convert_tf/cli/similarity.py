r"""Fits a map to vectors for similarity, for a model that was trained without a teacher or lost it.

```
convert-tf tokenize --utterances 'texts/*.jsonl.zst' \
    --vocab hub_modules/convert/1/assets/vocab.txt --output utterance_ids/
convert-tf teach --token_ids utterance_ids/ --output utterance_teacher/
convert-tf similarity --checkpoint hub_modules/convert/1 --token_ids utterance_ids/ \
    --teacher utterance_teacher/ --output runs/similar
convert-tf export --checkpoint runs/similar --network_bits=8 --output hub_modules/mine/1
```

The map is a ridge regression of the teacher's vectors on r, turned so that the first 256, 128 and
64 numbers are good shorter vectors. What is exported then has the signature `encode_similarity`.
Every twentieth text is left out and measured on.
"""

from typing import Any

from convert_tf.cli.flags import NEEDED, Define, same


def define_flags(define: Define) -> None:
    define("checkpoint", NEEDED, "Folder that convert-tf train wrote, or a module.")
    define("token_ids", NEEDED, "Token ids of pairs or of single texts, of its vocabulary.")
    define("teacher", NEEDED, "Vectors of these, which convert-tf teach wrote.")
    define(
        "output",
        None,
        "Folder of the model with its map; by default the map joins --checkpoint.",
    )
    define("split", "train", "Of the token ids.")
    define("dim", 512, "Most numbers of a vector.", lower_bound=1, upper_bound=512)
    define(
        "max_examples",
        None,
        "Examples that are read; all that have vectors by default.",
        kind=int,
        lower_bound=2,
    )


def run(values: Any) -> None:
    from convert_tf.training.similarity import fit_similarity, similarity_report

    found = fit_similarity(
        values.checkpoint,
        values.token_ids,
        values.teacher,
        values.output,
        **same(values, "split dim max_examples"),
    )
    print(similarity_report(found))
    print(f"wrote {values.output or values.checkpoint}: vectors of {found['dim']} numbers")
