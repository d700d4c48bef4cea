"""Write the single texts for training a similarity map: a few from each source, in random order.

    python hub_modules/recipes/few_texts.py 'utterances/*.zst' triplets.jsonl.zst few_texts.jsonl.zst \
        1300

The output contains at most five texts for each intent, texts from seven other files, and the texts
of some triplets. The last argument is the number of texts from each of the seven files. As in
`single_texts.py`, texts that must not be used commercially are left out, and so are texts of the
intents on which `judge_intents.py` evaluates encoders. `triplets.py` does the same for the triplets.
"""

import collections
import glob
import json
import random
import sys
from pathlib import Path

import zstandard
from single_texts import JUDGED_ON, files_by_name, is_commercial, is_left_out, rows_of, without_case

_LABELLED = (
    "requests_labelled", "rasa_bots_nlu", "small_intent_sets", "ms_chitchat_intents",
    "ms_smalltalk_intents", "bitext_customer_support_intents", "fb_multilingual_en_intents",
    "multidogo_intents",
)  # fmt: skip
_OTHERS = (
    "captions", "news", "questions", "nli", "howto_quotes_jokes", "reviews_tweets", "business_it",
)  # fmt: skip
_OF_LABEL = 5
_OF_TRIPLETS = 3_500
_LONGEST = 200  # characters


def main(utterances: str, triplets: str, output: str, of_file: str) -> None:
    paths = files_by_name(map(Path, sorted(glob.glob(utterances))))
    if missing := sorted({*_LABELLED, *_OTHERS} - paths.keys()):
        raise ValueError(f"No file that matches {utterances!r} is called {', '.join(missing)}.")
    rng = random.Random(5)
    judged: set[str] = set()
    of_label: dict[tuple[str, str], set[str]] = collections.defaultdict(set)
    for name in _LABELLED:
        for row in rows_of(paths[name]):
            if name in JUDGED_ON and is_left_out(row):
                judged.add(without_case(row["text"]))
            elif row.get("label") and is_commercial(row):
                of_label[row["source"], row["label"]].add(row["text"])
    rows = []
    for (source, label), texts in of_label.items():
        usable = sorted(text for text in texts if without_case(text) not in judged)
        drawn = rng.sample(usable, min(_OF_LABEL, len(usable)))
        if len(drawn) > 1:  # the loss compares texts of the same intent
            rows += [{"text": text, "source": source, "label": label} for text in drawn]
    for name in _OTHERS:
        texts = (row["text"] for row in filter(is_commercial, rows_of(paths[name])))
        usable = [text for text in texts if without_case(text) not in judged]
        short = [text for text in usable if len(text) < _LONGEST]
        drawn = rng.sample(short, min(int(of_file), len(short)))
        rows += [{"text": text, "source": name} for text in drawn]
    every = [*rows_of(Path(triplets))]
    for row in rng.sample(every, min(_OF_TRIPLETS, len(every))):
        names = ("anchor", "positive", "negative")
        rows += [{"text": row[name], "source": "triplets"} for name in names]
    rng.shuffle(rows)
    partial = Path(f"{output}.partial")
    with open(partial, "wb") as file, zstandard.ZstdCompressor().stream_writer(file) as writer:
        for row in rows:
            writer.write(json.dumps(row).encode() + b"\n")
    partial.rename(output)
    print(f"{len(rows):,} texts, {len(of_label):,} intents")


if __name__ == "__main__":
    main(*sys.argv[1:])
