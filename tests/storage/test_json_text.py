"""JSON that is damaged, or nested deeper than the parser goes; checksums."""

import hashlib

import pytest

from convert_tf.storage.checksums import checksum, file_checksum, fingerprint
from convert_tf.storage.json_text import json_file, json_of_texts, parsed_json

DEEP = "[" * 100_000


def test_nesting_is_a_value_error():
    assert parsed_json('{"a": [1]}') == parsed_json(b'{"a": [1]}') == {"a": [1]}
    for text in (DEEP, '{"a":' * 100_000, "[", ""):
        with pytest.raises(ValueError, match=r"\w"):
            parsed_json(text)


@pytest.mark.parametrize("content", [DEEP.encode(), b"[1", b"\xff"])
def test_a_damaged_file_is_named(tmp_path, content):
    (tmp_path / "options.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"options\.json' is not valid JSON: "):
        json_file(tmp_path / "options.json")


def test_a_key_that_is_there_twice_is_refused_but_in_dumps():
    text = '{"a": {"b": 1, "b": 2}}'
    with pytest.raises(ValueError, match="the key 'b' is there twice"):
        json_of_texts(text)
    assert json_of_texts(text, is_dump=True) == {"a": {"b": 2}}


def test_files_one_behind_the_other(tmp_path):
    large = b"abc" * 2**20  # more than one piece
    (tmp_path / "a").write_bytes(large)
    (tmp_path / "b").write_bytes(b"x")
    expected = hashlib.sha256(large + b"x").hexdigest()
    assert file_checksum(tmp_path / "a", str(tmp_path / "b")) == expected
    assert checksum([large, memoryview(b"x")]) == expected
    assert file_checksum() == checksum([]) == hashlib.sha256().hexdigest()


def test_a_fingerprint_counts_names_and_sizes(tmp_path):
    """As `intent.json` and `candidates.json` of earlier versions have it."""
    (tmp_path / "a").write_bytes(b"12")
    (tmp_path / "b").write_bytes(b"3")
    files = [("variables/a", tmp_path / "a"), ("b", tmp_path / "b")]
    assert fingerprint(files) == hashlib.sha256(b"variables/a:2:12b:1:3").hexdigest()
    assert fingerprint(files[:1]) != fingerprint([("a", tmp_path / "a")])
