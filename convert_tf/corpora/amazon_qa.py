"""Amazon's questions and answers (McAuley et al.) by the rules of PolyAI's AmazonQA data.

Two layouts, both Python dictionaries as text, one a line, or the same as JSON lines:

```
{'asin': 'B01', 'question': "Does it fit my phone?", 'answer': 'It fits all phones.', …}
{'asin': 'B01', 'questions': [{'questionText': …, 'answers': [{'answerText': …}, …]}, …]}
```

The rules: every question makes an example with each of its answers; both hold 4 to 59 words,
counted by the single spaces between them (two spaces make an empty word); no limit in characters;
texts are not changed; the split is that of the product's id. PolyAI then keep one of the examples
with equal question and answer, over all files: that of the smallest product id, as a string.
Duplicates are for the engine to find; a reader sees one file.

What differs: a line that PolyAI's script would stop at (not a dictionary, a field missing) is
counted, and a text of nothing but spaces is not used.

Reference: github.com/PolyAI-LDN/conversational-datasets, amazon_qa.
"""

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from convert_tf.corpora import dumps
from convert_tf.corpora.conversations import Conversation, Turn
from convert_tf.storage.json_text import joined_halves, json_of_texts

MIN_WORDS = 4
MAX_WORDS = 59
SOURCE = "amazon_qa"
# A syntax tree takes up to 500 times the memory of the line it is made from.
_MAX_LINE_BYTES = 2**21
_MAX_ID_LENGTH = 200


def read(
    path: str,
    stats: dumps.DumpStats,
    *,
    max_line_bytes: int = _MAX_LINE_BYTES,
    open_file: dumps.OpenFile = dumps.open_local,
) -> Iterator[Conversation]:
    """Yields one conversation per question and answer; its id is that of the product.

    Args:
        path: a `.gz`, `.zst`, `.bz2`, `.xz` or plain file.
        stats: counts what is not used: lines `invalid_utf8`, `not_a_dictionary`,
            `missing_question`, `missing_asin`, …; questions and answers with a field that is
            missing or is not a text (`missing_answerText`, `wrong_type_answerText`, …); and by
            the rules `question_too_short`, `question_too_long`, `answer_too_short`,
            `answer_too_long`.
        max_line_bytes: longer lines are dropped; at most 2 MiB, whatever is given.
        open_file: gives the binary stream of a path.
    """
    limit = min(max_line_bytes, _MAX_LINE_BYTES)
    for line in dumps.read_lines(path, stats, max_line_bytes=limit, open_file=open_file):
        try:
            fields = _parsed(line.decode("utf-8"))
        except UnicodeDecodeError:
            stats.skip("invalid_utf8")
            continue
        except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
            stats.skip("not_a_dictionary")
            continue
        if not isinstance(fields, dict):
            stats.skip("not_a_dictionary")
            continue
        stats.objects += 1
        if type(fields.get("asin")) is int:
            fields["asin"] = str(fields["asin"])  # as a table's reader makes of an id of digits
        asin = _text(fields, "asin", stats)
        if asin is None:
            continue
        if not 0 < len(asin) <= _MAX_ID_LENGTH:
            stats.skip("malformed_asin")
            continue
        for question, answer in _pairs(fields, stats):
            yield Conversation(asin, SOURCE, (Turn(question), Turn(answer)))


def _parsed(line: str) -> Any:
    """The value of a line, which is JSON or, as it was published, Python."""
    try:
        return json_of_texts(line, is_dump=True)
    except ValueError:
        # Evaluates literals only: no name, no call, no attribute.
        return ast.literal_eval(line)


def _pairs(fields: Mapping[str, Any], stats: dumps.DumpStats) -> Iterator[tuple[str, str]]:
    """The questions with their answers of one line that the rules keep."""
    if "question" in fields:
        question = _usable_text(fields, "question", "question", stats)
        if question is not None:
            answer = _usable_text(fields, "answer", "answer", stats)
            if answer is not None:
                yield question, answer
    elif "questions" in fields:
        for question_fields in _dictionaries(fields, "questions", stats):
            question = _usable_text(question_fields, "questionText", "question", stats)
            if question is None:
                continue
            for answer_fields in _dictionaries(question_fields, "answers", stats):
                answer = _usable_text(answer_fields, "answerText", "answer", stats)
                if answer is not None:
                    yield question, answer
    else:
        stats.skip("missing_question")


def _dictionaries(
    fields: Mapping[str, Any], name: str, stats: dumps.DumpStats
) -> Iterator[Mapping[str, Any]]:
    values = fields.get(name)
    if not isinstance(values, list | tuple):
        stats.skip(f"missing_{name}" if values is None else f"wrong_type_{name}")
        return
    for value in values:
        if isinstance(value, dict):
            yield value
        else:
            stats.skip(f"wrong_type_{name}")


def _usable_text(
    fields: Mapping[str, Any], name: str, role: str, stats: dumps.DumpStats
) -> str | None:
    text = _text(fields, name, stats)
    if text is None:
        return None
    num_words = text.count(" ") + 1
    if num_words < MIN_WORDS or not text.strip():
        stats.skip(f"{role}_too_short", is_bad=False)
        return None
    if num_words > MAX_WORDS:
        stats.skip(f"{role}_too_long", is_bad=False)
        return None
    return text


def _text(fields: Mapping[str, Any], name: str, stats: dumps.DumpStats) -> str | None:
    value = fields.get(name)
    if isinstance(value, str):
        return joined_halves(value)
    stats.skip(f"missing_{name}" if value is None else f"wrong_type_{name}")
    return None
