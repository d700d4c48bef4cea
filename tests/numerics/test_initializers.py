import numpy as np

from convert_tf.numerics.initializers import glorot_uniform, set_seed, truncated_normal


def test_a_seed_gives_the_same_weights_for_ever():
    """These are the first values for seed 7, on every backend and in every version."""
    set_seed(7)
    uniform, normal = glorot_uniform()((2, 2)), truncated_normal(0.5)((2, 2))
    np.testing.assert_allclose(uniform, [[0.0320787, 0.0024493], [0.845981, 0.6951288]], rtol=1e-4)
    np.testing.assert_allclose(normal, [[0.5933464, -0.198226], [-0.3820978, 0.3965694]], rtol=1e-4)


def test_normal_numbers_are_within_two_deviations():
    set_seed(0)
    values = np.asarray(truncated_normal(0.5)((200, 200)))
    assert 0.99 < np.abs(values).max() <= 1.0
    assert abs(values.std() - 0.44) < 0.01  # a normal distribution that is truncated there
