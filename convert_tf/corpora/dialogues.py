"""Files of dialogues and pairs in JSON: one object per line, or one list of objects.

```
{"turns": ["Is the pool open?", "Until nine.", "Thanks!"], "source": "hotel", "id": "17"}
{"turns": [{"text": "Is the pool open?", "speaker": "guest"}, {"text": "Until nine."}]}
{"question": "Is the pool open?", "answer": "Until nine."}
```

`source` and `id` of turns are optional. Other fields are ignored. `convert_tf.corpora.json_shapes`
lists the other shapes that are read.
"""

import unicodedata
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

from convert_tf.corpora.conversations import Conversation, Turn, corpus_name, hash_of
from convert_tf.corpora.dumps import CountedFile, json_in_line, read_lines
from convert_tf.corpora.fields import UnusableError, name_field
from convert_tf.corpora.json_shapes import names_of_pair, pairs_in, turns_in, turns_name
from convert_tf.storage.json_text import holds_one_value, json_of_texts, whole_characters

_MAX_VALUE_BYTES = 2**30  # of a file that is one value, which is read as a whole
_SHOWN_KEYS = 12


def read(file: CountedFile) -> Iterator[Conversation]:
    """Yield the dialogues of one file.

    The source of a dialogue is that of the object, or the name of the file without folder and
    suffixes. A dialogue with an id is named `source/id`. A dialogue without one is named by a hash
    of its texts, so that copies of it are in the same split, in whatever file they are. A pair is
    named by a hash of its context without regard to case and white space, as in tables of pairs.

    A turn that is empty or has no text ends a conversation, because the turn after it does not
    answer the turn before it. The turns before and after it become two conversations with the same
    id.

    Args:
        file: a `.zst`, `.bz2`, `.gz`, `.xz` or plain file. It counts lines that cannot be used as
            `missing_turns`, `wrong_type_turns`, `wrong_type_source`, `wrong_type_id`,
            `too_long_source`, `too_long_id`, `too_few_turns` (no turn is followed by another);
            pairs as `lists_on_both_sides`, `empty_context`, `empty_response`; and turns as
            `wrong_type_turn`, `empty_turn`. If the file is one list, its entries count as lines.

    Raises:
        ValueError: if the first object has no known shape, or the file is one value that is not
            JSON.
    """
    yield from json_conversations(file, read_lines(file), lists_are_pairs=False)


def json_conversations(
    file: CountedFile, lines: Iterator[bytes], *, lists_are_pairs: bool
) -> Iterator[Conversation]:
    """Yield the conversations in the lines of a JSON file. Otherwise as `read`.

    Args:
        file: the file.
        lines: its lines, which it counts.
        lists_are_pairs: whether a line may be a list of two texts.
    """
    file_source = whole_characters(corpus_name(file.path))
    is_first = True
    for value in _values(file, lines):
        with file.skipping():
            if lists_are_pairs and _are_two_texts(value):
                value = dict(zip(("context", "response"), value, strict=True))
            if not isinstance(value, dict):
                raise UnusableError("not_an_object")
            file.objects += 1
            was_first, is_first = is_first, False
            if name := turns_name(value):
                yield from _dialogue(value, value[name], file_source, file)
            elif names := _pair_names(value):
                fields = {key.lower(): one for key, one in value.items()} | value
                yield from _pairs(fields, names, file_source, file)
            elif was_first:
                raise _unknown_shape(file, value)
            else:
                raise UnusableError("missing_pair" if lists_are_pairs else "missing_turns")


def _unknown_shape(file: CountedFile, value: dict[str, Any]) -> ValueError:
    keys = ", ".join(repr(key[:40]) for key in [*value][:_SHOWN_KEYS]) or "none"
    return ValueError(
        f"{file.name}, line {file.lines}, has no keys of a pair or a dialogue. Its keys are "
        f"{keys}. Rename two of them to 'context' and 'response', or a list of turns to 'turns'."
    )


def _are_two_texts(value: Any) -> bool:
    return isinstance(value, list) and [type(one) for one in value] == [str, str]


def _values(file: CountedFile, lines: Iterator[bytes]) -> Iterator[Any]:
    """Yield the values of the lines, or the entries of the list that the whole file is."""
    first = []
    for line in islice(lines, 2):
        first.append((file.lines, line))
    if holds_one_value([line.decode("utf-8", "replace") for _, line in first]):
        yield from _values_of_one(file, chain((line for _, line in first), lines))
        return
    for number, line in chain(first, ((file.lines, line) for line in lines)):
        file.lines, last = number, file.lines
        with file.skipping():
            yield from _entries(json_in_line(line))
        file.lines = last


def _values_of_one(file: CountedFile, lines: Iterable[bytes]) -> Iterator[Any]:
    content = bytearray()
    for line in lines:
        content += line + b"\n"
        if len(content) > _MAX_VALUE_BYTES:
            raise ValueError(
                f"{file.name} is one JSON value of more than {_MAX_VALUE_BYTES:,} bytes. Write an "
                "object a line, for example with jq -c '.[]'."
            )
    if file.is_cut_off:
        raise ValueError(f"{file.name} is {file.damage}. Copy it again.")
    try:
        value = json_of_texts(bytes(content))
    except ValueError as error:
        raise ValueError(
            f"Cannot read {file.name} as JSON: {error}. It must have one object in each line, or "
            "be one list. Repair it, or write it again."
        ) from error
    for number, entry in enumerate(_entries(value), 1):
        file.lines = number
        yield entry


def _entries(value: Any) -> list[Any]:
    """Return the objects of a list, which may be the only list of objects in an object."""
    if isinstance(value, dict) and not turns_name(value) and not _pair_names(value):
        lists = [each for each in value.values() if _are_objects(each)]
        value = lists[0] if len(lists) == 1 else value
    if _are_objects(value) and all(isinstance(one, dict) and "role" in one for one in value):
        return [{"turns": value}]  # one chat
    return value if _are_objects(value) else [value]


def _pair_names(value: dict[str, Any]) -> tuple[str, str] | None:
    return names_of_pair([key.lower() for key in value])


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict | list)


def _pairs(
    fields: dict[str, Any], names: tuple[str, str], source: str, file: CountedFile
) -> Iterator[Conversation]:
    for unstripped in pairs_in(fields, names):
        turns = tuple(turn._replace(text=turn.text.strip()) for turn in unstripped)
        if not turns[-2].text:
            file.skip("empty_context", is_bad=False)
        elif not turns[-1].text:
            file.skip("empty_response", is_bad=False)
        else:
            yield Conversation(pair_id(turn.text for turn in turns[:-1]), source, turns)


def pair_id(contexts: Iterable[str]) -> str:
    """Return the id of a pair, which puts all answers to a question into the same split.

    Case, white space and Unicode's variants of characters do not count.
    """
    return hash_of(
        " ".join(unicodedata.normalize("NFKC", text).casefold().split()) for text in contexts
    )


def _dialogue(
    fields: dict[str, Any], values: Any, file_source: str, file: CountedFile
) -> Iterator[Conversation]:
    if not isinstance(values, list):
        raise UnusableError("missing_turns" if values is None else "wrong_type_turns")
    source = name_field(fields, "source", kinds=str | int) or file_source
    given_id = name_field(fields, "id", kinds=str | int)
    turns = turns_in(values)
    # Only the texts count: a dialogue with and without the names of its speakers has one id.
    texts = (turn.text if turn else "" for turn in turns)
    dialogue_id = f"{source}/{given_id}" if given_id else hash_of(texts)
    is_used = False
    for piece in _unbroken(turns, file):
        if len(piece) > 1:
            is_used = True
            yield Conversation(dialogue_id, source, tuple(piece))
    if not is_used:
        raise UnusableError("too_few_turns", is_bad=False)


def _unbroken(turns: list[Turn | None], file: CountedFile) -> Iterator[list[Turn]]:
    """Yield the runs of turns with text."""
    run: list[Turn] = []
    for turn in turns:
        if turn is not None and turn.text.strip():
            run.append(turn)
            continue
        if turn is None:
            file.skip("wrong_type_turn")
        else:
            file.skip("empty_turn", is_bad=False)
        yield run
        run = []
    yield run
