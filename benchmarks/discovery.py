"""How well messages of intents that a model does not know are grouped.

```
python benchmarks/discovery.py --encoder convert_small --train train_10shot.csv --test test.csv
```

First all texts of --test are grouped, once with the right number of groups and once with the chosen
one. Then a classifier is trained on the examples of --known of the intents. What it does not answer
surely is grouped, and scored on the texts of the intents that it does not know. --encoder minilm
needs what benchmarks/minilm.py needs. Scores are percentages, as in papers on intent discovery.
"""

import numpy as np
from absl import app, flags
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, confusion_matrix, normalized_mutual_info_score

from convert_tf import IntentClassifier
from convert_tf.intents.data import read_labelled
from convert_tf.intents.encodings import IntentEncodings, encodes
from convert_tf.intents.logs import MIN_CONFIDENCE, group_vectors, unsure

_ENCODER = flags.DEFINE_string("encoder", "convert_small", "A module, an .onnx file or minilm.")
_TRAIN = flags.DEFINE_string("train", None, "Examples of the intents.", required=True)
_TEST = flags.DEFINE_string("test", None, "Messages with their intents.", required=True)
_KNOWN = flags.DEFINE_float("known", 0.75, "Share of the intents that the model knows.")
_SEEDS = flags.DEFINE_integer("seeds", 3, "How often intents are drawn.")


def scores(labels: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """NMI, ARI and accuracy when each intent is matched with one group, in percent."""
    _, numbers = np.unique(labels, return_inverse=True)
    counts = confusion_matrix(numbers, groups)
    accuracy = counts[linear_sum_assignment(-counts)].sum() / len(labels)
    nmi, ari = normalized_mutual_info_score(labels, groups), adjusted_rand_score(labels, groups)
    return 100 * np.array([nmi, ari, accuracy])


def show(what: str, found: np.ndarray, groups: float) -> None:
    nmi, ari, accuracy = found
    print(f"{what:35}{groups:6.1f} groups: NMI {nmi:.1f}, ARI {ari:.1f}, ACC {accuracy:.1f}")


def main(argv: list[str]) -> None:
    del argv
    encoder = _ENCODER.value
    if encoder == "minilm":
        from minilm_package import minilm_folder
        from sentence_transformers import SentenceTransformer

        encoder = SentenceTransformer(str(minilm_folder()), device="cpu").encode
    kind = "similarity" if encodes(encoder, "similarity") else "sentence"
    encode = IntentEncodings(encoder, kind=kind)
    texts, labels = read_labelled(_TEST.value)
    vectors, intents = encode(texts), np.array(labels)
    number = len({*labels})
    kmeans = KMeans(number, n_init=10, random_state=0).fit_predict(vectors)
    show("all, k-means, right number", scores(intents, kmeans), number)
    for what, wanted in (("right number", number), ("chosen number", None)):
        groups, centres = group_vectors(vectors, wanted)
        show(f"all, {what}", scores(intents, groups), len(centres))
    rows = []
    for seed in range(_SEEDS.value):
        names = np.random.default_rng(seed).permutation(sorted({*labels}))
        known = names[: round(_KNOWN.value * number)]
        examples = read_labelled(_TRAIN.value)
        own = [row for row in zip(*examples, strict=True) if row[1] in known]
        classifier = IntentClassifier(encode, names=None).fit(*zip(*own, strict=True))
        is_unsure, is_new = unsure(classifier, texts, MIN_CONFIDENCE), ~np.isin(intents, known)
        groups, centres = group_vectors(vectors[is_unsure])
        inside = is_new[is_unsure]
        found = scores(intents[is_unsure][inside], groups[inside])
        shares = [100 * is_unsure[is_new].mean(), 100 * is_unsure[~is_new].mean()]
        rows.append([*found, len(centres), number - len(known), *shares])
    *found, groups, wanted, new, old = np.mean(rows, axis=0)
    show(f"{wanted:.0f} new intents, chosen number", np.array(found), groups)
    print(f"unsure: {new:.1f} % of messages with new intents, {old:.1f} % with known intents")


if __name__ == "__main__":
    app.run(main)
