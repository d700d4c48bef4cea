"""Write a small conversation dump with a seeded generator, for demos and tests.

Most threads are a question (the title), one or two answers and the asker's reaction. As in real
dumps, a few comments are deleted, too short, too long or without a parent, so that the rules of
`convert-tf prepare` have something to count.

The texts come from `sample_topics.txt`. Questions and answers use different names for an object,
and the questions, answers and reactions for an intent share few words. Responses therefore cannot
be found by matching words.

The sections of `sample_topics.txt` are separated by empty lines. The first section has situations
of the form `a | b = c | d`, where a and b are remarks to add to the question, and c and d are
remarks to add to the answer. The second section has intents that fit all topics. Every other
section is a topic and begins with its name. In a topic, `a, b = c, d` is an object, which questions
call a or b and answers call c or d. Lines that begin with `?`, `>` and `<` are phrasings for the
question, the answer and the reaction in an intent.
"""

import itertools
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from convert_tf.extras import needs
from convert_tf.storage.files import write_results

NUM_THREADS = 4000
_FIRST_ID = 36**5  # Reddit's ids have had six characters since 2012
_FIRST_TIME = 1_420_070_400
_SHORT = ("ok", "lol", "This.", "Same", "nope", "Thanks!")
_RAMBLING = " I could go on about this for hours, and I will, because it matters a lot to me."


class Question(NamedTuple):
    """The question of a thread, with its answers.

    `asked` contains the names that questions use for the object, and `answered` contains the names
    that answers use. `questions`, `answers` and `reactions` are phrasings for the intent.
    `situation` contains the remarks to add to the question, and the remarks to add to the answer.
    """

    subreddit: str
    situation: list[tuple[str, ...]]
    asked: tuple[str, ...]
    answered: tuple[str, ...]
    questions: tuple[str, ...]
    answers: tuple[str, ...]
    reactions: tuple[str, ...]


def _phrases(text: str, separator: str) -> tuple[str, ...]:
    return tuple(phrase.strip() for phrase in text.split(separator))


def _intents(lines: list[str]) -> list[list[tuple[str, ...]]]:
    phrases = [_phrases(line[1:], "|") for line in lines if line[0] in "?><"]
    return [phrases[start : start + 3] for start in range(0, len(phrases), 3)]


_TEXT = Path(__file__).with_name("sample_topics.txt")
_SITUATIONS, _COMMON, *_TOPICS = (
    section.splitlines() for section in _TEXT.read_text(encoding="utf-8").strip().split("\n\n")
)


def all_questions() -> Iterator[Question]:
    """Yield all questions: every combination of an object, an intent and a situation per topic."""
    situations = [[_phrases(side, "|") for side in line.split("=")] for line in _SITUATIONS]
    for title, *lines in _TOPICS:
        lines_of_objects = [line for line in lines if line[0] not in "?><"]
        objects = [[_phrases(names, ",") for names in line.split("=")] for line in lines_of_objects]
        intents = _intents(lines) + _intents(_COMMON)
        for names, phrases, situation in itertools.product(objects, intents, situations):
            yield Question(title.removeprefix("# "), situation, *[*names, *phrases])


def _base36(number: int) -> str:
    return np.base_repr(number, 36).lower()


class SampleThreads:
    """Generates threads in dump format.

    Args:
      seed: the same seed gives the same threads.
    """

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._next_id = _FIRST_ID

    def generate(self, num_threads: int) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
        """Yield threads as (submission, comments). No two threads have the same question."""
        questions = [*all_questions()]
        if num_threads > len(questions):
            raise ValueError(
                f"num_threads must be at most {len(questions)}, the number of different questions "
                f"that can be generated. Received: {num_threads}."
            )
        for question in self._rng.sample(questions, num_threads):
            yield self._thread(question)

    def _thread(self, question: Question) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        choose = self._rng.choice
        with_question, with_answer = question.situation
        asker = self._author()
        asked = choose(question.questions).format(o=choose(question.asked))
        remark = choose(with_question)
        title = f"{remark[0].upper()}{remark[1:]}. {asked}"
        submission = self._post(question, asker, title=title, selftext="")
        link = f"t3_{submission['id']}"

        def comment(parent: str, body: str, author: str = "") -> dict[str, Any]:
            author = author or self._author()
            return self._post(question, author, link_id=link, parent_id=parent, body=body)

        def reaction() -> str:
            return choose(question.reactions).format(o=choose(question.asked)) + "."

        comments = []
        for template in self._rng.sample(question.answers, choose((1, 1, 2))):
            advice = template.format(r=choose(question.answered))
            answer = comment(link, f"{advice}. {choose(with_answer)}.")
            comments.append(answer)
            if self._rng.random() < 0.5:
                comments.append(comment(f"t1_{answer['id']}", reaction(), asker))
        if self._rng.random() < 0.05:
            # Damage a comment or add an unusable one, as occurs in real dumps.
            fault = self._rng.randrange(4)
            if fault == 0:
                comments[0]["body"], comments[0]["author"] = "[deleted]", "[deleted]"
            elif fault == 1:
                comments.append(comment(f"t1_{comments[-1]['id']}", choose(_SHORT)))
            elif fault == 2:
                comments[-1]["body"] += _RAMBLING * 2
            else:  # its parent is missing
                comments.append(comment(f"t1_{self._new_id()}", reaction()))
        return submission, comments

    def _new_id(self) -> str:
        self._next_id += self._rng.randrange(1, 1000)
        return _base36(self._next_id)

    def _author(self) -> str:
        return f"user_{_base36(self._rng.randrange(36**4, 36**5))}"

    def _post(self, question: Question, author: str, **fields: str) -> dict[str, Any]:
        return {
            "id": self._new_id(),
            "author": author,
            "subreddit": question.subreddit,
            "score": self._rng.randrange(1, 50),
            "created_utc": _FIRST_TIME + (self._next_id - _FIRST_ID) // 10,
            **fields,
        }


def sample_texts(seed: int = 0) -> Iterator[str]:
    """Yield the distinct texts in generated threads: questions, answers and reactions."""
    seen: set[str] = set()
    for submission, comments in SampleThreads(seed).generate(NUM_THREADS):
        for text in (submission["title"], *(comment["body"] for comment in comments)):
            if text not in seen:
                seen.add(text)
                yield text


def write_sample(folder: str, *, seed: int = 0, num_threads: int = NUM_THREADS) -> list[str]:
    """Write a sample dump: comments to `RC_sample.zst` and submissions to `RS_sample.zst`.

    Args:
      folder: the folder to write to.
      seed: the same seed gives the same threads.
      num_threads: number of threads in the dump.

    Returns:
      The paths of the two files.
    """
    with needs("data", "Writing a sample dump"):
        import zstandard

    submissions, comments = [], []
    for submission, replies in SampleThreads(seed).generate(num_threads):
        submissions.append(submission)
        comments.extend(replies)
    compress = zstandard.ZstdCompressor(level=19).compress
    contents = {}
    for name, posts in (("RC_sample.zst", comments), ("RS_sample.zst", submissions)):
        text = "".join(json.dumps(post, ensure_ascii=False) + "\n" for post in posts)
        contents[name] = compress(text.encode("utf-8"))
    write_results(folder, contents)
    return [os.path.join(folder, name) for name in contents]
