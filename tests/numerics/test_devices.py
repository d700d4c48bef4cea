"""The choice of precision for a run."""

import time
import warnings

import pytest
from support.processes import printed_by

from convert_tf.numerics import devices, processor
from convert_tf.numerics.processor import adds_products_of_bytes, multiplies_bfloat16


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


@pytest.mark.parametrize("has_gpu", [False, True])
@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_feed_forward_layers_are_compiled_for_16_bits_of_a_cpu(monkeypatch, has_gpu, precision):
    monkeypatch.setattr(devices, "has_gpu", lambda: has_gpu)
    is_compiled = devices.compiles_feed_forward(precision)
    assert is_compiled == (not has_gpu and precision == "mixed_bfloat16")
    assert devices.is_tensorflow_on_cpu() != has_gpu
    assert devices.compiles_shapes() == has_gpu


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


@pytest.mark.parametrize(
    ("has_instructions", "cpuinfo", "expected"),
    [
        (multiplies_bfloat16, "processor\t: 0\nflags\t\t: fpu avx2 avx512_bf16 sse\n", True),
        (multiplies_bfloat16, "model name\t: amx_bf16\nflags\t\t: fpu amx_bf16\n", True),
        (multiplies_bfloat16, "model name\t: amx_bf16\nflags\t\t: fpu avx2\n", False),
        (multiplies_bfloat16, "CPU part\t: 0xd40\nFeatures\t: fp asimd bf16\n", True),
        (multiplies_bfloat16, "Features\t: fp asimd\n", False),
        (multiplies_bfloat16, "hardware\t: unknown\n", None),
        (multiplies_bfloat16, None, None),
        (adds_products_of_bytes, "flags\t\t: fpu avx2 avx512f avx512_vnni\n", True),
        (adds_products_of_bytes, "flags\t\t: fpu avx2 avx_vnni\n", True),
        (adds_products_of_bytes, "flags\t\t: fpu avx2 amx_int8\n", True),
        (adds_products_of_bytes, "flags\t\t: fpu avx2 avx512f avx512_bf16\n", False),
        (adds_products_of_bytes, "Features\t: fp asimd i8mm\n", None),
        (adds_products_of_bytes, None, None),
    ],
)
def test_flags_of_linux(tmp_path, monkeypatch, has_instructions, cpuinfo, expected):
    monkeypatch.setattr(processor, "_CPUINFO", tmp_path / "cpuinfo")
    if cpuinfo is not None:
        (tmp_path / "cpuinfo").write_text(cpuinfo)
    assert has_instructions() is expected


@pytest.mark.parametrize("has_instructions", [True, False, None])
@pytest.mark.parametrize(
    ("float32_pauses", "bfloat16_pauses", "is_faster"),
    [
        # The shortest times are compared, without the first round.
        ((0, 0.1, 0.05, 0.1), (0.1, 0.01, 0.02, 0.02), True),
        ((0.1, 0.01, 0.02, 0.02), (0, 0.1, 0.05, 0.1), False),
        ((0.05,) * 4, (0.048,) * 4, False),  # the difference is too small
    ],
)
def test_which_type_is_faster_is_measured_in_turns(
    monkeypatch, float32_pauses, bfloat16_pauses, is_faster, has_instructions
):
    monkeypatch.setattr(processor, "multiplies_bfloat16", lambda: has_instructions)
    pauses = {"float32": iter(float32_pauses), "bfloat16": iter(bfloat16_pauses)}
    turns = []

    def multiply(dtype):
        turns.append(dtype)
        time.sleep(next(pauses[dtype]))

    is_tried = has_instructions is not False
    assert processor.bfloat16_is_faster(multiply) is (is_faster and is_tried)
    assert turns == ["float32", "bfloat16"] * 4 * is_tried
