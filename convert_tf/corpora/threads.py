"""Make context-response examples from threads, by the rules of PolyAI's Reddit data.

The functions are pure and do not depend on engines or file formats. A thread is a forest of
comments. If the submission's title is known, it is the root turn. Every comment that answers a turn
in the thread is a candidate example. The comment is the response, the turn that it answers is the
context, and the turns before the context are the extra contexts, most recent first.

Reference: github.com/PolyAI-LDN/conversational-datasets, reddit; arXiv 1904.06472 §3.1.
"""

import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from convert_tf.corpora.comments import POST_ID, REMOVED, TITLE_ID, Comment, Rules, clean_turn, trim
from convert_tf.corpora.dumps import Conversation, hash_of
from convert_tf.data.schema import SPLITS, Example

TRAIN_FRACTION = 0.9

_DELETED = frozenset({"[deleted]", REMOVED})
_SPLIT_BUCKETS = 4096
# Bots are recognised by their names (`bots.txt`) and by sentences in which they say they are bots.
_BOT_SAYS = re.compile(
    r"\b(?:i['’]?m|i am|this is) an? (?:ro)?bot\b(?!\?)|\bbeep,? boop\b|\bperformed automatically\b"
    r"|\bcontact the moderators of this subreddit\b",
    re.IGNORECASE,
)
_WHITE_SPACE = re.compile(r"\s+")
# Sentences end with the punctuation marks used in Latin script, Chinese and Japanese, or at the end
# of a line. Closing quotes and brackets belong to the sentence. A full stop does not end a sentence
# before a lower-case letter, or after a single letter (initials) or an abbreviation.
_END = re.compile(
    r"(?:(?P<dot>[.…]+)|[!?]+[.…]*|[。！？]+)[\"'”’»)\]*_]*"
    r"(?:(?<=[。！？])|(?=\s)|\Z)|(?=\n)"
)
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\"'“])(?:[^\W\d_]|mr|mrs|ms|dr|prof|sr|jr|st|vs|etc|approx|inc|fig|e\.g|i\.e|[^\W\d_]\.[^\W\d_])\Z",
    re.IGNORECASE,
)


@dataclass
class ThreadCounts:
    """Counts of how comments were used or why they were dropped.

    Every comment is counted once: `comments` = `duplicates` + `top_level` + `orphans` + `cyclic` +
    the sum of `dropped` + `examples`. `changed` counts the texts that each cleaning rule changed.
    `additional` counts the examples that `Rules.more_pairs` adds.
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
        """Return the counts as a JSON object. `additional` is omitted if it is 0."""
        counts = {**vars(self)}
        for name in ("dropped", "changed"):
            counts[name] = {rule: number for rule, number in sorted(counts[name].items()) if number}
        if not self.additional:
            del counts["additional"]
        return counts


def total_counts(all_counts: Iterable[ThreadCounts]) -> ThreadCounts:
    """Add up the counts from several sources or tasks."""
    total = ThreadCounts()
    for counts in all_counts:
        for name, value in vars(counts).items():
            setattr(total, name, getattr(total, name) + value)
    return total


def split_of(thread_id: str, *, dev_fraction: float = 0.01) -> str:
    """Return the split of a thread, which is the same in every run.

    The test split is the same as PolyAI's. The dev split takes `dev_fraction` of all threads from
    the end of PolyAI's train split.

    Args:
      thread_id: id of the thread.
      dev_fraction: share of all threads in the dev split.

    Returns:
      `"train"`, `"dev"` or `"test"`.
    """
    value = (1 + int(hash_of([thread_id]), 16) % _SPLIT_BUCKETS) / _SPLIT_BUCKETS
    if value >= TRAIN_FRACTION:
        return "test"
    return "dev" if value >= TRAIN_FRACTION - dev_fraction else "train"


def output_key(example: Example, split: str, *, num_shards: int) -> str:
    """Return the sort key for an example: its split, its shard, and its place in the shard.

    The key does not depend on the order of the input. Shard and place come from a hash of
    everything that distinguishes examples. A thread's examples are therefore far apart, and every
    shard is well mixed when it is sorted by key.

    Args:
      example: an example.
      split: the split of its thread.
      num_shards: number of shards of the split.
    """
    texts = (example.thread_id, example.response_id, example.context, example.response)
    place = hash_of((*texts, *example.extra_contexts))
    return f"{SPLITS.index(split)}-{int(place[:8], 16) % num_shards:05d}-{place}"


def pair_key(example: Example, rules: Rules) -> str:
    """Return a hash of context and response, which is the same for equal pairs.

    Args:
      example: an example.
      rules: the rules. Their `deduplicate` decides whether equal pairs may differ in case and white
        space.
    """
    pair: tuple[str, ...] = (example.context, example.response)
    if rules.deduplicate == "folded":
        pair = tuple(_WHITE_SPACE.sub(" ", text.casefold()).strip() for text in pair)
    return hash_of(pair)


def comments_of(conversation: Conversation, rules: Rules, changed: Counter[str]) -> list[Comment]:
    """Return a conversation as a thread in which every turn answers the previous turn.

    Args:
      conversation: a conversation.
      rules: the rules that decide how texts are cleaned.
      changed: counter to update with the number of texts that each rule changed.
    """
    turns = (
        Comment(
            id=str(index),
            thread_id=conversation.id,
            parent_id=str(index - 1) if index else TITLE_ID,
            body=turn.text,
            author=turn.author,
        )
        for index, turn in enumerate(conversation.turns)
    )
    return [clean_turn(turn, rules, changed, is_reddit=False) for turn in turns]


def create_examples(
    comments: Iterable[Comment],
    rules: Rules,
    counts: ThreadCounts,
    source: str = "reddit",
    *,
    is_conversation: bool = False,
    first_answer: int = 1,
) -> Iterator[Example]:
    """Yield the examples from one thread.

    Args:
      comments: the comments in one thread, in any order, and its title if it is known.
      rules: the rules that decide which comments become examples.
      counts: the counts to update.
      source: name of the corpus.
      is_conversation: whether the thread is a conversation without a title. An example may then
        have one more turn.
      first_answer: see `Conversation`. Turns before it are counted as `top_level`.
    """
    turns = _unique_turns(comments, counts)
    post = turns.pop(POST_ID, None)
    reachable = _reachable_ids(turns)
    counts.threads += 1

    for turn in turns.values():
        if turn.id == TITLE_ID:
            counts.titles += 1
            if rules.more_pairs and post:
                # A post and its title have the same author, so self-replies are allowed here.
                reason = (
                    _skip_reason(post, rules, "response")
                    or _skip_reason(turn, rules, "context")
                    or _repeat_reason(turn, post, rules)
                )
                if not reason:
                    context = _fitting(turn, "context", rules, counts)
                    yield _example([post, turn], rules, counts, source, context)
        elif turn.id not in reachable:
            counts.cyclic += 1
        elif turn.parent_id not in turns:
            if turn.parent_id == TITLE_ID:
                counts.top_level += 1
            else:
                counts.orphans += 1
        elif is_conversation and int(turn.id) < first_answer:
            counts.top_level += 1
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
                yield _example(path, rules, counts, source)
            if rules.more_pairs and not response_reason:
                if post and path[1].id == TITLE_ID:
                    path.insert(1, post)
                if not _pair_skip_reason(path[1], path[0], rules):
                    context, path = _last_two_as_one(path, rules)
                    if context:
                        yield _example(path, rules, counts, source, context)


def _example(
    path: Sequence[Comment], rules: Rules, counts: ThreadCounts, source: str, context: str = ""
) -> Example:
    """Turn a reply path into an example. If `context` is passed, it replaces the path's context.

    The example then counts as additional.
    """
    if context:
        counts.additional += 1
    else:
        counts.examples += 1
    return Example(
        thread_id=path[0].thread_id,
        response_id=path[0].id,
        subreddit=path[0].subreddit,
        context=context or _fitting(path[1], "context", rules, counts),
        response=_fitting(path[0], "response", rules, counts),
        extra_contexts=tuple(trim(turn.body, rules.max_extra_length) for turn in path[2:]),
        context_author=path[1].author,
        response_author=path[0].author,
        source=source,
        is_additional=bool(context),
    )


def _fitting(turn: Comment, role: str, rules: Rules, counts: ThreadCounts) -> str:
    """Return a turn's text. If too long, a context keeps its end, and a response its beginning."""
    text = turn.body + turn.rest
    shortest, longest = rules.limits(role)
    if len(text) <= longest:
        return text
    counts.changed[f"long_{role}_cut"] += 1
    cut = first_sentences if role == "response" else last_sentences
    return cut(text, longest, min_length=shortest)


def _last_two_as_one(path: list[Comment], rules: Rules) -> tuple[str, list[Comment]]:
    """Join the last two turns before a response into one context.

    The title of a submission is the turn before its text. If the two cannot be joined, for example
    because there is no room for the title, the text alone is the context if it is long enough.

    Args:
      path: response, context and earlier turns, most recent first.
      rules: the rules, which give length limits and say whether long turns are cut.

    Returns:
      A tuple of the joined context and the path without the earlier of the joined turns. The
      context is `""` if other turns cannot be joined, for example because one of them was deleted
      or written by a bot, or because there is no room for the earlier turn.
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
            earlier = last_sentences(earlier, room, min_length=rules.min_context_length)
        if rules.min_context_length <= len(earlier) <= room:
            return f"{earlier} {text}", [path[0], last, *path[3:]]
    if last.id == POST_ID and len(text) >= rules.min_context_length:
        return _fitting(last, "context", rules, ThreadCounts()), path
    return "", path


def unused_texts(
    comments: Iterable[Comment], examples: Iterable[Example], rules: Rules
) -> Iterator[str]:
    """Yield the texts in a thread that are in none of its examples. Long texts are split.

    Deleted texts and texts that are too short for both a context and a response are omitted. Texts
    by bots are omitted if the rules drop bots.

    Args:
      comments: the turns in a thread, including its title and post.
      examples: the examples from this thread, as returned by `create_examples`.
      rules: the rules. Only the length limits and `drop_bots` are used.
    """
    known = {text for example in examples for text in (example.context, example.response)}
    for turn in comments:
        text = turn.body + turn.rest
        if text not in known and not _is_deleted(turn) and not (rules.drop_bots and is_bot(turn)):
            yield from short_texts(
                text,
                min(rules.max_context_length, rules.max_response_length),
                min_length=min(rules.min_context_length, rules.min_response_length),
            )


def _unique_turns(comments: Iterable[Comment], counts: ThreadCounts) -> dict[str, Comment]:
    """Return one turn per id. The choice between copies does not depend on their order.

    Copies that are not deleted are preferred. If several remain, the copy whose `repr` sorts first
    is used.
    """
    turns: dict[str, Comment] = {}
    for comment in comments:
        is_comment = comment.id not in (TITLE_ID, POST_ID)
        counts.comments += is_comment
        if (kept := turns.get(comment.id)) is not None:
            counts.duplicates += is_comment
            comment = min(kept, comment, key=lambda copy: (_is_deleted(copy), repr(copy)))
        turns[comment.id] = comment
    return turns


def _reachable_ids(turns: Mapping[str, Comment]) -> set[str]:
    """Return the ids of all turns below a root. The other turns are in or below a reply cycle."""
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
    """Return a comment, the turn that it answers, the turn before that, and so on to the root.

    Args:
      turns: the turns of a thread by id.
      turn_id: id of the comment, which must not be in or below a reply cycle.
      max_length: maximum number of comments in the path. The title is added if the path reaches the
        top of the thread.
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
    """Return the reason why a turn cannot be a context or a response; `""` if it can."""
    shortest, longest = rules.limits(role)
    if _is_deleted(turn):
        return f"{role}_deleted"
    if rules.long == "drop" and (turn.is_trimmed or len(turn.body) > longest):
        return f"{role}_too_long"
    if len(turn.body) < shortest:
        return f"{role}_too_short"
    if rules.drop_bots and is_bot(turn):
        return f"{role}_by_bot"
    least, score = rules.min_score, turn.score
    is_low = least is not None and score is not None and score < least
    return "response_low_score" if role == "response" and is_low else ""


def _pair_skip_reason(context: Comment, response: Comment, rules: Rules) -> str:
    """Return the reason why two usable turns do not form an example; `""` if they do."""
    author = response.author
    if rules.drop_self_replies and author and author == context.author and author not in _DELETED:
        return "self_reply"
    return _repeat_reason(context, response, rules)


def _repeat_reason(context: Comment, response: Comment, rules: Rules) -> str:
    if rules.drop_repeats and _letters(context.body) == _letters(response.body):
        return "response_repeats_context"
    return ""


def is_bot(turn: Comment) -> bool:
    """Return whether a turn is by a bot, judging by the name of its author or by its text."""
    return _is_bot_name(turn.author) or _BOT_SAYS.search(turn.body) is not None


@functools.lru_cache(maxsize=65_536)
def _is_bot_name(author: str) -> bool:
    bots, exceptions = _bot_names()
    return bots.fullmatch(author) is not None and exceptions.fullmatch(author) is None


@functools.cache
def _bot_names() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return patterns for the bot names in `bots.txt` and for the exceptions in it."""
    # On Spark workers, the package may be in a zip file.
    lines = (resources.files(__package__) / "bots.txt").read_text(encoding="utf-8").splitlines()
    names = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    parts = ([n for n in names if n[0] != "!"], [n[1:] for n in names if n[0] == "!"])
    return tuple(re.compile("|".join(part), re.IGNORECASE) for part in parts)  # type: ignore


def _letters(text: str) -> str:
    """Return a text's letters and digits in lower case, or the text itself if it has none."""
    return "".join(filter(str.isalnum, text.casefold())) or text


def sentence_ends(text: str) -> Iterator[int]:
    """Yield the positions in a text where sentences end, in characters."""
    for match in _END.finditer(text):
        start, end = match.span()
        if match["dot"] and (following := text[end : end + 40].lstrip(" \t")):
            before = text[max(0, start - 12) : start]
            if following[0].islower() or _ABBREVIATION.search(before):
                continue  # the full stop is within a sentence
        if text[:end].strip():
            yield end


def first_sentences(text: str, max_length: int, *, min_length: int = 1) -> str:
    """Return as many first sentences of a text as fit into `max_length` characters.

    Args:
      text: a text.
      max_length: maximum length of the result, in characters.
      min_length: if the whole sentences are shorter than this, the text is cut at the end of a word
        instead. If these words are shorter too, the text is cut within a word.
    """
    text = text.strip()
    if len(text) <= max_length:
        return text
    end = 0
    for next_end in sentence_ends(text):
        if next_end > max_length:
            break
        end = next_end
    whole = text[:end].strip()
    return whole if end and len(whole) >= min_length else _first_words(text, max_length, min_length)


def last_sentences(text: str, max_length: int, *, min_length: int = 1) -> str:
    """Return as many last sentences as fit into `max_length` characters; see `first_sentences`."""
    text = text.strip()
    if len(text) <= max_length:
        return text
    earliest = len(text) - max_length
    # A sentence may start exactly at `earliest`, so the search starts before that position.
    offset = max(0, earliest - 200)
    for end in sentence_ends(text[offset:]):
        last = text[offset + end :].strip()
        if len(last) <= max_length:
            if len(last) >= min_length:
                return last
            break
    return _last_words(text, max_length, min_length)


def _first_words(text: str, max_length: int, min_length: int) -> str:
    end = max_length
    while end > 0 and not text[end].isspace() and not text[end - 1].isspace():
        end -= 1
    words = text[:end].strip()
    return words if len(words) >= max(min_length, 1) else text[:max_length].strip()


def _last_words(text: str, max_length: int, min_length: int) -> str:
    return _first_words(text[::-1], max_length, min_length)[::-1]


def short_texts(text: str, max_length: int, *, min_length: int = 1) -> Iterator[str]:
    """Yield a text with single spaces between words, or its sentences if it exceeds `max_length`.

    Sentences longer than `max_length` are cut. Texts shorter than `min_length` characters are
    dropped, as are texts with fewer letters than other characters, such as tables and emoticons.
    """
    whole = _WHITE_SPACE.sub(" ", text).strip()
    if len(whole) <= max_length:
        pieces = [whole]
    else:
        ends = [0, *sentence_ends(text), len(text)]
        pieces = [
            first_sentences(_WHITE_SPACE.sub(" ", text[start:end]).strip(), max_length)
            for start, end in itertools.pairwise(ends)
        ]
    for piece in pieces:
        if len(piece) >= min_length and 2 * sum(map(str.isalpha, piece)) >= len(piece):
            yield piece
