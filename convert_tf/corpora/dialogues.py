"""Read dialogues and pairs from JSON or Parquet: an object per line or row, or a list of objects.

Objects may have many shapes, which are recognised by their keys:

```
{"question": "Is the pool open?", "answer": "Until nine."}
{"query": "pool hours", "pos": ["Until nine.", "From seven to nine."], "neg": ["A garage."]}
{"instruction": "Translate.", "input": "the pool", "output": "la piscine"}
{"messages": [{"role": "user", "content": "Is the pool open?"}, {"role": "assistant", …}]}
{"conversations": [{"from": "human", "value": "Is the pool open?"}, {"from": "gpt", …}]}
{"turns": ["Is the pool open?", "Until nine.", "Thanks!"], "source": "hotel", "id": "17"}
{"turns": [{"text": "Is the pool open?", "speaker": "guest"}, {"text": "Until nine."}]}
```

Besides `turns`, an object may have `source` and `id`. Other fields are ignored.
"""

import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from convert_tf.corpora.comments import PRESETS, Rules, clean_text
from convert_tf.corpora.dumps import (
    MAX_NAME_LENGTH,
    Conversation,
    CountedFile,
    Turn,
    corpus_name,
    hash_of,
    name_field,
)
from convert_tf.readers.columns import TURNS, Columns, names_of_pair, with_column_names
from convert_tf.readers.files import UnusableError
from convert_tf.readers.tables import read_rows
from convert_tf.storage.json_text import whole_characters
from convert_tf.text.characters import fold

_SHOWN_KEYS = 12
_CLEAN = Rules(**PRESETS["clean"])

_TEXTS = ("text", "content", "value", "utterance", "message", "body")
_SPEAKERS = ("speaker", "author", "role", "from")
_ROLES = ("role", "from")
# Messages in these roles, such as prompts and tool calls, are not part of the dialogue.
_UNSPOKEN = {"system", "developer", "tool", "function", "observation", "function_call"}
# A list in one of these fields contains the turns of one context. A list in any other field
# contains alternatives.
_HOLDS_TURNS = {"context", "prompt"}
_CALLS = ("tool_calls", "function_call")
# The text of the second field is added to the context in the first field, on a new line.
FURTHER_INPUT = {"instruction": "input"}


def read(file: CountedFile) -> Iterator[Conversation]:
    """Yield the dialogues and pairs in a JSON or Parquet file; see `conversations_in`.

    Raises:
      ValueError: if the first object has an unknown shape, or the file is neither a valid JSON
        value nor JSON lines.
    """
    return conversations_in(read_rows(file, COLUMNS, is_json=True), file)


def conversations_in(rows: Iterable[Any], file: CountedFile) -> Iterator[Conversation]:
    """Yield the dialogues and pairs in a file's rows (`convert_tf.readers.tables`).

    The source of a dialogue is the object's `source`. Without it, the source is the file name
    without folder and suffixes. A dialogue with an id gets the conversation id `source/id`. If such
    an object has no `source`, its id alone decides the split, so a dialogue that is in several
    files is in the same split in all of them. Without an id, the conversation id is a hash of the
    dialogue's texts. The conversation id of a pair is a hash of its cleaned context, and ignores
    case and white space (`pair_id`).

    A turn that is empty or has no text ends a conversation, because the turn after it does not
    answer the turn before it. The turns on each side of it become separate conversations with the
    same id.

    Args:
      rows: the rows of the file.
      file: the file, which counts what cannot be used. Unusable rows are counted as
        `not_an_object`, `unknown_keys`, `missing_turns`, `wrong_type_turns`, `wrong_type_source`,
        `wrong_type_id`, `too_long_source`, `too_long_id` or `too_few_turns` (no turn is followed by
        another). Unusable pairs are counted as `lists_on_both_sides`, `empty_context` or
        `empty_response`, or as `missing_` or `wrong_type_` with the name of the column. Unusable
        turns are counted as `wrong_type_turn` or `empty_turn`, in `history` always as `empty_turn`.

    Raises:
      ValueError: if the first object has an unknown shape.
    """
    source = corpus_name(file.path)
    is_first = True
    for row in rows:
        with file.skipping():
            fields = {"turns": row} if _is_chat(row) else row
            if not isinstance(fields, dict):
                raise UnusableError("not_an_object")
            was_first, is_first = is_first, False
            names, turns = names_of_pair(fields), _turns_name(fields)
            # In a table of pairs, `turns` may be a number.
            if turns and (names is None or isinstance(fields[turns], list)):
                yield from _dialogue(fields, fields[turns], source, file)
            elif names:
                yield from pairs_of(fields, names, source, file)
            elif was_first:
                keys = ", ".join(repr(key[:40]) for key in [*fields][:_SHOWN_KEYS]) or "none"
                raise ValueError(
                    f"{file.place} is neither a pair nor a dialogue (its keys: {keys}). Rename "
                    "two keys to 'context' and 'response', or the key with the list of turns to "
                    "'turns'."
                )
            else:
                raise UnusableError("unknown_keys")


def _has_known_keys(value: dict[str, Any]) -> bool:
    fields = with_column_names(value)
    return bool(_turns_name(fields) or names_of_pair(fields))


def _is_chat(value: Any) -> bool:
    is_list = isinstance(value, list) and bool(value)
    return is_list and all(isinstance(one, dict) and "role" in one for one in value)


COLUMNS = Columns(
    "contexts and responses",
    names=("context", "response"),
    find=names_of_pair,
    is_row=lambda value: _is_chat(value) or (isinstance(value, dict) and _has_known_keys(value)),
)


def pairs_of(
    fields: Mapping[str, Any], names: tuple[str, str], source: str, file: CountedFile
) -> Iterator[Conversation]:
    """Yield the pairs in an object or in a table row.

    Args:
      fields: the fields of the object or row, with keys in lower case.
      names: the names of the context and response fields, as returned by `names_of_pair`.
      source: name of the corpus.
      file: the file, which counts pairs without a context or response.

    Raises:
      UnusableError: if the context or the response is missing, or has neither texts nor turns.
    """
    for unstripped, first_answer in _pairs_in(fields, names, file):
        turns = tuple(turn._replace(text=turn.text.strip()) for turn in unstripped)
        if not turns[-2].text:
            file.skip("empty_context", is_bad=False)
        elif not turns[-1].text:
            file.skip("empty_response", is_bad=False)
        else:
            conversation_id = pair_id(turn.text for turn in turns[:-1])
            yield Conversation(conversation_id, source, turns, first_answer)


def pair_id(contexts: Iterable[str]) -> str:
    """Return the id of a pair: a hash of its context, so all answers to it are in the same split.

    Contexts that differ only in case, white space, invisible characters or Unicode variants of
    characters (`convert_tf.text.characters.fold`, NFKC) have the same id. So do contexts that the
    `clean` preset makes equal, such as contexts that differ only in their URLs. The id does not
    depend on the rules of a run.
    """
    return hash_of(map(_compared, contexts))


def _compared(context: str) -> str:
    cleaned = clean_text(context, _CLEAN, changed=Counter())
    # A context that is only a URL or a quotation is empty after cleaning.
    text = unicodedata.normalize("NFKC", fold(cleaned) or fold(context))
    return " ".join(text.casefold().split())


def _dialogue(
    fields: dict[str, Any], values: Any, file_source: str, file: CountedFile
) -> Iterator[Conversation]:
    if not isinstance(values, list):
        raise UnusableError("missing_turns" if values is None else "wrong_type_turns")
    row_source = name_field(fields, "source", kinds=str | int)
    source = row_source or file_source
    given_id = name_field(fields, "id", kinds=str | int)
    turns = _turns_in(values)
    # The hash ignores the speakers, so a dialogue has the same id with and without speaker names.
    texts = (turn.text if turn else "" for turn in turns)
    dialogue_id = f"{source}/{given_id}" if given_id else hash_of(texts)
    # The split must not depend on the file name, which is part of the id if there is no source.
    split_id = "" if row_source else given_id
    is_used = False
    for has_text, run in groupby(turns, key=_has_text):
        if not has_text:
            _count_without_text(run, file)
        elif len(piece := tuple(turn for turn in run if turn)) > 1:
            is_used = True
            yield Conversation(dialogue_id, source, piece, split_id=split_id)
    if not is_used:
        raise UnusableError("too_few_turns", is_bad=False)


def _count_without_text(turns: Iterable[Turn | None], file: CountedFile) -> None:
    for turn in turns:
        file.skip("empty_turn" if turn else "wrong_type_turn", is_bad=turn is None)


def _has_text(turn: Turn | None) -> bool:
    return turn is not None and bool(turn.text.strip())


def _turns_name(fields: Mapping[str, Any]) -> str | None:
    """Return the key under which an object has its list of turns, or None if it has none.

    Keys other than `turns` are often used for other purposes, so they only count if the value is a
    list of turns.
    """
    for name in TURNS:
        values = fields.get(name)
        if name == "turns" and name in fields:
            return name
        if isinstance(values, list) and any(_turns_of(value) for value in values):
            if name == "data" and not all(isinstance(value, str) for value in values):
                continue  # a list of pairs
            return name
    return None


def _turns_in(values: Collection[Any]) -> list[Turn | None]:
    """Return the turns in a list, without prompts and tool calls. A turn without text becomes None.

    Consecutive turns in the same role are joined.
    """
    turns: list[Turn | None] = []
    parts: list[str] = []  # texts of the last turn, which are joined when it ends
    role_before = None

    def end_turn() -> None:
        if len(parts) > 1 and (last := turns[-1]):
            turns[-1] = last._replace(text="\n".join(parts))

    for value in values:
        if isinstance(value, dict):
            role = next((value[name] for name in _ROLES if isinstance(value.get(name), str)), None)
            if role is not None and role.lower() in _UNSPOKEN:
                continue
            if any(value.get(name) for name in _CALLS) and not value.get("content"):
                continue
        else:
            role = None
        spoken: list[Turn | None] = [*_turns_of(value)]
        for turn in spoken or [None]:
            is_same = role is not None and role == role_before
            if is_same and parts and turn and turn.text:
                parts.append(turn.text)
                turns[-1] = turn
            else:
                end_turn()
                turns.append(turn)
                parts = [turn.text] if turn and turn.text else []
        role_before = role
    end_turn()
    return turns


def _turns_of(value: Any) -> list[Turn]:
    """Return the turn in a list entry, or both turns of a pair; [] if the entry has no text."""
    if isinstance(value, str):
        return [Turn(value)]
    if not isinstance(value, dict):
        return []
    text = next(
        (text_of_name for name in _TEXTS if (text_of_name := _spoken(value.get(name))) is not None),
        None,
    )
    if text is not None:
        author = next((value[name] for name in _SPEAKERS if value.get(name) is not None), None)
        # Speakers are often numbers. A turn whose speaker cannot be read is still used.
        is_name = isinstance(author, str | int) and not isinstance(author, bool)
        return [Turn(text, whole_characters(str(author))[:MAX_NAME_LENGTH] if is_name else "")]
    names = names_of_pair(value)
    texts = [_spoken(value[name]) for name in names] if names else []
    return [Turn(text) for text in texts if text is not None] if None not in texts else []


def _spoken(content: Any) -> str | None:
    """Return the text in a turn's content, or None if it has no text.

    The content may be a list of text and image parts.
    """
    if isinstance(content, str):
        return content
    if isinstance(content, list) and content:
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        texts = [part for part in parts if isinstance(part, str)]
        return "\n".join(texts) if texts else None
    return None


def _pairs_in(
    fields: Mapping[str, Any], names: tuple[str, str], file: CountedFile
) -> Iterator[tuple[list[Turn], int]]:
    """Yield the dialogues in an object with a context and a response, and their first answers.

    The first answer is `Conversation.first_answer`. In a list of single turns before the context,
    no turn counts as an answer, because such files usually have a row for each of these turns too.

    If there are several responses, each of them forms a dialogue with the context. If there are
    several questions, each forms a dialogue with the answer. If the context is a list of turns, the
    response follows them.

    Args:
      fields: the fields of the object, with keys in lower case.
      names: the names of the context and response fields, as returned by `names_of_pair`.
      file: the file, which counts turns without text.

    Raises:
      UnusableError: if the context or the response is missing or has neither texts nor turns, or if
        both are lists of alternatives.
    """
    name, response_name = names
    contexts = _alternatives(fields[name], name, are_turns=name in _HOLDS_TURNS)
    responses = _alternatives(fields[response_name], response_name, are_turns=False)
    if len(contexts) > 1 and len(responses) > 1:
        raise UnusableError("lists_on_both_sides")
    further = fields.get(FURTHER_INPUT[name]) if name in FURTHER_INPUT else None
    earlier, first_answer = _earlier(fields, file)
    for context in contexts:
        if isinstance(further, str) and further.strip() and (text := context[-1].text.strip()):
            context = [*context[:-1], Turn(f"{text}\n{further}")]
        for response in responses:
            if response[0].text == context[-1].text:  # the response repeats the prompt
                response = response[1:] or response
            yield [*earlier, *context, *response], first_answer


def _alternatives(value: Any, name: str, *, are_turns: bool) -> list[list[Turn]]:
    if value is None:
        raise UnusableError(f"missing_{name}")
    if isinstance(value, dict) and not _turns_of(value):
        value = value.get("text")  # an object with the answers, as in SQuAD
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


def _earlier(fields: Mapping[str, Any], file: CountedFile) -> tuple[list[Turn], int]:
    """Return the turns before the context, and the index of the first answer in the dialogue.

    The turns come from `history` or PolyAI's `context/0` and so on. If an item of `history` is a
    question with its answer, these answers count. Otherwise, no turn before the context does.

    Only the turns after the last turn without text in `history` are used, because the turn after
    such a gap does not answer the turn before it. The file counts the turns without text.
    """
    history = fields.get("history")
    if isinstance(history, list):
        rounds = [one if isinstance(one, list) else [one] for one in history]
        turns: list[Turn] = []
        for turn in (turn for one in rounds for turn in _turns_in(one)):
            if turn is not None and _has_text(turn):
                turns.append(turn)
            else:
                # A missing turn does not make a line bad: chats often begin with [null, "Hi!"].
                file.skip("empty_turn", is_bad=False)
                turns = []
        has_answers = any(isinstance(one, list) or len(_turns_of(one)) > 1 for one in history)
        return turns, 1 if has_answers else len(turns) + 1
    numbered = (fields.get(f"context/{number}") for number in range(9, -1, -1))
    turns = [Turn(text) for text in numbered if isinstance(text, str) and text.strip()]
    return turns, len(turns) + 1
