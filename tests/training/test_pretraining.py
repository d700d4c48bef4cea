import dataclasses
import json
import math
import os
from pathlib import Path

import keras
import numpy as np
import pytest
from support.commands import call_command
from support.encoder_runs import rows_of
from support.model_cases import fill_weights, one_per_row
from support.processes import results_on_jax
from support.tiny_checkpoint import write_records
from support.token_corpus import write_corpus

from convert_tf.checkpoints.bert import load_bert
from convert_tf.checkpoints.folder import save_checkpoint
from convert_tf.config.bert import bert_preset
from convert_tf.config.train import Pretraining
from convert_tf.data.packing import TokenIds
from convert_tf.data.pretraining_batches import (
    MASK_RATE,
    Position,
    PretrainingBatches,
    arranged,
    batches_by_length,
    evaluation_batches,
    masked_batch,
    next_utterance_batch,
    random_responses,
    row_lengths,
)
from convert_tf.models.bert import BertTrunk, surround
from convert_tf.numerics.initializers import set_seed
from convert_tf.text.tokenizer import load_tokenizer
from convert_tf.training.optimizers import InverseSquareRoot
from convert_tf.training.pretraining.task import evaluate_pretraining, make_pretraining, pretrain

CONFIG = bert_preset(
    "bert_tiny", vocab_size=32, num_oov_buckets=1, tokenizer="subword",
    dim=32, num_layers=1, num_heads=2, feed_forward_dim=32, max_positions=24,
    surrounds_each=False,
)  # fmt: skip
PADDING, START, MASK_ID = 33, 34, 35


class TopicExamples:
    """`data.batches.Examples` whose contexts and responses are tokens from one of eight topics."""

    names = ("context", "response")
    padding_id = PADDING

    def __init__(self, num_examples: int, *, max_length: int = 9):
        self.num_examples = num_examples
        random = np.random.RandomState(0)
        topics = random.randint(0, 8, num_examples)
        self.texts = [
            [4 * t + random.randint(0, 4, random.randint(2, max_length)) for t in topics]
            for _ in self.names
        ]

    def load(self, numbers):
        return numbers

    def token_ids(self, loaded) -> TokenIds:
        chosen = [side[i].astype("int32") for side in self.texts for i in loaded]
        return TokenIds(np.concatenate(chosen), np.cumsum([0, *map(len, chosen)]))


def _texts(*texts) -> TokenIds:
    return TokenIds(np.concatenate(texts).astype("int32"), np.cumsum([0, *map(len, texts)]))


def _rows(number: int = 500):
    examples = TopicExamples(number)
    texts = examples.token_ids(np.arange(number))
    return arranged(texts, np.arange(number), number + np.arange(number), CONFIG)


def _batches(examples=None, **changes) -> PretrainingBatches:
    options = {"batch_tokens": 256, "shuffle_buffer": 100, "seed": 0}
    return PretrainingBatches(examples or TopicExamples(300), CONFIG, **{**options, **changes})


def _first(batches, number: int) -> list:
    found = iter(batches)
    return [next(found) for _ in range(number)]


def _same(one: dict, other: dict) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in one)


def test_a_single_example_is_refused():
    with pytest.raises(ValueError, match=r"at least two training examples.* Received: 1"):
        _batches(TopicExamples(1))
    assert len(_first(_batches(TopicExamples(2)), 3)) == 3


def test_pairs_stand_between_special_tokens():
    texts = _texts([1, 2, 3], [4], [5, 6], [7] * 22)
    rows = arranged(texts, np.array([0, 1]), np.array([2, 3]), CONFIG)
    np.testing.assert_array_equal(
        rows.rows[0, :9], [START, 1, 2, 3, START, 5, 6, START, 0]
    )  # fmt: skip
    np.testing.assert_array_equal(rows.segment_ids[0], [0] * 5 + [1] * 3 + [0] * 16)
    np.testing.assert_array_equal(np.flatnonzero(rows.is_text[0]), [1, 2, 3, 5, 6])
    assert rows.mask[0].sum() == 8
    # The response fills 21 of the 24 positions, and nothing is left of the context.
    np.testing.assert_array_equal(rows.rows[1], [START, START, *[7] * 21, START])
    long = arranged(_texts(np.arange(20), [30, 31]), np.array([0]), np.array([1]), CONFIG)
    np.testing.assert_array_equal(
        long.rows[0], [START, *range(1, 20), START, 30, 31, START]
    )  # the oldest token is dropped


@pytest.mark.parametrize("surrounds_each", [False, True])
def test_rows_are_those_of_the_trunk(surrounds_each):
    """Pre-training arranges its input rows as the heads do."""
    config = dataclasses.replace(CONFIG, surrounds_each=surrounds_each)
    first, second = [[1, 2, 3], [4], [5] * 30, [1] * 15], [[5, 6], [7] * 25, [8], [2] * 8]
    numbers = np.arange(4)
    found = arranged(_texts(*first, *second), numbers, 4 + numbers, config)
    rows, segments, mask = (
        np.asarray(x)
        for x in surround(*(one_per_row(t, PADDING) for t in (first, second)), config=config)
    )
    width = rows.shape[1]
    assert found.rows.shape[1] == width == 24
    np.testing.assert_array_equal(found.rows, rows)
    np.testing.assert_array_equal(found.segment_ids, segments)
    np.testing.assert_array_equal(found.mask, mask)
    np.testing.assert_array_equal(found.is_text, mask & (rows != START))
    lengths = row_lengths(_texts(*first, *second), numbers, 4 + numbers, config)
    np.testing.assert_array_equal(lengths, mask.sum(1))


def test_masking_has_the_papers_shares():
    """15 % of text tokens are chosen: 80 % become [MASK], 10 % random, and 10 % stay."""
    rows = _rows(5000)
    batch = masked_batch(rows, CONFIG, rng=np.random.default_rng(0))
    number = int(batch["masked_weights"].sum())
    slots = batch["masked_slots"][:number]
    assert rows.is_text.reshape(-1)[slots].all()
    assert abs(number / rows.is_text.sum() - 0.15) < 0.005  # 50,000 tokens: 5 standard errors
    original, seen = rows.rows.reshape(-1)[slots], batch["rows"].reshape(-1)[slots]
    np.testing.assert_array_equal(batch["masked_targets"][:number], original)
    assert abs((seen == MASK_ID).mean() - 0.8) < 0.025
    # A random id equals the original one in 1 of 33 cases.
    assert abs((seen == original).mean() - (0.1 + 0.1 / 33)) < 0.02
    untouched = np.ones(rows.rows.size, bool)
    untouched[slots] = False
    np.testing.assert_array_equal(
        batch["rows"].reshape(-1)[untouched], rows.rows.reshape(-1)[untouched]
    )
    assert len(batch["masked_slots"]) % 64 == 0
    assert not batch["next_weights"].any()


def test_half_of_the_next_utterances_are_random():
    responses, is_next = random_responses(10_000, np.random.default_rng(0))
    assert abs(is_next.mean() - 0.5) < 0.02
    np.testing.assert_array_equal(is_next, responses == np.arange(10_000))
    assert random_responses(1, np.random.default_rng(0))[1].tolist() == [True]
    batch = next_utterance_batch(_rows(4), np.array([True, False, True, True]))
    np.testing.assert_array_equal(batch["next_labels"], [1, 0, 1, 1])
    np.testing.assert_array_equal(batch["next_weights"], [1] * 4)
    assert not batch["masked_weights"].any()


def test_batches_have_similar_lengths_and_a_limit():
    lengths = np.random.RandomState(0).randint(4, 60, 200)
    batches = batches_by_length(lengths, 512)
    assert sorted(np.concatenate(batches)) == list(range(200))
    for batch in batches:
        width = -(-lengths[batch].max() // 8) * 8
        assert len(batch) * width <= 512
    assert np.mean([np.ptp(lengths[b]) for b in batches]) < 5
    assert [len(b) for b in batches_by_length(np.array([30, 30]), 8)] == [1, 1]


def test_objectives_take_turns():
    """Batches alternate between the objectives, and each example of an epoch is in one batch."""
    for i, (batch, _) in enumerate(_first(_batches(), 12)):
        assert bool(batch["masked_weights"].any()) is (i % 2 == 0)
        assert bool(batch["next_weights"].any()) is (i % 2 == 1)
    labels = np.concatenate([b["next_labels"] for b, _ in _first(_batches(), 60)[1::2]])
    assert 0.35 < labels.mean() < 0.65


@pytest.mark.parametrize("stop", [0, 1, 7, 40])
def test_a_run_goes_on_where_it_stopped(stop):
    whole = _first(_batches(), 60)
    position = whole[stop - 1][1] if stop else Position(0, 0)
    rest = _first(_batches(position=position), 60 - stop)
    for (batch, place), (expected, expected_place) in zip(rest, whole[stop:], strict=True):
        assert place == expected_place
        assert _same(batch, expected)


def _model(config=None, *, dropout: float = 0.1):
    set_seed(0)
    config = config or Pretraining(learning_rate=3e-3, warmup_steps=20)
    return make_pretraining(BertTrunk(CONFIG, dropout=dropout), config, precision="float32")


def test_loss_parity_with_loop():
    """Masked tokens: softmax over the token table. Pairs: logistic loss. Both are averaged."""
    model = _model()
    fill_weights(model.variables)
    rows = _rows(6)
    batch = masked_batch(rows, CONFIG, mask_rate=0.3, rng=np.random.default_rng(0))
    batch |= {
        name: next_utterance_batch(rows, np.arange(6) % 2 == 0)[name]
        for name in ("next_labels", "next_weights")
    }
    y = {name: np.asarray(value, float) for name, value in model(batch).items()}
    losses = []
    for logits, target, weight in zip(
        y["token_logits"], batch["masked_targets"], batch["masked_weights"], strict=True
    ):
        if weight:
            losses.append(math.log(sum(math.exp(v) for v in logits)) - logits[target])
    pairs = [
        -math.log(1 / (1 + math.exp(-z)) if label else 1 - 1 / (1 + math.exp(-z)))
        for z, label in zip(y["next_logits"], batch["next_labels"], strict=True)
    ]
    expected = sum(losses) / len(losses) + sum(pairs) / len(pairs)
    assert float(model.compute_loss(batch, y_pred=model(batch))) == pytest.approx(expected, 1e-5)


def test_the_output_layer_is_the_token_table():
    """If the norm returns a fixed vector v, the logit of a token is row · v + its bias."""
    model = _model()
    fill_weights(model.variables)
    v = np.linspace(-1, 1, 32, dtype="float32")
    model.token_norm.gamma.assign(np.zeros(32))
    model.token_norm.beta.assign(v)
    batch = masked_batch(_rows(6), CONFIG, mask_rate=0.3, rng=np.random.default_rng(0))
    expected = np.asarray(model.encoder.embedding.table) @ v + np.asarray(model.output_bias)
    logits = np.asarray(model(batch)["token_logits"])
    np.testing.assert_allclose(logits, np.broadcast_to(expected, logits.shape), atol=1e-5)
    unread = np.asarray(model.encoder.embedding.table)[PADDING]
    model.train_on_batch(batch)
    assert np.abs(np.asarray(model.encoder.embedding.table)[PADDING] - unread).max() > 1e-5


def test_schedule_by_hand():
    """The rate rises linearly until step 4 and then falls as √(4 / step)."""
    schedule = InverseSquareRoot(2e-4, 4)
    rates = [float(schedule(step)) for step in (0, 1, 3, 15, 99)]
    np.testing.assert_allclose(rates, [0.5e-4, 1e-4, 2e-4, 1e-4, 0.4e-4], rtol=1e-5)


def test_the_defaults_are_the_papers():
    """Default values are those of arXiv 1905.01969 §4.1."""
    config = Pretraining()
    assert (config.learning_rate, config.dropout, config.batch_tokens) == (2e-4, 0.1, 32_000)
    assert MASK_RATE == 0.15
    optimizer = make_pretraining(BertTrunk(CONFIG), config, precision="mixed_float16").optimizer
    assert isinstance(optimizer, keras.optimizers.Adam)
    assert (optimizer.beta_1, optimizer.beta_2, optimizer.weight_decay) == (0.9, 0.98, None)
    assert optimizer.loss_scale_factor == 128.0


@pytest.mark.slow
def test_both_objectives_are_learnt():
    """A masked token is one of its topic's four tokens; a next utterance has the same topic."""
    examples = TopicExamples(1024, max_length=3)  # one length, so that few graphs are compiled
    train = Pretraining(learning_rate=3e-3, warmup_steps=20)
    model = _model(train, dropout=0.0)
    dev = evaluation_batches(examples, CONFIG, max_examples=512, batch_tokens=1024)
    before = evaluate_pretraining(model, dev)
    for batch, _ in _first(_batches(examples, batch_tokens=1024, shuffle_buffer=512), 600):
        model.train_on_batch(batch)
    after = evaluate_pretraining(model, dev)
    assert before["masked_loss"] > 3.4  # log(36) = 3.58
    assert after["masked_loss"] < 2.0  # log(4) = 1.39 is the best possible loss
    assert abs(before["next_loss"] - math.log(2)) < 0.05
    assert after["next_loss"] < 0.55


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    records = write_records(folder / "records", 120, has_history=True)
    for split in ("train", "dev"):
        os.symlink(
            records / "test-00000-of-00001.tfrecord", records / f"{split}-00000-of-00001.tfrecord"
        )
    from support.huggingface_folder import write_folder

    write_folder(folder / "published")
    return folder


def _pretrain(folder: Path, output: Path, **options) -> list[dict]:
    values = {
        "data": folder / "records", "vocab": folder / "published" / "vocab.txt", "output": output,
        "model": "bert_tiny", "dim": 16, "num_layers": 1, "num_heads": 2, "steps": 6,
        "batch_tokens": 1_000, "eval_every": 3, "checkpoint_every": 2, "warmup_steps": 2,
        "precision": "float32", "seed": 3, "shuffle_buffer": 50, "eval_examples": 20,
        **options,
    }  # fmt: skip
    given = [f"--{name}={value}" for name, value in values.items() if value is not None]
    call_command("pretrain", *given)
    return rows_of(output)


@pytest.mark.slow
@pytest.mark.usefixtures("no_graphs")
def test_a_stopped_run_ends_like_one_that_was_not(data, tmp_path, capsys):
    whole = _pretrain(data, tmp_path / "whole")
    assert [row["step"] for row in whole] == [0, 3, 6]
    assert {"masked_loss", "masked_accuracy", "next_loss", "next_accuracy"} <= set(whole[1]["eval"])
    _pretrain(data, tmp_path / "parts", steps=3)
    resumed = _pretrain(data, tmp_path / "parts")
    assert "resuming at step 3" in capsys.readouterr().out
    assert resumed[-1]["eval"]["masked_loss"] == pytest.approx(
        whole[-1]["eval"]["masked_loss"], abs=1e-4
    )
    assert (tmp_path / "parts" / "curve.png").read_bytes().startswith(b"\x89PNG")
    config = json.loads((tmp_path / "parts" / "pretrain_config.json").read_text())
    assert config["train"]["steps"] == 6
    facts = json.loads((tmp_path / "parts" / "training.json").read_text())
    assert facts["unknown_tokens"] < 0.1
    for folder in (tmp_path / "parts", tmp_path / "parts" / "checkpoints" / "step-00000006"):
        trunk, vocabulary = load_bert(folder)
        assert trunk.config.start_id == 3  # the id of [CLS] in the vocabulary
        assert load_tokenizer(vocabulary).name == "wordpiece"
    with pytest.raises(SystemExit, match="must keep its model"):
        _pretrain(data, tmp_path / "parts", dim=32)


@pytest.mark.slow
@pytest.mark.usefixtures("no_graphs")
def test_other_batches_are_evaluated_on_the_same_data(data, tmp_path):
    before, *_ = _pretrain(data, tmp_path / "run", steps=1)
    _pretrain(data, tmp_path / "run", steps=2, batch_tokens=300)
    last = _pretrain(data, tmp_path / "run", steps=3, eval_examples=19)[-2:]
    same, other = (row["evaluated_on"] for row in last)
    assert before["evaluated_on"] == same != other


@pytest.mark.slow
@pytest.mark.usefixtures("no_graphs")
def test_a_tracker_gets_the_evaluations(data, tmp_path):
    numbers = {}
    options = Pretraining(
        data=str(data / "records"), steps=1, batch_tokens=300, eval_every=1, eval_examples=10,
        precision="float32", shuffle_buffer=20,
    )  # fmt: skip
    pretrain(
        options, output=str(tmp_path / "run"), model="bert_tiny",
        overrides={"dim": 16, "num_layers": 1, "num_heads": 2},
        vocabulary=str(data / "published" / "vocab.txt"), trackers=[numbers.__setitem__],
    )  # fmt: skip
    last = rows_of(tmp_path / "run")[-1]
    assert [*numbers] == [0, 1]
    assert numbers[1] == {f"eval/{name}": value for name, value in last["eval"].items()}


def test_a_run_begins_from_a_published_model(data, tmp_path):
    new = {"model": None, "dim": None, "num_layers": None, "num_heads": None, "vocab": None}
    _pretrain(data, tmp_path / "run", init_from=data / "published", steps=1,
              learning_rate=1e-9, **new)  # fmt: skip
    published, trained = load_bert(data / "published")[0], load_bert(tmp_path / "run")[0]
    assert trained.config == published.config
    np.testing.assert_allclose(
        np.asarray(trained.embedding.table), np.asarray(published.embedding.table), atol=1e-6
    )
    with pytest.raises(SystemExit, match="--init_from cannot be combined with a new model"):
        _pretrain(data, tmp_path / "other", init_from=data / "published")
    with pytest.raises(SystemExit, match="needs a model"):
        _pretrain(data, tmp_path / "other", **new)


def test_a_trained_trunk_keeps_its_hash_buckets(tmp_path):
    corpus = write_corpus(tmp_path, num_train=20)
    sizes = {"dim": 16, "num_layers": 1, "num_heads": 2}
    trunk = BertTrunk(
        bert_preset("bert_tiny", vocab_size=52, num_oov_buckets=6, tokenizer="subword", **sizes)
    )
    save_checkpoint(tmp_path / "start", trunk, vocabulary=corpus.vocabulary, training={})
    with pytest.raises(ValueError, match=r"have 5\. Write .* tokenize --num_oov_buckets=6`"):
        pretrain(
            Pretraining(data=corpus.arrays), output=str(tmp_path / "run"),
            init_from=str(tmp_path / "start"),
        )  # fmt: skip


OTHER_VALUES = {
    "all_turns": False,
    "max_tokens": 2, "shuffle_buffer": 20, "batch_tokens": 300,
    "learning_rate": 0.1, "warmup_steps": 100, "dropout": 0.5,
    "precision": "mixed_bfloat16", "eval_examples": 40, "seed": 4,
}  # fmt: skip
# Other tests, or the files of a run, show the effect of these options.
READ_BY_THE_RUN = {"data", "steps", "eval_every", "checkpoint_every", "keep_checkpoints"}


def test_every_option_is_tried():
    assert set(OTHER_VALUES) | READ_BY_THE_RUN == set(Pretraining().to_dict())


@pytest.mark.slow
@pytest.mark.usefixtures("no_graphs")
def test_every_option_changes_the_run(data, tmp_path):
    options = {"steps": 2, "dropout": 0.1, "checkpoint_every": 1}
    default = _pretrain(data, tmp_path / "default", **options)
    for name, value in OTHER_VALUES.items():
        rows = _pretrain(data, tmp_path / name, **{**options, name: value})
        measured = [
            [row[source] for source in ("train", "eval")] for row in (rows[-1], default[-1])
        ]
        assert measured[0] != measured[1], name
    kept = _pretrain(data, tmp_path / "kept", **options, keep_checkpoints=1)
    assert len(list((tmp_path / "kept" / "checkpoints").iterdir())) == 1
    assert len(list((tmp_path / "default" / "checkpoints").iterdir())) == 2
    assert kept[-1]["eval"] == default[-1]["eval"]


def test_without_data_there_is_an_error(data, tmp_path):
    with pytest.raises(SystemExit, match="--data is required"):
        _pretrain(data, tmp_path, data=None)
    with pytest.raises(SystemExit, match="needs a vocabulary"):
        _pretrain(data, tmp_path, vocab=None)


_JAX = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import numpy as np
from test_pretraining import losses_of_steps
np.savez(sys.argv[1] + "/jax.npz", losses=losses_of_steps())
"""


def losses_of_steps() -> np.ndarray:
    model = _model(dropout=0.0)
    fill_weights(model.variables)
    batches = _first(_batches(), 4)
    return np.array([float(model.train_on_batch(b, return_dict=True)["loss"]) for b, _ in batches])


@pytest.mark.slow
def test_jax_trains_alike(tmp_path):
    on_jax = results_on_jax(_JAX, tmp_path)["losses"]
    np.testing.assert_allclose(on_jax, losses_of_steps(), rtol=1e-4)
