"""Measure accuracy on messages with typos, unusual characters, and speech recognition errors.

```
python benchmarks/typos.py --encoder convert_small --train train_10shot.csv --test test.csv
```

Errors are put into a share of the words of the test texts (--shares), at random with a fixed seed.
An error replaces a letter by a neighbouring key (`keys`); drops a letter, doubles it or swaps it
with the next (`letters`); or replaces a word by one that sounds like it (`speech`). Texts without
errors are also tested in lines of 30 characters, with no-break spaces, with tabs, and in full-width
letters.

There are four rows: logistic regression on the vectors; with the word model; with the word model
and trained also on copies of each example (--copies) that have errors in a tenth of their words;
and TF-IDF. --encoder minilm needs the packages that benchmarks/minilm.py needs.
"""

import random
import re
import textwrap

import numpy as np
from absl import app, flags
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from convert_tf import IntentClassifier
from convert_tf.intents.data import read_labelled
from convert_tf.intents.encodings import IntentEncodings

_ENCODER = flags.DEFINE_string("encoder", "convert_small", "Released name, .onnx file or minilm.")
_TRAIN = flags.DEFINE_string("train", None, "Examples of the intents.", required=True)
_TEST = flags.DEFINE_string("test", None, "Messages with their intents.", required=True)
_SHARES = flags.DEFINE_list("shares", ["0.05", "0.1"], "Shares of words with an error.")
_COPIES = flags.DEFINE_integer("copies", 2, "Copies with errors per example.")
_KINDS = ("keys", "letters", "speech")

_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_SOUNDS = (
    "to two too", "there their they're", "your you're", "its it's", "for four", "know no",
    "hear here", "by buy", "right write", "week weak", "see sea", "one won", "would wood",
    "card cart", "bank bang", "cash catch", "fee free", "cheque check", "pin pen", "i eye",
    "my mine", "is his", "can can't", "want won't",
)  # fmt: skip
_ALIKE = {
    word: [w for w in words if w != word] for words in map(str.split, _SOUNDS) for word in words
}


def _neighbours(letter: str) -> str:
    row = next((row for row in _ROWS if letter in row), letter)
    place = row.index(letter)
    return row[max(place - 1, 0) : place] + row[place + 1 : place + 2] or letter


def wrong_word(word: str, kind: str, rng: random.Random) -> str:
    """Return a word with one error of a kind."""
    if kind == "speech":
        plain = word.lower().strip(".,?!")
        return rng.choice(_ALIKE.get(plain, [plain[:-1] if plain.endswith("s") else f"{plain}s"]))
    place = rng.randrange(len(word))
    if kind == "keys":
        return word[:place] + rng.choice(_neighbours(word[place].lower())) + word[place + 1 :]
    return rng.choice(
        (
            word[:place] + word[place + 1 :],
            word[:place] + word[place] + word[place:],
            word[:place] + word[place + 1 : place + 2] + word[place] + word[place + 2 :],
        )
    )


def noisy(text: str, kind: str, share: float, rng: random.Random) -> str:
    """Put errors into a share of a text's words; for speech, drop punctuation and capitals too."""
    if kind == "speech":
        text = re.sub(r"[^\w' ]", " ", text).lower()
    words = [wrong_word(word, kind, rng) if rng.random() < share else word for word in text.split()]
    return " ".join(words).strip() or text


def full_width(text: str) -> str:
    """Return a text with full-width letters."""
    return "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text)


def main(argv: list[str]) -> None:
    del argv
    encoder = _ENCODER.value
    if encoder == "minilm":
        from minilm_package import minilm_folder
        from sentence_transformers import SentenceTransformer

        encoder = SentenceTransformer(str(minilm_folder()), device="cpu").encode
    encode = IntentEncodings(encoder)
    texts, labels = read_labelled(_TRAIN.value)
    test, right = read_labelled(_TEST.value)
    rng = random.Random(0)
    more = [
        noisy(text, kind, 0.1, rng)
        for _ in range(_COPIES.value)
        for text, kind in zip(texts, rng.choices(_KINDS, k=len(texts)), strict=True)
    ]
    tests = {"clean": test, "no punctuation": [noisy(text, "speech", 0, rng) for text in test]}
    tests |= {
        "lines of 30": [textwrap.fill(text, 30) for text in test],
        "no-break": [text.replace(" ", "\xa0") for text in test],
        "tabs": [text.replace(" ", "\t") for text in test],
        "full width": [full_width(text) for text in test],
    }
    for share in map(float, _SHARES.value):
        tests |= {
            f"{kind} {share:.0%}": [noisy(text, kind, share, rng) for text in test]
            for kind in _KINDS
        }
    options = {"head": "logistic", "names": None}
    rows = {
        "vectors": IntentClassifier(encode, lexical=None, **options).fit(texts, labels),
        "vectors and words": IntentClassifier(encode, **options).fit(texts, labels),
    }
    all_labels = [*labels] * (1 + _COPIES.value)
    rows["with copies"] = IntentClassifier(encode, **options).fit([*texts, *more], all_labels)
    tfidf = make_pipeline(TfidfVectorizer(), LogisticRegression(C=10, max_iter=2000))
    rows["TF-IDF"] = tfidf.fit(texts, labels)
    print(f"{'':20}" + "".join(f"{name:>16}" for name in tests))
    for name, model in rows.items():
        shares = [np.mean(np.asarray(model.predict(own)) == right) for own in tests.values()]
        print(f"{name:20}" + "".join(f"{share:16.1%}" for share in shares), flush=True)


if __name__ == "__main__":
    app.run(main)
