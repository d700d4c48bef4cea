"""Whatever is wrong with a file of arrays is a ValueError."""

import io
import random
import zipfile

import numpy as np
import pytest

from convert_tf.storage.arrays import load_array, load_arrays


def _npy(header: str) -> bytes:
    filled = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(filled).to_bytes(2, "little") + filled + bytes(80)


HEADER = "{'descr': '<f8', 'fortran_order': False, 'shape': (10,), }"


@pytest.mark.parametrize("is_mapped", [False, True])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUMPY\x01\x00",
        _npy(HEADER.removesuffix("}")),  # TokenError of Python's tokenizer
        _npy("(" * 90),
        _npy(HEADER.replace("(10,)", "(-1,)")),
        _npy(HEADER.replace("(10,)", "(10**3,)")),
        _npy(HEADER.replace("(10,)", f"({2**62},)")),
        _npy(HEADER.replace("<f8", "|O")),
        _npy(HEADER.replace("'<f8'", "['a']")),
        b"text",
    ],
)
def test_damaged_arrays(tmp_path, content, is_mapped):
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(ValueError, match=r"\S"):
        load_array(tmp_path / "a.npy", is_mapped=is_mapped)


def test_one_array_and_an_archive_are_not_taken_for_each_other(tmp_path):
    np.save(tmp_path / "one.npy", np.zeros(3))
    np.savez(tmp_path / "many.npz", a=np.zeros(3))
    with pytest.raises(ValueError, match="one array was expected"):
        load_array(tmp_path / "many.npz")
    with pytest.raises(ValueError, match="an archive was expected"):
        load_arrays(tmp_path / "one.npy")
    assert load_arrays(tmp_path / "many.npz")["a"].tolist() == [0.0] * 3


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_fuzzed_archives_are_read_or_refused(save):
    file = io.BytesIO()
    save(file, a=np.arange(50), b=np.array(["x", "longer"]))
    whole, rng = file.getvalue(), random.Random(0)
    refused = 0
    for _ in range(500):
        content = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        if rng.random() < 0.3:
            content = content[: rng.randrange(len(content))]
        try:
            load_arrays(io.BytesIO(bytes(content)))
        except ValueError:
            refused += 1
    assert refused > 250


def test_an_archive_that_would_fill_the_memory_is_refused(tmp_path):
    """512 MB of zeros in 2 MB: a file of somebody else, as of a classifier."""
    path = tmp_path / "bomb.npz"
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "|u1", "fortran_order": False, "shape": (2**29,)}
    )
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("zeros.npy", "w") as part,
    ):
        part.write(header.getvalue())
        for _ in range(2**7):
            part.write(bytes(2**22))
    with pytest.raises(ValueError, match="bytes that unpack to 536,871,040"):
        load_arrays(path)
    np.savez_compressed(path, zeros=np.zeros(2**24, np.uint8))
    assert load_arrays(path)["zeros"].shape == (2**24,)
