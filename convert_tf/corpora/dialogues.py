"""Files of dialogues and pairs in JSON: one object per line, or one list of objects.

The keys of an object tell which of many shapes it has:

```
{"question": "Is the pool open?", "answer": "Until nine."}
{"query": "pool hours", "pos": ["Until nine.", "From seven to nine."], "neg": ["A garage."]}
{"instruction": "Translate.", "input": "the pool", "output": "la piscine"}
{"messages": [{"role": "user", "content": "Is the pool open?"}, {"role": "assistant", …}]}
{"conversations": [{"from": "human", "value": "Is the pool open?"}, {"from": "gpt", …}]}
{"turns": ["Is the pool open?", "Until nine.", "Thanks!"], "source": "hotel", "id": "17"}
{"turns": [{"text": "Is the pool open?", "speaker": "guest"}, {"text": "Until nine."}]}
```

`source` and `id` of turns are optional. Other fields are ignored.
"""

import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, islice
from typing import Any

from convert_tf.corpora.dumps import (
    MAX_NAME_LENGTH,
    Conversation,
    CountedFile,
    Turn,
    UnusableError,
    corpus_name,
    hash_of,
    json_in_line,
    name_field,
    read_lines,
)
from convert_tf.data.schema import PAIR
from convert_tf.storage.json_text import holds_one_value, json_of_texts, whole_characters

_MAX_VALUE_BYTES = 2**30  # of a file that is one value, which is read as a whole
_SHOWN_KEYS = 12

# Names of contexts (keys or columns), each with the names of its responses. The first pair of names
# that an object has counts, because an object may have `instruction`, `context` and `response`, or
# `context`, `question` and `answer`.
_RESPONSES_OF = (
    ("instruction", "output response"),
    ("context", "response"),
    ("question", "answer answers"),
    ("query", "reply positive positives pos positive_passages answer answers response"),
    ("anchor", "positive"),
    ("input", "output"),
    ("prompt", "response completion chosen"),
    ("questions", "answers answer"),
    ("inputs", "targets"),
    ("input", "target"),
    ("user", "assistant"),
    ("human", "assistant"),
    ("message", "response reply"),
    ("utterance", "response"),
    ("post", "reply response"),
    ("comment", "reply"),
    ("text", "reply response"),
    ("q", "a"),
    ("question", "response output"),
    ("prompt", "output answer"),
    ("input", "response answer"),
    ("user", "bot system"),
    ("human", "bot gpt"),
    ("query", "passage document"),
    ("input_text", "target_text"),
    ("title", "body"),
)
PAIR_NAMES = [
    (context, response) for context, responses in _RESPONSES_OF for response in responses.split()
]
_TURN_NAMES = (
    "turns", "messages", "conversations", "conversation", "dialog", "dialogue", "utterances", "data"
)  # fmt: skip
_TEXTS = ("text", "content", "value", "utterance", "message", "body")
_SPEAKERS = ("speaker", "author", "role", "from")
_ROLES = ("role", "from")
# Messages of these roles are not part of the dialogue: prompts, and calls of programs.
_UNSPOKEN = {"system", "developer", "tool", "function", "observation", "function_call"}
_HOLDS_TURNS = {"context", "prompt"}  # A list here is turns. Other lists are alternatives.
_CALLS = ("tool_calls", "function_call")
FURTHER_INPUT = {"instruction": "input"}  # a text to add to the context, on new lines


def read(file: CountedFile, lines: Iterator[bytes] | None = None) -> Iterator[Conversation]:
    """Yield the dialogues and pairs of one file.

    The source of a dialogue is that of the object, or the name of the file without folder and
    suffixes. A dialogue with an id is named `source/id`. A dialogue without one is named by a hash
    of its texts, so that copies of it are in the same split, in whatever file they are. A pair is
    named by a hash of its context without regard to case and white space, as in tables of pairs.

    A turn that is empty or has no text ends a conversation, because the turn after it does not
    answer the turn before it. The turns before and after it become two conversations with the same
    id.

    Args:
        file: a `.zst`, `.bz2`, `.gz`, `.xz` or plain file. It counts lines that cannot be used as
            `unknown_keys`, `missing_turns`, `wrong_type_turns`, `wrong_type_source`,
            `wrong_type_id`, `too_long_source`, `too_long_id`, `too_few_turns` (no turn is followed
            by another); pairs as `lists_on_both_sides`, `empty_context`, `empty_response`; and
            turns as `wrong_type_turn`, `empty_turn`. If the file is one list, its entries count as
            lines.
        lines: the non-empty lines of a file of pairs, where a list of two texts is a pair.
            None reads `file`, which has dialogues.

    Raises:
        ValueError: if the first object has no known shape, or the file is one value that is not
            JSON.
    """
    file_source = corpus_name(file.path)
    is_first = True
    for value in _values(file, lines or read_lines(file)):
        with file.skipping():
            if lines is not None and isinstance(value, list) and [*map(type, value)] == [str, str]:
                value = dict(zip(PAIR, value, strict=True))
            if not isinstance(value, dict):
                raise UnusableError("not_an_object")
            was_first, is_first = is_first, False
            if name := _turns_name(value):
                yield from _dialogue(value, value[name], file_source, file)
            elif names := _pair_names(value):
                fields = {key.lower(): one for key, one in value.items()} | value
                yield from pairs_of(fields, names, file_source, file)
            elif was_first:
                keys = ", ".join(repr(key[:40]) for key in [*value][:_SHOWN_KEYS]) or "none"
                raise ValueError(
                    f"{file.name}, line {file.lines}, has no keys of a pair or a dialogue. Its "
                    f"keys are {keys}. Rename two of them to 'context' and 'response', or a list "
                    "of turns to 'turns'."
                )
            else:
                raise UnusableError("unknown_keys")


def _values(file: CountedFile, lines: Iterator[bytes]) -> Iterator[Any]:
    """Yield the values of the lines, or the entries of the list that the whole file is."""
    numbered = ((file.lines, line) for line in lines)
    first = [*islice(numbered, 2)]
    if holds_one_value([line.decode("utf-8", "replace") for _, line in first]):
        yield from _values_of_one(file, chain((line for _, line in first), lines))
        return
    for number, line in chain(first, numbered):
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
    if isinstance(value, dict) and not _turns_name(value) and not _pair_names(value):
        lists = [each for each in value.values() if _are_objects(each)]
        value = lists[0] if len(lists) == 1 else value
    if _are_objects(value) and all(isinstance(one, dict) and "role" in one for one in value):
        return [{"turns": value}]  # one chat
    return value if _are_objects(value) else [value]


def _pair_names(value: dict[str, Any]) -> tuple[str, str] | None:
    return names_of_pair([key.lower() for key in value])


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict | list)


def pairs_of(
    fields: Mapping[str, Any], names: tuple[str, str], source: str, file: CountedFile
) -> Iterator[Conversation]:
    """Yield the pairs of an object or of a row of a table.

    Args:
        fields: the object, with keys in lower case.
        names: the result of `names_of_pair`.
        source: name of the corpus.
        file: counts pairs without a context or response.

    Raises:
        UnusableError: if a side is missing, or has neither texts nor turns.
    """
    for unstripped in _pairs_in(fields, names):
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
    turns = _turns_in(values)
    # Only the texts count: a dialogue with and without the names of its speakers has one id.
    texts = (turn.text if turn else "" for turn in turns)
    dialogue_id = f"{source}/{given_id}" if given_id else hash_of(texts)
    is_used = False
    for has_text, run in groupby(turns, key=lambda turn: bool(turn and turn.text.strip())):
        if not has_text:
            for turn in run:
                file.skip("empty_turn" if turn else "wrong_type_turn", is_bad=turn is None)
        elif len(piece := tuple(turn for turn in run if turn)) > 1:
            is_used = True
            yield Conversation(dialogue_id, source, piece)
    if not is_used:
        raise UnusableError("too_few_turns", is_bad=False)


def names_of_pair(names: Sequence[str]) -> tuple[str, str] | None:
    """Return the names of the context and the response, or None if they are not clear.

    Args:
        names: keys or columns, in lower case.
    """
    for context, response in PAIR_NAMES:
        if context in names and response in names:
            return context, response
    contexts, responses = ({*names} & {*known} for known in zip(*PAIR_NAMES, strict=True))
    if len(contexts) == len(responses) == 1:  # such as `question` and `reply`
        return contexts.pop(), responses.pop()
    return None


def _turns_name(fields: Mapping[str, Any]) -> str | None:
    """Return the key of an object's list of turns, or None if there is none.

    Other keys than `turns` often have other values, so their values must be lists of turns.
    """
    for name in _TURN_NAMES:
        values = fields.get(name)
        if name == "turns" and name in fields:
            return name
        if isinstance(values, list) and any(_turns_of(value) for value in values):
            if name == "data" and not all(isinstance(value, str) for value in values):
                continue  # a list of pairs
            return name
    return None


def _turns_in(values: Collection[Any]) -> list[Turn | None]:
    """Return the turns of a list without prompts. A turn without text is None.

    Consecutive turns of one role are joined.
    """
    turns: list[Turn | None] = []
    role_before = None
    for value in values:
        if isinstance(value, dict):
            role = next((value[name] for name in _ROLES if isinstance(value.get(name), str)), None)
            if role is not None and role.lower() in _UNSPOKEN:
                continue
            if any(value.get(name) for name in _CALLS) and not value.get("content"):
                continue
        else:
            role = None
        own: list[Turn | None] = [*_turns_of(value)]
        for turn in own or [None]:
            before = turns[-1] if turns else None
            is_same = role is not None and role == role_before
            if is_same and before and before.text and turn and turn.text:
                turns[-1] = Turn(f"{before.text}\n{turn.text}", turn.author)
            else:
                turns.append(turn)
        role_before = role
    return turns


def _turns_of(value: Any) -> list[Turn]:
    """Return the turn, or the two turns of a pair, that an entry of a list has; [] if none."""
    if isinstance(value, str):
        return [Turn(value)]
    if not isinstance(value, dict):
        return []
    text = next((found for name in _TEXTS if (found := _spoken(value.get(name))) is not None), None)
    if text is not None:
        author = next((value[name] for name in _SPEAKERS if value.get(name) is not None), None)
        # Speakers are often numbers. A turn whose speaker cannot be read is still a turn.
        is_name = isinstance(author, str | int) and not isinstance(author, bool)
        return [Turn(text, whole_characters(str(author))[:MAX_NAME_LENGTH] if is_name else "")]
    names = names_of_pair([*value])
    texts = [_spoken(value[name]) for name in names] if names else []
    return [Turn(text) for text in texts if text is not None] if None not in texts else []


def _spoken(content: Any) -> str | None:
    """Return the text of a turn. It may be a list of parts with texts and pictures."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and content:
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        texts = [part for part in parts if isinstance(part, str)]
        return "\n".join(texts) if texts else None
    return None


def _pairs_in(fields: Mapping[str, Any], names: tuple[str, str]) -> Iterator[list[Turn]]:
    """Yield the dialogues of an object with a context and a response.

    Each of several responses makes a dialogue, and so does each of several questions with one
    answer. If the context is a list of turns, they come before the response.

    Args:
        fields: the object, with keys in lower case.
        names: the result of `names_of_pair`.

    Raises:
        UnusableError: if a side is missing, or has neither texts nor turns.
    """
    name, response_name = names
    contexts = _alternatives(fields[name], name, are_turns=name in _HOLDS_TURNS)
    responses = _alternatives(fields[response_name], response_name, are_turns=False)
    if len(contexts) > 1 and len(responses) > 1:
        raise UnusableError("lists_on_both_sides")
    further = fields.get(FURTHER_INPUT[name]) if name in FURTHER_INPUT else None
    earlier = _earlier(fields)
    for context in contexts:
        if isinstance(further, str) and further.strip() and context[-1].text:
            context = [*context[:-1], Turn(f"{context[-1].text}\n{further}")]
        for response in responses:
            if response[0].text == context[-1].text:  # the response repeats the prompt
                response = response[1:] or response
            yield [*earlier, *context, *response]


def _alternatives(value: Any, name: str, *, are_turns: bool) -> list[list[Turn]]:
    if value is None:
        raise UnusableError(f"missing_{name}")
    if isinstance(value, dict) and not _turns_of(value):
        value = value.get("text")  # as SQuAD has answers
    if isinstance(value, list):
        is_chat = any(isinstance(one, dict) and any(r in one for r in _ROLES) for one in value)
        if value and (are_turns or is_chat):
            return [_with_texts(_turns_in(value), name)]
        return [_with_texts(_turns_of(one)[:1], name) for one in value] or [[Turn("")]]
    return [_with_texts(_turns_of(value)[:1], name)]


def _with_texts(turns: Sequence[Turn | None], name: str) -> list[Turn]:
    texts = [turn for turn in turns if turn is not None]
    if not texts or len(texts) < len(turns):
        raise UnusableError(f"wrong_type_{name}")
    return texts


def _earlier(fields: Mapping[str, Any]) -> list[Turn]:
    """Return the turns before the context, from `history` or PolyAI's `context/0`, …"""
    history = fields.get("history")
    if isinstance(history, list):
        rounds = [one if isinstance(one, list) else [one] for one in history]
        return [turn for one in rounds for turn in _turns_in(one) if turn and turn.text]
    numbered = (fields.get(f"context/{number}") for number in range(9, -1, -1))
    return [Turn(text) for text in numbered if isinstance(text, str) and text.strip()]
