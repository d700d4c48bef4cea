r"""Train an intent classifier on frozen encodings, or fine-tune the encoder too.

```
convert-tf intent train --data train.csv --output model/
convert-tf intent train --encoder convert --finetune --data train.csv --output model/
convert-tf intent train --label_separator=+ --data train.csv --output model/
convert-tf intent train --model model/ --data new.csv --remove old_intent --output model2/
```

With `--model`, the new model is also trained on the examples of this earlier model. Flags that you
do not set have the values of the earlier model. Only `--kind` and `--names` are chosen again. If
the encoder of the earlier model was fine-tuned, they stay the same. In this case, `--validation` is
required, except with `--lexical=none` and without `--out_of_scope` and `--min_margin`.

The data are CSV files with `text` and `label` columns, or Rasa's `nlu.yml`.

Reference: arXiv 2003.04807; arXiv 1911.03688 §3.1, §4.4.

Flags:
  encoder: Encoder: a released name, the folder of a run or module, or an .onnx file. Repeat the
    flag to concatenate the vectors from several encoders. Default: the encoder of --model, or
    convert_small. With --model, the examples of the earlier model are encoded with this encoder.
  data: Examples: CSV files or nlu.yml, separated by commas.
  model: Also use the examples, the encoder and the options of this model.
  remove: Intents of --model to omit, separated by commas. Rows of --data that the model already
    contains are omitted too. A comma inside the name of an intent is not treated as a separator.
  rename: New names for intents of --model, as OLD=NEW. If NEW is already an intent, the two intents
    are merged. A new --out_of_scope_label also renames the out-of-scope examples of --model.
  validation: Files with examples for choosing --kind, --names, --tune and thresholds. Default:
    cross-validation on --data. --finetune with --tune or --patience needs these files, and so does
    --model if its encoder was fine-tuned, unless only the head is trained (--lexical=none).
  label_separator: Character between the labels, such as + or |, if texts may have several intents
    or none.
  output: Folder of the model to write.
  forget_examples: Do not write the texts of the examples. No intents can then be added to the
    model, and predict --explain shows no examples.
  overwrite: Replace an existing model.
  serving_module: Also write the model with its encoder to this folder, as one SavedModel.
    --overwrite applies to this folder too.
  finetune: Also train the encoder, and use the trained encoder if it is more accurate. The encoder
    is written to OUTPUT/module.
  seed: Seed for the weights, batches, dropout and folds.
  precision: Number format of the encoder with --finetune.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convert_tf.checkpoints.kinds import kind_of
from convert_tf.checkpoints.released import ONNX_SUFFIX
from convert_tf.cli.flags import (
    DEFAULT_ENCODER,
    NEEDED,
    Define,
    UsageError,
    check_read,
    define_encoder,
    define_fields,
    given_fields,
    loaded_classifier,
    resolve_names,
    split_names,
)
from convert_tf.cli.intent.discover import check_corrected
from convert_tf.config.base import DATA, MODEL, OPTIMISATION, OUTPUT, PRECISIONS
from convert_tf.intents.data import LabelledTexts, read_files
from convert_tf.intents.encodings import ANY_KIND, encoder_paths, identities_of
from convert_tf.intents.folder import (
    MODEL_FILE,
    MODULE_FOLDER,
    classifier_folder,
    is_recorded,
    module_to_copy,
    read_classifier,
)
from convert_tf.intents.head import GRIDS, HEADS
from convert_tf.intents.options import IntentOptions, SeveralOptions
from convert_tf.storage.files import only_writer
from convert_tf.storage.json_text import json_file
from convert_tf.storage.messages import listed

if TYPE_CHECKING:
    from convert_tf.intents.classifier import IntentClassifier

# Fields of classifiers that are set by other flags.
_NO_FLAG = ("encoder", "grid", "label_separator", "random_state")
# Flags without effect on classifiers that predict several intents per text.
_OF_ONE_INTENT = (
    *({*IntentOptions.__dataclass_fields__} - {*SeveralOptions.__dataclass_fields__}),
    "tune", "validation", "finetune", "precision", "model", "forget_examples",
)  # fmt: skip
REPLACED = ("", "**/*")
OF_MODULES = ("finetune", "serving_module")  # with one of these flags, a name stands for a module


def define_flags(define: Define) -> None:
    define_encoder(define, [], repeats=True)
    define("data", [], repeats=True, group=DATA)
    define("model", None, group=DATA)
    define("remove", [], repeats=True, group=DATA)
    define("rename", [], repeats=True, group=DATA)
    define("validation", [], repeats=True, group=DATA)
    define("label_separator", None, group=DATA)
    define("output", NEEDED, group=OUTPUT)
    define("forget_examples", False, group=OUTPUT)
    define("overwrite", False, group=OUTPUT)
    define("serving_module", None, group=OUTPUT)
    define("finetune", False, group=MODEL)
    define_fields(define, IntentOptions, leave_out=_NO_FLAG)
    grids = (
        f"{name} {', '.join(map(str, values))}"
        for grid in GRIDS.values()
        for name, values in grid.items()
    )
    define("tune", False, f"Search a grid of values: {'; '.join(grids)}.", group=OPTIMISATION)
    define("seed", 0, lower_bound=0, group=OPTIMISATION)
    define("precision", "auto", choices=PRECISIONS, group=OPTIMISATION)


def run(values: Any) -> None:
    has_several = values.label_separator is not None
    for name in ("data", "validation"):
        values[name].value = split_names(values[name].value, os.path.exists)
    if not values.data and values.model is None:
        raise UsageError("--data or --model is required")
    model = None if values.model is None else _read_model(values)
    head = values.head or (IntentOptions.head if model is None else model.head)
    if model is None and not values.encoder:
        values["encoder"].value = [DEFAULT_ENCODER]
        resolve_names(values, wants_module=bool(values.finetune or values.serving_module))
    of_other_heads = [name for other in HEADS.keys() - {head} for name in HEADS[other]]
    check_read(
        values,
        {
            "with --label_separator": _OF_ONE_INTENT if has_several else (),
            f"with --head={head}": () if has_several else of_other_heads,
            "without --finetune": () if values.finetune else ("precision",),
            "without --model": () if values.model else ("remove", "rename"),
            "with --model": ("finetune",) if values.model else (),
            "with the encoder of --model": () if values.encoder else ("backend",),
        },
    )
    _check_paths(values)
    if values.serving_module:
        _check_serving(values, model, head)
    encoders = identities_of(values.encoder if model is None else model.encoder)
    for path in values.data if encoders else ():
        check_corrected(path, encoders)
    with only_writer(values.output):
        classifier, num_examples = (
            _train_several(values) if has_several else _train(values, model, head)
        )
    several = ", several in a text" if has_several else ""
    names = ", names of intents are examples" if getattr(classifier, "names_", False) else ""
    print(
        f"wrote {values.output}: {len(classifier.classes_)} intents{several}, {num_examples:,} "
        "examples"
        + (f", chosen {classifier.best_params_}" if classifier.best_params_ else "")
        + (f", {classifier.kind_} encodings" if values.kind in (None, ANY_KIND) else "")
        + (f", words count {classifier.mixture_.weight:.0%}" if classifier.lexical else "")
        + names
        + ("" if classifier.threshold_ is None else f", threshold {classifier.threshold_:.3f}")
    )


def _read_model(values: Any) -> Any:
    """Read the classifier of `--model`.

    Raises:
      ValueError: if no examples can be added to the classifier.
    """
    if values.encoder and not values.model.endswith(ONNX_SUFFIX):
        from convert_tf.intents.classifier import IntentClassifier

        saved, _, encoder = read_classifier(values.model, values.encoder, is_new=True)
        if saved.examples is not None and not saved.decision.has_several:
            model = IntentClassifier(encoder, **saved.params)
            model.examples_ = saved.examples
            return model
    else:
        model = loaded_classifier(values)
        if model.examples_ is not None:
            return model
    raise ValueError(
        f"{values.model} was saved without its examples, or has several intents per text. Train "
        "again on all examples instead."
    )


def _examples(
    values: Any, model: "IntentClassifier | None", params: Mapping[str, Any]
) -> LabelledTexts:
    """Return the examples of `--data`, and of `--model` after `--remove` and `--rename`.

    `params` are the parameters of the new classifier. Out-of-scope examples of `--model` get the
    label in `params`.

    If a text has different labels in `--data` and in `--model`, the label in `--data` is used. Rows
    of `--data` that the model already contains are removed and renamed like the model's rows.

    Raises:
      ValueError: if the model has no such intent, or some labels are numbers and others strings.
    """
    added = read_files(values.data) if values.data else LabelledTexts([], [])
    if model is None or model.examples_ is None:
        return added
    intents = {*map(str, model.examples_.labels)}
    removed = split_names(values.remove, intents.__contains__)
    names = _new_names(values.rename, intents)
    if unknown := sorted({*removed, *names} - intents):
        raise ValueError(f"{values.model} has no intent {', '.join(unknown)}.")
    for old, new in names.items():
        if new in intents - {*names} - {*removed}:
            print(f"--rename {old}={new} merges two intents: the model already has {new}.")
    outside_name = _new_outside_name(model, params, intents - {*removed, *names}, added.labels)
    names = {old: outside_name.get(new, new) for old, new in names.items()} | outside_name
    earlier = [*zip(*model.examples_, strict=True)]
    # Rows of --data that the model already contains would undo --remove and --rename.
    edited = {(text, str(label)) for text, label in earlier if str(label) in {*removed, *names}}
    added_rows = [row for row in zip(*added, strict=True) if row not in edited]
    edits = (
        "--remove, --rename and --out_of_scope_label" if outside_name else "--remove and --rename"
    )
    if already := [repr(row[0]) for row in zip(*added, strict=True) if row in edited]:
        print(
            f"{edits} also apply to {len(already):,} rows of --data that the model already "
            f"contains: {listed(already)}"
        )
    rows = [
        (text, names.get(str(label), label)) for text, label in earlier if str(label) not in removed
    ]
    numbers = [label for _, label in rows if not isinstance(label, str)]
    outside = {params["out_of_scope_label"]} if model.out_of_scope is not None else set()
    if numbers and {*added.labels, *names.values()} - outside:
        raise ValueError(
            f"The labels of {values.model} are numbers, such as {numbers[0]}, but labels from "
            "files and --rename are strings. Train this model in Python, where labels can be "
            "numbers."
        )
    labels = dict(added_rows)
    replaced = [f"{text!r}: {label}" for text, label in rows if labels.get(text, label) != label]
    if replaced:
        print(f"labels that --data replaces: {listed(replaced)}")
    rows = [(text, label) for text, label in rows if labels.get(text, label) == label]
    before = {*rows}
    rows += [row for row in added_rows if row not in before]
    return LabelledTexts([text for text, _ in rows], [label for _, label in rows])


def _new_outside_name(
    model: "IntentClassifier",
    params: Mapping[str, Any],
    intents: Collection[str],
    added: Collection[str],
) -> dict[str, str]:
    """Return the new name of the model's out-of-scope label by its old name, and print both.

    With the old name, the out-of-scope examples of the model would become an intent.

    Args:
      model: the earlier model.
      params: the parameters of the new classifier.
      intents: the labels of the model's examples that are neither removed nor renamed.
      added: the labels of `--data`.

    Returns:
      `{}` if the name does not change, or the model has no out-of-scope examples.

    Raises:
      ValueError: if the new name is an intent of the model.
    """
    old, new = str(model.out_of_scope_label), params["out_of_scope_label"]
    if model.out_of_scope is None or old == str(new) or old not in intents:
        return {}
    if new in intents:
        raise ValueError(
            f"--out_of_scope_label={new} is an intent of the model, so its examples and the "
            "out-of-scope examples could not be told apart. Choose another label, or rename the "
            "intent."
        )
    print(
        f"--out_of_scope_label={new}: the out-of-scope examples of the model, which were labelled "
        f"{old}, are now labelled {new}."
        + (f" New rows of --data labelled {old} are examples of an intent." if old in added else "")
    )
    return {old: new}


def _new_names(texts: Sequence[str], intents: Collection[str]) -> dict[str, str]:
    """Return the new names of intents in `--rename`, by the old name.

    Old names may contain commas and `=`.
    """
    names: dict[str, str] = {}
    for text in split_names(texts, lambda text: text.rpartition("=")[0] in intents):
        old, _, new = text.rpartition("=")
        _, comma, last = new.rpartition(",")
        if new and not old and text not in intents:
            raise ValueError(f"--rename {text} lacks the old name. Pass --rename OLD={new}.")
        if not (old and new) or text in intents or (comma and last.strip() in intents):
            name = last.strip() if comma else old or text
            name = text if text in intents else name
            raise ValueError(f"--rename {name} lacks a new name. Pass --rename {name}=NEW.")
        if "=" in old and old not in intents:
            raise ValueError(
                f"--rename {text} has more than one =, and the model has no intent {old!r}. New "
                "names cannot contain =. Repeat the flag for another intent."
            )
        if names.setdefault(old, new) != new:
            raise ValueError(f"--rename has two new names for {old}: {names[old]} and {new}.")
    return names


def _train_several(values: Any) -> tuple[Any, int]:
    """Train and write a classifier. Return the classifier and the number of examples."""
    from convert_tf.intents.multi import MultiIntentClassifier, split_labels

    module_to_copy(encoder_paths(values.encoder), values.output)  # errors come before training
    texts, labels = read_files(values.data, needs_labels=False)
    leave_out = (*_NO_FLAG, "kind") if values.kind == ANY_KIND else _NO_FLAG
    classifier = MultiIntentClassifier(
        values.encoder,
        **given_fields(values, SeveralOptions, leave_out=leave_out),
        label_separator=values.label_separator,
        random_state=values.seed,
    )
    classifier.fit(texts, split_labels(labels, values.label_separator))
    _write_serving(classifier, values)
    classifier.save(values.output, overwrite=values.overwrite)
    return classifier, len(texts)


def _train(values: Any, model: "IntentClassifier | None", head: str) -> tuple[Any, int]:
    """Train and write a classifier. Return the classifier and the number of examples."""
    from convert_tf.intents.classifier import IntentClassifier

    params = _params(values, model, head)
    facts = {} if model is None else _kept_facts(values, model, params)
    is_tuned = facts.get("finetuning", {}).get("is_finetuned", False)
    for name in ("kind", "names") if is_tuned else ():  # were chosen when the encoder was tuned
        if params.get(name) == ANY_KIND:
            raise UsageError(
                f"--{name}={ANY_KIND} cannot be used: the encoder of {values.model} was fine-tuned "
                f"with --{name}={getattr(model, name) or 'none'}. Omit the flag to keep this value."
            )
        params.setdefault(name, getattr(model, name))
    examples = _examples(values, model, params)
    validation = read_files(values.validation) if values.validation else None
    saved = {"overwrite": values.overwrite, "keep_examples": not values.forget_examples}
    if values.finetune:
        from convert_tf.intents.finetuning import finetuned_classifier

        classifier = finetuned_classifier(
            values.encoder[0],
            examples,
            validation,
            output=values.output,
            params=params,
            precision=values.precision,
            **saved,
        )
        _write_serving(classifier, values)  # copies the module that was written to --output
        return classifier, len(examples.texts)
    encoder = values.encoder if model is None else model.encoder
    # The folder of a fine-tuned model contains the encoder, which is copied to the new folder.
    module = os.path.join(values.model, MODULE_FOLDER) if values.model else None
    module_to_copy(encoder_paths(encoder), values.output, module)  # errors come before training
    classifier = IntentClassifier(encoder, **params)
    classifier.fit(*examples, validation=validation, folds=() if is_tuned else None)
    # The serving module is written first. If the process is killed at this point, the command can
    # be repeated without --overwrite.
    _write_serving(classifier, values)
    classifier.save(values.output, module=module, notes=facts, **saved)
    return classifier, len(examples.texts)


def _kept_facts(
    values: Any, model: "IntentClassifier", params: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what `--model` stores about the fine-tuning of its encoder; `{}` if it stores nothing.

    These facts do not apply if a different encoder is given. A copy of the encoder at another path
    is the same encoder.

    Raises:
      ValueError: if the encoder was fine-tuned, there are no validation data, and the answers of a
        classifier with `params` depend on values that are fitted on held-out examples. The encoder
        was trained on the examples, so they cannot be held out.
    """
    saved = json_file(os.path.join(values.model, MODEL_FILE))
    facts, paths = saved.get("facts", {}), encoder_paths(model.encoder)
    if not facts or not any(
        is_recorded(path, record) for path in paths for record in saved["encoders"]
    ):
        return {}
    is_tuned = facts.get("finetuning", {}).get("is_finetuned")
    if is_tuned and not values.validation and _needs_held_out(params):
        raise ValueError(
            f"The encoder of {values.model} was fine-tuned on its examples, so thresholds, "
            "probabilities and the weight of words cannot be fitted on them. Pass other examples "
            "as --validation, or train again on all examples with --finetune instead of --model."
        )
    return facts


def _needs_held_out(params: Mapping[str, Any]) -> bool:
    """Return whether answers depend on values that are fitted on held-out examples.

    These are the weight of words, the thresholds, and the temperature of the probabilities, on
    which the scores of most rules and the margin depend.
    """
    rule = params.get("out_of_scope")
    return (
        params.get("lexical", IntentOptions.lexical) is not None
        or bool(params.get("min_margin"))
        or (rule is not None and (rule != "distance" or params.get("threshold") is None))
    )


def _params(values: Any, model: "IntentClassifier | None", head: str) -> dict[str, Any]:
    """Return the parameters of the new classifier: those of `model`, and the flags that were given.

    A parameter of `model` that a flag makes invalid is replaced or omitted.
    """
    given = given_fields(values, IntentOptions, leave_out=_NO_FLAG)
    if values["seed"].present:
        given["random_state"] = values.seed
    if values["tune"].present:
        given["grid"] = _untried(GRIDS[head], given) if values.tune else None
    if model is None:
        return given
    params = model.get_params(deep=False)
    omitted = {"encoder", "kind", "names"}  # these are chosen again
    if params["grid"]:
        grid = params["grid"] if head == model.head else GRIDS[head]
        params["grid"] = {name: tried for name, tried in grid.items() if name not in given} or None
    rule = given.get("out_of_scope", params["out_of_scope"])
    if rule is None:
        omitted |= {"threshold", "rejected_share"}
    elif "threshold" in given:
        omitted.add("rejected_share")
    elif "rejected_share" in given or rule != params["out_of_scope"]:
        omitted.add("threshold")  # which would be on another scale with another rule
    if rule != "confidence" and not given.get("min_margin", params["min_margin"]):
        omitted.add("upper_levels")  # which need a rule that rejects texts by their probabilities
    label = params["out_of_scope_label"]
    if given.get("out_of_scope_label") == str(label):
        del given["out_of_scope_label"]  # the label of the model may be a number
    return {name: value for name, value in params.items() if name not in omitted} | given


def _untried(grid: Mapping[str, Sequence[Any]], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a grid without the options that were given, whose values are not searched.

    Raises:
      ValueError: if nothing is left of the grid.
    """
    if rest := {name: tried for name, tried in grid.items() if name not in given}:
        return rest
    flags = ", ".join(f"--{name}" for name in grid)
    raise ValueError(f"--tune has no effect with {flags}. Remove it.")


def _write_serving(classifier: Any, values: Any) -> None:
    if values.serving_module:
        from convert_tf.intents.serving import export_serving

        export_serving(classifier, values.serving_module, overwrite=values.overwrite)
        print(f"wrote {values.serving_module}")


def _check_paths(values: Any) -> None:
    """Check the paths before training, because later errors would only be printed after minutes."""
    encoders = list(values.encoder)
    if values.finetune and (len(encoders) > 1 or encoders[0].endswith(ONNX_SUFFIX)):
        raise ValueError(
            "--finetune needs a single encoder, which must be a run or a module. Received: "
            f"--encoder {', '.join(encoders)}."
        )
    classifier_folder(values.output, overwrite=values.overwrite)


def _check_serving(values: Any, model: "IntentClassifier | None", head: str) -> None:
    """Check before training that the new model can be written to `--serving_module`.

    Raises:
      ValueError: if the folder exists and may not be replaced, or is inside or around `--output`;
        if an encoder is not a module; or if answers may be upper levels.
    """
    serving, output = (
        Path(os.path.realpath(path)) for path in (values.serving_module, values.output)
    )
    if serving.is_relative_to(output) or output.is_relative_to(serving):
        raise ValueError(
            f"--serving_module {values.serving_module} and --output {values.output} are the same "
            "folder, or one is inside the other. Choose another --serving_module."
        )
    if os.path.exists(serving):
        from convert_tf.intents.serving import serving_folder

        serving_folder(values.serving_module, overwrite=values.overwrite)
    if _params(values, model, head).get("upper_levels"):
        raise ValueError(
            "--serving_module writes a SavedModel, which cannot answer with upper levels. Pass "
            "--noupper_levels, or omit --serving_module."
        )
    # --finetune writes a module, whatever the encoder is.
    encoder = values.encoder if model is None else model.encoder
    for path in () if values.finetune else encoder_paths(encoder):
        kind = kind_of(path)
        if not kind.is_module:
            raise ValueError(
                f"--serving_module needs the folder of a module as the encoder. {path!r} is "
                f"{kind.value}. Pass a module or the name of a released encoder as --encoder, or "
                "omit --serving_module."
            )
