"""convert_tf: ConveRT-style dual sentence encoders, from conversation dumps to TF Hub modules.

Importing the package is fast, because Keras and TensorFlow are imported on first use.
"""

import importlib
from typing import Any

from convert_tf.extras import needs_training

__version__ = "0.1.0"

_LAZY_NAMES = {
    "ModelConfig": "convert_tf.config.model",
    "EncoderTraining": "convert_tf.training.encoder.options",
    "HeadConfig": "convert_tf.config.ranker",
    "RankerTraining": "convert_tf.config.ranker",
    "BertConfig": "convert_tf.config.bert",
    "Pretraining": "convert_tf.config.train",
    "SentenceEncoder": "convert_tf.encoding.sentence_encoder",
    "EncoderClient": "convert_tf.encoding.client",
    "Ranker": "convert_tf.ranking.ranker",
    "IntentClassifier": "convert_tf.intents.classifier",
    "MultiIntentClassifier": "convert_tf.intents.multi",
    "load_classifier": "convert_tf.intents.loading",
    "discover_intents": "convert_tf.intents.discover",
    "CandidateIndex": "convert_tf.search.index",
    "train": "convert_tf.training.encoder.task",
    "Loss": "convert_tf.training.encoder.losses.base",
    "evaluate": "convert_tf.evaluation.compare",
    "export_model": "convert_tf.export.model",
    "module_path": "convert_tf.checkpoints.released",
    "load_model": "convert_tf.checkpoints.loading",
}

__all__ = ["__version__", *_LAZY_NAMES]


def __getattr__(name: str) -> Any:
    if name not in _LAZY_NAMES:
        raise AttributeError(f"module 'convert_tf' has no attribute {name!r}")
    with needs_training(f"convert_tf.{name}"):
        return getattr(importlib.import_module(_LAZY_NAMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
