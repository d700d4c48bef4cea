"""Reading texts: lines of text files, and a column of tables."""

import io
import re
import shlex

import pytest
from support.table_files import write_parquet

from convert_tf.readers.columns import name_of_candidate
from convert_tf.readers.texts import Texts, filled_texts


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b'text,label\n"where is it, please?",order\n,none\nhi,greet\n'),
        ("a.csv", b'"where is it, please?"\n""\nhi\n'),  # a single column without a header
        ("a.txt", b'text,label\n"where is it, please?",order\n,none\nhi,greet\n'),
        ("a", b'Label;Text\norder;"where is it, please?"\nnone;\ngreet;hi\n'),
        ("log", b"created_at\tmessage\n9:00\twhere is it, please?\n9:01\t\n9:02\thi\n"),
        ("a.tsv", b"id\ttext\n1\twhere is it, please?\n2\n3\thi\n"),
        ("a", b'{"text": "where is it, please?"}\n{"text": null}\n{"text": "hi"}\n'),
        ("a.txt", b'[{"text": "where is it, please?"},\n{"text": ""}, {"text": "hi"}]'),
    ],
)
@pytest.mark.parametrize("is_standard_input", [False, True])
def test_the_column_of_a_table_is_read(tmp_path, monkeypatch, name, content, is_standard_input):
    (tmp_path / name).write_bytes(content)
    path = tmp_path / name
    if is_standard_input:
        if name == "a.csv" and not content.startswith(b"text"):
            return  # only the suffix marks it as a table
        if name == "a.tsv":
            content = content.replace(b"2\n", b"2\t\n")
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        path = "-"
    assert list(Texts(path)) == ["where is it, please?", "", "hi"]
    assert list(filled_texts(Texts(tmp_path / name))) == ["where is it, please?", "hi"]


@pytest.mark.parametrize("header", ["text\n", ""])
def test_a_blank_line_in_a_single_column_is_an_empty_text(tmp_path, header):
    (tmp_path / "a.csv").write_text(f"\n{header}hi\n\nbye\n\n\n")
    assert list(Texts(tmp_path / "a.csv")) == ["hi", "", "bye"]


def test_which_column_is_read_is_said_once(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("id,query,intent\n1,hi,greet\n2,bye,bye\n")
    assert list(Texts(tmp_path / "a.csv")) == ["hi", "bye"]
    assert capsys.readouterr().err == (
        f"{tmp_path / 'a.csv'} is a table; reading its column 'query'\n"
    )
    (tmp_path / "a.txt").write_text("hi\nbye\n")
    list(Texts(tmp_path / "a.txt"))
    assert not capsys.readouterr().err


def test_parquet_has_a_column_of_texts(tmp_path):
    write_parquet(tmp_path / "a", ["n", "text"], [("1", "hi"), ("2", None)])
    assert list(Texts(tmp_path / "a")) == ["hi", ""]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("faq.csv", b"frage,antwort\nWo?,Da.\n", "columns for texts.*'frage', 'antwort'.*'text'"),
        ("faq.csv", b"hi\nwell, no\nyo\n", r"line 2, has more fields than the first row \(2 in"),
        ("log.txt", b"9:00\thi\n" * 9, "no columns for texts.*2 columns"),
        ("ids.txt", b"id,intent\n1,greet\n2,bye\n", "no columns for texts.*'id', 'intent'"),
        ("ids", b"source;label;id\nbot;greet;1\n", "no columns for texts.*separated by ';'"),
        (
            "a.txt",
            b"user_id,body_html,created\n" + 6 * b'7,"Hi, you",8\n',
            "no columns for texts.*'user_id', 'body_html'",
        ),
        ("a.txt", b"frage;antwort\n" + 6 * b"Wo?;Hier, gleich.\n", "no columns for texts.*';'"),
        ("a.txt", b'"Frage","Die ""Antwort"""\r\n"Wo?","Hier."\r\n', "no columns for texts"),
        ("topics", b"topic,category\n" + 4 * b"a,b\n", "no columns for texts.*'topic', 'cat"),
        (
            "a.jsonl",
            b'{"frage": "Wo?"}\n',
            "line 1, has no text, only the keys 'frage'. Rename the key of the text to 'text'",
        ),
        (
            "a.jsonl",
            b'{"text": ["hi"]}\n',
            r"line 1, has \['hi'\] as 'text', which is not a string",
        ),
        ("a.jsonl", b'["hi"]\n', "line 1, has no text"),
    ],
)
def test_a_table_without_texts_is_refused(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name}.*{message}"):
        list(Texts(tmp_path / name))


def test_a_folder_is_refused_before_its_files_are_read(tmp_path):
    (tmp_path / "a.txt").write_text("hi\n")
    advice = f"join them first: cat {shlex.quote(str(tmp_path))}/* > all.txt"
    with pytest.raises(ValueError, match=rf"^{tmp_path}/ is a folder\. .*{re.escape(advice)}$"):
        Texts(f"{tmp_path}/")


@pytest.mark.parametrize(
    "lines",
    [
        ["text, please", "no, not, that"],
        ["text"],
        ["question, answer me", "yes, sure"],
        ["hello, text", "bye"],
        ["a\tb", "c\td", "one\ttwo\tthree", "e\tf", "g\th"],
        ["text me, label", "hi"],
        ["id, label", "no, not, that"],  # names of columns, but not all lines have two fields
        ["id, label"],
        ["id, label", "hello, world"],  # a space after the delimiter
        ["Title, class", "hello, world"],
        ["Topic, category", "hello, world", "bye, all"],
        ["Topic, category", *4 * ["hello, world"]],
        ["Topic,category", *3 * ["hello, world"]],
        ['"open, text', "hi"],
        ['"Hi", "you"', '"Bye", "all"'],
        ['"Where?","Here."', "No quotes,none"],
        ["ok,thanks", *5 * ["no,sorry"]],
        ["red,green,blue", *5 * ["one,two, three"]],
        ["so,so,so", *5 * ["hi,hi,hi"]],
        ["hi;)", *5 * ["bye;)"]],
        ["yes;no", *5 * ["well; no"]],
        ["yes;no", 'well; "so\rwhat"', *5 * ["ok;hm"]],
        ["hi;D", *5 * ["bye;P"]],
        ["yes|no", *5 * ["well|no"]],
        ["red,green,blue", *3 * ["one,two,three"]],
    ],
)
def test_lines_of_texts_are_no_table(tmp_path, lines):
    (tmp_path / "a.txt").write_text("".join(f"{line}\n" for line in lines))
    assert list(Texts(tmp_path / "a.txt")) == lines


def test_candidates_are_the_responses_of_pairs(tmp_path):
    (tmp_path / "a.csv").write_text("question,answer\nIs it open?,Until nine.\n")
    assert list(Texts(tmp_path / "a.csv", find=name_of_candidate)) == ["Until nine."]
