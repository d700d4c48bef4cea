"""convert_tf: ConveRT-style dual sentence encoders, from conversation dumps to TF Hub modules.

Importing the package is cheap: Keras and TensorFlow load when a name that needs them is first used.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_LAZY_NAMES = {
    "ModelConfig": "convert_tf.config",
    "TrainConfig": "convert_tf.train_config",
    "DataConfig": "convert_tf.train_config",
    "HeadConfig": "convert_tf.head_config",
    "DualEncoder": "convert_tf.encoders",
    "SentenceEncoder": "convert_tf.sentence_encoder",
    "EncoderClient": "convert_tf.encoder_client",
    "load_checkpoint": "convert_tf.checkpoint",
    "load_ranker": "convert_tf.ranker_checkpoint",
    "RankerTexts": "convert_tf.ranker_texts",
    "IntentClassifier": "convert_tf.intent_classifier",
    "load_tokenizer": "convert_tf.text.tokenizer",
    "recall_at_k": "convert_tf.metrics",
    "mean_reciprocal_rank": "convert_tf.metrics",
}

__all__ = ["__version__", *_LAZY_NAMES]


def __getattr__(name: str) -> Any:
    if name not in _LAZY_NAMES:
        raise AttributeError(f"module 'convert_tf' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY_NAMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
