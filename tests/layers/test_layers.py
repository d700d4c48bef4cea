"""Layers of the dual encoder, compared with naive loops in float32 and with 16 bits."""

import numpy as np
import pytest
from keras import ops
from support import naive
from support.layer_checks import check_layer
from support.model_cases import fill_weights

from convert_tf.layers.attention import RelativeSelfAttention, attention_weights
from convert_tf.layers.block import FeedForward, TransformerBlock, fast_gelu, plain_fast_gelu
from convert_tf.layers.embedding import SubwordEmbedding
from convert_tf.layers.reduction import Reduction, SqrtNReduction
from convert_tf.layers.side_network import SideNetwork, l2_normalize
from convert_tf.models.encoder import segments_of

DIM, TOKENS, NUM_IDS = 6, 7, 11
BLOCK = {"attention_dim": 4, "max_distance": 2, "feed_forward_dim": 10}
SIXTEEN_BITS = pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.RandomState(seed).standard_normal(shape).astype("float32")


def built(layer, shape=(None, None, DIM)):
    layer.build(shape)
    fill_weights(layer.variables)
    return layer


def attention(max_distance: int = 2, **arguments) -> RelativeSelfAttention:
    return built(RelativeSelfAttention(4, max_distance, name="layer", **arguments))


def block(**arguments) -> TransformerBlock:
    return built(TransformerBlock(**BLOCK, name="layer", **arguments))


def embedding(**arguments) -> SubwordEmbedding:
    layer = SubwordEmbedding(NUM_IDS, DIM, position_table_sizes=(5, 3), name="layer", **arguments)
    return built(layer, (None, None))


def ids(tokens: int) -> np.ndarray:
    return np.random.RandomState(0).randint(0, NUM_IDS, (2, tokens)).astype("int32")


HEADS = {
    "one head": {},
    "no bias": {"use_relative_bias": False},
    "three heads": {"num_heads": 3},
    "two heads, no bias": {"num_heads": 2, "use_relative_bias": False},
}


def test_blocks_start_close_to_the_identity():
    """The last matrix of a block is initialised with a tenth of Glorot's scale."""
    layer = FeedForward(400)
    layer.build((None, None, 400))
    for name, gain in (("hidden_kernel", 1.0), ("output_kernel", 0.1)):
        kernel = np.asarray(getattr(layer, name))
        expected = gain * np.sqrt(2 / sum(kernel.shape))
        assert kernel.std() == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("is_masked", [False, True])
@pytest.mark.parametrize("max_distance", [1, 3, 20])
@pytest.mark.parametrize("arguments", HEADS.values(), ids=HEADS.keys())
def test_attention_parity_with_loop(arguments, max_distance, is_masked):
    """The mask is asymmetric, so the wrong axis would give different values."""
    layer, x = attention(max_distance, **arguments), numbers(2, TOKENS, DIM)
    mask = np.random.RandomState(1).rand(2, TOKENS, TOKENS) < (0.5 if is_masked else 1.0)
    mask |= np.eye(TOKENS, dtype=bool)
    expected = [
        naive.attention(
            row,
            naive.arrays(layer, root="layer"),
            attention_dim=4,
            max_distance=max_distance,
            num_heads=arguments.get("num_heads", 1),
            allowed=lambda i, j, own=own: own[i, j],
        )
        for row, own in zip(x, mask, strict=True)
    ]
    found = layer(x, attention_mask=mask) if is_masked else layer(x)
    np.testing.assert_allclose(np.asarray(found), expected, atol=2e-6)


@pytest.mark.parametrize("arguments", HEADS.values(), ids=HEADS.keys())
def test_attention_across_two_texts_parity_with_loop(arguments):
    """Between texts, each head has one bias for all positions and no distance limit."""
    layer, x = attention(1, **arguments), numbers(2, TOKENS, DIM)
    weights, num_heads = naive.arrays(layer, root="layer"), arguments.get("num_heads", 1)
    across_bias = np.array([0.7, -1.3, 0.4][:num_heads], "float32")
    of_second = np.arange(TOKENS) >= np.array([[3], [5]])
    across_mask = of_second[:, :, None] != of_second[:, None, :]

    def bias_of(across):
        def bias(head, i, j):
            if across[i, j]:
                return across_bias[head]
            if abs(i - j) > 1:
                return None
            return weights["relative_bias"][head, 1 - i + j] if "relative_bias" in weights else 0.0

        return bias

    expected = [
        naive.attention(
            row, weights, attention_dim=4, max_distance=1, num_heads=num_heads, bias=bias_of(across)
        )
        for row, across in zip(x, across_mask, strict=True)
    ]
    result = layer(x, across_mask=across_mask, across_bias=across_bias)
    np.testing.assert_allclose(np.asarray(result), expected, atol=2e-6)


def test_a_window_of_the_whole_length_is_full_attention():
    """The bias table grows with the window; both windows share the middle of it."""
    x = numbers(2, TOKENS, DIM)
    narrow, wide = attention(TOKENS - 1), attention(30)
    wide.query_key_kernel.assign(narrow.query_key_kernel)
    bias = np.asarray(wide.relative_bias).copy()
    bias[:, 30 - (TOKENS - 1) : 30 + TOKENS] = np.asarray(narrow.relative_bias)
    wide.relative_bias.assign(bias)
    np.testing.assert_allclose(np.asarray(narrow(x)), np.asarray(wide(x)), atol=1e-6)
    smaller = attention(TOKENS - 2)
    smaller.query_key_kernel.assign(narrow.query_key_kernel)
    smaller.relative_bias.assign(np.asarray(narrow.relative_bias)[:, 1:-1])
    difference = np.abs(np.asarray(smaller(x)) - np.asarray(narrow(x))).max(axis=(0, 2))
    assert (difference[[0, -1]] > 1e-4).all()  # only the first and last token saw one more token
    np.testing.assert_allclose(difference[1:-1], 0.0, atol=1e-6)


def test_weights_sum_to_one_and_masked_ones_are_zero():
    mask = np.tril(np.ones((5, 5), bool))
    weights = np.asarray(attention_weights(numbers(2, 5, 5) * 1000, mask))
    np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-6)
    assert (weights[:, ~mask] == 0.0).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_softmax_and_lengths_are_computed_in_float32(dtype):
    """1/300 and 1/√6 need more digits than bfloat16 has, and 300² overflows in float16."""
    weights = attention_weights(ops.zeros((1, 300), dtype), np.ones((1, 300), bool))
    unit = l2_normalize(ops.full((1, 6), 300.0, dtype))
    assert weights.dtype == unit.dtype == "float32"
    np.testing.assert_allclose(np.asarray(weights), 1 / 300, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(unit), 1 / np.sqrt(6), rtol=1e-6)


def test_feed_forward_and_fast_gelu_parity_with_loop():
    values = np.concatenate([np.linspace(-12, 12, 97), [-80.0, 80.0]]).astype("float32")
    expected = [naive.gelu(float(v)) for v in values]
    np.testing.assert_allclose(np.asarray(fast_gelu(values)), expected, rtol=1e-6, atol=1e-6)
    layer, x = built(FeedForward(10, name="layer")), numbers(2, 3, DIM)
    weights = naive.arrays(layer, root="layer")
    expected = [[naive.feed_forward(token, weights) for token in row] for row in x]
    np.testing.assert_allclose(np.asarray(layer(x)), expected, atol=2e-6)


def test_the_slope_of_the_gelu_is_folded_into_the_weights_and_out_of_them():
    x = numbers(2, 3, DIM)
    np.testing.assert_allclose(plain_fast_gelu(x), fast_gelu(x), rtol=1e-6, atol=1e-7)
    layer = built(FeedForward(10, name="layer"))
    expected, weights = np.asarray(layer(x)), [np.asarray(value) for value in layer.variables]
    for _ in range(2):  # the second call changes nothing
        layer.fold_slope()
    np.testing.assert_allclose(layer.hidden_bias, weights[1] * 1.702, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(layer(x)), expected, atol=2e-6)
    for _ in range(2):
        layer.unfold_slope()
    for variable, value in zip(layer.variables, weights, strict=True):
        np.testing.assert_allclose(variable, value, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(layer(x)), expected, atol=2e-6)


@SIXTEEN_BITS
def test_feed_forward_in_16_bits(policy):
    """Folding 1.702 into the weights adds one rounding: 2⁻⁸ or 2⁻¹¹ of values up to about 3."""
    results = [
        np.asarray(built(FeedForward(10, dtype=dtype, name="ff"))(numbers(2, 3, DIM)), "float32")
        for dtype in ("float32", policy)
    ]
    tolerance = 0.04 if policy == "mixed_bfloat16" else 5e-3
    np.testing.assert_allclose(results[1], results[0], atol=tolerance)


@pytest.mark.parametrize("num_heads", [1, 2])
def test_block_parity_with_loop(num_heads):
    """Attention, add, norm, feed-forward, add, norm: another order would give other values."""
    layer, x = block(num_heads=num_heads), numbers(2, 5, DIM)
    weights = naive.arrays(layer, root="layer")
    expected = [
        naive.block(row, weights, attention_dim=4, max_distance=2, num_heads=num_heads) for row in x
    ]
    np.testing.assert_allclose(np.asarray(layer(x)), expected, atol=3e-6)


def test_the_defaults_are_those_of_the_paper():
    assert TransformerBlock(**BLOCK).attention.num_heads == 1
    embedding = SubwordEmbedding(NUM_IDS, DIM)
    assert (embedding.bits, embedding.position_table_sizes) == (8, (47, 11))


def test_dropout_is_after_self_attention_and_in_training_only():
    """Without feed-forward, the skip connection carries a block's input past the dropout."""
    layer, x = block(dropout=0.99), numbers(2, 5, DIM)
    np.testing.assert_allclose(np.asarray(layer(x)), np.asarray(block()(x)), atol=1e-6)
    dropped = np.asarray(layer(x, training=True))
    assert not np.allclose(dropped, np.asarray(layer(x)))
    weights = naive.arrays(layer, root="layer")
    norm = naive.below(weights, "attention_norm")
    last = naive.below(weights, "feed_forward_norm")
    # Almost all attended values are dropped, so most tokens become norm(x + 0).
    close = 0
    for row, result in zip(x.reshape(-1, DIM), dropped.reshape(-1, DIM), strict=True):
        middle = naive.layer_norm(row, norm["gamma"], norm["beta"])
        forward = naive.feed_forward(middle, naive.below(weights, "feed_forward"))
        expected = naive.layer_norm(middle + forward, last["gamma"], last["beta"])
        close += np.allclose(expected, result, atol=1e-5)
    assert close >= 7  # of 10 tokens; each one stays with probability 0.99^6 = 0.94


@SIXTEEN_BITS
def test_layer_norm_is_computed_in_float32(policy):
    """Inputs of ±300 have squares of 90,000, too large for float16; their norm is ±1."""
    layer = TransformerBlock(**BLOCK, dtype=policy)
    layer.build((None, None, DIM))
    for variable in layer.trainable_variables:
        variable.assign(np.ones(variable.shape) if "gamma" in variable.path else variable * 0.0)
    x = np.tile([300.0, -300.0, 300.0, -300.0, 300.0, -300.0], (1, 1, 1)).astype("float32")
    np.testing.assert_allclose(np.asarray(layer(x), dtype="float32"), x / 300.0, atol=1e-2)


@pytest.mark.parametrize("bits", [8, 32])
def test_embedding_parity_with_loop(bits):
    """Sequences are longer than 15, the product of the position tables' sizes."""
    layer = embedding(bits=bits)
    weights = naive.arrays(layer, root="layer")
    expected = [naive.embed(row, weights, bits=bits) for row in ids(20)]
    np.testing.assert_allclose(np.asarray(layer(ids(20))), expected, atol=3e-6)


def test_given_positions_are_used_and_the_padding_id_is_legal():
    layer = embedding()
    result = np.asarray(layer(ids(4), np.array([[0, 1, 0, 1]] * 2, "int32")))
    for half in (slice(2), slice(2, 4)):
        expected = np.asarray(layer(ids(4)[:, half]))
        np.testing.assert_allclose(result[:, half], expected, atol=1e-6)
    assert tuple(layer.table.shape) == (NUM_IDS, DIM)
    assert np.isfinite(np.asarray(layer(np.full((1, 3), NUM_IDS, "int32")))).all()


def test_the_range_holds_every_initial_value_and_that_of_a_frozen_table_stays():
    layer = SubwordEmbedding(500, 16)
    layer.build((None, None))
    limits = layer.quantizer_weights
    assert float(limits["range_min"]) <= np.asarray(layer.table).min()
    assert float(limits["range_max"]) >= np.asarray(layer.table).max()
    limits["range_max"].assign(7.0)  # differs from the table's maximum
    layer.trainable = False
    frozen = np.asarray(layer(ids(50), training=True))
    np.testing.assert_allclose(frozen, np.asarray(layer(ids(50))), atol=1e-6)
    assert float(limits["range_max"]) == 7.0
    layer.trainable = True
    layer(ids(50), training=True)
    assert float(limits["range_max"]) < 7.0


def test_dropout_of_embeddings_is_in_training_only():
    layer = embedding(dropout=0.5)
    np.testing.assert_array_equal(np.asarray(layer(ids(50))), np.asarray(embedding()(ids(50))))
    assert 0.4 < np.mean(np.asarray(layer(ids(50), training=True)) == 0.0) < 0.6


@SIXTEEN_BITS
def test_sum_and_layer_norm_of_embeddings_are_computed_in_float32(policy):
    """Values of ±200·√6 have squares too large for float16; only the result has 16 bits."""
    results = []
    for dtype in ("float32", policy):
        layer = embedding(dtype=dtype, bits=32)
        layer.table.assign(np.asarray(layer.table) * 1000.0)
        results.append(np.asarray(layer(ids(6)), dtype="float32"))
    # One rounding: half of 2⁻⁷ (bfloat16) or 2⁻¹⁰ (float16) for values below 4.
    rounding = 2**-8 if policy == "mixed_bfloat16" else 2**-11
    np.testing.assert_allclose(results[1], results[0], rtol=rounding, atol=1e-6)


def reduction(num_heads: int = 2) -> SqrtNReduction:
    return built(SqrtNReduction(num_heads, 3, name="layer"))


def reduced(layer, x, segment_lengths) -> np.ndarray:
    lengths = np.asarray(segment_lengths, "int32")
    segment_ids, _, mask = segments_of(lengths, x.shape[1])
    return np.asarray(layer(x, segment_ids, lengths, mask))


@pytest.mark.parametrize(
    ("num_heads", "segment_lengths"),
    [(1, [8]), (2, [1]), (3, [2]), (2, [3, 4, 2]), (2, [9, 0, 0]), (2, [0, 4, 3]), (2, [2, 0, 5]),
     (2, [1, 1, 0]), (2, [0, 0, 0]), (3, [3, 3, 3])],
    ids=str,
)  # fmt: skip
def test_reduction_parity_with_loop(num_heads, segment_lengths):
    """The fused weights equal attention followed by summing (footnote 4).

    Each text in a row is reduced as if it were alone; an empty text gives zeros.
    """
    layer, x = reduction(num_heads), numbers(1, max(1, sum(segment_lengths)), DIM)
    found = reduced(layer, x, [segment_lengths])[0]
    start = 0
    for segment, length in enumerate(segment_lengths):
        expected = naive.sqrt_n_reduction(
            x[0, start : start + length],
            np.asarray(layer.query_key_kernel),
            num_heads=num_heads,
            attention_dim=3,
        )
        np.testing.assert_allclose(found[segment], expected, atol=3e-6)
        start += length


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        ("first", [[0], [0], []]),
        ("mean", [[0, 1, 2, 3], [0, 1], []]),
        ("mean_without_first", [[1, 2, 3], [1], []]),
        ("first_m_mean", [[0, 1, 2], [0, 1], []]),
    ],
)
def test_reductions_read_these_outputs(kind, rows):
    sequence = numbers(3, 4, DIM)
    token_mask = np.arange(4) < np.array([[4], [2], [0]])
    layer = Reduction(kind, num_tokens=3, shared=None)
    expected = [
        sequence[i, places].mean(axis=0) if places else np.zeros(DIM)
        for i, places in enumerate(rows)
    ]
    np.testing.assert_allclose(np.asarray(layer(sequence, token_mask)), expected, atol=1e-6)
    assert layer.width(DIM) == DIM


def test_the_reduction_of_a_text_is_not_that_of_its_padding():
    sequence = numbers(2, 4, DIM)
    token_mask = np.arange(4) < np.array([[4], [2]])
    shared = SqrtNReduction(2, 3, name="layer")
    layer = Reduction("sqrt_n", shared=shared)
    layer.build((None, None, DIM))
    fill_weights(layer.variables)
    expected = [
        naive.sqrt_n_reduction(text, shared.query_key_kernel, num_heads=2, attention_dim=3)
        for text in (sequence[0], sequence[1, :2])
    ]
    np.testing.assert_allclose(np.asarray(layer(sequence, token_mask)), expected, atol=2e-6)
    assert layer.width(DIM) == 2 * DIM


def test_padded_queries_are_left_out_whatever_they_may_read():
    layer, x = reduction(), numbers(1, 6, DIM)
    lengths = np.array([[4]], "int32")
    segment_ids, _, _ = segments_of(lengths, 6)
    keys_only = np.array([[[True] * 4 + [False] * 2] * 6])  # padding may read the text too
    found = np.asarray(layer(x, segment_ids, lengths, keys_only))
    np.testing.assert_allclose(found, reduced(layer, x[:, :4], [[4]]), atol=1e-6)


@pytest.mark.parametrize("use_skip", [True, False])
@pytest.mark.parametrize(("num_layers", "input_dim"), [(0, 8), (1, 8), (3, 8), (3, 5)])
def test_side_network_parity_with_loop(num_layers, input_dim, use_skip):
    """If the input has another width, the first hidden layer has no skip connection."""
    layer = SideNetwork(num_layers, 8, encoding_dim=4, use_skip=use_skip, name="layer")
    layer, x = built(layer, (None, input_dim)), numbers(3, input_dim)
    weights = naive.arrays(layer, root="layer")
    expected = [naive.side_network(r, weights, num_layers=num_layers, use_skip=use_skip) for r in x]
    np.testing.assert_allclose(np.asarray(layer(x)), expected, atol=2e-6)


def test_kernels_of_side_networks_start_orthogonal():
    layer = SideNetwork(2, 8, encoding_dim=4)
    layer.build((None, 8))
    for variable in layer.variables:
        if variable.path.endswith("kernel"):
            kernel = np.asarray(variable)
            np.testing.assert_allclose(
                kernel.T @ kernel, np.eye(kernel.shape[1]), atol=1e-5, err_msg=variable.path
            )


def test_l2_normalize_parity_with_loop_and_zeros():
    import tensorflow as tf

    x = numbers(3, DIM) * [[1e-3], [1.0], [1e4]]
    result = np.asarray(l2_normalize(x.astype("float32")))
    np.testing.assert_allclose(result, [naive.l2_normalize(v) for v in x], atol=1e-6)
    short = np.full((1, 4), 1e-6, "float32")  # even as short as this
    np.testing.assert_allclose(l2_normalize(short), np.full((1, 4), 0.5), rtol=1e-5)
    np.testing.assert_allclose(l2_normalize(short / 10), np.full((1, 4), 0.1), rtol=1e-5)
    zeros = tf.Variable(np.zeros((1, 4), "float32"))
    with tf.GradientTape() as tape:
        unit = l2_normalize(zeros)
        total = tf.reduce_sum(unit)
    np.testing.assert_array_equal(unit, 0.0)
    assert np.isfinite(tape.gradient(total, zeros)).all()


SEGMENTS = np.array([[3, 2], [4, 0]], "int32")
EVERYTHING = np.ones((2, TOKENS, TOKENS), bool)
X = numbers(2, TOKENS, DIM)


@pytest.mark.parametrize(
    ("layer_class", "arguments", "inputs", "shape"),
    [
        *[
            (RelativeSelfAttention, {"attention_dim": 4, "max_distance": 2, **arguments},
             {"x": X, "attention_mask": EVERYTHING}, (2, TOKENS, DIM))
            for arguments in HEADS.values()
        ],
        (FeedForward, {"hidden_dim": 10}, {"x": X}, (2, TOKENS, DIM)),
        (TransformerBlock, {**BLOCK, "num_heads": 2},
         {"x": X, "attention_mask": EVERYTHING}, (2, TOKENS, DIM)),
        *[
            (SubwordEmbedding, {"num_ids": NUM_IDS, "dim": DIM, "bits": bits},
             {"token_ids": ids(4)}, (2, 4, DIM))
            for bits in (8, 32)
        ],
        (SqrtNReduction, {"num_heads": 2, "attention_dim": 3},
         {"x": numbers(2, 6, DIM), "segment_ids": np.asarray(segments_of(SEGMENTS, 6)[0]),
          "segment_lengths": SEGMENTS, "attention_mask": np.asarray(segments_of(SEGMENTS, 6)[2])},
         (2, 2, 2 * DIM)),
        (SideNetwork,
         {"num_layers": 2, "hidden_dim": 8, "encoding_dim": 4, "use_skip": False},
         {"reduced": numbers(3, 8)}, (3, 4)),
    ],
)  # fmt: skip
def test_layer_habits(layer_class, arguments, inputs, shape):
    check_layer(layer_class, arguments, inputs, shape)
