import csv
import io
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convert_tf.corpora.comments import PRESETS, Rules
from convert_tf.corpora.dialogues import pair_id
from convert_tf.corpora.dumps import CountedFile, Turn
from convert_tf.corpora.options import CORPORA, PrepareOptions
from convert_tf.corpora.pairs import read
from convert_tf.corpora.rows import Steps
from convert_tf.corpora.threads import split_of
from convert_tf.data.schema import Example
from convert_tf.readers.columns import PAIR_NAMES
from convert_tf.storage.json_text import parsed_json


def _read(path, **options):
    """Return the pairs of a file, and the file with its counts."""
    file = CountedFile(path, **options)
    conversations = list(read(file))
    assert all(len(one.turns) == 2 for one in conversations)
    return [(one.turns[0].text, one.turns[1].text) for one in conversations], file


@pytest.fixture
def table(write_dump):
    """Return a function that writes a table and reads it."""

    def write_and_read(text, name="faq.csv", **options):
        data = text if isinstance(text, bytes) else text.encode("utf-8")
        return _read(write_dump(name, data), **options)

    return write_and_read


@pytest.mark.parametrize("suffix", ["", ".zst"])
@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize(("ending", "delimiter"), [(".csv", ","), (".tsv", "\t"), (".txt", "\t")])
def test_formats(table, ending, delimiter, encoding, line_break, suffix):
    rows = [("question", "answer"), ("Čo ਊ 😀?", "Å"), (), ("Why, then?", "So.")]
    lines = (delimiter.join(f'"{cell}"' for cell in row) for row in rows)
    read_pairs, file = table(line_break.join(lines).encode(encoding), f"faq{ending}{suffix}")
    assert read_pairs == [rows[1], rows[3]]
    assert (file.lines, file.skipped) == (4, {})


@pytest.mark.parametrize("delimiter", [",", "\t", ";"])
@pytest.mark.parametrize("name", ["faq.csv", "faq.txt", "faq"])
@pytest.mark.parametrize("header", ["", "question{}answer\n"])
def test_delimiter_is_told_by_the_rows(table, delimiter, name, header):
    # The texts contain the other delimiters, quoted where necessary.
    text = header.format(delimiter) + "".join(
        f'"Hi, is it open; or not? {number}"{delimiter}Yes\n' for number in range(9)
    )
    read_pairs, _ = table(text, name)
    assert read_pairs == [(f"Hi, is it open; or not? {number}", "Yes") for number in range(9)]


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        # Where the comma is the decimal sign, spreadsheets write semicolons.
        ("Hi, can I pay?;Yes.\nHow much;5\nWhere;Here, there\nWhen;Now\n",
         [("Hi, can I pay?", "Yes."), ("How much", "5"), ("Where", "Here, there"),
          ("When", "Now")]),
        # Split at commas, every row but the first would be a pair.
        ("question;answer;topic\nWhy, then?;So.;a\nWho, me?;You.;b\nWhen, now?;Yes.;c\n",
         [("Why, then?", "So."), ("Who, me?", "You."), ("When, now?", "Yes.")]),
        ("answer,question\nUntil nine.,Is it open?\n", [("Is it open?", "Until nine.")]),
        ("id,question,response\n1,Why?,So.\n", [("Why?", "So.")]),  # names from two layouts
        # Here `context` is the paragraph that the question is about.
        ("context,question,answer\nA paragraph.,Why?,So.\n", [("Why?", "So.")]),
        ("Why?,So.\nWho?,We.\n", [("Why?", "So."), ("Who?", "We.")]),
        ('context, response\nWhy? , "Because, well."\n', [("Why?", "Because, well.")]),
        ("Question | Answer\nWhy? | So.\n", [("Why?", "So.")]),
        ('"Do you have a garage,\n\n  or a ""car park""?","Yes,\r\nboth."\nWhy?,So.\n',
         [('Do you have a garage,\n\n  or a "car park"?', "Yes,\r\nboth."), ("Why?", "So.")]),
        ("input,instruction,output\npool,Translate.,piscine\n,Hello?,Hi\n",
         [("Translate.\npool", "piscine"), ("Hello?", "Hi")]),
        ("Why?,So.,,\nWho?,We.,,\nWhen?,Now\n",
         [("Why?", "So."), ("Who?", "We."), ("When?", "Now")]),
        *((text, []) for text in ("", "\n\n", "question,answer\n")),
    ],
)  # fmt: skip
def test_what_tables_hold(table, text, pairs):
    read_pairs, file = table(text)
    assert read_pairs == pairs
    assert not file.skipped


@pytest.mark.parametrize(("context", "response"), PAIR_NAMES)
def test_header_names_choose_the_columns(table, context, response):
    text = f"number,{response.upper()},topic, {context.title()} \n1,Until nine.,pool,Is it open?\n"
    assert table(text)[0] == [("Is it open?", "Until nine.")]


@pytest.mark.parametrize(
    "header",
    ["answer\tquestion\tverified", "question\tanswer\taccepted", "helpful\tanswer\tquestion"],
)
def test_a_column_of_zeros_and_ones_is_no_task_of_the_papers(table, header):
    values = {"question": "Why {}?", "answer": "So {}."}
    rows = [
        "\t".join(values.get(name, f"{i % 2}").format(i) for name in header.split("\t"))
        for i in range(6)
    ]
    read_pairs, file = table("\n".join([header, *rows]) + "\n", "faq.tsv")
    assert read_pairs == [(f"Why {i}?", f"So {i}.") for i in range(6)]
    assert not file.skipped


def test_two_columns_of_one_name_are_refused(table):
    with pytest.raises(ValueError, match=r"faq\.csv has 2 columns named 'response'"):
        table("context,response,Response\nhi there,yo,ignored\n")


def test_another_encoding_names_file_and_line(table):
    rows = ["question,answer", *(f"Why {number}?,So." for number in range(20_000)), "Où?,Ici."]
    with pytest.raises(
        ValueError, match=r"faq\.csv, line 20,002, is not UTF-8: it contains the byte 0xF9"
    ):
        table("\n".join(rows).encode("latin-1"))


def test_rows_that_are_not_used_are_counted(table):
    read_pairs, file = table(
        'question,answer\n"two\nlines",c\nonly one\nWhy?,\n ,So.\nWho,me?,We.\nWh\0y?,So.\n\n,\n'
        f'"q,x,open\n"{"x" * 140_000}",y\nUsed?,Yes.\n'
    )
    # A text of one line may exceed the default limit of Python's csv reader.
    assert read_pairs == [("two\nlines", "c"), ("x" * 140_000, "y"), ("Used?", "Yes.")]
    # Bad rows are reported with their lines.
    first = [place.removeprefix(file.path) for place in file.bad_lines.first]
    assert first == [
        ":4 (missing_answer)",
        ":7 (too_many_columns)",
        ":8 (nul_character)",
        ":11 (malformed_quotes)",
    ]
    assert file.skipped["empty_response"] == 1
    assert file.skipped["empty_context"] == 2
    assert file.lines == 13


@pytest.mark.parametrize("number", [3, 30_000])
@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ('Is "it?,"No, or', [('Is "it?', "No, or")]),
        ('"Is it?,No', [('"Is it?', "No")]),
        ('"Is, it?,No', []),
    ],
)
def test_a_quote_that_does_not_close_swallows_no_other_row(table, row, expected, number):
    # With 30,000 more rows, the unclosed field would exceed the limit of `csv`.
    rows = [(f"Why {index}?", f"So {index}.") for index in range(number)]
    read_pairs, file = table("\n".join(["First?,Yes.", row, *map(",".join, rows)]))
    assert read_pairs == [("First?", "Yes."), *expected, *rows]
    assert file.skipped == ({} if expected else {"malformed_quotes": 1})
    assert file.lines == number + 2


def test_quotes_that_do_not_quote(table):
    # Some tables do not quote, so a quotation mark at the start of a field is part of the text.
    text = 'question\tanswer\n"Why?" she asked\t"So" I said\n"Well\tno\nWhen?\tNow\n'
    read_pairs, file = table(text, "faq.tsv")
    assert [response for _, response in read_pairs] == ["So I said", "no", "Now"]
    assert read_pairs[1][0] == '"Well'
    assert not file.skipped


@pytest.mark.parametrize(
    ("name", "delimiter", "num_between"),
    [("faq.tsv", "\t", 0), ("faq.tsv", "\t", 2), ("faq.csv", ",", 3), ("faq.csv", ";", 30)],
)
@pytest.mark.parametrize("header", [[], [("question", "answer")]])
def test_unpaired_quotes_join_no_rows(table, name, delimiter, num_between, header):
    """A quote that happens to close in a later row does not swallow the rows in between."""
    between = [(f"Why {number}?", f"So {number}.") for number in range(num_between)]
    rows = [('"Oh no', "What happened?"), *between, ("She is 5'6\"", "ok then"), ("Who?", "We.")]
    lines = [delimiter.join(row) for row in [*header, *rows]]
    assert table("\n".join(lines) + "\n", name)[0] == rows
    odd = [*lines[:-2], "", "no delimiter", *lines[-2:]]
    if delimiter == "\t" and num_between:
        assert table("\n".join(odd) + "\n", name)[0] == rows


def test_lone_quotes_join_no_rows(table):
    lines = ["context\tresponse", *(['a\t"', *["x y\tand a reply"] * 3] * 40)]
    read_pairs, file = table("\n".join(lines) + "\n", "faq.tsv")
    assert read_pairs == [("x y", "and a reply")] * 120
    assert file.skipped == {"empty_response": 40}


@pytest.mark.parametrize("delimiter", [",", "\t"])
@pytest.mark.parametrize(
    "cell",
    [
        "Hi, there\nwhere is it?",
        "Hi, there\nI, too\nask\nnow",
        "Rome, IT\nParis, FR\nBern, CH\nOslo, NO\nBath, UK\nLima, PE",
        "Our offices:\nRome, Italy\nParis, France\nBern, Swiss\nOslo, Norway",
        "Do this:\n\treturn 1",
        "Do this:\n\tif x:\n\t\treturn 1",
        "\n".join(f"line {number}" for number in range(50)),
    ],
)
def test_quoted_texts_of_several_lines(table, delimiter, cell):
    rows = [("Why?", "So."), (cell, "Yes."), ("Well?", cell), (cell, cell), ("Who?", "We.")]
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows([("question", "answer"), *rows])
    read_pairs, file = table(text.getvalue(), "faq.tsv" if delimiter == "\t" else "faq.csv")
    assert (read_pairs, file.skipped) == (rows, {})


def test_lines_that_are_too_long(table):
    text = "question,answer\nWhy?,So.\n" + "x" * 3000 + ",y\nWho?,We.\n" + 'a,"b\n' + "x" * 3000
    read_pairs, file = table(text + '"\nWhen?,Now\n', max_line_bytes=100)
    assert read_pairs[:2] == [("Why?", "So."), ("Who?", "We.")] and read_pairs[-1] == (
        "When?",
        "Now",
    )
    assert file.skipped["line_too_long"] == 2
    assert not any("x" in response for _, response in read_pairs)


def test_the_id_is_that_of_the_question(write_dump):
    first = write_dump("one.csv", b"Is it open?,Yes.\nWhy?,So.\n")
    second = write_dump("two.tsv.gz", "x\ty\nis  IT ｏpen?\tNo.\n".encode())
    third = write_dump("three.jsonl", [{"question": "is it  OPEN?", "answers": ["Yes.", "No."]}])
    one, two, three = ([*read(CountedFile(path))] for path in (first, second, third))
    assert one[0].id == two[1].id == three[0].id == three[1].id != one[1].id
    assert (one[0].source, two[0].source) == ("one", "two")
    assert one[0].turns == (Turn("Is it open?"), Turn("Yes."))


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("Is breakfast & tea for 2 in?", "is breakfast &amp;amp; tea for 2 in?"),
        ("Is the pool open?", "Is the pool open?\u200b"),
        ("e-mail address?", "e\u2011mail address?"),
        ("Can we co\u00adoperate?", "Can we cooperate?"),
        ("Where is it? https://t.co/1", "Where is it? [](https://t.co/2)"),
        ("> Until nine.\nIs it open?", "Is it open?"),
    ],
)
def test_questions_that_cleaning_makes_equal_have_one_id(text, same):
    assert pair_id([text]) == pair_id([same])


def test_questions_that_cleaning_empties_have_their_ids():
    assert (
        pair_id(["https://t.co/1"]) == pair_id([" HTTPS://t.co/1"]) != pair_id(["https://t.co/2"])
    )


def test_all_answers_to_a_cleaned_question_are_in_one_split(write_dump):
    variants = ("{}?", "{}&#63;", "{}?\u200b", "{}? https://t.co/{}")
    rows = [
        {"question": variant.format(f"Is room {number} free", number), "answer": f"{variant}."}
        for number in range(50)
        for variant in variants
    ]
    path = write_dump("faq.jsonl", rows)
    rules = Rules(**{**CORPORA["pairs"].rules, **PRESETS["clean"]})
    splits = {}
    for row in Steps(PrepareOptions(corpus_rules={"pairs": rules})).rows_of_file(
        "pairs", CountedFile(path)
    ):
        example = Example(*parsed_json(row.payload))
        splits.setdefault(example.context, set()).add(split_of(example.thread_id))
    assert len(splits) == 50
    assert {*map(len, splits.values())} == {1}
    assert {"train", "test"} <= set.union(*splits.values())


@pytest.mark.slow
def test_memory_stays_flat(write_dump):
    row = b'Why is it so?,"Because\n' + 15 * b"it is. " + b'"\n'
    path = write_dump("faq.csv", row * 25_000)
    file = CountedFile(path)
    tracemalloc.start()
    number = sum(1 for _ in read(file))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert number == 25_000
    assert peak < 3 * 2**20 < len(row) * number  # in bytes


_CELL = st.text(
    # Tabs in a text of several lines can look like several rows of a table with tabs.
    st.characters(exclude_categories=("Cs",), exclude_characters="\0\r\t"),
    min_size=1,
    max_size=30,
).filter(lambda text: text.strip())


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(st.tuples(_CELL, _CELL), min_size=1, max_size=8),
    delimiter=st.sampled_from(",;\t"),
    line_break=st.sampled_from(["\n", "\r\n"]),
)
def test_whatever_csv_writes_is_read(tmp_path_factory, rows, delimiter, line_break):
    buffer = io.StringIO()
    writer = csv.writer(
        buffer, delimiter=delimiter, lineterminator=line_break, quoting=csv.QUOTE_ALL
    )
    writer.writerows([("context", "response"), *rows])
    path = tmp_path_factory.mktemp("tables") / "any.csv"
    path.write_bytes(buffer.getvalue().encode("utf-8"))
    read_pairs, file = _read(str(path))
    assert read_pairs == [(context.strip(), response.strip()) for context, response in rows]
    assert not file.skipped


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("17,pool,Until nine.\n", "has 3.*'17', 'pool', 'Until nine.'.*'context' and 'response'"),
        (
            "Text,Label\nhi,greet\n",
            "columns 'Text' and 'Label', which contain labelled texts.*intent train",
        ),
        ("sentence1,sentence2\na,b\n", "labelled texts, not pairs"),
    ],
)
def test_columns_that_are_no_pairs_are_refused(table, text, message):
    with pytest.raises(ValueError, match=rf"faq\.csv.*{message}"):
        table(text)
    with pytest.raises(ValueError, match="first row has one column"):
        table("a,b\nc,d\n", "faq.tsv")  # in .tsv files, only tabs separate columns


def test_a_first_row_that_is_no_known_header_is_said(table):
    read_pairs, file = table("Frage,Antwort\nWhy?,So.\n")
    assert read_pairs[0] == ("Frage", "Antwort")
    assert "the first row has no known column names, so it is read as a pair" in file.warnings[0]
    assert not table("question,answer\nWhy?,So.\n")[1].warnings
