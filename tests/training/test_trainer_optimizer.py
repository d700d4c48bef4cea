import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import naive
from support.model_cases import gradients_of, outputs_of, packed_batch, random_texts

from convert_tf.config.ranker import RankerTraining
from convert_tf.training.encoder.objective import make_objective
from convert_tf.training.encoder.options import EncoderTraining
from convert_tf.training.optimizers import learning_rate_schedule, make_optimizer

pytestmark = pytest.mark.traced


def _naive_learning_rate(step: int, config: EncoderTraining) -> float:
    if step < config.warmup_steps:
        return config.learning_rate * step / config.warmup_steps
    progress = min((step - config.warmup_steps) / (config.steps - config.warmup_steps), 1.0)
    span = config.learning_rate - config.final_learning_rate
    return config.final_learning_rate + span * (1 + math.cos(math.pi * progress)) / 2


@pytest.mark.parametrize("warmup_steps", [0, 20])
def test_learning_rate_parity_with_its_formula(warmup_steps):
    config = EncoderTraining(steps=100, warmup_steps=warmup_steps)
    schedule = learning_rate_schedule(config)
    for step in (0, 1, 10, 19, 20, 21, 50, 99, 100, 1000):
        assert float(schedule(step)) == pytest.approx(_naive_learning_rate(step, config), abs=1e-6)


@pytest.mark.parametrize(("warmup_steps", "is_rising"), [(99, False), (100, True), (300, True)])
def test_a_rate_that_rises_until_the_last_step_is_said(capsys, warmup_steps, is_rising):
    config = RankerTraining(steps=100, warmup_steps=warmup_steps)
    make_optimizer(
        config, embedding_table=keras.Variable([0.0]), embedding_clip=0.0, precision="float32"
    )
    note = f"rises until the last step: {warmup_steps} steps of warm-up, 100 steps in all"
    assert capsys.readouterr().out.count(note) == is_rising
    schedule = learning_rate_schedule(config)  # counts steps from 0
    assert (float(schedule(99)) < 0.995 * config.learning_rate) == is_rising


def _optimizer(precision: str = "float32", *, clip: float = 1.0, optimizer: str = "adadelta"):
    """Return an optimizer for a table and another variable, each 2 × 3 zeros."""
    table, other = (keras.Variable(np.zeros((2, 3), "float32"), name=n) for n in ("table", "other"))
    made = make_optimizer(
        RankerTraining(steps=100, optimizer=optimizer),
        embedding_table=table,
        embedding_clip=clip,
        precision=precision,
    )
    made.build([table, other])
    return made, table, other


def _accumulated(optimizer, name: str) -> np.ndarray:
    (found,) = [v for v in optimizer.variables if name in v.path]
    return np.asarray(found)


GRADIENT = np.array([[3.0, -4.0, 0.0], [0.0, 12.0, 0.0]], "float32")  # its norm is 13


@pytest.mark.parametrize(
    ("precision", "loss_scale", "clip", "norm"),
    [
        ("float32", 1.0, 1.0, 1.0),
        ("float32", 1.0, 6.5, 6.5),
        ("float32", 1.0, 20.0, 13.0),
        ("float32", 1.0, 0.0, 13.0),  # no limit
        ("mixed_float16", 128.0, 1.0, 1.0),
    ],
)
def test_only_the_tables_gradient_is_clipped_to_its_norm(precision, loss_scale, clip, norm):
    """Adam's first moment, a tenth of the gradient, shows what was clipped.

    With a loss scale, gradients are 128 times as large; clipping applies to the unscaled ones.
    """
    optimizer, table, other = _optimizer(precision, optimizer="adam", clip=clip)
    scaled = tf.constant(GRADIENT * loss_scale)
    optimizer.apply([scaled, scaled], [table, other])
    for name, expected in (("table", GRADIENT * norm / 13), ("other", GRADIENT)):
        found = _accumulated(optimizer, f"{name}_momentum")
        np.testing.assert_allclose(found, 0.1 * expected, rtol=1e-4)


def test_a_zero_gradient_is_clipped_to_zero():
    optimizer, table, other = _optimizer()
    zeros = tf.zeros((2, 3))
    optimizer.apply([zeros, zeros], [table, other])
    np.testing.assert_array_equal(np.asarray(table), 0.0)


def test_a_sparse_gradient_is_clipped_by_the_sum_of_its_rows():
    """The rows of index 0 add up to 4, so with row 1's 3 the norm is 5, which is clipped to 1."""
    optimizer, table, other = _optimizer(optimizer="adam")
    rows = tf.IndexedSlices(
        tf.constant([[3.0, 0, 0], [0, 3.0, 0], [1.0, 0, 0]]), tf.constant([0, 1, 0]), (2, 3)
    )
    optimizer.apply([rows, tf.zeros((2, 3))], [table, other])
    np.testing.assert_allclose(
        _accumulated(optimizer, "table_momentum"),
        0.1 * np.array([[4.0, 0, 0], [0, 3.0, 0]]) / 5,
        rtol=1e-4,
    )


def test_adadelta_parity_with_loop():
    """Two steps on one number equal Zeiler 2012, algorithm 1, times the learning rate."""
    config = EncoderTraining(steps=10)
    variable = keras.Variable(np.zeros(1, "float32"), name="x")
    optimizer = make_optimizer(
        config, embedding_table=variable, embedding_clip=0.0, precision="float32"
    )
    optimizer.build([variable])
    mean_square = mean_square_update = x = 0.0
    for step, gradient in enumerate([0.5, -2.0, 0.25]):
        mean_square = 0.9 * mean_square + 0.1 * gradient**2
        update = math.sqrt(mean_square_update + 1e-7) / math.sqrt(mean_square + 1e-7) * gradient
        mean_square_update = 0.9 * mean_square_update + 0.1 * update**2
        x -= _naive_learning_rate(step, config) * update
        optimizer.apply([tf.constant([gradient], tf.float32)], [variable])
        assert float(variable[0]) == pytest.approx(x, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "optimizer_class"),
    [
        ("adadelta", keras.optimizers.Adadelta),
        ("adam", keras.optimizers.Adam),
        ("adamw", keras.optimizers.AdamW),
        ("adamax", keras.optimizers.Adamax),
    ],
)
def test_the_named_optimizer_is_made(name, optimizer_class):
    optimizer, _, _ = _optimizer(optimizer=name)
    assert isinstance(optimizer, optimizer_class)
    assert type(optimizer).__name__ == optimizer_class.__name__  # AdamW is a subclass of Adam


def test_adamw_decays_weights_by_a_hundredth_of_the_learning_rate():
    """The decay is that of arXiv 1905.01969 §5.1; gradients are zero, so nothing else acts."""
    variable = keras.Variable(np.ones((2, 3), "float32"), name="x")
    optimizer = make_optimizer(
        RankerTraining(steps=100, optimizer="adamw", learning_rate=0.5, warmup_steps=0),
        embedding_table=variable,
        embedding_clip=0.0,
        precision="float32",
    )
    optimizer.build([variable])
    rate = float(optimizer.learning_rate)
    optimizer.apply([tf.zeros((2, 3))], [variable])
    assert rate > 0.1
    np.testing.assert_allclose(np.asarray(variable), 1 - 0.01 * rate, rtol=1e-6)


def test_the_gradient_of_an_encoders_table_is_clipped_to_a_norm_of_1(small_config, make_encoder):
    """The limit of 1 is that of arXiv 1911.03688 §3.1."""
    encoder = make_encoder(small_config)
    config = EncoderTraining(steps=10, optimizer="adam")
    optimizer = make_objective(encoder, config, precision="float32").optimizer
    table = encoder.trunk.embedding.table
    optimizer.build(encoder.trainable_variables)
    gradients = [tf.ones(v.shape) for v in encoder.trainable_variables]
    optimizer.apply(gradients, encoder.trainable_variables)
    (moment,) = [
        moment
        for variable, moment in zip(encoder.trainable_variables, optimizer._momentums, strict=True)
        if variable is table
    ]
    assert np.linalg.norm(np.asarray(moment)) == pytest.approx(0.1, rel=1e-3)


def _batch(config, *, pairs: int = 4, seed: int = 0) -> dict:
    lengths = np.random.RandomState(seed).randint(1, 13, size=2 * pairs)
    texts = random_texts(config, lengths, seed=seed)
    return packed_batch(texts[:pairs], texts[pairs:], config.num_ids, row_tokens=12)


def test_the_objective_parity_with_loop(small_config, make_encoder):
    """Scaled cosines with annealing, smoothed labels, and L2 of the matrices."""
    encoder = make_encoder(small_config)
    biases = [v for v in encoder.trainable_variables if v.name == "relative_bias"]
    assert biases
    for bias in biases:  # these are matrices only because each head has a row, so they have no L2
        bias.assign(np.full(bias.shape, 3.0))
    config = EncoderTraining(
        steps=10, learning_rate=1e-6, final_learning_rate=1e-6, scale_start=2.0, scale_end=5.0,
        scale_anneal_steps=3, l2=1e-3,
    )  # fmt: skip
    model = make_objective(encoder, config, precision="float32")
    model.run_eagerly = True
    batch = _batch(small_config)
    losses = [float(model.train_on_batch(batch)[0]) for _ in range(5)]
    encodings = outputs_of(encoder, batch)
    cosines = encodings["context_encoding"] @ encodings["response_encoding"].T
    squares = sum(
        float(v) ** 2
        for variable in encoder.trainable_variables
        if len(variable.shape) > 1 and not any(variable is bias for bias in biases)
        for v in np.asarray(variable).ravel()
    )
    expected = [naive.loss(scale * cosines, 0.2) + 1e-3 * squares for scale in (2, 3, 4, 5, 5)]
    # The tolerance is not 1e-6 because the first training call also widens the table's range.
    np.testing.assert_allclose(losses, expected, rtol=5e-3)


def test_the_scale_ends_at_the_root_of_the_width_of_the_encodings(small_config, make_encoder):
    model = make_objective(
        make_encoder(small_config), EncoderTraining(scale_anneal_steps=0), precision="float32"
    )
    scale = float(model(_batch(small_config))["scale"])
    assert scale == pytest.approx(math.sqrt(small_config.encoding_dim))


def test_scoring_is_no_training_step(small_config, make_encoder):
    model = make_objective(make_encoder(small_config), EncoderTraining(), precision="float32")
    batch = _batch(small_config)
    before = [np.asarray(v) for v in model.variables]
    first = outputs_of(model, batch)
    np.testing.assert_array_equal(first["scale"], outputs_of(model, batch)["scale"])
    for old, variable in zip(before, model.variables, strict=True):
        np.testing.assert_array_equal(old, np.asarray(variable))


def _scaled_gradients(encoder, precision: str, batch) -> dict:
    config = EncoderTraining(scale_anneal_steps=0, l2=0.0)
    model = make_objective(encoder, config, precision=precision)
    factor = 128.0 if precision == "mixed_float16" else 1.0

    def loss():
        return model.optimizer.scale_loss(model.compute_loss(batch, y_pred=model(batch)))

    gradients = gradients_of(loss, encoder.trainable_variables)
    return {path: gradient / factor for path, gradient in gradients.items()}


def test_unscaled_float16_gradients_equal_float32s(small_config, make_encoder):
    """Within 3 % of each norm: about ten roundings of 2⁻¹² each, in sums with cancellation."""
    batch = _batch(small_config, pairs=6)
    exact = _scaled_gradients(make_encoder(small_config), "float32", batch)
    encoder = make_encoder(small_config, dtype="mixed_float16")
    for path, gradient in _scaled_gradients(encoder, "mixed_float16", batch).items():
        distance = np.linalg.norm(gradient - exact[path])
        assert distance <= 0.03 * np.linalg.norm(exact[path]), path


def test_the_loss_scale_is_static_and_only_for_float16(small_config, make_encoder):
    for precision, factor in (("float32", 1.0), ("mixed_bfloat16", 1.0), ("mixed_float16", 128.0)):
        encoder = make_encoder(small_config, dtype=precision)
        model = make_objective(encoder, EncoderTraining(), precision=precision)
        model.run_eagerly = True  # one step, so tracing would not pay
        assert float(model.optimizer.scale_loss(tf.constant(1.0))) == factor
        loss = float(model.train_on_batch(_batch(small_config))[0])
        assert loss < 10.0  # the reported loss is unscaled
        assert float(model.optimizer.scale_loss(tf.constant(1.0))) == factor


def test_without_l2_the_sparse_gradients_train_under_a_loss_scale(small_config, make_encoder):
    """With L2 the tables' gradients are dense; without it, TensorFlow gives `IndexedSlices`."""
    encoder = make_encoder(small_config, dtype="mixed_float16")
    config = EncoderTraining(l2=0.0)
    model = make_objective(encoder, config, precision="mixed_float16")
    model.run_eagerly = True
    before = np.asarray(encoder.trunk.embedding.table)
    assert np.isfinite(model.train_on_batch(_batch(small_config))[0])
    after = np.asarray(encoder.trunk.embedding.table)
    assert np.isfinite(after).all()
    assert not np.array_equal(before, after)
