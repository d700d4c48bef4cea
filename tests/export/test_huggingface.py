"""A Hugging Face folder gives the vectors of `SentenceEncoder`.

`tests/clients/real/huggingface_probe.py` opens such a folder in Hugging Face programs.
"""

import itertools
import json
import shutil
import unicodedata

import numpy as np
import onnxruntime
import pytest
import yaml
from support.alike_texts import OtherWriter, sample_texts
from support.documents import ROOT
from support.huggingface_export import MAX_TOKENS, exported_folder
from support.tiny_checkpoint import write_checkpoint

from convert_tf import SentenceEncoder, export_model, module_path
from convert_tf.checkpoints.kinds import CheckpointError
from convert_tf.export.cards import encoder_card, notes_of, without_metadata
from convert_tf.export.huggingface.reading import opened_folder
from convert_tf.export.huggingface.writing import _TEMPLATE, _fill_tokenizer, _special_tokens
from convert_tf.storage.json_text import json_file
from convert_tf.text.characters import fold, ranges_of
from convert_tf.text.plain_tokenizer import PlainTokenizer
from convert_tf.text.subwords import WORD_START
from convert_tf.text.vocabulary import read_vocabulary

PADDING, UNKNOWN = "\ufdd0padding", "\ufdd0unknown"
TEXTS = ["how are you?", "", "a", "hello,world!yes.", "AB" * 7, "what is this", "x y"]
PROMPTS = {
    "": "encode",
    "context": "encode_contexts",
    "response": "encode_responses",
    "query": "encode_similarity",
    "document": "encode_similarity",
    "similarity": "encode_similarity",
    "reduced": "encode_reduced",
}


@pytest.fixture(scope="module")
def exported():
    return exported_folder()


@pytest.fixture(scope="module")
def most_tokens(exported):
    """Return the number of tokens, with special tokens, to which programs cut texts."""
    settings = json.loads((exported / "hf" / "sentence_bert_config.json").read_text())
    return settings["max_seq_length"]


@pytest.fixture(scope="module")
def tokenizer(exported, most_tokens):
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(exported / "hf" / "tokenizer.json"))
    tokenizer.enable_truncation(most_tokens)
    return tokenizer


def encoded(exported, tokenizer, prompt, *, side="right", model="model", texts=TEXTS):
    """Return the graph's output, float32 `[texts, tokens, dim]`, computed as programs do."""
    settings = json.loads((exported / "hf" / "config_sentence_transformers.json").read_text())
    tokenizer.enable_padding(
        direction=side, pad_id=tokenizer.token_to_id(PADDING), pad_token=PADDING
    )
    prefix = settings["prompts"][prompt] if prompt else ""
    rows = tokenizer.encode_batch([prefix + text for text in texts])
    session = onnxruntime.InferenceSession(str(exported / "hf" / "onnx" / f"{model}.onnx"))
    feeds = {
        "input_ids": np.array([row.ids for row in rows], np.int64),
        "attention_mask": np.array([row.attention_mask for row in rows], np.int64),
    }
    return session.run(["last_hidden_state"], feeds)[0]


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("prompt", PROMPTS)
def test_every_place_holds_the_vector_of_sentence_encoder(exported, tokenizer, prompt, side):
    found = encoded(exported, tokenizer, prompt, side=side)
    encoder = SentenceEncoder(str(exported / "encoder.onnx"))
    wanted = getattr(encoder, PROMPTS[prompt])(TEXTS)
    wanted = np.pad(wanted, ((0, 0), (0, found.shape[2] - wanted.shape[1])))
    np.testing.assert_allclose(found, np.broadcast_to(wanted[:, None], found.shape), atol=1e-5)
    assert np.abs(wanted).max() > 0.1


@pytest.mark.parametrize("prompt", PROMPTS)
def test_programs_read_as_many_subwords_as_sentence_encoder(exported, tokenizer, prompt):
    text = "y" * MAX_TOKENS  # a subword for each letter
    encoder = SentenceEncoder(str(exported / "encoder.onnx"))
    found = encoded(exported, tokenizer, prompt, texts=[text])[0, 0]
    wanted, shorter = getattr(encoder, PROMPTS[prompt])([text, text[1:]])
    np.testing.assert_allclose(found[: len(wanted)], wanted, atol=1e-5)
    assert np.abs(wanted - shorter).max() > 1e-3


@pytest.mark.parametrize("model", ["model", "model_quantized"])
def test_a_graph_has_a_position_for_the_tokens_of_any_program(exported, model):
    session = onnxruntime.InferenceSession(str(exported / "hf" / "onnx" / f"{model}.onnx"))
    ids = np.ones((1, 512 + 2), np.int64)
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    assert np.isfinite(session.run(None, feeds)[0]).all()


def test_bytes_are_close(exported, tokenizer):
    exact, rounded = (
        encoded(exported, tokenizer, "", model=name)[:, 0] for name in ("model", "model_quantized")
    )
    assert 0 < np.linalg.norm(exact - rounded) < 0.15 * np.linalg.norm(exact)


def test_kinds_may_be_mixed_in_a_batch(exported, tokenizer):
    one_kind = encoded(exported, tokenizer, "context")[0, 0]
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id(PADDING))
    rows = tokenizer.encode_batch(["\ufdd0context" + TEXTS[0], TEXTS[3]])
    session = onnxruntime.InferenceSession(str(exported / "hf" / "onnx" / "model.onnx"))
    ids, mask = (
        np.array([getattr(row, name) for row in rows], np.int64)
        for name in ("ids", "attention_mask")
    )
    found = session.run(None, {"input_ids": ids, "attention_mask": mask})[0][:, 0]
    np.testing.assert_allclose(found[0], one_kind, atol=1e-5)
    np.testing.assert_allclose(found[1], encoded(exported, tokenizer, "")[3, 0], atol=1e-5)


@pytest.mark.parametrize(
    "text", ["Hello there!yes", "", "how ARE you,now", " a", "a ", " ", "a  b", "w" * 150]
)
def test_tokens_are_those_of_the_vocabulary(exported, tokenizer, most_tokens, text):
    subwords = read_vocabulary(exported / "run" / "vocab.txt")
    wanted, _ = PlainTokenizer(subwords, num_oov_buckets=7).flat_ids([text])
    tokenizer.no_truncation()
    found = tokenizer.encode(text, add_special_tokens=False).ids
    tokenizer.enable_truncation(most_tokens)
    # The vocabulary has no space character. All characters outside it have the same id.
    assert found == np.minimum(wanted, len(subwords)).tolist()


def test_a_word_begins_after_an_unknown_character_and_200_others(tokenizer, most_tokens):
    tokenizer.no_truncation()
    assert tokenizer.encode("a☃b", add_special_tokens=False).tokens == ["a", UNKNOWN, "b"]
    tokens = tokenizer.encode("q" * 450, add_special_tokens=False).tokens
    assert [i for i, token in enumerate(tokens) if token == "q"] == [0, 200, 400]
    tokenizer.enable_truncation(most_tokens)


def test_files_say_what_programs_look_for(exported):
    folder = exported / "hf"
    config = json.loads((folder / "config.json").read_text())
    assert config["hidden_size"] == config["reduction_heads"] * config["embedding_dim"]
    assert config["similarity_dim"] == 5
    card = (folder / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: sentence-transformers\n")
    assert "SentenceTransformer(folder, trust_remote_code=True)" in card and "## Ours" in card
    similarity = (
        "| prompt `query` or `document` or `similarity` or `STS` | 5 numbers, L2-normalised;"
    )
    assert "encoder.encode_query(" in card and similarity in card
    assert "| no prompt | " in card and "encode_similarity" not in card.split("## Ours")[0]
    assert "hash buckets |" not in card.replace("the mean of the hash buckets |", "")
    assert "one row for all unknown characters" in card and "share 7 rows" not in card
    assert "| computes in | float32; `onnx/model_quantized.onnx` in bytes" in card
    pooling = json.loads((folder / "1_Pooling" / "config.json").read_text())
    assert [name for name, value in pooling.items() if value is True] == ["pooling_mode_cls_token"]
    assert not [path for path in folder.rglob("*") if path.name.startswith(".")]


def test_an_encoder_without_similarity_has_no_such_prompt(tiny_modules, tmp_path):
    export_model(tiny_modules["single"][0], tmp_path / "hf", format="huggingface")
    settings = json.loads((tmp_path / "hf" / "config_sentence_transformers.json").read_text())
    assert set(settings["prompts"]) == {"context", "response", "reduced"}
    assert "ufdd0similarity" not in (tmp_path / "hf" / "tokenizer.json").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "huggingface", "network_bits": 8}, "a 32-bit and an 8-bit network"),
        ({"format": "onnx"}, "does not fit the format onnx"),
        ({"format": "huggingface", "max_tokens": 0}, "max_tokens must be at least 1"),
        ({"format": "torch"}, "format must be one of module, onnx, huggingface"),
    ],
)
def test_what_cannot_be_written_is_refused(tiny_modules, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        export_model(tiny_modules["single"][0], tmp_path / "hf", **options)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("wider", [{"encoding_dim": 129}, {"similarity_dim": 129}])
def test_vectors_longer_than_r_are_refused(tmp_path, wider):
    """The vector r of the tiny encoder has 128 numbers."""
    run = write_checkpoint(tmp_path / "run", **wider)
    with pytest.raises(ValueError, match=r"run' has vectors of 129 numbers, .* r, which has 128\."):
        export_model(run, tmp_path / "hf", format="huggingface")
    assert not (tmp_path / "hf").exists()


def test_earlier_turns_and_other_folders_are_refused(exported, tiny_modules, tmp_path):
    with pytest.raises(ValueError, match="reads earlier turns"):
        export_model(tiny_modules["multi"][0], tmp_path / "hf", format="huggingface")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(ValueError, match="mine"):
            export_model(
                exported / "run", tmp_path / "mine", format="huggingface", overwrite=overwrite
            )
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]


@pytest.fixture(scope="module")
def released():
    """Return the subwords of the released encoders, and the tokenizer of their folders."""
    tokenizers = pytest.importorskip("tokenizers")
    subwords = read_vocabulary(
        ROOT / "hub_modules" / "convert_small" / "1" / "assets" / "vocab.txt"
    )
    content = json_file(_TEMPLATE / "tokenizer.json")
    _fill_tokenizer(content, subwords, _special_tokens(len(subwords), has_similarity=True))
    return subwords, tokenizers.Tokenizer.from_str(json.dumps(content))


def test_texts_that_a_person_reads_as_the_same_have_the_ids_of_python(released):
    subwords, tokenizer = released
    writer = OtherWriter(seed=1)
    texts = [
        way(text)
        for text, way in zip(
            sample_texts(3000),
            itertools.cycle((writer.mixed, writer.spaced, writer.shaped)),
            strict=False,
        )
    ]
    ids, splits = PlainTokenizer(subwords).flat_ids(texts)
    ids = np.minimum(ids, len(subwords))  # unknown characters share one id
    rows = tokenizer.encode_batch(texts, add_special_tokens=False)
    for text, row, own in zip(texts, rows, np.split(ids, splits[1:-1]), strict=True):
        assert row.ids == own.tolist(), ascii(text)


@pytest.mark.parametrize("run", ["." * 200, ". " * 100])
def test_runs_of_punctuation_are_split_after_200_characters(released, run):
    subwords, tokenizer = released
    plain = PlainTokenizer(subwords)
    found = tokenizer.encode(run * 11 + "end", add_special_tokens=False).ids
    assert found == plain.run_ids(run) * 11 + plain.run_ids("end")


@pytest.mark.parametrize(
    "text",
    [
        "a <|response|> b",
        "<|context|>x",
        "<|similarity|>",
        "[PAD]",
        "[UNK]?",
        "[CLS] a",
        "[MASK]</s>",
    ],
)
def test_names_of_special_tokens_are_texts_like_any_other(released, text):
    subwords, tokenizer = released
    wanted, _ = PlainTokenizer(subwords).flat_ids([text])
    assert tokenizer.encode(text, add_special_tokens=False).ids == wanted.tolist()


def test_every_character_is_folded_as_in_python(released):
    subwords, tokenizer = released
    alphabet = {c for subword in subwords for c in subword.removeprefix(WORD_START)}
    names = ("alike", "composing", "spaces", "unseen", "joiners", "hyphens")
    characters = [chr(c) for name in names for points in ranges_of(name) for c in points]
    kept = [chr(c) for points in ranges_of("kept") for c in points]
    unknown = {*kept} - alphabet
    for character in (*characters, *(c for c in kept if c in alphabet)):
        if unknown & {*fold(f"a{character}")}:  # NFC produced an unknown character
            continue
        text = f"a {character} 1{character}z❤{character}"
        assert tokenizer.normalizer.normalize_str(text) == fold(text).lower(), ascii(character)
    for marks in ("\u0301\u0323", "\u0344", "\uff9e\u0301"):
        for letter in ("e", "\u30ab", " ", "\ufcf2"):
            text = f"a {letter}{marks * 31}z"
            assert tokenizer.normalizer.normalize_str(text) == fold(text).lower(), ascii(text)
    # Characters outside the vocabulary stay unknown, whatever they look like.
    for character in unknown - {*"\ufe4d\ufe4e\ufe4f"}:
        if unicodedata.normalize("NFC", character) == character:
            found = tokenizer.encode(f"a{character}", add_special_tokens=False).tokens
            assert found == ["a", UNKNOWN], ascii(character)


def test_the_card_of_a_module_is_the_card_of_its_folder(tiny_modules, tmp_path):
    module = tmp_path / "mine" / "1"
    shutil.copytree(tiny_modules["single"][1], module)
    card = (module / "MODEL_CARD.md").read_text()
    metadata = "license: mit\nmodel-index: [{name: mine, results: []}]"
    notes = f"<!-- hub metadata\n{metadata}\n-->\n\n## Data\n\nMail.\n\n## Results\n\n99 %"
    end = "<!-- end of notes -->"
    assert card.count(end) == 1
    (module / "MODEL_CARD.md").write_text(card.replace(end, f"{notes}\n\n{end}"))
    export_model(module, tmp_path / "hf", format="huggingface")
    _, front, text = (tmp_path / "hf" / "README.md").read_text().split("---\n", 2)
    said = yaml.safe_load(front)
    assert (said["license"], said["library_name"]) == ("mit", "sentence-transformers")
    assert said["model-index"] == [{"name": "mine", "results": []}]
    assert (
        "\n## Data\n\nMail.\n\n## Results\n\n99 %\n\n<!-- end of notes -->\n\n## Limits\n" in text
    )
    assert "hub metadata" not in text and "shares of sources" not in text
    assert "no evaluation" not in text and "Recipes and pictures, if the card names any," in text
    assert "| data |" not in text and "| steps | 900 |" in text


def test_the_notes_of_a_folder_are_kept(exported, tmp_path):
    notes = "<!-- hub metadata\nlicense: mit\n-->\n\n## Data\n\nMail."
    export_model(exported / "hf", tmp_path / "one", format="huggingface", notes=notes)
    export_model(tmp_path / "one", tmp_path / "two", format="huggingface")
    one, two = ((tmp_path / name / "README.md").read_text() for name in ("one", "two"))
    assert yaml.safe_load(two.split("---\n")[1])["license"] == "mit"
    assert two.count("## Data\n\nMail.") == 1 and one.split("---\n")[1] == two.split("---\n")[1]


def test_edited_metadata_for_the_hub_are_kept(exported, tmp_path):
    """A person, or a form of the hub, sorts entries and writes lists over several lines."""
    saved = shutil.copytree(exported / "hf", tmp_path / "saved")
    card = (saved / "README.md").read_text().split("---\n", 2)[2]
    added = ["license: mit\n", "datasets:\n- mail\n\n- chats\n", "model-index:\n  - name: mine\n"]
    tags = 'tags:\n- old\n\n- onnx\n"language":\n  - de\n'
    front = f"{added[0]}{tags}{added[1]}library_name: x\n{added[2]}pipeline_tag: >-\n  y\n"
    (saved / "README.md").write_text(f"--- \n{front}---\n{card}---\n")
    export_model(saved, tmp_path / "hf", format="huggingface")
    found, first = (
        (folder / "README.md").read_text().split("---\n", 2)
        for folder in (tmp_path / "hf", exported / "hf")
    )
    assert found[1] == first[1] + "".join(added)
    assert found[2].count("## Ours") == 1 and "license" not in found[2]


@pytest.mark.parametrize("notes", ["", "## Results\n\n99 %"])
def test_a_card_without_an_evaluation_says_so_once_or_has_the_results_of_its_author(
    exported, tmp_path, notes
):
    ignore = shutil.ignore_patterns("README.md")
    saved = shutil.copytree(exported / "hf", tmp_path / "saved", ignore=ignore)
    export_model(saved, tmp_path / "hf", format="huggingface", notes=notes)
    card = (tmp_path / "hf" / "README.md").read_text()
    assert card.count("valuation") == (0 if notes else 1) and "not record" not in card
    (tmp_path / "MODEL_CARD.md").write_text(card)
    assert notes_of(tmp_path) == notes


@pytest.mark.parametrize(
    "notes",
    [
        "Trained on our FAQ. Licence: CC-BY.",
        "# Our model\n\nTrained at night.\n\n## Data\n\nMail.",
        "- data: mail\n\n<!-- hub metadata\nlicense: mit\n-->",
        "## Data\n\nMail.\n\n## Limits\n\nDo not use it for X.",
    ],
)
def test_all_notes_are_kept(notes, exported, tmp_path):
    with opened_folder(exported / "hf", None, as_keras=False) as source:
        card = encoder_card("module", source, network_bits=8, notes=notes)
    (tmp_path / "MODEL_CARD.md").write_text(card)
    assert notes_of(tmp_path) == notes
    before, limits, after = card.rpartition("\n## Limits\n")
    (tmp_path / "MODEL_CARD.md").write_text(f"{before}Added.\n{limits}{after}")
    assert notes_of(tmp_path) == f"{notes}\n\nAdded."
    (tmp_path / "MODEL_CARD.md").write_text(card.replace("<!-- end of notes -->", ""))
    assert notes_of(tmp_path) == notes


@pytest.mark.parametrize("evaluation", ["", "## Evaluation during training\n\n| step | 7 |\n\n"])
@pytest.mark.parametrize("notes", ["", "## Data\n\nMail."])
def test_only_what_the_author_added_are_notes(evaluation, notes, tmp_path):
    training = "\n## Training\n\n| steps | 7 |\n\n"
    card = f"# Encoder\n{training}{evaluation}{notes}\n\n## Limits\n\n- None.\n"
    (tmp_path / "MODEL_CARD.md").write_text(card)
    assert notes_of(tmp_path) == notes


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_a_card_in_another_encoding_is_named(encoding, tmp_path):
    (tmp_path / "MODEL_CARD.md").write_text("# Encoder für Köln", encoding=encoding)
    with pytest.raises(CheckpointError, match=r"MODEL_CARD\.md' is not UTF-8 .* Save it as"):
        notes_of(tmp_path)


@pytest.mark.parametrize("name", ["convert_small", "convert", "convert_multi_context"])
def test_the_released_cards_are_read(name):
    notes = notes_of(module_path(name))
    assert notes == (ROOT / "hub_modules" / "recipes" / f"{name}.md").read_text().strip()
    text, metadata = without_metadata(notes)
    assert text.startswith("## Data\n")
    if name != "convert_multi_context":  # these programs cannot open it
        said = yaml.safe_load(metadata)
        assert said["license"] == "apache-2.0" and len(said["datasets"]) == 3
        for result in said["model-index"][0]["results"]:
            assert {*result} == {"task", "dataset", "metrics"}
            assert str(result["metrics"][0]["value"]) in text
