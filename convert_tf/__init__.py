"""convert_tf: ConveRT-style dual sentence encoders, from conversation dumps to TF Hub modules.

Importing the package is fast, because Keras and TensorFlow are imported on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from convert_tf.extras import check_unpacked, needs_training

if TYPE_CHECKING:  # type checkers and editors read these imports
    from convert_tf.checkpoints.loading import load_model
    from convert_tf.checkpoints.released import module_path
    from convert_tf.config.bert import BertConfig
    from convert_tf.config.model import ModelConfig
    from convert_tf.config.ranker import HeadConfig, RankerTraining
    from convert_tf.config.train import Pretraining
    from convert_tf.encoding.client import EncoderClient
    from convert_tf.encoding.sentence_encoder import SentenceEncoder
    from convert_tf.evaluation.compare import evaluate
    from convert_tf.export.model import export_model
    from convert_tf.intents.classifier import IntentClassifier
    from convert_tf.intents.discover import discover_intents
    from convert_tf.intents.loading import load_classifier
    from convert_tf.intents.multi import MultiIntentClassifier
    from convert_tf.ranking.ranker import Ranker
    from convert_tf.search.index import CandidateIndex
    from convert_tf.training.encoder.losses.base import Loss
    from convert_tf.training.encoder.options import EncoderTraining
    from convert_tf.training.encoder.task import train

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

__all__ = [  # type checkers do not follow `*_LAZY_NAMES`
    "BertConfig",
    "CandidateIndex",
    "EncoderClient",
    "EncoderTraining",
    "HeadConfig",
    "IntentClassifier",
    "Loss",
    "ModelConfig",
    "MultiIntentClassifier",
    "Pretraining",
    "Ranker",
    "RankerTraining",
    "SentenceEncoder",
    "__version__",
    "discover_intents",
    "evaluate",
    "export_model",
    "load_classifier",
    "load_model",
    "module_path",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY_NAMES:
        raise AttributeError(f"module 'convert_tf' has no attribute {name!r}")
    check_unpacked()
    with needs_training(f"convert_tf.{name}"):
        return getattr(importlib.import_module(_LAZY_NAMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
