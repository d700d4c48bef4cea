"""A dump in parts holds the same lines, and gives the same records."""

import os
from pathlib import Path

import pytest
import zstandard
from support.commands import call_command
from support.dump_files import json_lines, random_dump

from convert_tf.corpora.dumps import CountedFile, find_files, read_lines, split_dump
from convert_tf.corpora.local import prepare
from convert_tf.data.shards import record_files


def _lines(paths):
    return [line for path in paths for line in read_lines(CountedFile(path))]


@pytest.mark.parametrize("ending", ["", ".zst", ".bz2", ".gz", ".xz"])
def test_parts_hold_the_lines_of_the_dump(write_dump, tmp_path, ending):
    dump = write_dump(f"RC_1{ending}", json_lines(random_dump(60)[0]).removesuffix(b"\n"))
    names = split_dump(dump, str(tmp_path / "parts"), part_bytes=10_000)
    paths = [str(tmp_path / "parts" / name) for name in names]
    assert names[0] == "RC_1-part-00000.zst"
    assert len(names) > 4
    assert _lines(paths) == _lines([dump])
    sizes = [
        len(zstandard.ZstdDecompressor().decompressobj().decompress(Path(path).read_bytes()))
        for path in paths
    ]
    assert all(10_000 <= size < 10_500 for size in sizes[:-1])


def test_parts_give_the_same_records(write_dump, tmp_path):
    dump = write_dump("RC.zst", random_dump(60)[0])
    call_command("split-dump", f"--input={dump}", f"--output={tmp_path}/p", "--part_megabytes=1")
    split_dump(dump, str(tmp_path / "p"), part_bytes=5_000, overwrite=True)
    prepare([dump], str(tmp_path / "whole"))
    prepare(find_files([f"{tmp_path}/p/*"]), str(tmp_path / "split"))
    contents = [
        [Path(path).read_bytes() for path in record_files(str(tmp_path / name))]
        for name in ("whole", "split")
    ]
    assert contents[0] == contents[1]


def test_parts_of_several_dumps_share_a_folder(write_dump, tmp_path):
    for name in ("RC_1", "RC_2"):
        dump = write_dump(name, random_dump(60)[0])
        split_dump(dump, str(tmp_path / "parts"), part_bytes=100_000)
    with pytest.raises(ValueError, match="Pass --overwrite"):
        split_dump(dump, str(tmp_path / "parts"), part_bytes=10)
    split_dump(dump, str(tmp_path / "parts"), part_bytes=10**9, overwrite=True)
    names = sorted(path.name for path in (tmp_path / "parts").iterdir())
    assert names == ["RC_1-part-00000.zst", "RC_2-part-00000.zst"]


def test_a_damaged_dump_loses_its_last_line_with_a_warning(write_dump, tmp_path, capsys):
    dump = write_dump("RC.zst", random_dump(3_500)[0])
    with open(dump, "r+b") as file:
        file.truncate(os.path.getsize(dump) // 2)
    names = split_dump(dump, str(tmp_path / "parts"), part_bytes=10**9)
    assert "truncated zst archive" in capsys.readouterr().err
    assert _lines([str(tmp_path / "parts" / names[0])]) == _lines([dump])


def test_what_cannot_be_split_is_refused(write_dump, tmp_path):
    with pytest.raises(ValueError, match="RC has no lines"):
        split_dump(write_dump("RC", b""), str(tmp_path / "parts"), part_bytes=10)
    assert not (tmp_path / "parts").exists()
