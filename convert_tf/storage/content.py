"""Detect the format of a file from its first bytes. No other module detects formats.

Texts come in many formats and containers. A reader that expects another format would count the
bytes as damaged lines, or take time codes and brackets for text. Therefore every reader of text
files checks the content before it reads a line. If the content is not text, the error names its
format and says what to do instead.
"""

import codecs
import re
from collections.abc import Collection

HEAD_BYTES = 1024  # number of bytes at the start of a file that decide its format
_FEW_BYTES = 32  # fewer bytes than this do not show whether they are text
_MAX_NUL_SHARE = 0.1
_MAX_CONTROL_SHARE = 0.02  # maximum share of control characters if the bytes are not UTF-8
# A text in UTF-16 without a byte order mark is often valid UTF-8 as well. Read as UTF-8, about half
# of its characters are control characters.
_MAX_CONTROL_SHARE_OF_UTF8 = 0.3
_CONTROL = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f\x7f]")

_UNPACK = "Unpack it and pass the files in it."
_AS_CSV = "Save it as CSV in UTF-8 and pass that file."
_AS_TEXT = "Save it as plain text in UTF-8 and pass that file."
_SAVE = "Save it as CSV or plain text in UTF-8 and pass that file."
_TO_CSV = "Write it as CSV or JSON lines, for example with pandas or DuckDB, and pass that file."

# The first bytes of a format, the format's name, and what to do. The first match is used. Other
# binary formats, such as pictures, need no entry.
_BINARY: tuple[tuple[bytes, str, str], ...] = (
    (rb"PK\x03\x04.{0,990}xl/", "an Excel workbook", _AS_CSV),
    (rb"PK\x03\x04.{0,990}word/", "a Word document", _AS_TEXT),
    (rb"PK\x03\x04.{0,99}opendocument", "an OpenDocument file", _SAVE),
    (rb"PK\x03\x04.{0,990}(\[Content_Types\]\.xml|docProps/|_rels/)", "an Office file", _SAVE),
    (rb"PK(\x03\x04|\x05\x06|\x07\x08)", "a zip archive", _UNPACK),
    (rb"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    (rb"Rar!\x1a\x07", "a RAR archive", _UNPACK),
    (rb".{257}ustar", "a tar archive", _UNPACK),
    (rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Office file from before 2007 (.xls, .doc)", _AS_CSV),
    (rb"PAR[1E][\x00-\x1f\x80-\xff]", "a Parquet file", _TO_CSV),
    (rb"ARROW1|\xff\xff\xff\xff.\x00\x00\x00\x10\x00\x00\x00", "an Arrow file", _TO_CSV),
    (rb"SQLite format 3\x00", "an SQLite database", _TO_CSV),
    (rb"\x93NUMPY", "a NumPy array (.npy)", _TO_CSV),
    (rb"\x80[\x02-\x05](\x95.{6}\x00\x00|[\]}(cX\x8a\x8c\x80])", "a Python pickle", _TO_CSV),
    (rb"%PDF-\d", "a PDF", _AS_TEXT),
    (rb"\{\\rtf", "a rich text file (RTF)", _AS_TEXT),
    (rb".{3}\x00{5}.{4}\n.{1,3}\n.{1,3}\n.[a-z]", "a TFRecord file",
     "Only commands with --data read records; pass them the folder."),
    (rb"\x04\x22\x4d\x18", "compressed with lz4", "Decompress it (lz4 -d) and pass the result."),
    (rb"version https://git-lfs\.github", "a Git LFS pointer, not the file itself",
     "Fetch the file with git lfs pull."),
    (rb"(?i)\s*(<!--.{0,500}?-->\s*)?(<!doctype html|<html[\s>])", "a web page",
     "Download the file itself."),
)  # fmt: skip

JSON, RASA_MARKDOWN, RASA_YAML, XML = "JSON", "Rasa's Markdown", "Rasa's YAML", "XML"
SUBRIP, WEBVTT = "subtitles in SubRip format (.srt)", "subtitles in WebVTT format (.vtt)"
_SRT_TIME = r"\d{1,3}:\d{1,2}:\d{1,2}(?:[,.:]\d{1,3})?[ \t]*-->[ \t]*\d{1,3}:\d{1,2}"
_FORMATS: tuple[tuple[str, str, str], ...] = (
    (
        r'\{\s*("[^"\n]*"\s*:|\}\s*(\n|\Z)|\Z)|\[\s*(\{\s*["}]|\[\s*"|\]\s*\Z|\Z'
        r'|"(?:[^"\\\n]|\\.)*("\s*[,\]]|\Z))',
        JSON,
        "Write one text per line, for example with jq -r .text FILE.",
    ),
    (r"WEBVTT([ \t\r\n]|\Z)", WEBVTT, "convert-tf prepare --opensubtitles reads it."),
    (
        rf"(?:[^\n]*\n){{0,5}}?[ \t]*{_SRT_TIME}",
        SUBRIP,
        "convert-tf prepare --opensubtitles reads it.",
    ),
    (
        r"(?:[;!][^\n]*\n|\s)*\[Script Info\]|\{\d+\}\{\d+\}|(?i:<sami)|\[INFORMATION\]"
        r"|Scenarist_SCC|# VobSub|@ This file written with the Avid|(?i:<window[\s>])"
        r"|(<\?xml[^>]*>\s*)?<(\w+:)?tt[\s>]|\d+:\d\d:\d\d\.\d{3},\d+:\d\d:\d\d\.\d{3}\s*\n",
        "subtitles in a format other than .srt, .vtt and OPUS's .xml",
        "Convert it to .srt, for example with ffmpeg -i FILE subtitles.srt.",
    ),
    (
        r"<\?xml\s|<!DOCTYPE\s|<(document|corpus|tmx|cesDoc|aiml|xliff|rss|TEI)[\s>]",
        XML,
        "Write its texts to a plain file, one per line.",
    ),
    (
        r"(?:[^\n]*\n){0,20}?##[ \t]*(intent|synonym|regex|lookup)[ \t]*:",
        RASA_MARKDOWN,
        "Write one text per line.",
    ),
    (
        r"(?:[ \t]*(?:#[^\n]*|---)?\r?\n){0,20}(version:[ \t]*[\"']?\d|nlu:[ \t]*(\r?\n|\Z))",
        RASA_YAML,
        "Write one text per line.",
    ),
)

# The first bytes of compressed files.
_COMPRESSIONS: tuple[tuple[bytes, str], ...] = (
    (rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18", "zst"),  # a normal or a skippable frame
    (rb"BZh[1-9](1AY&SY|\x17rE8P\x90)", "bz2"),
    (rb"\x1f\x8b", "gz"),
    (rb"\xfd7zXZ\x00|\x5d\x00\x00", "xz"),  # or the older format, .lzma
)


class ContentError(ValueError):
    """Error: a file is not text, or its text is in a format that the reader does not accept."""


def compression(head: bytes) -> str:
    """Detect compression from a file's first bytes: `"zst"`, `"bz2"`, `"gz"`, `"xz"` or `""`."""
    return next((kind for rule, kind in _COMPRESSIONS if re.match(rule, head)), "")


def is_parquet(head: bytes) -> bool:
    """Return whether a file is Parquet, from its first bytes."""
    return re.match(rb"PAR1[\x00-\x1f\x80-\xff]", head) is not None


def check_is_text(name: str, head: bytes) -> None:
    """Raise an error if a file is not text.

    Args:
      name: name of the file for messages.
      head: first bytes of the file, decompressed.

    Raises:
      ContentError: if the file is not text. The message says what the file is and what to do.
    """
    matches = ((what, remedy) for rule, what, remedy in _BINARY if re.match(rule, head, re.DOTALL))
    what, remedy = next(matches, ("", ""))
    if compression(head):
        what, remedy = "compressed more than once", "Decompress it once and pass the result."
    elif not (what or wide_encoding(head)) and _is_binary(head):
        what = "binary data, or text in an encoding other than UTF-8"
        remedy = "Save it as text in UTF-8 and pass that file."
    if what:
        raise ContentError(f"{name} is {what}. {remedy}")


def check_format(name: str, head: bytes, *, read: Collection[str] = ()) -> str:
    """Return the format of UTF-8 text; `""` for plain text and tables.

    Args:
      name: name of the file for messages.
      head: first bytes of the file, decompressed.
      read: other formats that the reader accepts.

    Raises:
      ContentError: if the text has another known format.
    """
    text = head.decode("utf-8", "ignore").removeprefix("\ufeff").lstrip()
    matches = ((kind, remedy) for rule, kind, remedy in _FORMATS if re.match(rule, text))
    kind, remedy = next(matches, ("", ""))
    if kind and kind not in read:
        raise ContentError(f"{name} is {kind}, not plain text. {remedy}")
    return kind


def wide_encoding(head: bytes) -> str:
    """Return `"UTF-16"` or `"UTF-32"` if a text starts with its byte order mark; else `""`."""
    # UTF-32's mark begins with UTF-16's mark, so it is checked first.
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "UTF-32"
    return "UTF-16" if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else ""


def _is_binary(head: bytes) -> bool:
    if head[:4].count(0) in (2, 3):  # UTF-16 or UTF-32 without a byte order mark
        return True
    if len(head) < _FEW_BYTES:
        return False
    if head.count(0) > _MAX_NUL_SHARE * len(head):
        return True
    allowed = _MAX_CONTROL_SHARE_OF_UTF8
    try:  # the last character may continue after these bytes
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        allowed = _MAX_CONTROL_SHARE
    return len(_CONTROL.findall(head)) > allowed * len(head)
