"""Multi-context training on records and on token ids, from the flags to the written files."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from support import encoder_runs
from support.encoder_runs import differ, final_weights, rows_of, stopped_copy
from support.record_files import read_texts
from support.token_corpus import NUM_OOV_BUCKETS, write_corpus
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from convert_tf.checkpoints import folder as checkpoint
from convert_tf.data.candidates import joined_context
from convert_tf.data.records import RecordFolder, parse_texts, read_turns
from convert_tf.data.shards import list_shards
from convert_tf.export.model import export_model
from convert_tf.models.encoder import DualEncoder
from convert_tf.text.tokenizer import load_tokenizer

# These runs take a few steps, for which tracing takes longer than computing.
pytestmark = pytest.mark.usefixtures("no_graphs")

MODEL = dataclasses.replace(encoder_runs.MODEL, multi_context=True)
SINGLE = encoder_runs.MODEL
OF_THE_MAP = {
    "similarity": {"teacher": "one", "texts": 3}, "opposites": {"triplets": 4, "texts": 5},
}  # fmt: skip
CHANGES = {
    "batch_size": 30, "micro_batch": 10, "embedding_dropout": 0.1, "eval_examples": 150,
    "shuffle_buffer": 32,
}  # fmt: skip
DEV = {
    "R100@1", "MRR", "examples", "context/R100@1", "extra_context/R100@1", "with_history/R100@1",
    "with_history/context/R100@1", "with_history/examples",
}  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), num_train=80, num_dev=150)


def run(data, output, *, model=MODEL, **options):
    return encoder_runs.run(data, output, model=model, **{**CHANGES, **options})


@pytest.mark.slow
def test_both_kinds_train_the_same_weights_also_resumed(corpus, tmp_path):
    from_records = run(corpus.records, tmp_path / "records", vocabulary=corpus.vocabulary)
    half = stopped_copy(from_records, tmp_path / "half")
    for from_ids in (run(corpus.arrays, tmp_path / "ids"), run(corpus.arrays, half)):
        assert not differ(final_weights(from_records), final_weights(from_ids))
    assert (from_ids / "vocab.txt").read_bytes() == Path(corpus.vocabulary).read_bytes()
    rows = rows_of(from_records)
    assert [set(row["dev"]) for row in rows] == [DEV, DEV]
    assert rows[-1]["dev"]["with_history/examples"] == 100
    for name in ("ranking_loss", "extra_context_ranking_loss", "both_batch_accuracy"):
        assert np.isfinite(rows[-1][name])
    board = EventAccumulator(str(from_records / "logs"))
    board.Reload()
    assert {f"dev/{name}" for name in DEV} <= set(board.Tags()["scalars"])
    facts = checkpoint.training_facts(from_records)
    best = max(rows, key=lambda row: row["dev"]["R100@1"])  # score of the combined contexts
    assert facts["evaluation"]["dev"] == best["dev"]


def test_numbers_stand_before_the_earlier_turns(corpus):
    """Token ids include the turn numbers, from 0 for the latest turn; empty histories have none."""
    records = next(iter(tf.data.TFRecordDataset(list_shards(corpus.records, "dev")).batch(1000)))
    (turns,) = parse_texts(records, ["extra_contexts"])
    (numbered,) = parse_texts(records, ["extra_context"], turn_prefixes=True)
    for own, text in zip(turns.numpy(), numbered.numpy(), strict=True):
        assert text == b" ".join(b"%d: %s" % (i, turn) for i, turn in enumerate(own) if turn)
    assert {0, 1, 10} <= {sum(map(bool, own)) for own in turns.numpy()}
    folder = RecordFolder(corpus.records, vocabulary=corpus.vocabulary, num_oov_buckets=5)
    examples = folder.open("dev", max_tokens=60, with_extra_contexts=True, turn_prefixes=True)
    ids = examples.token_ids(examples.load(np.array([0])))
    tokenizer = load_tokenizer(corpus.vocabulary, num_oov_buckets=5)
    expected = tokenizer.token_ids(numbered[:1])[:, :60].flat_values.numpy()
    np.testing.assert_array_equal(ids.flat[ids.row_splits[2] :], expected)


def test_all_turns_are_the_contexts_of_rankers(corpus):
    """Turns are joined oldest first, as in `joined_context`; the newest tokens are kept."""
    turns = [joined_context(example.turns) for example in read_turns(corpus.records, "dev")]
    texts = read_texts(corpus.records, "dev", ["all_turns"])["all_turns"]
    assert [text.decode() for text in texts] == turns
    assert any(len(example.turns) > 2 for example in read_turns(corpus.records, "dev"))
    folder = RecordFolder(
        corpus.records, vocabulary=corpus.vocabulary, num_oov_buckets=NUM_OOV_BUCKETS
    )
    number = len(turns)
    joined, alone = (
        examples.token_ids(examples.load(np.arange(number)))
        for examples in (
            folder.open("dev", max_tokens=tokens, joins_turns=joins)
            for tokens, joins in ((5, True), (5, False))
        )
    )
    tokenizer = load_tokenizer(corpus.vocabulary, num_oov_buckets=NUM_OOV_BUCKETS)
    for i, text in enumerate(turns):
        expected = tokenizer.token_ids([text])[0].numpy()[-5:]
        own = joined.flat[joined.row_splits[i] : joined.row_splits[i + 1]]
        np.testing.assert_array_equal(own, expected)
        places = number + i, number + i + 1
        np.testing.assert_array_equal(  # responses keep their first tokens
            joined.flat[slice(*joined.row_splits[[*places]])],
            alone.flat[slice(*alone.row_splits[[*places]])],
        )


def test_turns_of_token_ids_cannot_be_numbered(corpus, tmp_path):
    with pytest.raises(ValueError, match=r"join all earlier turns.*on the records"):
        run(corpus.arrays, tmp_path / "run", turn_prefixes=True)
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match="Omit --turn_prefixes"):
        run(corpus.records, tmp_path / "run", vocabulary=corpus.vocabulary, model=SINGLE,
            turn_prefixes=True)  # fmt: skip


@pytest.mark.slow
def test_networks_of_history_alone_are_trained(corpus, tmp_path):
    """The encodings of contexts and responses stay; runs can start from a run or a module."""
    start = run(corpus.arrays, tmp_path / "single", model=SINGLE)
    similarity_map = np.eye(32, 7, dtype=np.float32)
    encoder, vocabulary = checkpoint.load_checkpoint(start)
    checkpoint.save_checkpoint(
        start,
        encoder,
        vocabulary=vocabulary,
        training={**checkpoint.training_facts(start), **OF_THE_MAP},
        similarity_map=similarity_map,
    )
    options = {"history_only": True, "init_from": start}
    folder = run(corpus.arrays, tmp_path / "multi", **options)
    before, after = ({v.path: np.array(v) for v in checkpoint.load_checkpoint(f)[0].variables}
                     for f in (start, folder))  # fmt: skip
    for path, value in before.items():
        np.testing.assert_array_equal(after[path], value, err_msg=path)
    np.testing.assert_array_equal(checkpoint.load_similarity_map(folder), similarity_map)
    assert OF_THE_MAP.items() <= checkpoint.training_facts(folder).items()
    assert len({row["dev"]["context/R100@1"] for row in rows_of(folder)}) == 1
    module = tmp_path / "module" / "1"
    export_model(folder, module, network_bits=32)
    again = run(corpus.arrays, tmp_path / "again", **{**options, "init_from": module})
    found = {v.path: np.array(v) for v in checkpoint.load_checkpoint(again)[0].variables}
    for path, value in before.items():
        if "embedding" not in path:  # the table is rounded in a module
            np.testing.assert_allclose(found[path], value, atol=1e-6, err_msg=path)
    with pytest.raises(ValueError, match=r"an encoder with 4 blocks\. Received: .* has 1 blocks"):
        deeper = dataclasses.replace(MODEL, max_relative_attention=(3,) * 4)
        run(corpus.arrays, tmp_path / "deeper", model=deeper, **options)
    assert not (tmp_path / "deeper").exists()
    longer = {"steps": 6, "history_only": True}
    run(corpus.arrays, folder, **longer)  # the similarity map is in the run's own folder
    np.testing.assert_array_equal(checkpoint.load_similarity_map(folder), similarity_map)
    assert OF_THE_MAP.items() <= checkpoint.training_facts(folder).items()
    with pytest.raises(checkpoint.CheckpointError, match=r"--history_only as before"):
        run(corpus.arrays, folder, **{**longer, "history_only": False})
    for output in (folder, again):
        last, _ = checkpoint.load_checkpoint(output / "checkpoints" / "step-00000004")
        values = {v.path: np.array(v) for v in last.variables}
        own = values["extra_context_side/hidden_0/kernel"]  # initialised from the context's
        assert np.abs(own - values["context_side/hidden_0/kernel"]).max() > 1e-3


def test_a_single_context_model_starts_a_multi_context_one(make_encoder, tmp_path):
    """All single-context weights are copied; new ones start from the context's if shapes agree."""
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("﹏a\na\n")
    config = dataclasses.replace(MODEL, vocab_size=20)
    single = make_encoder(dataclasses.replace(config, multi_context=False))
    single.trunk.embedding.quantizer_weights["range_max"].assign(7.0)
    checkpoint.save_checkpoint(tmp_path / "single", single, vocabulary=vocabulary, training={})
    encoder = DualEncoder(config)
    checkpoint.load_initial_weights(encoder, tmp_path / "single")
    found = {v.path: np.asarray(v) for v in encoder.variables}
    for variable in single.variables:
        np.testing.assert_array_equal(found[variable.path], np.asarray(variable))
    for path, value in found.items():
        if path.startswith(("extra_context_side", "both_side")):
            same = np.array_equal(value, found["context_side/" + path.partition("/")[2]])
            assert same == (path != "both_side/hidden_0/kernel"), path
    other = DualEncoder(dataclasses.replace(config, encoding_dim=15))
    with pytest.raises(checkpoint.CheckpointError, match=r"do not fit the model"):
        checkpoint.load_initial_weights(other, tmp_path / "single")
    checkpoint.save_checkpoint(tmp_path / "multi", encoder, vocabulary=vocabulary, training={})
    back = DualEncoder(single.config)  # the reverse, ignoring the additional weights
    checkpoint.load_initial_weights(back, tmp_path / "multi")
    for a, b in zip(back.variables, single.variables, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
