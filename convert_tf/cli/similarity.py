r"""Add similarity vectors to an encoder, or teach them to tell opposites apart.

```
convert-tf tokenize --utterances 'texts/*.jsonl.zst' \
    --vocab hub_modules/convert/2/assets/vocab.txt --output utterance_ids/
convert-tf teach --token_ids utterance_ids/ --output utterance_teacher/
convert-tf similarity --encoder convert --token_ids utterance_ids/ \
    --teacher utterance_teacher/ --output runs/similar
convert-tf export --encoder runs/similar --network_bits=8 --output hub_modules/mine/1
```

A linear map from the reduced encoding r to the teacher's vectors is fitted by ridge regression. The
map is rotated so that the first 256, 128 or 64 numbers of a vector can be used as a shorter vector.
Modules exported from the result have the signature `encode_similarity`. One in twenty different
texts is held out to measure how good the map is.

With --triplets, the map of an encoder that already has similarity vectors is trained to tell
opposites apart, such as "turn it on" and "turn it off". The new map changes only similarity vectors
and sentence encodings. If you also pass --teacher, texts with close teacher vectors stay close:

    convert-tf tokenize --triplets triplets.jsonl --vocab vocab.txt --output triplet_ids/
    convert-tf similarity --encoder convert_small --token_ids utterance_ids/ \
        --teacher utterance_teacher/ --triplets triplet_ids/ --output runs/opposites

Flags:
  encoder: Encoder: a released name, or the folder of a run or module.
  token_ids: Folder of token ids of pairs or single texts, written with the encoder's vocabulary.
  teacher: Folder of teacher vectors for these texts, from convert-tf teach.
  triplets: Folder of triplets from convert-tf tokenize --triplets.
  output: Folder of the new model. Default: add the map to --encoder.
"""

import dataclasses
from typing import Any

from convert_tf.cli.flags import NEEDED, Define, UsageError, check_read, define_fields, given_fields
from convert_tf.config.train import MapTraining

OF_MODULES = ("encoder",)  # because an .onnx file cannot be changed


def define_flags(define: Define) -> None:
    define("encoder", NEEDED)
    define("token_ids", NEEDED)
    define("teacher", None)
    define("triplets", None)
    define("output", None)
    define_fields(define, MapTraining)


def run(values: Any) -> None:
    if values.teacher is None and values.triplets is None:
        raise UsageError("Pass --teacher to fit a map, or --triplets to train one on opposites")
    written = values.output or values.encoder
    if values.triplets is None:
        unread = [field.name for field in dataclasses.fields(MapTraining)]
        check_read(values, {"without --triplets": unread})
        from convert_tf.training.teaching.similarity import fit_similarity, similarity_report

        report = fit_similarity(values.encoder, values.token_ids, values.teacher, values.output)
        print(similarity_report(report))
        print(f"wrote {written}: vectors of {report['dim']} numbers")
        return
    from convert_tf.training.teaching.opposites import opposites_report, teach_opposites

    if values.teacher is None:
        check_read(values, {"without --teacher": ["teaching"]})
    options = MapTraining(**given_fields(values, MapTraining))
    report = teach_opposites(
        values.encoder, values.token_ids, values.triplets, values.output, options,
        teacher=values.teacher,
    )  # fmt: skip
    print(opposites_report(report))
    print(f"wrote {written}")
