"""Which precision a run takes."""

import warnings

import pytest

from convert_tf import trainer


@pytest.mark.parametrize(
    ("float32_seconds", "bfloat16_seconds", "chosen"),
    [(1.0, 0.5, "mixed_bfloat16"), (1.0, 0.9, "float32"), (1.0, 50.0, "float32")],
)
def test_auto_takes_what_a_cpu_does_fast(monkeypatch, float32_seconds, bfloat16_seconds, chosen):
    seconds = {"float32": float32_seconds, "bfloat16": bfloat16_seconds}
    monkeypatch.setattr(trainer, "matmul_seconds", seconds.__getitem__)
    assert trainer.choose_precision("auto") == chosen


def test_auto_takes_float16_on_a_gpu_and_times_nothing(monkeypatch):
    monkeypatch.setattr(trainer, "has_gpu", lambda: True)
    monkeypatch.setattr(trainer, "matmul_seconds", lambda dtype: pytest.fail("timed a matmul"))
    assert trainer.choose_precision("auto") == "mixed_float16"


def test_float16_on_tensorflows_cpu_is_done_with_a_warning():
    with pytest.warns(UserWarning, match="thousands of times slower"):
        assert trainer.choose_precision("mixed_float16") == "mixed_float16"


@pytest.mark.parametrize("requested", ["float32", "mixed_bfloat16"])
def test_other_requests_are_followed_in_silence(requested):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert trainer.choose_precision(requested) == requested
