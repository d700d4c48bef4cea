"""Reading tables: every file format gives the same rows and the same error messages."""

import csv
import gzip
import itertools
import json
import threading
import tracemalloc

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.table_files import write_parquet, write_tables

from convert_tf.corpora import pairs
from convert_tf.corpora.dumps import CountedFile
from convert_tf.readers.columns import (
    PAIR_NAMES,
    Columns,
    column_names,
    name_of_candidate,
    name_of_text,
    names_of_labelled,
    names_of_pair,
)
from convert_tf.readers.files import TableFile
from convert_tf.readers.tables import read_rows

COLUMNS = Columns("texts and labels", names=("text", "label"), find=names_of_labelled)
ROWS = [("where is it?", "order"), ('é 😊, "so"\nit is', "a;b"), ("", "none")]


def read(path, columns=COLUMNS):
    return [*read_rows(TableFile(str(path)), columns)]


def test_every_kind_of_file_gives_the_same_rows(tmp_path):
    expected = [{"text": text, "intent_name": label} for text, label in ROWS]
    for path in write_tables(tmp_path, ["Text", "Intent Name"], ROWS):
        assert read(path) == expected, path


_CELL = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=12)


@settings(deadline=None, max_examples=25)
@given(rows=st.lists(st.tuples(_CELL, _CELL, _CELL), min_size=1, max_size=5))
def test_whatever_is_written_is_read(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("tables")
    names = ["label", "note", "text"]
    expected = [dict(zip(names, row, strict=True)) for row in rows]
    for path in write_tables(folder, names, rows):
        assert read(path) == expected, path


def test_parquet_has_lists_numbers_and_nothing(tmp_path):
    # File names are not patterns, and the names of folders add no columns.
    (tmp_path / "label=x").mkdir()
    path = tmp_path / "label=x" / "a[1]*.parquet"
    rows = [("hi", [1, 2], None), (None, None, 3)]
    write_parquet(path, ["Text", "parts", "label"], rows, ["VARCHAR", "INTEGER[]", "BIGINT"])
    file = TableFile(str(path))
    names = ["text", "parts", "label"]
    assert [*read_rows(file, COLUMNS)] == [dict(zip(names, row, strict=True)) for row in rows]
    assert file.place == f"{path}, row 2,"


def test_a_parquet_file_that_is_damaged_is_named(tmp_path):
    path = tmp_path / "a.parquet"
    write_parquet(path, ["text", "label"], ROWS)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"a\.parquet is a Parquet file that cannot be read"):
        read(path)
    path.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(ValueError, match=r"is a Parquet file\. Write it as CSV"):
        read(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b'text,label\nhi,"a\n', "line 2, has a quote that does not close"),
        ("a.tsv", b'text\tlabel\n"hi\ta\nyou\tb\n5\'6"\tc\n', "line 2, has a quote that does not"),
        ("a.csv", b"text,label\n\nhi,a,b\n", r"line 3, has more fields .*\(3 instead of 2\)"),
        ("a.csv", b"text,label\nh\0,a\n", "line 2, has a NUL character"),
        ("a.csv", b"text,label\nhi,a\n\xe4,b\n", "line 3, is not UTF-8: it contains the byte 0xE4"),
        ("a.csv", b"text,label,Text\nhi,a,b\n", "has 2 columns named 'text'"),
        ("a.csv", b"frage;antwort\nhi;a\n", "no columns for texts and labels.*';': 'frage', 'ant"),
        ("a.jsonl", b'{"text": "a"}\n{"text": \n', r"line 2, is not valid JSON \(Expecting"),
        ("a.jsonl", b'{"text": "a"}\n"\xe4"\n', r"line 2, is not UTF-8 \(byte 2 .* 0xE4\)"),
        ("a.jsonl", b'{"text": "a"}\n\n   "\xe4"\n', r"line 3, is not UTF-8 \(byte 5 .* 0xE4\)"),
        ("a.jsonl", b'{"text": "a"}\n\n   {"text": "b" "c"}\n',
         r"line 3, is not valid JSON \(Expecting ',' delimiter: column 17\)\. "),
        ("a.json", b'[{"text": "a"},\n {"text"}]', "a.json is not valid JSON"),
        ("a.json", b'\n[\r\n\n  {"text": "a"},\n \n  {"text": "b" "c"}\n]\n',
         r"a\.json is not valid JSON \(Expecting ',' delimiter: line 6 column 16\)\. "),
        ("a.csv", gzip.compress(b"text,label\nhi,a\n" * 99, mtime=0)[:-20], "truncated gz"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_row_is_said_once(tmp_path, name, content, message):
    """A bad row raises an error; in a corpus it is counted, unless the whole file is bad."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read(tmp_path / name)
    assert name in str(caught.value) and "\n" not in str(caught.value)
    file = CountedFile(str(tmp_path / name))
    try:
        assert list(read_rows(file, COLUMNS)) is not None
        assert file.skipped or file.warnings or name in ("a.csv", "a.tsv")
    except ValueError as error:
        assert str(error) == str(caught.value)


def test_fields_that_a_short_row_lacks_are_none(tmp_path):
    (tmp_path / "a.csv").write_text("text,label,,\nhi\nyo,a,,,\n")
    assert [(row["text"], row["label"]) for row in read(tmp_path / "a.csv")] == [
        ("hi", None),
        ("yo", "a"),
    ]


@pytest.mark.parametrize("line", ["sep={}\r\n", '"sep={}"\r\n', "\r\nsep={} \n", "sep=\r\n"])
@pytest.mark.parametrize("delimiter", [";", ",", "\t"])
def test_the_line_of_a_spreadsheet_that_names_the_delimiter_is_no_row(tmp_path, line, delimiter):
    rows = [("3", "hello, card 3", "card"), ("4", "my card,\r\nplease; help", "lost")]
    with open(tmp_path / "a.csv", "w", encoding="utf-8-sig", newline="") as file:
        file.write(line.format(delimiter))
        csv.writer(file, delimiter=delimiter).writerows([("id", "text", "label"), *rows * 3])
    expected = [dict(zip(("id", "text", "label"), row, strict=True)) for row in rows * 3]
    assert read(tmp_path / "a.csv") == expected


def test_a_line_may_name_a_delimiter_that_is_not_recognised_by_itself(tmp_path):
    (tmp_path / "a.csv").write_text("sep=^\ntext^label\nhi, you^greet\n")
    assert read(tmp_path / "a.csv") == [{"text": "hi, you", "label": "greet"}]
    (tmp_path / "a.csv").write_text("sep=x\ntext,label\nnext,x\n")  # a letter is no delimiter
    assert read(tmp_path / "a.csv") == [{"text": "next", "label": "x"}]
    (tmp_path / "a.csv").write_text("sep=;\n")
    assert read(tmp_path / "a.csv") == []


@pytest.mark.parametrize(
    ("name", "line", "delimiter"),
    [
        # Saved again by a program: as long as the other lines, and perhaps with quotes.
        ("a.csv", "sep=,,", ","),
        ("a.csv", "sep=;;", ";"),
        ("a.csv", "sep=\t\t", "\t"),
        ("a.csv", '"sep=;",', ","),
        ("a.csv", '"sep=,";;', ";"),
        ("a.csv", " sep=;", ";"),
        # Saved again with another delimiter.
        ("a.csv", "sep=;", ","),
        ("a.csv", "sep=,", ";"),
        ("a", "sep=:", "\t"),
        # The suffix decides.
        ("a.tsv", "sep=,", "\t"),
        ("a.tab", "sep=;", "\t"),
    ],
)
def test_a_padded_or_wrong_line_of_a_delimiter_does_not_hide_the_header(
    tmp_path, name, line, delimiter
):
    rows = [["text", "label"], ["hi", "greet"], ["bye", "leave"]]
    (tmp_path / name).write_text("\n".join([line, *map(delimiter.join, rows)]) + "\n")
    header, *others = rows
    assert read(tmp_path / name) == [dict(zip(header, row, strict=True)) for row in others]


@pytest.mark.parametrize(
    ("name", "line", "delimiter"),
    [("a.csv", "sep=;", ","), ("a.csv", "sep=,", ";"), ("a.txt", "sep=,", "\t")],
)
def test_a_wrong_line_of_a_delimiter_does_not_hide_rows_without_a_header(
    tmp_path, name, line, delimiter
):
    rows = [("hello", "hi there"), ("bye", "see you"), ("who", "me")]
    (tmp_path / name).write_text("\n".join([line, *map(delimiter.join, rows)]) + "\n")
    assert len([*pairs.read(CountedFile(str(tmp_path / name)))]) == 3


def test_columns_that_are_not_read_may_be_there_twice(tmp_path):
    (tmp_path / "a.csv").write_text("text,note,label,note\nhi,1,a,2\n")
    assert [row["text"] for row in read(tmp_path / "a.csv")] == ["hi"]


def test_long_fields_are_read_and_pythons_limit_stays(tmp_path):
    limit = csv.field_size_limit()
    long = "x" * (2 * limit)
    (tmp_path / "a.csv").write_text(f'text,label\n"{long}",a\nhi,{long}\n"{long}\nx",b\n')
    lengths = [len(row["text"]) for row in read(tmp_path / "a.csv")]
    assert lengths == [2 * limit, 2, 2 * limit + 2]
    assert csv.field_size_limit() == limit


def test_a_long_field_does_not_hide_the_header(tmp_path):
    text = "x" * (csv.field_size_limit() + 9)
    (tmp_path / "a.csv").write_text(f"text;label\n{text};a\n")
    assert len(read(tmp_path / "a.csv")) == 1


def test_threads_read_long_fields_at_once(tmp_path):
    limit = csv.field_size_limit()
    (tmp_path / "a.csv").write_text("text,label\n" + f"{'x' * (limit + 9)},a\n" * 20)
    counts = []
    threads = [
        threading.Thread(target=lambda: counts.append(len(read(tmp_path / "a.csv"))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [20] * 4
    assert csv.field_size_limit() == limit


def test_keys_of_json_are_names_of_columns(tmp_path):
    lines = b'{"Text ": "a", "Intent-Name": "b"}\n{"text": "c", "TEXT": "d", "label": 1}\n'
    (tmp_path / "a.jsonl").write_bytes(lines)
    assert read(tmp_path / "a.jsonl") == [
        {"text": "a", "intent_name": "b"},
        {"text": "c", "label": 1},
    ]


@pytest.mark.parametrize("start", ["", "\ufeff", "\n "])
@pytest.mark.parametrize("is_list", [True, False])
def test_one_line_of_json_may_be_longer_than_other_lines(tmp_path, start, is_list):
    path = tmp_path / "a.json"
    rows = [{"text": f"text {number}", "label": "a"} for number in range(9)]
    line = json.dumps(rows if is_list else {"data": rows})
    path.write_text(f"{start}{line}\n", encoding="utf-8")
    file = TableFile(str(path), max_line_bytes=100)
    assert [*read_rows(file, COLUMNS)] == rows
    # The limit stays for JSON lines, and for files that are not JSON.
    path.write_text(f"{line}\n{json.dumps(rows[0])}\n", encoding="utf-8")
    file = CountedFile(str(path), max_line_bytes=100)
    assert [*read_rows(file, COLUMNS)] == rows[:1]
    assert file.skipped == {"line_too_long": 1}
    path.write_text("x" * 101, encoding="utf-8")
    with pytest.raises(ValueError, match="line 1, is longer than 100 bytes"):
        [*read_rows(TableFile(str(path), max_line_bytes=100), COLUMNS, is_json=True)]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_memory_does_not_grow_with_the_file(tmp_path, kind):
    """Reading a file with 12 MB of text takes little memory."""
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        with duckdb.connect() as connection:
            rows = "SELECT md5(i::VARCHAR) || repeat('x', 288) AS text, 'a' AS label"
            connection.execute(f"COPY ({rows} FROM range(40000) t(i)) TO '{path}' (FORMAT parquet)")
    else:
        row = {"csv": '"%s",a\n', "jsonl": '{"text": "%s", "label": "a"}\n'}[kind] % ("x" * 300)
        path.write_text(("text,label\n" if kind == "csv" else "") + row * 40_000)
    list(itertools.islice(read_rows(TableFile(str(path)), COLUMNS), 1))  # imports DuckDB
    tracemalloc.start()
    number = sum(1 for _ in read_rows(TableFile(str(path)), COLUMNS))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert number == 40_000
    assert peak < 4 * 2**20


@pytest.mark.parametrize(("context", "response"), PAIR_NAMES)
def test_names_of_pairs(context, response):
    assert names_of_pair(["id", response, context]) == (context, response)
    assert name_of_candidate(["id", response, context]) == (response,)


def test_names_of_columns():
    assert column_names([" Intent  Name", "top-k"]) == ["intent_name", "top_k"]
    assert names_of_labelled(["intent", "query", "text"]) == ("text", "intent")
    assert names_of_labelled(["text", "mood"]) is None
    assert name_of_text(["question", "answer"]) == ("question",)
    assert name_of_candidate(["candidate", "question", "answer"]) == ("candidate",)
    assert name_of_candidate(["id", "message"]) == ("message",)
    assert name_of_candidate(["frage", "antwort"]) is None
