"""The network of a dual encoder as an ONNX graph, made op by op.

Texts stand several to a row, as in training (`convert_tf.data.packing`), so that the feed-forward
layers, norms and projections read hardly any padding and no op moves tokens between layouts. Each
block is eight ops: two matmuls, the fast GELU, two fused sums and layer norms, the query and key
projection, and attention with one additive bias that holds the biases per relative position, the
reach of the block and the borders between texts.

Two forms. `float32` computes as the checkpoint does. `int8` multiplies bytes: weights have a scale
per output, what the blocks compute has one fixed scale per layer, so that a text's encoding does
not depend on the other texts of a batch, as it does where the scale is taken from the batch. What
is computed once per text (the side networks) has scales per 32 numbers of each text.

Reference: arXiv 1911.03688 §2.1.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from convert_tf.quantization import pack_table

OPSET = 20
IR_VERSION = 10
CONTRIB = "com.microsoft"  # the operator set of ONNX Runtime
MASKED_SCORE = np.float32(-1e30)
EPSILON = 1e-6
SIDE_BLOCK = 32  # numbers of a text, and weights, that share a scale in the side networks
GELU_SLOPE = 1.702

# Input name, element type, shape.
INPUTS: tuple[tuple[str, int, tuple[str | int, ...]], ...] = (
    ("token_ids", TensorProto.INT32, ("rows", "tokens")),
    ("positions", TensorProto.INT32, ("rows", "tokens")),
    ("segment_ids", TensorProto.INT32, ("rows", "tokens")),
    ("pooling", TensorProto.FLOAT, ("rows", "segments", "tokens")),
    ("slots", TensorProto.INT32, ("texts",)),
    ("context_slots", TensorProto.INT32, ("contexts",)),
    ("response_slots", TensorProto.INT32, ("responses",)),
)
MULTI_CONTEXT_INPUTS: tuple[tuple[str, int, tuple[str | int, ...]], ...] = (
    ("extra_context_slots", TensorProto.INT32, ("contexts",)),
    ("has_extra_context", TensorProto.FLOAT, ("contexts", 1)),
)


def as_array(variable: Any) -> np.ndarray:
    """The float32 values of a Keras variable."""
    import keras

    return np.asarray(keras.ops.convert_to_numpy(variable), np.float32)


class GraphBuilder:
    """Builds the graph of one encoder.

    Args:
      encoder: a `DualEncoder`.
      max_tokens: longest text, in subwords.
      ranges: for the int8 form: lowest and highest value of each tensor that `observed` names; None
        for float32.

    Attributes:
      observed: names of the tensors that the int8 form makes bytes of, in the order of the graph.

    Example:
      model = GraphBuilder(encoder, max_tokens=512).build()
    """

    def __init__(
        self,
        encoder: Any,
        *,
        max_tokens: int,
        ranges: dict[str, tuple[float, float]] | None = None,
    ):
        self._encoder = encoder
        self._config = encoder.config
        self._max_tokens = max_tokens
        self._ranges = ranges
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, np.ndarray] = {}
        self._bytes_of: dict[str, str] = {}
        self.observed: list[str] = []

    def build(self, *, observes: bool = False) -> onnx.ModelProto:
        """The model; with `observes`, the tensors of `observed` are outputs too."""
        outputs = {"default": ("texts", self._config.reduced_dim)}
        reduced = self._reduced(self._trunk())
        self._add("Gather", [reduced, "slots"], "default", axis=0)
        encoding_dim = self._config.encoding_dim
        for name in ("context", "response"):
            own = self._add("Gather", [reduced, f"{name}_slots"], axis=0)
            self._side(f"{name}_side", own, f"{name}_encoding")
            outputs[f"{name}_encoding"] = (f"{name}s", encoding_dim)
        inputs = INPUTS
        if self._config.multi_context:
            inputs += MULTI_CONTEXT_INPUTS
            self._both(reduced)
            outputs["both_encoding"] = ("contexts", encoding_dim)
        values = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in outputs.items()
        ]
        if observes:
            values += [
                helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
                for name in self.observed
            ]
        graph = helper.make_graph(
            self._nodes,
            "dual_encoder",
            [helper.make_tensor_value_info(*spec) for spec in inputs],
            values,
            [numpy_helper.from_array(value, name) for name, value in self._constants.items()],
        )
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)],
            ir_version=IR_VERSION,
            producer_name="convert_tf",
        )

    def _trunk(self) -> str:
        x = self._embedding()
        self._add("Unsqueeze", ["segment_ids", self._int64("row_axis", 1)], "as_keys")
        self._add("Unsqueeze", ["segment_ids", self._int64("column_axis", 2)], "as_queries")
        self._add("Equal", ["as_queries", "as_keys"], "same_text_3d")
        self._add("Unsqueeze", ["same_text_3d", "row_axis"], "same_text")
        free = self._constant("free", np.float32(0))
        self._add("Where", ["same_text", free, self._masked()], "mask")  # [rows, 1, T, T]
        self._distances()
        for i, block in enumerate(self._encoder.trunk.blocks):
            x = self._block(f"block_{i}", block, x)
        return x

    def _embedding(self) -> str:
        embedding = self._encoder.trunk.embedding
        root = np.float32(np.sqrt(embedding.dim))
        table = as_array(embedding.table)
        if embedding.quantizer is None:
            kind = np.float32 if self._ranges is None else np.float16
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
        # Sums of rows of the two tables, made when the file is loaded.
        parts = []
        for size, own in zip(
            embedding.position_table_sizes, embedding.position_tables, strict=True
        ):
            index = np.arange(self._max_tokens, dtype=np.int32) % size
            name = f"positions_{size}"
            parts.append(
                self._add(
                    "Gather",
                    [self._constant(name, as_array(own)), self._constant(f"{name}_index", index)],
                    axis=0,
                )
            )
        position_rows = self._add("Gather", [self._add("Add", parts), "positions"], axis=0)
        return self._add_and_norm("embedding", rows, position_rows, embedding.norm)

    def _distances(self) -> None:
        """`distance` int32 `[tokens, tokens]`: j − i at [i, j]."""
        shape = self._add("Shape", ["token_ids"])
        tokens = self._add("Gather", [shape, self._constant("one", np.int64(1))])
        places = self._add("Range", [self._constant("zero", np.int64(0)), tokens, "one"], "places")
        columns = self._add("Unsqueeze", [places, self._int64("first_axis", 0)])
        rows = self._add("Unsqueeze", [places, "row_axis"])
        self._add("Sub", [columns, rows], "distance")

    def _block(self, name: str, block: Any, x: str) -> str:
        attended = self._attention(f"{name}/attention", block.attention, x)
        x = self._add_and_norm(f"{name}/attention_norm", attended, x, block.attention_norm)
        # The fast GELU's constants are in the weights, as in the layer: without a slope ONNX
        # Runtime's op is one vectorised pass, 0.29 µs for 2,048 numbers and not 0.91.
        layer = block.feed_forward
        hidden_kernel, hidden_bias = (
            as_array(variable) * GELU_SLOPE for variable in (layer.hidden_kernel, layer.hidden_bias)
        )
        hidden = self._dense(f"{name}/hidden", x, hidden_kernel, hidden_bias)
        hidden = self._add("QuickGelu", [hidden], f"{name}/activated", domain=CONTRIB, alpha=1.0)
        output_kernel = as_array(layer.output_kernel) / GELU_SLOPE
        y = self._dense(f"{name}/output", hidden, output_kernel, as_array(layer.output_bias))
        return self._add_and_norm(f"{name}/feed_forward_norm", y, x, block.feed_forward_norm)

    def _attention(self, name: str, attention: Any, x: str) -> str:
        heads = attention.num_heads
        width = heads * attention.attention_dim
        queries, keys = self._queries_and_keys(name, x, attention.query_key_kernel, (width, width))
        values = x
        if attention.use_value_projection:
            values = self._dense(f"{name}/values", x, as_array(attention.value_kernel))
        bias = self._add("Add", ["mask", self._relative_bias(name, attention)])
        attended = self._add(
            "MultiHeadAttention",
            [queries, keys, values, "", "", bias],
            f"{name}/attended",
            domain=CONTRIB,
            num_heads=heads,
        )
        if attention.use_value_projection:
            attended = self._dense(f"{name}/projected", attended, as_array(attention.output_kernel))
        return attended

    def _queries_and_keys(
        self, name: str, x: str, kernel: Any, widths: Sequence[int]
    ) -> tuple[str, str]:
        both = self._dense(f"{name}/queries_and_keys", x, as_array(kernel))
        outputs = (f"{name}/queries", f"{name}/keys")
        sizes = self._constant(f"{name}/widths", np.array(widths, np.int64))
        self._nodes.append(helper.make_node("Split", [both, sizes], outputs, axis=-1))
        return outputs

    def _relative_bias(self, name: str, attention: Any) -> str:
        """`[heads, tokens, tokens]`: the bias per relative position, masked out of reach."""
        reach = attention.max_distance
        table = np.full((attention.num_heads, 2 * reach + 3), MASKED_SCORE, np.float32)
        table[:, 1:-1] = as_array(attention.relative_bias) if attention.use_relative_bias else 0.0
        ends = [np.int64(-reach - 1), np.int64(reach + 1)]
        low, high = (
            self._constant(f"{name}/{end}", value)
            for end, value in zip(("low", "high"), ends, strict=True)
        )
        clipped = self._add("Clip", ["distance", low, high])
        index = self._add("Add", [clipped, high])
        return self._add("Gather", [self._constant(f"{name}/bias", table), index], axis=1)

    def _reduced(self, x: str) -> str:
        """r by slot, `[rows * segments, reduced_dim]`; slot s of row r is `r * segments + s`."""
        reduction = self._encoder.reduction
        heads, dim = reduction.num_heads, reduction.attention_dim
        both = self._dense("reduction/queries_and_keys", x, as_array(reduction.query_key_kernel))
        shape = self._constant("reduction/shape", np.array([0, 0, 2 * heads, dim], np.int64))
        both = self._add("Transpose", [self._add("Reshape", [both, shape])], perm=[0, 2, 1, 3])
        sizes = self._constant("reduction/heads", np.array([heads, heads], np.int64))
        parts = ("reduction/queries", "reduction/keys")
        self._nodes.append(helper.make_node("Split", [both, sizes], parts, axis=1))
        scores = self._add("FusedMatMul", list(parts), domain=CONTRIB, transB=1)
        weights = self._add("Softmax", [self._add("Add", [scores, "mask"])], axis=-1)
        pooling = self._add("Unsqueeze", ["pooling", "row_axis"])  # [rows, 1, segments, tokens]
        pooling = self._add("MatMul", [pooling, weights])  # [rows, heads, segments, tokens]
        pooled = self._add("MatMul", [pooling, self._add("Unsqueeze", [x, "row_axis"])])
        pooled = self._add("Transpose", [pooled], perm=[0, 2, 1, 3])
        flat = self._constant("reduction/flat", np.array([-1, self._config.reduced_dim], np.int64))
        return self._add("Reshape", [pooled, flat])

    def _side(self, name: str, x: str, output: str) -> None:
        side = getattr(self._encoder, name)
        width = self._config.encoding_dim if name == "both_side" else self._config.reduced_dim
        for i, (hidden, norm) in enumerate(zip(side.hidden, side.norms, strict=True)):
            y = self._side_dense(f"{name}/hidden_{i}", x, hidden)
            y = self._add("QuickGelu", [y], domain=CONTRIB, alpha=GELU_SLOPE)
            if side.use_skip and width == side.hidden_dim:
                x = self._add_and_norm(f"{name}/norm_{i}", y, x, norm)
            else:
                x = self._norm(f"{name}/norm_{i}", y, norm)
            width = side.hidden_dim
        y = self._side_dense(f"{name}/linear", x, side.linear)
        # As `l2_normalize`, by which a zero vector stays zero.
        squares = self._add("ReduceSumSquare", [y, self._int64("last_axis", -1)], keepdims=1)
        floor = self._constant("smallest_square", np.float32(1e-12))
        length = self._add("Sqrt", [self._add("Max", [squares, floor])])
        self._add("Div", [y, length], output)

    def _both(self, reduced: str) -> None:
        extra = self._add("Gather", [reduced, "extra_context_slots"], axis=0)
        self._side("extra_context_side", extra, "extra_context_any")
        self._add("Mul", ["extra_context_any", "has_extra_context"], "extra_context_encoding")
        total = self._add("Add", ["context_encoding", "extra_context_encoding"])
        mean = self._add("Mul", [total, self._constant("half", np.float32(0.5))])
        self._side("both_side", mean, "both_encoding")

    def _dense(self, name: str, x: str, kernel: np.ndarray, bias: np.ndarray | None = None) -> str:
        """x · kernel + bias, in bytes where there are ranges."""
        constant_bias = "" if bias is None else self._constant(f"{name}/bias", bias)
        if x not in self.observed:
            self.observed.append(x)
        if self._ranges is None:
            product = self._add("MatMul", [x, self._constant(f"{name}/kernel", kernel)])
            return self._add("Add", [product, constant_bias]) if constant_bias else product
        codes, scales = symmetric_codes(kernel)
        step, zero = self._byte_code(x)
        return self._add(
            "MatMulIntegerToFloat",
            [self._as_bytes(x, step, zero), self._constant(f"{name}/kernel", codes), step,
             self._constant(f"{name}/scales", scales), zero, "", constant_bias],
            domain=CONTRIB,
        )  # fmt: skip

    def _byte_code(self, x: str) -> tuple[str, str]:
        assert self._ranges is not None
        low, high = self._ranges[x]
        low, high = min(low, 0.0), max(high, 0.0)
        step = max(high - low, 1e-6) / 255.0
        zero = np.uint8(np.clip(np.rint(-low / step), 0, 255))
        return self._constant(f"{x}/step", np.float32(step)), self._constant(f"{x}/zero", zero)

    def _as_bytes(self, x: str, step: str, zero: str) -> str:
        if x not in self._bytes_of:
            self._bytes_of[x] = self._add("QuantizeLinear", [x, step, zero])
        return self._bytes_of[x]

    def _side_dense(self, name: str, x: str, layer: Any) -> str:
        weights = as_array(layer.kernel)
        bias = self._constant(f"{name}/bias", as_array(layer.bias))
        if self._ranges is None or weights.shape[0] % SIDE_BLOCK:
            kernel = self._constant(f"{name}/kernel", weights)
            return self._add("Gemm", [x, kernel, bias])
        codes, scales = block_codes(weights, SIDE_BLOCK)
        return self._add(
            "MatMulNBits",
            [x, self._constant(f"{name}/kernel", codes), self._constant(f"{name}/scales", scales),
             "", "", bias],
            domain=CONTRIB,
            K=weights.shape[0],
            N=weights.shape[1],
            bits=8,
            block_size=SIDE_BLOCK,
            accuracy_level=4,  # multiplies bytes
        )  # fmt: skip

    def _add_and_norm(self, name: str, y: str, x: str, norm: Any) -> str:
        return self._norm(name, self._add("Add", [y, x]), norm)

    def _norm(self, name: str, x: str, norm: Any) -> str:
        """Layer norm as the norm of the centred numbers.

        ONNX Runtime's `LayerNormalization` and `SkipLayerNormalization` take 2.1 µs for a row of
        512 numbers, as much as half of the matmuls beside them; these four ops 0.25 µs.
        """
        gamma, beta = self._norm_weights(name, norm)
        mean = self._add("ReduceMean", [x, self._int64("last_axis", -1)], keepdims=1)
        centred = self._add("Sub", [x, mean])
        scaled = self._add("SimplifiedLayerNormalization", [centred, gamma], epsilon=EPSILON)
        return self._add("Add", [scaled, beta], name)

    def _norm_weights(self, name: str, norm: Any) -> tuple[str, str]:
        return (
            self._constant(f"{name}/gamma", as_array(norm.gamma)),
            self._constant(f"{name}/beta", as_array(norm.beta)),
        )

    def _masked(self) -> str:
        return self._constant("masked", MASKED_SCORE)

    def _int64(self, name: str, value: int) -> str:
        return self._constant(name, np.array([value], np.int64))

    def _constant(self, name: str, value: Any) -> str:
        self._constants[name] = np.asarray(value)
        return name

    def _add(
        self,
        op: str,
        inputs: Sequence[str],
        output: str = "",
        *,
        domain: str = "",
        **attributes: Any,
    ) -> str:
        output = output or f"{op}_{len(self._nodes)}"
        self._nodes.append(
            helper.make_node(op, inputs, [output], name=output, domain=domain, **attributes)
        )
        return output


def symmetric_codes(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Signed bytes with a scale per output.

    Args:
      weights: float32 `[inputs, outputs]`.

    Returns:
      `(codes, scales)`, int8 `[inputs, outputs]` and float32 `[outputs]`: `codes * scales` is at
      most half a scale from `weights`.
    """
    scales = np.maximum(np.abs(weights).max(axis=0), 1e-12) / np.float32(127)
    codes = np.clip(np.rint(weights / scales), -127, 127).astype(np.int8)
    return codes, scales.astype(np.float32)


def block_codes(weights: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Bytes around 128 with a scale per output and `block` inputs, as `MatMulNBits` takes them.

    Args:
      weights: float32 `[inputs, outputs]`; `inputs` is a multiple of `block`.
      block: inputs that share a scale.

    Returns:
      `(codes, scales)`: uint8 `[outputs, inputs / block, block]` and float32
      `[outputs, inputs / block]`; `(codes - 128) * scales` is at most half a scale off.
    """
    blocks = weights.T.reshape(weights.shape[1], -1, block)
    scales = np.maximum(np.abs(blocks).max(axis=-1), 1e-12) / np.float32(127)
    codes = np.clip(np.rint(blocks / scales[..., None]), -127, 127) + 128
    return codes.astype(np.uint8), scales.astype(np.float32)
