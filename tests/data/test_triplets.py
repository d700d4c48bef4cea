"""Triplets: files, token ids, and the triplets that are trained with each pair."""

import json

import numpy as np
import pytest
from support.commands import call_command
from support.token_corpus import NUM_OOV_BUCKETS, write_corpus

from convert_tf.data import packing
from convert_tf.data.token_arrays import ArrayFolder
from convert_tf.data.token_writer import tokenize_triplets, tokenize_utterances
from convert_tf.data.triplets import Triplet, TripletDraws, read_triplets
from convert_tf.text.tokenizer import load_tokenizer

ROWS = [
    {"anchor": f" turn on light {i} ", "positive": f"light {i} on", "negative": f"light {i} off"}
    for i in range(5)
]
ROWS[1] |= {"source": "home", "other": 3}


def written(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    folder = tmp_path_factory.mktemp("triplets")
    corpus = write_corpus(folder, num_train=20)
    files = written(folder / "triplets.jsonl", ROWS)
    call_command(
        "tokenize", "--triplets", files, "--vocab", corpus.vocabulary, "--output",
        str(folder / "triplet_ids"), f"--num_oov_buckets={NUM_OOV_BUCKETS}",
    )  # fmt: skip
    ids = ArrayFolder(str(folder / "triplet_ids"))
    assert ids.holds == "triplets"
    with pytest.raises(ValueError, match="--triplets"):
        ids.open("train", max_tokens=9)
    with pytest.raises(ValueError, match="token ids of pairs"):
        ArrayFolder(corpus.arrays).open("train", max_tokens=9, holds="triplets")
    return ids.open("train", max_tokens=60, holds="triplets"), corpus


def test_rows_of_files(tmp_path):
    found = list(read_triplets([written(tmp_path / "a.jsonl", ROWS)]))
    assert found[0] == Triplet("turn on light 0", "light 0 on", "light 0 off", "")
    assert found[1].source == "home"
    table = tmp_path / "b.csv"
    table.write_text("negative,anchor,positive\noff,on,not off\n")
    assert list(read_triplets([str(table)])) == [Triplet("on", "not off", "off")]


def test_a_file_whose_name_looks_like_a_pattern_is_read(tmp_path):
    written(tmp_path / "rows 1.jsonl", ROWS[1:2])
    path = written(tmp_path / "rows [1].jsonl", ROWS[:1])
    assert [triplet.anchor for triplet in read_triplets([path])] == ["turn on light 0"]


@pytest.mark.parametrize("row", [{"anchor": "a", "positive": "b"}, {**ROWS[0], "negative": " "}])
def test_a_row_without_three_texts_is_named(row, tmp_path):
    with pytest.raises(ValueError, match="line 2"):
        list(read_triplets([written(tmp_path / "a.jsonl", [ROWS[0], row])]))
    with pytest.raises(ValueError, match=r"missing\.jsonl"):
        list(read_triplets([str(tmp_path / "missing.jsonl")]))


@pytest.mark.parametrize("kind", ["triplets", "utterances"])
def test_files_without_rows_are_refused(kind, examples, tmp_path):
    (tmp_path / "a.jsonl").write_text("\n")
    with pytest.raises(ValueError, match=r"a\.jsonl' has no t"):
        {"triplets": tokenize_triplets, "utterances": tokenize_utterances}[kind](
            [str(tmp_path / "a.jsonl")], str(tmp_path / "ids"), vocabulary=examples[1].vocabulary
        )
    assert not (tmp_path / "ids").exists()


def test_texts_are_stored_by_name(examples):
    stored, corpus = examples
    tokenizer = load_tokenizer(corpus.vocabulary, num_oov_buckets=NUM_OOV_BUCKETS)
    for name, key in zip(stored.names, ("anchor", "positive", "negative"), strict=True):
        flat, splits = tokenizer.flat_ids([row[key].strip().encode() for row in ROWS], 60)
        texts = stored.texts(name, np.arange(len(ROWS)))
        np.testing.assert_array_equal(texts.flat, flat)
        np.testing.assert_array_equal(texts.row_splits, splits)


def test_draws_follow_the_positions_alone(examples):
    stored, _ = examples
    draws = TripletDraws(stored, per_pair=2, seed=3)
    positions = np.arange(5)
    drawn = draws.draw(positions)
    # The draws for five pairs contain two epochs of the five triplets.
    assert sorted(drawn.ravel()[:5]) == sorted(drawn.ravel()[5:]) == list(range(5))
    np.testing.assert_array_equal(draws.draw(positions[3:]), drawn[3:])
    other = TripletDraws(stored, per_pair=2, seed=4)
    assert (other.draw(positions) != drawn).any()
    texts, columns = draws.of_batch(positions, positions, positions)
    assert draws.names == ("anchor",) * 2 + ("paraphrase",) * 2 + ("opposite",) * 2
    by_name = packing.by_name(np.arange(len(texts.lengths)), draws.names)
    groups = packing.text_groups(texts)
    for name in ("anchor", "paraphrase", "opposite"):
        # Under every name, the texts of the first pair come first.
        np.testing.assert_array_equal(columns[f"{name}_groups"], groups[by_name[name]])
        expected = packing.text_groups(stored.texts(name, drawn.ravel()))
        np.testing.assert_array_equal(columns[f"{name}_groups"], expected)
