"""The contract of modules, tested in a process that has TensorFlow but not convert_tf."""

import shutil

import numpy as np
import pytest
import tensorflow as tf
from support.processes import answer_of_probe
from support.texts import random_texts
from support.token_ids import encoder_and_ids

from convert_tf.export.cards import CARD_FILE
from convert_tf.text.tokenizer import load_tokenizer

KINDS = {"single": False, "multi": True}
MAX_TOKENS = 20  # as in `tiny_modules`
LONG = " ".join(["late train"] * 15)  # 30 tokens, so it is cut
TEXTS = [
    "how do i reset my password?",
    "",
    "the cat sat on the mat, today.",
    "Zebra 你 42! 😀",
    LONG,
]
HISTORIES = ["yes. what time is it", "thanks", "", " ".join(random_texts(5)), "no"]
RESPONSES = TEXTS[:2]
ONE = {"default": TEXTS}
PAIR = {"context": TEXTS, "response": RESPONSES}
COLUMNS = {
    "default": ONE,
    "serving_default": ONE,
    "reduced": ONE,
    "encode_context": ONE,
    "encode_response": ONE,
    "encode_sequence": ONE,
    "tokenize": ONE,
    "encode_context_and_response": PAIR,
}
OUTPUTS = {  # for the preset `tiny`; `convert` has widths of 1024 and 512
    "default": {"default": ["float32", [None, 128]]},
    "serving_default": {"default": ["float32", [None, 128]]},
    "reduced": {"default": ["float32", [None, 128]]},
    "encode_context": {"default": ["float32", [None, 64]]},
    "encode_response": {"default": ["float32", [None, 64]]},
    "encode_sequence": {
        "sequence_encoding": ["float32", [None, None, 64]],
        "tokens": ["string", [None, None]],
    },
    "tokenize": {"default": ["string", [None, None]]},
    "encode_context_and_response": {
        "context_encoding": ["float32", [None, 64]],
        "response_encoding": ["float32", [None, 64]],
    },
}
DENSE = [(s, o) for s, outputs in OUTPUTS.items() for o, (d, _) in outputs.items() if d != "string"]


def columns_of(kind):
    if not KINDS[kind]:
        return COLUMNS
    both = {"context": TEXTS, "extra_context": HISTORIES}
    triple = {**both, "response": RESPONSES}
    return {**COLUMNS, "encode_context": both, "encode_context_and_response": triple}


@pytest.fixture(scope="module")
def folders(tiny_modules):
    return {kind: module for kind, (_, module) in tiny_modules.items()}


@pytest.fixture(scope="module")
def answer(folders, tmp_path_factory):
    """The facts and arrays that `contract_probe.py` wrote."""
    folder = tmp_path_factory.mktemp("probe")
    modules = {kind: shutil.copytree(folders[kind], folder / kind) for kind in KINDS}
    request = {
        "modules": {kind: str(module) for kind, module in modules.items()},  # moved, as users do
        "columns": {kind: columns_of(kind) for kind in KINDS},
    }
    return answer_of_probe(request, folder)


@pytest.fixture(scope="module")
def facts(answer):
    return answer[0]


@pytest.fixture(scope="module")
def arrays(answer):
    return answer[1]


@pytest.fixture(scope="module")
def expected(tiny_modules):
    """The outputs of the checkpoints for the texts, by kind and signature."""
    found = {}
    for kind, (checkpoint, _) in tiny_modules.items():
        encoder, ids = encoder_and_ids(checkpoint, max_tokens=MAX_TOKENS)
        tokenizer = load_tokenizer(checkpoint / "vocab.txt", num_oov_buckets=7)
        if KINDS[kind]:
            context = encoder.encode_both(ids(TEXTS), ids(HISTORIES))
        else:
            context = encoder.encode_context(ids(TEXTS))
        reduced = encoder.reduce(ids(TEXTS))
        found[kind] = {
            ("default", "default"): reduced,
            ("serving_default", "default"): reduced,
            ("reduced", "default"): reduced,
            ("encode_context", "default"): context,
            ("encode_response", "default"): encoder.encode_response(ids(TEXTS)),
            ("encode_sequence", "sequence_encoding"): encoder.encode_sequence(ids(TEXTS)),
            ("encode_context_and_response", "context_encoding"): context,
            ("encode_context_and_response", "response_encoding"): encoder.encode_response(
                ids(RESPONSES)
            ),
            "tokens": tokenizer.tokenize(tf.constant(TEXTS)).to_tensor("").numpy(),
            "network": [
                list(v.shape)
                for v in encoder.trainable_variables
                if v is not encoder.trunk.embedding.table
            ],
        }
    return found


def test_the_card_of_a_multi_context_module_tells_of_the_earlier_turns(folders):
    card = (folders["multi"] / CARD_FILE).read_text()
    assert '(context=tensor, extra_context=earlier)["default"]' in card
    assert "the most recent first" in card


def test_the_process_has_no_convert_tf(facts):
    assert facts["loaded"] == ["convert_tf"]  # only the entry that blocks the import


@pytest.mark.parametrize("kind", KINDS)
def test_signatures(facts, kind):
    assert facts[kind]["outputs"] == OUTPUTS
    assert facts[kind]["inputs"] == {
        name: {column: ["string", [None]] for column in columns}
        for name, columns in columns_of(kind).items()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_keras_layer_asks_for(facts, expected, kind):
    own = facts[kind]
    assert own["callable"]
    assert own["regularization_losses"] == 0
    assert own["trainable_are_variables"]
    assert sorted(own["trainable"]) == sorted(expected[kind]["network"])
    assert len(own["variables"]) > len(own["trainable"])


@pytest.mark.parametrize(("signature", "output"), DENSE)
@pytest.mark.parametrize("kind", KINDS)
def test_values_are_the_checkpoints(arrays, expected, kind, signature, output):
    got = arrays[f"{kind}/{signature}/all/{output}"]
    want = np.array(expected[kind][signature, output])
    assert got.dtype == np.float32
    if signature == "encode_sequence":  # as long as the tokens; zeros at positions without a token
        is_token = expected[kind]["tokens"] != b""
        assert got.shape[:2] == is_token.shape
        is_read = is_token.copy()
        is_read[:, MAX_TOKENS:] = False
        assert not got[~is_read].any()
        got, want = got[:, :MAX_TOKENS][is_read[:, :MAX_TOKENS]], want[is_read[:, :MAX_TOKENS]]
    scale = np.abs(want).max()
    np.testing.assert_allclose(got / scale, want / scale, atol=4e-3)
    assert np.abs(want[0] - want[1]).max() / scale > 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_the_tokenizers(arrays, expected, kind):
    tokens = expected[kind]["tokens"]
    np.testing.assert_array_equal(arrays[f"{kind}/tokenize/all/default"], tokens)
    np.testing.assert_array_equal(arrays[f"{kind}/encode_sequence/all/tokens"], tokens)


@pytest.mark.parametrize("kind", KINDS)
def test_calling_is_the_default_signature(arrays, kind):
    for form in ("called/all", "called/list", "serving_default/all"):
        np.testing.assert_allclose(
            arrays[f"{kind}/{form}/default"], arrays[f"{kind}/default/all/default"], atol=1e-5
        )


@pytest.mark.parametrize(("signature", "output"), DENSE)
@pytest.mark.parametrize("kind", KINDS)
def test_padding_and_batch_mates_change_nothing(arrays, kind, signature, output):
    def result(batch):
        return arrays[f"{kind}/{signature}/{batch}/{output}"]

    together, backwards = result("all"), result("backwards")
    assert np.isfinite(together).all()
    np.testing.assert_allclose(backwards[::-1], together, atol=2e-5)
    number = min(map(len, columns_of(kind)[signature].values()))
    for i in range(number):
        alone = result(f"alone{i}")[0]
        row = together[i][: len(alone)] if signature == "encode_sequence" else together[i]
        np.testing.assert_allclose(alone, row, atol=2e-5)
    assert result("none").shape == (0, *([0] if alone.ndim == 2 else []), alone.shape[-1])
