r"""Compares encoders and heads on few examples of each intent, drawn several times.

```
convert-tf intent benchmark --encoder convert --train train.csv --test test.csv \
    --shots 5,10,30,full --seeds 3 --output results/
```

Data are CSV files with `text` and `label` columns, or Rasa's `nlu.yml`.
"""

import os
from pathlib import Path
from typing import Any

from convert_tf.cli.flags import NEEDED, Define, define_encoder
from convert_tf.intents.encodings import ANY_KIND, KINDS_OF_ENCODING
from convert_tf.intents.heldout import LEXICAL
from convert_tf.intents.tuning import HEADS


def define_flags(define: Define) -> None:
    define_encoder(
        define,
        [],
        text="a row; a released name, the folder of a run or of a module, or an .onnx file.",
        repeats=True,
    )
    define(
        "kind",
        ANY_KIND,
        "Encodings of --encoder: sentence: those of encode; similarity: those of "
        "encode_similarity; auto: those from which more held-out examples are answered right.",
        choices=[ANY_KIND, *KINDS_OF_ENCODING],
    )
    define("train", NEEDED, "CSV files or nlu.yml that are drawn from.", kind=list)
    define("test", NEEDED, "CSV files or nlu.yml, out-of-scope texts among them.", kind=list)
    define("validation", [], "Files for the threshold of out of scope.")
    define("output", None, "Folder of the results.")
    define("shots", ["10", "full"], "Examples of each intent, or full.")
    define("shots_file", [], "N=FILE, examples of regime N instead of drawn ones.", repeats=True)
    define("seeds", 3, "Runs of each row and regime.", lower_bound=1)
    define("heads", ["network"], f"Some of {', '.join(HEADS)}.")
    define("out_of_scope_label", "oos", "Label of examples without an intent.")
    define("lexical", False, "Whether each head also has a row where words count.")
    define(
        "names",
        False,
        "Whether each head on an encoder also has a row where names of intents are examples where "
        "that helps, with --lexical beside words.",
    )
    define(
        "finetune",
        [],
        "A row of what intent train --finetune makes of this module or run: minutes a run.",
        repeats=True,
    )
    define("tfidf", False, "A row of TF-IDF + logistic regression.")
    define("untrained", None, "A row of this checkpoint's network with its initial weights.")
    define(
        "vectors",
        [],
        "A row, NAME=FILE.npz with `texts` and `vectors` of another encoder "
        "(benchmarks/minilm_vectors.py).",
        repeats=True,
    )
    define("cache", None, "Folder where encodings of modules are kept.")


def run(values: Any) -> None:
    from convert_tf.intents.benchmark import run_benchmark
    from convert_tf.intents.benchmark_report import (
        JSON_FILE,
        benchmark_table,
        merged,
        write_benchmark,
    )

    regimes, data = _regimes(values), _data(values)
    rows = _rows(values, data)
    files = [*values.train, *values.test, *values.validation]
    task = {
        "train_examples": len(data.train.texts),
        "test_examples": sum(label != data.out_of_scope_label for label in data.test.labels),
        "intents": len({*data.train.labels} - {data.out_of_scope_label}),
        "files": [os.path.basename(path) for path in files],
    }
    if values.output is None:
        report = run_benchmark(rows, data, regimes, seeds=values.seeds, task=task)
    else:
        place = Path(values.output) / JSON_FILE
        merged({"task": task, "rows": []}, place)  # says at once what is there

        def write(report: Any) -> None:
            write_benchmark(report, values.output)

        report = run_benchmark(rows, data, regimes, seeds=values.seeds, task=task, on_row=write)
        report = merged(report, place)
    print(benchmark_table(report))


def _regimes(values: Any) -> list[Any]:
    from convert_tf.intents.benchmark import FULL, Regime
    from convert_tf.intents.data import read_files

    given = dict(_named(values, "shots_file"))
    wrong = [name for name in values.shots if name != FULL and not name.isdigit()]
    wrong += sorted({*given} - {*values.shots})
    wrong += [head for head in values.heads if head not in HEADS]
    if wrong:
        raise ValueError(
            f"--shots are numbers or {FULL}, --shots_file is for one of them, and --heads are of "
            f"{', '.join(HEADS)}. Received: {', '.join(wrong)}."
        )
    return [
        Regime(name, read_files([given[name]]) if name in given else None) for name in values.shots
    ]


def _data(values: Any) -> Any:
    from convert_tf.intents.benchmark import BenchmarkData
    from convert_tf.intents.data import read_files

    data = BenchmarkData(
        read_files(values.train),
        read_files(values.test),
        read_files(values.validation) if values.validation else None,
        values.out_of_scope_label,
    )
    unseen = sorted({*data.test.labels} - {*data.train.labels, data.out_of_scope_label})
    if unseen:
        raise ValueError(
            "Texts are tested whose intents can be trained. Received: "
            f"{', '.join(map(repr, unseen[:5]))} in --test alone. Leave them out, or label them "
            f"{data.out_of_scope_label!r} (out of scope)."
        )
    return data


def _rows(values: Any, data: Any) -> list[Any]:
    from convert_tf.intents.benchmark import (
        encoder_of_file,
        encoder_row,
        finetuned_row,
        kept_encoder,
        tfidf_row,
    )

    modules = list(values.encoder)
    encoders: list[tuple[str, Any]] = [(path, path) for path in modules]
    encoders += [(name, encoder_of_file(path)) for name, path in _named(values, "vectors")]
    if values.untrained is not None:
        from convert_tf.encoding.backends.checkpoint import CheckpointBackend
        from convert_tf.encoding.sentence_encoder import SentenceEncoder

        untrained = SentenceEncoder(CheckpointBackend(values.untrained, untrained_seed=0))
        encoders.append((f"untrained {values.untrained}", untrained))
    parts = [data.train, data.test, data.validation]
    rows = [tfidf_row()] if values.tfidf else []
    for name, encoder in encoders:
        kind = values.kind if encoder in modules else "sentence"
        kept = kept_encoder(encoder, parts, cache=values.cache, kind=kind)
        for head in values.heads:
            rows.append(encoder_row(name, kept, head, lexical=None, names=None))
            if values.lexical:
                rows.append(encoder_row(name, kept, head, names=None))
            if values.names and encoder in modules:  # a file has no vectors of names
                lexical = LEXICAL[0] if values.lexical else None
                rows.append(encoder_row(name, kept, head, lexical=lexical))
    rows += [finetuned_row(path) for path in values.finetune]
    if not rows:
        raise ValueError(
            "There must be a row. Received: none. Give --encoder, --vectors, --untrained, "
            "--finetune or --tfidf."
        )
    return rows


def _named(values: Any, flag: str) -> list[tuple[str, str]]:
    named = []
    for value in values[flag].value:
        name, separator, path = value.partition("=")
        if not (name and separator and path):
            raise ValueError(f"--{flag} is NAME=FILE. Received: {value!r}.")
        named.append((name, path))
    return named
