import json

import numpy as np
import pytest
from support.huggingface_folder import write_folder
from support.model_cases import fill_weights, one_per_row

from convert_tf.checkpoints import folder as checkpoint
from convert_tf.checkpoints.bert import load_bert
from convert_tf.checkpoints.vocabulary import fitting_tokenizer
from convert_tf.config.bert import BERT_PRESETS, BertConfig, bert_preset
from convert_tf.models.bert import BertTrunk, surround

SMALL = bert_preset(
    "bert_tiny", vocab_size=10, num_oov_buckets=2, tokenizer="subword",
    dim=8, num_layers=2, num_heads=2, feed_forward_dim=12, max_positions=16,
    surrounds_each=False,
)  # fmt: skip
PADDING, START, MASK_ID = 12, 13, 14
# Another value for each field of BertConfig. If a new field has none, tests below fail.
OTHER_VALUES = {
    "vocab_size": 9,
    "num_oov_buckets": 1,
    "tokenizer": "wordpiece",
    "start_id": 3,
    "separator_id": 3,
    "surrounds_each": True,
    "mask_id": 20,
    "dim": 10,
    "num_layers": 1,
    "num_heads": 4,
    "feed_forward_dim": 13,
    "max_positions": 15,
    "num_segments": 3,
    "layer_norm_epsilon": 0.1,
}


def _trunk(config=SMALL, **arguments) -> BertTrunk:
    trunk = BertTrunk(config, **arguments)
    fill_weights(trunk.variables)
    return trunk


@pytest.fixture(scope="module")
def trunk() -> BertTrunk:
    return _trunk()


def _arrays(result) -> list[np.ndarray]:
    return [np.asarray(part) for part in result]


def test_texts_stand_between_special_tokens():
    contexts = one_per_row([[1, 2, 3], [4], []], PADDING)
    rows, segments, mask = _arrays(surround(contexts, config=SMALL))
    np.testing.assert_array_equal(
        rows, [[START, 1, 2, 3, START], [START, 4, START, 0, 0], [START, START, 0, 0, 0]]
    )
    np.testing.assert_array_equal(segments, np.zeros((3, 5)))
    np.testing.assert_array_equal(mask.sum(1), [5, 3, 2])
    candidates = one_per_row([[5], [6, 7], []], PADDING)
    rows, segments, mask = _arrays(surround(contexts, candidates, config=SMALL))
    np.testing.assert_array_equal(
        rows,
        [
            [START, 1, 2, 3, START, 5, START, 0],
            [START, 4, START, 6, 7, START, 0, 0],
            [START, START, START, 0, 0, 0, 0, 0],
        ],
    )
    np.testing.assert_array_equal(
        segments, [[0] * 5 + [1] * 2 + [0], [0] * 3 + [1] * 3 + [0] * 2, [0] * 2 + [1] + [0] * 5]
    )
    np.testing.assert_array_equal(mask.sum(1), [7, 6, 3])


def test_each_text_of_a_pair_is_surrounded():
    """Pairs become [S] c [S] [S] y [S] as in arXiv 1905.01969 §4.1 and §4.3, in 16 positions."""
    config = BertConfig(**{**SMALL.to_dict(), "surrounds_each": True, "separator_id": 15})
    contexts, candidates = [[1, 2, 3], [4], [], [*range(10), 1]], [[5], [], [6, 7], [8, 9]]
    rows, segments, mask = _arrays(
        surround(*(one_per_row(t, PADDING) for t in (contexts, candidates)), config=config)
    )
    for i, (c, y) in enumerate(zip(contexts, candidates, strict=True)):
        first, second = [START, *c[-10:], 15], [START, *y, 15]
        length = len(first) + len(second)
        assert mask[i].sum() == length <= 16
        np.testing.assert_array_equal(rows[i][:length], first + second)
        np.testing.assert_array_equal(segments[i][:length], [0] * len(first) + [1] * len(second))
    alone = np.asarray(surround(np.array([[2, 3]]), config=config)[0])
    np.testing.assert_array_equal(alone, [[START, 2, 3, 15]])


def test_trunks_that_do_not_say_it_have_one_token_between():
    """Earlier versions and BERT's published weights do not set `surrounds_each`."""
    before = {n: v for n, v in SMALL.to_dict().items() if n != "surrounds_each"}
    assert not BertConfig.from_dict(before).surrounds_each
    own = bert_preset("bert_tiny", vocab_size=7, num_oov_buckets=2, tokenizer="subword")
    assert own.surrounds_each
    with pytest.raises(ValueError, match="max_positions must be at least 5"):
        BertConfig(max_positions=4, surrounds_each=True)


def test_what_is_too_long_loses_its_oldest_tokens():
    """3 of the 16 positions are [S], so 13 tokens remain."""
    context = np.arange(14, dtype="int32")[None] % 10
    rows, _, mask = _arrays(surround(context, np.array([[7, 8, 9]]), config=SMALL))
    np.testing.assert_array_equal(
        rows, [[START, *context[0, -10:], START, 7, 8, 9, START]]
    )  # fmt: skip
    assert mask.all()
    alone = np.asarray(surround(np.arange(17)[None] % 10, config=SMALL)[0])
    np.testing.assert_array_equal(alone, [[START, *(np.arange(3, 17) % 10), START]])
    candidate = np.arange(15, dtype="int32")[None] % 10
    rows, segments, _ = _arrays(surround(context, candidate, config=SMALL))
    np.testing.assert_array_equal(rows, [[START, START, *candidate[0, :13], START]])
    np.testing.assert_array_equal(segments, [[0, 0, *[1] * 14]])


def test_padding_and_batch_mates_change_nothing(trunk):
    texts = [[1, 2, 3], [4], [], [5, 6, 7, 8, 9]]
    alone = [_arrays(trunk.sequence(one_per_row([t], PADDING)))[0][0] for t in texts]
    together, mask = _arrays(trunk.sequence(one_per_row(texts, PADDING, width=9)))
    for text, expected, row, row_mask in zip(texts, alone, together, mask, strict=True):
        assert row_mask.sum() == len(text) + 2
        np.testing.assert_allclose(row[row_mask], expected[: len(text) + 2], atol=1e-5)
    pairs = list(zip(texts, [[3], [1, 2], [4, 4, 4], []], strict=True))
    joint, mask = _arrays(
        trunk.joint_sequence(
            *(one_per_row(list(t), PADDING, width=6) for t in zip(*pairs, strict=True))
        )
    )
    for i, (context, candidate) in enumerate(pairs):
        expected = _arrays(
            trunk.joint_sequence(one_per_row([context], PADDING), one_per_row([candidate], PADDING))
        )[0][0]
        length = len(context) + len(candidate) + 3
        assert mask[i].sum() == length
        np.testing.assert_allclose(joint[i][:length], expected[:length], atol=1e-5)


def test_every_option_is_tried():
    assert set(OTHER_VALUES) == set(SMALL.to_dict())


@pytest.mark.parametrize("name", sorted(set(OTHER_VALUES) - {"tokenizer"}))
def test_every_option_changes_the_trunk(trunk, name):
    other = BertConfig(**{**SMALL.to_dict(), name: OTHER_VALUES[name]})
    changed = _trunk(other)
    before, after = ([(v.path, tuple(v.shape)) for v in t.variables] for t in (trunk, changed))
    if before == after:
        ids = np.array([[1, 2, 9, 11]], "int32")  # 11 is the padding id if there are 11 ids
        one, other = (np.asarray(t.joint_sequence(ids, ids)[0]) for t in (trunk, changed))
        assert one.shape != other.shape or np.abs(one - other).max() > 1e-3


def test_presets():
    """Presets have the sizes of arXiv 1905.01969 §4.1 and arXiv 1810.04805 §3."""
    base = BertConfig()
    assert (base.num_layers, base.num_heads, base.dim) == (12, 12, 768)
    assert (base.feed_forward_dim, base.max_positions, base.num_segments) == (3_072, 512, 2)
    own = bert_preset("bert_base", vocab_size=7, num_oov_buckets=2, tokenizer="subword")
    # The padding id is 9; [S] and [MASK] follow it.
    assert (own.padding_id, own.start_id, own.separator_id, own.mask_id) == (9, 10, 10, 11)
    assert own.num_rows == 12
    assert base.num_rows == base.vocab_size
    for name in BERT_PRESETS:
        config = bert_preset(name, vocab_size=7, num_oov_buckets=2, tokenizer="subword")
        assert BertConfig.from_json(config.to_json()) == config
    with pytest.raises(
        ValueError, match=r"'bert_huge' is not a preset\. Choose one of bert_base, bert_tiny"
    ):
        bert_preset("bert_huge", vocab_size=7, num_oov_buckets=2, tokenizer="subword")


@pytest.mark.parametrize(
    "values",
    [
        {"start_id": 30_522}, {"mask_id": -1}, {"dim": 10}, {"max_positions": 3},
    ],
    ids=str,
)  # fmt: skip
def test_values_out_of_range_are_named(values):
    (name,) = values
    with pytest.raises(ValueError, match=rf"{name} must .*Received: "):
        BertConfig(**values)


def test_dropout_is_in_training_only():
    ids = np.array([[1, 2, 9]], "int32")
    dropping = _trunk(dropout=0.5)
    still = [np.asarray(dropping.sequence(ids)[0]) for _ in range(2)]
    np.testing.assert_array_equal(*still)
    assert np.abs(np.asarray(dropping.sequence(ids, training=True)[0]) - still[0]).max() > 1e-2


def test_checkpoints_of_published_models_keep_their_casing(tmp_path):
    """The WordPiece settings are saved with the vocabulary."""
    trunk, vocabulary = load_bert(write_folder(tmp_path / "published"))
    settings = tmp_path / "published" / "tokenizer_config.json"
    settings.write_text(json.dumps({"do_lower_case": False}))
    checkpoint.save_checkpoint(tmp_path / "own", trunk, vocabulary=vocabulary, training={})
    again, own = load_bert(tmp_path / "own")
    assert again.config == trunk.config
    for path in (vocabulary, own):
        assert not fitting_tokenizer(path, again.config).lower_case
    ids = np.array([[7, 8]], "int32")
    np.testing.assert_array_equal(
        np.asarray(again.sequence(ids)[0]), np.asarray(trunk.sequence(ids)[0])
    )


def test_other_folders_are_named(tmp_path):
    with pytest.raises(checkpoint.CheckpointError, match="the run of a BERT"):
        load_bert(tmp_path)
