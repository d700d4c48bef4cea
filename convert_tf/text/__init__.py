"""Text: subword learning, the vocabulary file and the in-graph tokenizers."""

import importlib
from typing import Any

_LAZY_NAMES = {
    "SubwordConfig": "convert_tf.text.subwords",
    "learn_subwords": "convert_tf.text.subwords",
    "VocabularyError": "convert_tf.text.vocabulary",
    "read_vocabulary": "convert_tf.text.vocabulary",
    "write_vocabulary": "convert_tf.text.vocabulary",
    "Tokenizer": "convert_tf.text.tokenizer",
    "SubwordTokenizer": "convert_tf.text.tokenizer",
    "SentencePieceTokenizer": "convert_tf.text.tokenizer",
    "load_tokenizer": "convert_tf.text.tokenizer",
}

__all__ = list(_LAZY_NAMES)


def __getattr__(name: str) -> Any:
    if name not in _LAZY_NAMES:
        raise AttributeError(f"module 'convert_tf.text' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY_NAMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
