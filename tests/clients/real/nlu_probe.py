# ruff: noqa: E501
r"""Run in Rasa's own environment: `nlu.yml` read by Rasa 3.6 and by this project's reader.

`python nlu_probe.py --seconds 60` compares the two on the files below and on as many mutants of
them as the time allows, and prints one line of JSON. What this project reads, Rasa reads equally; what
it refuses, Rasa refuses, or leaves something out with a warning. `--bots utterances.jsonl` adds a
file for each `source`, of lines with `text` and `label`; `--write nlu_cases.json` writes the files
with what Rasa reads, for tests/intents/test_rasa.py.
"""

import argparse
import collections
import importlib
import json
import os
import random
import re
import sys
import time
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[3]
# What Rasa says where it leaves something out.
LEFT_OUT = ("skipped", "has no examples", "doesn't start with", "greater format version")

BOT = """\
version: "3.1"
# a bank's bot
nlu:
- intent: greet
  examples: |
    - hello
    - hi there!
    - good "morning"
- intent: faq/ask_fees
  metadata:
    sentiment: neutral
  examples: |
    - what are the fees?
    - is it free: yes or no?
    - 5 % of 100 # a lot
- intent: transfer
  examples: |
    - send [12 EUR](amount) to [my account](account:savings [EUR])
    - from [LA]{"entity": "city", "role": "from", "group": "1"} to [NYC]{"entity": "city", "value": "New York (NY)"}
    - my [card][{"entity": "card"}, {"entity": "account", "role": "main"}] is lost
    - [a][b] and [[c](d)](e) and ](f) and [g] (h)
- intent: inform
  examples:
  - text: |
      yes
    metadata:
      sentiment: good
  - text: 'no, [thanks](word)'
  - text: two
- synonym: credit
  examples: |
    - credit card account
    - [x](y
- regex: account_number
  examples: |
    - \\d{10,12}
- lookup: banks
  examples: |
    - JPMC
"""


def small(body, head="nlu:\n"):
    return head + body


def intent(name="a", examples="|\n    - a"):
    return small("- intent: " + name + "\n  examples: " + examples + "\n")


NAMES = (
    "yes", "no", "on", "12:30", "010", "08", "1e3", "1_000", "0b1", "0x1F", "0o7", "+1", ".5", "1.",
    "5.0.1", "-", "=", "~", "null", "Null", "true", "True", "tRue", "2020-01-01", ".inf", ".nan",
    "'010'", '"null"', '""', "' a '", "!!str 5", "!!int '5'", "! 5", "&x y", "a b", "a: b", "a#b",
    "a #b", "faq/ask", "a/b/c", "+greet", "@a", "`a", "%a", "[a]", "{a: b}", "|\n    a", "|\n    \ta", "' '", "2020-1-1",
    "1:2", "_1", "1__", "0.", "e5", "-.5e+3", "\u00e9", "<<", "",
)  # fmt: skip
EXAMPLES = (
    "|\n    - a\n    b\n    - c", "|\n    - a\n\n    - b", "|\n    - a\n     - b", "|\n     - a\n    - b",
    "|\n    - a\n    # b", "|\n    -a\n    --b\n    -\tc", "|\n    - ", "|\n    -", "|", "", "5", "~", "[]",
    "{}", '""', "-a", "- a", '"- a\\n- b"', "'- a\n\n   - b'", ">\n    - a\n    - b", "|2\n    - a",
    "|+\n    - a\n\n", "|-\n    - a", "\n  - a", "\n  - text: a\n  - text: b", "\n  - text: 5",
    "\n  -\n  - text: a", "\n  - text: a\n    foo: b", "\n  - metadata: a", "\n  - text: ''",
    "\n  - text: yes\n    metadata: {a: b}", "\n  - text: |\n      a\n      b", "\n  - [a]", "\n  - text: [a]",
    "|\n    - caf\\u00e9 \\ud83d\\ude00 \\\\u00e9", "|\n    - x\\u00", "|\n    - \\ud83d",
    "|\n    - a\u2028b", "|\n    - a\u2028- b", "|\n    - a\u0085    - b", "|\n    - a\x0b- b", "|\n    - a\x07",
    "|\n    - \u00e9 caf\\u00e9", "|\n\t- a", "|\n    - a\t\n    - b \t ", "|\r\n    - a\r\n    - b\r\n",
    '|\n    - [a]{"role": "x"}', '|\n    - [a]{"entity": 5}', '|\n    - [a]{"entity": "x", "value": "y}"}',
    '|\n    - [a]{"entity": "x", "value": true}', '|\n    - [a]{"entity": "x", "value": 5}',
    '|\n    - [a]{"entity": "x"', "|\n    - [a]{entity: x}", '|\n    - [a][{"entity": "x"}, {"role": "y"}]',
    "|\n    - [](x) [a]() [a](b:) [a](:b) [a](b:c:d) [a] [b](c) [a](b\n    - c)", '|\n    - [a]{} b',
    '|\n    - [a]{"entity": "x", "role": null}', '|\n    - [a]{"entity": "x", "entity": "y"}',
    "|\n    - a\n    - a", "|\n    \t- a", "|\n    - a\n     \n    - b\n     ",
    ">\n    - a\n  ?   - b", "&x |\n    - a\n- intent: b\n  examples: *x",
)  # fmt: skip
WHOLE = (
    "", "[1]\n", "5\n", "nlu:\n", "nlu: []\n", "nlu: 5\n", "nlu: {intent: a}\n", "stories: []\n",
    "nlu:\n- [a]\n", "nlu:\n- a\n", "nlu:\n-\n", "nlu:\n- foo: a\n", "nlu:\n- {}\n", "nlu: [\n",
    "nlu:\n- examples: |\n    - a\n", "nlu:\n- intent: a\n", intent() + intent(), "\ufeff" + intent(),
    intent() + "---\n" + intent(), "---\n" + intent(), "%YAML 1.2\n---\n" + intent(),
    small("- intent: a\n  intent: b\n  examples: |\n    - a\n"),
    small("- intent: a\n  examples: |\n    - a\n  examples: |\n    - b\n"),
    small("- intent: a\n  note: b\n  examples: |\n    - a\n"),
    small("- intent: a\n  synonym: b\n  examples: |\n    - a\n"),
    small("- intnet: a\n  examples: |\n    - a\n"), small("- synonym: b\n  examples: |\n    c\n") ,
    "x: &x\n  intent: a\n" + small("- <<: *x\n  examples: |\n    - a\n"),
    "x: &x {intent: a}\n" + small("- <<: [*x, {intent: c}]\n  intent: b\n  examples: |\n    - a\n"),
    *(head + intent() for head in (
        "x: {a: 1, a: 2}\n", "x: {<<: 5}\n", "x: {<<: [5]}\n", "x: {<<: []}\n",
        "x: &x\n- *x\n", "x: &x\n  y: *x\n", "x: {? {c: d} : e}\n", "x: {? [{c: d}] : e}\n",
        "x: [<<]\n",
        "x: !foo 5\n", "x: !!foo 5\n", "x: !!set {a, b}\n", "%FOO 1\n---\n", "x: {<<: {a: b}, <<: {c: d}}\n")),
    *("version: " + v + "\n" + intent() for v in
      ('"3.1"', "'1'", "3.1", "2", '"2.0"', '"4.0"', '"3.2"', '"3.10"', '"abc"', "", '""', "~", '"3.1.0"',
       '"3"', "3.1.0", '"\'3.1\'"', '"3.1 "', '"v3"', '"3.1.1"', "[1]")),
)  # fmt: skip
# What mutants are made of.
PIECES = (
    "\n", "\n\n", "- ", "-", " ", "  ", "\t", "|", ">", "|-", ":", ": ", "#", " # ", "'", '"', "[", "]",
    "](x)", "{", "}", "(", ")", '{"entity": "x"}', ",", "&a ", "*a", "!", "%", "@", "yes", "null", "5",
    "\u00e9", "\\", "\\u0041", "\\n", "text: ", "intent: ", "examples: ", "- intent: b\n",
    "nlu:\n", "~", "---", "metadata: ", "\r\n", "\r", "\U0001f600", "\xa0", "?", "? ",
)  # fmt: skip


def cases():
    return [BOT, *map(intent, NAMES), *(intent("a", each) for each in EXAMPLES), *WHOLE]


def bots(path):
    """A file for each bot, with its texts as they stand: some begin with marks of YAML."""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    with open(path, encoding="utf-8") as file:
        for row in map(json.loads, file):
            found[row["source"]][row["label"]].append(row["text"])
    for intents in found.values():
        lines = ['version: "3.1"', "nlu:"]
        for name, texts in intents.items():
            lines += ["- intent: " + json.dumps(name), "  examples: |"]
            lines += ["    - " + text for text in texts]
        yield "\n".join(lines) + "\n"


def mutant(content, rng):
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        place = rng.randrange(len(content) + 1)
        kind = rng.randrange(4)
        if kind == 0:
            content = content[:place] + rng.choice(PIECES) + content[place:]
        elif kind == 1:
            content = content[:place] + content[place + rng.choice((1, 1, 2, 4, 8)) :]
        else:
            lines = content.splitlines(keepends=True) or [""]
            chosen = rng.randrange(len(lines))
            if kind == 2:
                lines.insert(rng.randrange(len(lines) + 1), lines[chosen])
            else:
                lines[chosen] = rng.choice(("", " " + lines[chosen], lines[chosen].strip() + "\n"))
            content = "".join(lines)
    return content


def read_by_rasa(content):
    """Texts with intents, equal ones once; None where something is refused or left out."""
    from rasa.shared.nlu.training_data.formats.rasa_yaml import RasaYAMLReader

    class Intents(RasaYAMLReader):
        """Synonyms, regular expressions and lookup tables are nothing to this project."""

        _parse_synonym = _parse_regex = _parse_lookup = lambda self, item: None

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            examples = Intents().reads(content).training_examples
        except (Exception, RecursionError):
            return None
    for warning in map(str, (each.message for each in said)):
        is_blank = re.search(r"doesn't start with a '-' symbol:\s*\n", warning + "\n")
        if any(each in warning for each in LEFT_OUT) and not is_blank:
            return None
    rows = [[each.get("text"), each.get_full_intent().strip()] for each in examples]
    return rows if rows and all(text.strip() and name for text, name in rows) else None


def read_here(reader, content):
    try:
        rows = reader.read_nlu(content, "nlu.yml")
    except ValueError:
        return None
    unique = dict.fromkeys((text, intent) for _, text, intent in rows)
    return [list(row) for row in unique] or None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("module", nargs="?", help="not read; other probes are given one")
    parser.add_argument("--bots")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write")
    arguments = parser.parse_args()
    sys.path.append(str(ROOT))  # behind all that Rasa has
    reader = importlib.import_module("convert_tf.intents.rasa")
    given = cases()
    if arguments.write:
        read = [{"content": each, "rasa": read_by_rasa(each)} for each in given]
        Path(arguments.write).write_text(json.dumps(read, indent=1) + "\n", encoding="utf-8")
    files = list(bots(arguments.bots)) if arguments.bots else []
    counts, wrong = collections.Counter(), []
    rng, end = random.Random(arguments.seed), time.monotonic() + arguments.seconds
    # Of these characters PyYAML and ruamel.yaml think differently in places that nobody writes.
    bases = [BOT, *(each for each in given if not {*each} & {*"{\ufeff\u2028\x85"})]
    pending = [*given, *files]
    while pending or time.monotonic() < end:
        content = pending.pop() if pending else mutant(rng.choice(bases), rng)
        theirs, ours = read_by_rasa(content), read_here(reader, content)
        counts["read" if theirs is not None else "refused"] += 1
        if theirs != ours:
            wrong.append({"content": content, "rasa": theirs, "here": ours})
    for each in wrong[:20]:
        print(json.dumps(each), file=sys.stderr)
    facts = {"files": len(given) + len(files), **counts, "different": len(wrong)}
    print(json.dumps(facts))
    return len(wrong) > 0


if __name__ == "__main__":
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    sys.exit(main())
