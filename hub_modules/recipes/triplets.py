"""Write triplets of a text, a paraphrase and an opposite, for `train.py --opposites`.

    python hub_modules/recipes/triplets.py contrasts/ 'utterances/*.jsonl.zst' triplets.jsonl.zst
    python hub_modules/recipes/triplets.py contrasts/ 'utterances/*.jsonl.zst' triplets.jsonl.zst \
        2500 cad_nli,mnli_dev held_out.jsonl.zst

A number after the file is the most triplets of a source. Sources after it are written to a second
file instead, to measure by. The triplets come from four places:

- `nli_triplets.jsonl.zst` in the folder: rows with anchor, positive, negative and source;
- `paraphrase_pairs.jsonl.zst`: pairs of texts with the label 1 for a paraphrase, else 0. Pairs with
  a text in common make a triplet. A pair whose source begins with `minimal_` gets a paraphrase from
  the labelled requests;
- labelled requests, whose meaning a rule turns round: a word becomes its antonym
  (`command_opposites.tsv`, `antonyms.tsv`), a negation is added or removed, two places change
  sides, a number or a day becomes another one. The paraphrase is another text of the same label
  that keeps the word. Without one, it is the text in other words (`reordered`, `framed`);
- statements about an adjective in all files: "The soup is not cold" is a paraphrase of "The soup is
  hot", and "The soup is cold" and "The soup is not hot" are opposites (`double_negations`).

Texts that must not be used commercially are omitted, and so are the intents that judge encoders.
"""

import collections
import glob
import json
import random
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import zstandard
from single_texts import JUDGED_ON, is_commercial, is_left_out, rows_of, without_case

_FILES_OF_REQUESTS = (
    "requests_labelled", "small_intent_sets", "rasa_bots_nlu", "multidogo_intents",
    "bitext_customer_support_intents", "fb_multilingual_en_intents", "ms_chitchat_intents",
    "polyai_nlupp_restaurant8k", "smcalflow_user_utterances", "mit_movie_restaurant_utterances",
)  # fmt: skip
# Sources whose pairs with the label 1 do not say quite the same.
_LOOSE = ("parade", "mrpc", "dialogue_nli", "impli_silver")
# Swapping these words does not turn a text round: they begin questions, or are prepositions.
_NOT_SWAPPED = {
    "can", "could", "did", "does", "is", "was", "will", "have", "with", "old", "single", "in",
    "first", "more", "right", "last",
}  # fmt: skip
_PARTICLES = {"on", "off", "up", "down"}  # these do, after one of these verbs
_SWITCHING = re.compile(
    r"\b(turn|switch|power|put|flip|shut|set|go|bring|is|are)\b.* (on|off|up|down)\b"
)
_PER_LABEL = 20  # triplets of a label for each word
_PER_RULE = 10  # triplets of a label by negation, and by numbers
_FEWEST_SHARED = 0.25  # of the words, by two texts of a label that count as paraphrases
_FEWEST_USES = 30  # of each word of a pair of antonyms in the requests
_LENGTHS = range(2, 21)  # words of a text that a rule changes

_WORD = re.compile(r"[a-z]+(?:n't|'t)?")
_NEGATIVE = re.compile(r"n't\b|\bnot?\b|\bnever\b")
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_HALF_OF_DAY = re.compile(r"(?<=\d)( ?)(am|pm|a\.m\.|p\.m\.)\b")
_PLACE = r"((?:[\w.'-]+ ){0,1}[\w'-]+)"
_PLACES = re.compile(
    rf"\bfrom {_PLACE} to {_PLACE}(?=$|[,.?!]| (?:on|at|for|in|next|this|with|today|tomorrow)\b)"
)
_NEGATED = {
    "want": "don't want", "need": "don't need", "like": "don't like", "can": "can not",
    "have": "have not", "would": "would not", "did": "did not", "am": "am not",
    "know": "don't know", "remember": "don't remember", "think": "don't think",
    "agree": "don't agree",
}  # fmt: skip
_FORBIDDING = ("don't", "do not", "never", "please do not")
_I = re.compile(rf"\bi ({'|'.join(_NEGATED)})\b", re.IGNORECASE)
_STATEMENT = re.compile(
    r"^((?:the|my|this|that|it|your|our|he|she|they|we|you)\b[^?]{0,40}?)"
    r"\b(is|are|was|were|has|have|will|can|does|did|should)\b(?! not|n't)",
    re.IGNORECASE,
)
# A statement that ends with an adjective, or has one before a comma.
_DESCRIPTION = re.compile(
    r"\b(?P<verb>is|are|was|were|i am|(?:it|that|he|she|there)'s|(?:you|we|they)'re|i'm)"
    r"(?P<negation> not|n't)? (?P<word>[a-z]+)(?=\s*(?:[.,;!]|$))",
    re.IGNORECASE,
)
_QUESTION = re.compile(r"\?|^(?:wh\w+|how|is|are|was|were|do|does|did|can|could)\b", re.IGNORECASE)
# Antonyms of Open English WordNet that are not opposite descriptions, or seldom are.
_NOT_DESCRIBING = {
    "off", "on", "in", "out", "up", "down", "all", "some", "no", "any", "many", "few", "much",
    "little", "more", "less", "most", "least", "first", "last", "like", "unlike", "black", "white",
    "one", "moving", "standing", "running", "male", "female", "seated", "front", "back", "top",
    "bottom", "own", "big", "just", "still", "even", "used", "made", "found", "born", "speaking",
    "right", "left", "present", "well", "home", "near", "outside", "far", "center", "fine",
}  # fmt: skip
_DESCRIPTION_LENGTHS = range(3, 15)  # words of a statement with a double negation
_VERBS = frozenset({
    "add", "book", "buy", "call", "cancel", "change", "check", "close", "create", "delete",
    "find", "get", "give", "help", "increase", "list", "lock", "make", "mute", "open", "order",
    "pay", "play", "put", "read", "remind", "remove", "reserve", "schedule", "send", "set",
    "show", "start", "stop", "switch", "tell", "transfer", "turn", "update", "wake", "activate",
    "block", "enable", "disable", "unlock", "save", "share", "begin", "keep", "move", "clear",
    "record", "refund", "return", "reply", "forward", "notify",
})  # fmt: skip
_AROUND_COMMANDS = (
    "please {}", "{} please", "can you {}", "could you {}", "hi, {}", "i would like you to {}",
    "hey, {} now", "{}, thanks",
)  # fmt: skip
_AROUND_OTHERS = ("excuse me, {}", "hello, {}", "{} i'd like to know", "tell me, {}", "well, {}")


class Triplet(NamedTuple):
    """A row of the file."""

    anchor: str
    positive: str
    negative: str
    source: str


Requests: TypeAlias = dict[tuple[str, str], list[str]]  # texts by source and label


def words_of(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def shared(words: set[str], others: set[str]) -> float:
    """Return the share of the words of two texts that both have."""
    return len(words & others) / max(len(words | others), 1)


def replaced(text: str, old: str, new: str) -> str:
    pattern = rf"(?<![\w']){re.escape(old)}(?![\w'])"
    return re.sub(pattern, new, text, count=1, flags=re.IGNORECASE)


def framed(text: str, rng: random.Random) -> str:
    """Return the text with words around it that do not change what it says."""
    is_command = text.lower().split(" ", 1)[0] in _VERBS
    frame = rng.choice(_AROUND_COMMANDS if is_command else _AROUND_OTHERS)
    return frame.format(text[:1].lower() + text[1:].rstrip(" ."))


def reordered(text: str) -> tuple[str, str] | None:
    """Return "to B from A" and "from B to A" for a text with "from A to B"; None without it."""
    found = _PLACES.search(text)
    if found is None or found[1] == found[2]:
        return None
    start, end = found[1], found[2]
    before, after = text[: found.start()], text[found.end() :]
    return f"{before}to {end} from {start}{after}", f"{before}from {end} to {start}{after}"


def negated(text: str, rng: random.Random) -> str | None:
    """Return the text with a negation more or less; None if no rule applies."""
    for pattern, instead in ((r" not\b", ""), (r" never\b", " always"), (r"n't\b", "")):
        if re.search(pattern, text, re.IGNORECASE):
            changed = re.sub(pattern, instead, text, count=1, flags=re.IGNORECASE)
            return re.sub(r"\bwo\b", "will", re.sub(r"\bca\b", "can", changed))
    if found := _I.search(text):
        return text[: found.start()] + f"i {_NEGATED[found[1].lower()]}" + text[found.end() :]
    if found := _STATEMENT.search(text):
        return f"{text[: found.end()]} not{text[found.end() :]}"
    if text.lower().split(" ", 1)[0] in _VERBS:
        return f"{rng.choice(_FORBIDDING)} {text}"
    return None


def renumbered(text: str, rng: random.Random) -> str | None:
    """Return the text with another day, number or half of the day; None if it has none."""
    for choices in (_DAYS, _NUMBERS):
        for word in words_of(text):
            if word in choices:
                return replaced(text, word, rng.choice([own for own in choices if own != word]))
    if (found := _HALF_OF_DAY.search(text.lower())) and rng.random() < 0.5:
        other = found[2].translate(str.maketrans("ap", "pa"))
        return text[: found.start(2)] + other + text[found.end(2) :]
    if found := re.search(r"\b\d{1,3}\b", text):
        number = int(found[0])
        other_number = rng.choice([number + 1, number + 2, number + 10, 2 * number + 3])
        return f"{text[: found.start()]}{other_number}{text[found.end() :]}"
    return None


def antonyms_of_adjectives(folder: Path) -> dict[str, list[str]]:
    """Return the antonyms of adjectives from Open English WordNet."""
    antonyms_of: dict[str, list[str]] = collections.defaultdict(list)
    for row in (folder / "antonyms.tsv").read_text().splitlines()[1:]:
        first, second, kinds, sources, *_ = row.split("\t")
        is_adjective = "a" in kinds.split(",") and "oewn" in sources
        is_single_word = first.isalpha() and second.isalpha()
        if is_adjective and is_single_word and not {first, second} & _NOT_DESCRIBING:
            antonyms_of[first].append(second)
            antonyms_of[second].append(first)
    return dict(antonyms_of)


def antonyms(folder: Path, uses: collections.Counter[str]) -> dict[str, list[str]]:
    """Return the antonyms of words and phrases: those of commands, and frequent adjectives."""
    rows = [row.split("\t") for row in (folder / "command_opposites.tsv").read_text().splitlines()]
    pairs = [(row[0], row[1]) for row in rows if not _NOT_SWAPPED & {row[0], row[1]}]
    known = {word for pair in pairs for word in pair}
    for row in (folder / "antonyms.tsv").read_text().splitlines()[1:]:
        first, second, kinds, sources, *_ = row.split("\t")
        is_adjective = {*kinds.split(",")} & {"a", "r"}
        is_frequent = min(uses[first], uses[second]) >= _FEWEST_USES
        if is_adjective and is_frequent and "oewn" in sources and not {first, second} & known:
            pairs.append((first, second))
    found: dict[str, list[str]] = collections.defaultdict(list)
    for first, second in pairs:
        found[first].append(second)
        found[second].append(first)
    return dict(found)


def of_nli(folder: Path) -> Iterator[Triplet]:
    for row in filter(is_commercial, rows_of(folder / "nli_triplets.jsonl.zst")):
        yield Triplet(row["anchor"], row["positive"], row["negative"], row["source"])


def labelled_pairs(folder: Path) -> Iterator[tuple[str, str, int, str]]:
    """Yield the pairs that may be used, in both orders: text, other text, label, source."""
    for row in rows_of(folder / "paraphrase_pairs.jsonl.zst"):
        if is_commercial(row):
            for names in (("text_a", "text_b"), ("text_b", "text_a")):
                first, second = (row[name] for name in names)
                yield first, second, int(row["label"]), row["source"]


def of_pairs(folder: Path, rng: random.Random) -> Iterator[Triplet]:
    """Join pairs that have a text in common."""
    paraphrases: dict[str, list[str]] = collections.defaultdict(list)
    others: dict[str, list[tuple[str, str]]] = collections.defaultdict(list)
    for text, other, label, source in labelled_pairs(folder):
        if source.startswith(_LOOSE):
            continue
        if label:
            paraphrases[text].append(other)
        else:
            others[text].append((other, source))
    for text, own in paraphrases.items():
        for other, source in others.get(text, ()):
            yield Triplet(text, rng.choice(own), other, source)


def of_minimal_pairs(folder: Path, requests: Requests, rng: random.Random) -> Iterator[Triplet]:
    """Give pairs that differ in one word a paraphrase of the same label with the same word."""
    labels: dict[str, list[tuple[str, str]]] = collections.defaultdict(list)
    with_word: dict[tuple[str, str, str], list[str]] = collections.defaultdict(list)
    for key, texts in requests.items():
        for text in texts:
            labels[text.lower()].append(key)
            for word in {*words_of(text)}:
                with_word[(*key, word)].append(text)
    for text, other, _, source in labelled_pairs(folder):
        if not source.startswith("minimal_"):
            continue
        only_here = {*words_of(text)} - {*words_of(other)}
        only_there = {*words_of(other)} - {*words_of(text)}
        keys = labels[text.strip().lower()]
        some = [found for key in keys for word in only_here for found in with_word[(*key, word)]]
        paraphrases = [
            found
            for found in rng.sample(some, min(20, len(some)))
            if found.lower() != text.lower()
            and only_here <= {*words_of(found)}
            and not only_there & {*words_of(found)}
        ]
        if paraphrases:
            yield Triplet(text, paraphrases[0], other, source)
        elif keys or rng.random() < 0.5:
            yield Triplet(text, framed(text, rng), other, source)


def of_requests(folder: Path, requests: Requests, rng: random.Random) -> Iterator[Triplet]:
    """Turn labelled requests round by rules."""
    uses = collections.Counter(
        word for texts in requests.values() for text in texts for word in {*words_of(text)}
    )
    opposites = antonyms(folder, uses)
    for (source, _), texts in requests.items():
        yield from _of_label(source, sorted({*texts}), opposites, rng)


def double_negations(
    folder: Path, utterances: str, judged: set[str], rng: random.Random
) -> Iterator[Triplet]:
    """Negate the antonym of an adjective, and half of the time another of the four statements.

    The four statements are "X is A", "X is not A", "X is B" and "X is not B" for antonyms A and B.
    "X is not B" is taken as a paraphrase of "X is A", although X may be neither A nor B. Questions,
    texts with another negation and adjectives with several antonyms are left out, and so are texts
    that judge encoders (`judged`).
    """
    antonyms_of = antonyms_of_adjectives(folder)
    for path in map(Path, sorted(glob.glob(utterances))):
        name = path.name.split(".")[0]
        for row in rows_of(path):
            text = row["text"].strip()
            if without_case(text) in judged or not is_commercial(row):
                continue
            if len(text.split()) not in _DESCRIPTION_LENGTHS or _QUESTION.search(text):
                continue
            match = _DESCRIPTION.search(text)
            if match is None or len(antonyms_of.get(match["word"].lower(), ())) != 1:
                continue
            if _NEGATIVE.search(text[: match.start()]) or _NEGATIVE.search(text[match.end() :]):
                continue
            antonym = antonyms_of[match["word"].lower()][0]
            yield _double_negation(text, match, antonym, f"double_negation:{name}", rng)


def _double_negation(
    text: str, match: re.Match[str], antonym: str, source: str, rng: random.Random
) -> Triplet:
    word = match["word"]

    def statement(is_negated: bool, adjective: str) -> str:
        description = f"{match['verb']}{' not' if is_negated else ''} {adjective}"
        return f"{text[: match.start()]}{description}{text[match.end() :]}"

    is_negated, adjective = bool(match["negation"]), word
    if rng.random() < 0.5:
        is_negated, adjective = rng.random() < 0.5, rng.choice([word, antonym])
    other = antonym if adjective == word else word
    opposite = rng.choice([(is_negated, other), (not is_negated, adjective)])
    anchor, paraphrase = statement(is_negated, adjective), statement(not is_negated, other)
    return Triplet(anchor, paraphrase, statement(*opposite), source)


def _of_label(
    source: str, texts: list[str], opposites: dict[str, list[str]], rng: random.Random
) -> Iterator[Triplet]:
    rng.shuffle(texts)
    phrases = [word for word in opposites if " " in word]
    words: dict[str, set[str]] = {}
    with_word: dict[str, list[str]] = collections.defaultdict(list)
    for text in texts:
        joined = f" {' '.join(words_of(text))} "
        words[text] = {*words_of(text), *(one for one in phrases if f" {one} " in joined)}
        for word in words[text] & opposites.keys():
            with_word[word].append(text)
    written: collections.Counter[str] = collections.Counter()

    def is_left(rule: str, most: int) -> bool:
        written[rule] += 1
        return written[rule] <= most

    def paraphrase(text: str, choices: Sequence[str], without: set[str]) -> str:
        some = rng.sample(choices, min(30, len(choices)))
        shares = {
            other: shared(words[text], words[other])
            for other in some
            if other != text and not without & words[other]
        }
        close = {other: share for other, share in shares.items() if share >= _FEWEST_SHARED}
        return min(close, key=close.__getitem__) if close else framed(text, rng)

    for text in texts:
        if len(text.split()) not in _LENGTHS:
            continue
        if (places := reordered(text)) and is_left("places", 3 * _PER_LABEL):
            yield Triplet(text, *places, f"rule:places:{source}")
        if (other := renumbered(text, rng)) and is_left("number", _PER_RULE):
            yield Triplet(text, framed(text, rng), other, f"rule:number:{source}")
        if (other := negated(text, rng)) and is_left("negation", _PER_RULE):
            is_negative = bool(_NEGATIVE.search(text.lower()))
            choices = [] if is_negative else [t for t in texts if not _NEGATIVE.search(t.lower())]
            positive = paraphrase(text, choices, set())
            yield Triplet(text, positive, other, f"rule:negation:{source}")
        # Phrases first: "turn on" rather than "on".
        found = sorted(words[text] & opposites.keys(), key=lambda word: (" " not in word, word))
        for word in found[:2]:
            if word in _PARTICLES and not _SWITCHING.search(text.lower()):
                continue
            if is_left(word, _PER_LABEL):
                positive = paraphrase(text, with_word[word], {*opposites[word]})
                other = replaced(text, word, rng.choice(opposites[word]))
                yield Triplet(text, positive, other, f"rule:antonym:{source}")


def read_requests(pattern: str) -> tuple[Requests, set[str]]:
    """Return the labelled requests, and the texts that encoders are evaluated on, in lower case."""
    requests: Requests = collections.defaultdict(list)
    judged = set()
    for path in map(Path, sorted(glob.glob(pattern))):
        name = path.name.split(".")[0]
        for row in rows_of(path) if name in _FILES_OF_REQUESTS else ():
            text = row["text"].strip()
            if name in JUDGED_ON and is_left_out(row):
                judged.add(without_case(text))
            elif row.get("label") and is_commercial(row):
                requests[row["source"], row["label"]].append(text)
    return requests, judged


def kind(row: Triplet) -> str:
    """Return the source without the file that a rule read: `rule` or `minimal_antonym`."""
    return row.source.split(":")[0]


def compared_texts(row: Triplet) -> tuple[str, ...]:
    """Return the three texts in lower case, to compare them with `judged` and held-out texts."""
    return tuple(map(without_case, row[:3]))


def write(rows: Sequence[Triplet], output: str) -> None:
    partial = Path(f"{output}.partial")
    with open(partial, "wb") as file, zstandard.ZstdCompressor().stream_writer(file) as writer:
        for row in rows:
            writer.write(json.dumps(row._asdict()).encode() + b"\n")
    partial.rename(output)
    for name, number in collections.Counter(kind(row) for row in rows).most_common():
        print(f"{name}: {number:,}")
    print(f"{len(rows):,} triplets in {output}")


def main(
    folder: str,
    utterances: str,
    output: str,
    most: str = "",
    left_out: str = "",
    left_out_file: str = "",
) -> None:
    rng, place = random.Random(5), Path(folder)
    requests, judged = read_requests(utterances)
    if not requests:
        raise ValueError(f"No file of {utterances!r} has labelled requests. Correct the pattern.")
    kept: dict[tuple[str, ...], Triplet] = {}
    for triplet in (
        *of_nli(place),
        *of_pairs(place, rng),
        *of_minimal_pairs(place, requests, rng),
        *of_requests(place, requests, rng),
        *double_negations(place, utterances, judged, rng),
    ):
        texts = compared_texts(triplet)
        if len({*texts}) == 3 and all(texts) and not judged & {*texts}:
            kept.setdefault(texts, triplet)
    rows = [*kept.values()]
    rng.shuffle(rows)
    written: collections.Counter[str] = collections.Counter()
    trained, measured = [], []
    for row in rows:
        written[kind(row)] += 1
        if not most or written[kind(row)] <= int(most):
            (measured if kind(row) in left_out.split(",") else trained).append(row)
    if left_out:
        seen = {text for row in measured for text in compared_texts(row)}
        trained = [row for row in trained if not seen & {*compared_texts(row)}]
        write(measured, left_out_file)
    write(trained, output)


if __name__ == "__main__":
    main(*sys.argv[1:])
