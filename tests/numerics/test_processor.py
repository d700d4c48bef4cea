"""What is read of Linux's file about processors."""

import pytest

from convert_tf.numerics.processor import adds_products_of_bytes, multiplies_bfloat16


@pytest.mark.parametrize(
    ("cpuinfo", "has_instructions"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx2 avx512f avx512_bf16 sse\n", True),
        ("model name\t: amx_bf16\nflags\t\t: fpu amx_bf16\n", True),
        ("model name\t: amx_bf16\nflags\t\t: fpu avx2\n", False),
        ("CPU part\t: 0xd40\nFeatures\t: fp asimd bf16\n", True),
        ("Features\t: fp asimd\n", False),
        ("hardware\t: unknown\n", None),
        (None, None),
    ],
)
def test_flags_of_linux(tmp_path, cpuinfo, has_instructions):
    if cpuinfo is not None:
        (tmp_path / "cpuinfo").write_text(cpuinfo)
    assert multiplies_bfloat16(tmp_path / "cpuinfo") is has_instructions


@pytest.mark.parametrize(
    ("cpuinfo", "has_instructions"),
    [
        ("flags\t\t: fpu avx2 avx512f avx512_vnni\n", True),
        ("flags\t\t: fpu avx2 avx_vnni\n", True),
        ("flags\t\t: fpu avx2 amx_int8\n", True),
        ("flags\t\t: fpu avx2 avx512f avx512_bf16\n", False),
        ("Features\t: fp asimd i8mm\n", None),
        (None, None),
    ],
)
def test_products_of_bytes(tmp_path, cpuinfo, has_instructions):
    if cpuinfo is not None:
        (tmp_path / "cpuinfo").write_text(cpuinfo)
    assert adds_products_of_bytes(tmp_path / "cpuinfo") is has_instructions
