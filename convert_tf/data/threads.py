"""Comments of a thread to context-response examples, by the rules of PolyAI's Reddit data.

Pure functions on plain tuples: no engine, no file format. A thread is a forest of comments, plus
the submission's title as the root turn when it is known. Every comment that answers a turn in the
thread makes a candidate example: the comment is the response, the turn it answers the context,
the turns before that the extra contexts, most recent first.

Reference: github.com/PolyAI-LDN/conversational-datasets, reddit; arXiv 1904.06472 §3.1.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from convert_tf.data.comments import TITLE_ID, Comment, Rules

SPLITS = ("train", "dev", "test")
TRAIN_FRACTION = 0.9

_DELETED_BODIES = frozenset({"[deleted]", "[removed]"})
_DELETED_TITLES = _DELETED_BODIES | {"[deleted by user]"}
_SPLIT_BUCKETS = 4096


class Example(NamedTuple):
    """A context, its response and up to ten earlier turns, most recent first."""

    thread_id: str
    response_id: str
    subreddit: str
    context: str
    response: str
    extra_contexts: tuple[str, ...]
    context_author: str
    response_author: str


@dataclass
class ThreadCounts:
    """What happened to comments and candidate examples.

    Every comment is counted once: `comments` = `duplicates` + `top_level` + `orphans` + `cyclic`
    + the sum of `dropped` + `examples`.
    """

    threads: int = 0
    titles: int = 0
    comments: int = 0
    duplicates: int = 0
    top_level: int = 0
    orphans: int = 0
    cyclic: int = 0
    examples: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    def as_dict(self) -> dict[str, Any]:
        """The counts as plain values that JSON can hold."""
        return vars(self) | {"dropped": dict(sorted(self.dropped.items()))}


def split_of(thread_id: str, *, dev_fraction: float = 0.01) -> str:
    """The split of a thread: `"train"`, `"dev"` or `"test"`, the same in every run.

    Test is PolyAI's test split. Dev is the last `dev_fraction` of PolyAI's train split.
    """
    digest = int(hashlib.md5(thread_id.encode("utf-8")).hexdigest(), 16)
    value = (1 + digest % _SPLIT_BUCKETS) / _SPLIT_BUCKETS
    if value >= TRAIN_FRACTION:
        return "test"
    return "dev" if value >= TRAIN_FRACTION - dev_fraction else "train"


def create_examples(
    comments: Iterable[Comment], rules: Rules, *, counts: ThreadCounts
) -> Iterator[Example]:
    """The examples of one thread.

    Args:
        comments: the comments of one thread and, where known, its title, in any order.
        rules: which of them make examples.
        counts: what is added up while the examples are made.
    """
    turns = _unique_turns(comments, counts)
    reachable = _reachable_ids(turns)
    counts.threads += 1
    for turn in turns.values():
        if turn.id == TITLE_ID:
            counts.titles += 1
        elif turn.id not in reachable:
            counts.cyclic += 1
        elif turn.parent_id not in turns:
            if turn.parent_id == TITLE_ID:
                counts.top_level += 1
            else:
                counts.orphans += 1
        else:
            path = reply_path(turns, turn.id, max_length=rules.max_path_length)
            reason = _skip_reason(path[0], rules, "response") or _skip_reason(
                path[1], rules, "context"
            )
            if reason:
                counts.dropped[reason] += 1
                continue
            counts.examples += 1
            yield Example(
                thread_id=turn.thread_id,
                response_id=turn.id,
                subreddit=turn.subreddit,
                context=path[1].body,
                response=turn.body,
                extra_contexts=tuple(earlier.body for earlier in path[2:]),
                context_author=path[1].author,
                response_author=turn.author,
            )


def _unique_turns(comments: Iterable[Comment], counts: ThreadCounts) -> dict[str, Comment]:
    """One turn per id, the same whatever the order of the copies.

    Of several, one that is not deleted is kept, then the smallest as a string.
    """
    turns: dict[str, Comment] = {}
    for comment in comments:
        counts.comments += comment.id != TITLE_ID
        kept = turns.get(comment.id)
        if kept is None:
            turns[comment.id] = comment
            continue
        counts.duplicates += comment.id != TITLE_ID
        turns[comment.id] = min(kept, comment, key=lambda copy: (_is_deleted(copy), repr(copy)))
    return turns


def _reachable_ids(turns: Mapping[str, Comment]) -> set[str]:
    """Ids of the turns that hang from a root; the others are in a reply cycle or below one."""
    children: dict[str, list[str]] = {}
    pending: list[str] = []
    for turn in turns.values():
        if turn.parent_id is not None and turn.parent_id in turns:
            children.setdefault(turn.parent_id, []).append(turn.id)
        else:
            pending.append(turn.id)
    reachable: set[str] = set()
    while pending:
        turn_id = pending.pop()
        reachable.add(turn_id)
        pending.extend(children.get(turn_id, ()))
    return reachable


def reply_path(turns: Mapping[str, Comment], turn_id: str, *, max_length: int) -> list[Comment]:
    """A comment, the turn it answers, the turn before, and so on: most recent first.

    At most `max_length` comments; the title is not one, so a path that reaches the top of its
    thread within them ends with it. The turn must not be in a reply cycle.
    """
    path = [turns[turn_id]]
    while (parent_id := path[-1].parent_id) is not None and parent_id in turns:
        if len(path) == max_length and parent_id != TITLE_ID:
            break
        path.append(turns[parent_id])
    return path


def _is_deleted(turn: Comment) -> bool:
    return turn.body in (_DELETED_TITLES if turn.id == TITLE_ID else _DELETED_BODIES)


def _skip_reason(turn: Comment, rules: Rules, role: str) -> str:
    """Why a turn cannot be a context or a response; empty when it can."""
    if _is_deleted(turn):
        return f"{role}_deleted"
    if turn.is_trimmed:
        return f"{role}_too_long"
    if len(turn.body) < rules.min_length:
        return f"{role}_too_short"
    return ""
