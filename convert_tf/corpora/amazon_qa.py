"""Read Amazon's questions and answers (McAuley et al.) by the rules of PolyAI's AmazonQA data.

The published files have a Python dictionary on each line, in one of the two layouts below. JSON
lines with the same keys are also read.

```
{'asin': 'B01', 'question': "Does it fit my phone?", 'answer': 'It fits all phones.', …}
{'asin': 'B01', 'questions': [{'questionText': …, 'answers': [{'answerText': …}, …]}, …]}
```

CSV and TSV files have a row for each answer, with the columns `questionText` and `answerText`. If a
row has no `asin`, a hash of the question decides the split.

PolyAI's rules are as follows. Each question forms an example with each of its answers. Both texts
must have 4 to 59 words. Words are counted by the single spaces between them, so a double space
counts as an extra, empty word. The number of characters is not limited, and texts are not changed.
The product id decides the split. If several examples have the same question and answer, PolyAI keep
the example with the smallest product id, compared as strings. A reader sees only one file, so the
engine drops these duplicates.

Two things differ from PolyAI's script. If a line is not a dictionary or lacks a field, their script
stops, but this reader skips and counts the line. Texts that consist only of spaces are not used.

Reference: github.com/PolyAI-LDN/conversational-datasets, amazon_qa.
"""

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from convert_tf.corpora.dialogues import pair_id
from convert_tf.corpora.dumps import MAX_NAME_LENGTH, Conversation, CountedFile, Turn, text_field
from convert_tf.readers.columns import Columns
from convert_tf.readers.delimited import TABLE_SUFFIXES, suffix
from convert_tf.readers.files import UnusableError, decoded, read_lines
from convert_tf.readers.tables import read_rows
from convert_tf.storage.json_text import joined_halves, json_of_texts

MIN_WORDS = 4
MAX_WORDS = 59
SOURCE = "amazon_qa"
# Parsing a line as Python takes up to 500 times the line's size in memory.
_MAX_LINE_BYTES = 2**21
_QUESTION, _ANSWER = _TEXTS = ("questiontext", "answertext")
_COLUMNS = Columns(
    "questions and answers",
    names=("questionText", "answerText"),
    find=lambda names: _TEXTS if {*_TEXTS} <= {*names} else None,
)


def read(file: CountedFile) -> Iterator[Conversation]:
    """Yield one conversation for each question and answer. Its id is the product id.

    Args:
      file: a `.gz`, `.zst`, `.bz2`, `.xz` or plain file. Lines longer than 2 MiB are dropped. The
        file counts unusable lines as `invalid_utf8`, `not_a_dictionary`, `missing_question`,
        `missing_asin` and so on. It counts questions and answers with a field that is missing or
        not a string as `missing_answerText`, `wrong_type_answerText` and so on. It counts questions
        and answers that the rules exclude as `question_too_short`, `question_too_long`,
        `answer_too_short` or `answer_too_long`.
    """
    if suffix(file.path) in TABLE_SUFFIXES:
        yield from _read_table(file)
        return
    file.max_line_bytes = min(file.max_line_bytes, _MAX_LINE_BYTES)
    for line in read_lines(file):
        with file.skipping():
            fields = _parsed(decoded(line))
            asin = _product(fields)
            for question, answer in _pairs(fields, file):
                yield Conversation(asin, SOURCE, (Turn(question), Turn(answer)))


def _read_table(file: CountedFile) -> Iterator[Conversation]:
    for row in read_rows(file, _COLUMNS):
        with file.skipping():
            if not isinstance(row, dict):  # the file is JSON despite its suffix
                raise UnusableError("not_a_dictionary")
            question, answer = (
                _usable(row, name, role)
                for name, role in ((_QUESTION, "question"), (_ANSWER, "answer"))
            )
            product = _product(row) if row.get("asin") else pair_id([question])
            yield Conversation(product, SOURCE, (Turn(question), Turn(answer)))


def _product(fields: Mapping[str, Any]) -> str:
    """Return the product id as a string. In tables written as JSON, the id may be a number."""
    value = fields.get("asin")
    # Python refuses to convert an integer with thousands of digits to a string.
    is_number = type(value) is int and abs(value) < 10**MAX_NAME_LENGTH
    product = joined_halves(str(value) if is_number else text_field(fields, "asin"))
    if not 0 < len(product) <= MAX_NAME_LENGTH:
        raise UnusableError("malformed_asin")
    return product


def _parsed(line: str) -> dict[str, Any]:
    """Return the dictionary on a line, written as JSON or, as in the published files, as Python."""
    try:
        value = json_of_texts(line, is_dump=True)
    except ValueError:
        try:
            # This evaluates literals only: no names, calls or attributes.
            value = ast.literal_eval(line)
        except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError) as error:
            raise UnusableError("not_a_dictionary") from error
    if not isinstance(value, dict):
        raise UnusableError("not_a_dictionary")
    return value


def _pairs(fields: Mapping[str, Any], file: CountedFile) -> Iterator[tuple[str, str]]:
    """Yield each usable question on a line with each of its usable answers."""
    if "question" in fields or "questions" not in fields:
        yield _usable(fields, "question", "question"), _usable(fields, "answer", "answer")
        return
    for question_fields in _dictionaries(fields, "questions", file):
        with file.skipping():
            question = _usable(question_fields, "questionText", "question")
            for answer_fields in _dictionaries(question_fields, "answers", file):
                with file.skipping():
                    yield question, _usable(answer_fields, "answerText", "answer")


def _dictionaries(
    fields: Mapping[str, Any], name: str, file: CountedFile
) -> Iterator[Mapping[str, Any]]:
    values = fields.get(name)
    if not isinstance(values, list | tuple):
        raise UnusableError(f"missing_{name}" if values is None else f"wrong_type_{name}")
    for value in values:
        if isinstance(value, dict):
            yield value
        else:
            file.skip(f"wrong_type_{name}")


def _usable(fields: Mapping[str, Any], name: str, role: str) -> str:
    """Return a question or an answer; raise `UnusableError` if the rules exclude it."""
    text = joined_halves(text_field(fields, name))
    num_words = text.count(" ") + 1
    if num_words < MIN_WORDS or not text.strip():
        raise UnusableError(f"{role}_too_short", is_bad=False)
    if num_words > MAX_WORDS:
        raise UnusableError(f"{role}_too_long", is_bad=False)
    return text
