"""Mining hard negatives from token ids with a model, and training with them."""

import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from support import naive
from support.commands import call_command
from support.encoder_runs import MODEL, run
from support.model_cases import fill_weights, one_per_row, random_texts, texts_in

from convert_tf.checkpoints.configs import load_config
from convert_tf.checkpoints.folder import load_checkpoint, save_checkpoint
from convert_tf.config.ranker import HeadConfig, RankerConfig, RankerTraining
from convert_tf.data.batches import TrainingBatches
from convert_tf.data.negatives import ARRAY_FILE, FORMAT, HardNegatives
from convert_tf.data.packing import TokenIds, by_name, pack_batch, text_groups
from convert_tf.data.token_arrays import ArrayFolder
from convert_tf.models.encoder import DualEncoder
from convert_tf.training.encoder.losses.ranking import Ranking
from convert_tf.training.encoder.objective import make_objective
from convert_tf.training.encoder.options import EncoderTraining
from convert_tf.training.mining import mine
from convert_tf.training.ranker.data import open_examples, open_sampler

# These runs take a few steps, for which tracing takes longer than computing.
pytestmark = pytest.mark.usefixtures("no_graphs")

NUM_TRAIN = 90


@pytest.fixture(scope="module")
def checkpoints(corpus, tmp_path_factory):
    """Folders of a `single`- and a `multi`-context encoder with random weights."""
    made = {}
    for kind in ("single", "multi"):
        size = ArrayFolder(corpus.arrays).vocab_size
        encoder = DualEncoder(
            dataclasses.replace(MODEL, vocab_size=size, multi_context=kind == "multi")
        )
        fill_weights(encoder.variables)
        made[kind] = str(tmp_path_factory.mktemp("checkpoints") / kind)
        save_checkpoint(made[kind], encoder, vocabulary=corpus.vocabulary, training={})
    return made


@pytest.fixture(scope="module")
def negatives(corpus, checkpoints, tmp_path_factory):
    """Folder with three mined negatives for each example."""
    folder = str(tmp_path_factory.mktemp("negatives") / "mined")
    mine(checkpoints["single"], corpus.arrays, folder, negatives=3, precision="float32")
    return folder


def mined_in(folder):
    return np.load(Path(folder) / ARRAY_FILE)


def texts_of(examples, name):
    flat, splits = examples.texts(name, np.arange(NUM_TRAIN))
    return [flat[a:b] for a, b in itertools.pairwise(splits)]


def naive_mined(encoder, examples, bounds, k, skip):
    """Mine negatives with one text per row, comparing each context with its block one by one."""
    texts = {name: texts_of(examples, name) for name in examples.names}
    ids = {name: one_per_row(own, examples.padding_id) for name, own in texts.items()}
    if encoder.config.multi_context:
        contexts = np.asarray(encoder.encode_both(ids["context"], ids["extra_context"]))
    else:
        contexts = np.asarray(encoder.encode_context(ids["context"]))
    responses = np.asarray(encoder.encode_response(ids["response"]))
    said = [tuple(text) for text in texts["response"]]
    found = np.full((NUM_TRAIN, k), -1)
    for start, stop in itertools.pairwise(bounds):
        block = range(start, stop)
        for i in block:
            wrong = [j for j in block if said[j] != said[i] and said.index(said[j], start) == j]
            wrong.sort(key=lambda j, i=i: -float(contexts[i] @ responses[j]))
            kept = wrong[skip : skip + k]
            found[i, : len(kept)] = kept
    return found


@pytest.mark.parametrize("kind", ["single", "multi"])
def test_mining_finds_what_a_naive_loop_finds(corpus, checkpoints, tmp_path, kind):
    facts = mine(
        checkpoints[kind], corpus.arrays, str(tmp_path / "mined"), negatives=4, skip_top=2,
        block_size=40, precision="float32",
    )  # fmt: skip
    encoder, _ = load_checkpoint(checkpoints[kind])
    examples = ArrayFolder(corpus.arrays).open(
        "train", max_tokens=60, with_extra_contexts=kind == "multi"
    )
    expected = naive_mined(encoder, examples, [0, 30, 60, 90], 4, 2)
    np.testing.assert_array_equal(mined_in(tmp_path / "mined"), expected)
    written = json.loads((tmp_path / "mined" / FORMAT.facts_file).read_text())
    assert written.items() <= facts.items()
    assert (written["skip_top"], written["block_size"], written["margin"]) == (2, 40, None)
    assert facts["found"] == 1.0
    assert facts["most_used"] == np.bincount(expected.ravel()).max()


def test_the_command_passes_its_options_on(corpus, checkpoints, tmp_path, capsys):
    call_command(
        "mine", f"--encoder={checkpoints['single']}", f"--data={corpus.arrays}", "--negatives=2",
        f"--output={tmp_path / 'mined'}", "--precision=float32", "--max_examples=40",
        "--skip_top=1", "--margin=2", "--block_size=20",
    )  # fmt: skip
    assert "40 examples of train with up to 2 negatives each; 100.0 %" in capsys.readouterr().out
    mined = mined_in(tmp_path / "mined")
    assert mined.shape == (NUM_TRAIN, 2)
    assert mined[:20].max() < 20 <= mined[20:40].min()
    assert (mined[40:] == -1).all()
    facts = json.loads((tmp_path / "mined" / FORMAT.facts_file).read_text())
    assert [facts[name] for name in ("skip_top", "margin", "block_size")] == [1, 2.0, 20]


def test_mining_refuses_what_it_cannot_do(corpus, checkpoints, tmp_path):
    single, output = checkpoints["single"], str(tmp_path / "new")
    with pytest.raises(ValueError, match="has no token ids"):
        mine(single, corpus.records, output)
    with pytest.raises(
        ValueError, match="No negatives were found in blocks of 90 examples with skip_top 200"
    ):
        mine(single, corpus.arrays, output, skip_top=200)
    assert not Path(output).exists()


def batch_with_negatives(config, *, pairs=4, k=2):
    """Return a batch and its responses; two negatives equal another example's response."""
    names = ["context", "response", *["extra_context"] * config.multi_context, *["negative"] * k]
    texts = random_texts(config, np.random.RandomState(0).randint(1, 9, len(names) * pairs))
    texts[-1] = texts[-2] = texts[pairs + 1]
    if config.multi_context:
        texts[2 * pairs] = texts[2 * pairs][:0]
    token_ids = TokenIds(np.concatenate(texts), np.cumsum([0, *map(len, texts)]))
    batch = pack_batch(token_ids, names, row_tokens=12, padding_id=config.num_ids)
    groups = by_name(text_groups(token_ids), names)
    batch |= {f"{name}_groups": groups[name] for name in ("response", "negative")}
    columns = [texts[i * pairs : (i + 1) * pairs] for i in range(len(names))]
    negatives = [text for own in zip(*columns[-k:], strict=True) for text in own]
    return batch, [tuple(text) for text in (*columns[1], *negatives)]


@pytest.mark.parametrize("multi_context", [False, True])
@pytest.mark.parametrize("is_masked", [False, True])
def test_the_objective_parity_with_loop(small_config, make_encoder, multi_context, is_masked):
    config = dataclasses.replace(small_config, multi_context=multi_context)
    encoder = make_encoder(config)
    model = make_objective(encoder, EncoderTraining(l2=0.0, scale_start=5.0), precision="float32")
    batch, said = batch_with_negatives(config)
    if not is_masked:
        del batch["response_groups"], batch["negative_groups"]
    outputs = model(batch)
    assert outputs["negative_encoding"].shape == (8, config.encoding_dim)
    columns = np.concatenate([outputs["response_encoding"], outputs["negative_encoding"]])
    is_candidate = [
        [j == i or not is_masked or said[j] != said[i] for j in range(12)] for i in range(4)
    ]
    assert sum(map(sum, is_candidate)) == (48 - 2 if is_masked else 48)
    expected, own = 0.0, {}
    names = ("context", "extra_context", "both")[: 3 if config.multi_context else 1]
    for name in names:
        cosines = np.asarray(outputs[f"{name}_encoding"]) @ columns.T
        rows = slice(None) if name == "context" else slice(1, None)  # one has no history
        part = [5 * cosines[i] for i in range(4)]
        losses = [
            naive.loss([part[i]], 0.2, labels=[i], is_candidate=[is_candidate[i]])
            for i in range(4)[rows]
        ]
        own[name] = np.mean(losses)
        expected += sum(losses) / 4
        share = np.mean([cosines[i].argmax() == i for i in range(4)])
        if name == "context":
            in_batch = np.mean([cosines[i, :4].argmax() == i for i in range(4)])
            assert share <= in_batch
    loss = float(model.compute_loss(x=batch, y_pred=outputs))
    assert loss == pytest.approx(expected, rel=1e-5)
    measured = model.compute_metrics(batch, None, outputs)
    assert float(measured["batch_accuracy"]) == pytest.approx(in_batch)
    assert float(measured["ranking_loss"]) == pytest.approx(own["context"], rel=1e-5)


def test_copies_of_the_correct_response_are_not_wrong_in_the_accuracy():
    """As in the loss, copies are left out only if the batch marks them."""
    encodings = np.eye(3, dtype="float32")[[0, 1, 0, 2, 1]]
    context = encodings.copy()
    context[3] = [0.0, 1.0, 0.5]  # another response is ahead
    outputs = {
        "context_encoding": context,
        "response_encoding": encodings,
        "negative_encoding": encodings,
        "scale": 1.0,
    }
    groups = np.array([5, 7, 5, 9, 7], "int32")
    marked = {"response_groups": groups, "negative_groups": groups}
    for inputs, expected in (({}, [0, 0, 0, 0, 0]), (marked, [1, 1, 1, 0, 1])):
        measures = Ranking(EncoderTraining()).measures(inputs, outputs)
        accuracy = next(values for name, values, _ in measures if name == "batch_accuracy")
        assert np.asarray(accuracy).tolist() == expected


def batches(corpus, folder, *, per_pair=1, seed=0, count=14, **options):
    examples = ArrayFolder(corpus.arrays).open("train", max_tokens=60)
    mined = HardNegatives(folder, examples, per_pair=per_pair, seed=seed)
    made = TrainingBatches(
        examples, batch_size=16, row_tokens=64, shuffle_buffer=32, seed=0, additions=[mined],
        marks_duplicates=True, **options,
    )  # fmt: skip
    return list(itertools.islice(made, count))


def test_a_ranker_gets_mined_negatives_and_samples_the_rest(corpus, checkpoints, negatives):
    """With 40 of 90 examples, some mined negatives are not in the ranker's training data."""
    training = RankerTraining(
        data=corpus.arrays, negatives_from="mined", hard_negatives=negatives, negatives=5
    )
    config = RankerConfig(load_config(checkpoints["single"]), HeadConfig("poly"))
    vocabulary = corpus.vocabulary
    examples = open_examples(corpus.arrays, "train", config, vocabulary=vocabulary, max_examples=40)
    sampler = open_sampler(examples, training)
    place = np.concatenate(examples.candidates)
    filled = 0
    for i, numbers in enumerate(mined_in(negatives)[:40]):
        drawn = sampler.draw(i, np.random.default_rng(i)).tolist()
        expected = {place[j] for j in numbers if 0 <= j < 40} - {place[i]}
        assert expected <= {*drawn}
        assert len({*drawn} - {place[i]}) == 5
        filled += len(expected) < 3
    assert 0 < filled < 40
    with pytest.raises(ValueError, match="convert-tf tokenize"):
        open_sampler(examples, dataclasses.replace(training, data=corpus.records))


def test_batches_hold_the_responses_of_mined_examples(corpus, negatives):
    examples = ArrayFolder(corpus.arrays).open("train", max_tokens=60)
    said = [tuple(text) for text in texts_of(examples, "response")]
    asked = {tuple(text): i for i, text in enumerate(texts_of(examples, "context"))}
    mined = mined_in(negatives)
    seen = {}
    for batch in batches(corpus, negatives, per_pair=2, count=20):  # more than three epochs
        assert batch["negative_slots"].shape == batch["negative_groups"].shape == (32,)
        drawn = texts_in(batch, "negative")
        groups = [*batch["response_groups"], *batch["negative_groups"]]
        texts = [*texts_in(batch, "response"), *drawn]
        for a, b in itertools.combinations(range(48), 2):
            assert (groups[a] == groups[b]) == (texts[a] == texts[b])
        for place, context in enumerate(texts_in(batch, "context")):
            example = asked[context]
            own = drawn[2 * place : 2 * place + 2]
            assert set(own) <= {said[i] for i in mined[example]}
            seen.setdefault(example, set()).update(own)
    assert np.mean([len(own) == 3 for own in seen.values()]) > 0.7  # each epoch draws others


def test_batches_do_not_depend_on_where_a_run_began_or_how_it_is_divided(corpus, negatives):
    whole = batches(corpus, negatives)
    again = batches(corpus, negatives, skip_batches=7, count=7)
    for a, b in zip(whole[7:], again, strict=True):
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])
    halves = [batches(corpus, negatives, part=(i, 2)) for i in range(2)]
    for batch, *parts in zip(whole, *halves, strict=True):
        drawn = [text for part in parts for text in texts_in(part, "negative")]
        assert drawn == texts_in(batch, "negative")
    other = batches(corpus, negatives, seed=1)
    assert any(texts_in(a, "negative") != texts_in(b, "negative")
               for a, b in zip(whole, other, strict=True))  # fmt: skip


def test_records_have_no_negatives(corpus, negatives, tmp_path):
    with pytest.raises(ValueError, match=r"contains records.*tokenize"):
        run(corpus.records, tmp_path / "run", hard_negatives=negatives,
            vocabulary=corpus.vocabulary)  # fmt: skip
    assert not (tmp_path / "run").exists()
