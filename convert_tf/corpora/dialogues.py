"""Files of dialogues and pairs in JSON: an object a line, or one list of objects.

```
{"turns": ["Is the pool open?", "Until nine.", "Thanks!"], "source": "hotel", "id": "17"}
{"turns": [{"text": "Is the pool open?", "speaker": "guest"}, {"text": "Until nine."}]}
{"question": "Is the pool open?", "answer": "Until nine."}
```

`source` and `id` of turns are optional; further fields are ignored. Compressed or not. The other
shapes that are read are in `convert_tf.corpora.json_shapes`.
"""

import unicodedata
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

from convert_tf.corpora import dumps
from convert_tf.corpora.conversations import Conversation, Turn, corpus_name, hash_of
from convert_tf.corpora.json_shapes import (
    Said,
    ShapeError,
    names_of_pair,
    pairs_in,
    turns_in,
    turns_name,
)
from convert_tf.storage.json_text import holds_one_value, json_of_texts, whole_characters

_MAX_NAME_LENGTH = 200
_MAX_VALUE_BYTES = 2**30  # of a file that is one value, which is read as a whole
_SHOWN_KEYS = 12


def read(
    path: str,
    stats: dumps.DumpStats,
    *,
    max_line_bytes: int = dumps.MAX_LINE_BYTES,
    open_file: dumps.OpenFile = dumps.open_local,
) -> Iterator[Conversation]:
    """Yields the dialogues of one file.

    A dialogue with an id is named `source/id`; its source is that of the object, else the name of
    the file without folder and suffixes. A dialogue without one is named by a hash of its texts,
    so that copies of it fall into the same split, wherever they are stored. A pair is named by a
    hash of its context without regard to case and white space, as in tables of pairs.

    A turn that is empty or holds no text ends a conversation: what was said after it did not
    answer what was said before it. The turns on either side become conversations of their own,
    with the same id.

    Args:
        path: a `.zst`, `.bz2`, `.gz`, `.xz` or plain file.
        stats: counts what is not used: lines `missing_turns`, `wrong_type_turns`,
            `wrong_type_source`, `wrong_type_id`, `too_long_source`, `too_long_id`,
            `too_few_turns` (no turn is followed by another), `lists_on_both_sides` of pairs, and
            turns `wrong_type_turn`, `empty_turn`; of pairs `empty_context`, `empty_response`. Where
            the file is one list, its entries are counted as lines.
        max_line_bytes: longer lines are dropped.
        open_file: gives the binary stream of a path.

    Raises:
        ValueError: the first object has no known shape; or the file is one value that is no JSON.
    """
    lines = dumps.read_lines(path, stats, max_line_bytes=max_line_bytes, open_file=open_file)
    yield from json_conversations(path, lines, stats, lists_are_pairs=False)


def json_conversations(
    path: str, lines: Iterator[bytes], stats: dumps.DumpStats, *, lists_are_pairs: bool
) -> Iterator[Conversation]:
    """Yields what the lines of a JSON file hold; as `read` else.

    Args:
        path: names the file and its source.
        lines: of the file, which count themselves in `stats`.
        stats: as in `read`.
        lists_are_pairs: whether a line may be a list of two texts.
    """
    file_source = whole_characters(corpus_name(path))
    is_first = True
    for value in _values(path, lines, stats):
        if lists_are_pairs and _are_two_texts(value):
            value = dict(zip(("context", "response"), value, strict=True))
        if not isinstance(value, dict):
            stats.skip("not_an_object")
            continue
        stats.objects += 1
        turns = turns_name(value)
        names = None if turns else _pair_names(value)
        if turns is None and names is None:
            if is_first:
                raise _unknown_shape(path, value, stats)
            stats.skip("missing_pair" if lists_are_pairs else "missing_turns")
        elif names is None:
            yield from _dialogue(value, value[turns or ""], file_source, stats)
        else:
            fields = {key.lower(): one for key, one in value.items()} | value
            yield from _pairs(fields, names, file_source, stats)
        is_first = False


def _unknown_shape(path: str, value: dict[str, Any], stats: dumps.DumpStats) -> ValueError:
    keys = ", ".join(repr(key[:40]) for key in [*value][:_SHOWN_KEYS]) or "none"
    return ValueError(
        f"{path}, line {stats.lines}, has no keys of a pair or a dialogue. Its keys are {keys}. "
        "Rename two of them to 'context' and 'response', or a list of turns to 'turns'."
    )


def _are_two_texts(value: Any) -> bool:
    return isinstance(value, list) and [type(one) for one in value] == [str, str]


def _values(path: str, lines: Iterator[bytes], stats: dumps.DumpStats) -> Iterator[Any]:
    """The values of the lines, or those in the list that the whole file is."""
    first = []
    for line in islice(lines, 2):
        first.append((stats.lines, line))
    if holds_one_value([line.decode("utf-8", "replace") for _, line in first]):
        yield from _values_of_one((line for _, line in first), lines, path, stats)
        return
    numbered = chain(first, ((stats.lines, line) for line in lines))
    for number, line in numbered:
        stats.lines, last = number, stats.lines
        try:
            value = json_of_texts(line)
        except UnicodeDecodeError:
            stats.skip("invalid_utf8")
        except ValueError:
            stats.skip("not_json")
        else:
            yield from _entries(value)
        stats.lines = last


def _values_of_one(
    first: Iterable[bytes], lines: Iterable[bytes], path: str, stats: dumps.DumpStats
) -> Iterator[Any]:
    content = bytearray()
    for line in chain(first, lines):
        content += line + b"\n"
        if len(content) > _MAX_VALUE_BYTES:
            raise ValueError(
                f"{path} is one JSON value of more than {_MAX_VALUE_BYTES:,} bytes. Write an "
                "object a line, for example with jq -c '.[]'."
            )
    if stats.is_cut_off:
        raise ValueError(f"{path} is {stats.damage}. Copy it again.")
    try:
        value = json_of_texts(bytes(content))
    except ValueError as error:
        raise ValueError(
            f"Cannot read {path} as JSON: {error}. It must have one object in each line, or be one "
            "list. Repair it, or write it again."
        ) from error
    for number, each in enumerate(_entries(value), 1):
        stats.lines = number
        yield each


def _entries(value: Any) -> list[Any]:
    """The objects of a list, or of the only list of objects in an object that is no example."""
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
    fields: dict[str, Any], names: tuple[str, str], source: str, stats: dumps.DumpStats
) -> Iterator[Conversation]:
    try:
        for turns in pairs_in(fields, names):
            texts = [(turn.text or "").strip() for turn in turns]
            *_, context, response = texts
            if not context:
                stats.skip("empty_context", is_bad=False)
            elif not response:
                stats.skip("empty_response", is_bad=False)
            else:
                said = (turn._replace(text=text) for turn, text in zip(turns, texts, strict=True))
                named = tuple(filter(None, map(_turn, said)))
                yield Conversation(pair_id(texts[:-1]), source, named)
    except ShapeError as error:
        stats.skip(error.reason)


def pair_id(contexts: Iterable[str]) -> str:
    """The id of a pair: all answers to a question fall into one split, however it is written."""
    return hash_of(
        " ".join(unicodedata.normalize("NFKC", text).casefold().split()) for text in contexts
    )


def _dialogue(
    fields: dict[str, Any], values: Any, file_source: str, stats: dumps.DumpStats
) -> Iterator[Conversation]:
    if not isinstance(values, list):
        stats.skip("missing_turns" if values is None else "wrong_type_turns")
        return
    source = _name(fields, "source", stats)
    given_id = _name(fields, "id", stats)
    if source is None or given_id is None:
        return
    source = source or file_source
    turns = [_turn(said) for said in turns_in(values)]
    # Texts only: the same dialogue with and without the names of its speakers is one.
    texts = (turn.text if turn else "" for turn in turns)
    dialogue_id = f"{source}/{given_id}" if given_id else hash_of(texts)
    is_used = False
    for piece in _unbroken(turns, stats):
        if len(piece) > 1:
            is_used = True
            yield Conversation(dialogue_id, source, tuple(piece))
    if not is_used:
        stats.skip("too_few_turns", is_bad=False)


def _name(fields: dict[str, Any], name: str, stats: dumps.DumpStats) -> str | None:
    """An optional name or number as text, empty where there is none; None if it is unusable."""
    value = fields.get(name)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int):
        stats.skip(f"wrong_type_{name}")
        return None
    text = whole_characters(str(value))
    if len(text) > _MAX_NAME_LENGTH:
        stats.skip(f"too_long_{name}")
        return None
    return text


def _turn(said: Said) -> Turn | None:
    """A turn as a dialogue holds it; None if there is no text in it."""
    if said.text is None:
        return None
    author = said.author
    # Who spoke is often a number; a turn whose speaker cannot be read is still a turn.
    is_name = isinstance(author, str | int) and not isinstance(author, bool)
    return Turn(said.text, whole_characters(str(author))[:_MAX_NAME_LENGTH] if is_name else "")


def _unbroken(turns: list[Turn | None], stats: dumps.DumpStats) -> Iterator[list[Turn]]:
    """Runs of turns with text in them."""
    run: list[Turn] = []
    for turn in turns:
        if turn is not None and turn.text.strip():
            run.append(turn)
            continue
        if turn is None:
            stats.skip("wrong_type_turn")
        else:
            stats.skip("empty_turn", is_bad=False)
        yield run
        run = []
    yield run
