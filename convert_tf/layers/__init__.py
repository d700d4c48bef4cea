"""The layers of the encoder, in plain Keras 3 (`keras.ops` only, any backend)."""

from convert_tf.layers.attention import RelativeSelfAttention
from convert_tf.layers.bert_block import BertAttention, BertBlock, BertEmbedding
from convert_tf.layers.block import TransformerBlock
from convert_tf.layers.embedding import SubwordEmbedding
from convert_tf.layers.feed_forward import FeedForward, fast_gelu
from convert_tf.layers.reduction import SqrtNReduction
from convert_tf.layers.side_network import SideNetwork, l2_normalize

__all__ = [
    "BertAttention",
    "BertBlock",
    "BertEmbedding",
    "FeedForward",
    "RelativeSelfAttention",
    "SideNetwork",
    "SqrtNReduction",
    "SubwordEmbedding",
    "TransformerBlock",
    "fast_gelu",
    "l2_normalize",
]
