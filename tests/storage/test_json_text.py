"""JSON that is damaged or nested too deeply for the parser, and checksums."""

import hashlib

import pytest

from convert_tf.storage.checksums import checksum, file_checksum, fingerprint
from convert_tf.storage.json_text import (
    holds_one_value,
    json_file,
    json_of_texts,
    parsed_json,
    written_json,
)

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
    text = '{"a": {"c": 0, "b": 1, "b": 2}}'
    with pytest.raises(ValueError, match="the key 'b' occurs twice"):
        json_of_texts(text)
    assert json_of_texts(text, is_dump=True) == {"a": {"c": 0, "b": 2}}


def test_written_json_is_indented_and_ends_its_line():
    assert written_json({"a": [1]}) == '{\n  "a": [\n    1\n  ]\n}\n'


@pytest.mark.parametrize("escape", ["\\ud83d", "\\uD83D"])
def test_half_a_character_is_replaced_and_a_whole_one_is_kept(escape):
    assert json_of_texts(f'"a{escape}b"') == "a\ufffdb"
    assert (
        json_of_texts(f'"a{escape}{escape[:2]}{"DE00" if "D" in escape else "de00"}"')
        == "a\U0001f600"
    )


@pytest.mark.parametrize(
    ("first_lines", "is_one"),
    [
        ([], False),
        (["{"], True),
        (["["], True),
        (['[{"a": 1},', '{"a": 2}]'], True),
        (["[1, 2]", "[3]"], False),
        (['{"a": 1}', '{"a": 2}'], False),
        (['{"a":', "1}"], True),
        (['{"a": [', "1"], False),  # the second line is a value, so the first was cut off
        (['{"a": 1, "b', '{"a": 2}'], False),
        (["text,", "more"], False),
    ],
)
def test_one_value_over_several_lines(first_lines, is_one):
    assert holds_one_value(first_lines) == is_one


def test_files_one_behind_the_other(tmp_path):
    large = b"abc" * 2**20  # read in several pieces
    (tmp_path / "a").write_bytes(large)
    (tmp_path / "b").write_bytes(b"x")
    expected = hashlib.sha256(large + b"x").hexdigest()
    assert file_checksum(tmp_path / "a", str(tmp_path / "b")) == expected
    assert checksum([large, memoryview(b"x")]) == expected
    assert file_checksum() == checksum([]) == hashlib.sha256().hexdigest()


def test_a_fingerprint_counts_names_and_sizes(tmp_path):
    """`intent.json` and `candidates.json` of earlier versions contain such fingerprints."""
    (tmp_path / "a").write_bytes(b"12")
    (tmp_path / "b").write_bytes(b"3")
    files = [("variables/a", tmp_path / "a"), ("b", tmp_path / "b")]
    assert fingerprint(files) == hashlib.sha256(b"variables/a:2:12b:1:3").hexdigest()
    assert fingerprint(files[:1]) != fingerprint([("a", tmp_path / "a")])
