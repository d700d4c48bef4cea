"""Which precision a run takes."""

import warnings

import pytest
from support.processes import printed_by

from convert_tf.numerics import devices


@pytest.mark.parametrize(("is_faster", "chosen"), [(True, "mixed_bfloat16"), (False, "float32")])
def test_auto_takes_what_a_cpu_does_fast(monkeypatch, is_faster, chosen):
    monkeypatch.setattr(devices, "bfloat16_is_faster", lambda multiply: is_faster)
    assert devices.choose_precision("auto") == chosen


def test_auto_takes_float16_on_a_gpu_and_times_nothing(monkeypatch):
    monkeypatch.setattr(devices, "has_gpu", lambda: True)
    monkeypatch.setattr(devices, "bfloat16_is_faster", lambda _: pytest.fail("timed a matmul"))
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
