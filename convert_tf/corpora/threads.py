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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from convert_tf.corpora import sentences
from convert_tf.corpora.comments import POST_ID, REMOVED, TITLE_ID, Comment, Rules, make_turn, trim
from convert_tf.corpora.conversations import Conversation
from convert_tf.data.schema import Example

TRAIN_FRACTION = 0.9

_DELETED = frozenset({"[deleted]", REMOVED})
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
    + the sum of `dropped` + `examples`. `changed` counts the texts that a cleaning rule changed,
    `additional` the examples of `Rules.more_pairs`.
    """

    threads: int = 0
    titles: int = 0
    comments: int = 0
    duplicates: int = 0
    top_level: int = 0
    orphans: int = 0
    cyclic: int = 0
    examples: int = 0
    additional: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)

    def as_dict(self) -> dict[str, Any]:
        """The counts as plain values that JSON can hold."""
        counters = {
            name: {key: number for key, number in sorted(counter.items()) if number}
            for name, counter in (("dropped", self.dropped), ("changed", self.changed))
        }
        plain = {name: value for name, value in vars(self).items() if name != "additional"}
        if self.additional:
            plain["additional"] = self.additional
        return plain | counters


def total_counts(all_counts: Iterable[ThreadCounts]) -> ThreadCounts:
    """The sum of the counts of several sources or tasks."""
    total = ThreadCounts()
    for counts in all_counts:
        for name, value in vars(counts).items():
            setattr(total, name, getattr(total, name) + value)
    return total


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
            is_reddit=False,
            changed=changed,
        )
        for index, turn in enumerate(conversation.turns)
    ]


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
    post = turns.pop(POST_ID, None)
    reachable = _reachable_ids(turns)
    counts.threads += 1

    def example(path: Sequence[Comment], context: str = "") -> Example:
        """A path as an example; with a context, as an additional one."""
        if context:
            counts.additional += 1
        else:
            counts.examples += 1
        return Example(
            thread_id=path[0].thread_id,
            response_id=path[0].id,
            subreddit=path[0].subreddit,
            context=context or _context(path[1], rules, counts),
            response=_response(path[0], rules, counts),
            extra_contexts=tuple(trim(one.body, rules.max_extra_length) for one in path[2:]),
            context_author=path[1].author,
            response_author=path[0].author,
            source=source,
            is_additional=bool(context),
        )

    for turn in turns.values():
        if turn.id == TITLE_ID:
            counts.titles += 1
            if (
                rules.more_pairs
                and post
                and not (
                    _skip_reason(post, rules, "response") or _skip_reason(turn, rules, "context")
                )
            ):
                yield example([post, turn], _context(turn, rules, counts))
        elif turn.id not in reachable:
            counts.cyclic += 1
        elif turn.parent_id not in turns:
            if turn.parent_id == TITLE_ID:
                counts.top_level += 1
            else:
                counts.orphans += 1
        else:
            path = reply_path(turns, turn.id, max_length=rules.max_path_length + is_conversation)
            response_reason = _skip_reason(path[0], rules, "response")
            reason = (
                response_reason
                or _skip_reason(path[1], rules, "context")
                or _pair_skip_reason(path[1], path[0], rules)
            )
            if reason:
                counts.dropped[reason] += 1
            else:
                yield example(path)
            if rules.more_pairs and not response_reason:
                if post and path[1].id == TITLE_ID:
                    path.insert(1, post)
                if not _pair_skip_reason(path[1], path[0], rules):
                    context, path = _last_two_as_one(path, rules)
                    if context:
                        yield example(path, context)


def _context(turn: Comment, rules: Rules, counts: ThreadCounts) -> str:
    """A turn's text as a context: its last characters where it is too long."""
    text = turn.body + turn.rest
    if len(text) <= rules.max_context_length:
        return text
    counts.changed["long_context_cut"] += 1
    return sentences.last_sentences(
        text, rules.max_context_length, min_length=rules.min_context_length
    )


def _response(turn: Comment, rules: Rules, counts: ThreadCounts) -> str:
    """A turn's text as a response: its first characters where it is too long."""
    text = turn.body + turn.rest
    if len(text) <= rules.max_response_length:
        return text
    counts.changed["long_response_cut"] += 1
    return sentences.first_sentences(
        text, rules.max_response_length, min_length=rules.min_response_length
    )


def _last_two_as_one(path: list[Comment], rules: Rules) -> tuple[str, list[Comment]]:
    """The last two turns before a response as one context, and the path with one turn less.

    The text of a submission that leaves no room for its title is a context by itself.

    Args:
        path: response, context and the turns before, most recent first.
        rules: limits, and whether long turns are cut.

    Returns:
        An empty context where there is none: a turn is deleted or by a bot, or there is no room for
        the earlier one.
    """
    last = path[1]
    if _skip_reason(last, rules, "context") not in ("", "context_too_short"):
        return "", path
    text = last.body + last.rest
    if not text.strip():
        return "", path
    room = rules.max_context_length - len(text) - 1
    if len(path) > 2 and _skip_reason(path[2], rules, "context") == "":
        earlier = path[2].body + path[2].rest
        if rules.drop_repeats and _letters(earlier) == _letters(path[0].body):
            return "", path
        if len(earlier) > room and rules.long == "cut" and room >= rules.min_context_length:
            earlier = sentences.last_sentences(earlier, room, min_length=rules.min_context_length)
        if rules.min_context_length <= len(earlier) <= room:
            return f"{earlier} {text}", [path[0], last, *path[3:]]
    if last.id == POST_ID and len(text) >= rules.min_context_length:
        return _context(last, rules, ThreadCounts()), path
    return "", path


def unused_texts(
    comments: Iterable[Comment], examples: Iterable[Example], rules: Rules
) -> Iterator[str]:
    """The texts of a thread that are in none of its examples; of long ones their sentences.

    Left out are deleted texts, those of bots where the rules drop these, and what is shorter than
    contexts and responses both are.

    Args:
        comments: the turns of a thread, its title and its post among them.
        examples: what `create_examples` made of them.
        rules: limits; `drop_bots`.
    """
    known = {text for example in examples for text in (example.context, example.response)}
    for turn in comments:
        text = turn.body + turn.rest
        if text not in known and not _is_deleted(turn) and not (rules.drop_bots and is_bot(turn)):
            yield from sentences.short_texts(
                text,
                min(rules.max_context_length, rules.max_response_length),
                min_length=min(rules.min_context_length, rules.min_response_length),
            )


def _unique_turns(comments: Iterable[Comment], counts: ThreadCounts) -> dict[str, Comment]:
    """One turn per id, the same whatever the order of the copies.

    Of several, one that is not deleted is kept, then the smallest as a string.
    """
    turns: dict[str, Comment] = {}
    for comment in comments:
        is_comment = comment.id not in (TITLE_ID, POST_ID)
        counts.comments += is_comment
        kept = turns.get(comment.id)
        if kept is None:
            turns[comment.id] = comment
            continue
        counts.duplicates += is_comment
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
    return turn.body in _DELETED


def _skip_reason(turn: Comment, rules: Rules, role: str) -> str:
    """Why a turn cannot be a context or a response; empty when it can."""
    if _is_deleted(turn):
        return f"{role}_deleted"
    is_response = role == "response"
    longest = rules.max_response_length if is_response else rules.max_context_length
    if rules.long == "drop" and (turn.is_trimmed or len(turn.body) > longest):
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
    if rules.drop_self_replies and author and author == context.author and author not in _DELETED:
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
