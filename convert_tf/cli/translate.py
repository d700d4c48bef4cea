r"""Translate vectors from one encoder to another, for vector stores whose texts are gone.

```
convert-tf translate --encoder convert_small --to convert --input old.npy --output new.npy
convert-tf translate --encoder convert_small --to convert --texts mine.txt --kind similarity \
    --input old.npy --output new.npy
```

The command encodes `--texts` with both encoders and fits a linear map from the old vectors to the
new vectors. Translated vectors are less accurate than vectors from the new encoder. If you have the
texts, encode them again with `convert-tf embed` or `convert-tf index build --from`.

Flags:
  encoder: Encoder that computed the vectors in --input.
  to: New encoder, whose vectors --output approximates.
  input: Array of vectors, x.npy.
  output: Array to write, x.npy.
  kind: Kind of the vectors. Default: the kind in INPUT.json, or sentence.
  texts: Texts for fitting the map, one per line. They should be as similar as possible to the texts
    of the vectors in --input. Default: a thousand generated texts.
  overwrite: Replace an existing file.
"""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from convert_tf.checkpoints.identity import identity_from_json, identity_of
from convert_tf.cli.embed import (
    ARRAY_CHECKSUM,
    DESCRIPTION_SUFFIX,
    check_array_replaceable,
    write_array,
)
from convert_tf.cli.flags import NEEDED, Define
from convert_tf.encoding.sentence_encoder import SentenceEncoder
from convert_tf.encoding.signatures import SIGNATURES
from convert_tf.readers.texts import Texts, filled_texts
from convert_tf.search.translation import fit_translation, shipped_texts
from convert_tf.storage.arrays import load_array
from convert_tf.storage.checksums import file_checksum
from convert_tf.storage.files import only_writer
from convert_tf.storage.json_text import json_file

_ROWS_AT_ONCE = 16_384


def define_flags(define: Define) -> None:
    define("encoder", NEEDED)
    define("to", NEEDED)
    define("input", NEEDED)
    define("output", NEEDED)
    define("kind", None, choices=[*SIGNATURES])
    define("texts", None)
    define("overwrite", False)


def run(values: Any) -> None:
    check_array_replaceable(values.output, overwrite=values.overwrite)
    encoders = [SentenceEncoder(path) for path in (values.encoder, values.to)]
    vectors = _vectors(values.input)
    described = _description(values.input)
    identity = identity_of(values.encoder)
    former = identity_from_json(described.get("encoder"))
    if former is not None and former != identity:
        remedy = "Pass the encoder that computed the array as --encoder."
        if former.name and not former.form:  # the name alone stands for the .onnx file
            remedy = (
                "Pass the path of the module as --encoder; in Python, "
                f"convert_tf.module_path({former.name!r}) returns it."
            )
        raise ValueError(f"{values.input} was computed by {former}, not by {identity}. {remedy}")
    kind = values.kind or described.get("kind") or "sentence"
    if kind != (described.get("kind") or kind):
        raise ValueError(
            f"{values.input} has vectors of kind {described['kind']}, not {kind}. Omit --kind."
        )
    lines = filled_texts(Texts(values.texts)) if values.texts else shipped_texts()
    # A text is left out of the fit to measure the error, so no copy of it may remain in the fit.
    texts = [*dict.fromkeys(lines)]
    old, new = (encoder.encode(texts, kind=kind) for encoder in encoders)
    if vectors.shape[1] != old.shape[1]:
        raise ValueError(
            f"{values.input} has vectors of {vectors.shape[1]} numbers, but --encoder returns "
            f"{old.shape[1]} numbers for kind {kind}. Pass the --encoder and --kind that the array "
            "was encoded with."
        )
    translate = fit_translation(old, new)

    def pieces() -> Iterator[np.ndarray]:
        for start in range(0, max(len(vectors), 1), _ROWS_AT_ONCE):
            yield translate(vectors[start : start + _ROWS_AT_ONCE])

    dtype = str(vectors.dtype) if vectors.dtype in (np.float16, np.float32) else "float32"
    facts: dict[str, Any] = {"translated_from": identity.to_json()}
    with only_writer(values.output):
        rows, dim = write_array(
            values.output, pieces(), identity_of(values.to), kind=kind, dtype=dtype, facts=facts
        )
    print(
        f"wrote {values.output}: {rows:,} × {dim} {dtype}, cosine {translate.cosine:.3f} to the "
        f"vectors of --to on {len(texts):,} texts, each left out in turn"
    )


def _vectors(path: str) -> np.ndarray:
    try:
        vectors = load_array(path, is_mapped=True)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is not an array of vectors: {error}. Pass x.npy.") from error
    if vectors.ndim != 2 or vectors.dtype.kind != "f":
        raise ValueError(
            f"{path} has {vectors.dtype} values of shape {vectors.shape}, not vectors. Pass an "
            "array from convert-tf embed."
        )
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        is_finite = np.isfinite(vectors[start : start + _ROWS_AT_ONCE]).all(axis=1)
        if not is_finite.all():
            raise ValueError(
                f"{path} has NaN or infinite numbers in row {start + int(is_finite.argmin()):,}, "
                "counted from 0. Remove this row, or compute the array again."
            )
    return vectors


def _description(path: str) -> dict[str, Any]:
    """Return the description in the file next to an array; `{}` if it describes another array."""
    file = f"{path}{DESCRIPTION_SUFFIX}"
    described = json_file(file) if os.path.isfile(file) else None
    if not isinstance(described, dict) or described.get(ARRAY_CHECKSUM) != file_checksum(path):
        return {}
    return described
