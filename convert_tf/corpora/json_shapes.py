"""Read pairs and dialogues from JSON objects. Their keys tell which of many shapes they have.

```
{"question": "Is the pool open?", "answer": "Until nine."}
{"query": "pool hours", "pos": ["Until nine.", "From seven to nine."], "neg": ["A garage."]}
{"instruction": "Translate.", "input": "the pool", "output": "la piscine"}
{"messages": [{"role": "user", "content": "Is the pool open?"}, {"role": "assistant", …}]}
{"conversations": [{"from": "human", "value": "Is the pool open?"}, {"from": "gpt", …}]}
{"turns": ["Is the pool open?", "Until nine.", "Thanks!"], "source": "hotel", "id": "17"}
```
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from convert_tf.corpora.conversations import Turn
from convert_tf.corpora.fields import MAX_NAME_LENGTH, UnusableError
from convert_tf.storage.json_text import whole_characters

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
TURN_NAMES = (
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


def turns_name(fields: Mapping[str, Any]) -> str | None:
    """Return the key of an object's list of turns, or None if there is none.

    Other keys than `turns` often have other values, so their values must be lists of turns.
    """
    for name in TURN_NAMES:
        values = fields.get(name)
        if name == "turns" and name in fields:
            return name
        if isinstance(values, list) and any(_turns_of(value) for value in values):
            if name == "data" and not all(isinstance(value, str) for value in values):
                continue  # a list of pairs
            return name
    return None


def turns_in(values: Collection[Any]) -> list[Turn | None]:
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


def pairs_in(fields: Mapping[str, Any], names: tuple[str, str]) -> Iterator[list[Turn]]:
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
    further = fields.get(FURTHER_INPUT.get(name, ""))
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
            return [_with_texts(turns_in(value), name)]
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
        return [turn for one in rounds for turn in turns_in(one) if turn and turn.text]
    numbered = (fields.get(f"context/{number}") for number in range(9, -1, -1))
    return [Turn(text) for text in numbered if isinstance(text, str) and text.strip()]
