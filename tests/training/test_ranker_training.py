"""Training rankers: objective, optimizer, freezing, whole runs and checkpoints."""

import dataclasses
import itertools
import json
import math
from pathlib import Path

import keras
import numpy as np
import pytest
from support import naive
from support.encoder_runs import rows_of
from support.huggingface_folder import write_folder
from support.processes import printed_by, results_on_jax
from support.ranker_steps import KINDS, eight_pairs, results_of_steps, write_candidates
from support.tiny_checkpoint import write_checkpoint, write_records
from support.token_corpus import NUM_OOV_BUCKETS, write_corpus

from convert_tf import Ranker
from convert_tf.checkpoints import folder as checkpoint
from convert_tf.checkpoints.folder import CheckpointError, save_checkpoint
from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.checkpoints.loading import (
    initial_ranker,
    load_ranker,
    load_ranker_config,
    trained_scale,
)
from convert_tf.config.bert import BertConfig
from convert_tf.config.model import ModelConfig, model_preset
from convert_tf.config.ranker import HeadConfig, RankerConfig, RankerTraining, ranker_recipe
from convert_tf.data.packing import TokenIds
from convert_tf.data.ranking_batches import RankingExamples
from convert_tf.data.records import read_turns
from convert_tf.data.token_arrays import ArrayFolder, ids_file, offsets_file
from convert_tf.models.encoder import DualEncoder
from convert_tf.models.ranker import make_ranker
from convert_tf.ranking.checkpoint import TrainedRanker, make_tokenize, ranking_report
from convert_tf.storage.checksums import record_checksums
from convert_tf.training.mining import mine
from convert_tf.training.optimizers import decaying_on_plateau
from convert_tf.training.ranker import data as data_module
from convert_tf.training.ranker.data import open_examples, with_dev_candidates
from convert_tf.training.ranker.task import _weights_of, freeze, make_ranker_training, train_ranker
from convert_tf.training.state import saved_checkpoints

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")]


def test_report_parity_with_loop():
    """Only the highest-scoring correct candidate counts; a tie with a wrong one is a miss."""
    scores = [[1.0, 3.0, 2.0], [1.0, 1.0], [-1.0, -5.0, -2.0]]
    labels = [[0, 2], [0], [0]]
    examples = RankingExamples(
        TokenIds(np.zeros(0), np.zeros(4)), TokenIds(np.zeros(0), np.zeros(4)),
        [np.arange(len(s)) for s in scores], [np.array(own) for own in labels],
    )  # fmt: skip
    report = ranking_report([np.array(s, "float32") for s in scores], examples)
    ranks = [2, 2, 1]  # 3 beats 2; a tie; the first
    assert report["R@1"] == pytest.approx(1 / 3)
    assert report["R@2"] == pytest.approx(1.0)
    assert report["MRR"] == pytest.approx(np.mean([1 / r for r in ranks]))
    losses = []
    for own, right in zip(scores, labels, strict=True):
        chances = naive.softmax(own)
        losses.append(-math.log(sum(chances[i] for i in right)))
    assert report["loss"] == pytest.approx(np.mean(losses), rel=1e-6)
    assert report["candidates"] == 2.7
    far = ranking_report([np.array([0, 800], np.float32)], examples._replace(labels=labels[1:2]))
    assert far["loss"] == 800


def test_plateau_factor_is_part_of_the_step():
    """A plain gradient step scales with the decay factor, which is saved as a variable."""
    optimizer = decaying_on_plateau(keras.optimizers.SGD)(learning_rate=0.5)
    variable = keras.Variable(np.array([1.0], "float32"))
    optimizer.build([variable])
    assert any(v is optimizer.plateau_factor for v in optimizer.variables)
    optimizer.apply([keras.ops.convert_to_tensor([1.0])])
    np.testing.assert_allclose(np.asarray(variable), [0.5])
    optimizer.decay(0.4)
    optimizer.apply([keras.ops.convert_to_tensor([1.0])])
    np.testing.assert_allclose(np.asarray(variable), [0.5 - 0.4 * 0.5], rtol=1e-6)
    schedule = keras.optimizers.schedules.CosineDecay(0.0, 10, warmup_target=1.0, warmup_steps=4)
    optimizer = decaying_on_plateau(keras.optimizers.Adamax)(learning_rate=schedule)
    optimizer.build([keras.Variable(np.zeros(1, "float32"))])
    optimizer.iterations.assign(2)
    optimizer.decay(0.4)
    assert float(np.asarray(optimizer._get_current_learning_rate())) == pytest.approx(0.2)


@pytest.mark.parametrize("kind", KINDS)
def test_overfits_eight_pairs(small_config, kind):
    """Each context has the eight responses as candidates; cross-encoders get one list each."""
    ranker = make_ranker(RankerConfig(small_config, KINDS[kind]))
    batch = eight_pairs()
    if kind == "cross":
        batch["candidate_ids"] = np.broadcast_to(batch["candidate_ids"], (8, 8, 6)).copy()
    config = RankerTraining(
        steps=200, optimizer="adam", learning_rate=0.01, warmup_steps=5, final_learning_rate=0.01
    )
    model = make_ranker_training(ranker, config, precision="float32")
    for _ in range(200):
        logs = model.train_on_batch(batch, return_dict=True)
        if logs["ranking_loss"] < 0.05:
            break
        model.reset_metrics()
    ranks = np.asarray(ranker.score(batch["context_ids"], batch["candidate_ids"])).argmax(axis=1)
    assert ranks.tolist() == list(range(8))


@pytest.mark.parametrize(
    ("how", "blocks", "trained"),
    [
        ("nothing", 1, {"embedding", "block_0", "block_1"}),
        ("embeddings", 1, {"block_0", "block_1"}),
        ("all_but_top_k", 1, {"block_1"}),
        ("all_but_top_k", 0, set()),
    ],
)
def test_frozen_parts_stay(small_config, how, blocks, trained):
    ranker = make_ranker(RankerConfig(small_config, HeadConfig(scale=5.0)))
    config = RankerTraining(
        steps=5, optimizer="adam", learning_rate=0.1, freeze=how, trainable_blocks=blocks,
        warmup_steps=0,
    )  # fmt: skip
    model = make_ranker_training(ranker, config, precision="float32")
    model.run_eagerly = True
    before = {v.path: np.array(v) for v in ranker.variables}
    model.train_on_batch(eight_pairs())
    moved = {
        v.path for v in ranker.variables
        if v.dtype == "float32" and "range" not in v.path
        and not np.array_equal(before[v.path], np.asarray(v))
    }  # fmt: skip
    parts = ("embedding", "block_0", "block_1")
    assert {p for p in parts if any(f"/{p}/" in path for path in moved)} == trained
    assert any("context_side" in path for path in moved)


def test_more_trainable_blocks_than_there_are_is_an_error(small_config):
    ranker = make_ranker(RankerConfig(small_config, HeadConfig()))
    with pytest.raises(ValueError, match="trainable_blocks must be at most"):
        freeze(ranker, "all_but_top_k", trainable_blocks=3)


@pytest.fixture(scope="module")
def trunk(tmp_path_factory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("trunk") / "tiny", side_layers=1)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    write_candidates(folder, train=24, dev=12)
    return folder


BASE = {
    "batch_size": 8, "learning_rate": 0.01, "final_learning_rate": 0.01, "warmup_steps": 2,
    "precision": "float32", "negatives": 3, "negatives_from": "given", "steps": 6,
}  # fmt: skip


def _run(trunk, files, output, head, *, data="train.jsonl", dev="dev.jsonl", **options):
    values = {**BASE, "data": str(files / data), "dev_data": str(files / dev), **options}
    if values["negatives_from"] == "in_batch":
        del values["negatives"]  # an option that these runs do not read
    return train_ranker(head, values, init_from=str(trunk), output=str(output))


RUNS = {
    "bi": HeadConfig(max_context_tokens=24),
    "poly": HeadConfig(head="poly", poly_codes=3, poly_variant="first_m", max_context_tokens=24),
    "cross": HeadConfig(head="cross", max_context_tokens=24),
}


@pytest.mark.parametrize("kind", RUNS)
def test_a_run_and_its_checkpoint(trunk, files, tmp_path, kind):
    run = _run(trunk, files, tmp_path / "run", RUNS[kind])
    rows = rows_of(run)
    # An epoch has three steps, and evaluation takes place every half epoch, rounded down.
    assert [row["step"] for row in rows] == [0, 1, 2, 3, 4, 5, 6]
    assert all(row["dev"]["examples"] == 12 for row in rows)
    assert (run / "curve.png").stat().st_size > 1000
    assert kind_of(run) is Kind.RANKER
    assert kind_of(trunk) is Kind.DUAL_ENCODER
    assert load_ranker_config(run).head.head == kind
    best = max(row["dev"]["R@1"] for row in rows)
    facts = checkpoint.training_facts(run)
    assert facts["evaluation"]["dev"]["R@1"] == best
    assert facts["unknown_tokens"] == 0.0
    ranker = Ranker(run)
    contexts, candidates = [("how are you",), ()], ["the cat", "bank card lost", ""]
    scores = ranker.scores(contexts, candidates)
    assert np.isfinite(scores).all()
    with pytest.raises(
        CheckpointError, match=r"must keep its model(?s:.)*  reduction: 'sqrt_n' → "
    ):
        _run(trunk, files, run, dataclasses.replace(RUNS[kind], reduction="mean"), steps=9)


@pytest.mark.usefixtures("no_graphs")
def test_pairs_are_counted_by_the_batches_of_a_small_file(trunk, files, tmp_path):
    """The file has 24 contexts, so a batch has 24."""
    run = _run(trunk, files, tmp_path / "run", RUNS["bi"], batch_size=100, steps=2)
    assert [(row["step"], row["pairs"]) for row in rows_of(run)] == [(0, 0), (1, 24), (2, 48)]


@pytest.mark.usefixtures("no_graphs")
def test_a_resumed_run_ends_where_an_unbroken_one_does(trunk, files, tmp_path):
    options = {"eval_every": 2, "checkpoint_every": 2}
    for name, steps in (("whole", 4), ("broken", 2), ("broken", 4)):
        _run(trunk, files, tmp_path / name, RUNS["poly"], steps=steps, **options)
    newest = [saved_checkpoints(tmp_path / name)[0] for name in ("whole", "broken")]
    for a, b in zip(*(load_ranker(folder)[0].variables for folder in newest), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), atol=1e-5, err_msg=a.path)


@pytest.mark.usefixtures("no_graphs")
def test_a_resumed_run_keeps_its_optimizer(trunk, files, tmp_path):
    _run(trunk, files, tmp_path / "run", RUNS["bi"], steps=1)
    with pytest.raises(CheckpointError, match=r"optimizer: 'adamax' → 'adamw'"):
        _run(trunk, files, tmp_path / "run", RUNS["bi"], steps=2, optimizer="adamw")


@pytest.mark.usefixtures("no_graphs")
def test_the_learning_rate_falls_when_the_dev_loss_does_not(trunk, files, tmp_path):
    """With a learning rate of 10 the model diverges, so no evaluation beats the first."""
    run = _run(trunk, files, tmp_path / "run", RUNS["bi"], learning_rate=10.0,
               final_learning_rate=10.0, optimizer="adam")  # fmt: skip
    rows = rows_of(run)
    factor = 1.0
    for i, row in enumerate(rows):
        assert row["plateau_factor"] == pytest.approx(factor)
        if i and row["dev"]["loss"] >= min(r["dev"]["loss"] for r in rows[:i]):
            factor *= 0.4
    assert factor < 1.0


@pytest.mark.usefixtures("no_graphs")
def test_a_loss_on_other_dev_data_does_not_lower_the_learning_rate(trunk, files, tmp_path):
    """With twice as many candidates, the loss is higher even if the model has improved."""
    run = _run(trunk, files, tmp_path / "run", RUNS["bi"], steps=2)
    rows = [json.loads(line) for line in (files / "dev.jsonl").read_text().splitlines()]
    further = [f"{text} {number}" for number, text in enumerate(rows[0]["candidates"])]
    for row in rows:
        row["candidates"] += further
    (files / "harder.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    _run(trunk, files, run, RUNS["bi"], dev="harder.jsonl", steps=4)
    before, first, second = rows_of(run)[-3:]
    assert first["dev"]["loss"] > before["dev"]["loss"]
    assert first["evaluated_on"] == second["evaluated_on"] != before["evaluated_on"]
    assert second["plateau_factor"] == first["plateau_factor"]
    assert checkpoint.training_facts(run)["evaluation"]["step"] > 2


def test_records_give_dev_blocks_and_negatives(trunk, files, tmp_path):
    write_records(tmp_path / "records", 120)
    for split in ("train", "dev"):
        shard = tmp_path / "records" / f"{split}-00000-of-00001.tfrecord"
        shard.write_bytes((tmp_path / "records" / "test-00000-of-00001.tfrecord").read_bytes())
    run = _run(
        trunk, tmp_path, tmp_path / "run", RUNS["bi"], data="records", dev="records",
        max_examples=16, negatives_from="in_batch", steps=0,
    )  # fmt: skip
    row = rows_of(run)[-1]
    assert row["dev"]["examples"] == 100
    assert row["dev"]["candidates"] > 90  # equal texts count as one candidate
    assert row["step"] == 2


def test_blocks_of_the_dev_data():
    right = [np.array([i % 130]) for i in range(250)]
    splits = np.arange(251)
    examples = RankingExamples(
        TokenIds(np.arange(250, dtype=np.int32), splits),
        TokenIds(np.arange(130, dtype=np.int32), np.arange(131)),
        right,
        [np.array([0])] * 250,
    )
    blocks = with_dev_candidates(examples, is_joint=False)
    assert blocks.num_examples == 200
    assert [len(own) for own in blocks.candidates] == [100] * 200
    for i in range(200):
        np.testing.assert_array_equal(blocks.right(i), right[i])
    assert with_dev_candidates(examples, is_joint=True).num_examples == 240
    assert len(with_dev_candidates(examples, is_joint=True).candidates[0]) == 20


def _dev(lists):
    """Return dev examples, given a pair of candidates and labels for each of them."""
    splits = np.arange(len(lists) + 1)
    texts = TokenIds(np.arange(len(lists), dtype=np.int32), splits)
    candidates, labels = (
        [np.array(values) for values in side] for side in zip(*lists, strict=True)
    )
    return RankingExamples(texts, texts, candidates, labels)


def test_dev_rows_with_correct_answers_alone_are_ranked_in_blocks(capsys):
    """A row with several correct answers is not a row with wrong ones, which would end the blocks.

    Every context of the others would then be ranked among one candidate, with an R@1 of 1.0.
    """
    lists = [([i], [0]) for i in range(200)]
    lists[7] = ([7, 8, 150], [0, 1, 2])
    blocks = with_dev_candidates(_dev(lists), is_joint=False)
    assert [len(given) for given in blocks.candidates] == [100] * 200
    assert blocks.right(7).tolist() == [7, 8]  # 150 is in the other block
    assert [blocks.right(i).tolist() for i in range(200) if i != 7] == [
        [i] for i in range(200) if i != 7
    ]
    assert capsys.readouterr().out == ""


def test_dev_rows_without_wrong_candidates_are_left_out_if_others_have_them(capsys):
    lists = [([0], [0]), ([8, 1], [1]), ([2, 3], [0, 1]), ([9, 10, 11], [0, 2])]
    dev = with_dev_candidates(_dev(lists), is_joint=False)
    assert [given.tolist() for given in dev.candidates] == [[8, 1], [9, 10, 11]]
    assert [labels.tolist() for labels in dev.labels] == [[1], [0, 2]]
    assert dev.contexts.flat.tolist() == [1, 3]
    assert "2 of 4 dev examples are left out" in capsys.readouterr().out


def test_a_few_dev_rows_with_wrong_candidates_do_not_replace_all_others(capsys):
    lists = [([i], [0]) for i in range(200)]
    lists[7], lists[9] = ([8, 7], [1]), ([9, 10, 11], [0, 2])
    blocks = with_dev_candidates(_dev(lists), is_joint=False)
    assert [len(given) for given in blocks.candidates] == [100] * 200
    assert blocks.right(7).tolist() == [7]
    assert blocks.right(9).tolist() == [9, 11]
    assert "only 2 of 200 dev examples have wrong candidates" in capsys.readouterr().out

    few = with_dev_candidates(_dev(lists[:60]), is_joint=False)  # fewer than a block
    assert [given.tolist() for given in few.candidates] == [[8, 7], [9, 10, 11]]


@pytest.mark.parametrize(("without", "ranked"), [(0, 12), (3, 9), (9, 12), (12, 12)])
def test_rows_without_wrong_candidates_are_left_out_if_few(
    trunk, files, tmp_path, monkeypatch, without, ranked
):
    monkeypatch.setattr(data_module, "BLOCK_SIZE", 4)
    rows = [json.loads(line) for line in (files / "dev.jsonl").read_text().splitlines()]
    for row in rows[:without]:
        row["candidates"], row["label"] = [row["candidates"][row["label"]]], 0
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = RankerTraining(
        **{**BASE, "data": str(files / "train.jsonl"), "dev_data": str(tmp_path / "dev.jsonl")}
    )
    ranker, vocabulary = initial_ranker(trunk, RUNS["bi"])
    assert data_module.RankerData(config, ranker.config, vocabulary).dev.num_examples == ranked


@pytest.mark.parametrize("kind", RUNS)
def test_text_scores_are_those_of_one_pair_at_a_time(trunk, tmp_path, kind):
    ranker, vocabulary = initial_ranker(trunk, RUNS[kind])
    checkpoint.save_checkpoint(tmp_path / "r", ranker, vocabulary=vocabulary, training={})
    texts = TrainedRanker(tmp_path / "r")
    assert texts.name == str(tmp_path / "r")
    contexts = [(), ("how are you", "please help with order"), ("the cat sat on",)]
    candidates = ["thanks for your answer", "", "no", "maybe the train is late"]
    together = texts.scores(contexts, candidates)
    for i, context in enumerate(contexts):
        for j, candidate in enumerate(candidates):
            alone = texts.candidate_scores([context], [[candidate]])[0]
            np.testing.assert_allclose(alone, together[i, j : j + 1], atol=1e-5)
    lists = [candidates[:1], candidates[1:], candidates[::-1]]
    own = texts.candidate_scores(contexts, lists)
    np.testing.assert_allclose(own[1], together[1, 1:], atol=1e-5)
    np.testing.assert_allclose(own[2], together[2, ::-1], atol=1e-5)
    if kind != "cross":
        vectors, mask = texts.encode_contexts(contexts)
        encoded = texts.encode_candidates(candidates)
        scores = texts.model.score_encoded(vectors, mask, encoded)
        np.testing.assert_allclose(scores, together, atol=1e-5)


@pytest.mark.usefixtures("no_graphs")
def test_initial_rankers_keep_what_was_trained(trunk, files, tmp_path):
    """Encodings of a dual encoder and the trunk of a ranker are kept, and so is the same head."""
    ranker, _ = initial_ranker(trunk, HeadConfig(head="poly"))
    encoder, _ = checkpoint.load_checkpoint(trunk)
    ids = np.array([[3, 5, 1], [2, 8, 9]], "int32")
    np.testing.assert_array_equal(
        np.asarray(ranker.encode_candidates(ids)), np.asarray(encoder.encode_response(ids))
    )
    run = _run(trunk, files, tmp_path / "run", RUNS["poly"], steps=1)
    source, _ = load_ranker(run)
    again, _ = initial_ranker(run, RUNS["poly"])
    np.testing.assert_allclose(
        np.asarray(again.score(ids, ids)), np.asarray(source.score(ids, ids)), atol=1e-6
    )
    other, _ = initial_ranker(run, dataclasses.replace(RUNS["bi"], separate_trunks=True))
    np.testing.assert_array_equal(
        np.asarray(other.encode_candidates(ids)), np.asarray(source.encode_candidates(ids))
    )


def test_the_scale_is_that_of_the_checkpoint(tmp_path):
    folder = write_checkpoint(tmp_path / "tiny")
    assert trained_scale(folder) == pytest.approx(8.0)  # √64, as the facts have no scale
    (folder / "sha256.json").unlink()
    facts = json.loads((folder / "training.json").read_text())
    facts["train"] = {"scale_start": 2.0, "scale_end": 10.0, "scale_anneal_steps": 1000}
    facts["evaluation"]["step"] = 250
    (folder / "training.json").write_text(json.dumps(facts))
    assert trained_scale(folder) == pytest.approx(4.0)
    ranker, _ = initial_ranker(folder, HeadConfig())
    assert ranker.config.head.scale == pytest.approx(4.0)
    ranker, _ = initial_ranker(folder, HeadConfig(scale=7.0))
    assert ranker.head.scale == 7.0


def test_a_ranker_that_starts_from_a_ranker_has_its_factors(trunk, tmp_path):
    """A scale that is given replaces the learned one; outputs are rescaled as before."""
    head = HeadConfig(head="poly", poly_codes=3, scale=10.0, learn_scale=True)
    source, vocabulary = initial_ranker(trunk, head)
    source.output_factor.assign(0.05)
    source.head.log_scale.assign(math.log(3.0))
    checkpoint.save_checkpoint(tmp_path / "run", source, vocabulary=vocabulary, training={})
    ids = np.array([[3, 5, 1], [2, 8, 9]], "int32")
    scores = np.asarray(source.score(ids, ids))
    for learn_scale in (False, True):
        for scale, factor in ((0.0, 30.0), (5.0, 5.0)):
            new = dataclasses.replace(head, scale=scale, learn_scale=learn_scale)
            ranker, _ = initial_ranker(tmp_path / "run", new)
            assert float(np.asarray(ranker.output_factor)) == pytest.approx(0.05)
            scale_factor = ranker.head.scale * math.exp(float(np.asarray(ranker.head.log_scale)))
            assert scale_factor == pytest.approx(factor)
            if not scale:
                np.testing.assert_allclose(np.asarray(ranker.score(ids, ids)), scores, atol=1e-5)
    ranker, _ = initial_ranker(tmp_path / "run", HeadConfig(head="cross"))
    assert float(np.asarray(ranker.output_factor)) == pytest.approx(0.05)


def test_the_papers_defaults():
    """Default values are those of arXiv 1905.01969 §5.1 and §5.3."""
    for head, batch_size, warmup in (("bi", 256, 100), ("poly", 256, 100), ("cross", 16, 1000)):
        negatives = "given" if head == "cross" else "in_batch"
        config = ranker_recipe(head, negatives_from=negatives)
        assert (config.optimizer, config.learning_rate) == ("adamax", 5e-5)
        assert (config.batch_size, config.warmup_steps) == (batch_size, warmup)
        assert config.final_learning_rate == config.learning_rate
        own = ranker_recipe(head, negatives_from=negatives, learning_rate=1e-5)
        assert own.final_learning_rate == 1e-5
        published = ranker_recipe(head, weights="published_bert", negatives_from=negatives)
        assert published.optimizer == "adamw"
        assert (config.freeze, published.freeze) == ("nothing", "embeddings")
        for weights in ("bert", "published_bert"):
            own = ranker_recipe(head, weights=weights, negatives_from=negatives)
            assert own.embedding_dropout == own.attention_dropout == 0.1
    assert (RankerConfig(BertConfig(), HeadConfig(), "bert").head.reduction) == "first"
    assert (RankerConfig(ModelConfig(), HeadConfig()).head.reduction) == "sqrt_n"
    with pytest.raises(ValueError, match="mean_without_first needs a trunk"):
        RankerConfig(ModelConfig(), HeadConfig(reduction="mean_without_first"))
    assert config.negatives == 15


def test_a_ranker_on_a_published_bert_is_trained_on_as_one(tmp_path):
    """Further training uses Adam and keeps the embeddings frozen, as the first one did."""
    write_folder(tmp_path / "bert")
    for folder in ("bert", "run"):
        assert _weights_of(str(tmp_path / folder)) == "published_bert"
        ranker, vocabulary = initial_ranker(tmp_path / folder, HeadConfig())
        if folder == "bert":
            checkpoint.save_checkpoint(tmp_path / "run", ranker, vocabulary=vocabulary, training={})
    own = BertConfig(start_id=30_523, separator_id=30_523, mask_id=30_524)
    assert BertConfig().is_published
    assert not own.is_published


def test_adamw_decays_matrices_alone(small_config):
    """As in BERT's optimizer, biases and norms have no decay (arXiv 1810.04805 §A.2)."""
    ranker = make_ranker(RankerConfig(small_config, HeadConfig()))
    config = ranker_recipe(
        "bi",
        negatives_from="in_batch",
        optimizer="adamw",
        steps=10,
        freeze="nothing",
        learning_rate=0.5,
        warmup_steps=0,
    )
    model = make_ranker_training(ranker, config, precision="float32")
    for variable in model.trainable_variables:
        variable.assign(np.ones(variable.shape))
    zeros = [keras.ops.zeros(v.shape) for v in model.trainable_variables]
    for _ in range(2):
        model.optimizer.apply(zeros, model.trainable_variables)
    for variable in model.trainable_variables:
        is_decayed = float(np.asarray(variable).max()) < 1
        assert is_decayed == (len(variable.shape) > 1), variable.path


def test_poly_with_its_defaults_trains_on_a_bert(files, tmp_path):
    write_folder(tmp_path / "bert")
    options = {"batch_size": 8, "steps": 2, "precision": "float32"}
    data = {"data": str(files / "train.jsonl"), "dev_data": str(files / "dev.jsonl")}
    tracked = []
    run = train_ranker(HeadConfig(head="poly"), {**options, **data},
                       init_from=str(tmp_path / "bert"), output=str(tmp_path / "run"),
                       trackers=[lambda step, values: tracked.append((step, *values))])  # fmt: skip
    assert {step for step, *_ in tracked} == {0, 1, 2} and "dev/MRR" in tracked[-1]
    head = load_ranker_config(run).head
    assert (head.head, head.reduction) == ("poly", "first")
    facts = checkpoint.training_facts(run)["train"]
    assert facts["freeze"] == "embeddings"
    assert facts["optimizer"] == "adamw"
    scores = Ranker(run).scores([("how are you",)], ["the cat", "bank card lost"])
    assert np.isfinite(scores).all()
    assert scores[0, 0] != scores[0, 1]


_ON_JAX = """
import sys
import numpy as np
from support.ranker_steps import results_of_steps
np.savez(sys.argv[1] + "/jax.npz", **results_of_steps())
assert "tensorflow" not in sys.modules, "TensorFlow was imported"
"""


def test_jax_trains_alike(tmp_path):
    on_jax = results_on_jax(_ON_JAX, tmp_path)
    for name, expected in results_of_steps().items():
        tolerance = {"atol": 2e-2} if name.endswith("scores") else {"rtol": 1e-3}
        np.testing.assert_allclose(on_jax[name], expected, **tolerance)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Token ids of a corpus whose first two examples have the same response."""
    corpus = write_corpus(tmp_path_factory.mktemp("corpus"), num_train=60)
    own = ArrayFolder(corpus.arrays).open("train", max_tokens=60)
    ids, splits = own.texts("response", np.maximum(np.arange(60), 1))
    names = ids_file("train", "response"), offsets_file("train", "response")
    np.save(Path(corpus.arrays) / names[0], ids.astype(np.uint16))
    np.save(Path(corpus.arrays) / names[1], splits)
    record_checksums(corpus.arrays, names)
    return corpus


@pytest.mark.parametrize("max_context_tokens", [120, 4])
def test_token_ids_are_read_as_their_texts_are(corpus, max_context_tokens):
    model = model_preset("tiny", vocab_size=52, num_oov_buckets=NUM_OOV_BUCKETS)
    config = RankerConfig(
        model, HeadConfig(max_context_tokens=max_context_tokens, max_candidate_tokens=9)
    )
    found = open_examples(
        corpus.arrays, "train", config, vocabulary=corpus.vocabulary, max_examples=50
    )
    records = itertools.islice(read_turns(corpus.records, "train"), 50)
    texts = [(record.turns[-1], record.response) for record in records]
    texts[0] = (texts[0][0], texts[1][1])
    tokenize = make_tokenize(corpus.vocabulary, config)
    contexts = tokenize([context for context, _ in texts], min(max_context_tokens, 60), True)
    assert (contexts.lengths == max_context_tokens).any() == (max_context_tokens == 4)
    np.testing.assert_array_equal(found.contexts.flat, contexts.flat)
    np.testing.assert_array_equal(found.contexts.row_splits, contexts.row_splits)
    assert found.num_examples == 50
    assert len(found.pool.row_splits) == 50  # offsets of 49 responses
    for number, (_, response) in enumerate(texts):
        (place,) = found.right(number)
        start, stop = found.pool.row_splits[place : place + 2]
        expected, _ = tokenize([response], 9, False)
        np.testing.assert_array_equal(found.pool.flat[start:stop], expected)


def test_a_run_on_token_ids_needs_no_tensorflow(corpus, tmp_path):
    model = model_preset("tiny", vocab_size=52, num_oov_buckets=NUM_OOV_BUCKETS)
    save_checkpoint(
        tmp_path / "encoder", DualEncoder(model), vocabulary=corpus.vocabulary, training={}
    )
    other = tmp_path / "vocab.txt"
    other.write_bytes(Path(corpus.vocabulary).read_bytes().replace(b"\nz\n", b"\nzz\n"))
    with pytest.raises(ValueError, match="token ids made with its vocabulary"):
        open_examples(
            corpus.arrays, "dev", RankerConfig(model, HeadConfig()), vocabulary=other,
            max_examples=None,
        )  # fmt: skip
    buckets = dataclasses.replace(model, num_oov_buckets=1000)
    with pytest.raises(ValueError, match=r"have 5\. Write .* tokenize --num_oov_buckets=1000`"):
        open_examples(
            corpus.arrays, "dev", RankerConfig(buckets, HeadConfig()),
            vocabulary=corpus.vocabulary, max_examples=None,
        )  # fmt: skip
    mine(f"{tmp_path}/encoder", corpus.arrays, f"{tmp_path}/negatives", skip_top=0)
    program = (
        "import sys\n"
        "sys.modules['tensorflow'] = sys.modules['tensorflow_text'] = None\n"
        "from convert_tf.cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    printed = printed_by(
        program, "train", "--head=poly", "--poly_codes=2", f"--init_from={tmp_path}/encoder",
        f"--data={corpus.arrays}", f"--output={tmp_path}/run", "--negatives_from=mined",
        f"--hard_negatives={tmp_path}/negatives", "--negatives=12", "--steps=2", "--eval_every=2",
        "--checkpoint_every=2", "--batch_size=8", KERAS_BACKEND="jax",
    )  # fmt: skip
    assert "poly on 60 examples" in printed
    assert "has only 8 mined negatives per pair, but --negatives is 12: the others" in printed
    assert kind_of(tmp_path / "run") is Kind.RANKER
