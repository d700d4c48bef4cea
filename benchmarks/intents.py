"""Compare encoders and heads on a few examples per intent, over several random draws.

```
python benchmarks/intents.py --encoder convert --train train.csv --test test.csv \
    --shots 5,10,30,full --seeds 3 --output intents.json
```

The files have the formats that `convert-tf intent train` reads. The tables have a row for each
encoder and each of `--heads`. Other flags add rows. They show accuracy and macro F1 as mean ±
standard deviation (n − 1) over the seeds, in percent. With `--validation`, they also show in-scope
accuracy and out-of-scope recall for a threshold on the highest probability. `--output` stores the
figures of every run as JSON.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from absl import app, flags
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.pipeline import make_pipeline
from training_runs import mean_and_deviation

from convert_tf import IntentClassifier, SentenceEncoder
from convert_tf.checkpoints.released import model_path
from convert_tf.intents.cross_validation import ScopeScores, fit_threshold
from convert_tf.intents.data import LabelledTexts, few_shot, read_files
from convert_tf.storage.json_text import written_json
from convert_tf.storage.messages import aligned

FULL = "full"
_METRICS = ("accuracy", "macro_f1", "in_scope_accuracy", "out_of_scope_recall", "seconds")

_ENCODER = flags.DEFINE_multi_string("encoder", [], "A released name, folder or .onnx file.")
_TRAIN = flags.DEFINE_list("train", None, "Files to draw examples from.", required=True)
_TEST = flags.DEFINE_list("test", None, "Files to test on.", required=True)
_VALIDATION = flags.DEFINE_list("validation", [], "Files to fit the out-of-scope threshold on.")
_OUTPUT = flags.DEFINE_string("output", None, "JSON file to write.")
_SHOTS = flags.DEFINE_list("shots", ["10", FULL], "Examples per intent, or full.")
_SHOTS_FILE = flags.DEFINE_multi_string("shots_file", [], "N=FILE: examples to use for --shots N.")
_SEEDS = flags.DEFINE_integer("seeds", 3, "Runs per row.", lower_bound=1)
_HEADS = flags.DEFINE_list("heads", ["network"], "Heads: network, logistic or both.")
_KIND = flags.DEFINE_string("kind", "auto", "Kind of encodings; see IntentClassifier.")
_LABEL = flags.DEFINE_string("out_of_scope_label", "oos", "Label of texts without an intent.")
_LEXICAL = flags.DEFINE_boolean("lexical", False, "Add rows with the word model.")
_NAMES = flags.DEFINE_boolean("names", False, "Add rows that also use intent names.")
_TFIDF = flags.DEFINE_boolean("tfidf", False, "Add a row for TF-IDF and logistic regression.")
_FINETUNE = flags.DEFINE_multi_string("finetune", [], "Add a row for this encoder, fine-tuned.")
_UNTRAINED = flags.DEFINE_string("untrained", None, "Add rows for an untrained copy of this run.")
_VECTORS = flags.DEFINE_multi_string(
    "vectors", [], "NAME=FILE.npz: add rows for stored vectors (benchmarks/minilm_vectors.py)."
)


class FineTuned:
    """A classifier that trains like `convert-tf intent train --finetune`."""

    def __init__(self, checkpoint: str, seed: int):
        self._checkpoint = model_path(checkpoint, wants_module=True)
        self._params = {**IntentClassifier(None).get_params(), "random_state": seed}
        del self._params["encoder"]
        self._folder = tempfile.TemporaryDirectory()

    def fit(self, texts: list[str], labels: list[str]) -> "FineTuned":
        from convert_tf.intents.finetuning import finetuned_classifier

        self._classifier = finetuned_classifier(
            self._checkpoint,
            LabelledTexts(texts, labels),
            None,
            output=f"{self._folder.name}/model",
            params=self._params,
            precision="auto",
            overwrite=False,
        )
        self.classes_ = self._classifier.classes_
        return self

    def predict_proba(self, texts: list[str]) -> np.ndarray:
        return self._classifier.predict_proba(texts)


def named(values: list[str]) -> list[tuple[str, str]]:
    """Split flags of the form `NAME=FILE` into pairs of name and file."""
    return [(name, path) for name, _, path in (value.partition("=") for value in values)]


def looked_up(path: str) -> Callable[[list[str]], np.ndarray]:
    """Return an encoder that looks up the vectors of texts in a file."""
    with np.load(path) as file:
        rows = dict(zip(file["texts"].tolist(), file["vectors"], strict=True))
    return lambda texts: np.stack([rows[text] for text in texts])


def untrained(folder: str) -> str:
    """Write an untrained run with the configuration of another run, and return its folder."""
    # Imported here, because this needs the extra [train].
    from convert_tf.checkpoints.configs import load_config
    from convert_tf.checkpoints.folder import save_checkpoint
    from convert_tf.checkpoints.vocabulary import vocabulary_path
    from convert_tf.models.encoder import DualEncoder
    from convert_tf.numerics.initializers import set_seed

    config, output = load_config(folder), tempfile.mkdtemp()
    set_seed(0)
    vocabulary = vocabulary_path(folder, config)
    save_checkpoint(output, DualEncoder(config), vocabulary=vocabulary, training={})
    return output


def rows() -> dict[str, Callable[[int], Any]]:
    """Return for each row of the table a function that makes a new classifier from a seed."""
    found: dict[str, Callable[[int], Any]] = {}
    if _TFIDF.value:
        tfidf = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
        regression = LogisticRegression(C=10.0, max_iter=1000)
        found["TF-IDF + logistic regression"] = lambda seed: make_pipeline(tfidf, regression)
    encoders: list[tuple[str, Any]] = [(name, name) for name in _ENCODER.value]
    encoders += [(name, looked_up(path)) for name, path in named(_VECTORS.value)]
    if _UNTRAINED.value:
        encoder = SentenceEncoder(untrained(_UNTRAINED.value))
        encoders.append((f"untrained {_UNTRAINED.value}", encoder))
    for name, encoder in encoders:
        base = IntentClassifier(
            encoder, kind=_KIND.value if isinstance(encoder, str) else "sentence"
        )
        variants: list[dict[str, Any]] = [{"lexical": None, "names": None}]
        variants += [{"names": None}] if _LEXICAL.value else []
        if _NAMES.value and isinstance(encoder, str):  # files lack vectors of intent names
            variants.append({} if _LEXICAL.value else {"lexical": None})
        for head in _HEADS.value:
            for variant in variants:
                parts = [name, head]
                parts += ["words"] if "lexical" not in variant else []
                parts += ["names"] if "names" not in variant else []
                # Clones share the encodings of `base`.
                model = clone(base).set_params(head=head, **variant)
                found[" + ".join(parts)] = lambda seed, model=model: clone(model).set_params(
                    random_state=seed
                )
    for name in _FINETUNE.value:
        found[f"{name} fine-tuned"] = lambda seed, name=name: FineTuned(name, seed)
    return found


def scores(model: Any, test: LabelledTexts, validation: LabelledTexts | None) -> dict[str, float]:
    """Return the scores of a fitted classifier on test texts, as shares.

    Args:
      model: the classifier.
      test: texts to score.
      validation: texts to fit the out-of-scope threshold on; None to skip its scores.
    """
    labels = np.array(test.labels)
    is_in = labels != _LABEL.value
    probabilities = model.predict_proba(test.texts)
    predicted = model.classes_[probabilities.argmax(axis=1)]
    known = np.unique(labels[is_in])
    f1 = f1_score(labels[is_in], predicted[is_in], labels=known, average="macro", zero_division=0)
    found = {"accuracy": float((predicted == labels)[is_in].mean()), "macro_f1": float(f1)}
    if validation is not None and not is_in.all():
        own = np.array(validation.labels)
        shares = model.predict_proba(validation.texts)
        best = shares.argmax(axis=1)
        limits = ScopeScores(
            shares.max(axis=1), best, model.classes_[best] == own, own != _LABEL.value
        )
        is_kept = probabilities.max(axis=1) >= fit_threshold(limits)
        found["in_scope_accuracy"] = float(((predicted == labels) & is_kept)[is_in].mean())
        found["out_of_scope_recall"] = float(1 - is_kept[~is_in].mean())
    return found


def table(results: dict[str, dict[str, list[dict[str, float]]]]) -> str:
    """Format the tables: mean ± standard deviation of each metric by row and number of shots."""
    tables = []
    for metric in _METRICS:
        lines = [[metric.replace("_", " "), *_SHOTS.value]]
        for name, regimes in results.items():
            cells = []
            for runs in regimes.values():
                scale = 1 if metric == "seconds" else 100
                values = [scale * run[metric] for run in runs if metric in run]
                cells.append(mean_and_deviation(values, 1) if len(values) else "")
            lines.append([name, *cells])
        if any(lines[1][1:]):
            tables.append(lines)
    return aligned(tables)


def main(argv: list[str]) -> None:
    del argv
    train, test = read_files(_TRAIN.value), read_files(_TEST.value)
    validation = read_files(_VALIDATION.value) if _VALIDATION.value else None
    given = {shots: read_files([path]) for shots, path in named(_SHOTS_FILE.value)}
    results: dict[str, dict[str, list[dict[str, float]]]] = {}
    for name, make in rows().items():
        for shots in _SHOTS.value:
            runs = results.setdefault(name, {}).setdefault(shots, [])
            for seed in range(_SEEDS.value):
                examples = given.get(shots, train)
                if shots not in given and shots != FULL:
                    examples = few_shot(train, int(shots), seed=seed)
                started = time.perf_counter()
                model = make(seed).fit(examples.texts, examples.labels)
                run = scores(model, test, validation)
                runs.append({**run, "seconds": time.perf_counter() - started})
            accuracy = np.mean([run["accuracy"] for run in runs])
            print(f"{name}, {shots}: accuracy {accuracy:.2%}", flush=True)
        if _OUTPUT.value:
            Path(_OUTPUT.value).write_text(written_json(results), encoding="utf-8")
    print(table(results))


if __name__ == "__main__":
    app.run(main)
