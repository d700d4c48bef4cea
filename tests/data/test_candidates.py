"""Files with given candidates."""

import csv
import gzip
import json

import pytest
import zstandard

from convert_tf.data.candidates import extra_context, joined_context, last_turn, read_candidates
from convert_tf.data.schema import CandidateExample

LINES = (
    '{"context": ["hi", "how are you?"], "candidates": ["fine", "a fish"], "label": 0, "id": 7}',
    '{"context": "hello", "candidates": ["x", "y", "x"], "label": [2, 1, 2]}',
    "",
    '{"context": [], "candidates": ["only"], "label": [0]}',
)
EXAMPLES = [
    CandidateExample(("hi", "how are you?"), ("fine", "a fish"), (0,)),
    CandidateExample(("hello",), ("x", "y", "x"), (1, 2)),
    CandidateExample((), ("only",), (0,)),
]


@pytest.mark.parametrize(
    ("name", "compress"),
    [
        ("plain.jsonl", bytes),
        ("packed.jsonl.gz", gzip.compress),
        ("packed.jsonl.zst", zstandard.ZstdCompressor().compress),
    ],
)
def test_files_are_read_in_order(tmp_path, name, compress):
    path = tmp_path / name
    path.write_bytes(compress("\n".join(LINES).encode()))
    assert list(read_candidates(path)) == EXAMPLES


def line(**changes):
    value = {"context": ["a"], "candidates": ["b", "c"], "label": 0, **changes}
    return json.dumps({k: v for k, v in value.items() if v is not None})


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("{", "Expecting"),
        ("[1]", "not a JSON object"),
        (line(context=None), "context is not a list of texts"),
        (line(context=[1]), "context is not a list of texts"),
        (line(candidates=[]), "label 0 does not fit 0 candidates"),
        (line(candidates="b"), "candidates is not a list of texts"),
        (line(candidates=["b", None]), "candidates is not a list of texts"),
        (line(label=2), "label 2 does not fit 2 candidates"),
        (line(label=-1), "label -1 does not fit 2"),
        (line(label=True), "label True does not fit 2"),
        (line(label="0"), "label '0' does not fit 2"),
        (line(label=[]), r"label \[\] does not fit 2"),
        (line(label=[0, 0.5]), r"label \[0, 0.5\] does not fit 2"),
    ],
)
def test_bad_lines_are_named(tmp_path, bad, message):
    path = tmp_path / "file.jsonl"
    path.write_text("\n".join([line(), line(), bad, line()]))
    read = read_candidates(path)
    next(read)
    next(read)
    with pytest.raises(ValueError, match=rf"file\.jsonl, line 3, is not .*{message}"):
        next(read)


def test_damaged_and_empty_files(tmp_path):
    whole = gzip.compress("\n".join([line()] * 500).encode())
    path = tmp_path / "file.gz"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="a truncated gz archive"):
        list(read_candidates(path))
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"file\.gz is empty, so it is not an archive"):
        list(read_candidates(path))
    (tmp_path / "file.jsonl").touch()
    with pytest.raises(ValueError, match="has no examples"):
        list(read_candidates(tmp_path / "file.jsonl"))
    with pytest.raises(FileNotFoundError):
        list(read_candidates(tmp_path / "nowhere"))


def test_turns_become_texts():
    turns = tuple(f"t{i}" for i in range(13))
    assert joined_context(turns) == "t0 t1 t2 t3 t4 t5 t6 t7 t8 t9 t10 t11 t12"
    assert last_turn(turns) == "t12"
    assert extra_context(turns) == "t11 t10 t9 t8 t7 t6 t5 t4 t3 t2"  # ten turns, latest first
    assert extra_context(("one",)) == extra_context(()) == last_turn(()) == joined_context(()) == ""
    assert extra_context(("a", "", "b", "c")) == "b a"
    assert extra_context(("a", "b", "c"), numbered=True) == "0: b 1: a"


def test_places_may_be_whole_numbers_of_pandas(tmp_path):
    (tmp_path / "file.jsonl").write_text(line(label=1.0) + "\n" + line(label=[0.0, 1]))
    assert [each.labels for each in read_candidates(tmp_path / "file.jsonl")] == [(1,), (0, 1)]


@pytest.mark.parametrize("label", [0, 1, [1], 1.0, "1", "[1]"])
def test_candidates_as_text_may_have_labels_of_any_type(tmp_path, label):
    (tmp_path / "file.jsonl").write_text(line(candidates='["b", "c"]', label=label))
    (example,) = read_candidates(tmp_path / "file.jsonl")
    assert example.candidates == ("b", "c")
    assert example.labels == ((0,) if label == 0 else (1,))


@pytest.mark.parametrize("label", ["0.0", "[0.0]"])
def test_cells_may_have_whole_numbers_of_pandas(tmp_path, label):
    (tmp_path / "file.csv").write_text(
        f'context,candidates,label\nhello,"[""b"", ""c""]",{label}\nbye,"[""b"", ""c""]",0.5\n'
    )
    read = read_candidates(tmp_path / "file.csv")
    assert next(read) == CandidateExample(("hello",), ("b", "c"), (0,))
    with pytest.raises(ValueError, match=r"label 0\.5 does not fit 2 candidates"):
        next(read)


CONTEXTS = ("my pc\nis slow", "hello", "bye\tnow\nor later", "no\tmore")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize(
    ("name", "delimiter", "head", "quoting"),
    [
        ("file.tsv", "\t", "", csv.QUOTE_MINIMAL),
        ("file.tsv", "\t", "", csv.QUOTE_ALL),
        ("file.csv", ",", "", csv.QUOTE_MINIMAL),
        ("file.csv", ";", "", csv.QUOTE_ALL),
        ("file.csv", "\t", "sep=\t", csv.QUOTE_MINIMAL),
    ],
)
def test_texts_may_have_tabs_and_line_breaks(
    tmp_path, newline, encoding, name, delimiter, head, quoting
):
    """The number of tabs then varies between lines, as in a file of articles."""
    contexts = [text.replace("\n", newline) for text in CONTEXTS]
    with open(tmp_path / name, "w", encoding=encoding, newline="") as file:
        file.write(head and head + newline)
        rows = csv.writer(file, delimiter=delimiter, quoting=quoting, lineterminator=newline)
        rows.writerow(["Context", "candidates", "label"])
        rows.writerows([context, '["b", "c"]', 1] for context in contexts)
    expected = [CandidateExample((context,), ("b", "c"), (1,)) for context in contexts]
    assert list(read_candidates(tmp_path / name)) == expected


def test_json_may_be_indented_with_tabs(tmp_path):
    rows = [{"context": ["a", "b"], "candidates": ["x", "y"], "label": 0}] * 2
    written = [json.dumps(value, indent="\t") for value in (rows, {"data": rows})]
    written.append(written[0].replace("[\n\t{", "[{", 1))
    written.append(written[1].replace('{\n\t"data"', '{"data"', 1))
    for text in written:
        (tmp_path / "file.json").write_text(text)
        expected = [CandidateExample(("a", "b"), ("x", "y"), (0,))] * 2
        assert list(read_candidates(tmp_path / "file.json")) == expected


def test_candidates_as_text_need_a_label(tmp_path):
    (tmp_path / "file.jsonl").write_text(line(candidates='["b", "c"]', label=None))
    with pytest.raises(ValueError, match="label None does not fit 2 candidates"):
        list(read_candidates(tmp_path / "file.jsonl"))
