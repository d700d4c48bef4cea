"""The project's architecture rules: functions from `{module: source}` to a list of violations.

Each rule is run on the package, which must have no violations, and on planted ones, which it must
find. Rules for single names (relative imports, `json.loads`, `tf.keras`) are ruff's, in
`pyproject.toml`.
"""

import ast
import functools
import graphlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import convert_tf

PACKAGE = Path(convert_tf.__file__).parent
ROOT = PACKAGE.parent

# A package may import packages from earlier lines. Within a line, imports may go only one way.
ORDER = (
    ("config", "storage", "metrics", "numerics", "extras", "figures"),
    ("text", "readers"),
    ("data",),
    ("corpora",),
    ("layers",),
    ("models",),
    ("checkpoints",),
    ("encoding",),
    ("export",),
    ("ranking",),
    ("training",),
    ("evaluation", "search", "intents"),
    ("service",),
    ("cli", "__main__"),
)

# All packages may use scikit-learn and scipy, except those of the first line, which always load.
_AFTER_NUMERICS = " ".join(package for line in ORDER[1:] for package in line)

# Packages or files that import a library other than Python's own, NumPy and this package.
LIBRARIES = {
    "tensorflow": (
        "text.runs text.tokenizer data.records data.token_writer data.turns corpora.vocabulary "
        "encoding.backends.module export.hub ranking.module "
        "training.encoder.micro_batches training.step intents.serving "
        "numerics.tensorflow_cpu numerics.quiet"
    ),
    "tensorflow_text": (
        "text.runs text.tokenizer encoding.backends.module ranking.module intents.serving"
    ),
    "tensorflow_hub": "intents.serving",
    "tensorflow_model_optimization": "numerics.quantization",
    "keras": "numerics layers models export training intents.finetuning",
    "huggingface_hub": "checkpoints.released",
    "jax": "training.processes training.step",
    "absl": "cli",
    "argparse": "",
    "duckdb": "corpora.local readers.parquet",
    "faiss": "search.index",
    "fastapi": "service",
    "google_crc32c": "data.shards",
    "prometheus_client": "service",
    "py4j": "corpora.spark.cluster",
    "pydantic": "service",
    "py3langid": "intents.languages",
    "pyspark": "corpora.spark.cluster",
    "starlette": "service",
    "uvicorn": "service.server",
    "cycler": "figures",
    "matplotlib": "figures corpora.data_folder evaluation intents training",
    "ml_dtypes": "checkpoints.bert",
    "onnx": "export.onnx export.huggingface intents.one_file",
    "onnxruntime": "encoding.backends.onnx",  # where its telemetry is disabled
    "safetensors": "checkpoints.bert export.huggingface export.static",
    "scipy": _AFTER_NUMERICS,
    "sentencepiece": "corpora.vocabulary training.teaching.vectors",
    "sklearn": _AFTER_NUMERICS,
    "tensorboard": "training.summaries",
    "threadpoolctl": "numerics.initializers intents.head",
    "tokenizers": "training.teaching.teacher",
    "torch": "training.teaching.teacher export.huggingface.modeling_convert",
    "transformers": "training.teaching.teacher export.huggingface.modeling_convert",
    "yaml": "intents.rasa",
    "zstandard": "storage.lines corpora.sample",
}
# Exceptions to the above: files that processes with few imports load.
NUMPY_ONLY = "data.mining intents.encodings"

# Exported folders contain a copy of this file, so it shares no code with others.
COPIED = "convert_tf.export.huggingface.modeling_convert"

# Functions with the same role in many files of one package: `{name: package}`.
ROLES = {
    "read": "corpora",  # a format of dumps
    "define_flags": "cli",  # a command
    "run": "cli",
}

Sources = dict[str, str]


def _module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES: Sources = {
    _module_name(path): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))
}


@functools.cache
def _tree(source: str) -> ast.Module:
    return ast.parse(source)


@functools.cache
def _imports(source: str) -> list[tuple[str, bool]]:
    """Return `(name, whether inside a function)`; `from a import b` gives `a.b`."""
    found = []

    def walk(node: ast.AST, is_inside: bool) -> None:
        for child in ast.iter_child_nodes(node):
            inside = is_inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            if isinstance(child, ast.Import):
                found.extend((alias.name, inside) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                start = "." * child.level + (child.module or "")
                found.extend((f"{start}.{alias.name}", inside) for alias in child.names)
            walk(child, inside)

    walk(_tree(source), False)
    return found


def _is_under(module: str, places: str) -> bool:
    return any(f"{module}.".startswith(f"convert_tf.{place}.") for place in places.split())


def _graph(sources: Sources) -> dict[str, set[str]]:
    """Return the modules that each module imports; the package itself only counts by name."""
    known = {module for module in sources if module != "convert_tf"}
    found: dict[str, set[str]] = {}
    for module in known:
        names = {name for name, _ in _imports(sources[module])}
        names |= {name.rpartition(".")[0] for name in names - known}
        found[module] = (names & known) - {module}
    return found


def _circles(graph: dict[str, set[str]]) -> list[str]:
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return [" → ".join(error.args[1])]
    return []


def upward_imports(sources: Sources) -> list[str]:
    levels = {package: level for level, line in enumerate(ORDER) for package in line}
    faults = []
    packages: dict[str, set[str]] = {package: set() for package in levels}
    for module, source in sources.items():
        own = module.split(".")[1] if "." in module else None
        if own is not None and own not in levels:
            faults.append(f"{module} has no place in ORDER")
            continue
        for name, _ in _imports(source):
            parts = name.split(".")
            if own is None or parts[0] != "convert_tf" or parts[1] not in levels:
                continue
            if levels[parts[1]] > levels[own]:
                faults.append(f"{module} imports {name}")
            elif parts[1] != own:
                packages[own].add(parts[1])
    return faults + (_circles(packages) if not faults else [])


def circles_of_files(sources: Sources) -> list[str]:
    return _circles(_graph(sources))


def libraries_elsewhere(sources: Sources) -> list[str]:
    faults = []
    for module, source in sources.items():
        for name, is_inside in _imports(source):
            top = name.split(".")[0]
            places = LIBRARIES.get(top, "")
            if top in LIBRARIES or top not in (*sys.stdlib_module_names, "numpy", "convert_tf"):
                if not _is_under(module, places) or _is_under(module, NUMPY_ONLY):
                    faults.append(f"{module} imports {name}")
                elif top == "tensorflow_model_optimization" and not is_inside:
                    faults.append(f"{module} imports {name}, which is not always installed")
    return faults


def runnable_modules(sources: Sources) -> list[str]:
    return [
        f"{module} runs as __main__"
        for module, source in sources.items()
        for node in _tree(source).body
        if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
        if module != "convert_tf.__main__"
    ]


def ignored_argument_types(sources: Sources) -> list[str]:
    untrue = re.compile(r"type: ignore\[[^]]*arg-type")
    return [f"{m} passes an untrue type" for m, source in sources.items() if untrue.search(source)]


def names_twice(sources: Sources) -> list[str]:
    """Return public names defined in two files, unless they have the same role."""
    first: dict[str, str] = {}
    faults = []
    for module, source in sources.items():
        if module == COPIED:
            continue
        for node in _tree(source).body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if node.name.startswith("_") or _is_under(module, ROLES.get(node.name, "")):
                continue
            if node.name in first:
                faults.append(f"{node.name} is in {first[node.name]} and in {module}")
            first[node.name] = module
    return faults


def modules_that_are_gone(sources: Sources) -> list[str]:
    """Return names of missing modules in docstrings, comments and imports."""
    return [
        f"{module} names {name}"
        for module, source in sources.items()
        for name in re.findall(r"\bconvert_tf(?:\.[a-z]\w*)+", source)
        if name not in {*SOURCES, *sources}
        and (parent := name.rpartition(".")[0]) not in ({*SOURCES, *sources} - {"convert_tf"})
        and not (parent == "convert_tf" and name.rpartition(".")[2] in dir(convert_tf))
    ]


def utils(sources: Sources) -> list[str]:
    return [m for m in sources if m.rpartition(".")[2] in ("utils", "util", "helpers", "common")]


# Planted violations of each rule. If there are several, each must be found.
PLANTED: dict[Callable[[Sources], list[str]], list[Sources]] = {
    upward_imports: [
        {"convert_tf.models.x": "def f():\n    from convert_tf.training import run\n"},
        {"convert_tf.config.x": "import convert_tf.cli.main\n"},
        {"convert_tf.x": ""},
        {"convert_tf.search.x": "from convert_tf.intents.y import z",
         "convert_tf.intents.y": "from convert_tf.search import w"},
    ],
    circles_of_files: [
        {"convert_tf.text.a": "from convert_tf.text.b import f",
         "convert_tf.text.b": "def f():\n    from convert_tf.text import a"},
    ],
    libraries_elsewhere: [
        {"convert_tf.models.x": "def f():\n    from tensorflow import io as x\n"},
        {"convert_tf.training.state": "import tensorflow as tf"},
        {"convert_tf.numerics.devices": "import tensorflow.io"},
        {"convert_tf.numerics.quantization": "import tensorflow_model_optimization"},
        {"convert_tf.storage.files": "import pandas"},
        {"convert_tf.data.mining": "import keras"},
        {"convert_tf.export.onnx.writing": "from absl import flags"},
        {"convert_tf.cli.x": "import argparse"},
        {"convert_tf.numerics.x": "from sklearn import svm"},
    ],
    runnable_modules: [{"convert_tf.text.a": "if __name__ == '__main__':\n    f()\n"}],
    ignored_argument_types: [{"convert_tf.text.a": "f(x)  # type: ignore[misc, arg-type]\n"}],
    names_twice: [
        {"convert_tf.text.a": "class A: ...", "convert_tf.data.b": "def A(): ..."},
        {"convert_tf.text.a": "def run(): ...", "convert_tf.data.b": "def run(): ..."},
        {"convert_tf.text.a": "class A: ...\nclass A: ..."},
    ],
    modules_that_are_gone: [
        {"convert_tf.text.a": "# as `convert_tf.nonsense.f`"},
        {"convert_tf.text.a": "# as `convert_tf.nonsense`"},
    ],
    utils: [{"convert_tf.text.utils": ""}],
}  # fmt: skip


@pytest.mark.parametrize("rule", PLANTED, ids=lambda rule: rule.__name__)
def test_the_package_keeps_the_rule(rule):
    assert rule(SOURCES) == []


def test_what_the_rules_allow():
    """One role may have the same name in several files, and scikit-learn may follow `numerics`."""
    allowed = {
        "convert_tf.corpora.a": "from scipy import stats\ndef read(): ...",
        "convert_tf.corpora.b": "import sklearn\ndef read(): ...",
    }
    assert not [fault for rule in PLANTED for fault in rule(allowed)]


@pytest.mark.parametrize("rule", PLANTED, ids=lambda rule: rule.__name__)
def test_a_planted_fault_is_found(rule):
    for planted in PLANTED[rule]:
        assert rule(planted), planted


def test_the_package_is_typed_as_a_whole():
    settings = (ROOT / "pyproject.toml").read_text()
    own = settings.partition("[tool.mypy]")[2].partition("\n[")[0]
    assert 'packages = ["convert_tf"]' in own
    assert "exclude" not in own
    assert "ignore_errors" not in settings


_HEAVY = {
    "tensorflow", "keras", "jax", "tensorflow_text", "tensorflow_model_optimization", "duckdb",
}  # fmt: skip


def _loaded_after(statements: str, **environment: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{statements}\nimport sys; print(*sys.modules)"],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return _HEAVY & set(done.stdout.split())


def test_importing_the_package_loads_nothing_heavy():
    statements = (
        "import convert_tf, convert_tf.metrics, convert_tf.corpora.threads\n"
        "import convert_tf.data.packing, convert_tf.cli.main\n"
        "assert convert_tf.ModelConfig().embedding_dim == 512\n"
        "assert convert_tf.__version__\n"
        "convert_tf.metrics.recall_at_k([1, 2], 1)"
    )
    assert _loaded_after(statements) == set()


def test_the_light_runtime_and_workers_of_a_cluster_load_without_tensorflow():
    statements = "import convert_tf.encoding.sentence_encoder, convert_tf.encoding.backends.onnx"
    statements += "\nimport convert_tf.training.encoder.options"
    statements += "\nimport convert_tf.encoding.backends.huggingface"
    statements += "\nimport convert_tf.corpora.spark.tasks"
    assert _loaded_after(statements) == set()


def test_the_network_runs_without_tensorflow():
    """Everything needed for training on JAX can be imported without TensorFlow."""
    statements = (
        "import convert_tf.training.encoder.task, convert_tf.training.pretraining.task\n"
        "import convert_tf.training.ranker.task, convert_tf.training.mining\n"
        "import convert_tf.training.loop, convert_tf.checkpoints.folder\n"
        "import convert_tf.models.encoder, convert_tf.numerics.quantization"
    )
    assert _loaded_after(statements, KERAS_BACKEND="jax") == {"keras", "jax"}


def test_public_names_exist_and_unknown_ones_do_not():
    for name in dir(convert_tf):
        assert getattr(convert_tf, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = convert_tf.nonsense
