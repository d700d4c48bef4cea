"""Intent classification on frozen encodings.

```
python -m convert_tf.intent train --module hub_modules/convert/1 --data train.csv --output model/
python -m convert_tf.intent evaluate --model model/ --data test.csv --output results/
python -m convert_tf.intent predict --model model/ --input texts.txt
python -m convert_tf.intent benchmark --module hub_modules/convert/1 --train train.csv \
    --test test.csv --shots 5,10,30,full --seeds 3 --output results/
```

Data are CSV files with `text` and `label` columns, or Rasa's `nlu.yml`. In Python:

```python
from convert_tf.intent import IntentClassifier

classifier = IntentClassifier("hub_modules/convert/1").fit(texts, labels)
classifier.predict(["where is my card?"])
```

Reference: arXiv 2003.04807; arXiv 1911.03688 §3.1, §4.4.
"""

import sys
from collections.abc import Callable, Sequence

from absl import app, flags, logging

from convert_tf.intent_classifier import GRIDS, HEADS, IntentClassifier
from convert_tf.intent_data import LabelledTexts, read_labelled
from convert_tf.intent_head import LOGISTIC_C
from convert_tf.intent_scope import KINDS

__all__ = ["GRIDS", "IntentClassifier", "LabelledTexts", "read_labelled"]

_HEAD_FLAGS = ("hidden_dim", "dropout", "learning_rate", "epochs", "batch_size")
_FINETUNE_FLAGS = (
    "finetune_learning_rate", "finetune_epochs", "finetune_patience", "precision",
)  # fmt: skip


def _define_flags() -> None:
    flags.DEFINE_multi_string(
        "module", [],
        "train, benchmark: module that export.py wrote, or .onnx file. Several are concatenated by "
        "train, and rows of benchmark. evaluate, predict: where the model's module is now.",
    )  # fmt: skip
    flags.DEFINE_list("data", [], "train, evaluate: CSV files or nlu.yml.")
    flags.DEFINE_list("validation", [], "train: files that choose --tune, --patience and the "
                      "threshold. benchmark: for the threshold.")  # fmt: skip
    flags.DEFINE_string("output", None, "train: folder of the model. evaluate, benchmark: folder "
                        "of the results.")  # fmt: skip
    flags.DEFINE_bool("overwrite", False, "train: whether a model of that name is replaced.")
    flags.DEFINE_enum("head", HEADS[0], HEADS, "train: what stands on the encodings.")
    flags.DEFINE_integer("hidden_dim", 512, "train: units of the network.", lower_bound=1)
    flags.DEFINE_float("dropout", 0.75, "train: on the encodings.", 0.0, 0.99)
    flags.DEFINE_float("learning_rate", 0.7, "train: of the network; falls linearly to 0.")
    flags.DEFINE_integer("epochs", 500, "train: of the network.", lower_bound=1)
    flags.DEFINE_integer("batch_size", 32, "train: of the network.", lower_bound=1)
    flags.DEFINE_integer("patience", None, "train: epochs without better validation accuracy "
                         "before the end; by default all epochs are trained.",
                         lower_bound=1)  # fmt: skip
    flags.DEFINE_float("logistic_c", LOGISTIC_C, "train: C of --head=logistic.")
    flags.DEFINE_bool("tune", False, f"train: try a grid on validation data: {GRIDS}.")
    flags.DEFINE_enum("out_of_scope", None, KINDS, "train: answer none below a threshold of the "
                      "highest probability, or of the cosine to an intent's mean.")  # fmt: skip
    flags.DEFINE_float("threshold", None, "train: the threshold; fitted by default.")
    flags.DEFINE_string("out_of_scope_label", "oos", "train, benchmark: label of examples without "
                        "an intent.")  # fmt: skip
    flags.DEFINE_integer("seed", 0, "train: of weights, batches and dropout.")
    flags.DEFINE_bool("finetune", False, "train: train the encoder of --checkpoint too; its module "
                      "goes to OUTPUT/module.")  # fmt: skip
    flags.DEFINE_string(
        "checkpoint", None, "train: with --finetune, a folder that train.py wrote, or a module."
    )
    flags.DEFINE_float("finetune_learning_rate", 3e-5, "train: of Adam, with --finetune.")
    flags.DEFINE_integer("finetune_epochs", 30, "train: at most, with --finetune.", lower_bound=1)
    flags.DEFINE_integer("finetune_patience", 5, "train: epochs without better validation accuracy "
                         "before fine-tuning ends.", lower_bound=1)  # fmt: skip
    flags.DEFINE_enum(
        "precision", "auto", ["auto", "float32", "mixed_bfloat16", "mixed_float16"],
        "train: of the encoder, with --finetune.",
    )  # fmt: skip
    flags.DEFINE_string("serving_module", None, "train: also write one SavedModel, strings to "
                        "label probabilities, to this folder.")  # fmt: skip
    flags.DEFINE_string("model", None, "evaluate, predict: folder that train wrote.")
    flags.DEFINE_string("input", "-", "predict: text file, a text a line; - for standard input.")
    flags.DEFINE_integer("top_k", 1, "predict: intents listed with probabilities.", lower_bound=1)
    flags.DEFINE_list("train", [], "benchmark: CSV files or nlu.yml that are drawn from.")
    flags.DEFINE_list("test", [], "benchmark: CSV files or nlu.yml, out-of-scope texts among them.")
    flags.DEFINE_list("shots", ["10", "full"], "benchmark: examples of each intent, or full.")
    flags.DEFINE_multi_string("shots_file", [], "benchmark: N=FILE, examples of regime N instead "
                              "of drawn ones; repeatable.")  # fmt: skip
    flags.DEFINE_integer("seeds", 3, "benchmark: runs of each row and regime.", lower_bound=1)
    flags.DEFINE_list("heads", ["network"], f"benchmark: some of {', '.join(HEADS)}.")
    flags.DEFINE_bool("tfidf", False, "benchmark: a row of TF-IDF + logistic regression.")
    flags.DEFINE_string("untrained", None, "benchmark: a row of this checkpoint's network with its "
                        "initial weights.")  # fmt: skip
    flags.DEFINE_multi_string("vectors", [], "benchmark: NAME=FILE.npz with `texts` and `vectors` "
                              "of another encoder (benchmarks/minilm_vectors.py).")  # fmt: skip
    flags.DEFINE_string("cache", None, "benchmark: folder where encodings of modules are kept.")


def _train() -> None:
    from convert_tf import intent_commands

    values = flags.FLAGS
    params = {name: values[name].value for name in _HEAD_FLAGS} if values.head == "network" else {}
    params |= {"logistic_c": values.logistic_c} if values.head == "logistic" else {}
    finetuning = {name.removeprefix("finetune_"): values[name].value for name in _FINETUNE_FLAGS}
    intent_commands.train(
        list(values.module),
        values.data,
        output=values.output,
        params={
            **params,
            "head": values.head,
            "patience": values.patience,
            "grid": GRIDS[values.head] if values.tune else None,
            "out_of_scope": values.out_of_scope,
            "threshold": values.threshold,
            "out_of_scope_label": values.out_of_scope_label,
            "random_state": values.seed,
        },
        validation=values.validation,
        overwrite=values.overwrite,
        checkpoint=values.checkpoint,
        finetuning=finetuning if values.finetune else None,
        serving_module=values.serving_module,
    )


def _evaluate() -> None:
    from convert_tf import intent_commands

    values = flags.FLAGS
    intent_commands.evaluate(
        values.model, values.data, module=list(values.module), output=values.output
    )


def _predict() -> None:
    from convert_tf import intent_commands

    values = flags.FLAGS
    intent_commands.predict(
        values.model, values.input, module=list(values.module), top_k=values.top_k
    )


def _benchmark() -> None:
    from convert_tf import intent_comparison

    values = flags.FLAGS
    intent_comparison.benchmark(
        train=values.train,
        test=values.test,
        validation=values.validation,
        shots=values.shots,
        shots_files=values.shots_file,
        modules=values.module,
        vectors=values.vectors,
        untrained=values.untrained,
        has_tfidf=values.tfidf,
        heads=values.heads,
        seeds=values.seeds,
        out_of_scope_label=values.out_of_scope_label,
        output=values.output,
        cache=values.cache,
    )


_Command = tuple[Callable[[], None], tuple[str, ...], tuple[str, ...]]
# What each runs, the flags that it needs, and those that it reads beside them.
_COMMANDS: dict[str, _Command] = {
    "train": (
        _train,
        ("data", "output"),
        ("module", "validation", "overwrite", "head", *_HEAD_FLAGS, "patience", "logistic_c",
         "tune", "out_of_scope", "threshold", "out_of_scope_label", "seed", "finetune",
         "checkpoint", *_FINETUNE_FLAGS, "serving_module"),
    ),
    "evaluate": (_evaluate, ("model", "data"), ("module", "output")),
    "predict": (_predict, ("model",), ("module", "input", "top_k")),
    "benchmark": (
        _benchmark,
        ("train", "test"),
        ("module", "validation", "output", "shots", "shots_file", "seeds", "heads", "tfidf",
         "untrained", "vectors", "cache", "out_of_scope_label"),
    ),
}  # fmt: skip


def _check_flags(command: str) -> None:
    """Raises `ValueError` for a flag that is missing or that would change nothing."""
    values = flags.FLAGS
    _, needed, read = _COMMANDS[command]
    missing = [f"--{name}" for name in needed if not values[name].value]
    if missing:
        raise ValueError(f"{command} needs {' and '.join(missing)}.")
    own = [flag.name for flag in values.get_flags_for_module(sys.modules[__name__].__name__)]
    given = {name for name in own if values[name].present}
    unread = given - {*needed, *read}
    if command == "train":
        network = {*_HEAD_FLAGS, "patience"}
        unread |= given & ({"logistic_c"} if values.head == "network" else network)
        if not values.finetune:
            unread |= given & {"checkpoint", *_FINETUNE_FLAGS}
    if unread:
        raise ValueError(
            f"Each flag must be read by {command}. Received: "
            f"{', '.join(f'--{name}' for name in sorted(unread))}, which nothing reads here. "
            "Leave them out."
        )


def _run(argv: Sequence[str]) -> None:
    if len(argv) != 2 or argv[1] not in _COMMANDS:
        raise app.UsageError(f"One command of {', '.join(_COMMANDS)}. Received: {argv[1:]}.")
    logging.set_verbosity(logging.WARNING)  # TensorFlow tells of each tensor it renames
    try:
        _check_flags(argv[1])
        _COMMANDS[argv[1]][0]()
    except (ValueError, OSError, ImportError) as error:
        sys.exit(f"intent {argv[1]}: {' '.join(str(error).split())}")


if __name__ == "__main__":
    _define_flags()
    app.run(_run)
