"""What encodes texts with an exported model.

Importing this loads neither TensorFlow nor ONNX Runtime; opening a model loads the one it needs.
"""

from convert_tf.backend import Backend
from convert_tf.encoder_client import EncoderClient
from convert_tf.sentence_encoder import SentenceEncoder

__all__ = ["Backend", "EncoderClient", "SentenceEncoder"]
