"""Intent classifiers compared: few-shot regimes, several seeds, mean ± standard deviation."""

import dataclasses
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from convert_tf.checkpoints.released import model_path
from convert_tf.intents.classifier import IntentClassifier
from convert_tf.intents.data import LabelledTexts, few_shot
from convert_tf.intents.encodings import (
    ANY_KIND,
    KINDS_OF_ENCODING,
    IntentEncodings,
    encoder_fingerprint,
    encodes_similarity,
)
from convert_tf.intents.scope import ScopeScores, fit_threshold
from convert_tf.storage.arrays import load_arrays

FULL = "full"
_CHOSEN = ("kind", "names")  # by a classifier: its `kind_` and `names_`

Report = dict[str, Any]


class Classifier(Protocol):
    """What is compared: `classes_` after `fit`, and probabilities of them."""

    classes_: np.ndarray

    def fit(self, texts: Sequence[str], labels: Sequence[str]) -> Any:
        """Trains it."""
        ...

    def predict_proba(self, texts: Sequence[str]) -> np.ndarray:
        """`[texts, classes]`."""
        ...


class Row(NamedTuple):
    """A row of the table.

    Attributes:
      name: of the row.
      make: seed → a new classifier.
      is_seeded: whether the seed changes it; else a regime without a draw is run once.
    """

    name: str
    make: Callable[[int], Classifier]
    is_seeded: bool


class Regime(NamedTuple):
    """So many examples of each intent, from a file of their own or drawn from all.

    Attributes:
      name: `"10"` or `"full"`.
      given: the examples, where they are not drawn.
    """

    name: str
    given: LabelledTexts | None


class BenchmarkData(NamedTuple):
    """What rows are trained and scored on.

    Attributes:
      train: examples in scope.
      test: with `out_of_scope_label` out of scope.
      validation: fits the threshold of out of scope; None for none.
      out_of_scope_label: what marks texts out of scope.
    """

    train: LabelledTexts
    test: LabelledTexts
    validation: LabelledTexts | None
    out_of_scope_label: str


def tfidf_row() -> Row:
    """TF-IDF of words and pairs of words, and logistic regression: scikit-learn's."""

    def make(seed: int) -> Classifier:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline

        return make_pipeline(
            TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
            LogisticRegression(C=10.0, max_iter=1000),
        )

    return Row("TF-IDF + logistic regression", make, False)


def encoder_row(name: str, encoder: Any, head: str, **params: Any) -> Row:
    """A frozen encoder with a head, and words and names by default; encodings are kept."""
    base = IntentClassifier(encoder, head, **params)

    def make(seed: int) -> Classifier:
        from sklearn.base import clone

        return clone(base).set_params(random_state=seed)

    parts = [name, head, *(["words"] if base.lexical else []), *(["names"] if base.names else [])]
    return Row(" + ".join(parts), make, head == "network")


class _FineTuned:
    """A classifier whose encoder is trained along where that helps; its folder goes with it."""

    def __init__(self, checkpoint: str, seed: int):
        self._checkpoint = model_path(checkpoint)
        self._params = {**IntentClassifier(None).get_params(), "random_state": seed}
        del self._params["encoder"]
        self._folder = tempfile.TemporaryDirectory(prefix="convert_tf_finetuned_")

    def fit(self, texts: Sequence[str], labels: Sequence[str]) -> None:
        from convert_tf.intents.finetuning.classifier import finetuned_classifier

        self._classifier = finetuned_classifier(
            self._checkpoint,
            LabelledTexts([*texts], [*labels]),
            None,
            output=f"{self._folder.name}/model",
            params=self._params,
            precision="auto",
            overwrite=False,
        )
        self.classes_, self.kind_ = self._classifier.classes_, self._classifier.kind_
        self.names_ = self._classifier.names_

    def predict_proba(self, texts: Sequence[str]) -> np.ndarray:
        return self._classifier.predict_proba(texts)


def finetuned_row(checkpoint: str) -> Row:
    """What `intent train --finetune` makes of a module or run, with its defaults."""
    return Row(f"{checkpoint} fine-tuned", lambda seed: _FineTuned(checkpoint, seed), True)


def encoder_of_file(path: str) -> Any:
    """An encoder that looks vectors up in a file."""
    try:
        file = load_arrays(path)
        rows = dict(zip(file["texts"].tolist(), file["vectors"], strict=True))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            "Vectors are an .npz file with the arrays texts and vectors, of the same length. "
            f"Received: {path!r} ({error})."
        ) from error

    def encode(texts: Sequence[str]) -> np.ndarray:
        missing = [text for text in texts if text not in rows]
        if missing:
            raise ValueError(
                f"There must be a vector of each text. Received: {path!r} without "
                f"{len(missing)} of {len(texts)}, {missing[0]!r} the first. Make it of all files."
            )
        return np.stack([rows[text] for text in texts])

    return encode


@dataclasses.dataclass(frozen=True)
class KeptEncoder:
    """An encoder of two kinds whose encodings are kept."""

    encode: IntentEncodings
    encode_similarity: IntentEncodings


def kept_encoder(
    encoder: Any, parts: Sequence[LabelledTexts | None], *, cache: str | None, kind: str
) -> Any:
    """An encoder that has encoded all texts of `parts`, or has them from the folder `cache`.

    Args:
      encoder: see `IntentEncodings`.
      parts: texts.
      cache: None for no folder.
      kind: `"auto"` for both kinds, where it has them.
    """
    kinds = [kind]
    if kind == ANY_KIND:
        kinds = [*KINDS_OF_ENCODING][: 2 if encodes_similarity(encoder) else 1]
    first = IntentEncodings(encoder, kind=kinds[0])
    kept = [first, *map(first.of_kind, kinds[1:])]
    for encodings in kept:
        _encode_all(encodings, encoder, parts, cache=cache)
    return KeptEncoder(*kept) if len(kept) > 1 else first


def _encode_all(
    encodings: IntentEncodings,
    encoder: Any,
    parts: Sequence[LabelledTexts | None],
    *,
    cache: str | None,
) -> None:
    kind, path = encodings.kind, None
    if cache is not None and isinstance(encoder, str):
        path = Path(cache) / f"{encoder_fingerprint(encoder)[:16]}-{kind}.npz"
        if path.exists():
            encodings.read(path)
    texts = [text for part in parts if part is not None for text in part.texts]
    encodings(texts)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        encodings.write(path)


def run_benchmark(
    rows: Sequence[Row],
    data: BenchmarkData,
    regimes: Sequence[Regime],
    *,
    seeds: int,
    task: Mapping[str, Any],
    on_row: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Trains each row in each regime with each seed.

    A seed decides which examples are drawn and how a row begins; a run that it does not change is
    made once. The threshold of out of scope is the highest probability's, fitted on `validation`.

    Args:
      rows: what is compared, of different names.
      data: examples.
      regimes: how many of them are trained on.
      seeds: runs of each, from seed 0.
      task: what the examples are, JSON values by name.
      on_row: gets the report after each row.

    Returns:
      `task`, and `rows`, each with `name` and `regimes`: by name `runs`, the metrics of each run
      with `seconds` (of training and predicting), where there are encodings their `kind` and
      whether `names` were examples, and `mean` and `std` of the metrics.

    Raises:
      ValueError: two rows have one name, or an intent has too few examples to draw.
    """
    names = [row.name for row in rows]
    if len(set(names)) < len(names) or seeds < 1:
        raise ValueError(
            "Rows have different names and run with one seed or more. Received: "
            f"{', '.join(names)}, {seeds} seeds."
        )
    report: Report = {"task": dict(task), "rows": []}
    for row in rows:
        found: dict[str, Any] = {}
        for regime in regimes:
            is_drawn = regime.given is None and regime.name != FULL
            runs = []
            for seed in range(seeds if is_drawn or row.is_seeded else 1):
                train = regime.given or data.train
                if is_drawn:
                    train = few_shot(data.train, int(regime.name), seed=seed)
                started = time.perf_counter()
                model = row.make(seed)
                model.fit(train.texts, train.labels)
                scores = _scores(model, data)
                scores["seconds"] = round(time.perf_counter() - started, 2)
                chosen = {name: getattr(model, f"{name}_", None) for name in _CHOSEN}
                runs.append(scores | {name: own for name, own in chosen.items() if own is not None})
            found[regime.name] = {"runs": runs, **_summary(runs)}
            mean = found[regime.name]["mean"]
            print(f"{row.name}, {regime.name}: accuracy {mean['accuracy']:.2%}", flush=True)
        report["rows"].append({"name": row.name, "regimes": found})
        on_row(report)
    return report


def _scores(model: Classifier, data: BenchmarkData) -> dict[str, float]:
    from sklearn.metrics import f1_score

    labels = np.array(data.test.labels)
    is_in = labels != data.out_of_scope_label
    probabilities = model.predict_proba(data.test.texts)
    predicted = model.classes_[probabilities.argmax(axis=1)]
    is_right = predicted == labels
    scores = {
        "accuracy": float(is_right[is_in].mean()),
        "macro_f1": float(
            f1_score(
                labels[is_in],
                predicted[is_in],
                labels=np.unique(labels[is_in]),
                average="macro",
                zero_division=0,
            )
        ),
    }
    if data.validation is not None and not is_in.all():
        threshold = fit_threshold(_validation_scores(model, data), rejected_share=0.05)
        is_kept = probabilities.max(axis=1) >= threshold
        scores["in_scope_accuracy"] = float((is_right & is_kept)[is_in].mean())
        scores["out_of_scope_recall"] = float(1 - is_kept[~is_in].mean())
    return scores


def _validation_scores(model: Classifier, data: BenchmarkData) -> ScopeScores:
    assert data.validation is not None
    labels = np.array(data.validation.labels)
    is_in = labels != data.out_of_scope_label
    probabilities = model.predict_proba(data.validation.texts)
    predicted = probabilities.argmax(axis=1)
    is_right = model.classes_[predicted] == labels
    return ScopeScores.of(probabilities.max(axis=1), predicted, is_right, is_in)


def _summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    names = [name for name in runs[0] if name not in _CHOSEN]
    values = {name: np.array([run[name] for run in runs]) for name in names}
    return {
        "mean": {name: float(own.mean()) for name, own in values.items()},
        # Of the runs there are, as numpy's std and PolyAI's benchmark: 0 for one.
        "std": {name: float(own.std()) for name, own in values.items()},
    }
