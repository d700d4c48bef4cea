"""The multi-context encoder and its three ranking objectives."""

import dataclasses
import gc

import numpy as np
import pytest
from support import naive
from support.model_cases import gradients_of, one_per_row, outputs_of, ragged, random_texts
from support.processes import results_on_jax

from convert_tf.config.model import ModelConfig, model_preset
from convert_tf.data.packing import pack_batch
from convert_tf.models.encoder import DualEncoder, count_parameters
from convert_tf.training.encoder.evaluation import evaluate_encoder
from convert_tf.training.encoder.objective import make_objective
from convert_tf.training.encoder.options import EncoderTraining

LENGTHS = [3, 7, 12, 2, 5]
EXTRA_LENGTHS = [4, 0, 12, 0, 1]  # the second and fourth examples have no history
NAMES = ("context", "response", "extra_context")


@pytest.fixture(scope="module")
def config(small_config):
    return dataclasses.replace(small_config, multi_context=True)


@pytest.fixture(scope="module")
def encoder(config, make_encoder):
    """A float32 encoder that no test changes."""
    return make_encoder(config)


@pytest.fixture(scope="module")
def texts(config):
    """Texts by name, as many for each name."""
    lengths = dict(zip(NAMES, (LENGTHS, LENGTHS[::-1], EXTRA_LENGTHS), strict=True))
    return {name: random_texts(config, lengths[name], seed=i) for i, name in enumerate(NAMES)}


def batch_of(texts, config, *, row_tokens: int = 12) -> dict:
    every = ragged([text for name in NAMES for text in texts[name]])
    return pack_batch(every, NAMES, row_tokens=row_tokens, padding_id=config.num_ids)


def rows_of(texts, config, name: str, *, width: int | None = None) -> np.ndarray:
    return one_per_row(texts[name], config.num_ids, width=width)


def encode_both(encoder, texts, **kwargs) -> np.ndarray:
    ids = [rows_of(texts, encoder.config, name, **kwargs) for name in ("context", "extra_context")]
    return np.asarray(encoder.encode_both(*ids))


def naive_encodings(texts, encoder) -> dict[str, np.ndarray]:
    """Encode example by example; without history, the encoding for both equals the context's."""
    weights, config = naive.arrays(encoder), encoder.config
    found: dict[str, list] = {name: [] for name in (*NAMES, "both")}
    for context, response, extra in zip(*(texts[name] for name in NAMES), strict=True):
        h_x = naive.encode(context, weights, config, side="context_side")
        h_z = np.zeros(config.encoding_dim)
        if len(extra):
            h_z = naive.encode(extra, weights, config, side="extra_context_side")
        found["context"].append(h_x)
        found["response"].append(naive.encode(response, weights, config, side="response_side"))
        found["extra_context"].append(h_z)
        both = h_x
        if len(extra):
            mean = np.array([(h_x[d] + h_z[d]) / 2 for d in range(config.encoding_dim)])
            both = naive.side_network(
                mean, naive.below(weights, "both_side"), num_layers=config.side_layers,
                use_skip=config.use_side_skip,
            )  # fmt: skip
        found["both"].append(both)
    return {name: np.array(own) for name, own in found.items()}


@pytest.mark.parametrize("changes", [{}, {"side_layers": 0}, {"use_side_skip": False}], ids=str)
def test_encodings_parity_with_loop(config, make_encoder, texts, changes):
    encoder = make_encoder(dataclasses.replace(config, **changes))
    expected = naive_encodings(texts, encoder)
    outputs = outputs_of(encoder, batch_of(texts, config))
    for name, value in expected.items():
        np.testing.assert_allclose(outputs[f"{name}_encoding"], value, atol=1e-5)
    assert outputs["has_extra_context"].tolist() == [n > 0 for n in EXTRA_LENGTHS]
    np.testing.assert_allclose(encode_both(encoder, texts), expected["both"], atol=1e-5)
    extra = np.asarray(encoder.encode_extra_context(rows_of(texts, config, "extra_context")))
    np.testing.assert_allclose(extra, expected["extra_context"], atol=1e-5)


def test_without_history_both_is_the_context(encoder, texts):
    without = {**texts, "extra_context": [text[:0] for text in texts["extra_context"]]}
    context = np.asarray(encoder.encode_context(rows_of(texts, encoder.config, "context")))
    zeros = np.asarray(encoder.encode_extra_context(rows_of(without, encoder.config, NAMES[2])))
    np.testing.assert_array_equal(zeros, np.zeros_like(context))
    both = encode_both(encoder, without)
    np.testing.assert_allclose(both, context, atol=1e-6)
    changes = np.abs(both - encode_both(encoder, texts)).max(axis=1) > 1e-3
    assert changes.tolist() == [n > 0 for n in EXTRA_LENGTHS]


def test_empty_context_and_empty_history_are_finite(encoder):
    empty = np.full((2, 3), encoder.config.num_ids, "int32")
    both = np.asarray(encoder.encode_both(empty, empty))
    assert np.isfinite(both).all()
    np.testing.assert_array_equal(both[0], both[1])
    no_columns = np.zeros((2, 0), "int32")
    for contexts, histories in ((empty, no_columns), (no_columns, empty), (no_columns,) * 2):
        found = np.asarray(encoder.encode_both(contexts, histories))
        np.testing.assert_allclose(found, both, atol=1e-6)


@pytest.mark.parametrize("width", [13, 41])
def test_padding_and_batch_mates_do_not_matter(encoder, texts, width):
    together = encode_both(encoder, texts)
    np.testing.assert_allclose(encode_both(encoder, texts, width=width), together, atol=1e-6)
    order = [3, 0, 4, 1, 2]
    shuffled = {name: [own[i] for i in order] for name, own in texts.items()}
    np.testing.assert_allclose(encode_both(encoder, shuffled), together[order], atol=1e-6)
    for i in range(len(LENGTHS)):
        alone = {name: own[i : i + 1] for name, own in texts.items()}
        np.testing.assert_allclose(encode_both(encoder, alone)[0], together[i], atol=1e-6)
    packed_both = outputs_of(encoder, batch_of(texts, encoder.config, row_tokens=width))
    np.testing.assert_allclose(packed_both["both_encoding"], together, atol=3e-6)


def test_all_but_history_freezes(config, make_encoder, small_config):
    """Only networks that read history change; encodings of contexts and responses stay."""
    encoder = make_encoder(config)
    before = {v.path: np.array(v) for v in encoder.variables}
    encoder.freeze_all_but_history()
    model = make_objective(encoder, EncoderTraining(**_TRAINING), precision="float32")
    lengths = {name: [3, 5, 2, 4, 6] for name in NAMES}
    texts = {name: random_texts(config, lengths[name], seed=i) for i, name in enumerate(NAMES)}
    for _ in range(3):
        model.train_on_batch(batch_of(texts, config))
    for variable in encoder.variables:
        is_trained = variable.path.startswith(("extra_context_side", "both_side"))
        changed = not np.array_equal(np.asarray(variable), before[variable.path])
        assert changed == is_trained, variable.path
    with pytest.raises(ValueError, match=r"single-context.*preset convert_multi_context"):
        make_encoder(small_config).freeze_all_but_history()


def test_it_contains_the_single_context_model(encoder, small_config, make_encoder, texts):
    """Weights depend on paths only, so both models encode contexts and responses equally."""
    single = make_encoder(small_config)
    batch = batch_of(texts, small_config)
    outputs = outputs_of(single, batch)
    assert not [name for name in outputs if "both" in name or "extra" in name]
    for name, value in outputs_of(encoder, batch).items():
        if name in outputs:
            np.testing.assert_allclose(value, outputs[name], atol=1e-6)
    ids = rows_of(texts, small_config, "context")
    for call in (single.encode_extra_context, lambda x: single.encode_both(x, x)):
        with pytest.raises(ValueError, match=r"single-context.*preset convert_multi_context"):
            call(ids)


def test_a_batch_without_histories_is_refused(encoder, texts):
    batch = batch_of(texts, encoder.config)
    del batch["extra_context_slots"]
    with pytest.raises(ValueError, match="needs extra_context_slots"):
        encoder(batch)


def test_sizes_are_the_papers():
    """§1 gives 59 MB, and 73 MB with several contexts: 8-bit embeddings, and 16 bits for the rest.

    §4.1 gives 13 M parameters for the network without the tables: 12.98 M in blocks and 0.13 M in
    the reduction. The two side networks add 3·(1024² + 3·1024) + 1024·512 + 512 = 3.68 M each.
    """
    counts = {}
    for name in ("convert", "convert_multi_context"):
        counts[name] = count_parameters(DualEncoder(model_preset(name)))
        gc.collect()  # 140 and 170 MB that are kept by reference cycles
    single, multi = counts.values()
    assert single["embedding"] == multi["embedding"] == (31_476 + 1_000 + 47 + 11) * 512
    kernels = 6 * (2 * 512 * 64 + 2 * 512 * 2048)
    biases = 6 * (2048 + 512 + 4 * 512) + 2 * 512  # feed-forward, norms; the embedding's norm
    relative = sum(2 * distance + 1 for distance in (3, 5, 48, 48, 48, 48))
    reduction = 512 * 2 * 2 * 64
    history = 3 * (1024 * 1024 + 3 * 1024) + 1024 * 512 + 512
    both = history - 512 * 1024  # its first layer has 512 inputs
    assert single["network"] == kernels + biases + relative + reduction + 2 * history
    assert multi["network"] - single["network"] == history + both
    assert round(2 * (history + both) / 1e6) == 73 - 59


def _gradients(model, batch) -> dict[str, np.ndarray]:
    variables = model.encoder.trainable_variables
    return gradients_of(lambda: model.compute_loss(batch, y_pred=model(batch)), variables)


def _model(encoder, **changes):
    options = {"scale_anneal_steps": 0, "scale_end": 5.0, "l2": 0.0, **changes}
    return make_objective(encoder, EncoderTraining(**options), precision="float32")


def _naive_objectives(encodings, has_extra_context, *, scale, label_smoothing) -> dict:
    """Return {name: (mean loss, share of hits, number of rows)} over rows with that context."""
    found = {}
    for name in ("context", "extra_context", "both"):
        cosines = encodings[name] @ encodings["response"].T
        rows = [i for i in range(len(cosines)) if name == "context" or has_extra_context[i]]
        loss = naive.loss(scale * cosines[rows], label_smoothing, labels=rows)
        found[name] = loss, np.mean([cosines[i].argmax() == i for i in rows]), len(rows)
    return found


def test_the_objective_and_what_is_logged_parity_with_loop(config, make_encoder, texts):
    """The loss sums three losses over the examples that have them, divided by the batch size."""
    encoder = make_encoder(dataclasses.replace(config, embedding_bits=32))
    model = _model(encoder, label_smoothing=0.3, learning_rate=1e-9, final_learning_rate=0.0)
    model.run_eagerly = True
    expected = _naive_objectives(
        naive_encodings(texts, encoder), [n > 0 for n in EXTRA_LENGTHS], scale=5.0,
        label_smoothing=0.3,
    )  # fmt: skip
    logs = model.train_on_batch(batch_of(texts, config), return_dict=True)
    assert float(logs["loss"]) == pytest.approx(
        sum(loss * number for loss, _, number in expected.values()) / len(LENGTHS), rel=1e-5
    )
    for name, (loss, hits, _) in expected.items():
        prefix = "" if name == "context" else f"{name}_"
        assert float(logs[f"{prefix}ranking_loss"]) == pytest.approx(loss, rel=1e-5)
        assert float(logs[f"{prefix}batch_accuracy"]) == pytest.approx(hits)
    assert [number for _, _, number in expected.values()] == [5, 3, 3]


def test_a_batch_without_any_history_trains_the_rest(config, make_encoder, texts):
    encoder = make_encoder(config)
    empty = {**texts, "extra_context": [text[:0] for text in texts["extra_context"]]}
    gradients = _gradients(_model(encoder), batch_of(empty, config))
    for path, gradient in gradients.items():
        assert np.isfinite(gradient).all(), path
        is_of_history = path.startswith(("extra_context_side", "both_side"))
        assert (np.abs(gradient).max() > 0) != is_of_history, path
    logs = _model(encoder).test_on_batch(batch_of(empty, config), return_dict=True)
    assert np.isfinite([float(value) for value in logs.values()]).all()


def test_every_variable_gets_a_gradient(encoder, texts):
    for path, gradient in _gradients(_model(encoder), batch_of(texts, encoder.config)).items():
        assert np.abs(gradient).max() > 0, path


class _Encodings:
    """Returns prepared encodings, a part for each batch."""

    config = ModelConfig(multi_context=True)

    def __init__(self, outputs):
        self.outputs = outputs

    def predict_on_batch(self, batch: dict) -> dict:
        return {name: value[batch["part"]] for name, value in self.outputs.items()}


def test_evaluation_parity_with_loop():
    """Of 230 examples, 153 have history: two blocks of all, and one of those with history."""
    examples = 230
    random = np.random.RandomState(0)
    responses = random.standard_normal((examples, 6))
    outputs = {
        f"{name}_encoding": (responses + noise * random.standard_normal((examples, 6)))
        for name, noise in (("context", 0.5), ("extra_context", 0.8), ("both", 0.2))
    }
    outputs["response_encoding"] = responses
    has_history = np.arange(examples) % 3 > 0
    outputs["extra_context_encoding"][~has_history] = 0.0
    outputs = {name: value.astype("float32") for name, value in outputs.items()}
    outputs["has_extra_context"] = has_history
    parts = [{"part": slice(0, 90)}, {"part": slice(90, examples)}]
    report = evaluate_encoder(_Encodings(outputs), parts)

    def recall(contexts, own) -> float:
        hits = total = 0
        for start in range(0, len(own) - 99, 100):
            block = own[start : start + 100]
            for i in block:
                others = [contexts[i] @ outputs["response_encoding"][j] for j in block if j != i]
                hits += contexts[i] @ outputs["response_encoding"][i] > max(others)
                total += 1
        return hits / total

    everyone = range(examples)
    with_history = [i for i in everyone if has_history[i]]
    both, context = outputs["both_encoding"], outputs["context_encoding"]
    expected = {
        "R100@1": recall(both, everyone),
        "context/R100@1": recall(context, everyone),
        "extra_context/R100@1": recall(outputs["extra_context_encoding"], with_history),
        "with_history/R100@1": recall(both, with_history),
        "with_history/context/R100@1": recall(context, with_history),
    }
    assert len(set(expected.values())) == 5
    for name, value in expected.items():
        assert report[name] == pytest.approx(value), name
    assert (report["examples"], report["with_history/examples"]) == (200, 100)
    outputs["has_extra_context"] = np.arange(examples) < 99
    few = evaluate_encoder(_Encodings(outputs), [{"part": slice(None)}])
    assert set(few) == {"R100@1", "MRR", "examples", "context/R100@1"}


@pytest.mark.parametrize("multi_context", [False, True])
def test_copies_of_the_correct_response_are_not_wrong_in_an_evaluation(multi_context):
    groups = np.random.default_rng(0).integers(0, 20, 300)
    names = [f"{name}_encoding" for name in ("context", "extra_context", "both", "response")]
    outputs = dict.fromkeys(names, np.eye(20, dtype="float32")[groups])
    outputs["has_extra_context"] = np.arange(300) % 3 > 0
    encoder = _Encodings(outputs)
    encoder.config = ModelConfig(multi_context=multi_context)
    parts = [{"part": slice(0, 130)}, {"part": slice(130, 300)}]
    assert evaluate_encoder(encoder, parts)["R100@1"] < 0.1
    marked = [{**part, "response_groups": groups[part["part"]]} for part in parts]
    report = evaluate_encoder(encoder, marked)
    assert {value for name, value in report.items() if "examples" not in name} == {1.0}
    assert len(report) == (8 if multi_context else 3)


_TRAINING = {
    "steps": 10, "batch_size": 5, "optimizer": "adam", "learning_rate": 0.01,
    "scale_anneal_steps": 5,
}  # fmt: skip


ON_JAX = """
import sys

import numpy as np
from convert_tf.config.model import ModelConfig
from convert_tf.training.encoder.options import EncoderTraining
from convert_tf.models.encoder import DualEncoder
from convert_tf.training.encoder.objective import make_objective

folder = sys.argv[1]
encoder = DualEncoder(ModelConfig.from_json(open(folder + "/config.json").read()))
encoder.load_weights(folder + "/model.weights.h5")
batch = dict(np.load(folder + "/batch.npz"))
before = encoder.predict_on_batch(batch)
model = make_objective(encoder, EncoderTraining(**TRAIN), precision="float32")
losses = [model.train_on_batch(batch, return_dict=True) for _ in range(3)]
assert "tensorflow" not in sys.modules, "TensorFlow was imported"
np.savez(folder + "/jax.npz", **before, losses=[[float(x[k]) for k in sorted(x)] for x in losses])
"""


@pytest.mark.slow
def test_jax_gives_the_same_outputs_and_trains_alike(config, make_encoder, texts, tmp_path):
    encoder = make_encoder(config)
    batch = batch_of(texts, config)
    (tmp_path / "config.json").write_text(config.to_json())
    encoder.save_weights(tmp_path / "model.weights.h5")
    np.savez(tmp_path / "batch.npz", **batch)
    on_jax = results_on_jax(f"TRAIN = {_TRAINING!r}\n{ON_JAX}", tmp_path)
    for name, value in outputs_of(encoder, batch).items():
        np.testing.assert_allclose(on_jax[name], value, atol=1e-5)
    model = make_objective(encoder, EncoderTraining(**_TRAINING), precision="float32")
    logs = [model.train_on_batch(batch, return_dict=True) for _ in range(3)]
    losses = [[float(log[name]) for name in sorted(log)] for log in logs]
    np.testing.assert_allclose(on_jax["losses"], losses, rtol=1e-4)
