"""Any fault in an array file raises a ValueError."""

import io
import json
import os
import random
import zipfile

import numpy as np
import pytest

from convert_tf.storage.arrays import FolderFormat, GrowingArray, load_array, load_arrays


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
        _npy(HEADER.removesuffix("}")),  # Python's tokenizer raises TokenError
        _npy("(" * 90),
        pytest.param(
            _npy(HEADER.replace("(10,)", "(-1,)")),
            marks=pytest.mark.skipif(np.__version__ < "2", reason="numpy 1 reads all numbers"),
        ),
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


@pytest.mark.parametrize(
    "header",
    [
        HEADER.replace("(10,)", "(10**3,)"),  # NumPy's message has the address of an object
        HEADER.replace("'shape'", f"'{'x' * 5_000}'"),
        HEADER + "x" * 9_000,
    ],
)
def test_messages_about_damaged_arrays_are_short(tmp_path, header):
    (tmp_path / "a.npy").write_bytes(_npy(header))
    with pytest.raises(ValueError, match=r"\S") as caught:
        load_array(tmp_path / "a.npy")
    assert len(str(caught.value)) < 250 and " at 0x" not in str(caught.value)
    assert "\n" not in str(caught.value)


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
    """A file of 2 MB that expands to 512 MB of zeros is refused; classifiers may be untrusted."""
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


def test_an_array_that_grows_has_all_entries(tmp_path):
    path = tmp_path / "rows.npy"
    with GrowingArray(path, "float32", row_shape=(2,)) as array:
        array.append(np.array([[1.0, 2.0]]))
        array.append(np.array([[3.0, 4.0], [5.0, 6.0]]))
        assert array.size == 3
    rows = load_array(path)
    assert rows.dtype == np.float32
    assert rows.tolist() == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    array.close()  # a second close does nothing
    assert load_array(path).shape == (3, 2)


def test_an_array_whose_writer_failed_has_no_number_of_entries(tmp_path):
    path = tmp_path / "rows.npy"
    with pytest.raises(KeyError), GrowingArray(path, "int32") as array:
        array.append(np.arange(3))
        raise KeyError
    assert array._file.closed
    assert load_array(path).shape == (0,)


FORMAT = FolderFormat(
    "folder of rows", "rows.json", {"texts": int}, ["float32"], "Make it again.", r".*\.npy", 3
)
FACTS = {"texts": 2, "dtype": "float32"}


def test_a_folder_says_what_is_in_it(tmp_path):
    assert FORMAT.files(str(tmp_path)) == []
    for name in ("b.npy", "a.npy", "note.txt"):
        np.save(tmp_path / "saved.npy", np.arange(4, dtype="float32").reshape(2, 2))
        (tmp_path / "saved.npy").rename(tmp_path / name)
    assert FORMAT.files(str(tmp_path)) == []  # the folder is incomplete
    assert FORMAT.write_facts(tmp_path, FACTS) == {"version": 3, **FACTS}
    assert FORMAT.facts(tmp_path) == {"version": 3, **FACTS}
    names = ["a.npy", "b.npy", "rows.json"]
    assert FORMAT.files(str(tmp_path)) == [str(tmp_path / name) for name in names]
    assert FORMAT.mapped(tmp_path, "a.npy", "float32", (2, -1)).checked().tolist() == [
        [0, 1],
        [2, 3],
    ]


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (None, "Cannot read .*rows.json of the folder of rows: "),
        ([], "has version None of its format, but this version of convert_tf reads version 3"),
        ({"version": 2, **FACTS}, "has version 2 of its format"),
        ({"version": 3, "texts": 2}, "with a wrong value: dtype"),
        ({"version": 3, "texts": "2", "dtype": "float32"}, "with a wrong value: texts"),
        ({"version": 3, "texts": 2, "dtype": "int8"}, "with a wrong value: dtype"),
    ],
)
def test_a_folder_of_another_kind_is_refused(tmp_path, facts, message):
    if facts is not None:
        (tmp_path / "rows.json").write_text(json.dumps(facts))
    with pytest.raises(ValueError, match=message) as refusal:
        FORMAT.facts(tmp_path)
    assert "Make it again." in str(refusal.value)


@pytest.mark.parametrize(
    ("dtype", "shape"), [("int32", (2, 2)), ("float32", (3, 2)), ("float32", (2,))]
)
def test_an_array_of_another_kind_is_refused(tmp_path, dtype, shape):
    np.save(tmp_path / "a.npy", np.zeros((2, 2), "float32"))
    with pytest.raises(ValueError, match=r"a\.npy"):
        FORMAT.mapped(tmp_path, "a.npy", dtype, shape)


def test_an_array_that_got_shorter_is_not_read(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((2, 2), "float32"))
    mapped = FORMAT.mapped(tmp_path, "a.npy", "float32", (2, 2))
    os.truncate(tmp_path / "a.npy", 140)
    with pytest.raises(ValueError, match="shrank while it was read: 140 of 144 bytes are left"):
        mapped.checked()
