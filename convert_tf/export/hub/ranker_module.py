"""Rankers as TF Hub modules: from strings of contexts and candidates to scores.

A ranker's network is traced once, between token ids and vectors or scores. Around it, in the graph,
texts are tokenized, equal candidates are found, and rows of similar length are computed together,
so many at a time that memory does not grow with the number of texts. Here is what all heads share;
`ranker_heads` has its two kinds.

Reference: arXiv 1905.01969 §4.2 to §4.4.
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from convert_tf.config.model import MAX_TOKENS
from convert_tf.export.hub.network import check_exportable, use_plain_gelu
from convert_tf.export.hub.weights import StoredTable, StoredWeights
from convert_tf.models.ranker import RankerModel
from convert_tf.text.tokenizer import Tokenizer

PADDING_SCORE = -1e30  # below every score, and finite: softmax makes 0 of it, and JSON can say it
_FACTORS = ("output_factor", "log_scale")  # variables of a ranker

CONTEXTS = tf.TensorSpec([None], tf.string, name="context")
CANDIDATES = tf.TensorSpec([None], tf.string, name="candidates")
_MATRIX = tf.TensorSpec([None, None], tf.string, name="candidates")
_ROW_LENGTHS = tf.TensorSpec([None], tf.int64, name="row_lengths")
_RAGGED = tf.RaggedTensorSpec([None, None], tf.string, ragged_rank=1)
IDS = tf.TensorSpec([None, None], tf.int32)


class RankerModule(tf.Module):
    """A ranker with its tokenizer, from strings to scores; what its two subclasses share.

    A context is one text: all turns joined with spaces, the newest last. Where it is longer than
    the ranker reads, its oldest tokens are left out; a candidate loses tokens at its end.

    A score depends on its context and its candidate alone, not on other rows, order or padding.

    Args:
      ranker: whose weights are copied; a float32 one. It becomes part of the module and must not be
        used by itself any more.
      tokenizer: of the ranker's vocabulary.
      network_bits: 16 or 8, of the stored weights; see `StoredWeights` and `StoredTable`.
      max_tokens: longest texts, where the ranker's own limits are not lower.

    Attributes:
      variables, trainable_variables: what is stored, and what a user may train: the network.
      regularization_losses: empty.

    Raises:
      ValueError: a weight is no number or too large for 16 bits, `max_tokens` is not positive, or
        the ranker does not compute in float32.

    Example:
      module = tf.saved_model.load("hub_modules/poly/1")
      module.score(["hello", "how are you?"], [["hi", "a fish"], ["fine", ""]])  # [2, 2]
      module.score(["hello", "how are you?"], ["hi", "a fish", "fine"])  # [2, 3]

    Reference: arXiv 1905.01969 §4.
    """

    # Attributes are saved with a module; the properties of tf.Module by these names are not.
    variables: Any = None
    trainable_variables: Any = None

    def __init__(
        self,
        ranker: RankerModel,
        tokenizer: Tokenizer,
        *,
        network_bits: int = 16,
        max_tokens: int = MAX_TOKENS,
    ):
        super().__init__(name="ranker_module")
        check_exportable(ranker, max_tokens)
        head = ranker.config.head
        self.tokenizer = tokenizer
        self.context_tokens = min(head.max_context_tokens, max_tokens)
        self.candidate_tokens = min(head.max_candidate_tokens, max_tokens)
        # Behind a function, where tf.Module does not find, and save, the ranker's own variables.
        self._ranker: Callable[[], RankerModel] = lambda: ranker
        use_plain_gelu(ranker)

        trunks: list[Any] = [t for t in (ranker.trunk, ranker.candidate_trunk) if t is not None]
        self.tables = [StoredTable(trunk.embedding, bits=network_bits) for trunk in trunks]
        # Two numbers that are not rounded, as that would scale every score.
        factors = [v for v in ranker.variables if v.path.split("/")[-1] in _FACTORS]
        values = [(v, keras.ops.convert_to_numpy(v)) for v in factors]
        self._factors: Callable[[], list[tuple[Any, Any]]] = lambda: values
        elsewhere = {id(v) for v in (*factors, *(trunk.embedding_table for trunk in trunks))}
        network = [v for v in ranker.trainable_variables if id(v) not in elsewhere]
        self.weights = StoredWeights(network, bits=network_bits)
        for table, trunk in zip(self.tables, trunks, strict=True):
            trunk.embedding.gather_rows = table.gather_rows
        self.trainable_variables = list(self.weights.trainable_variables)
        parts: list[Any] = [self.weights, *self.tables]
        self.variables = [variable for part in parts for variable in part.variables]
        self.regularization_losses: list[Any] = []

    def _trace(self) -> None:
        """A saved function knows only those arguments that it was traced for."""
        for candidates in (_MATRIX, CANDIDATES, _RAGGED):
            self.score.get_concrete_function(CONTEXTS, candidates)

    def _scores(
        self, context: tf.Tensor, candidates: tf.Tensor, places: tf.Tensor | None
    ) -> tf.Tensor:
        """Scores of candidates.

        Args:
          context: string `[B]`.
          candidates: string `[N]`.
          places: int32 `[B, C]`, which of them are each context's own, -1 for padding; None for
            all.

        Returns:
          float32 `[B, C]`; any number for padding. `[B, N]` without places.
        """
        raise NotImplementedError

    @tf.function(autograph=False, input_signature=[CONTEXTS, CANDIDATES])
    def score_all(self, context: tf.Tensor, candidates: tf.Tensor) -> dict[str, tf.Tensor]:
        """Every candidate for every context: string `[B]`, `[C]` → float32 `[B, C]`."""
        return {"default": self._scores(context, candidates, None)}

    @tf.function(autograph=False, input_signature=[CONTEXTS, _MATRIX])
    def score_matrix(self, context: tf.Tensor, candidates: tf.Tensor) -> dict[str, tf.Tensor]:
        """Each context's own candidates: string `[B]`, `[B, C]` → float32 `[B, C]`.

        `""` is padding, which may stand anywhere and scores −1e30.
        """
        _check_rows(context, tf.shape(candidates)[0])
        is_real = candidates != ""
        flat = tf.boolean_mask(candidates, is_real)
        numbers = tf.cumsum(tf.cast(tf.reshape(is_real, [-1]), tf.int32), exclusive=True)
        places = tf.where(is_real, tf.reshape(numbers, tf.shape(candidates)), -1)
        scores = self._scores(context, flat, places)
        return {"default": tf.where(is_real, scores, PADDING_SCORE)}

    @tf.function(autograph=False, input_signature=[CONTEXTS, CANDIDATES, _ROW_LENGTHS])
    def score_ragged(
        self, context: tf.Tensor, candidates: tf.Tensor, row_lengths: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Each context's own candidates, one list behind the other.

        Args:
          context: string `[B]`.
          candidates: string `[N]`.
          row_lengths: int64 `[B]`, how many of them each context has; N in all.

        Returns:
          `default`, float32 `[N]`.
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
        """Scores of candidates, for a call from Python.

        Args:
          context: string `[B]`.
          candidates: string `[B, C]`, each context's own, padded with `""`; `[C]`, the same for
            every context; or ragged `[B, (C)]`.

        Returns:
          float32 `[B, C]`, -1e30 for padding; or ragged `[B, (C)]`.
        """
        if isinstance(candidates, tf.RaggedTensor):
            lengths = candidates.row_lengths()
            flat = self.score_ragged(context, candidates.values, lengths)["default"]
            return candidates.with_values(flat)
        score = self.score_all if candidates.shape.rank == 1 else self.score_matrix
        return score(context, candidates)["default"]

    @property
    def signatures(self) -> dict[str, Any]:
        """The functions of the saved module, by the names of its signatures."""
        return {
            "serving_default": self.score_matrix,
            "score": self.score_matrix,
            "score_all": self.score_all,
            "score_ragged": self.score_ragged,
        }

    def _context_ids(self, strings: tf.Tensor) -> tf.RaggedTensor:
        return self.tokenizer.token_ids(strings)[:, -self.context_tokens :]

    def _candidate_ids(self, strings: tf.Tensor) -> tf.RaggedTensor:
        longest = self.tokenizer.bytes_of(self.candidate_tokens)
        if longest is not None:  # texts of any length then cost no more than that
            strings = tf.strings.substr(strings, 0, longest)
        return self.tokenizer.token_ids(strings)[:, : self.candidate_tokens]

    def _padded(self, ids: tf.RaggedTensor, places: tf.Tensor) -> tf.Tensor:
        """Some rows, int32 `[n, tokens]`, with a column at least."""
        rows = tf.gather(ids, places)
        width = tf.maximum(rows.bounding_shape(axis=1, out_type=tf.int32), 1)
        shape = tf.stack([tf.size(places), width])
        return rows.to_tensor(default_value=self.tokenizer.padding_id, shape=shape)

    def _network(self) -> keras.StatelessScope:
        """Where the ranker has the stored weights."""
        scope = self.weights.scope()
        for variable, value in self._factors():
            scope.add_update((variable, tf.constant(value)))
        return scope


def lengths_of(ids: tf.RaggedTensor) -> tf.Tensor:
    """Tokens of each text, int32 `[N]`."""
    return tf.cast(ids.row_lengths(), tf.int32)


def _check_rows(context: tf.Tensor, rows: tf.Tensor) -> None:
    tf.debugging.assert_equal(
        tf.size(context), rows, message="Every context must have a row of candidates."
    )
