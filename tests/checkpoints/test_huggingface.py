import json

import ml_dtypes
import numpy as np
import pytest
from support import huggingface_folder as made
from support import naive_bert

from convert_tf.checkpoints.bert import bert_config_of, load_bert
from convert_tf.checkpoints.kinds import Kind, kind_of


def test_parity_with_loop(tmp_path):
    """A batch of padded pairs gives the same outputs as BERT computed in loops."""
    tensors = made.random_tensors()
    trunk, vocabulary = load_bert(made.write_folder(tmp_path, tensors))
    assert vocabulary == tmp_path / "vocab.txt"
    padding = trunk.padding_id
    contexts = np.array([[7, 8, 9], [10, padding, padding]], "int32")
    candidates = np.array([[11, padding], [12, 13]], "int32")
    sequence, mask = trunk.joint_sequence(contexts, candidates)
    for row, ids, segments in (
        (0, [3, 7, 8, 9, 4, 11, 4], [0] * 5 + [1] * 2),  # [CLS] has id 3, [SEP] has id 4
        (1, [3, 10, 4, 12, 13, 4], [0] * 3 + [1] * 3),
    ):
        expected = naive_bert.bert(ids, segments, tensors, num_layers=2, num_heads=2)
        np.testing.assert_array_equal(np.asarray(mask[row]), np.arange(8) < len(ids))
        np.testing.assert_allclose(np.asarray(sequence[row])[: len(ids)], expected, atol=2e-5)


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16])
def test_other_spellings_and_precisions(tmp_path, dtype):
    """Names of `BertForPreTraining`, old layer norm names and half precision are accepted."""
    tensors = made.random_tensors()
    renamed = {
        "bert."
        + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor.astype(dtype)
        for name, tensor in tensors.items()
    }
    plain, _ = load_bert(made.write_folder(tmp_path / "a", tensors))
    other, _ = load_bert(made.write_folder(tmp_path / "b", renamed))
    for variable, expected in zip(other.variables, plain.variables, strict=True):
        np.testing.assert_allclose(np.asarray(variable), np.asarray(expected), atol=2e-2)


@pytest.mark.parametrize(
    "damage", [lambda b: b[:4], lambda b: b[:-9], lambda b: b"\xff" * 8 + b[8:], lambda b: b""]
)
def test_damaged_weights_are_named(tmp_path, damage):
    path = made.write_folder(tmp_path) / "model.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged"):
        load_bert(tmp_path)


def test_configuration(tmp_path):
    config = bert_config_of(made.write_folder(tmp_path))
    assert config.vocab_size == config.padding_id == config.num_rows == len(made.VOCABULARY)
    assert (config.start_id, config.separator_id, config.mask_id) == (3, 4, 5)
    assert (config.dim, config.num_layers, config.feed_forward_dim) == (8, 2, 12)
    assert kind_of(tmp_path) is Kind.HUGGING_FACE
    assert kind_of(tmp_path / "nothing") is Kind.UNKNOWN


@pytest.mark.parametrize(
    "change",
    [{"model_type": "roberta"}, {"hidden_act": "relu"}, {"position_embedding_type": "relative"}],
)
def test_other_models_are_refused(tmp_path, change):
    made.write_folder(tmp_path, **change)
    with pytest.raises(ValueError, match=r"only BERT models .* are supported"):
        bert_config_of(tmp_path)


def test_what_is_missing_is_named(tmp_path):
    made.write_folder(tmp_path)
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(ValueError, match=r"config\.json' is not a JSON object"):
        bert_config_of(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(ValueError, match="lacks 'hidden_size'"):
        bert_config_of(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**made.CONFIG, "intermediate_size": 13}))
    with pytest.raises(ValueError, match=r"do not fit config\.json: .* has shape"):
        load_bert(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**made.CONFIG, "num_hidden_layers": 3}))
    with pytest.raises(ValueError, match=r"do not fit config\.json: 'encoder\.layer\.2"):
        load_bert(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"lacks model\.safetensors"):
        load_bert(tmp_path)
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n")
    with pytest.raises(ValueError, match=r"lacks the special tokens \['\[CLS\]'"):
        load_bert(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"vocab\.txt"):
        load_bert(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab.txt", b"[CLS]\n\xff\n", "is not UTF-8"),
        ("tokenizer_config.json", b'{"cls_token": {}}', "has no text as cls_token"),
        ("tokenizer_config.json", b'{"cls_token": 3}', "has no text as cls_token"),
    ],
)
def test_odd_files_are_named(tmp_path, name, content, message):
    (made.write_folder(tmp_path) / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name}' {message}"):
        bert_config_of(tmp_path)


@pytest.mark.parametrize(("key", "value"), [("hidden_size", "8"), ("num_hidden_layers", None)])
def test_a_configuration_with_a_wrong_value_is_named(tmp_path, key, value):
    path = made.write_folder(tmp_path) / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(ValueError, match=r"config\.json' has a wrong value: .*\. Copy"):
        bert_config_of(tmp_path)
