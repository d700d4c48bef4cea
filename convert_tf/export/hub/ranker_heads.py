"""The module of each head: bi- and poly-encoders, whose encodings can be kept, and cross-encoders.

Reference: arXiv 1905.01969 §4.2 to §4.4.
"""

from typing import Any

import tensorflow as tf

from convert_tf.export.hub.network import in_length_batches
from convert_tf.export.hub.ranker_module import CANDIDATES, CONTEXTS, IDS, RankerModule, lengths_of
from convert_tf.models.ranker import RankerModel
from convert_tf.text.tokenizer import Tokenizer

# Entries of the largest product that is made at once when encodings are scored.
_BATCH_NUMBERS = 2**24


def make_ranker_module(ranker: RankerModel, tokenizer: Tokenizer, **kwargs: Any) -> RankerModule:
    """The module of a ranker, of the class that its head wants; arguments as in `RankerModule`."""
    kind = CrossRankerModule if ranker.is_joint else EncodingRankerModule
    return kind(ranker, tokenizer, **kwargs)


class EncodingRankerModule(RankerModule):
    """A bi- or poly-encoder: contexts and candidates are encoded apart, and can be kept.

    Equal candidates are encoded once.

    Example:
      candidates = module.encode_candidates(["hi", "a fish", "fine"])["default"]  # [3, dim]
      module.score_encoded(["hello"], candidates)["default"]  # [1, 3]

    Reference: arXiv 1905.01969 §4.2, §4.4.
    """

    def __init__(self, ranker: RankerModel, tokenizer: Tokenizer, **kwargs: Any):
        super().__init__(ranker, tokenizer, **kwargs)
        head = ranker.config.head
        self._codes = 1
        if head.head == "poly":
            self._codes = head.poly_codes + (head.poly_variant == "last_m_and_first")
        self._dim = int(
            self._candidate_network.get_concrete_function().structured_outputs.shape[-1]
        )
        vectors = tf.TensorSpec([None, self._codes, self._dim], tf.float32, name="vectors")
        mask = tf.TensorSpec([None, self._codes], tf.bool, name="mask")
        candidates = tf.TensorSpec([None, self._dim], tf.float32, name="candidates")
        self.score_encoded = tf.function(
            self._score_encoded, autograph=False, input_signature=[CONTEXTS, candidates]
        )
        self.score_vectors = tf.function(
            self._score_vectors, autograph=False, input_signature=[vectors, mask, candidates]
        )
        self._trace()

    @tf.function(autograph=False, input_signature=[CANDIDATES])
    def encode_candidates(self, candidates: tf.Tensor) -> dict[str, tf.Tensor]:
        """Candidate vectors: string `[C]` → float32 `[C, dim]`."""
        return {"default": self._candidate_vectors(candidates)}

    @tf.function(autograph=False, input_signature=[CONTEXTS])
    def encode_context(self, context: tf.Tensor) -> dict[str, tf.Tensor]:
        """Context vectors: string `[B]` → `vectors` float32 `[B, M, dim]`, `mask` bool `[B, M]`.

        M is 1 for a bi-encoder; masked vectors are zeros, which `score_vectors` does not read.
        """
        self.weights.unpack()
        ids = self._context_ids(context)
        both = in_length_batches(
            lengths_of(ids),
            lambda places: tf.concat(self._context_vectors(ids, places), axis=2),
            result_shape=(self._codes, self._dim + 1),
        )
        return {"vectors": both[:, :, :-1], "mask": both[:, :, -1] > 0}

    def _score_encoded(self, context: tf.Tensor, candidates: tf.Tensor) -> dict[str, tf.Tensor]:
        """Every encoded candidate for every context: float32 `[B, C]`."""
        return {"default": self._encoded_scores(context, candidates, None)}

    def _score_vectors(
        self, vectors: tf.Tensor, mask: tf.Tensor, candidates: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Every encoded candidate for every encoded context: float32 `[B, C]`."""
        self.weights.unpack()
        with self._network():
            return {"default": self._ranker().score_encoded(vectors, mask, candidates)}

    @property
    def signatures(self) -> dict[str, Any]:
        return {
            **super().signatures,
            "encode_context": self.encode_context,
            "encode_candidates": self.encode_candidates,
            "score_encoded": self.score_encoded,
            "score_vectors": self.score_vectors,
        }

    @tf.function(autograph=False, input_signature=[IDS])
    def _candidate_network(self, token_ids: tf.Tensor) -> tf.Tensor:
        with self._network():
            return self._ranker().encode_candidates(token_ids)

    @tf.function(autograph=False, input_signature=[IDS])
    def _context_network(self, token_ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with self._network():
            vectors, mask = self._ranker().encode_contexts(token_ids)
        missing = self._codes - tf.shape(mask)[1]
        return (
            tf.pad(vectors, [[0, 0], [0, missing], [0, 0]]),
            tf.cast(tf.pad(mask, [[0, 0], [0, missing]]), tf.float32)[:, :, None],
        )

    def _context_vectors(
        self, ids: tf.RaggedTensor, places: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        return self._context_network(self._padded(ids, places))

    def _candidate_vectors(self, candidates: tf.Tensor) -> tf.Tensor:
        self.weights.unpack()
        texts, own = tf.unique(candidates)
        ids = self._candidate_ids(texts)
        vectors = in_length_batches(
            lengths_of(ids),
            lambda places: self._candidate_network(self._padded(ids, places)),
            result_shape=(self._dim,),
        )
        return tf.gather(vectors, own)

    def _scores(
        self, context: tf.Tensor, candidates: tf.Tensor, places: tf.Tensor | None
    ) -> tf.Tensor:
        return self._encoded_scores(context, self._candidate_vectors(candidates), places)

    def _encoded_scores(
        self, context: tf.Tensor, candidates: tf.Tensor, places: tf.Tensor | None
    ) -> tf.Tensor:
        """As `_scores`, of encoded candidates, float32 `[N, dim]`."""
        self.weights.unpack()
        ids = self._context_ids(context)
        number = tf.shape(candidates)[0]
        if places is None:
            per_context = number * self._codes
        else:
            per_context = tf.shape(places)[1] * max(self._codes, self._dim)
            candidates = tf.pad(candidates, [[0, 1], [0, 0]])  # what padding reads
            places = tf.where(places < 0, number, places)

        def scores(rows: tf.Tensor) -> tf.Tensor:
            vectors, mask = self._context_vectors(ids, rows)
            own = candidates if places is None else tf.gather(candidates, tf.gather(places, rows))
            with self._network():
                return self._ranker().score_encoded(vectors, mask[:, :, 0] > 0, own)

        found = in_length_batches(
            lengths_of(ids),
            scores,
            result_shape=(None,),
            max_rows=_BATCH_NUMBERS // tf.maximum(per_context, 1),
        )
        width = number if places is None else tf.shape(places)[1]
        return tf.reshape(found, [tf.size(context), width])  # of nothing, too


class CrossRankerModule(RankerModule):
    """A cross-encoder: each context is read together with each of its candidates.

    Reference: arXiv 1905.01969 §4.3.
    """

    def __init__(self, ranker: RankerModel, tokenizer: Tokenizer, **kwargs: Any):
        super().__init__(ranker, tokenizer, **kwargs)
        self._trace()

    @tf.function(autograph=False, input_signature=[IDS, IDS])
    def _joint_network(self, context_ids: tf.Tensor, candidate_ids: tf.Tensor) -> tf.Tensor:
        with self._network():
            return self._ranker().score(context_ids, candidate_ids[:, None])[:, 0]

    def _scores(
        self, context: tf.Tensor, candidates: tf.Tensor, places: tf.Tensor | None
    ) -> tf.Tensor:
        self.weights.unpack()
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
