"""Amazon's questions and answers (McAuley et al.), by the rules of PolyAI's AmazonQA data.

There are two layouts. Both are Python dictionaries as text, one per line. Lines of JSON with the
same keys are read too:

```
{'asin': 'B01', 'question': "Does it fit my phone?", 'answer': 'It fits all phones.', …}
{'asin': 'B01', 'questions': [{'questionText': …, 'answers': [{'answerText': …}, …]}, …]}
```

CSV and TSV files have a row for each answer, with the columns `questionText` and `answerText`. If
they have no `asin`, the question decides the split.

The rules: Every question makes an example with each of its answers. Both must have 4 to 59 words.
Words are counted by the single spaces between them, so two spaces make an empty word. There is no
limit in characters, and texts are not changed. The product's id decides the split. If examples in
any files have equal questions and answers, PolyAI keep the one with the smallest product id, as a
string. A reader sees only one file, so the engine finds these duplicates.

There are two differences. If a line is not a dictionary or lacks a field, PolyAI's script stops;
here the line is counted. A text of only spaces is not used.

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
# A syntax tree takes up to 500 times the memory of its line.
_MAX_LINE_BYTES = 2**21
_QUESTION, _ANSWER = _TEXTS = ("questiontext", "answertext")
_COLUMNS = Columns(
    "questions and answers",
    names=("questionText", "answerText"),
    find=lambda names: _TEXTS if {*_TEXTS} <= {*names} else None,
)


def read(file: CountedFile) -> Iterator[Conversation]:
    """Yield one conversation per question and answer. Its id is the product's.

    Args:
      file: a `.gz`, `.zst`, `.bz2`, `.xz` or plain file; lines of more than 2 MiB are dropped. It
        counts unusable lines as `invalid_utf8`, `not_a_dictionary`, `missing_question`,
        `missing_asin`, …; questions and answers with a field that is missing or not a text as
        `missing_answerText`, `wrong_type_answerText`, …; and questions and answers that the rules
        exclude as `question_too_short`, `question_too_long`, `answer_too_short`, `answer_too_long`.
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
    """Return the id of a product as text. In tables written as JSON it is a number."""
    value = fields.get("asin")
    product = joined_halves(str(value) if type(value) is int else text_field(fields, "asin"))
    if not 0 < len(product) <= MAX_NAME_LENGTH:
        raise UnusableError("malformed_asin")
    return product


def _parsed(line: str) -> dict[str, Any]:
    """Return the dictionary in a line of JSON or, as published, Python."""
    try:
        value = json_of_texts(line, is_dump=True)
    except ValueError:
        try:
            # Evaluates literals only: no names, calls or attributes.
            value = ast.literal_eval(line)
        except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError) as error:
            raise UnusableError("not_a_dictionary") from error
    if not isinstance(value, dict):
        raise UnusableError("not_a_dictionary")
    return value


def _pairs(fields: Mapping[str, Any], file: CountedFile) -> Iterator[tuple[str, str]]:
    """Yield the usable questions of a line with their usable answers."""
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
    """Return a question or an answer if it is usable."""
    text = joined_halves(text_field(fields, name))
    num_words = text.count(" ") + 1
    if num_words < MIN_WORDS or not text.strip():
        raise UnusableError(f"{role}_too_short", is_bad=False)
    if num_words > MAX_WORDS:
        raise UnusableError(f"{role}_too_long", is_bad=False)
    return text
