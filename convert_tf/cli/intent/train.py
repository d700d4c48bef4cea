r"""Trains an intent classifier on frozen encodings, or fine-tunes the encoder, too.

```
convert-tf intent train --data train.csv --output model/
convert-tf intent train --encoder convert --finetune --data train.csv --output model/
convert-tf intent train --label_separator=+ --data train.csv --output model/
```

Data are CSV files with `text` and `label` columns, or Rasa's `nlu.yml`.

Reference: arXiv 2003.04807; arXiv 1911.03688 §3.1, §4.4.
"""

import os
from typing import TYPE_CHECKING, Any

from convert_tf.checkpoints.released import ONNX_SUFFIX
from convert_tf.cli.flags import (
    DEFAULT_ENCODER,
    NEEDED,
    Define,
    check_read,
    define_encoder,
    one_or_list,
)
from convert_tf.config.base import PRECISIONS
from convert_tf.intents.encodings import ANY_KIND, KINDS_OF_ENCODING
from convert_tf.intents.head import LOGISTIC_C
from convert_tf.intents.heldout import LEXICAL
from convert_tf.intents.names import NAMES
from convert_tf.intents.scope import KINDS
from convert_tf.intents.tuning import GRIDS, HEADS, OPTIONS
from convert_tf.storage.files import only_writer

if TYPE_CHECKING:
    from convert_tf.intents.classifier import IntentClassifier

_NETWORK = tuple(name for name in OPTIONS["network"] if name != "patience")
# What a classifier of several intents has not.
_OF_ONE_INTENT = (
    "head", *OPTIONS["network"], "tune", "validation", "out_of_scope", "out_of_scope_label",
    "finetune", "precision", "serving_module", "names",
)  # fmt: skip


def define_flags(define: Define) -> None:
    define_encoder(
        define,
        [DEFAULT_ENCODER],
        text="a released name, the folder of a run or of a module, or an .onnx file. The vectors "
        "of several are joined.",
        repeats=True,
    )
    define(
        "kind",
        ANY_KIND,
        "Which encodings: sentence: those of encode; similarity: those of encode_similarity; auto: "
        "those from which more held-out examples are answered right, and sentence with "
        "--label_separator.",
        choices=[ANY_KIND, *KINDS_OF_ENCODING],
    )
    define("data", NEEDED, "CSV files or nlu.yml.", kind=list)
    define(
        "validation",
        [],
        "Files that choose --tune, --patience, --kind, --names and the threshold; parts of the "
        "data by default.",
    )
    define("output", NEEDED, "Folder of the model.")
    define("overwrite", False, "Whether a model of that name is replaced.")
    define("head", HEADS[0], "What stands on the encodings.", choices=HEADS)
    define("hidden_dim", 512, "Units of the network.", lower_bound=1)
    define("dropout", 0.75, "On the encodings, of the network.", lower_bound=0.0, upper_bound=0.99)
    define("learning_rate", 0.7, "Of the network; falls linearly to 0.")
    define("epochs", 500, "Of the network.", lower_bound=1)
    define("batch_size", 32, "Of the network.", lower_bound=1)
    define(
        "patience",
        None,
        "Epochs of the network without better validation accuracy before the end; by default all "
        "epochs are trained.",
        kind=int,
        lower_bound=1,
    )
    define("logistic_c", LOGISTIC_C, "C of --head=logistic.")
    define("tune", False, f"Try a grid on validation data: {GRIDS}.")
    define(
        "out_of_scope",
        None,
        "Answer --out_of_scope_label below a threshold of the highest probability, or of the "
        "cosine to an intent's mean.",
        choices=KINDS,
    )
    define("threshold", None, "The threshold; fitted by default.", kind=float)
    define("out_of_scope_label", "oos", "Label of examples and answers without an intent.")
    define(
        "lexical",
        LEXICAL[0],
        "Whether words count beside the encoding, as much as cross-validation says.",
        choices=(*LEXICAL, "none"),
    )
    define(
        "names",
        NAMES[0],
        "Whether the intents' names in plain words are examples of them, too: where more held-out "
        "or --validation examples are answered right with them, always, or never.",
        choices=(*NAMES, "none"),
    )
    define(
        "label_separator",
        None,
        "Texts may have several intents, or none, with this between them in --data, as + or |.",
    )
    define("seed", 0, "Of weights, batches, dropout and folds.", lower_bound=0)
    define(
        "finetune",
        False,
        "Train the encoder too, and keep it if that helps; its module goes to OUTPUT/module.",
    )
    define("precision", "auto", "Of the encoder, with --finetune.", choices=PRECISIONS)
    define(
        "serving_module",
        None,
        "Also write one SavedModel, strings to label probabilities, to this folder; --overwrite "
        "is for it, too.",
    )


def run(values: Any) -> None:
    has_several = values.label_separator is not None
    check_read(
        values,
        {
            "with --label_separator": _OF_ONE_INTENT if has_several else (),
            f"with --head={values.head}": [
                name
                for head in HEADS
                if head != values.head and not has_several
                for name in OPTIONS[head]
            ],
            "without --finetune": () if values.finetune else ("precision",),
        },
    )
    _check_paths(values)
    if has_several:
        with only_writer(values.output):
            _train_several(values)
        return
    options = {"network": _NETWORK, "logistic": OPTIONS["logistic"]}[values.head]
    params = {
        **{name: values[name].value for name in options},
        "head": values.head,
        "patience": values.patience,
        "lexical": None if values.lexical == "none" else values.lexical,
        "grid": GRIDS[values.head] if values.tune else None,
        "out_of_scope": values.out_of_scope,
        "threshold": values.threshold,
        "out_of_scope_label": values.out_of_scope_label,
        "random_state": values.seed,
        "kind": values.kind,
        "names": None if values.names == "none" else values.names,
    }
    with only_writer(values.output):
        _train(values, params)


def _train_several(values: Any) -> None:
    from convert_tf.intents.data import read_files
    from convert_tf.intents.multi import MultiIntentClassifier, split_labels

    examples = read_files(values.data, needs_labels=False)
    classifier = MultiIntentClassifier(
        one_or_list(values.encoder),
        logistic_c=values.logistic_c,
        lexical=None if values.lexical == "none" else values.lexical,
        threshold=values.threshold,
        label_separator=values.label_separator,
        random_state=values.seed,
        kind="sentence" if values.kind == ANY_KIND else values.kind,
    )
    classifier.check_options()
    classifier.fit(examples.texts, split_labels(examples.labels, values.label_separator))
    classifier.save(values.output, overwrite=values.overwrite)
    print(
        f"wrote {values.output}: {len(classifier.classes_)} intents, of which texts may have "
        f"several, {len(examples.texts):,} examples, {classifier.kind_} encodings, words count "
        f"{classifier.mixture_.weight:.0%}, threshold {classifier.threshold_:.2f}"
    )


def _train(values: Any, params: dict[str, Any]) -> None:
    from convert_tf.intents.classifier import IntentClassifier
    from convert_tf.intents.data import read_files

    examples = read_files(values.data)
    validation = read_files(values.validation) if values.validation else None
    if values.finetune:
        from convert_tf.intents.finetuning.classifier import finetuned_classifier

        classifier = finetuned_classifier(
            values.encoder[0],
            examples,
            validation,
            output=values.output,
            params=params,
            precision=values.precision,
            overwrite=values.overwrite,
        )
    else:
        classifier = IntentClassifier(one_or_list(values.encoder), **params)
        classifier.fit(*examples, validation=validation)
        # First: where it is killed, the same command finds no model that it would have to keep.
        _write_serving(classifier, values)
        classifier.save(values.output, overwrite=values.overwrite)
    print(
        f"wrote {values.output}: {len(classifier.classes_)} intents, {len(examples.texts):,} "
        "examples"
        + (f", chosen {classifier.best_params_}" if classifier.best_params_ else "")
        + (f", {classifier.kind_} encodings" if values.kind == ANY_KIND else "")
        + (f", words count {classifier.mixture_.weight:.0%}" if classifier.lexical else "")
        + (", names of intents are examples" if classifier.names_ else "")
        + ("" if classifier.threshold_ is None else f", threshold {classifier.threshold_:.3f}")
    )
    if values.finetune:  # made of the module that is in --output
        _write_serving(classifier, values)


def _write_serving(classifier: "IntentClassifier", values: Any) -> None:
    if values.serving_module:
        from convert_tf.intents.serving import export_serving

        export_serving(classifier, values.serving_module, overwrite=values.overwrite)
        print(f"wrote {values.serving_module}")


def _check_paths(values: Any) -> None:
    """Refuses what would fail after minutes."""
    encoders, serving = list(values.encoder), values.serving_module
    if values.finetune and (len(encoders) > 1 or encoders[0].endswith(ONNX_SUFFIX)):
        raise ValueError(
            "--finetune trains one encoder, a run or a module. Received: --encoder "
            f"{', '.join(encoders)}."
        )
    from convert_tf.intents.folder import classifier_folder

    classifier_folder(values.output, overwrite=values.overwrite)
    if serving and os.path.exists(serving):
        from convert_tf.intents.serving import serving_folder

        serving_folder(serving, overwrite=values.overwrite)
    files = [encoder for encoder in encoders if not os.path.isdir(encoder)]
    if serving and files:
        raise ValueError(
            f"--serving_module needs the folder of a module. Received: --encoder {files[0]}. "
            "Train with a module's folder, or leave --serving_module out."
        )
