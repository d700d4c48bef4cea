"""Build the network of a dual encoder as an ONNX graph, op by op.

A row contains several texts, as in training (`convert_tf.data.packing`). The feed-forward layers,
norms and projections therefore process little padding, and no op changes the layout of tokens.
Attention is one op with an additive bias, which combines the biases for relative positions, the
maximum distance of the block and the borders between texts.

The graph has two forms. For texts of up to the run's `max_tokens`, the `float32` form gives the
same encodings as the run. The run cuts longer texts. In the `int8` form, matrices are multiplied in
8 bits. In the blocks, each kernel has one scale per output, and the activations have one fixed
scale per layer. With fixed scales, an encoding does not depend on the other texts in its batch,
except for rounding. In the side networks, which are computed once per text, every 32 weights of an
output and every 32 values of a text share a scale.

Reference: arXiv 1911.03688 §2.1.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from convert_tf.checkpoints.limits import PREFIX_TOKENS
from convert_tf.config.model import MAX_TOKENS
from convert_tf.encoding.signatures import SIGNATURES
from convert_tf.export.onnx.ops import (
    CONTRIB,
    Calibrations,
    GraphWriter,
    as_array,
    with_one_unknown,
)
from convert_tf.export.source import EncoderSource
from convert_tf.numerics.byte_codes import pack_table
from convert_tf.numerics.vectors import SENTENCE_SCALE, unit_rows

OPSET = 20
IR_VERSION = 10
MASKED_SCORE = np.float32(-1e30)
GELU_SLOPE = 1.702

# The name, the element type and the shape of an input.
Input = tuple[str, int, tuple[str | int, ...]]
INPUTS: tuple[Input, ...] = (
    ("token_ids", TensorProto.INT32, ("rows", "tokens")),
    ("positions", TensorProto.INT32, ("rows", "tokens")),
    ("segment_ids", TensorProto.INT32, ("rows", "tokens")),
    ("pooling", TensorProto.FLOAT, ("rows", "segments", "tokens")),
)
_BATCH_INPUTS: list[Input] = [
    (name, TensorProto.INT64, ("batch_size", "sequence_length"))
    for name in ("input_ids", "attention_mask")
]
BATCH_OUTPUT = "last_hidden_state"


class GraphBuilder(GraphWriter):
    """Build the graph of one encoder.

    Args:
      source: the encoder. If it has a similarity map, the graph also has the input
        `similarity_slots` and the output `similarity_encoding`, and the output `default` is
        computed from r by `convert_tf.models.distillation.sentence_encodings`.
      calibrations: for the int8 form, the calibration of each tensor in `observed`. If None, the
        float32 form is built.

    Example:
      model = GraphBuilder(load_source("runs/convert", 512)).build()
    """

    def __init__(self, source: EncoderSource, calibrations: Calibrations | None = None) -> None:
        super().__init__(calibrations)
        self._encoder, self._config = source.encoder, source.encoder.config
        self._similarity_map = source.similarity_map
        self._max_tokens = source.max_tokens

    def build(self, *, observes: bool = False) -> onnx.ModelProto:
        """Return the model. With `observes`, the tensors in `observed` are outputs too."""
        inputs, outputs = self._signatures(self._reduced(self._trunk()))
        return self._model((*INPUTS, *inputs), outputs, self.observed if observes else ())

    def _model(
        self,
        inputs: Sequence[Input],
        outputs: Mapping[str, tuple[str | int, ...]],
        observed: Sequence[str],
    ) -> onnx.ModelProto:
        """Return a model of the ops written so far, with these inputs and float32 outputs."""
        float32 = TensorProto.FLOAT
        values = [helper.make_tensor_value_info(n, float32, s) for n, s in outputs.items()]
        values += [helper.make_tensor_value_info(name, float32, None) for name in observed]
        given = [helper.make_tensor_value_info(*spec) for spec in inputs]
        constants = [numpy_helper.from_array(v, name) for name, v in self._constants.items()]
        graph = helper.make_graph(self._nodes, "dual_encoder", given, values, constants)
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)],
            ir_version=IR_VERSION,
            producer_name="convert_tf",
        )

    def _signatures(self, reduced: str) -> tuple[list[Input], dict[str, tuple[str, int]]]:
        """Build the outputs of `convert_tf.encoding.signatures`.

        Returns:
          The inputs that select the texts for each output, and the shapes of the outputs.
        """
        inputs: list[Input] = [("slots", TensorProto.INT32, ("texts",))]
        selected = self._add("Gather", [reduced, "slots"], "reduced_encoding", axis=0)
        self._sentences(selected, self._similarity_map)
        outputs = dict.fromkeys(("default", selected), ("texts", self._config.reduced_dim))
        encoding_dim = self._config.encoding_dim
        for name in ("context", "response"):
            inputs.append((f"{name}_slots", TensorProto.INT32, (f"{name}s",)))
            rows = self._add("Gather", [reduced, f"{name}_slots"], axis=0)
            self._side_of_texts(f"{name}_side", rows, f"{name}_encoding", f"{name}_slots")
            outputs[f"{name}_encoding"] = (f"{name}s", encoding_dim)
        if self._config.multi_context:
            inputs += [
                ("extra_context_slots", TensorProto.INT32, ("contexts",)),
                ("has_extra_context", TensorProto.FLOAT, ("contexts", 1)),
            ]
            self._both(reduced)
            outputs["both_encoding"] = ("contexts", encoding_dim)
        if self._similarity_map is not None:
            inputs.append(("similarity_slots", TensorProto.INT32, ("similarities",)))
            self._similarity(reduced, self._similarity_map)
            outputs["similarity_encoding"] = ("similarities", self._similarity_map.shape[1])
        return inputs, outputs

    def _trunk(self) -> str:
        self._int64("row_axis", 1)
        x = self._embedding()
        self._add("Unsqueeze", ["segment_ids", "row_axis"], "as_keys")
        self._add("Unsqueeze", ["segment_ids", self._int64("column_axis", 2)], "as_queries")
        self._add("Equal", ["as_queries", "as_keys"], "same_text_3d")
        self._add("Unsqueeze", ["same_text_3d", "row_axis"], "same_text")
        free = self._constant("free", np.float32(0))
        masked = self._constant("masked", MASKED_SCORE)
        self._add("Where", ["same_text", free, masked], "mask")  # [rows, 1, T, T]
        biases = self._attention_biases()
        for i, (block, bias) in enumerate(zip(self._encoder.trunk.blocks, biases, strict=True)):
            x = self._block(f"block_{i}", block, x, bias)
        return x

    def _embedding(self) -> str:
        embedding = self._encoder.trunk.embedding
        root = np.float32(np.sqrt(embedding.dim))
        table = self._table()
        if embedding.quantizer is None:
            kind = np.float32 if self._calibrations is None else np.float16
            rows = self._add("Gather", [self._constant("table", table.astype(kind)), "token_ids"])
            rows = self._add("Cast", [rows], to=TensorProto.FLOAT)
            rows = self._add("Mul", [rows, self._constant("root", root)])
        else:
            weights = embedding.quantizer_weights
            codes, offset, step = pack_table(table, weights["range_min"], weights["range_max"])
            zero = np.uint8(np.rint(-offset / step))
            rows = self._add("Gather", [self._constant("table", codes), "token_ids"])
            rows = self._add(
                "DequantizeLinear",
                [rows, self._constant("table_step", np.float32(step) * root),
                 self._constant("table_zero", zero)],
            )  # fmt: skip
        # ONNX Runtime computes these sums of rows of the two tables when it loads the file.
        parts = []
        for shifts in map(as_array, embedding.position_tables):
            name, index = f"positions_{len(shifts)}", np.arange(self._max_tokens, dtype=np.int32)
            numbers = self._constant(f"{name}_index", index % len(shifts))
            tables = [self._constant(name, shifts), numbers]
            parts.append(self._add("Gather", tables, axis=0))
        position_rows = self._add("Gather", [self._add("Add", parts), "positions"], axis=0)
        x = self._add_and_norm("embedding", rows, position_rows, embedding.norm)
        if self._config.num_heads == 1:  # adds an axis for the heads: `[rows, 1, tokens, dim]`
            x = self._add("Unsqueeze", [x, "row_axis"], "embedding/with_heads")
        return x

    def _table(self) -> np.ndarray:
        """Return the embeddings of the subwords and hash buckets, float32 `[num_ids, dim]`."""
        return as_array(self._encoder.trunk.embedding.table)

    def _attention_biases(self) -> list[str]:
        """Build the additive bias of each block, `[rows, heads, tokens, tokens]`.

        The bias depends on the relative position. Between tokens of different texts, and beyond the
        block's maximum distance, the bias is `MASKED_SCORE`. The biases for all blocks are built
        together, because the time for a single sentence depends mainly on the number of ops.
        """
        attentions = [block.attention for block in self._encoder.trunk.blocks]
        reach = max(attention.max_distance for attention in attentions)
        heads = self._config.num_heads
        table = np.full((len(attentions) * heads, 2 * reach + 3), MASKED_SCORE, np.float32)
        for i, attention in enumerate(attentions):
            start = reach + 1 - attention.max_distance
            end = reach + 2 + attention.max_distance
            bias = as_array(attention.relative_bias) if attention.use_relative_bias else 0.0
            table[i * heads : (i + 1) * heads, start:end] = bias

        shape = self._add("Shape", ["token_ids"])
        one, zero = self._constant("one", np.int64(1)), self._constant("zero", np.int64(0))
        places = self._add("Range", [zero, self._add("Gather", [shape, one]), one])
        columns = self._add("Unsqueeze", [places, self._int64("first_axis", 0)])
        rows = self._add("Unsqueeze", [places, "row_axis"])
        distance = self._add("Sub", [columns, rows])  # j − i at [i, j]
        low = self._constant("out_of_reach_before", np.int64(-reach - 1))
        high = self._constant("out_of_reach_behind", np.int64(reach + 1))
        index = self._add("Add", [self._add("Clip", [distance, low, high]), high])
        biases = self._add("Gather", [self._constant("relative_bias", table), index], axis=1)
        biases = self._add("Add", ["mask", biases])  # [rows, blocks * heads, tokens, tokens]
        outputs = [f"block_{i}/bias" for i in range(len(attentions))]
        return self._split(biases, "heads", [heads] * len(attentions), outputs, axis=1)

    def _block(self, name: str, block: Any, x: str, bias: str) -> str:
        attended = self._attention(f"{name}/attention", block.attention, x, bias)
        # The norm's beta is added to the biases of the feed-forward layer, which saves an op.
        beta = as_array(block.attention_norm.beta)
        summed = self._add("Add", [attended, x])
        x = self._scaled_norm(f"{name}/attention_norm", summed, block.attention_norm)
        # The weights are multiplied by the constants of the fast GELU, as in the layer. Without a
        # slope, ONNX Runtime's op takes 0.29 µs for 2,048 numbers instead of 0.91 µs.
        layer = block.feed_forward
        hidden_kernel = as_array(layer.hidden_kernel) * GELU_SLOPE
        hidden_bias = as_array(layer.hidden_bias) * GELU_SLOPE + beta @ hidden_kernel
        hidden = self._dense(f"{name}/hidden", x, hidden_kernel, hidden_bias)
        hidden = self._add("QuickGelu", [hidden], f"{name}/activated", domain=CONTRIB, alpha=1.0)
        output_kernel = as_array(layer.output_kernel) / GELU_SLOPE
        output_bias = as_array(layer.output_bias) + beta
        y = self._dense(f"{name}/output", hidden, output_kernel, output_bias)
        return self._add_and_norm(f"{name}/feed_forward_norm", y, x, block.feed_forward_norm)

    def _attention(self, name: str, attention: Any, x: str, bias: str) -> str:
        heads = attention.num_heads
        width = heads * attention.attention_dim
        both = self._dense(f"{name}/queries_and_keys", x, as_array(attention.query_key_kernel))
        outputs = [f"{name}/queries", f"{name}/keys"]
        queries, keys = self._split(both, f"{name}/widths", [width, width], outputs, axis=-1)
        if heads == 1:
            # The op `MultiHeadAttention` would copy its inputs, so simpler ops are used.
            root = 1.0 / np.sqrt(attention.attention_dim)
            scores = self._add("FusedMatMul", [queries, keys], domain=CONTRIB, transB=1, alpha=root)
            weights = self._add("Softmax", [self._add("Add", [scores, bias])], axis=-1)
            return self._add("MatMul", [weights, x], f"{name}/attended")
        inputs, output = [queries, keys, x, "", "", bias], f"{name}/attended"
        return self._add("MultiHeadAttention", inputs, output, domain=CONTRIB, num_heads=heads)

    def _reduced(self, x: str) -> str:
        """Build the reduced encodings, `[rows * segments, reduced_dim]`.

        Slot s of row r has the index `r * segments + s`.
        """
        reduction = self._encoder.reduction
        heads, dim = reduction.num_heads, reduction.attention_dim
        both = self._dense("reduction/queries_and_keys", x, as_array(reduction.query_key_kernel))
        shape = self._constant("reduction/shape", np.array([0, -1, 2 * heads, dim], np.int64))
        both = self._add("Transpose", [self._add("Reshape", [both, shape])], perm=[0, 2, 1, 3])
        parts = ["reduction/queries", "reduction/keys"]
        self._split(both, "reduction/heads", [heads, heads], parts, axis=1)
        scores = self._add("FusedMatMul", parts, domain=CONTRIB, transB=1)
        weights = self._add("Softmax", [self._add("Add", [scores, "mask"])], axis=-1)
        pooling = self._add("Unsqueeze", ["pooling", "row_axis"])  # [rows, 1, segments, tokens]
        pooling = self._add("MatMul", [pooling, weights])  # [rows, heads, segments, tokens]
        if self._config.num_heads > 1:
            x = self._add("Unsqueeze", [x, "row_axis"])
        pooled = self._add("MatMul", [pooling, x])
        pooled = self._add("Transpose", [pooled], perm=[0, 2, 1, 3])
        flat = self._constant("reduction/flat", np.array([-1, self._config.reduced_dim], np.int64))
        return self._add("Reshape", [pooled, flat])

    def _side_of_texts(self, name: str, x: str, output: str, slots: str) -> None:
        dim = self._config.encoding_dim
        self._where_texts(slots, dim, output, lambda result: self._side(name, x, result))

    def _sentences(self, reduced: str, kernel: np.ndarray | None) -> None:
        """Build the output `default` for the selected texts: r, or `sentence_encodings` of r."""
        if kernel is None:
            self._add("Identity", [reduced], "default")
            return

        def build(result: str) -> None:
            read = self._block_dense("similarity", reduced, kernel)
            added = self._block_dense("similarity/back", read, unit_rows(kernel.T))
            total = self._add("Add", [reduced, added])
            scale = self._constant("sentence_scale", np.float32(SENTENCE_SCALE))
            self._add("Mul", [total, scale], result)

        self._where_texts("slots", self._config.reduced_dim, "default", build)

    def _similarity(self, reduced: str, kernel: np.ndarray) -> None:
        selected = self._add("Gather", [reduced, "similarity_slots"], axis=0)
        self._where_texts(
            "similarity_slots",
            kernel.shape[1],
            "similarity_encoding",
            lambda result: self._unit_rows(
                self._block_dense("similarity", selected, kernel), result
            ),
        )

    def _where_texts(self, slots: str, dim: int, output: str, build: Callable[[str], None]) -> None:
        """Build ops in a branch that is skipped if no texts are selected.

        Outside a branch, ops take time even if their inputs have no rows.

        Args:
          slots: the input that selects texts.
          dim: width of the output.
          output: name of the output, `[texts, dim]`.
          build: function that takes the name of the result and builds the ops.
        """
        outer, self._nodes = self._nodes, []
        build(f"{output}/some")
        some, self._nodes = self._nodes, outer
        none = numpy_helper.from_array(np.zeros((0, dim), np.float32))
        no_rows = helper.make_node("Constant", [], [f"{output}/none"], value=none)
        branches = {}
        for name, nodes in (("then", some), ("else", [no_rows])):
            result = nodes[-1].output[0]
            value = helper.make_tensor_value_info(result, TensorProto.FLOAT, None)
            branches[f"{name}_branch"] = helper.make_graph(nodes, f"{output}/{name}", [], [value])
        texts = self._add("Size", [slots])
        has_texts = self._add("Cast", [texts], to=TensorProto.BOOL)
        self._add("If", [has_texts], output, **branches)

    def _side(self, name: str, x: str, output: str) -> None:
        side = getattr(self._encoder, name)
        width = self._config.encoding_dim if name == "both_side" else self._config.reduced_dim
        for i, (hidden, norm) in enumerate(zip(side.hidden, side.norms, strict=True)):
            kernel, bias = as_array(hidden.kernel), as_array(hidden.bias)
            y = self._block_dense(f"{name}/hidden_{i}", x, kernel, bias)
            y = self._add("QuickGelu", [y], domain=CONTRIB, alpha=GELU_SLOPE)
            if side.use_skip and width == side.hidden_dim:
                x = self._add_and_norm(f"{name}/norm_{i}", y, x, norm)
            else:
                x = self._norm(f"{name}/norm_{i}", y, norm)
            width = side.hidden_dim
        kernel, bias = as_array(side.linear.kernel), as_array(side.linear.bias)
        self._unit_rows(self._block_dense(f"{name}/linear", x, kernel, bias), output)

    def _unit_rows(self, y: str, output: str) -> None:
        """Scale rows to length 1, as `l2_normalize` does. Rows of zeros are unchanged."""
        squares = self._add("ReduceSumSquare", [y, self._int64("last_axis", -1)], keepdims=1)
        floor = self._constant("smallest_square", np.float32(1e-12))
        length = self._add("Sqrt", [self._add("Max", [squares, floor])])
        self._add("Div", [y, length], output)

    def _both(self, reduced: str) -> None:
        extra = self._add("Gather", [reduced, "extra_context_slots"], axis=0)
        self._side_of_texts("extra_context_side", extra, "extra_context_any", "extra_context_slots")
        self._add("Mul", ["extra_context_any", "has_extra_context"], "extra_context_encoding")
        total = self._add("Add", ["context_encoding", "extra_context_encoding"])
        mean = self._add("Mul", [total, self._constant("half", np.float32(0.5))])
        self._side_of_texts("both_side", mean, "both_any", "extra_context_slots")
        has_history = self._add("Cast", ["has_extra_context"], to=TensorProto.BOOL)
        self._add("Where", [has_history, "both_any", "context_encoding"], "both_encoding")


class BatchGraphBuilder(GraphBuilder):
    """Build the graph of an encoder with the inputs `input_ids` and `attention_mask`.

    The output is float32 `[batch, tokens, reduced_dim]`. Every position of a text has the vector of
    the whole text. Programs therefore get this vector with any pooling: the first token, the mean
    or the maximum. Shorter vectors are padded with zeros, which do not change inner products.

    If the vocabulary has N entries, the id N stands for all characters outside the vocabulary. Its
    embedding is the mean of the hash buckets' embeddings, because programs for Hugging Face folders
    cannot compute the hash. Larger ids are not part of a text. The ids in `kind_ids` select the
    kind of vector. If a row has several of them, the largest id is used.

    Texts are not cut. A row may have `PREFIX_TOKENS` more tokens than `MAX_TOKENS`, or than
    `source.max_tokens` if that is larger.

    Args:
      source, calibrations: as in `GraphBuilder`.
      kind_ids: the ids of the tokens that select a kind of vector, by the kinds in
        `convert_tf.encoding.signatures`. The ids must increase. The first kind is the default.

    Example:
      model = BatchGraphBuilder(source, kind_ids={"sentence": 24668}).build()
    """

    def __init__(
        self,
        source: EncoderSource,
        calibrations: Calibrations | None = None,
        *,
        kind_ids: dict[str, int],
    ) -> None:
        super().__init__(source, calibrations)
        # A program can raise the limit of the folder later, but it cannot change the graph.
        self._max_tokens = max(source.max_tokens, MAX_TOKENS) + PREFIX_TOKENS
        self._kind_ids = kind_ids
        # Every row is one text, and the network computes r for every text.
        self._replaced = {kind: number for kind, number in kind_ids.items() if kind != "reduced"}

    def build(self, *, observes: bool = False) -> onnx.ModelProto:
        self._prepare_rows()
        reduced = self._reduced(self._trunk())
        _, shapes = self._signatures(reduced)
        self._spread(self._joined(reduced, shapes))
        shape = ("batch_size", "sequence_length", self._config.reduced_dim)
        return self._model(_BATCH_INPUTS, {BATCH_OUTPUT: shape}, self.observed if observes else ())

    def _table(self) -> np.ndarray:
        return with_one_unknown(super()._table(), self._config.vocab_size)

    def _prepare_rows(self) -> None:
        """Compute the inputs of `encoding.backends.onnx.graph_inputs`, with one text per row."""
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
        for name, kind_id in self._replaced.items():
            is_kind = self._add("Equal", [kind, self._constant(f"{name}_id", np.int32(kind_id))])
            rows = self._add("Squeeze", [self._add("NonZero", [is_kind]), self._int64("only", 0)])
            self._add("Cast", [rows], SIGNATURES[name].slots, to=TensorProto.INT32)

    def _joined(self, vectors: str, shapes: Mapping[str, tuple[str, int]]) -> str:
        """Return the kind of vector that each text selects, `[batch, reduced_dim]`."""
        dim = self._config.reduced_dim
        for signature in map(SIGNATURES.__getitem__, self._replaced):
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
        self._add("Expand", [vectors, shape], BATCH_OUTPUT)
