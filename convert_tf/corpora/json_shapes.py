"""The shapes in which JSON holds pairs and dialogues, told by their keys.

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
from typing import Any, NamedTuple

from convert_tf.corpora.fields import UnusableError

# Keys or columns of contexts and responses, in the order in which they are looked for: an object
# may hold `instruction`, `context` and `response`, or `context`, `question` and `answer`.
PAIR_NAMES = (
    ("instruction", "output"),
    ("instruction", "response"),
    ("context", "response"),
    ("question", "answer"),
    ("question", "answers"),
    ("query", "reply"),
    ("query", "positive"),
    ("query", "positives"),
    ("query", "pos"),
    ("query", "positive_passages"),
    ("query", "answer"),
    ("query", "answers"),
    ("query", "response"),
    ("anchor", "positive"),
    ("input", "output"),
    ("prompt", "response"),
    ("prompt", "completion"),
    ("prompt", "chosen"),
    ("questions", "answers"),
    ("questions", "answer"),
    ("inputs", "targets"),
    ("input", "target"),
    ("user", "assistant"),
    ("human", "assistant"),
    ("message", "response"),
    ("message", "reply"),
    ("utterance", "response"),
    ("post", "reply"),
    ("post", "response"),
    ("comment", "reply"),
    ("text", "reply"),
    ("text", "response"),
    ("q", "a"),
    ("question", "response"),
    ("question", "output"),
    ("prompt", "output"),
    ("prompt", "answer"),
    ("input", "response"),
    ("input", "answer"),
    ("user", "bot"),
    ("user", "system"),
    ("human", "bot"),
    ("human", "gpt"),
    ("query", "passage"),
    ("query", "document"),
    ("input_text", "target_text"),
    ("title", "body"),
)
TURN_NAMES = (
    "turns", "messages", "conversations", "conversation", "dialog", "dialogue", "utterances", "data"
)  # fmt: skip
_TEXTS = ("text", "content", "value", "utterance", "message", "body")
_SPEAKERS = ("speaker", "author", "role", "from")
_ROLES = ("role", "from")
# Nobody says what these hold: they set the scene, or are between an assistant and its program.
_UNSPOKEN = {"system", "developer", "tool", "function", "observation", "function_call"}
_HOLDS_TURNS = {"context", "prompt"}  # of a list, its turns; of others, several alternatives
_CALLS = ("tool_calls", "function_call")
FURTHER_INPUT = {"instruction": "input"}  # what follows a context, on lines of its own


class Said(NamedTuple):
    """A turn as JSON holds it: its text, None where it has none, and who said it."""

    text: str | None
    author: Any = None


def names_of_pair(names: Sequence[str]) -> tuple[str, str] | None:
    """Which of some names are those of contexts and of responses; None if that is not clear.

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
    """The key of an object that holds a list of turns; None where there is none.

    Of keys that often hold something else, `utterances` or `data`, only a list of turns counts.
    """
    for name in TURN_NAMES:
        values = fields.get(name)
        if name == "turns" and name in fields:
            return name
        if isinstance(values, list) and any(said_in(value) for value in values):
            if name == "data" and not all(isinstance(value, str) for value in values):
                continue  # a list of pairs
            return name
    return None


def turns_in(values: Collection[Any]) -> list[Said]:
    """The turns of a list, without those that nobody says; those of one role in a row are one."""
    turns: list[Said] = []
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
        for said in said_in(value) or [Said(None)]:
            before = turns[-1].text if turns else None
            if role is not None and role == role_before and before and said.text:
                turns[-1] = Said(f"{before}\n{said.text}", said.author)
            else:
                turns.append(said)
        role_before = role
    return turns


def said_in(value: Any) -> list[Said]:
    """What a turn of a list says; both sides of a pair where that is the turn; else nothing."""
    if isinstance(value, str):
        return [Said(value)]
    if not isinstance(value, dict):
        return []
    text = next((found for name in _TEXTS if (found := _spoken(value.get(name))) is not None), None)
    if text is not None:
        author = next((value[name] for name in _SPEAKERS if value.get(name) is not None), None)
        return [Said(text, author)]
    names = names_of_pair([*value])
    texts = [_spoken(value[name]) for name in names] if names else []
    return [Said(text) for text in texts] if None not in texts else []


def _spoken(content: Any) -> str | None:
    """The text of a turn, which may come in parts, between them pictures."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and content:
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        texts = [part for part in parts if isinstance(part, str)]
        return "\n".join(texts) if texts else None
    return None


def pairs_in(fields: Mapping[str, Any], names: tuple[str, str]) -> Iterator[list[Said]]:
    """The dialogues that an object with a context and a response holds, of two turns or more.

    Several responses, or several questions with one answer, are a dialogue each. A list of turns as
    a context is the turns before the response.

    Args:
        fields: the object, its keys in lower case.
        names: what `names_of_pair` found.

    Raises:
        UnusableError: a side is missing, or holds neither texts nor turns.
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
            context = [*context[:-1], Said(f"{context[-1].text}\n{further}")]
        for response in responses:
            if response[0].text == context[-1].text:  # the whole chat, its prompt included
                response = response[1:] or response
            yield [*earlier, *context, *response]


def _alternatives(value: Any, name: str, *, are_turns: bool) -> list[list[Said]]:
    if value is None:
        raise UnusableError(f"missing_{name}")
    if isinstance(value, dict) and not said_in(value):
        value = value.get("text")  # as SQuAD has answers
    if isinstance(value, list):
        is_chat = any(isinstance(one, dict) and any(r in one for r in _ROLES) for one in value)
        if value and (are_turns or is_chat):
            return [_all_said(turns_in(value), name)]
        return [_all_said(said_in(one)[:1], name) for one in value] or [[Said("")]]
    return [_all_said(said_in(value)[:1], name)]


def _all_said(turns: list[Said], name: str) -> list[Said]:
    if not turns or any(turn.text is None for turn in turns):
        raise UnusableError(f"wrong_type_{name}")
    return turns


def _earlier(fields: Mapping[str, Any]) -> list[Said]:
    """The turns before the context: `history`, or `context/0` … as PolyAI's JSON has them."""
    history = fields.get("history")
    if isinstance(history, list):
        rounds = [one if isinstance(one, list) else [one] for one in history]
        return [said for one in rounds for said in turns_in(one) if said.text]
    numbered = (fields.get(f"context/{number}") for number in range(9, -1, -1))
    return [Said(text) for text in numbered if isinstance(text, str) and text.strip()]
