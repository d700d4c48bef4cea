"""Third-party encoders for `--vectors`: SavedModels that map strings to vectors, and BERTs."""

import json

import numpy as np
import pytest
import tensorflow as tf
from support import naive_bert
from support.commands import call_command
from support.huggingface_folder import VOCABULARY, random_tensors, write_folder
from support.tiny_checkpoint import write_records

from convert_tf.encoding.backends.bert import BertBackend
from convert_tf.ranking.ranker import open_vectors

TEXTS = ["the cat sat", "", "hello", "how are you?", "the cat"]


class LetterCounts(tf.Module):
    """A model like the Universal Sentence Encoder that counts four letters in a text.

    Args:
      names: names of the outputs; the second output counts other letters.
    """

    def __init__(self, *names: str):
        super().__init__()
        self.names = names

    def counts(self, texts, letters):
        without = [tf.strings.regex_replace(texts, letter, "") for letter in letters]
        lengths = [tf.strings.length(texts) - tf.strings.length(each) for each in without]
        return tf.cast(tf.stack(lengths, axis=1), tf.float32)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="inputs")])
    def __call__(self, inputs):
        found = [self.counts(inputs, letters) for letters in ("aeit", "hsou")]
        return {**dict(zip(self.names, found, strict=False)), "length": tf.strings.length(inputs)}


def counts(texts, letters="aeit"):
    return np.array([[text.count(letter) for letter in letters] for text in texts], "float32")


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """SavedModel folders whose signature has one or two vector outputs."""
    folders = {}
    for names in (("outputs",), ("first", "second")):
        folder = tmp_path_factory.mktemp("foreign") / "_".join(names)
        module = LetterCounts(*names)
        signatures = {"serving_default": module.__call__.get_concrete_function()}
        tf.saved_model.save(module, str(folder), signatures=signatures)
        folders[len(names)] = folder
    return folders


def test_a_model_with_one_output_needs_no_name(foreign):
    for name in (None, "serving_default:outputs"):
        encoder, kinds = open_vectors(foreign[1], name)
        assert kinds == ("serving_default:outputs",) * 2
        np.testing.assert_array_equal(encoder.encode(TEXTS, kind=kinds[0]), counts(TEXTS))


def test_one_of_several_outputs_is_named(foreign):
    for name, letters in (("first", "aeit"), ("second", "hsou")):
        encoder, (kind, _) = open_vectors(foreign[2], f"serving_default:{name}")
        np.testing.assert_array_equal(encoder.encode(TEXTS, kind=kind), counts(TEXTS, letters))
    for wrong in (None, "serving_default", "serving_default:length"):
        with pytest.raises(ValueError, match="serving_default:first, serving_default:second"):
            open_vectors(foreign[2], wrong)


def test_own_modules_have_a_signature_for_each_side(tiny_modules):
    module = tiny_modules["single"][1]
    encoder, kinds = open_vectors(module)
    assert kinds == ("context", "response")
    for kind in kinds:
        expected = tf.saved_model.load(str(module)).signatures[f"encode_{kind}"]
        found = encoder.encode(TEXTS, kind=kind)
        np.testing.assert_allclose(found, expected(tf.constant(TEXTS))["default"], atol=1e-5)
    assert open_vectors(module, "default")[1] == ("default", "default")
    with pytest.raises(ValueError, match=r"signatures .*encode_context.* Received: tokenize"):
        open_vectors(module, "tokenize")


def write_pooling(folder, **modes):
    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = {f"pooling_mode_{name}": value for name, value in modes.items()}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("modules.json", "[{}]", r"modules\.json is not a list of layers"),
        ("modules.json", "3", r"modules\.json is not a list of layers"),
        ("1_Pooling/config.json", "[]", r"1_Pooling/config\.json' is not a JSON object"),
        ("sentence_bert_config.json", '{"max_seq_length": "9"}', "max_seq_length in sentence_bert"),
        ("sentence_bert_config.json", "[1]", r"sentence_bert_config\.json' is not a JSON object"),
    ],
)
def test_odd_files_of_a_bert_are_named(tmp_path, name, content, message):
    folder = write_folder(tmp_path / "bert", random_tensors())
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        open_vectors(folder)


@pytest.mark.parametrize("pooling", [None, "mean_tokens", "cls_token"])
def test_berts_parity_with_loop(tmp_path, pooling):
    """Vectors are the mean output for [CLS] text [SEP], or the first output; long texts are cut."""
    tensors = random_tensors()
    folder = write_folder(tmp_path / "bert", tensors)
    if pooling:
        write_pooling(folder, **{"mean_tokens": False, "cls_token": False, pooling: True})
    texts = ["the cat sat", "", "hello", " ".join(["cat"] * 30)]
    words = [*(text.split() for text in texts[:3]), ["cat"] * 18]  # there are 20 positions
    encoder, (kind, _) = open_vectors(folder)
    found = encoder.encode(texts, kind=kind)
    for row, own in zip(found, words, strict=True):
        ids = [VOCABULARY.index(token) for token in ("[CLS]", *own, "[SEP]")]
        outputs = naive_bert.bert(ids, [0] * len(ids), tensors, num_layers=2, num_heads=2)
        expected = outputs[0] if pooling == "cls_token" else np.mean(outputs, axis=0)
        np.testing.assert_allclose(row, expected, atol=2e-5)
    assert encoder.encode([], kind=kind).shape == (0, 8)


def test_the_folder_says_how_long_texts_are(tmp_path):
    folder = write_folder(tmp_path / "bert")
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 4}))
    vectors = BertBackend(folder).run("default", [[b"the cat", b"the cat sat"]])
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)


def test_other_poolings_are_refused(tmp_path):
    folder = write_folder(tmp_path / "bert")
    write_pooling(folder, max_tokens=True)
    with pytest.raises(ValueError, match="its pooling is pooling_mode_max_tokens"):
        BertBackend(folder)


def test_further_layers_are_refused(tmp_path):
    folder = write_folder(tmp_path / "bert")
    kinds = ["Transformer", "Pooling", "Normalize"]
    for kind in (None, "Dense"):
        modules = [{"type": f"sentence_transformers.models.{name}"} for name in kinds]
        modules += [{"type": f"sentence_transformers.models.{kind}"}] if kind else []
        (folder / "modules.json").write_text(json.dumps(modules))
        if kind is None:
            BertBackend(folder)
            continue
        with pytest.raises(ValueError, match="layer of the kind Dense"):
            BertBackend(folder)


@pytest.mark.slow
def test_evaluate_ranks_with_them(foreign, tmp_path, capsys):
    data, bert = write_records(tmp_path / "data", 450), write_folder(tmp_path / "bert")
    vectors = [f"--vectors={path}" for path in (foreign[1], bert)]
    call_command("evaluate", f"--data={data}", "--baselines=sim", *vectors)
    printed = capsys.readouterr().out
    for path in (foreign[1], bert):
        assert f"SIM {path}" in printed
