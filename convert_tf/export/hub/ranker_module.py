"""Rankers as TF Hub modules, which map strings of contexts and candidates to scores.

A ranker's network is traced once, from token ids to vectors or scores. The graph around the network
tokenizes texts, finds equal candidates, and computes rows of similar length in batches of limited
size. The memory that the network needs therefore does not grow with the number of texts. Bi- and
poly-encoders encode contexts and candidates separately, and the encodings can be reused.
Cross-encoders read a context and a candidate together.

Reference: arXiv 1905.01969 §4.2 to §4.4.
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from convert_tf.config.model import MAX_TOKENS
from convert_tf.export.hub.network import ids_of_beginnings, in_length_batches, use_plain_gelu
from convert_tf.export.hub.weights import StoredTable, StoredWeights
from convert_tf.models.ranker import RankerModel
from convert_tf.text.tokenizer import Tokenizer

PADDING_SCORE = -1e30  # lower than every score, but finite, so that it can be written as JSON
# Maximum number of entries in a matrix product when encodings are scored.
_BATCH_NUMBERS = 2**24
_FACTORS = ("output_factor", "log_scale")  # names of a ranker's variables that scale the scores

_CONTEXTS = tf.TensorSpec([None], tf.string, name="context")
_CANDIDATES = tf.TensorSpec([None], tf.string, name="candidates")
_MATRIX = tf.TensorSpec([None, None], tf.string, name="candidates")
_ROW_LENGTHS = tf.TensorSpec([None], tf.int64, name="row_lengths")
_RAGGED = tf.RaggedTensorSpec([None, None], tf.string, ragged_rank=1)
_IDS = tf.TensorSpec([None, None], tf.int32)


class RankerModule(tf.Module):
    """A ranker with its tokenizer, which maps strings to scores.

    This is the base class of `EncodingRankerModule` and `CrossRankerModule`.

    A context is one text: all turns, joined with spaces, the newest last. If a context is too long,
    its oldest tokens are dropped. If a candidate is too long, its last tokens are dropped.

    A score depends only on the context and the candidate, not on other rows, their order or
    padding.

    Args:
      ranker: a float32 ranker, whose weights are copied. It becomes part of the module and must not
        be used on its own any more.
      tokenizer: tokenizer for the ranker's vocabulary.
      network_bits: number of bits per stored weight; see `StoredWeights` and `StoredTable`.
      max_tokens: maximum number of tokens per text. The ranker's own limits apply if they are
        lower.

    Attributes:
      variables: the stored variables, and those that are computed from them.
      trainable_variables: the variables that `hub.KerasLayer` may train.
      regularization_losses: an empty list, which `hub.KerasLayer` requires.

    Raises:
      ValueError: if a weight is NaN, infinite or too large for 16 bits.

    Example:
      module = tf.saved_model.load("hub_modules/poly/1")
      module.score(["hello", "how are you?"], [["hi", "a fish"], ["fine", ""]])  # [2, 2]
      module.score(["hello", "how are you?"], ["hi", "a fish", "fine"])  # [2, 3]

    Reference: arXiv 1905.01969 §4.
    """

    # The next two are attributes, because tf.Module's properties of the same names are not saved.
    variables: Any = None
    trainable_variables: Any = None

    def __init__(
        self,
        ranker: RankerModel,
        tokenizer: Tokenizer,
        *,
        network_bits: int = 16,
        max_tokens: int = MAX_TOKENS,
    ) -> None:
        super().__init__(name="ranker_module")
        head = ranker.config.head
        self.tokenizer = tokenizer
        self.context_tokens = min(head.max_context_tokens, max_tokens)
        self.candidate_tokens = min(head.max_candidate_tokens, max_tokens)
        # A function hides the ranker from tf.Module, which would save the ranker's variables too.
        self._ranker: Callable[[], RankerModel] = lambda: ranker
        use_plain_gelu(ranker)

        trunks: list[Any] = [t for t in (ranker.trunk, ranker.candidate_trunk) if t is not None]
        self.tables = [StoredTable(trunk.embedding, bits=network_bits) for trunk in trunks]
        # The two factors are not rounded, because rounding them would change all scores.
        factors = [v for v in ranker.variables if v.path.split("/")[-1] in _FACTORS]
        values = [(v, keras.ops.convert_to_numpy(v)) for v in factors]
        self._factors: Callable[[], list[tuple[Any, Any]]] = lambda: values
        elsewhere = {id(v) for v in (*factors, *(trunk.embedding.table for trunk in trunks))}
        network = [v for v in ranker.trainable_variables if id(v) not in elsewhere]
        self.weights = StoredWeights(network, bits=network_bits)
        for table, trunk in zip(self.tables, trunks, strict=True):
            trunk.embedding.gather_rows = table.gather_rows
        self.trainable_variables = list(self.weights.trainable_variables)
        parts: list[Any] = [self.weights, *self.tables]
        self.variables = [variable for part in parts for variable in part.variables]
        self.regularization_losses: list[Any] = []

    def _scores(
        self, context: tf.Tensor, candidates: tf.Tensor, places: tf.Tensor | None
    ) -> tf.Tensor:
        """Return scores of candidates.

        Args:
          context: the contexts, string `[B]`.
          candidates: the candidates, string `[N]`.
          places: int32 `[B, C]`, the indices of each context's own candidates in `candidates`, with
            -1 for padding. If None, all candidates are scored for every context.

        Returns:
          The scores, float32 `[B, C]`, or `[B, N]` if `places` is None. The scores of padding are
          arbitrary numbers.
        """
        raise NotImplementedError

    @tf.function(autograph=False, input_signature=[_CONTEXTS, _CANDIDATES])
    def score_all(self, context: tf.Tensor, candidates: tf.Tensor) -> dict[str, tf.Tensor]:
        """Score every candidate for every context: string `[B]`, `[C]` → float32 `[B, C]`."""
        return {"default": self._scores(context, candidates, None)}

    @tf.function(autograph=False, input_signature=[_CONTEXTS, _MATRIX])
    def score_matrix(self, context: tf.Tensor, candidates: tf.Tensor) -> dict[str, tf.Tensor]:
        """Score each context's own candidates: string `[B]`, `[B, C]` → float32 `[B, C]`.

        `""` is padding, which may be at any position. The score of padding is −1e30.
        """
        _check_rows(context, tf.shape(candidates)[0])
        is_real = candidates != ""
        flat = tf.boolean_mask(candidates, is_real)
        numbers = tf.cumsum(tf.cast(tf.reshape(is_real, [-1]), tf.int32), exclusive=True)
        places = tf.where(is_real, tf.reshape(numbers, tf.shape(candidates)), -1)
        scores = self._scores(context, flat, places)
        return {"default": tf.where(is_real, scores, PADDING_SCORE)}

    @tf.function(autograph=False, input_signature=[_CONTEXTS, _CANDIDATES, _ROW_LENGTHS])
    def score_ragged(
        self, context: tf.Tensor, candidates: tf.Tensor, row_lengths: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Score each context's own candidates, given as one concatenated list.

        Args:
          context: the contexts, string `[B]`.
          candidates: the candidates, string `[N]`.
          row_lengths: int64 `[B]`, the number of candidates for each context. The sum must be N.

        Returns:
          A dict with `default`, the scores, float32 `[N]`.
        """
        _check_rows(context, tf.size(row_lengths))
        tf.debugging.assert_equal(
            tf.reduce_sum(row_lengths),
            tf.size(candidates, tf.int64),
            message="row_lengths must add up to the number of candidates.",
        )
        numbers = tf.RaggedTensor.from_row_lengths(tf.range(tf.size(candidates)), row_lengths)
        places = numbers.to_tensor(default_value=-1)
        scores = self._scores(context, candidates, places)
        return {"default": tf.boolean_mask(scores, places >= 0)}

    @tf.function(autograph=False)
    def score(self, context: Any, candidates: Any) -> Any:
        """Score candidates, for calls from Python.

        Args:
          context: the contexts, string `[B]`.
          candidates: string `[B, C]`, each context's own candidates, padded with `""`; `[C]`, the
            same candidates for every context; or ragged `[B, (C)]`, each context's own candidates.

        Returns:
          The scores: float32 `[B, C]`, with -1e30 for padding; or ragged `[B, (C)]` for ragged
          candidates.
        """
        if isinstance(candidates, tf.RaggedTensor):
            lengths = candidates.row_lengths()
            flat = self.score_ragged(context, candidates.values, lengths)["default"]
            return candidates.with_values(flat)
        score = self.score_all if candidates.shape.rank == 1 else self.score_matrix
        return score(context, candidates)["default"]

    @property
    def signatures(self) -> dict[str, Any]:
        """The module's functions, by the names of the signatures to save them as."""
        return {
            "serving_default": self.score_matrix,
            "score": self.score_matrix,
            "score_all": self.score_all,
            "score_ragged": self.score_ragged,
        }

    def _context_ids(self, strings: tf.Tensor) -> tf.RaggedTensor:
        return self.tokenizer.token_ids(strings)[:, -self.context_tokens :]

    def _candidate_ids(self, strings: tf.Tensor) -> tf.RaggedTensor:
        ids = ids_of_beginnings(self.tokenizer, strings, self.candidate_tokens)
        return ids[:, : self.candidate_tokens]

    def _padded(self, ids: tf.RaggedTensor, places: tf.Tensor) -> tf.Tensor:
        """Return the token ids of the texts at `places`, int32 `[n, tokens]`.

        The result has at least one column.
        """
        rows = tf.gather(ids, places)
        width = tf.maximum(rows.bounding_shape(axis=1, out_type=tf.int32), 1)
        shape = tf.stack([tf.size(places), width])
        return rows.to_tensor(default_value=self.tokenizer.padding_id, shape=shape)

    def _network(self) -> keras.StatelessScope:
        """Return a scope in which the ranker uses the stored weights."""
        scope = self.weights.scope()
        for variable, value in self._factors():
            scope.add_update((variable, tf.constant(value)))
        return scope


def _lengths_of(ids: tf.RaggedTensor) -> tf.Tensor:
    """Return the number of tokens in each text, int32 `[N]`."""
    return tf.cast(ids.row_lengths(), tf.int32)


def _check_rows(context: tf.Tensor, rows: tf.Tensor) -> None:
    tf.debugging.assert_equal(
        tf.size(context), rows, message="Every context must have a row of candidates."
    )


def make_ranker_module(ranker: RankerModel, tokenizer: Tokenizer, **kwargs: Any) -> RankerModule:
    """Return the module for a ranker. The arguments are those of `RankerModule`."""
    kind = CrossRankerModule if ranker.is_joint else EncodingRankerModule
    module = kind(ranker, tokenizer, **kwargs)
    # A saved function accepts only the kinds of arguments that it was traced with.
    for candidates in (_MATRIX, _CANDIDATES, _RAGGED):
        module.score.get_concrete_function(_CONTEXTS, candidates)
    return module


class EncodingRankerModule(RankerModule):
    """A bi- or poly-encoder: contexts and candidates are encoded separately and can be reused.

    Equal candidates are encoded once.

    Example:
      candidates = module.encode_candidates(["hi", "a fish", "fine"])["default"]  # [3, dim]
      module.score_encoded(["hello"], candidates)["default"]  # [1, 3]

    Reference: arXiv 1905.01969 §4.2, §4.4.
    """

    def __init__(self, ranker: RankerModel, tokenizer: Tokenizer, **kwargs: Any) -> None:
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
            self._score_encoded, autograph=False, input_signature=[_CONTEXTS, candidates]
        )
        self.score_vectors = tf.function(
            self._score_vectors, autograph=False, input_signature=[vectors, mask, candidates]
        )

    @tf.function(autograph=False, input_signature=[_CANDIDATES])
    def encode_candidates(self, candidates: tf.Tensor) -> dict[str, tf.Tensor]:
        """Encode candidates: string `[C]` → float32 `[C, dim]`."""
        return {"default": self._candidate_vectors(candidates)}

    @tf.function(autograph=False, input_signature=[_CONTEXTS])
    def encode_context(self, context: tf.Tensor) -> dict[str, tf.Tensor]:
        """Encode contexts, string `[B]`.

        Returns:
          A dict with
          - `vectors`: float32 `[B, M, dim]`, the M vectors of each context. M is 1 for a
            bi-encoder. Masked vectors consist of zeros;
          - `mask`: bool `[B, M]`, false for the vectors that `score_vectors` must not read.
        """
        self.weights.unpack()
        ids = self._context_ids(context)
        both = in_length_batches(
            _lengths_of(ids),
            lambda places: tf.concat(self._context_network(self._padded(ids, places)), axis=2),
            result_shape=(self._codes, self._dim + 1),
        )
        return {"vectors": both[:, :, :-1], "mask": both[:, :, -1] > 0}

    def _score_encoded(self, context: tf.Tensor, candidates: tf.Tensor) -> dict[str, tf.Tensor]:
        """Score every encoded candidate for every context: float32 `[B, C]`."""
        return {"default": self._encoded_scores(context, candidates, None)}

    def _score_vectors(
        self, vectors: tf.Tensor, mask: tf.Tensor, candidates: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Score every encoded candidate for every encoded context: float32 `[B, C]`."""
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

    @tf.function(autograph=False, input_signature=[_IDS])
    def _candidate_network(self, token_ids: tf.Tensor) -> tf.Tensor:
        with self._network():
            return self._ranker().encode_candidates(token_ids)

    @tf.function(autograph=False, input_signature=[_IDS])
    def _context_network(self, token_ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with self._network():
            vectors, mask = self._ranker().encode_contexts(token_ids)
        missing = self._codes - tf.shape(mask)[1]
        return (
            tf.pad(vectors, [[0, 0], [0, missing], [0, 0]]),
            tf.cast(tf.pad(mask, [[0, 0], [0, missing]]), tf.float32)[:, :, None],
        )

    def _candidate_vectors(self, candidates: tf.Tensor) -> tf.Tensor:
        self.weights.unpack()
        texts, index = tf.unique(candidates)
        ids = self._candidate_ids(texts)
        vectors = in_length_batches(
            _lengths_of(ids),
            lambda places: self._candidate_network(self._padded(ids, places)),
            result_shape=(self._dim,),
        )
        return tf.gather(vectors, index)

    def _scores(
        self, context: tf.Tensor, candidates: tf.Tensor, places: tf.Tensor | None
    ) -> tf.Tensor:
        return self._encoded_scores(context, self._candidate_vectors(candidates), places)

    def _encoded_scores(
        self, context: tf.Tensor, candidates: tf.Tensor, places: tf.Tensor | None
    ) -> tf.Tensor:
        """Compute `_scores` for candidates that are already encoded, float32 `[N, dim]`."""
        self.weights.unpack()
        ids = self._context_ids(context)
        number = tf.shape(candidates)[0]
        if places is None:
            per_context = number * self._codes
        else:
            per_context = tf.shape(places)[1] * max(self._codes, self._dim)
            candidates = tf.pad(candidates, [[0, 1], [0, 0]])  # adds the row that padding refers to
            places = tf.where(places < 0, number, places)

        def scores(rows: tf.Tensor) -> tf.Tensor:
            vectors, mask = self._context_network(self._padded(ids, rows))
            scored = (
                candidates if places is None else tf.gather(candidates, tf.gather(places, rows))
            )
            with self._network():
                return self._ranker().score_encoded(vectors, mask[:, :, 0] > 0, scored)

        rows_of_scores = in_length_batches(
            _lengths_of(ids),
            scores,
            result_shape=(None,),
            max_rows=_BATCH_NUMBERS // tf.maximum(per_context, 1),
        )
        width = number if places is None else tf.shape(places)[1]
        return tf.reshape(rows_of_scores, [tf.size(context), width])  # even if there are no rows


class CrossRankerModule(RankerModule):
    """A cross-encoder, which reads each context together with each of its candidates.

    Reference: arXiv 1905.01969 §4.3.
    """

    @tf.function(autograph=False, input_signature=[_IDS, _IDS])
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
        contexts, columns = tf.cast(pairs[:, 0], tf.int32), tf.gather_nd(places, pairs)
        lengths = tf.gather(_lengths_of(context_ids), contexts)
        lengths += tf.gather(_lengths_of(candidate_ids), columns)

        def scores(rows: tf.Tensor) -> tf.Tensor:
            return self._joint_network(
                self._padded(context_ids, tf.gather(contexts, rows)),
                self._padded(candidate_ids, tf.gather(columns, rows)),
            )

        return tf.scatter_nd(pairs, in_length_batches(lengths, scores), tf.shape(places, tf.int64))
