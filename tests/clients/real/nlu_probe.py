r"""Compare Rasa 3.6's reader of `nlu.yml` with this project's. Run in Rasa's own environment.

`python nlu_probe.py --seconds 60` compares the readers on the files in
tests/intents/nlu_cases.json and on as many mutants of them as the time allows. It prints one line
of JSON. If this project reads a file, Rasa must read the same. If this project refuses a file, Rasa
must refuse it or skip something with a warning. `--bots utterances.jsonl` adds a file for each
`source`, from lines with `text` and `label`. To add a case, append `{"content": "..."}` to
nlu_cases.json and run this script with `--write`, which adds Rasa's result to that file for
tests/intents/test_rasa.py.
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
CASES = ROOT / "tests" / "intents" / "nlu_cases.json"
# Rasa's warnings for parts that it skips.
LEFT_OUT = ("skipped", "has no examples", "doesn't start with", "greater format version")
# Pieces that are inserted into mutants.
PIECES = (
    "\n", "\n\n", "- ", "-", " ", "  ", "\t", "|", ">", "|-", ":", ": ", "#", " # ", "'", '"', "[",
    "]", "](x)", "{", "}", "(", ")", '{"entity": "x"}', ",", "&a ", "*a", "!", "%", "@", "yes",
    "null", "5", "\u00e9", "\\", "\\u0041", "\\n", "text: ", "intent: ", "examples: ",
    "- intent: b\n", "nlu:\n", "~", "---", "metadata: ", "\r\n", "\r", "\U0001f600", "\xa0",
    "?", "? ",
)  # fmt: skip


def bots(path):
    """Return a file for each bot with its texts unchanged; some start with YAML markup."""
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
    """Return unique texts with intents, or None if Rasa refuses or skips something."""
    from rasa.shared.nlu.training_data.formats.rasa_yaml import RasaYAMLReader

    class Intents(RasaYAMLReader):
        """Ignores synonyms, regular expressions and lookup tables, which are not used here."""

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
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    sys.path.append(str(ROOT))  # after all of Rasa's paths
    reader = importlib.import_module("convert_tf.intents.rasa")
    given = [case["content"] for case in json.loads(CASES.read_text(encoding="utf-8"))]
    if arguments.write:
        read = [{"content": each, "rasa": read_by_rasa(each)} for each in given]
        CASES.write_text(json.dumps(read, indent=1) + "\n", encoding="utf-8")
    files = list(bots(arguments.bots)) if arguments.bots else []
    counts, wrong = collections.Counter(), []
    rng, end = random.Random(arguments.seed), time.monotonic() + arguments.seconds
    # PyYAML and ruamel.yaml treat these characters differently in positions that do not occur.
    bases = [given[0], *(each for each in given if not {*each} & {*"{\ufeff\u2028\x85"})]
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
