"""Reading Rasa's `nlu.yml` like Rasa 3.6.21, and errors with line numbers."""

import json
import time
from pathlib import Path

import pytest

from convert_tf.intents.rasa import _MARK, _marks, read_nlu

HEAD = "nlu:\n- intent: a\n  examples: |\n    - b\n"
# Written by tests/clients/real/nlu_probe.py in an environment with Rasa.
CASES = json.loads((Path(__file__).parent / "nlu_cases.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["content"][-40:])
def test_it_reads_what_rasa_reads_and_refuses_the_rest(case):
    try:
        rows = read_nlu(case["content"], "nlu.yml")
    except ValueError as error:
        assert case["rasa"] is None, str(error)
        assert "\n" not in str(error)
    else:
        unique = dict.fromkeys((text, intent) for _, text, intent in rows)  # Rasa drops duplicates
        assert [list(row) for row in unique] == (case["rasa"] or [])


def test_each_row_has_the_number_of_its_line():
    more = "\n    - c\n- intent: d\n  examples:\n  - text: e\n"
    assert read_nlu(HEAD + more, "") == [(4, "b", "a"), (6, "c", "a"), (9, "e", "d")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (HEAD + "    c\n    # d\n", r"line 5: 'c' does not begin with '-'; line 6: '# d' does not"),
        (HEAD + "    -\n", "line 5: an example has no text"),
        (HEAD + "".join(f"    {n}\n" for n in range(9)), "line 9: .*; and 4 more"),
        (HEAD + '    - [c]{"role": "d"}\n', r"line 5: '\[c\]\{\"role\": \"d\"\}' is not a mark"),
        (HEAD + "- intent: 010\n  examples: |\n    - b\n", "line 5: intent 010 is not a string"),
        (HEAD + "- intent: c\n", "line 5: 'c' has no examples"),
        (HEAD + "- intent: c\n  examples:\n  - d\n", "line 7: an example in a list must"),
        (HEAD + "- intnet: c\n", "line 5: 'intnet' instead of intent, synonym"),
        (HEAD + "nlu: []\n", "line 5: 'nlu' is repeated"),
        ('version: "4.0"\n' + HEAD, "line 1: version 4.0 is later than 3.1"),
        (f'version: "{"9" * 5000}"\n' + HEAD, "l.* line 1: version 9{39}… is later"),
        (f"%YAML {'9' * 5000}.1\n---\n" + HEAD, "l.* line 1: the number of a .*version is out"),
        (HEAD + 'é: "\\UFFFFFFFF"\n', "nlu.yml.* line 5: the number of a character"),
        (HEAD + 'é: "\\U00110000"\n', "nlu.yml.* line 5: the number of a character"),
        ("nlu:\n- a: [\n", "line 3: while parsing a flow node"),
        (HEAD + "    - \x07\n", "line 5: the character 0x0007"),
        (HEAD + "    - \\u00\n", "four digits"),
        ("[" * 1100, "nested too deeply"),
    ],
)  # fmt: skip
def test_what_rasa_would_leave_out_is_refused_by_line(content, message):
    with pytest.raises(ValueError, match=message):
        read_nlu(content, "nlu.yml")


@pytest.mark.parametrize("other", ["c", "é"])
def test_emoji_may_be_written_as_two_escapes(other):
    """Rasa's parser joins the escapes only in an ASCII file."""
    emoji = '"\\ud83d\\ude00"'
    content = f"nlu:\n- intent: {emoji}\n  examples:\n  - text: {emoji}\n  - text: {other}\n"
    assert read_nlu(content, "") == [(4, "😀", "😀"), (5, other, "😀")]


def test_half_an_emoji_becomes_a_replacement_character():
    content = 'nlu:\n- intent: "\\ud83d"\n  examples: "- \\ude00 é"\n'
    assert read_nlu(content, "") == [(3, "\ufffd é", "\ufffd")]


@pytest.mark.parametrize("part", ["[a ", "[", "[a](", "[a](b", "[a](b:", "[a]{", "[a][{", "[]"])
@pytest.mark.parametrize("end", ["", "]", ")", "}", ":)", "\n]"])
def test_brackets_that_are_no_marks_cost_no_more_than_their_number(part, end):
    """Matching takes linear time, and gives the matches of the regular expression."""
    few = f"x {part * 9}{end} [b](c) [d]{{e}} y"
    expected = [mark.span() for mark in _MARK.finditer(few)]
    assert [mark.span() for mark in _marks(few)] == expected
    started = time.monotonic()
    for _ in _marks(part * 50_000 + end):
        pass
    assert time.monotonic() - started < 5


def test_aliases_of_aliases_cost_no_more_than_their_lines():
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 40)]
    merged = [f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 9)}]}}\n" for n in range(1, 40)]
    started = time.monotonic()
    bomb = "a0: &a0 [x]\n" + "".join(levels) + "m0: &m0 {intent: a}\n" + "".join(merged)
    rows = read_nlu(bomb + "nlu:\n- <<: *m39\n  examples: |\n    - b\n", "")
    assert rows == [(84, "b", "a")]
    with pytest.raises(ValueError, match="not an intent with examples"):
        read_nlu(bomb + "nlu: *a39\n", "")
    assert time.monotonic() - started < 20
