"""Parse objects from comment and submission dumps, and normalise and clean their texts.

The functions are pure and do not depend on engines or file formats. They raise `UnusableError` for
an unusable object.

Reference: github.com/PolyAI-LDN/conversational-datasets, reddit; arXiv 1904.06472 §3.1.
"""

import dataclasses
import functools
import html
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from convert_tf.config.base import Config, check, option
from convert_tf.corpora.dumps import name_field, text_field
from convert_tf.data.schema import MAX_EXTRA_CONTEXTS, PAIR
from convert_tf.readers.files import UnusableError
from convert_tf.storage.json_text import whole_characters

TITLE_ID = ""  # id of the title in its thread; comments never have an empty id
POST_ID = "."  # id of the submission's text; comment ids never contain a full stop
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ID_KIND = re.compile(r"t[0-9]_")
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});")
# A quoted line begins with `>`, or with `&gt;` in older dumps. It is removed with its line break.
# `>!` starts a spoiler, and `>:(` and `>.>` are emoticons.
_QUOTED_LINES = re.compile(r"^[ \t]{0,3}(?:>|&gt;)(?![!:;._]).*(?:\n|\Z)", re.MULTILINE)
_MAY_HOLD_URL = re.compile(r"://|www\.|\]\\?\(|processing ", re.IGNORECASE)
# A link's text may contain brackets, its address may contain parentheses, and a title may follow
# the address.
_MARKDOWN_LINK = re.compile(
    r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]"
    r"\([^\s()]*(?:\([^\s()]*\)[^\s()]*)*(?:\s+(?:\"[^\"]*\"|'[^']*'))?\s*\)"
)
# A URL may contain pairs of parentheses. A final full stop or similar mark is not part of the URL,
# nor is an unpaired closing parenthesis.
_BARE_URL = re.compile(
    r"<(?:https?|ftp)://[^\s<>]+>"
    r"|\b(?:(?:https?|ftp)://|www\.)(?:[^\s<>()]|\([^\s<>()]*\))+(?<![.,;:!?'\"])",
    re.IGNORECASE,
)
_SPACES = re.compile(r"[ \t]+")
# Markup for pictures and polls that Reddit's editor has inserted since 2018. It contains no words.
# The editor may have put backslashes before its brackets.
_MEDIA = re.compile(
    r"!\\?\[(?:gif|img|image|video|player|emote|sticker)\\?\]\\?\((?:[^()\n]|\([^()\n]*\))*\)"
    r"|\*{0,2}Processing (?:gif|img|image|video) [\w-]{3,}(?:\.{3}|…)\*{0,2}"
    r"|\[View Poll\]\([^()\s]*\)",
    re.IGNORECASE,
)
_MARKDOWN_IMAGE = re.compile(r"!(?=\[[^\[\]]*\]\((?:https?:|/))")
# Invisible characters that were written as entities to make an empty line, or pasted with a text.
_UNSEEN = {0x00A0: " ", 0x200B: "", 0x2060: "", 0xFEFF: ""}
_MAY_HOLD_UNSEEN = re.compile("[\u00a0\u200b\u2060\ufeff]")
_EMPTY_LINES = re.compile(r"\n[ \t]*(?:\n[ \t]*)+\n")
# Fillers and the empty braille pattern, which Unicode does not class as separators or controls.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_UNSEEN_CATEGORIES = frozenset(("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs", "Mn", "Me"))
# Notices that replace removed texts. docs/data.md lists where they occur.
REMOVED = "[removed]"
_NOTICE_STEMS = (
    "remov", "delet", "unavailable", "overwritten", "edited", "redacted", "censored", "suspended",
    "withdrawn", "purged",
)  # fmt: skip
_WHAT = r"(?:comment|post|submission|thread|title|message|content|text|link|image|video|photo)"
_GONE = r"(?:removed|deleted)"
_HIDDEN = rf"(?:{_GONE}|unavailable|redacted|censored|suspended|withdrawn|purged)"
_WHY = (
    r"(?:by|on account of|in (?:response|protest)|to protest|for|due to|because|as|pending|after"
    r"|per|under|using|with|via)\b"
)
_BRACKETED_NOTICE = re.compile(
    rf"\\?[\[({{<]\s*(?:(?:this|user|account|moderator|{_WHAT})\s+){{0,2}}"
    rf"(?:(?:was|has|been)\s+){{0,2}}{_HIDDEN}"
    rf"(?:\s+(?:this\s+)?(?:{_WHAT}|account|user))?"
    rf"(?:\s*[:–—-][^\n]{{1,100}}|\s+(?:{_WHY}|too many)[^\n]{{0,200}})?\s*(?:[.!]\s*)?"
    r"\\?(?:[\])}>][.!]?|\Z)",
    re.IGNORECASE,
)
_TOOL_NOTICE = re.compile(
    r"\bmass deleted and anonymi[sz]ed with\b"
    rf"|\b{_WHAT} (?:has been|was) overwritten by\b"
    rf"|\b{_WHAT} (?:has been |was )?(?:{_GONE}|edited|overwritten)[ (]+(?:by|with|using|via) \[?"
    r"(?:power ?delete ?suite|redact|shreddit|nuke ?reddit)\b",
    re.IGNORECASE,
)
# Matching time grows exponentially with the number of greetings in a row, so at most three match.
_GREETING = (
    r"(?:(?:hi|hello|hey|greetings|sorry|unfortunately|thanks?|thank you)\b"
    r"[^\n]{0,60}?[,.!:]?(?<=\S)\s+)"
)
_SITE_NOTICE = re.compile(
    # Notices that Reddit shows in place of a text.
    rf"(?:{_WHAT}\s+)?{_GONE} by (?:the |an? |its |u/)?"
    r"(?:moderators?|mods?|admins?|automoderator|reddit|user|author|op|original poster)\b"
    rf"(?:['’]s? [a-z ]{{1,40}}| of [^\s]{{1,40}}|\s+{_WHY}[^\n]{{1,200}})?\s*[.!]?"
    rf"|(?:user|moderator) {_GONE} {_WHAT}[.!]?|{_WHAT} {_GONE}[.!]?"
    rf"|{_WHAT} {_GONE} (?:as per|per|under|for (?:break|violat|rule)\w*)\b.*"
    # Notices that moderators, their bots and authors write in place of a text, or below it.
    rf"|{_GREETING}{{0,3}}(?:this|your) {_WHAT} (?:has been|was) (?:automatically )?{_GONE}"
    rf"(?:\s+{_WHY}.*|\s*[.!:].*)?"
    rf"|(?:{_GREETING}{{1,3}}(?:it|this)|the {_WHAT}) (?:has been|was) (?:automatically )?{_GONE}"
    rf"\s+{_WHY}.*"
    rf"|{_GREETING}{{0,3}}(?:i|we)(?:['’]ve| have)? (?:had to remove|removed) (?:this|your) "
    rf"{_WHAT}\b.*"
    r"|removed\W{1,3}(?:for |per |as |under |it )?(?:break|breaks|breaking|violat\w+)? ?(?:of )?"
    r"rules?\b.*",
    re.IGNORECASE | re.DOTALL,
)
_MARKUP = " \t\r\n*_~^>\"'\u00a0\u200b"


class Comment(NamedTuple):
    """One turn of a thread: a comment, or the title or text of the submission.

    `parent_id` is `TITLE_ID` for a top-level comment and None for the title. `body` is trimmed to
    the highest length limit in the rules. If the text was longer, `is_trimmed` is true, and `rest`
    contains the remaining characters if the rules need them. `score` is None if the dump gives no
    score.
    """

    id: str
    thread_id: str
    parent_id: str | None
    body: str
    is_trimmed: bool = False
    author: str = ""
    subreddit: str = ""
    score: int | None = None
    rest: str = ""


@dataclass(frozen=True)
class Rules(Config):
    """The rules that decide which turns become examples. The defaults are PolyAI's for Reddit.

    Attributes:
      min_context_length: Minimum length of a context, in characters.
      max_context_length: Maximum length of a context, in characters.
      min_response_length: Minimum length of a response, in characters.
      max_response_length: Maximum length of a response, in characters.
      max_extra_length: Earlier turns are cut to this many characters, at the end of a word.
      long: Whether texts above the maximum length are dropped or cut. A context that is cut keeps
        its end, and a response keeps its beginning. Texts are cut at the end of a sentence if
        possible.
      max_path_length: Maximum number of comments in an example, from 2 to 11. An example from a
        conversation without a title may have one more turn.
      unescape_html: Replace HTML entities such as &gt; with the characters they stand for, before
        lengths are checked. Entities that are escaped twice are also replaced, and zero-width
        characters are removed.
      strip_quotes: Remove quoted lines (> ...) from texts.
      strip_urls: Remove URLs, pictures and polls from texts. The text of a Markdown link stays.
      drop_bots: Drop examples whose context or response was written by a bot or by a moderators'
        account.
      drop_self_replies: Drop responses by the author of the context.
      drop_repeats: Drop responses that repeat their context.
      deduplicate: Of several identical pairs, keep only the one with the smallest thread id. exact
        compares all characters; folded ignores case and white space.
      min_score: Drop responses whose score on Reddit is lower than this.
      more_pairs: Add two kinds of examples to the train split. In the first, the last two turns
        form one context. In the second, the context is a Reddit title and the response is the text
        of its post.
      single_texts: Also write single texts: texts from train threads that are in no example, and
        the sentences of long texts.
      subreddits: Read only these subreddits. Case is ignored. Default: all.
      exclude_subreddits: Do not read these subreddits.
    """

    min_context_length: int = option(9, at_least=1)
    max_context_length: int = option(127, at_least=1)
    min_response_length: int = option(9, at_least=1)
    max_response_length: int = option(127, at_least=1)
    max_extra_length: int = option(127, at_least=1)
    long: str = option("drop", choices=["drop", "cut"])
    max_path_length: int = option(11, at_least=2, at_most=MAX_EXTRA_CONTEXTS + 1)
    unescape_html: bool = False
    strip_quotes: bool = False
    strip_urls: bool = False
    drop_bots: bool = False
    drop_self_replies: bool = False
    drop_repeats: bool = False
    deduplicate: str = option("no", choices=["no", "exact", "folded"])
    min_score: int | None = None
    more_pairs: bool = False
    single_texts: bool = False
    subreddits: tuple[str, ...] = ()
    exclude_subreddits: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for role in PAIR:
            shortest, longest = self.limits(role)
            rule = f"min_{role}_length must be at most max_{role}_length, {longest}."
            check(shortest <= longest, rule, shortest)
        for name in ("subreddits", "exclude_subreddits"):
            # `cooking` for `/r/Cooking`
            bare = {
                one.strip().lower().removeprefix("/").removeprefix("r/")
                for one in getattr(self, name)
            }
            object.__setattr__(self, name, tuple(sorted(bare - {""})))
        if both := sorted({*self.subreddits} & {*self.exclude_subreddits}):
            raise ValueError(
                f"subreddits and exclude_subreddits both contain {', '.join(both)}. Remove it "
                "from one of them."
            )

    def limits(self, role: str) -> tuple[int, int]:
        """Return the minimum and maximum length of texts in a role, in characters."""
        return getattr(self, f"min_{role}_length"), getattr(self, f"max_{role}_length")

    def of_split(self, split: str) -> "Rules":
        """Return the rules for a split.

        For `dev` and `test`, additional pairs and single texts are turned off.
        """
        return self if split == "train" else self._of_held_out

    @functools.cached_property
    def _of_held_out(self) -> "Rules":
        return dataclasses.replace(self, more_pairs=False, single_texts=False)


# The `clean` preset turns on every rule that needs no list.
PRESETS: dict[str, dict[str, Any]] = {
    "polyai": {},
    "clean": {
        "unescape_html": True,
        "strip_quotes": True,
        "strip_urls": True,
        "drop_bots": True,
        "drop_self_replies": True,
        "drop_repeats": True,
        "deduplicate": "folded",
        "min_score": 0,
    },
}


def parse_comment(fields: Mapping[str, Any], rules: Rules, *, changed: Counter[str]) -> Comment:
    """Parse and clean an object from a comments dump.

    Args:
      fields: the fields of the object, by name.
      rules: the rules that decide how texts are cleaned and which subreddits are read.
      changed: counter to update with the number of texts that each cleaning rule changed.

    Raises:
      UnusableError: if a field is missing or malformed, or the subreddit is excluded.
    """
    thread_id = _normalised_id(fields, "link_id")
    comment = Comment(
        parent_id=_parent_id(fields, thread_id),
        thread_id=thread_id,
        body=text_field(fields, "body"),
        subreddit=_subreddit(fields, rules),
        id=_normalised_id(fields, "id"),
        author=name_field(fields, "author"),
        score=_score(fields.get("score")),
    )
    return clean_turn(comment, rules, changed)


def parse_submission(
    fields: Mapping[str, Any], rules: Rules, *, changed: Counter[str]
) -> list[Comment]:
    """Parse and clean an object from a submissions dump.

    Arguments and errors are the same as for `parse_comment`.

    Returns:
      A list with the title, which is the root turn of its thread. If the submission has a text and
      the rules use it, the text is the second turn in the list.
    """
    title = Comment(
        subreddit=_subreddit(fields, rules),
        body=text_field(fields, "title"),
        id=TITLE_ID,
        thread_id=_normalised_id(fields, "id"),
        parent_id=None,
        author=name_field(fields, "author"),
    )
    turns = [title]
    post = fields.get("selftext")
    uses_post = rules.more_pairs or rules.single_texts
    if uses_post and isinstance(post, str) and post.strip() and not is_removal_notice(post):
        score = _score(fields.get("score"))
        turns.append(title._replace(id=POST_ID, parent_id=TITLE_ID, body=post, score=score))
    return [clean_turn(turn, rules, changed) for turn in turns]


def clean_turn(
    turn: Comment, rules: Rules, changed: Counter[str], *, is_reddit: bool = True
) -> Comment:
    """Clean and trim the text of a turn. All removal notices except "[deleted]" become `REMOVED`.

    Args:
      turn: a turn whose body is the whole original text.
      rules: the rules that decide how the text is cleaned and trimmed.
      changed: counter to update with the number of texts that each rule changed.
      is_reddit: see `is_removal_notice`.
    """
    text = turn.body
    if is_removal_notice(text, is_reddit=is_reddit):
        text = text if text == "[deleted]" else REMOVED
    text = clean_text(text, rules, changed=changed)
    longest = max(rules.max_context_length, rules.max_response_length, rules.max_extra_length)
    if len(text) <= longest:
        return turn if text is turn.body else turn._replace(body=text)
    body = trim(text, longest)
    keeps_rest = rules.long == "cut" or rules.single_texts
    rest = text[len(body) :] if keeps_rest else ""
    return turn._replace(body=body, is_trimmed=True, rest=rest)


def _normalised_id(fields: Mapping[str, Any], name: str) -> str:
    value = _ID_KIND.sub("", _identifier(fields, name), count=1)
    if not _ID.fullmatch(value):
        raise UnusableError(f"malformed_{name}")
    return value


def _identifier(fields: Mapping[str, Any], name: str) -> str:
    """Return an id as a base-36 string. Older dumps have integer ids, and pandas writes floats."""
    value = fields.get(name)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**64:
        return np.base_repr(value, 36).lower()
    return text_field(fields, name)


def _parent_id(fields: Mapping[str, Any], thread_id: str) -> str:
    """Return the parent's id within its thread; `TITLE_ID` if the parent is the submission.

    If the parent is the submission, older dumps from Reddit's API have null, and tables written by
    pandas have NaN. The kind of the parent (`t1_` comment, `t3_` submission) is checked before the
    prefix is dropped: in some dumps a comment has the same id as its thread, and such a comment
    must not become its own parent.
    """
    value = fields.get("parent_id")
    if "parent_id" in fields and (value is None or value != value):
        return TITLE_ID
    parent_id = _identifier(fields, "parent_id")
    if not _ID.fullmatch(parent_id):
        raise UnusableError("malformed_parent_id")
    kind = _ID_KIND.match(parent_id)
    bare = parent_id[kind.end() :] if kind else parent_id
    if bare == thread_id and (kind is None or kind.group() == "t3_"):
        return TITLE_ID
    return parent_id if kind and kind.group() != "t1_" else bare


def _score(value: Any) -> int | None:
    """Return a score as an integer, or None if it is missing.

    Some exports store it as a string, and pandas writes `1.0`.
    """
    try:
        return int(float(value))
    except (TypeError, ValueError, OverflowError):
        return None


def _subreddit(fields: Mapping[str, Any], rules: Rules) -> str:
    name = name_field(fields, "subreddit")
    lowered, only = name.lower(), rules.subreddits
    if lowered in rules.exclude_subreddits or (only and lowered not in only):
        raise UnusableError("other_subreddit", is_bad=False)
    return name


def is_removal_notice(text: str, *, is_reddit: bool = True) -> bool:
    """Return whether a text is only a notice that the original text was removed.

    Args:
      text: the body of a comment, the text of a post, or a title.
      is_reddit: whether the text is from Reddit. In other corpora, only notices in brackets and
        notices by deletion tools are recognised, because a genuine answer may be "Your post was
        removed because …".
    """
    lowered = text.lower()
    if not any(stem in lowered for stem in _NOTICE_STEMS):
        return False
    bare = (html.unescape(text) if "&" in text else text).strip(_MARKUP)
    return (
        _BRACKETED_NOTICE.fullmatch(bare) is not None
        or _TOOL_NOTICE.search(text) is not None
        or (is_reddit and _SITE_NOTICE.fullmatch(bare) is not None)
    )


def clean_text(text: str, rules: Rules, *, changed: Counter[str]) -> str:
    """Clean a text by the rules, so that it can be written as UTF-8.

    Args:
      text: the original text.
      rules: only `unescape_html`, `strip_quotes` and `strip_urls` are used.
      changed: counter to update with the number of texts that each rule changed.

    Returns:
      The cleaned text, or `""` if it has no visible character.
    """
    if rules.unescape_html and ("&" in text or _MAY_HOLD_UNSEEN.search(text)):
        text = _counted(text, _unescaped(text), "unescape_html", changed)
    if rules.strip_quotes and (">" in text or "&gt;" in text):
        text = _counted(text, _QUOTED_LINES.sub("", text).strip(), "strip_quotes", changed)
    if rules.strip_urls and _MAY_HOLD_URL.search(text):
        without = _MARKDOWN_IMAGE.sub("", _MEDIA.sub("", text))
        without = _BARE_URL.sub("", _MARKDOWN_LINK.sub(r"\1", without))
        if without != text:
            without = _SPACES.sub(" ", without).strip()
        text = _counted(text, without, "strip_urls", changed)
    return whole_characters(text) if _is_visible(text) else ""


def _unescaped(text: str) -> str:
    """Replace entities, which may be escaped twice, and remove invisible characters."""
    for _ in range(2):
        text = _ENTITY.sub(lambda match: html.unescape(match.group()), text)
    seen = text.translate(_UNSEEN)
    return text if seen == text else _EMPTY_LINES.sub("\n\n", seen).strip()


def _is_visible(text: str) -> bool:
    """Return whether a text has a visible character."""
    return any(
        character not in _BLANK and unicodedata.category(character) not in _UNSEEN_CATEGORIES
        for character in text
    )


def _counted(before: str, after: str, rule: str, changed: Counter[str]) -> str:
    changed[rule] += before != after
    return after


def trim(text: str, max_length: int) -> str:
    """Cut a text to at most `max_length` characters without splitting a word.

    The text is cut at the last word boundary within `max_length` characters. A word boundary is a
    position between an alphanumeric character and any other character. If there is no boundary (one
    long word), the text is cut at `max_length`.
    """
    if len(text) <= max_length:
        return text
    end = max_length
    while end > 0 and text[end].isalnum() == text[end - 1].isalnum():
        end -= 1
    return text[: end or max_length]
