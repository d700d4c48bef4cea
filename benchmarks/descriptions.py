"""Measure the accuracy of classifiers that are trained on intent names instead of examples.

```
python benchmarks/descriptions.py --test banking77.test.csv --encoder hub_modules/convert/2
python benchmarks/descriptions.py --test banking77.test.csv --encoder hub_modules/convert/2 \
    --train banking77.train_5shot.csv
```

The names of the intents serve as their descriptions. The script trains classifiers with
`IntentClassifier.from_descriptions`: one for each combination of an encoding, a head, and whether
the word model is used. Each row of its output is one classifier. With `--train`, the examples in
that file are added to the descriptions, and further rows use only the examples.

The rows called `nearest` pick the description with the highest cosine, without training. They also
show how often the correct description is among the best few. An assistant that chooses among tools
can offer those few to a language model.
`--heads ""` prints only these rows.
"""

import csv
import itertools

import numpy as np
from absl import app, flags
from training_runs import mean_and_deviation

from convert_tf import IntentClassifier, SentenceEncoder

_TEST = flags.DEFINE_string("test", None, "CSV file of texts and labels.", required=True)
_TRAIN = flags.DEFINE_string("train", None, "CSV file of examples to add to the descriptions.")
_ENCODER = flags.DEFINE_string("encoder", None, "Folder of a module.", required=True)
_HEADS = flags.DEFINE_list("heads", ["network", "logistic"], "Heads to train.")
_SEEDS = flags.DEFINE_integer("seeds", 3, "Number of seeds; the mean over them is printed.")

_AMONG = (1, 3, 5, 10)
KINDS = {"sentence": SentenceEncoder.encode, "similarity": SentenceEncoder.encode_similarity}


def examples(path: str) -> tuple[list[str], list[str]]:
    """Return the texts and labels of a CSV file."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    return [row["text"].strip() for row in rows], [row["label"] for row in rows]


def main(argv: list[str]) -> None:
    del argv
    texts, labels = examples(_TEST.value)
    few = examples(_TRAIN.value) if _TRAIN.value else ([], [])
    descriptions = {
        label: label.replace("_", " ").replace("?", "").lower() for label in sorted({*labels})
    }
    encoder = SentenceEncoder(_ENCODER.value)
    needed = list(dict.fromkeys([*descriptions.values(), *few[0], *texts]))
    for kind, encode in KINDS.items():
        try:
            vectors = dict(zip(needed, encode(encoder, needed), strict=True))
        except ValueError as error:  # the module has no similarity vectors
            print(error)
            continue

        def look_up(texts, vectors=vectors):
            return np.stack([vectors[text] for text in texts])

        own, known = look_up(texts), look_up(descriptions.values())
        cosines = (
            own
            / np.linalg.norm(own, axis=1, keepdims=True)
            @ (known / np.linalg.norm(known, axis=1, keepdims=True)).T
        )
        nearest = np.array(list(descriptions))[np.argsort(-cosines, axis=1, kind="stable")]
        is_right = nearest == np.array(labels)[:, None]
        shares = (100 * is_right[:, :k].any(axis=1).mean() for k in _AMONG)
        places = zip(_AMONG, shares, strict=True)
        among = ", ".join(f"correct one among the best {k}: {share:.1f} %" for k, share in places)
        print(f"{kind}, nearest of {len(descriptions)} descriptions: {among}", flush=True)
        for head, lexical in itertools.product(_HEADS.value, (None, "auto")):
            seeds = range(_SEEDS.value if head == "network" else 1)
            options = {"head": head, "lexical": lexical}
            found = {"descriptions": [], "examples alone": []}
            for seed in seeds:
                both = IntentClassifier.from_descriptions(
                    descriptions, look_up, examples=few, random_state=seed, **options
                )
                found["descriptions"].append(np.mean(both.predict(texts) == labels))
                if few[0]:
                    alone = IntentClassifier(look_up, random_state=seed, names=None, **options)
                    alone.fit(*few)
                    found["examples alone"].append(np.mean(alone.predict(texts) == labels))
            for what, accuracies in found.items():
                if accuracies:
                    words = "word model" if lexical else "no word model"
                    share = mean_and_deviation([100 * accuracy for accuracy in accuracies], 1)
                    print(f"{kind}, {head}, {words}, {what}: {share} %", flush=True)


if __name__ == "__main__":
    app.run(main)
