"""Cross-encoders as TF Hub modules: scores of pairs."""

from typing import Any

import tensorflow as tf

from convert_tf.graph_batches import in_length_batches
from convert_tf.ranker_module import IDS, RankerModule, lengths_of
from convert_tf.rankers import Ranker
from convert_tf.text.tokenizer import Tokenizer


class CrossRankerModule(RankerModule):
    """A cross-encoder: each context is read together with each of its candidates.

    Reference: arXiv 1905.01969 §4.3.
    """

    def __init__(self, ranker: Ranker, tokenizer: Tokenizer, **kwargs: Any):
        super().__init__(ranker, tokenizer, **kwargs)
        self._trace()

    @tf.function(autograph=False, input_signature=[IDS, IDS])
    def _joint_network(self, context_ids: tf.Tensor, candidate_ids: tf.Tensor) -> tf.Tensor:
        with self._network():
            return self._ranker().score(context_ids, candidate_ids[:, None])[:, 0]

    def _scores(
        self, context: tf.Tensor, candidates: tf.Tensor, places: tf.Tensor | None
    ) -> tf.Tensor:
        if places is None:
            number = tf.size(candidates)
            places = tf.broadcast_to(tf.range(number)[None], [tf.size(context), number])
        context_ids, candidate_ids = self._context_ids(context), self._candidate_ids(candidates)
        pairs = tf.where(places >= 0)
        contexts, own = tf.cast(pairs[:, 0], tf.int32), tf.gather_nd(places, pairs)
        lengths = tf.gather(lengths_of(context_ids), contexts)
        lengths += tf.gather(lengths_of(candidate_ids), own)

        def scores(rows: tf.Tensor) -> tf.Tensor:
            return self._joint_network(
                self._padded(context_ids, tf.gather(contexts, rows)),
                self._padded(candidate_ids, tf.gather(own, rows)),
            )

        return tf.scatter_nd(pairs, in_length_batches(lengths, scores), tf.shape(places, tf.int64))
