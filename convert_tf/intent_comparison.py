"""The benchmark command: rows of modules, vectors of others and baselines."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from convert_tf.intent_benchmark import (
    FULL,
    BenchmarkData,
    Regime,
    Row,
    encoder_row,
    run_benchmark,
    tfidf_row,
)
from convert_tf.intent_benchmark_report import JSON_FILE, merged, table, write_benchmark
from convert_tf.intent_classifier import HEADS
from convert_tf.intent_data import LabelledTexts, read_files
from convert_tf.intent_encodings import IntentEncodings, fingerprint


def benchmark(
    *,
    train: Sequence[str],
    test: Sequence[str],
    validation: Sequence[str] = (),
    shots: Sequence[str] = ("10", FULL),
    shots_files: Sequence[str] = (),
    modules: Sequence[str] = (),
    vectors: Sequence[str] = (),
    untrained: str | None = None,
    has_tfidf: bool = False,
    heads: Sequence[str] = ("network",),
    seeds: int = 3,
    out_of_scope_label: str = "oos",
    output: str | None = None,
    cache: str | None = None,
) -> dict[str, Any]:
    """Compares encoders and heads; prints the table, and writes JSON, Markdown and PNG.

    Args:
      train: files that examples are drawn from.
      test: files that are scored on.
      validation: files that the threshold of out of scope is fitted on.
      shots: regimes: examples of each intent, or `"full"`.
      shots_files: `N=FILE`, the examples of regime N.
      modules: rows.
      vectors: `NAME=FILE.npz`, rows of encodings made elsewhere: arrays `texts` and `vectors`.
      untrained: checkpoint whose network with initial weights is a row.
      has_tfidf: whether TF-IDF + logistic regression is a row.
      heads: of encoders.
      seeds: runs.
      out_of_scope_label: label of texts without an intent.
      output: folder of the results; rows there of the same examples are kept.
      cache: folder where encodings of modules are kept for the next command.

    Raises:
      ValueError: an argument is unusable.
    """
    given = dict(_named(each, "--shots_file") for each in shots_files)
    wrong = [name for name in shots if name != FULL and not name.isdigit()]
    wrong += sorted({*given} - {*shots})
    wrong += [head for head in heads if head not in HEADS]
    if wrong:
        raise ValueError(
            f"--shots are numbers or {FULL}, --shots_file is for one of them, and --heads are of "
            f"{', '.join(HEADS)}. Received: {', '.join(wrong)}."
        )
    regimes = [Regime(name, read_files([given[name]]) if name in given else None) for name in shots]
    data = BenchmarkData(
        read_files(train),
        read_files(test),
        read_files(validation) if validation else None,
        out_of_scope_label,
    )
    unseen = sorted({*data.test.labels} - {*data.train.labels, out_of_scope_label})
    if unseen:
        raise ValueError(
            "Texts are tested whose intents can be trained. Received: "
            f"{', '.join(map(repr, unseen[:5]))} in --test alone. Leave them out, or label them "
            f"{out_of_scope_label!r} (out of scope)."
        )
    encoders: list[tuple[str, Any]] = [(path, path) for path in modules]
    named = [_named(each, "--vectors") for each in vectors]
    encoders += [(name, _stored_vectors(path)) for name, path in named]
    if untrained is not None:
        from convert_tf.intent_finetuning import CheckpointSentences

        encoders.append(
            (f"untrained {untrained}", CheckpointSentences(untrained, is_trained=False).encode)
        )
    rows: list[Row] = [tfidf_row()] if has_tfidf else []
    for name, encoder in encoders:
        kept = _kept_encodings(encoder, cache, [data.train, data.test, data.validation])
        rows += [encoder_row(name, kept, head) for head in heads]
    if not rows:
        raise ValueError(
            "There must be a row. Received: none. Give --module, --vectors, --untrained or --tfidf."
        )
    task = {
        "train_examples": len(data.train.texts),
        "test_examples": sum(label != out_of_scope_label for label in data.test.labels),
        "intents": len({*data.train.labels} - {out_of_scope_label}),
        "files": [os.path.basename(path) for path in [*train, *test, *validation]],
    }
    if output is not None:
        merged({"task": task, "rows": []}, Path(output) / JSON_FILE)  # says at once what is there

    def write(report: Mapping[str, Any]) -> None:
        if output is not None:
            write_benchmark(dict(report), output)

    report = run_benchmark(rows, data, regimes, seeds=seeds, task=task, on_row=write)
    if output is not None:
        report = merged(report, Path(output) / JSON_FILE)
    print(table(report))
    return report


def _named(value: str, flag: str) -> tuple[str, str]:
    name, separator, path = value.partition("=")
    if not (name and separator and path):
        raise ValueError(f"{flag} is NAME=FILE. Received: {value!r}.")
    return name, path


def _stored_vectors(path: str) -> Any:
    """An encoder that looks vectors up in a file."""
    try:
        with np.load(path) as file:
            rows = dict(zip(file["texts"].tolist(), file["vectors"], strict=True))
    except (OSError, ValueError, KeyError) as error:
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


def _kept_encodings(
    encoder: Any, cache: str | None, parts: Sequence[LabelledTexts | None]
) -> IntentEncodings:
    """The encodings of all texts, from the cache where it has them."""
    encodings = IntentEncodings(encoder)
    path = None
    if cache is not None and isinstance(encoder, str):
        path = Path(cache) / f"{fingerprint(encoder)[:16]}.npz"
        if path.exists():
            encodings.read(path)
    texts = [text for part in parts if part is not None for text in part.texts]
    encodings(texts)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        encodings.write(path)
    return encodings
