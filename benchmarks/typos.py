"""Accuracy on messages with typing errors, in other characters, and as speech recognition hears it.

```
python benchmarks/typos.py --encoder convert_small --train train_10shot.csv --test test.csv
```

Errors are put into a share of the words of the test texts (--shares), at random with a seed: a key
next to the right one; a letter left out, typed twice or swapped with the next; or a word that
sounds alike. Without errors, the texts are also written in lines of 30 characters, with no-break
spaces, with tabs, and in full-width letters. The rows are logistic regression on the vectors; the
same with words; the same, also trained on noisy copies of each example (--copies), with errors in a
tenth of their words; and TF-IDF. --encoder minilm needs what benchmarks/minilm.py needs.
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

_ENCODER = flags.DEFINE_string("encoder", "convert_small", "A released name, .onnx or minilm.")
_TRAIN = flags.DEFINE_string("train", None, "Examples of the intents.", required=True)
_TEST = flags.DEFINE_string("test", None, "Messages with their intents.", required=True)
_SHARES = flags.DEFINE_list("shares", ["0.05", "0.1"], "Shares of words with an error.")
_COPIES = flags.DEFINE_integer("copies", 2, "Copies with errors that are trained on too.")
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
    """A word with one error."""
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
    """A text with errors in a share of its words; speech has no punctuation and no capitals."""
    if kind == "speech":
        text = re.sub(r"[^\w' ]", " ", text).lower()
    words = [wrong_word(word, kind, rng) if rng.random() < share else word for word in text.split()]
    return " ".join(words).strip() or text


def full_width(text: str) -> str:
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
