"""What `python -m convert_tf.intent` does to train, evaluate and predict."""

import json
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from convert_tf.files import write_file
from convert_tf.intent_classifier import IntentClassifier
from convert_tf.intent_data import LabelledTexts, held_out, read_files
from convert_tf.intent_model import load_classifier, save_classifier
from convert_tf.intent_report import confusion_chart, evaluate_classifier, report_text

REPORT_FILE = "evaluation.json"
CHART_FILE = "confusions.png"
_LINES_AT_ONCE = 256


def train(
    modules: Sequence[str],
    data: Sequence[str],
    *,
    output: str,
    params: Mapping[str, Any],
    validation: Sequence[str] = (),
    overwrite: bool = False,
    checkpoint: str | None = None,
    finetuning: Mapping[str, Any] | None = None,
    serving_module: str | None = None,
) -> IntentClassifier:
    """Trains a classifier and writes its folder.

    Args:
      modules: modules whose encodings are concatenated; none with `finetuning`.
      data: files of examples.
      output: the folder.
      params: of `IntentClassifier`.
      validation: files that choose what is chosen.
      overwrite: whether a folder of that name is replaced.
      checkpoint: model directory or module to fine-tune.
      finetuning: fields of `FinetuneOptions`; None freezes the encoder.
      serving_module: folder of a SavedModel from strings to probabilities.

    Raises:
      ValueError: the arguments do not fit each other, or the data are unusable.
    """
    if (finetuning is None) == (not modules) or (finetuning is None) != (checkpoint is None):
        raise ValueError(
            "An encoder is a --module, or with --finetune a --checkpoint. Received: "
            f"{len(modules)} modules, checkpoint {checkpoint!r} and "
            f"{'no ' if finetuning is None else ''}--finetune."
        )
    for path in [output, *([serving_module] if serving_module else [])]:
        if os.path.exists(path) and not (overwrite and path == output):
            raise ValueError(
                f"A model is written to a new folder. Received: {path!r}, which exists. Choose "
                "another, or pass --overwrite to replace --output."
            )
    files = [module for module in modules if not os.path.isdir(module)]
    if serving_module and files:
        raise ValueError(
            f"A serving module is made of modules. Received: {files[0]!r}, which is no folder. "
            "Train with a module's folder, or leave --serving_module out."
        )
    examples = read_files(data)
    checked = read_files(validation) if validation else None
    if finetuning is not None and checkpoint is not None:
        classifier = _finetuned(
            checkpoint, examples, checked, output=output, params=params, options=finetuning,
            overwrite=overwrite,
        )  # fmt: skip
    else:
        encoder = modules[0] if len(modules) == 1 else list(modules)
        classifier = IntentClassifier(encoder, **params)
        _fit(classifier, examples, checked)
        save_classifier(classifier, output, overwrite=overwrite)
    print(
        f"wrote {output}: {len(classifier.classes_)} intents, {len(examples.texts):,} examples"
        + (f", chosen {classifier.best_params_}" if classifier.best_params_ else "")
        + ("" if classifier.threshold_ is None else f", threshold {classifier.threshold_:.3f}")
    )
    if serving_module:
        from convert_tf.intent_serving import export_serving

        export_serving(classifier, serving_module)
        print(f"wrote {serving_module}")
    return classifier


def _fit(
    classifier: IntentClassifier, examples: LabelledTexts, validation: LabelledTexts | None
) -> None:
    """Prints what it warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        classifier.fit(*examples, validation=validation)
    for warning in caught:
        if issubclass(warning.category, UserWarning):
            print(f"note: {warning.message}", file=sys.stderr)


def _finetuned(
    checkpoint: str,
    examples: LabelledTexts,
    validation: LabelledTexts | None,
    *,
    output: str,
    params: Mapping[str, Any],
    options: Mapping[str, Any],
    overwrite: bool,
) -> IntentClassifier:
    """A classifier whose encoder is trained too; its module is written beside its head."""
    from convert_tf.hub import export_module
    from convert_tf.intent_finetuning import CheckpointSentences, FinetuneOptions, finetune
    from convert_tf.trainer import choose_precision

    outside = params["out_of_scope_label"]
    is_in = np.array([label != outside for label in examples.labels])
    if validation is None:
        chosen = held_out(examples.labels, 0.1, seed=params["random_state"]) & is_in
    else:
        chosen = np.zeros(len(is_in), bool)
    trained = _selected(examples, ~chosen)
    # Parts that the encoder was trained on would make a threshold too high.
    checked = validation or _selected(examples, chosen | ~is_in)
    print(f"training a head on the frozen encodings of {checkpoint}")
    unscoped = {**params, "out_of_scope": None, "threshold": None}
    frozen = IntentClassifier(CheckpointSentences(checkpoint), **unscoped)
    _fit(frozen, trained, checked)

    def numbered(data: LabelledTexts) -> tuple[list[str], np.ndarray]:
        own = _selected(data, np.array([label != outside for label in data.labels], bool))
        return own.texts, np.searchsorted(frozen.classes_, own.labels)

    with tempfile.TemporaryDirectory() as scratch:
        tuned = finetune(
            checkpoint,
            frozen.head_,
            train=numbered(trained),
            validation=numbered(checked),
            output=os.path.join(scratch, "checkpoint"),
            options=FinetuneOptions(
                **{**options, "precision": choose_precision(options["precision"])},
                seed=params["random_state"],
            ),
        )
        facts = tuned.facts
        print(
            f"fine-tuned: validation accuracy {facts['validation_accuracy_before']:.2%} → "
            f"{facts['validation_accuracy_after']:.2%} on {facts['validation_examples']} examples, "
            f"best after epoch {facts['best_epoch']} of {facts['epochs']}; "
            f"{facts['trained_weights']:,} weights of the encoder moved by "
            f"{facts['relative_change']:.2%} of their length. Its context and response encodings "
            "were not trained along: use the original module to rank responses."
        )
        module = os.path.join(scratch, "module")
        export_module(os.path.join(scratch, "checkpoint"), module)
        classifier = IntentClassifier(module, **params)
        classifier.adopt_head(tuned.head, *trained, validation=checked)
        save_classifier(
            classifier, output, overwrite=overwrite, module=module, facts={"finetuning": facts}
        )
    return load_classifier(output)


def _selected(data: LabelledTexts, chosen: np.ndarray) -> LabelledTexts:
    places = np.flatnonzero(chosen)
    return LabelledTexts([data.texts[i] for i in places], [data.labels[i] for i in places])


def _loaded(model: str, module: Sequence[str]) -> IntentClassifier:
    encoder = None if not module else module[0] if len(module) == 1 else list(module)
    return load_classifier(model, encoder=encoder)


def evaluate(
    model: str, data: Sequence[str], *, module: Sequence[str] = (), output: str | None = None
) -> dict[str, Any]:
    """Scores a classifier and prints what it confuses; with `output`, JSON and PNG too.

    Raises:
      ValueError: the model or the data are unusable, or have other intents.
    """
    classifier = _loaded(model, module)
    report = evaluate_classifier(classifier, read_files(data))
    print(report_text(report))
    if output is not None:
        Path(output).mkdir(parents=True, exist_ok=True)
        write_file(Path(output) / REPORT_FILE, json.dumps(report, indent=2) + "\n")
        write_file(Path(output) / CHART_FILE, confusion_chart(report))
        print(f"wrote {output}: {REPORT_FILE}, {CHART_FILE}")
    return report


def predict(model: str, source: str, *, module: Sequence[str] = (), top_k: int = 1) -> None:
    """Prints a JSON object for each line: `text`, `intent` (null out of scope), `confidence`, and
    `intents` where `top_k` is more than 1. An empty line has no intent.

    Raises:
      ValueError: the model is unusable, or a line is no UTF-8.
    """
    classifier = _loaded(model, module)
    with open(0 if source == "-" else source, encoding="utf-8-sig", closefd=source != "-") as file:
        for texts in _line_chunks(file, source):
            for answer in _answers(classifier, texts, top_k):
                print(json.dumps(answer, ensure_ascii=False))
            sys.stdout.flush()


def _line_chunks(file: TextIO, source: str) -> Iterator[list[str]]:
    size = 1 if file.isatty() else _LINES_AT_ONCE  # someone who types waits for an answer
    try:
        while lines := [line.rstrip("\r\n") for line in islice(file, size)]:
            yield lines
    except UnicodeDecodeError as error:
        raise ValueError(
            f"Texts are read as UTF-8. Received: {source!r}, which is not ({error}). Convert it."
        ) from error


def _answers(
    classifier: IntentClassifier, texts: Sequence[str], top_k: int
) -> Iterator[dict[str, Any]]:
    filled = [text for text in texts if text.strip()]
    if filled:
        found = iter(zip(classifier.predict(filled), classifier.predict_proba(filled), strict=True))
    for text in texts:
        if not text.strip():
            yield {"text": text, "intent": None, "confidence": 0.0}
            continue
        intent, probabilities = next(found)
        best = np.argsort(-probabilities, kind="stable")[:top_k]
        labels = [str(classifier.classes_[i]) for i in best]
        shares = [round(float(probabilities[i]), 4) for i in best]
        answer: dict[str, Any] = {
            "text": text,
            "intent": None if intent is None else str(intent),
            "confidence": shares[0],
        }
        if top_k > 1:
            answer["intents"] = dict(zip(labels, shares, strict=True))
        yield answer
