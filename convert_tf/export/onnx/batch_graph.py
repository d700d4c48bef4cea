"""An encoder's ONNX graph with the inputs and the output that Hugging Face programs expect.

The graph of `convert_tf.export.onnx.graph` reads packed rows that its caller prepares. This graph
reads `input_ids` and `attention_mask`, one text in a row, and prepares the rest itself.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from convert_tf.encoding.signatures import SIGNATURES
from convert_tf.export.onnx.graph import GraphBuilder, Input
from convert_tf.models.encoder import DualEncoder

_INPUTS: list[Input] = [
    (name, TensorProto.INT64, ("batch_size", "sequence_length"))
    for name in ("input_ids", "attention_mask")
]
OUTPUT = "last_hidden_state"


class BatchGraphBuilder(GraphBuilder):
    """Build the graph of an encoder with the inputs `input_ids` and `attention_mask`.

    The output is float32 `[batch, tokens, reduced_dim]`. Every position of a text has the vector of
    the whole text. So every pooling of a program gives this vector: the first token, the mean or
    the maximum. Shorter vectors end with zeros, which do not change inner products.

    The id N, for a vocabulary of N entries, stands for all characters outside it. Its row is the
    mean of the rows of the hash buckets, because these programs cannot compute the hash. Larger ids
    are not part of a text. Those of `kind_ids` select the kind of vector. If a row has several, the
    largest one counts.

    Args:
      encoder, max_tokens, ranges, similarity_map: as in `GraphBuilder`.
      kind_ids: increasing ids of the tokens that select a kind of vector, by the kind in
        `convert_tf.encoding.signatures`. The first one is the default.

    Example:
      model = BatchGraphBuilder(encoder, max_tokens=512, kind_ids={"sentence": 24668}).build()
    """

    def __init__(self, encoder: DualEncoder, *, kind_ids: dict[str, int], **options: Any):
        super().__init__(encoder, **options)
        self._kind_ids = kind_ids

    def build(self, *, observes: bool = False) -> onnx.ModelProto:
        self._prepare_rows()
        _, shapes = self._signatures(self._reduced(self._trunk()))
        self._spread(self._joined(shapes))
        shape = ("batch_size", "sequence_length", self._config.reduced_dim)
        return self._model(_INPUTS, {OUTPUT: shape}, self.observed if observes else ())

    def _table(self) -> np.ndarray:
        table, size = super()._table(), self._config.vocab_size
        return np.concatenate([table[:size], table[size:].mean(axis=0, keepdims=True)])

    def _prepare_rows(self) -> None:
        """Compute the inputs of `onnx_inputs.graph_inputs`, with one text per row."""
        zero = self._constant("no_id", np.int32(0))
        ids = self._add("Cast", ["input_ids"], to=TensorProto.INT32)
        is_attended = self._add("Cast", ["attention_mask"], to=TensorProto.BOOL)
        unknown = self._constant("unknown_id", np.int32(self._config.vocab_size))
        is_text = self._add("And", [is_attended, self._add("LessOrEqual", [ids, unknown])])
        self._add("Where", [is_text, ids, zero], "token_ids")
        self._add("Cast", [is_text], "segment_ids", to=TensorProto.INT32)
        number = self._add("CumSum", ["segment_ids", self._constant("tokens_axis", np.int64(1))])
        place = self._add("Sub", [number, self._constant("one_id", np.int32(1))])
        self._add("Max", [place, zero], "positions")

        weights = self._add("Cast", [is_text], to=TensorProto.FLOAT)
        count = self._add("ReduceSum", [weights, self._int64("row_axis", 1)], keepdims=1)
        count = self._add("Max", [count, self._constant("one_token", np.float32(1))])
        weights = self._add("Div", [weights, self._add("Sqrt", [count])])
        self._add("Unsqueeze", [weights, "row_axis"], "pooling")

        first = min(self._kind_ids.values())
        attended = self._add("Where", [is_attended, ids, zero])
        largest = self._add("ReduceMax", [attended, "row_axis"], keepdims=0)
        kind = self._add("Max", [largest, self._constant("first_kind", np.int32(first))])
        for name, kind_id in self._kind_ids.items():
            is_kind = self._add("Equal", [kind, self._constant(f"{name}_id", np.int32(kind_id))])
            rows = self._add("Squeeze", [self._add("NonZero", [is_kind]), self._int64("only", 0)])
            self._add("Cast", [rows], SIGNATURES[name].slots, to=TensorProto.INT32)

    def _joined(self, shapes: Mapping[str, tuple[str, int]]) -> str:
        """Return the vectors of all texts in order, `[batch, reduced_dim]`."""
        dim = self._config.reduced_dim
        size = self._add("Shape", ["input_ids"], start=0, end=1)
        shape = self._add("Concat", [size, self._int64("dim", dim)], axis=0)
        vectors = self._add("ConstantOfShape", [shape])
        for signature in map(SIGNATURES.__getitem__, self._kind_ids):
            encoding = rows = signature.output
            width = shapes[encoding][1]
            if width < dim:
                pads = np.array([0, 0, 0, dim - width], np.int64)
                rows = self._add("Pad", [rows, self._constant(f"{encoding}/pads", pads)])
            places = self._add("Cast", [signature.slots], to=TensorProto.INT64)
            places = self._add("Unsqueeze", [places, "row_axis"])
            vectors = self._add("ScatterND", [vectors, places, rows])
        return vectors

    def _spread(self, vectors: str) -> None:
        """Copy the vector of each text to all of its positions."""
        vectors = self._add("Unsqueeze", [vectors, "row_axis"])
        shape = self._add("Shape", ["input_ids"])
        shape = self._add("Concat", [shape, self._int64("dim", self._config.reduced_dim)], axis=0)
        self._add("Expand", [vectors, shape], OUTPUT)
