"""What the sample dump talks about: topics, their objects, questions, answers and reactions.

An object has names that people who ask use and other names that people who answer use; an intent
has questions, answers and reactions with few words in common. So a response is found by knowing
what belongs together, not by matching words.

In `sample_topics.txt` the first section holds situations, `a | b = c | d`, the second what is asked
of everything, each other section a topic under its name. There `a, b = c, d` is an object (asked
as a or b, answered as c or d); `?`, `>` and `<` lines are the phrasings of the question, the answer
and the reaction to the answer.
"""

from pathlib import Path
from typing import NamedTuple


class Intent(NamedTuple):
    """Phrasings of one question, its answers and what the asker says then."""

    questions: tuple[str, ...]
    answers: tuple[str, ...]
    reactions: tuple[str, ...]


class Object(NamedTuple):
    """Names of one thing: those of who asks and those of who answers."""

    asked: tuple[str, ...]
    answered: tuple[str, ...]


class Topic(NamedTuple):
    """A subreddit, what it is about and what is asked there."""

    subreddit: str
    objects: tuple[Object, ...]
    intents: tuple[Intent, ...]


_TEXT = Path(__file__).with_name("sample_topics.txt")
_SECTIONS = _TEXT.read_text(encoding="utf-8").strip().split("\n\n")


def _phrases(text: str, separator: str) -> tuple[str, ...]:
    return tuple(phrase.strip() for phrase in text.split(separator))


# Said with the question, and the matching remark of the answer.
SITUATIONS = tuple(
    tuple(_phrases(side, "|") for side in line.split("=")) for line in _SECTIONS[0].splitlines()
)


def _intents(lines: list[str]) -> tuple[Intent, ...]:
    phrases = [_phrases(line[1:], "|") for line in lines if line[0] in "?><"]
    return tuple(Intent(*phrases[start : start + 3]) for start in range(0, len(phrases), 3))


def load_topics() -> tuple[Topic, ...]:
    """The topics of the sample, each with its own intents and those that fit everywhere."""
    common = _intents(_SECTIONS[1].splitlines())
    topics = []
    for section in _SECTIONS[2:]:
        title, *lines = section.splitlines()
        objects = tuple(
            Object(*(_phrases(names, ",") for names in line.split("=")))
            for line in lines
            if line[0] not in "?><"
        )
        topics.append(Topic(title.removeprefix("# "), objects, _intents(lines) + common))
    return tuple(topics)
