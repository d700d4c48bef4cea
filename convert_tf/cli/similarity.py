r"""Fits a map to vectors for similarity, for a model that was trained without a teacher or lost it.

```
convert-tf tokenize --utterances 'texts/*.jsonl.zst' \
    --vocab hub_modules/convert/1/assets/vocab.txt --output utterance_ids/
convert-tf teach --token_ids utterance_ids/ --output utterance_teacher/
convert-tf similarity --encoder convert --token_ids utterance_ids/ \
    --teacher utterance_teacher/ --output runs/similar
convert-tf export --encoder runs/similar --network_bits=8 --output hub_modules/mine/1
```

The map is a ridge regression of the teacher's vectors on r, turned so that the first 256, 128 and
64 numbers are good shorter vectors. What is exported then has the signature `encode_similarity`.
Every twentieth text is left out and measured on.
"""

from typing import Any

from convert_tf.cli.flags import NEEDED, Define, define_encoder, same


def define_flags(define: Define) -> None:
    define_encoder(define, NEEDED, text="a released name, or the folder of a run or of a module.")
    define("token_ids", NEEDED, "Token ids of pairs or of single texts, of its vocabulary.")
    define("teacher", NEEDED, "Vectors of these, which convert-tf teach wrote.")
    define(
        "output",
        None,
        "Folder of the model with its map; by default the map joins --encoder.",
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
        values.encoder,
        values.token_ids,
        values.teacher,
        values.output,
        **same(values, "split dim max_examples"),
    )
    print(similarity_report(found))
    print(f"wrote {values.output or values.encoder}: vectors of {found['dim']} numbers")
