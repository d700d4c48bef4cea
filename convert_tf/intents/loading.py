"""Open trained classifiers for the commands, for the service and for users in Python."""

import os
from typing import Any

from convert_tf.intents.encodings import MAX_TEXTS


def load_classifier(
    path: str | os.PathLike[str], *, encoder: Any = None, max_texts: int = MAX_TEXTS
) -> Any:
    """Open a classifier for texts with one intent or with several intents.

    Args:
      path: a folder from `convert-tf intent train`, or an `.onnx` file from `convert-tf intent
        export`.
      encoder: the encoder, or a list of encoders, that the classifier in a folder was trained with.
        It must be passed if the encoder has been moved. If None, the recorded path is used.
      max_texts: maximum number of encodings that the classifier in an `.onnx` file keeps in memory.

    Returns:
      An `IntentClassifier`, a `MultiIntentClassifier` or an `IntentFile`.

    Raises:
      ValueError: if the path is not a classifier, its encoder has changed, or `encoder` is given
        for an `.onnx` file, which already contains an encoder.
      MissingLibraryError: if `path` is an `.onnx` file and `onnxruntime` is not installed.

    Example:
      load_classifier("model/").predict(["where is my card?"])
    """
    name = os.fspath(path)
    if name.endswith(".onnx"):
        from convert_tf.intents.one_file import IntentFile

        if encoder:
            raise ValueError(f"{name!r} contains its encoder. Do not pass another encoder.")
        return IntentFile(path, max_texts=max_texts)
    from convert_tf.intents.classifier import IntentClassifier, TextClassifier
    from convert_tf.intents.folder import read_classifier
    from convert_tf.intents.multi import MultiIntentClassifier

    saved, encodings, encoder = read_classifier(path, encoder)
    has_several = saved.decision.has_several
    kind: type[TextClassifier] = MultiIntentClassifier if has_several else IntentClassifier
    return kind.restored(saved, encodings, encoder, path)
