"""What names content, as files on disk have it."""

import hashlib

from convert_tf.storage.checksums import checksum, file_checksum, fingerprint


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
