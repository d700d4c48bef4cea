"""Files of dialogues: one JSON object a line, with the turns of one dialogue, oldest first.

```
{"turns": ["Is the pool open?", "Until nine.", "Thanks!"], "source": "hotel", "id": "17"}
{"turns": [{"text": "Is the pool open?", "speaker": "guest"}, {"text": "Until nine."}]}
```

`source` and `id` are optional; further fields are ignored. Compressed or not.
"""

from collections.abc import Iterator
from typing import Any

from convert_tf.corpora import dumps
from convert_tf.corpora.conversations import Conversation, Turn, corpus_name, hash_of
from convert_tf.storage.json_text import whole_characters

_MAX_NAME_LENGTH = 200


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
    so that copies of it fall into the same split, wherever they are stored.

    A turn that is empty or holds no text ends a conversation: what was said after it did not
    answer what was said before it. The turns on either side become conversations of their own,
    with the same id.

    Args:
        path: a `.zst`, `.bz2`, `.gz`, `.xz` or plain file.
        stats: counts what is not used: lines `missing_turns`, `wrong_type_turns`,
            `wrong_type_source`, `wrong_type_id`, `too_long_source`, `too_long_id`,
            `too_few_turns` (no turn is followed by another), and turns `wrong_type_turn`,
            `empty_turn`.
        max_line_bytes: longer lines are dropped.
        open_file: gives the binary stream of a path.
    """
    file_source = corpus_name(path)
    for fields in dumps.read_objects(
        path, stats, max_line_bytes=max_line_bytes, open_file=open_file
    ):
        values = fields.get("turns")
        if not isinstance(values, list):
            stats.skip("missing_turns" if values is None else "wrong_type_turns")
            continue
        source = _name(fields, "source", stats)
        given_id = _name(fields, "id", stats)
        if source is None or given_id is None:
            continue
        source = source or whole_characters(file_source)
        turns = [_turn(value) for value in values]
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


def _turn(value: Any) -> Turn | None:
    """A turn as a dialogue holds it; None if there is no text in it."""
    if isinstance(value, str):
        return Turn(value)
    if not isinstance(value, dict) or not isinstance(value.get("text"), str):
        return None
    author = value.get("speaker")
    if author is None:
        author = value.get("author")
    # Who spoke is often a number; a turn whose speaker cannot be read is still a turn.
    is_name = isinstance(author, str | int) and not isinstance(author, bool)
    return Turn(value["text"], whole_characters(str(author))[:_MAX_NAME_LENGTH] if is_name else "")


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
