"""The intents that a service tells."""

import os

from convert_tf.encoding.sentence_encoder import SentenceEncoder
from convert_tf.intents.classifier import IntentClassifier
from convert_tf.intents.encodings import IntentEncodings
from convert_tf.intents.one_file import IntentFile


def served_classifier(
    path: str, *, module: str, encoder: SentenceEncoder, max_texts: int
) -> IntentClassifier | IntentFile:
    """Reads a classifier; its memory does not grow with what it is asked.

    Args:
      path: folder of `convert-tf intent train`, or `.onnx` file of `convert-tf intent export`.
      module: path of the module that is served.
      encoder: which is loaded already, for a classifier that was trained with it.
      max_texts: whose encodings are kept: most that are asked for at once, as both the intent and
        its confidence read them.

    Raises:
      ValueError: there is no such classifier, or its encoder has changed.
    """
    if path.endswith(".onnx"):
        return IntentFile(path, max_texts=max_texts)
    classifier = IntentClassifier.load(path)
    own = classifier.encoder
    encoders = [
        encoder if os.path.samefile(each, module) else each
        for each in (own if isinstance(own, list) else [own])
    ]
    return classifier.set_params(
        encoder=IntentEncodings(encoders, kind=classifier.kind_, max_texts=max_texts)
    )
