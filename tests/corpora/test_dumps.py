"""Reading lines of dumps from every archive format, and finding the files of a dump."""

import os
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from support.commands import call_command
from support.dump_files import COMPRESSORS, json_lines, random_dump

from convert_tf.corpora.dumps import CountedFile, corpus_name, find_files, read_objects, split_dump
from convert_tf.readers.files import read_lines

ARCHIVES = [".zst", ".bz2", ".gz", ".xz"]


def _read(path, **options):
    file = CountedFile(str(path), **options)
    return list(read_objects(file)), file


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_content_decides_before_the_name(tmp_path, suffix):
    objects = [{"n": n, "text": "å ﹏ 😀\u2028 line\n"} for n in range(3000)]
    path = tmp_path / "RC.zst"
    data = b"\xef\xbb\xbf" + json_lines(objects).replace(b"\n", b"\r\n\r\n", 1)
    path.write_bytes(COMPRESSORS[suffix](data))
    read, file = _read(path)
    assert read == objects
    assert (file.lines, file.kind) == (3001, suffix[1:] or "plain")
    assert file.compressed_bytes == path.stat().st_size
    assert not file.skipped and not file.warnings


def test_zstd_with_the_longest_window(tmp_path):
    parameters = zstandard.ZstdCompressionParameters(window_log=31, compression_level=1)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    path = tmp_path / "RC.zst"
    data = compressor.compress(json_lines([{"n": n} for n in range(1000)])) + compressor.flush()
    path.write_bytes(data)
    assert zstandard.get_frame_parameters(data).window_size == 2**31
    assert len(_read(path)[0]) == 1000


@pytest.mark.parametrize("padding", [b"", bytes(4), bytes(3000)])
@pytest.mark.parametrize("suffix", ARCHIVES)
def test_several_streams_in_one_file(tmp_path, suffix, padding):
    compress = COMPRESSORS[suffix]
    path = tmp_path / f"RC{suffix}"
    first, second = compress(b'{"a": 1}\n{"a"'), compress(b": 2}\n")
    path.write_bytes(first + padding + second + padding + compress(b'{"a": 3}') + padding)
    read, file = _read(path)
    assert read == [{"a": 1}, {"a": 2}, {"a": 3}]
    assert not file.warnings


@pytest.mark.parametrize("suffix", ARCHIVES)
@pytest.mark.parametrize("fault", ["truncated", "damaged", "a few bytes"])
def test_an_archive_gives_the_lines_before_its_fault(tmp_path, suffix, fault):
    # bz2 has blocks of 900 kB. There are two blocks, and the second is damaged. Random hex digits
    # hardly compress, so a cut falls into the middle of the lines.
    objects = [{"n": n, "text": os.urandom(200).hex()} for n in range(4000)]
    whole = COMPRESSORS[suffix](json_lines(objects))
    start = whole[: 10 if fault == "a few bytes" else len(whole) * 9 // 10]
    path = tmp_path / f"RC{suffix}"
    path.write_bytes(start + b"\xff" * 100_000 if fault == "damaged" else start)
    read, file = _read(path)
    if fault == "a few bytes":
        assert read == []
    else:
        # A damaged block may give wrong characters before the damage is detected.
        assert len(read) > 1000
        assert read[:1000] == objects[:1000]
    # Damaged gzip data may only be detected by the missing end.
    assert file.skipped["damaged_archive"] + file.skipped["truncated_archive"] == 1
    (warning,) = file.warnings
    assert str(path) in warning
    assert fault == "damaged" or f"kept the {len(read)} lines" in warning


@pytest.mark.parametrize(("used", "bad", "is_lost"), [(0, 1, True), (1, 5, False), (1, 10, True)])
def test_a_file_of_which_hardly_a_line_is_readable(write_dump, used, bad, is_lost):
    path = write_dump("RC", b'{"a": 1}\n' * used + b"nothing\n" * bad)
    read, file = _read(path)
    assert len(read) == used
    if not is_lost:
        file.check_readable(used)
        return
    with pytest.raises(
        ValueError, match=rf"Hardly any line .*RC.*{bad} not_json.*RC:{used + 1} \(not_json\)"
    ) as error:
        file.check_readable(used)
    assert "--max_bad_lines" not in str(error.value)
    with pytest.raises(ValueError, match=r"To skip such lines, pass --max_bad_lines\."):
        file.check_readable(used, has_limit=True)


def test_lines_that_a_rule_leaves_out_are_no_bad_ones():
    file = CountedFile("RC", lines=100)
    for _ in range(100):
        file.skip("other_subreddit", is_bad=False)
    file.skip("not_json")
    file.check_readable(0)


def test_empty_file(tmp_path):
    path = tmp_path / "RC.zst"
    path.write_bytes(b"")
    read, file = _read(path)
    assert (read, file.warnings) == ([], [f"{path}: the file is empty"])


def test_bad_lines_are_counted_by_reason(write_dump):
    lines = [
        b'{"a": 1}',
        b"not json",
        b'{"a": "cut off',
        b"[1, 2]",
        b"null",
        b'{"a": "\xff\xfe"}',
        b"[" * 200_000,
        b"",
        rb'{"a": "\ud83d, \ud83d\ude42 and \\ud83d"}',
    ]
    read, file = _read(write_dump("RC.zst", b"\n".join(lines)))
    assert read == [{"a": 1}, {"a": "\ufffd, 🙂 and \\ud83d"}]
    assert file.skipped == {"not_json": 3, "not_an_object": 2, "invalid_utf8": 1}
    assert file.lines == 9


@pytest.mark.parametrize("suffix", ["", ".zst"])
@pytest.mark.parametrize("is_last", [False, True])
def test_overlong_line_is_dropped_alone(write_dump, suffix, is_last):
    after = b"" if is_last else b'\n{"a": 2}\n'
    path = write_dump(f"RC{suffix}", b'{"a": 1}\n{"a": "' + b"x" * 3_000_000 + b'"}' + after)
    read, file = _read(path, max_line_bytes=8)  # the length of the other lines
    assert read == [{"a": 1}] + ([] if is_last else [{"a": 2}])
    assert file.skipped == {"line_too_long": 1}


@pytest.mark.slow
def test_memory_is_flat_whatever_the_file_holds(tmp_path):
    # A file of a few kB that expands to a single line of 768 MB, followed by a usable line.
    compressor = zstandard.ZstdCompressor().compressobj()
    path = tmp_path / "RC.zst"
    with path.open("wb") as file:
        for _ in range(768):
            file.write(compressor.compress(b"x" * 2**20))
        file.write(compressor.compress(b'\n{"a": 1}\n') + compressor.flush())
    tracemalloc.start()
    read, file = _read(path, max_line_bytes=2**20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert read == [{"a": 1}]
    assert file.skipped == {"line_too_long": 1}
    assert peak < 150 * 2**20


def test_find_files_sorts_and_removes_doubles(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("RC_2.zst", "RC_1.zst", "RS_1.zst", "RC[1].json", "RC1.json"):
        (tmp_path / name).touch()
    (tmp_path / "RC_folder").mkdir()
    assert find_files(["RC_*", "RC_1.zst"]) == ["RC_1.zst", "RC_2.zst"]
    (tmp_path / "link").symlink_to(tmp_path)
    twice = ["RC_1.zst", "./RC_1.zst", str(tmp_path / "RC_2.zst"), "link/RC_2.zst"]
    assert [*map(os.path.basename, find_files(twice))] == ["RC_1.zst", "RC_2.zst"]
    (tmp_path / "link").unlink()
    assert find_files(["RC[1].json"]) == ["RC[1].json"]  # a file name that looks like a pattern
    assert find_files(["RC[12].json"]) == ["RC1.json"]
    with pytest.raises(ValueError, match=r"matches '/nowhere/RC_\*'"):
        find_files(["/nowhere/RC_*"])


def _lines(paths):
    return [line for path in paths for line in read_lines(CountedFile(path))]


def test_parts_hold_the_lines_of_the_dump(write_dump, tmp_path):
    dump = write_dump("RC_1.bz2", json_lines(random_dump(60)[0]).removesuffix(b"\n"))
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
    whole = ("split-dump", f"--input={dump}", f"--output={tmp_path}/whole", "--part_megabytes=1")
    call_command(*whole)
    assert _lines([str(tmp_path / "whole" / names[0])]) == _lines([dump])


def test_parts_of_several_dumps_share_a_folder(write_dump, tmp_path):
    for name in ("RC_1", "RC_2"):
        dump = write_dump(name, random_dump(60)[0])
        split_dump(dump, str(tmp_path / "parts"), part_bytes=100_000)
    split_dump(dump, str(tmp_path / "parts"), part_bytes=10**9, overwrite=True)
    names = sorted(path.name for path in (tmp_path / "parts").iterdir())
    assert names == ["RC_1-part-00000.zst", "RC_2-part-00000.zst"]


def test_names_keep_full_stops_that_begin_no_suffix(write_dump, tmp_path):
    names = ("RC_2023.01", "RC_2023.02.zst", "chats.v2.jsonl.gz", "faq.CSV", "a.parquet")
    expected = ["RC_2023.01", "RC_2023.02", "chats.v2", "faq", "a"]
    assert [*map(corpus_name, names)] == expected
    for name in names[:2]:
        dump = write_dump(name, random_dump(6)[0])
        split_dump(dump, str(tmp_path / "parts"), part_bytes=10**9, overwrite=True)
    with pytest.raises(ValueError, match=r"parts' already exists\. Pass --overwrite"):
        split_dump(dump, str(tmp_path / "parts"), part_bytes=10**9)
    parts = sorted(path.name for path in (tmp_path / "parts").iterdir())
    assert parts == ["RC_2023.01-part-00000.zst", "RC_2023.02-part-00000.zst"]


def test_a_damaged_dump_loses_its_last_line_with_a_warning(write_dump, tmp_path, capsys):
    dump = write_dump("RC.zst", random_dump(3_500)[0])
    with open(dump, "r+b") as file:
        file.truncate(os.path.getsize(dump) // 2)
    names = split_dump(dump, str(tmp_path / "parts"), part_bytes=10**9)
    assert "truncated zst archive" in capsys.readouterr().err
    assert _lines([str(tmp_path / "parts" / names[0])]) == _lines([dump])


def test_an_empty_dump_is_not_split(write_dump, tmp_path):
    with pytest.raises(ValueError, match="RC has no lines"):
        split_dump(write_dump("RC", b""), str(tmp_path / "parts"), part_bytes=10)
    assert not (tmp_path / "parts").exists()
