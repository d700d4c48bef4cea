r"""Add similarity vectors to an encoder that was trained without a teacher.

```
convert-tf tokenize --utterances 'texts/*.jsonl.zst' \
    --vocab hub_modules/convert/1/assets/vocab.txt --output utterance_ids/
convert-tf teach --token_ids utterance_ids/ --output utterance_teacher/
convert-tf similarity --encoder convert --token_ids utterance_ids/ \
    --teacher utterance_teacher/ --output runs/similar
convert-tf export --encoder runs/similar --network_bits=8 --output hub_modules/mine/1
```

A linear map from the reduced encoding r to the teacher's vectors is fitted by ridge regression. It
is rotated so that the first 256, 128 or 64 numbers of a vector are good shorter vectors. Exported
modules then have the signature `encode_similarity`. Every twentieth text is held out to measure the
result.

Flags:
  encoder: Encoder: a released name, or the folder of a run or of a module.
  token_ids: Token ids of pairs or single texts in the encoder's vocabulary.
  teacher: Folder of teacher vectors of these texts from convert-tf teach.
  output: Folder of the new model. Default: add the map to --encoder.
"""

from typing import Any

from convert_tf.cli.flags import NEEDED, Define

OF_MODULES = ("encoder",)  # because an .onnx file cannot be changed


def define_flags(define: Define) -> None:
    define("encoder", NEEDED)
    define("token_ids", NEEDED)
    define("teacher", NEEDED)
    define("output", None)


def run(values: Any) -> None:
    from convert_tf.training.teaching.similarity import fit_similarity, similarity_report

    report = fit_similarity(values.encoder, values.token_ids, values.teacher, values.output)
    print(similarity_report(report))
    print(f"wrote {values.output or values.encoder}: vectors of {report['dim']} numbers")
