"""Which precision a run takes."""

import warnings

import pytest
from support.processes import printed_by

from convert_tf.numerics import devices


@pytest.mark.parametrize(
    ("float32_seconds", "bfloat16_seconds", "chosen"),
    [(1.0, 0.5, "mixed_bfloat16"), (1.0, 0.9, "float32"), (1.0, 50.0, "float32")],
)
def test_auto_takes_what_a_cpu_does_fast(monkeypatch, float32_seconds, bfloat16_seconds, chosen):
    seconds = {"float32": float32_seconds, "bfloat16": bfloat16_seconds}
    monkeypatch.setattr(devices, "matmul_seconds", seconds.__getitem__)
    monkeypatch.setattr(devices, "multiplies_bfloat16", lambda: None)
    assert devices.choose_precision("auto") == chosen
    monkeypatch.setattr(devices, "multiplies_bfloat16", lambda: False)
    assert devices.choose_precision("auto") == "float32"


def test_auto_takes_float16_on_a_gpu_and_times_nothing(monkeypatch):
    monkeypatch.setattr(devices, "has_gpu", lambda: True)
    monkeypatch.setattr(devices, "matmul_seconds", lambda dtype: pytest.fail("timed a matmul"))
    assert devices.choose_precision("auto") == "mixed_float16"


def test_float16_on_tensorflows_cpu_is_done_with_a_warning():
    with pytest.warns(UserWarning, match="thousands of times slower"):
        assert devices.choose_precision("mixed_float16") == "mixed_float16"


@pytest.mark.parametrize("requested", ["float32", "mixed_bfloat16"])
def test_other_requests_are_followed_in_silence(requested):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert devices.choose_precision(requested) == requested


def test_jax_on_a_machine_without_a_gpu():
    program = (
        "from convert_tf.numerics.devices import choose_precision, has_gpu; "
        "print(has_gpu(), choose_precision('auto'))"
    )
    printed = printed_by(program, KERAS_BACKEND="jax", JAX_PLATFORMS="cpu")
    found, precision = printed.split()
    assert found == "False" and precision in ("float32", "mixed_bfloat16")
