"""Measure how well messages of unknown intents are grouped.

```
python benchmarks/discovery.py --encoder convert_small --test test.csv
```

All texts of --test are grouped twice: once with the true number of intents and once with the number
of groups that the program chooses. The scores are percentages, as in papers on intent discovery.
benchmarks/unknown_intents.py measures groups of messages that a classifier is unsure about.
--encoder minilm needs the packages that benchmarks/minilm.py needs.
"""

import numpy as np
from absl import app, flags
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, confusion_matrix, normalized_mutual_info_score

from convert_tf.intents.data import read_labelled
from convert_tf.intents.discover import group_vectors
from convert_tf.intents.encodings import IntentEncodings, encodes

_ENCODER = flags.DEFINE_string("encoder", "convert_small", "A module, an .onnx file or minilm.")
_TEST = flags.DEFINE_string("test", None, "Messages with their intents.", required=True)


def scores(labels: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return NMI, ARI and accuracy in percent.

    The accuracy is that of the best one-to-one matching of intents and groups.
    """
    _, numbers = np.unique(labels, return_inverse=True)
    counts = confusion_matrix(numbers, groups)
    accuracy = counts[linear_sum_assignment(-counts)].sum() / len(labels)
    nmi, ari = normalized_mutual_info_score(labels, groups), adjusted_rand_score(labels, groups)
    return 100 * np.array([nmi, ari, accuracy])


def show(what: str, found: np.ndarray, groups: float) -> None:
    """Print a row of scores."""
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


if __name__ == "__main__":
    app.run(main)
