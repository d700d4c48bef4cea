"""Comments of a thread to context-response examples, by the rules of PolyAI's Reddit data.

Pure functions on plain tuples: no engine, no file format. A thread is a forest of comments, plus
the submission's title as the root turn when it is known. Every comment that answers a turn in the
thread makes a candidate example: the comment is the response, the turn it answers the context,
the turns before that the extra contexts, most recent first.

Reference: github.com/PolyAI-LDN/conversational-datasets, reddit; arXiv 1904.06472 §3.1.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from convert_tf.corpora.comments import TITLE_ID, Comment, Rules, make_turn, trim
from convert_tf.corpora.conversations import Conversation
from convert_tf.data.schema import Example

TRAIN_FRACTION = 0.9

_DELETED_BODIES = frozenset({"[deleted]", "[removed]"})
_DELETED_TITLES = _DELETED_BODIES | {"[deleted by user]"}
_SPLIT_BUCKETS = 4096
# Bots by their names, whole or by their ending, and by what they say of themselves.
_BOT_NAMES = frozenset({"automoderator", "autotldr", "totesmessenger", "tweetposter"})
_BOT_NAME = re.compile(r"bot[0-9]*$|^bot[_-]", re.IGNORECASE)
_NO_BOT_NAME = re.compile(r"(?:ab|tal|ro|tur|bur|hal|sab|jum|cu|gi)bot[0-9]*$", re.IGNORECASE)
_BOT_SAYS = re.compile(
    r"\b(?:i['’]?m|i am|this is) an? (?:ro)?bot\b(?!\?)|\bbeep,? boop\b|\bperformed automatically\b"
    r"|\bcontact the moderators of this subreddit\b",
    re.IGNORECASE,
)
_WHITE_SPACE = re.compile(r"\s+")


class Place(NamedTuple):
    """Where an example goes: its split, its shard, its key among the examples of the shard."""

    split: str
    shard: int
    key: str


@dataclass
class ThreadCounts:
    """What happened to comments and candidate examples.

    Every comment is counted once: `comments` = `duplicates` + `top_level` + `orphans` + `cyclic`
    + the sum of `dropped` + `examples`. `changed` counts the texts that a cleaning rule changed.
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
    changed: Counter[str] = field(default_factory=Counter)

    def as_dict(self) -> dict[str, Any]:
        """The counts as plain values that JSON can hold."""
        counters = {
            name: {key: number for key, number in sorted(counter.items()) if number}
            for name, counter in (("dropped", self.dropped), ("changed", self.changed))
        }
        return vars(self) | counters


def split_of(thread_id: str, *, dev_fraction: float = 0.01) -> str:
    """The split of a thread: `"train"`, `"dev"` or `"test"`, the same in every run.

    Test is PolyAI's test split. Dev is the last `dev_fraction` of PolyAI's train split.
    """
    digest = int(hashlib.md5(thread_id.encode("utf-8")).hexdigest(), 16)
    value = (1 + digest % _SPLIT_BUCKETS) / _SPLIT_BUCKETS
    if value >= TRAIN_FRACTION:
        return "test"
    return "dev" if value >= TRAIN_FRACTION - dev_fraction else "train"


def place_of(
    example: Example, *, dev_fraction: float = 0.01, num_shards: Mapping[str, int]
) -> Place:
    """Where an example goes, whatever the order of the input.

    Shard and key come from a hash of all that tells examples apart, so those of one thread lie
    apart and every shard, read in the order of its keys, is well mixed.

    Args:
        example: an example.
        dev_fraction: see `split_of`.
        num_shards: shards of each split.
    """
    split = split_of(example.thread_id, dev_fraction=dev_fraction)
    texts = (example.thread_id, example.response_id, example.context, example.response)
    name = "\0".join((*texts, *example.extra_contexts))
    key = hashlib.md5(name.encode("utf-8")).hexdigest()
    return Place(split, int(key[:8], 16) % num_shards[split], key)


def pair_key(example: Example, rules: Rules) -> str:
    """What equal pairs share: a hash of context and response.

    Of equal pairs the one of the smallest thread id is kept, then the first on disk.

    Args:
        example: an example.
        rules: reads `deduplicate`: whether case and white space count.
    """
    pair: tuple[str, ...] = (example.context, example.response)
    if rules.deduplicate == "folded":
        pair = tuple(_WHITE_SPACE.sub(" ", text.casefold()).strip() for text in pair)
    return hashlib.md5("\0".join(pair).encode("utf-8")).hexdigest()


def comments_of(
    conversation: Conversation, rules: Rules, *, changed: Counter[str]
) -> list[Comment]:
    """A conversation as a thread in which every turn answers the one before.

    Args:
        conversation: turns, oldest first.
        rules: how texts are cleaned.
        changed: counts, by rule, the texts that cleaning changed.
    """
    return [
        make_turn(
            turn.text,
            rules,
            id=str(index),
            thread_id=conversation.id,
            parent_id=str(index - 1) if index else TITLE_ID,
            author=turn.author,
            changed=changed,
        )
        for index, turn in enumerate(conversation.turns)
    ]


def examples_of_conversation(
    conversation: Conversation, rules: Rules, *, counts: ThreadCounts
) -> Iterator[Example]:
    """The examples of a conversation; arguments as of `create_examples`."""
    comments = comments_of(conversation, rules, changed=counts.changed)
    return create_examples(
        comments, rules, counts=counts, source=conversation.source, is_conversation=True
    )


def create_examples(
    comments: Iterable[Comment],
    rules: Rules,
    *,
    counts: ThreadCounts,
    source: str = "reddit",
    is_conversation: bool = False,
) -> Iterator[Example]:
    """The examples of one thread.

    Args:
        comments: the comments of one thread and, where known, its title, in any order.
        rules: which of them make examples.
        counts: what is added up while the examples are made.
        source: the corpus that the thread is of.
        is_conversation: whether the thread is a conversation, which has no title: a path may then
            hold one turn more.
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
            path = reply_path(turns, turn.id, max_length=rules.max_path_length + is_conversation)
            reason = (
                _skip_reason(path[0], rules, "response")
                or _skip_reason(path[1], rules, "context")
                or _pair_skip_reason(path[1], path[0], rules)
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
                extra_contexts=tuple(
                    trim(earlier.body, rules.max_extra_length) for earlier in path[2:]
                ),
                context_author=path[1].author,
                response_author=turn.author,
                source=source,
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
    is_response = role == "response"
    if turn.is_trimmed or len(turn.body) > (
        rules.max_response_length if is_response else rules.max_context_length
    ):
        return f"{role}_too_long"
    if len(turn.body) < (rules.min_response_length if is_response else rules.min_context_length):
        return f"{role}_too_short"
    if rules.drop_bots and is_bot(turn):
        return f"{role}_by_bot"
    if (
        is_response
        and rules.min_score is not None
        and turn.score is not None
        and turn.score < rules.min_score
    ):
        return "response_low_score"
    return ""


def _pair_skip_reason(context: Comment, response: Comment, rules: Rules) -> str:
    """Why two turns that are fine alone make no example together; empty when they do."""
    author = response.author
    if (
        rules.drop_self_replies
        and author
        and author == context.author
        and author not in _DELETED_BODIES
    ):
        return "self_reply"
    if rules.drop_repeats and _letters(context.body) == _letters(response.body):
        return "response_repeats_context"
    return ""


def is_bot(turn: Comment) -> bool:
    """Whether a turn is by a bot: its author's name says so, or its text does."""
    author = turn.author
    return (
        author.lower() in _BOT_NAMES
        or (_BOT_NAME.search(author) is not None and _NO_BOT_NAME.search(author) is None)
        or _BOT_SAYS.search(turn.body) is not None
    )


def _letters(text: str) -> str:
    """A text's letters and digits without regard to case; all of it where it has none."""
    return "".join(filter(str.isalnum, text.casefold())) or text
