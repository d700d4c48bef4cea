"""Measure few-shot intent accuracy, to choose between runs without reading any test file.

    python hub_modules/recipes/judge_intents.py --train banking77.train.csv \
        --train clinc150.train.csv --utterances 'utterances/*.jsonl.zst' runs/one runs/other

Logistic regression is trained on ten examples per intent and tested on the remaining texts. The
texts come from the training files in `--train`, and from the intents that `single_texts.py` leaves
out. The script prints the accuracy with each kind of vector that the encoder has.
"""

import random
from collections import Counter
from pathlib import Path

import numpy as np
from absl import app, flags
from single_texts import JUDGED_ON, is_left_out

from convert_tf import IntentClassifier, SentenceEncoder
from convert_tf.data.utterances import UtteranceFiles
from convert_tf.intents.data import LabelledTexts, few_shot, read_labelled
from convert_tf.intents.encodings import different_kinds, encode_function

_TRAIN = flags.DEFINE_multi_string("train", [], "Training file of intents, tested by itself.")
_UTTERANCES = flags.DEFINE_string(
    "utterances", None, "Pattern for the files of single texts, as in train.sh."
)
_SHOTS = flags.DEFINE_integer("shots", 10, "Number of training examples per intent.")
_DRAWS = flags.DEFINE_integer("draws", 2, "Number of draws. Their mean accuracy is printed.")
_ROWS = flags.DEFINE_integer("rows", 8_000, "Maximum number of texts per file, drawn at random.")


def part(data: LabelledTexts) -> LabelledTexts:
    """Return a random part of the texts, without intents that have too few examples for a test."""
    places = random.Random(5).sample(range(len(data.texts)), min(_ROWS.value, len(data.texts)))
    numbers = Counter(data.labels[i] for i in places)
    places = [i for i in places if numbers[data.labels[i]] >= 2 * _SHOTS.value]
    return LabelledTexts([data.texts[i] for i in places], [data.labels[i] for i in places])


def left_away(pattern: str) -> LabelledTexts:
    folder, ending = Path(pattern).parent, "".join(Path(pattern).suffixes)
    rows = UtteranceFiles([str(folder / f"{name}{ending}") for name in JUDGED_ON])
    found = [row for row in rows if row.label and is_left_out(row._asdict())]
    return LabelledTexts(
        [row.text for row in found], [f"{row.source}|{row.label}" for row in found]
    )


def accuracy(vectors: dict[str, np.ndarray], data: LabelledTexts, seed: int) -> float:
    few = few_shot(data, _SHOTS.value, seed=seed)
    drawn = set(few.texts)
    tested = [i for i, text in enumerate(data.texts) if text not in drawn]
    classifier = IntentClassifier(
        lambda texts: np.stack([vectors[text] for text in texts]),
        head="logistic",
        lexical=None,
        names=None,
    ).fit(*few)
    return float(
        classifier.score([data.texts[i] for i in tested], [data.labels[i] for i in tested])
    )


def main(argv: list[str]) -> None:
    columns = {Path(path).name: part(read_labelled(path)) for path in _TRAIN.value}
    if _UTTERANCES.value:
        columns["left out"] = part(left_away(_UTTERANCES.value))
    for path in argv[1:]:
        encoder = SentenceEncoder(path)
        kinds = different_kinds(encoder)
        for name, data in columns.items():
            texts = list(dict.fromkeys(data.texts))
            for kind in kinds:
                encoded = encode_function(encoder, kind)(texts)
                vectors = dict(zip(texts, encoded, strict=True))
                found = [accuracy(vectors, data, seed) for seed in range(_DRAWS.value)]
                print(f"{path}, {name}, {kind}: {100 * np.mean(found):.1f} %", flush=True)


if __name__ == "__main__":
    app.run(main)
