"""What is read of Linux's file about processors."""

import pytest

from convert_tf.numerics.processor import adds_products_of_bytes, multiplies_bfloat16


@pytest.mark.parametrize(
    ("has_instructions", "cpuinfo", "expected"),
    [
        (
            multiplies_bfloat16,
            "processor\t: 0\nflags\t\t: fpu avx2 avx512f avx512_bf16 sse\n",
            True,
        ),
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
def test_flags_of_linux(tmp_path, has_instructions, cpuinfo, expected):
    if cpuinfo is not None:
        (tmp_path / "cpuinfo").write_text(cpuinfo)
    assert has_instructions(tmp_path / "cpuinfo") is expected
