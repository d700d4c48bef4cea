"""Token ids on disk: their content, and batches that equal those of records."""

import json
import os
import shutil
import warnings
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from support.commands import call_command
from support.model_cases import texts_in
from support.record_files import read_texts
from support.token_corpus import NUM_OOV_BUCKETS, SOURCES, write_corpus

from convert_tf.data import token_arrays as arrays
from convert_tf.data import token_writer as tokenize
from convert_tf.data.batches import EvaluationBatches, ExampleOrder, TrainingBatches
from convert_tf.data.records import RecordFolder, read_turns
from convert_tf.data.schema import SelectedExamples
from convert_tf.data.shards import MARK_EVERY, list_shards
from convert_tf.data.token_arrays import ArrayFolder
from convert_tf.data.token_writer import tokenize_records
from convert_tf.data.unknown_tokens import checked_share
from convert_tf.text.tokenizer import load_tokenizer

NAMES = ("context", "response", "extra_context")
NUM_TRAIN = 3 * MARK_EVERY + 11


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), num_train=NUM_TRAIN)


@pytest.fixture
def copy(corpus, tmp_path):
    """A copy of the token ids, for tests that damage it."""
    shutil.copytree(corpus.arrays, tmp_path / "ids")
    return tmp_path / "ids"


@pytest.fixture(scope="module")
def folders(corpus):
    records = RecordFolder(
        corpus.records, vocabulary=corpus.vocabulary, num_oov_buckets=NUM_OOV_BUCKETS
    )
    return records, ArrayFolder(corpus.arrays)


def _batches(folder, count, *, max_tokens=60, with_extra_contexts=False, **options):
    examples = folder.open("train", max_tokens=max_tokens, with_extra_contexts=with_extra_contexts)
    options = {"batch_size": 8, "row_tokens": 64, "shuffle_buffer": 1000, "seed": 0, **options}
    return list(islice(TrainingBatches(examples, **options), count))


def _assert_equal(first, second):
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            assert one[name].dtype == other[name].dtype == np.int32
            np.testing.assert_array_equal(one[name], other[name])


def _pairs(batches) -> list[tuple]:
    return [
        pair
        for batch in batches
        for pair in zip(texts_in(batch, "context"), texts_in(batch, "response"), strict=True)
    ]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"seed": 5},
        {"shuffle_buffer": 40},
        {"shuffle_buffer": 1},
        {"skip_batches": 9, "shuffle_buffer": 40},
        {"skip_batches": 1000},
        {"max_tokens": 7},
        {"row_multiple": 4},
        {"with_extra_contexts": True},
        {"batch_size": NUM_TRAIN - 1},
    ],
    ids=str,
)
def test_both_kinds_give_the_same_batches_over_more_than_an_epoch(folders, options):
    number = 3 * NUM_TRAIN // options.get("batch_size", 8)
    records, ids = (_batches(folder, number, **options) for folder in folders)
    _assert_equal(records, ids)


@pytest.mark.parametrize("kind", [0, 1])
def test_resumed_batches_are_those_of_an_uninterrupted_run(folders, kind):
    options = {"shuffle_buffer": 40, "seed": 2}
    whole = _batches(folders[kind], 40, **options)
    for skipped in (1, 13, 14, 39):
        rest = _batches(folders[kind], 40 - skipped, skip_batches=skipped, **options)
        _assert_equal(rest, whole[skipped:])


@pytest.mark.parametrize("kind", [0, 1])
def test_each_pair_comes_once_in_an_epoch_whole(folders, kind):
    """The order depends on the seed, not on lengths. A batch size of seven divides no epoch."""
    options = {"shuffle_buffer": 30, "batch_size": 7}
    seen = _pairs(_batches(folders[kind], -(-2 * NUM_TRAIN // 7), **options))
    examples = folders[kind].open("train", max_tokens=60)
    stored = _pairs(EvaluationBatches(examples, 60, max_examples=NUM_TRAIN))
    assert len(set(stored)) > NUM_TRAIN // 2
    assert sorted(seen[:NUM_TRAIN]) == sorted(seen[NUM_TRAIN : 2 * NUM_TRAIN]) == sorted(stored)
    groups = islice(ExampleOrder(NUM_TRAIN, shuffle_buffer=30, seed=0).groups(), 3)
    order = [number for group in groups for number in group.numbers[group.permutation]]
    assert seen[: len(order)] == [stored[number] for number in order]


def test_words_of_a_bert(corpus, tmp_path):
    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
    entries += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    (tmp_path / "vocab.txt").write_text("\n".join(entries))
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    vocabulary = str(tmp_path / "vocab.txt")
    tokenize_records(corpus.records, str(tmp_path / "ids"), vocabulary=vocabulary)
    folder = ArrayFolder(str(tmp_path / "ids"))
    assert (folder.tokenizer_name, folder.vocab_size) == ("wordpiece", len(entries))
    assert (tmp_path / "ids" / "tokenizer_config.json").is_file()
    records = RecordFolder(corpus.records, vocabulary=vocabulary, num_oov_buckets=9)
    _assert_equal(*(_batches(one, 3) for one in (records, folder)))
    tokenize_records(corpus.records, str(tmp_path / "ids"), vocabulary=vocabulary, overwrite=True)


@pytest.mark.parametrize("with_extra_contexts", [False, True])
def test_evaluation_batches_are_the_texts_in_order(corpus, folders, with_extra_contexts):
    texts = read_texts(corpus.records, "dev", NAMES, max_examples=70)
    tokenizer = load_tokenizer(corpus.vocabulary, num_oov_buckets=NUM_OOV_BUCKETS)
    for folder in folders:
        examples = folder.open("dev", max_tokens=60, with_extra_contexts=with_extra_contexts)
        given = EvaluationBatches(examples, 60, max_examples=70, batch_size=32)
        first, again = list(given), list(given)  # each iteration starts again
        _assert_equal(first, again)
        assert len(first) == 3
        assert ("extra_context_slots" in first[0]) == with_extra_contexts
        for name in examples.names:
            expected = tokenizer.token_ids(texts[name])[:, :60].to_list()
            found = [text for batch in first for text in texts_in(batch, name)]
            assert found == [tuple(ids) for ids in expected]
        assert "response_groups" not in first[0]
        marked = list(EvaluationBatches(examples, 60, max_examples=70, marks_duplicates=True))
        groups = np.concatenate([batch.pop("response_groups") for batch in marked])
        responses = [tuple(ids) for ids in tokenizer.token_ids(texts["response"])[:, :60].to_list()]
        assert len({*zip(groups.tolist(), responses, strict=True)}) == len({*responses})
        assert len({*groups.tolist()}) == len({*responses})
        _assert_equal(marked, list(EvaluationBatches(examples, 60, max_examples=70)))


def test_extra_contexts_are_joined_most_recent_first(corpus):
    texts = read_texts(corpus.records, "train", NAMES)
    features = {f"context/{i}": tf.io.FixedLenFeature([], tf.string, "") for i in range(10)}
    records = tf.data.TFRecordDataset(list_shards(corpus.records, "train"))
    joined = []
    for record in records:
        turns = tf.io.parse_single_example(record, features)
        joined.append(b" ".join(t for i in range(10) if (t := turns[f"context/{i}"].numpy())))
    assert texts["extra_context"] == joined
    assert b"" in joined
    assert max(map(len, joined)) > 200


def test_files_hold_the_ids_of_the_texts(corpus):
    """The files are read without our reader, because other programs may rely on the format."""
    facts = json.loads(Path(corpus.arrays, "arrays.json").read_text())
    tokenizer = load_tokenizer(corpus.vocabulary, num_oov_buckets=NUM_OOV_BUCKETS)
    assert facts["version"] == 1
    assert facts["padding_id"] == tokenizer.padding_id == 57  # 52 letters and 5 hash buckets
    assert facts["dtype"] == "uint16"
    assert list(facts["splits"]) == ["train", "dev"]
    assert Path(corpus.arrays, "vocab.txt").read_bytes() == Path(corpus.vocabulary).read_bytes()
    texts = read_texts(corpus.records, "train", NAMES)
    for name in NAMES:
        ids = np.load(Path(corpus.arrays, f"train-{name}-ids.npy"), mmap_mode="r")
        offsets = np.load(Path(corpus.arrays, f"train-{name}-offsets.npy"), mmap_mode="r")
        assert (ids.dtype, offsets.dtype) == (np.uint16, np.int64)
        assert facts["splits"]["train"]["tokens"][name] == len(ids)
        assert facts["splits"]["train"]["examples"] == len(offsets) - 1 == NUM_TRAIN
        for index, text in enumerate(texts[name]):
            expected = tokenizer.token_ids([text])[0, :60].numpy()
            np.testing.assert_array_equal(ids[offsets[index] : offsets[index + 1]], expected)


def _sources_of_records(corpus):
    feature = {"source": tf.io.FixedLenFeature([], tf.string)}
    return [
        tf.io.parse_single_example(record, feature)["source"].numpy().decode()
        for record in tf.data.TFRecordDataset(list_shards(corpus.records, "train"))
    ]


def test_sources_are_those_of_the_records(corpus):
    facts = json.loads(Path(corpus.arrays, "arrays.json").read_text())
    assert sorted(facts["sources"]) == sorted(set(SOURCES))
    places = np.load(Path(corpus.arrays, "train-sources.npy"))
    assert [facts["sources"][place] for place in places] == _sources_of_records(corpus)


def test_shares_of_sources_leave_some_examples_out(corpus):
    examples = ArrayFolder(corpus.arrays).open("train", max_tokens=60)
    sources = _sources_of_records(corpus)
    first, stop = 20, NUM_TRAIN - 3
    whole = {(name, k) for k, name in enumerate(sources) if first <= k < stop}
    thinned = examples.thinned({"forum": 0.3, "": 0.0}, first, stop)
    numbers = thinned.tolist()
    kept = {(sources[k], k) for k in numbers}
    assert kept < whole
    assert {pair for pair in kept if pair[0] == "chat"} == {p for p in whole if p[0] == "chat"}
    counts = {name: sum(own == name for own, _ in kept) for name in SOURCES}
    assert counts[""] == 0
    assert counts["forum"] == int(0.3 * sum(own == "forum" for own, _ in whole)) > 10
    assert sorted(numbers) == numbers
    chosen, whole = (
        _pairs(EvaluationBatches(own, 60))
        for own in (SelectedExamples(examples, thinned), examples)
    )
    assert chosen == [whole[number] for number in numbers]


def test_shares_of_what_is_not_there_are_refused(copy):
    examples = ArrayFolder(str(copy)).open("train", max_tokens=60)
    with pytest.raises(
        ValueError, match=r"lack the sources 'none'\. They have '', 'chat', 'forum'"
    ):
        examples.thinned({"none": 0.5}, 0, NUM_TRAIN)
    places = np.load(copy / "train-sources.npy")
    np.save(copy / "train-sources.npy", places + 1)
    with pytest.raises(ValueError, match=r"number 3, but there are only 3, in .*train-sources"):
        examples.thinned({"chat": 0.5}, 0, NUM_TRAIN)
    np.save(copy / "train-sources.npy", places[:-1])
    with pytest.raises(ValueError, match=r"train-sources\.npy holds .* instead of int32 of shape"):
        examples.thinned({"chat": 0.5}, 0, NUM_TRAIN)
    (copy / "train-sources.npy").unlink()
    with pytest.raises(ValueError, match=r"train-sources.*Write it again"):
        examples.thinned({"chat": 0.5}, 0, NUM_TRAIN)


def test_size_of_the_batches_leaves_no_trace(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(tokenize, "BATCH_SIZE", 10)
    output = str(tmp_path / "ids")
    tokenize_records(corpus.records, output, vocabulary=corpus.vocabulary,
                     num_oov_buckets=NUM_OOV_BUCKETS)  # fmt: skip
    for name in os.listdir(corpus.arrays):
        assert Path(output, name).read_bytes() == Path(corpus.arrays, name).read_bytes()


def test_large_vocabularies_have_32_bits(corpus, tmp_path):
    assert arrays.dtype_of_ids(65_535) == "uint16"  # the padding id is never stored, but fits
    assert arrays.dtype_of_ids(65_536) == "int32"
    facts = tokenize_records(
        corpus.records, str(tmp_path / "ids"), vocabulary=corpus.vocabulary, num_oov_buckets=70_000
    )
    assert facts["dtype"] == "int32"
    records = RecordFolder(corpus.records, vocabulary=corpus.vocabulary, num_oov_buckets=70_000)
    batches = _batches(ArrayFolder(str(tmp_path / "ids")), 5)
    assert max(batch["token_ids"].max() for batch in batches) == 70_052
    assert any(((b["token_ids"] > 65_535) & (b["token_ids"] < 70_052)).any() for b in batches)
    _assert_equal(batches, _batches(records, 5))


def test_fewer_tokens_than_stored_may_be_read_and_not_more(corpus, tmp_path):
    output = str(tmp_path / "ids")
    tokenize_records(corpus.records, output, vocabulary=corpus.vocabulary, max_tokens=9,
                     num_oov_buckets=NUM_OOV_BUCKETS)  # fmt: skip
    folder = ArrayFolder(output)
    _assert_equal(_batches(folder, 4, max_tokens=8), _batches(ArrayFolder(corpus.arrays), 4,
                                                              max_tokens=8))  # fmt: skip
    with pytest.raises(
        ValueError, match=r"max_tokens is 10, .*cut to 9 tokens.*--max_tokens of at least 10"
    ):
        folder.open("train", max_tokens=10)


def test_split_that_is_not_there_is_named(corpus):
    with pytest.raises(ValueError, match=r"lacks the split 'test'. It has train, dev"):
        ArrayFolder(corpus.arrays).open("test", max_tokens=60)


def _facts(**changes):
    """Return a function that changes the facts of a folder."""

    def damage(folder: Path) -> None:
        facts = json.loads((folder / "arrays.json").read_text())
        (folder / "arrays.json").write_text(json.dumps({**facts, **changes}))

    return damage


def _text(content: str):
    return lambda folder: (folder / "arrays.json").write_text(content)


def _size(size: int):
    return lambda folder: os.truncate(folder / "train-context-ids.npy", size)


def _array(name: str, change):
    def damage(folder: Path) -> None:
        path = folder / f"train-context-{name}.npy"
        np.save(path, change(np.load(path)))

    return damage


def _middle(value: int):
    def change(values: np.ndarray) -> np.ndarray:
        values[len(values) // 2] = value
        return values

    return change


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_facts(version=2), "has version 2 of its format, but this version of convert_tf reads"),
        (_facts(padding_id="9"), "with a wrong value: padding_id"),
        (_facts(dtype="float32"), "with a wrong value: dtype"),
        (
            _facts(splits={"train": 40}),
            r"arrays\.json has .* with a wrong value: splits\. Write it",
        ),
        (_facts(splits={"train": {"tokens": {}}}), "with a wrong value: splits"),
        (_facts(splits={"train": {"examples": "40"}}), "with a wrong value: splits"),
        (_facts(splits={"train": {"examples": -1}}), "with a wrong value: splits"),
        (_facts(sources="reddit"), "with a wrong value: sources"),
        (_facts(sources=None, splits={"train": []}), "with a wrong value: splits, sources"),
        (_facts(sources=[["reddit"]]), "with a wrong value: sources"),
        (_facts(vocabulary_sha256="0"), "vocab.txt' is not the vocabulary"),
        (_facts(vocabulary="none.txt"), "lacks its vocabulary"),
        (_text("{"), r"arrays\.json"),
        (_text("[]"), r"arrays\.json"),
        (_size(0), "incomplete.*train-context-ids.*Write it again"),
        (_size(50), "incomplete.*train-context-ids.*Write it again"),
        (_size(1000), "incomplete.*train-context-ids.*Write it again"),
        (lambda folder: (folder / "train-context-ids.npy").unlink(), "incomplete.*context-ids"),
        (_array("ids", lambda ids: ids.astype(np.int32)), r"holds int32 .* instead of uint16"),
        (_array("ids", lambda ids: ids[:-1]), "token ids are damaged.*context"),
        (_array("offsets", lambda offsets: offsets[:-1]), "token ids are damaged.*context"),
        (_array("ids", _middle(57)), "are damaged: an id is 57, but .* below 57.*context-ids"),
        (_array("offsets", _middle(10**6)), "are damaged: an offset.*context-offsets"),
        (_array("offsets", _middle(-5)), "are damaged: an offset.*context-offsets"),
    ],
)
def test_damaged_token_ids_are_refused(copy, damage, message):
    (copy / "sha256.json").unlink()  # as in folders of earlier versions
    damage(copy)
    with pytest.raises(ValueError, match=message):
        _batches(ArrayFolder(str(copy)), 2 * NUM_TRAIN // 8)


@pytest.mark.parametrize("name", ["context-ids", "response-offsets", "sources"])
def test_changed_token_ids_are_noticed_when_a_split_is_opened(copy, name):
    """Six ids overwritten with another valid id are noticed, and so are offsets and sources."""
    path = copy / f"train-{name}.npy"
    values = np.load(path)
    values[1:7] = values[0]
    np.save(path, values)
    folder = ArrayFolder(str(copy))
    for _ in range(2):  # a file that failed the check is checked again
        with pytest.raises(ValueError, match=rf"train-{name}\.npy' was damaged or changed"):
            folder.open("train", max_tokens=60)
    assert folder.open("dev", max_tokens=60).num_examples
    (copy / "sha256.json").unlink()  # as in folders of earlier versions
    assert folder.open("train", max_tokens=60).num_examples == NUM_TRAIN


def test_the_files_of_texts_that_are_not_read_are_not_checked(copy, monkeypatch):
    checked = []
    monkeypatch.setattr(arrays, "check_files", lambda folder, *names: checked.extend(names))
    folder = ArrayFolder(str(copy))
    for with_extra_contexts in (False, True, True):
        folder.open("train", max_tokens=60, with_extra_contexts=with_extra_contexts)
    assert len(checked) == len({*checked}) == 8
    assert not any(name.startswith("train-extra") for name in checked[:6])


def test_wrong_input_leaves_nothing(corpus, tmp_path):
    def fails(match, *, data=corpus.records, vocabulary=corpus.vocabulary, **options):
        with pytest.raises((ValueError, OSError), match=match):
            tokenize_records(str(data), str(tmp_path / "ids"), vocabulary=str(vocabulary),
                             **options)  # fmt: skip
        assert not [name for name in os.listdir(tmp_path) if "ids" in name]

    fails("No such file", vocabulary=tmp_path / "none.txt")
    fails("has no records of the split train", data=tmp_path)
    damaged = tmp_path / "damaged"
    shutil.copytree(corpus.records, damaged)
    shard = next(damaged.glob("train-00001-*"))
    content = bytearray(shard.read_bytes())
    shard.write_bytes(content[:-1])
    fails("end within a record", data=damaged)
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    fails("the train records.*corrupted", data=damaged)


def test_damaged_record_is_found_where_it_is_read(corpus, tmp_path):
    shutil.copytree(corpus.records, tmp_path / "records")
    shard = next((tmp_path / "records").glob("train-00002-*"))
    content = bytearray(shard.read_bytes())
    content[-20] ^= 1  # in the data of the last record
    shard.write_bytes(content)
    with pytest.raises(ValueError, match=r"the train records.*corrupted record"):
        [*read_turns(str(tmp_path / "records"), "train")]


def test_record_of_another_schema_is_named(corpus, tmp_path):
    (tmp_path / "records").mkdir()
    with tf.io.TFRecordWriter(str(tmp_path / "records" / "train-00000-of-00001.tfrecord")) as file:
        for _ in range(100):
            file.write(b"no example")
    folder = RecordFolder(
        str(tmp_path / "records"), vocabulary=corpus.vocabulary, num_oov_buckets=NUM_OOV_BUCKETS
    )
    with pytest.raises(ValueError, match=r"the train records.*Could not parse example"):
        _batches(folder, 1)


@pytest.mark.parametrize("tokenizer", ["subword", "wordpiece"])
def test_texts_that_a_vocabulary_hardly_knows_are_warned_of(corpus, tmp_path, tokenizer):
    """Ids after the vocabulary are unknown; WordPiece's `[UNK]` is an ordinary entry."""
    path = tmp_path / "vocab.txt"
    path.write_text("[PAD]\n[UNK]\na\n")
    unknown = {"subword": 3, "wordpiece": 1}[tokenizer]

    def share_of(*ids):
        what = {"tokenizer": tokenizer, "vocab_size": 3, "what": "the texts of data/"}
        return checked_share(np.array(ids, int), path, **what)

    with pytest.warns(UserWarning, match="60% of the tokens of the texts of data/ are unknown to"):
        assert share_of(unknown, unknown, unknown, 2, 2) == 0.6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert share_of(unknown, 2) == 0.5
        assert share_of() == 0.0
    (tmp_path / "other.txt").write_text("﹏ж\nж\n")
    with pytest.warns(UserWarning, match=r"100% of the tokens .* are unknown to .*other\.txt"):
        tokenize_records(corpus.records, str(tmp_path / "ids"), vocabulary=f"{tmp_path}/other.txt")


def test_the_command_passes_its_options_on(corpus, tmp_path):
    output = tmp_path / "ids"
    options = (
        "tokenize", f"--vocab={corpus.vocabulary}", f"--output={output}",
        f"--num_oov_buckets={NUM_OOV_BUCKETS}",
    )  # fmt: skip
    call_command(*options, f"--data={corpus.records}")
    for name in os.listdir(corpus.arrays):
        assert (output / name).read_bytes() == Path(corpus.arrays, name).read_bytes()
    with pytest.raises(SystemExit, match="--dev_fraction has no effect without --utterances"):
        call_command(*options, f"--data={corpus.records}", "--dev_fraction=0.1")

    for fraction in ("1", "-0.1", "nan"):
        with pytest.raises(SystemExit, match="dev_fraction must be from 0 to below 1"):
            call_command(*options, "--utterances=texts", f"--dev_fraction={fraction}")

    texts = tmp_path / "texts.jsonl"
    with texts.open("w") as file:
        for letter in "abcdefgh":
            asked = {"text": f"what is {letter}", "label": letter, "source": "bot"}
            seen = {"text": f"i saw {letter}", "label": "seen", "source": "forum"}
            file.write(f"{json.dumps(asked)}\n{json.dumps(seen)}\n")
    call_command(
        *options, f"--utterances={texts}", "--overwrite", "--max_tokens=4", "--dev_fraction=0.5",
        "--ignored_labels=forum",
    )  # fmt: skip
    folder = ArrayFolder(str(output))
    assert folder.max_tokens == 4
    for split in ("train", "dev"):
        assert folder.open(split, max_tokens=4, holds="utterances").num_examples > 0
    facts = json.loads((output / "arrays.json").read_text())
    assert sorted(facts["utterances"]["labels"]) == [*"abcdefgh"]
