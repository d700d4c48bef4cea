"""Lines of comment and submission dumps as plain tuples, normalised.

Pure functions: no engine, no file format. What a line lacks is told by `FieldError`.

Reference: github.com/PolyAI-LDN/conversational-datasets, reddit; arXiv 1904.06472 §3.1.
"""

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

MAX_EXTRA_CONTEXTS = 10
TITLE_ID = ""  # the title's place in a thread; no comment has an empty id
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ID_KIND = re.compile(r"t[0-9]_")
_MAX_NAME_LENGTH = 200
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class Comment(NamedTuple):
    """One turn of a thread: a comment, or the submission's title.

    `parent_id` is `TITLE_ID` for a top-level comment and None for the title itself. `body` holds
    at most `Rules.max_length` characters; `is_trimmed` says that there were more.
    """

    id: str
    thread_id: str
    parent_id: str | None
    body: str
    is_trimmed: bool
    author: str
    subreddit: str


class FieldError(ValueError):
    """A dump line lacks a field, or holds something else in it; `reason` is the counter's name."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Rules:
    """Which comments make examples.

    Args:
        min_length: shortest context and response, in characters.
        max_length: longest context and response; extra contexts are trimmed to it.
        max_path_length: most comments in one path, response and context included (2 to 11).
        unescape_html: whether HTML entities in bodies and titles become characters before they
            are measured. PolyAI keeps them; people who embed text do not write `&gt;`.
    """

    min_length: int = 9
    max_length: int = 127
    max_path_length: int = 11
    unescape_html: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.min_length <= self.max_length:
            raise ValueError(
                "Lengths must satisfy 1 <= min_length <= max_length. Received: "
                f"min_length={self.min_length}, max_length={self.max_length}. "
                "The defaults are 9 and 127."
            )
        if not 2 <= self.max_path_length <= MAX_EXTRA_CONTEXTS + 1:
            raise ValueError(
                "A path holds a context, a response and what the ten extra contexts of a record "
                "can take with a title: 2 <= max_path_length <= 11. Received: "
                f"max_path_length={self.max_path_length}. The default is 11."
            )


def parse_comment(fields: Mapping[str, Any], rules: Rules) -> Comment:
    """One object of a comments dump, normalised.

    Raises:
        FieldError: a field is missing or is not what a dump holds there.
    """
    thread_id = _normalised_id(fields, "link_id")
    parent_id = _text(fields, "parent_id")
    body = _clean(_text(fields, "body"), rules)
    return Comment(
        id=_normalised_id(fields, "id"),
        thread_id=thread_id,
        parent_id=_normalised_parent(parent_id, thread_id),
        body=trim(body, rules.max_length),
        is_trimmed=len(body) > rules.max_length,
        author=_name(fields, "author"),
        subreddit=_name(fields, "subreddit"),
    )


def parse_submission(fields: Mapping[str, Any], rules: Rules) -> Comment:
    """One object of a submissions dump, as the root turn of its thread: the title.

    Raises:
        FieldError: a field is missing or is not what a dump holds there.
    """
    title = _clean(_text(fields, "title"), rules)
    return Comment(
        id=TITLE_ID,
        thread_id=_normalised_id(fields, "id"),
        parent_id=None,
        body=trim(title, rules.max_length),
        is_trimmed=len(title) > rules.max_length,
        author=_name(fields, "author"),
        subreddit=_name(fields, "subreddit"),
    )


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if isinstance(value, str):
        return value
    raise FieldError(f"missing_{name}" if value is None else f"wrong_type_{name}")


def _name(fields: Mapping[str, Any], name: str) -> str:
    """An optional field: dumps hold null for authors and subreddits that are not known."""
    value = fields.get(name) or ""
    if not isinstance(value, str):
        raise FieldError(f"wrong_type_{name}")
    if len(value) > _MAX_NAME_LENGTH:
        raise FieldError(f"too_long_{name}")
    return _LONE_SURROGATE.sub("\ufffd", value)


def _normalised_id(fields: Mapping[str, Any], name: str) -> str:
    value = _ID_KIND.sub("", _text(fields, name), count=1)
    if not _ID.fullmatch(value):
        raise FieldError(f"malformed_{name}")
    return value


def _normalised_parent(parent_id: str, thread_id: str) -> str:
    """The parent's id within its thread.

    The kind (`t1_` comment, `t3_` submission) is looked at before it is dropped: some dumps give
    a comment the id of its own thread, and it must not become its own parent.
    """
    if not _ID.fullmatch(parent_id):
        raise FieldError("malformed_parent_id")
    kind = _ID_KIND.match(parent_id)
    bare = parent_id[kind.end() :] if kind else parent_id
    if bare == thread_id and (kind is None or kind.group() == "t3_"):
        return TITLE_ID
    return parent_id if kind and kind.group() != "t1_" else bare


def _clean(text: str, rules: Rules) -> str:
    """Text that can be written as UTF-8, without HTML entities if the rules say so."""
    if rules.unescape_html and "&" in text:
        text = _ENTITY.sub(lambda match: html.unescape(match.group()), text)
    if not text.isascii():
        text = _LONE_SURROGATE.sub("\ufffd", text)
    return text


def trim(text: str, max_length: int) -> str:
    """Cuts text to at most `max_length` characters without splitting a word.

    The cut is the last place, at or before `max_length`, between an alphanumeric character and
    another one. Text without such a place (one long word) is cut at `max_length`.
    """
    if len(text) <= max_length:
        return text
    end = max_length
    while end > 0 and text[end].isalnum() == text[end - 1].isalnum():
        end -= 1
    return text[: end or max_length]
