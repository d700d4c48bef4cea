"""The ConveRT trunk with each head: comparison with loops, invariance, and special cases."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import naive, naive_heads
from support.model_cases import fill_weights, one_per_row, random_texts

from convert_tf.config.bert import bert_preset
from convert_tf.config.ranker import POLY_VARIANTS, HeadConfig, RankerConfig
from convert_tf.models.ranker import ConvertTrunk, make_ranker

LENGTHS = [5, 0, 1, 12, 3]
CANDIDATE_LENGTHS = [3, 7, 1, 0]


def _head(**values) -> HeadConfig:
    return HeadConfig(**{"scale": 3.0, "poly_codes": 4, **values})


HEADS = {
    "bi sqrt_n": _head(),
    "bi first": _head(reduction="first"),
    "bi mean": _head(reduction="mean"),
    "bi first_m_mean": _head(reduction="first_m_mean", reduction_tokens=2),
    **{f"poly {v}": _head(head="poly", poly_variant=v) for v in POLY_VARIANTS},
    "poly mean": _head(head="poly", reduction="mean"),
    "cross first": _head(head="cross", reduction="first"),
    "cross sqrt_n": _head(head="cross"),
}
ENCODING_HEADS = {k: v for k, v in HEADS.items() if v.head != "cross"}
CROSS = HEADS["cross first"]


def _build(config, head, **options):
    """Return a ranker whose weights depend on their paths only."""
    ranker = make_ranker(RankerConfig(config, head, **options))
    fill_weights([v for v in ranker.variables if v.path != "head/log_scale"])
    return ranker


@pytest.fixture(scope="module")
def rankers(small_config):
    """A function from heads to rankers, which no test trains."""
    known = {}

    def build(head, **options):
        key = (head, str(options))
        if key not in known:
            known[key] = _build(dataclasses.replace(small_config, **options), head)
        return known[key]

    return build


def _ids(config, lengths, *, seed=0, width=None):
    texts = random_texts(config, lengths, seed=seed)
    return one_per_row(texts, config.num_ids, width=width)


def _score(ranker, *, context_width=None, candidate_width=None, rows=slice(None)):
    config = ranker.config.model
    contexts = _ids(config, LENGTHS, width=context_width)[rows]
    candidates = _ids(config, CANDIDATE_LENGTHS, seed=1, width=candidate_width)
    return np.asarray(ranker.score(contexts, candidates))


def _naive_scores(ranker) -> list:
    config, head = ranker.config.model, ranker.config.head
    weights = naive.arrays(ranker.trunk.encoder)
    kernel = weights["reduction/query_key_kernel"]
    sizes = {"num_heads": config.reduction_heads, "attention_dim": config.reduction_dim}

    def projected(vector, side):
        tiled = vector if len(vector) == config.reduced_dim else np.tile(vector, 2)
        return naive.side_network(tiled, naive.below(weights, side), num_layers=config.side_layers)

    def reduced(outputs, side):
        vector = naive_heads.reduction(
            outputs, head.reduction, m=head.reduction_tokens, kernel=kernel, **sizes
        )
        return projected(vector, side)

    def outputs(text):
        return naive.sequence(text, weights, config) * float(np.asarray(ranker.output_factor))

    codes = np.asarray(ranker.head.codes) if hasattr(ranker.head, "codes") else None
    rows = []
    for context in random_texts(config, LENGTHS):
        if head.head == "bi":
            vectors = [reduced(outputs(context), "context_side")]
        else:
            vectors = [
                projected(v, "context_side")
                for v in naive_heads.context_vectors(
                    outputs(context), head.poly_variant, m=head.poly_codes, codes=codes
                )
            ]
        rows.append(
            [
                naive_heads.attended_score(
                    vectors, reduced(outputs(candidate), "response_side"), head.scale
                )
                for candidate in random_texts(config, CANDIDATE_LENGTHS, seed=1)
            ]
        )
    return rows


@pytest.mark.parametrize("head", ENCODING_HEADS.values(), ids=ENCODING_HEADS.keys())
def test_scores_parity_with_loop(rankers, head):
    """Padded batches with an empty context and candidate are compared with loops."""
    ranker = rankers(head)
    np.testing.assert_allclose(_score(ranker), _naive_scores(ranker), atol=3e-5)


@pytest.mark.parametrize(
    "head", [_head(), _head(head="poly", poly_variant="first_m")], ids=["bi", "poly"]
)
def test_rescaled_outputs_parity_with_loop(small_config, head):
    """Scores use outputs divided by the standard deviation of the real outputs."""
    ranker = _build(small_config, head)
    before = _score(ranker)
    weights = naive.arrays(ranker.trunk.encoder)
    texts = random_texts(small_config, LENGTHS)
    outputs = np.concatenate([naive.sequence(text, weights, small_config) for text in texts])
    factor = ranker.rescale_outputs(_ids(small_config, LENGTHS, width=20), 0.25)
    assert factor == pytest.approx(0.25 / outputs.std(), rel=1e-4)
    np.testing.assert_allclose(_score(ranker), _naive_scores(ranker), atol=3e-5)
    assert np.abs(_score(ranker) - before).max() > 1e-3


def test_bi_with_sqrt_n_is_the_dual_encoder(rankers):
    ranker = rankers(HEADS["bi sqrt_n"])
    encoder, config = ranker.trunk.encoder, ranker.config.model
    ids = _ids(config, LENGTHS)
    vectors, mask = ranker.encode_contexts(ids)
    np.testing.assert_array_equal(vectors[:, 0], encoder.encode_context(ids))
    np.testing.assert_array_equal(ranker.encode_candidates(ids), encoder.encode_response(ids))
    assert np.asarray(mask).all()
    sides = (
        np.asarray(encode(ids)) for encode in (encoder.encode_context, encoder.encode_response)
    )
    expected = 3.0 * np.matmul(next(sides), next(sides).T)
    np.testing.assert_allclose(np.asarray(ranker.score(ids, ids)), expected, atol=1e-5)


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS.keys())
def test_padding_batch_mates_and_order_do_not_matter(rankers, head):
    ranker = rankers(head)
    together = _score(ranker)
    assert np.isfinite(together).all()
    wide = _score(ranker, context_width=31, candidate_width=9)
    np.testing.assert_allclose(wide, together, atol=1e-5)
    for row in range(len(LENGTHS)):
        alone = _score(ranker, rows=slice(row, row + 1))
        np.testing.assert_allclose(alone, together[row : row + 1], atol=1e-5)
    config = ranker.config.model
    contexts, candidates = _ids(config, LENGTHS), _ids(config, CANDIDATE_LENGTHS, seed=1)
    order = [2, 3, 0, 1]
    np.testing.assert_allclose(
        np.asarray(ranker.score(contexts, candidates[order])), together[:, order], atol=1e-5
    )
    np.testing.assert_allclose(
        np.asarray(ranker.score(contexts, candidates[:1])), together[:, :1], atol=1e-5
    )
    own = np.stack([np.roll(candidates, row, axis=0) for row in range(len(LENGTHS))])
    expected = np.stack([np.roll(together[row], row) for row in range(len(LENGTHS))])
    np.testing.assert_allclose(np.asarray(ranker.score(contexts, own)), expected, atol=1e-5)


def _naive_joint(context, candidate, ranker) -> np.ndarray:
    """Run [S] context [S] candidate [S] through the blocks in loops."""
    config, trunk = ranker.config.model, ranker.trunk
    weights = naive.arrays(trunk.encoder)
    special, segments, biases = (
        np.asarray(v) for v in (trunk.special_vectors, trunk.segment_table, trunk.across_bias)
    )
    embedding = naive.below(weights, "trunk/embedding")
    rows, places = [special[0]], [(0, 0)]
    for number, text in enumerate((context, candidate)):
        embedded = naive.embed(text, embedding, bits=config.embedding_bits)
        for place, row in enumerate(embedded):
            rows.append(row + segments[number])
            places.append((number + 1, place))
        rows.append(special[number + 1])
        places.append((0, 0))
    x = np.array(rows)
    for number, max_distance in enumerate(config.max_relative_attention):
        block = naive.below(weights, f"trunk/block_{number}")
        x = naive_heads.joint_block(
            x, block, places, biases[number],
            attention_dim=config.attention_dim, max_distance=max_distance,
            num_heads=config.num_heads,
        )  # fmt: skip
    return x


@pytest.mark.parametrize("options", [{}, {"num_heads": 2}], ids=["one head", "two heads"])
def test_joint_sequence_parity_with_loop(rankers, options):
    ranker = rankers(CROSS, **options)
    config = ranker.config.model
    contexts, candidates = random_texts(config, [7, 0, 3]), random_texts(config, [2, 4, 0], seed=1)
    sequence, mask = ranker.trunk.joint_sequence(
        one_per_row(contexts, config.num_ids), one_per_row(candidates, config.num_ids)
    )
    for row, pair in enumerate(zip(contexts, candidates, strict=True)):
        expected = _naive_joint(*pair, ranker)
        own = np.asarray(sequence)[row][np.asarray(mask)[row]]
        np.testing.assert_allclose(own, expected, atol=3e-5)


def test_at_first_attention_between_two_texts_is_low(small_config):
    bias = make_ranker(RankerConfig(small_config, CROSS)).trunk.across_bias
    np.testing.assert_array_equal(np.asarray(bias), -2.0)


def test_texts_that_do_not_see_each_other_are_as_by_themselves(rankers):
    """With a bias of −∞ between texts, outputs equal those of single texts in pre-training."""
    ranker = rankers(CROSS)
    config, trunk = ranker.config.model, ranker.trunk
    before = [np.array(v) for v in (trunk.across_bias, trunk.segment_table)]
    contexts, candidates = _ids(config, [7, 3]), _ids(config, [2, 5], seed=1)
    trunk.across_bias.assign(np.full(before[0].shape, -1e9))
    trunk.segment_table.assign(np.zeros(before[1].shape))
    joint = np.asarray(trunk.joint_sequence(contexts, candidates)[0])
    trunk.across_bias.assign(before[0])
    trunk.segment_table.assign(before[1])
    for row in range(2):
        for ids, start in ((contexts, 1), (candidates, 2 + contexts.shape[1])):
            length = (ids[row] != config.num_ids).sum()
            alone = np.asarray(trunk.sequence(ids[row : row + 1])[0])[0, :length]
            np.testing.assert_allclose(joint[row, start : start + length], alone, atol=1e-5)


def test_separate_trunks_encode_apart(small_config):
    ranker = make_ranker(RankerConfig(small_config, _head(separate_trunks=True)))
    ids = _ids(small_config, LENGTHS)
    before = np.array(ranker.encode_contexts(ids)[0]), np.array(ranker.encode_candidates(ids))
    table = ranker.candidate_trunk.embedding.table
    table.assign(np.asarray(table) + np.random.RandomState(0).standard_normal(table.shape))
    after = ranker.encode_contexts(ids)[0], ranker.encode_candidates(ids)
    np.testing.assert_array_equal(before[0], after[0])
    assert np.abs(before[1] - np.asarray(after[1])).max() > 1e-3


@pytest.mark.parametrize("head", ["bi", "poly"])
@pytest.mark.parametrize("separate_trunks", [False, True])
def test_a_bert_trunk_reads_the_first_tokens_of_candidates(head, separate_trunks):
    """It reads the last tokens of contexts; see `HeadConfig`. 14 tokens fit in 16 positions."""
    config = bert_preset(
        "bert_tiny", vocab_size=10, num_oov_buckets=2, tokenizer="subword",
        dim=8, num_layers=2, num_heads=2, feed_forward_dim=12, max_positions=16,
    )  # fmt: skip
    options = _head(head=head, reduction="mean", separate_trunks=separate_trunks)
    ranker = _build(config, options, trunk="bert")
    contexts, candidates = _ids(config, [20, 20]), _ids(config, [20, 3, 14], seed=1)
    scores = np.asarray(ranker.score(contexts, candidates))
    first, last = candidates[:, :14], candidates[:1, -14:]
    np.testing.assert_array_equal(scores, ranker.score(contexts[:, -14:], first))
    assert np.abs(scores[:, :1] - np.asarray(ranker.score(contexts, last))).min() > 1e-4
    vectors = ranker.encode_candidates(candidates)
    np.testing.assert_array_equal(vectors, ranker.encode_candidates(first))
    trunk = ranker.candidate_trunk or ranker.trunk
    np.testing.assert_array_equal(vectors, ranker.head.candidate_vector(*trunk.sequence(first)))


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS.keys())
def test_gradients_are_finite(small_config, head):
    ranker = _build(small_config, head)  # training changes the range of the embeddings
    config = ranker.config.model
    contexts, candidates = _ids(config, LENGTHS), _ids(config, CANDIDATE_LENGTHS, seed=1)
    with tf.GradientTape() as tape:
        scores = ranker.score(contexts, candidates, training=True)
        loss = keras.ops.sum(keras.ops.square(scores))
    variables = ranker.trainable_variables
    gradients = tape.gradient(loss, [v.value for v in variables])
    sides = ("context_side", "response_side", "reduction")
    for variable, gradient in zip(variables, gradients, strict=True):
        if gradient is None:  # weights that this head ignores
            assert variable.path.startswith(sides), variable.path
            continue
        assert np.isfinite(np.asarray(tf.convert_to_tensor(gradient))).all(), variable.path


def test_call_does_what_its_inputs_say(rankers):
    ranker = rankers(HEADS["poly first_m"])
    config = ranker.config.model
    contexts, candidates = _ids(config, LENGTHS), _ids(config, CANDIDATE_LENGTHS, seed=1)
    vectors, mask = ranker.predict_on_batch({"context_ids": contexts})
    encoded = ranker.predict_on_batch({"candidate_ids": candidates})
    scores = ranker.predict_on_batch({"context_ids": contexts, "candidate_ids": candidates})
    np.testing.assert_allclose(scores, _score(ranker), atol=1e-5)
    apart = np.asarray(ranker.score_encoded(vectors, mask, encoded))
    np.testing.assert_allclose(apart, scores, atol=1e-5)


def test_what_a_ranker_cannot_do_is_said(rankers, small_config):
    ids = _ids(small_config, [3])
    cross = rankers(CROSS)
    for encode in (cross.encode_contexts, cross.encode_candidates):
        with pytest.raises(ValueError, match="A cross-encoder cannot encode contexts"):
            encode(ids)


@pytest.mark.slow
@pytest.mark.parametrize("head", ["bi sqrt_n", "poly learnt", "cross sqrt_n"])
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_is_close_to_float32(rankers, small_config, head, policy):
    exact = rankers(HEADS[head])
    mixed = make_ranker(RankerConfig(small_config, HEADS[head]), dtype=policy)
    for variable, source in zip(mixed.variables, exact.variables, strict=True):
        variable.assign(source)
    # A relative error of 2⁻⁹ or 2⁻¹², about ten times in a row, for scores of up to 3.
    tolerance = {"mixed_bfloat16": 0.3, "mixed_float16": 0.03}[policy]
    np.testing.assert_allclose(_score(mixed), _score(exact), atol=tolerance)
    scores = mixed.score(_ids(small_config, [3]), _ids(small_config, [2]))
    assert keras.backend.standardize_dtype(scores.dtype) == "float32"


def test_a_trunk_without_joint_reading_has_the_encoders_variables_only(small_encoder):
    assert len(ConvertTrunk(small_encoder).variables) == len(small_encoder.variables)
