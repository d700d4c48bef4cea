"""The classifier heads in NumPy, compared with Keras and scikit-learn."""

import warnings

import keras
import numpy as np
import pytest

from convert_tf.intents.head import (
    accuracy_of,
    initial_network,
    train_logistic,
    train_network,
    train_step,
)


def _examples(number=90, dim=12, labels=3, seed=0):
    """Return unit vectors around one centre per label."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, labels, number)
    x = np.eye(labels, dim)[y] + 0.25 * rng.standard_normal((number, dim))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), y


def _weights(head):
    return [array for layer in head.layers for array in layer]


def test_a_step_is_that_of_keras():
    x, y = _examples(8)
    head = initial_network(12, 5, 3, np.random.default_rng(1))
    model = keras.Sequential(
        [keras.layers.Dense(5, activation="relu"), keras.layers.Dense(3, activation="softmax")]
    )
    model.build((None, 12))
    model.set_weights(_weights(head))
    model.compile(keras.optimizers.SGD(0.7), "sparse_categorical_crossentropy")
    np.testing.assert_allclose(head.probabilities(x), model.predict_on_batch(x), atol=1e-6)
    for _ in range(3):
        expected = float(model.train_on_batch(x, y))
        assert train_step(head, x, y, 0.7) == pytest.approx(expected, rel=1e-5)
    for own, theirs in zip(_weights(head), model.get_weights(), strict=True):
        np.testing.assert_allclose(own, theirs, atol=1e-6)


def test_weights_begin_as_those_of_keras():
    head = initial_network(300, 200, 7, np.random.default_rng(0))
    limit = np.sqrt(6 / 500)
    assert np.abs(head.layers[0].kernel).max() == pytest.approx(limit, rel=1e-3)
    assert np.std(head.layers[0].kernel) == pytest.approx(limit / np.sqrt(3), rel=0.02)
    assert not head.layers[0].bias.any()


def test_training_is_the_loop_that_it_says():
    """Training equals a loop over two epochs: sampling with replacement, dropout, linear decay."""
    x, y = _examples(10)
    found = train_network(
        x, y, seed=4, hidden_dim=5, dropout=0.5, learning_rate=0.3, epochs=2, batch_size=4
    )
    rng = np.random.default_rng(4)
    expected = initial_network(12, 5, 3, rng)
    for rate in (0.3, 0.15):
        for _ in range(3):  # ceil(10 / 4)
            chosen = rng.integers(0, 10, 4)
            kept = rng.random((4, 12), dtype=np.float32) < 0.5
            train_step(expected, x[chosen] * kept * 2, y[chosen], rate)
    np.testing.assert_allclose(found.layers[0].kernel, expected.layers[0].kernel, atol=1e-6)


def test_patience_stops_at_the_best_epoch():
    """Training stops as in a loop that trains 1, 2, … epochs at the same rates and compares."""
    x, y = _examples(40)
    wrong = (x, np.where(np.arange(40) % 3, (y + 1) % 3, y))  # training makes it worse
    options = {"hidden_dim": 8, "dropout": 0.0, "batch_size": 8, "seed": 0, "epochs": 300}
    found = train_network(x, y, learning_rate=0.5, validation=wrong, patience=3, **options)
    rng = np.random.default_rng(0)
    head, judged = initial_network(12, 8, 3, rng), []
    for epoch in range(300):
        for _ in range(5):
            chosen = rng.choice(40, 8)
            train_step(head, x[chosen], y[chosen], 0.5 * (1 - epoch / 300))
        judged.append((accuracy_of(head, *wrong), [array.copy() for array in _weights(head)]))
        accuracies = [accuracy for accuracy, _ in judged]
        best = int(np.argmax(accuracies))
        if epoch - best == 3:
            break
    assert best < epoch < 100
    for own, expected in zip(_weights(found), judged[best][1], strict=True):
        np.testing.assert_allclose(own, expected, atol=1e-6)


def test_logistic_regression_is_scikit_learns():
    from sklearn.linear_model import LogisticRegression

    for labels in (2, 3):
        x, y = _examples(labels=labels)
        theirs = LogisticRegression(C=5.0, max_iter=2000).fit(x, y).predict_proba(x)
        own = train_logistic(x, y, c=5.0).probabilities(x)
        np.testing.assert_allclose(own, theirs, atol=1e-5)
    assert np.abs(train_logistic(x, y, c=0.1).probabilities(x) - own).max() > 0.01


def test_batches_of_rows_change_nothing():
    x, _ = _examples(5000)
    head = initial_network(12, 5, 3, np.random.default_rng(0))
    alone = np.concatenate([head.probabilities(x[i : i + 1]) for i in (0, 4095, 4096, 4999)])
    np.testing.assert_allclose(head.probabilities(x)[[0, 4095, 4096, 4999]], alone, atol=1e-6)
    assert head.probabilities(x[:0]).shape == (0, 3)


@pytest.mark.parametrize("rate", [1e9, 1e38])
def test_training_that_leaves_the_numbers_stops_with_the_step(rate):
    with pytest.raises(ValueError, match=r"diverged at step \d+, with a learning rate of 1e\+"):
        train_network(*_examples(), seed=0, learning_rate=rate, epochs=20, hidden_dim=64)


def test_a_last_step_that_leaves_the_numbers_is_found():
    x, y = _examples(8)
    with pytest.raises(ValueError, match="at step 1, with"):
        train_network(x, y, seed=0, learning_rate=1e300, epochs=1, batch_size=8, dropout=0)


def test_probabilities_are_never_nan():
    x, y = _examples(8)
    head = train_network(x, y, seed=0, epochs=1, hidden_dim=4)
    for layer in head.layers:
        layer.kernel[:] = 3e38 * np.sign(layer.kernel)
    with pytest.raises(ValueError, match=r"not finite.*lower learning rate"):
        head.probabilities(10 * x)


def test_one_example_of_each_intent_is_no_reason_for_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DeprecationWarning)  # libraries may warn about each other
        head = train_logistic(np.eye(30, dtype=np.float32), np.arange(30))
    np.testing.assert_array_equal(head.probabilities(np.eye(30)).argmax(1), np.arange(30))


def test_a_weight_of_2_is_an_example_twice_in_logistic_regression():
    x, y = _examples(30)
    twice = np.concatenate([np.arange(30), np.arange(10)])
    weights = np.bincount(twice).astype(float)
    found = train_logistic(x, y, weights=weights).probabilities(x)
    expected = train_logistic(x[twice], y[twice]).probabilities(x)
    np.testing.assert_allclose(found, expected, atol=1e-3)
