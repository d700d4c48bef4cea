"""Write and read a classifier and its encoder as one `.onnx` file.

Only `onnxruntime` and `numpy` are needed to use the file. It is an exported encoder
(`convert_tf.export.onnx.writing`) with the classifier in its metadata, so `SentenceEncoder` can
read it too.
"""

import base64
import io
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.encoding.backends.onnx import OnnxBackend
from convert_tf.encoding.sentence_encoder import SentenceEncoder
from convert_tf.intents.decision import Decision
from convert_tf.intents.encodings import MAX_TEXTS, IntentEncodings, encoder_paths
from convert_tf.intents.examples import column
from convert_tf.intents.folder import (
    HEAD_FILE,
    MODEL_FILE,
    UNREADABLE,
    for_json,
    reason_of,
    restored,
    stored,
)
from convert_tf.intents.predictor import Predictor
from convert_tf.storage.arrays import load_arrays
from convert_tf.storage.json_text import parsed_json

if TYPE_CHECKING:
    from convert_tf.intents.classifier import IntentClassifier


def export_one_file(
    classifier: "IntentClassifier",
    output: str | os.PathLike[str],
    *,
    network_bits: int = 8,
    overwrite: bool = False,
) -> Path:
    """Write a classifier and its encoder as one file.

    Args:
      classifier: a fitted classifier. Its encoder must be one module, one run or one `.onnx` file.
        The file reads as many tokens of a text as this encoder.
      output: the file to write. Missing parent folders are created.
      network_bits: number of bits for the encoder's weights. If the encoder is an `.onnx` file, it
        keeps its bits, and the classifier's answers do not change. If it is a module or a run, 8
        bits make the file smaller and faster, but about 2 in 100 answers differ. With 32 bits, an
        answer may differ only if two intents are equally probable.
      overwrite: whether to replace an existing file.

    Returns:
      The path of the file.

    Raises:
      ValueError: if `output` exists and may not be replaced, or another process is writing it; if
        there are several encoders; if the encoder is neither a module or run with a subword
        vocabulary nor an `.onnx` file; or if `network_bits` differs from the bits of an `.onnx`
        file.
      MissingLibraryError: if a library that the export needs is not installed.
    """
    encoders = encoder_paths(classifier.encoder)
    encoder = encoders[0]
    if len(encoders) > 1 or not isinstance(encoder, str | os.PathLike):
        raise ValueError(
            f"The encoder of this classifier is {classifier.encoder!r}, which cannot be written to "
            "one file. Train with the folder of one module, or with one .onnx file."
        )
    from convert_tf.checkpoints.configs import load_config
    from convert_tf.export.onnx.writing import copy_onnx, export_onnx

    name = os.fspath(output)
    if Path(name).suffix != ".onnx" or name.endswith(os.sep):
        raise ValueError(
            f"The name of the file must end with .onnx. Received: {name!r}. Choose another "
            "--output."
        )
    described, arrays = stored(classifier)
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    metadata = {
        MODEL_FILE: json.dumps(described, default=for_json),
        HEAD_FILE: base64.b64encode(file.getvalue()).decode(),
    }
    options: dict[str, Any] = {"network_bits": network_bits, "overwrite": overwrite}
    if os.path.isfile(encoder):
        return copy_onnx(encoder, output, metadata=metadata, **options)
    if kind_of(encoder) is Kind.DUAL_ENCODER:
        # The classifier reads only as many tokens as in training; exported runs would read more.
        options["max_tokens"] = load_config(encoder).max_tokens
    return export_onnx(encoder, output, metadata=metadata, **options)


class IntentFile(Predictor):
    """A classifier that `export_one_file` wrote. Several threads may use it at once.

    Args:
      path: the `.onnx` file.
      max_texts: maximum number of encodings to keep; see `IntentEncodings`.

    Attributes:
      classes_: the intents, sorted.
      decision: the rule that turns probabilities into answers.
      threshold_: the threshold; None if every text gets an intent.
      parts_: the head, the word model and the mean encodings of the intents.
      mixture_: the weight of words and the temperature.
      encoder: the path of the file, which can also be used as an encoder.
      sentence_encoder: the encoder in the file.

    Raises:
      ValueError: if the file is damaged, or was not written by `intent export`.
      MissingLibraryError: if `onnxruntime` is not installed.

    Example:
      IntentFile("intents.onnx").predict(["where is my card?"])
    """

    def __init__(self, path: str | os.PathLike[str], *, max_texts: int = MAX_TEXTS) -> None:
        backend = OnnxBackend(path)
        metadata = backend.metadata
        try:
            if not {MODEL_FILE, HEAD_FILE} <= metadata.keys():
                raise ValueError("it contains only an encoder")
            described = parsed_json(metadata[MODEL_FILE])
            arrays = load_arrays(io.BytesIO(base64.b64decode(metadata[HEAD_FILE])))
            saved = restored(described, arrays)
        except UNREADABLE as error:
            raise ValueError(
                f"{os.fspath(path)!r} is not a file that convert-tf intent export wrote "
                f"({reason_of(error)}). Pass such a file, or export it again."
            ) from error
        self._take(saved)
        self._decision = saved.decision
        self.encoder = os.fspath(path)
        self.sentence_encoder = SentenceEncoder(backend)
        self._encodings = IntentEncodings(
            self.sentence_encoder, kind=saved.params["kind"], max_texts=max_texts
        )

    @property
    def decision(self) -> Decision:
        """The rule that turns probabilities into answers."""
        return self._decision

    def encode(self, texts: Iterable[str]) -> np.ndarray:
        """Return the encodings that the head reads: float32 `[texts, dim]`."""
        return self._encodings(column(texts))
