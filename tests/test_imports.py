"""The import rules of the package, read from the source with `ast`."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import convert_tf

PACKAGE = Path(convert_tf.__file__).parent
ROOT = PACKAGE.parent
SCRIPTS = ("train.py", "export.py", "setup.py")

# Imports run from a higher level to a lower one, or stay within one. The longest prefix counts.
LEVELS = {
    "convert_tf": 0,  # imports nothing of the package but by name, when asked
    "convert_tf.files": 0,
    "convert_tf.devices": 0,
    "convert_tf.config_base": 0,
    "convert_tf.config": 0,
    "convert_tf.train_config": 0,
    "convert_tf.bert_config": 0,
    "convert_tf.head_config": 0,
    "convert_tf.metrics": 0,
    "convert_tf.encoding_cache": 0,
    "convert_tf.text_batches": 0,
    "convert_tf.text_ranker": 0,
    "convert_tf.candidate_cache": 0,
    "convert_tf.candidate_scoring": 0,
    "convert_tf.candidate_writer": 0,
    "convert_tf.baselines": 1,
    "convert_tf.vector_baselines": 1,
    "convert_tf.ranking": 1,
    "convert_tf.comparison": 1,
    "convert_tf.data": 0,
    "convert_tf.data.records": 1,
    "convert_tf.data.pipeline": 1,
    "convert_tf.data.local_runner": 1,
    "convert_tf.data.prepare": 1,
    "convert_tf.data.beam_publish": 1,
    "convert_tf.data.beam_steps": 1,
    "convert_tf.data.beam_runner": 1,
    "convert_tf.data.prepare_beam": 1,
    "convert_tf.data.report": 1,
    "convert_tf.data.tokenize": 1,
    "convert_tf.teacher": 1,
    "convert_tf.data.teach": 2,
    "convert_tf.data.mine": 5,
    "convert_tf.data.turns": 1,
    "convert_tf.text": 1,
    "convert_tf.quantization": 1,
    "convert_tf.tensorflow_cpu": 1,
    "convert_tf.losses": 1,
    "convert_tf.initializers": 1,
    "convert_tf.distribution": 4,
    "convert_tf.layers": 2,
    "convert_tf.data.pretraining_batches": 1,
    "convert_tf.distillation": 3,
    "convert_tf.encoders": 3,
    "convert_tf.bert": 3,
    "convert_tf.heads": 3,
    "convert_tf.convert_trunk": 3,
    "convert_tf.rankers": 4,
    "convert_tf.ranker_scoring": 4,
    "convert_tf.ranker_checkpoint": 5,
    "convert_tf.ranker_mining": 5,
    "convert_tf.ranker_texts": 5,
    "convert_tf.ranker_trainer": 5,
    "convert_tf.ranker_training": 5,
    "convert_tf.plateau": 4,
    "convert_tf.checkpoint": 4,
    "convert_tf.module_weights": 4,
    "convert_tf.huggingface": 4,
    "convert_tf.bert_checkpoint": 4,
    "convert_tf.pretraining": 5,
    "convert_tf.pretraining_run": 5,
    "convert_tf.pretrain": 5,
    "convert_tf.callbacks": 5,
    "convert_tf.termination": 0,
    "convert_tf.training_state": 4,
    "convert_tf.dev_evaluation": 5,
    "convert_tf.trainer": 5,
    "convert_tf.micro_batches": 4,
    "convert_tf.micro_batches_tensorflow": 4,
    "convert_tf.summaries": 5,
    "convert_tf.own_file": 5,
    "convert_tf.training": 5,
    "convert_tf.training_data": 5,
    "convert_tf.backend": 5,
    "convert_tf.client": 5,
    "convert_tf.embed": 6,
    "convert_tf.encoder_client": 5,
    "convert_tf.light": 5,
    "convert_tf.module_backend": 5,
    "convert_tf.sentence_encoder": 5,
    "convert_tf.text_encoders": 5,
    "convert_tf.evaluation_rows": 5,
    "convert_tf.evaluation_tasks": 5,
    "convert_tf.evaluate": 5,
    "convert_tf.intent_data": 0,
    "convert_tf.intent_head": 0,
    "convert_tf.intent_scope": 0,
    "convert_tf.intent_tuning": 0,
    "convert_tf.intent_finetuning": 5,
    "convert_tf.intent_encodings": 7,
    "convert_tf.intent_classifier": 7,
    "convert_tf.intent_model": 7,
    "convert_tf.intent_report": 7,
    "convert_tf.intent_benchmark": 7,
    "convert_tf.intent_benchmark_report": 7,
    "convert_tf.intent_serving": 7,
    "convert_tf.intent_commands": 7,
    "convert_tf.intent_comparison": 7,
    "convert_tf.intent": 7,
    "convert_tf.index": 5,
    "convert_tf.index_encoders": 5,
    "convert_tf.faiss_index": 5,
    "convert_tf.reranked_index": 5,
    "convert_tf.nearest": 6,
    "convert_tf.model_card": 6,
    "convert_tf.unsaved_variables": 6,
    "convert_tf.stored_weights": 6,
    "convert_tf.encoder_module": 6,
    "convert_tf.graph_batches": 6,
    "convert_tf.stored_table": 6,
    "convert_tf.ranker_module": 6,
    "convert_tf.encoding_ranker_module": 6,
    "convert_tf.cross_ranker_module": 6,
    "convert_tf.ranker_export": 6,
    "convert_tf.ranker_card": 6,
    "convert_tf.module_ranker": 5,
    "convert_tf.inference_network": 6,
    "convert_tf.hub": 6,
    "convert_tf.light_batches": 1,
    "convert_tf.onnx_graph": 6,
    "convert_tf.onnx_writer": 6,
    "convert_tf.onnx_export": 6,
}
MAY_IMPORT_TENSORFLOW = (
    "convert_tf.text",
    "convert_tf.data.records",
    "convert_tf.data.pipeline",
    "convert_tf.data.tokenize",
    "convert_tf.data.teach",
    "convert_tf.data.turns",
    "convert_tf.hub",
    "convert_tf.module_weights",
    "convert_tf.unsaved_variables",
    "convert_tf.stored_weights",
    "convert_tf.inference_network",
    "convert_tf.encoder_module",
    "convert_tf.graph_batches",
    "convert_tf.stored_table",
    "convert_tf.ranker_module",
    "convert_tf.encoding_ranker_module",
    "convert_tf.cross_ranker_module",
    "convert_tf.module_ranker",
    "convert_tf.module_backend",
    "convert_tf.text_encoders",
    "convert_tf.intent_serving",
    "convert_tf.micro_batches_tensorflow",
    "convert_tf.tensorflow_cpu",
)
READ_NO_MODEL_CONFIG = (
    "convert_tf.layers",
    "convert_tf.quantization",
    "convert_tf.losses",
    "convert_tf.heads",
    "convert_tf.metrics",
)
STANDARD_LIBRARY_AND_NUMPY_ONLY = (
    "convert_tf.light_batches",
    "convert_tf.text.plain_text",
    "convert_tf.text.plain_tokenizer",
    "convert_tf.text.unicode_tables",
    "convert_tf.files",
    "convert_tf.config_base",
    "convert_tf.config",
    "convert_tf.train_config",
    "convert_tf.bert_config",
    "convert_tf.head_config",
    "convert_tf.metrics",
    "convert_tf.text_batches",
    "convert_tf.text_ranker",
    "convert_tf.backend",
    "convert_tf.client",
    "convert_tf.encoder_client",
    "convert_tf.encoding_cache",
    "convert_tf.sentence_encoder",
    "convert_tf.data.progress",
    "convert_tf.baselines",
    "convert_tf.vector_baselines",
    "convert_tf.ranking",
    "convert_tf.candidate_writer",
    "convert_tf.candidate_scoring",
    "convert_tf.candidate_cache",
    "convert_tf.data.amazon_qa",
    "convert_tf.data.candidates",
    "convert_tf.data.comments",
    "convert_tf.data.conversations",
    "convert_tf.data.negative_search",
    "convert_tf.data.mapped_file",
    "convert_tf.data.negatives",
    "convert_tf.data.corpora",
    "convert_tf.data.dialogues",
    "convert_tf.data.opensubtitles",
    "convert_tf.data.array_writer",
    "convert_tf.data.arrays",
    "convert_tf.data.batches",
    "convert_tf.data.order",
    "convert_tf.data.packing",
    "convert_tf.data.prefetch",
    "convert_tf.data.teacher_vectors",
    "convert_tf.data.pretraining_batches",
    "convert_tf.data.record_index",
    "convert_tf.data.pairs",
    "convert_tf.data.ranking_batches",
    "convert_tf.data.streams",
    "convert_tf.data.threads",
)


def _module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {_module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
SOURCES = {
    **FILES,
    **{name: ROOT / name for name in SCRIPTS if (ROOT / name).is_file()},
}


def _under(name: str, prefixes) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def imports_of(source: str, module: str = "") -> list[tuple[str, bool]]:
    """`(imported name, whether inside a function)`; `from a import b` counts as `a` and `a.b`."""
    found = []

    def walk(node: ast.AST, is_inside: bool) -> None:
        for child in ast.iter_child_nodes(node):
            inside = is_inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            if isinstance(child, ast.Import):
                found.extend((alias.name, inside) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert not child.level, f"{module}: imports are absolute"
                found.append((child.module, inside))
                found.extend((f"{child.module}.{alias.name}", inside) for alias in child.names)
            walk(child, inside)

    walk(ast.parse(source), False)
    return found


IMPORTS = {name: imports_of(path.read_text(), name) for name, path in SOURCES.items()}


def _level(name: str) -> int | None:
    prefixes = [prefix for prefix in LEVELS if prefix != "convert_tf" and _under(name, [prefix])]
    if prefixes:
        return LEVELS[max(prefixes, key=len)]
    return LEVELS["convert_tf"] if name == "convert_tf" else None


@pytest.mark.parametrize("module", FILES)
def test_every_module_has_a_level(module):
    assert _level(module) is not None, "Give the module its place in LEVELS."


@pytest.mark.parametrize("module", FILES)
def test_imports_run_one_way(module):
    for imported, _ in IMPORTS[module]:
        if imported in FILES and imported != "convert_tf":
            assert _level(imported) <= _level(module), f"{module} imports {imported}"


@pytest.mark.parametrize("module", SOURCES)
def test_tensorflow_is_imported_where_it_may_be(module):
    """tfmot, which imports it, only by quantization, and there only inside a function."""
    may = module in SCRIPTS or _under(module, MAY_IMPORT_TENSORFLOW)
    for imported, is_inside in IMPORTS[module]:
        top = imported.split(".")[0]
        if top == "tensorflow_model_optimization":
            assert module == "convert_tf.quantization"
            assert is_inside
        elif top.startswith(("tensorflow", "tf_keras")):
            assert may, f"{module} imports {imported}"


@pytest.mark.parametrize("module", FILES)
def test_only_encoders_and_what_stands_on_them_read_the_config(module):
    if _under(module, READ_NO_MODEL_CONFIG):
        assert "convert_tf.config" not in {imported for imported, _ in IMPORTS[module]}


@pytest.mark.parametrize("module", STANDARD_LIBRARY_AND_NUMPY_ONLY)
def test_pure_modules_stay_pure(module):
    for imported, _ in IMPORTS[module]:
        top = imported.split(".")[0]
        assert top in sys.stdlib_module_names or top in ("numpy", "convert_tf"), imported


@pytest.mark.parametrize("module", SOURCES)
def test_flags_live_in_scripts(module):
    tree = ast.parse(SOURCES[module].read_text())
    is_script = any(
        isinstance(node, ast.If) and "__name__" in ast.unparse(node.test) for node in tree.body
    )
    if not is_script:
        assert not [i for i, _ in IMPORTS[module] if i.split(".")[0] in ("absl", "argparse")]


@pytest.mark.parametrize("module", SOURCES)
def test_nobody_writes_tf_keras(module):
    assert not tf_keras_lines(SOURCES[module].read_text())


def tf_keras_lines(source: str) -> list[int]:
    tree = ast.parse(source)
    attributes = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr == "keras"
        and isinstance(node.value, ast.Name)
        and node.value.id in ("tf", "tensorflow")
    ]
    names = [name for name, _ in imports_of(source) if name.startswith("tensorflow.keras")]
    return attributes + [0] * len(names)


def test_there_are_no_utils():
    assert not [name for name in FILES if name.split(".")[-1] in ("utils", "util", "helpers")]


def test_the_rules_see_what_they_forbid():
    """The scanner finds nested, aliased and lazy forms."""
    source = "def f():\n    from tensorflow import io as x\nimport a.b as c\n"
    assert imports_of(source) == [("tensorflow", True), ("tensorflow.io", True), ("a.b", False)]
    assert tf_keras_lines("import tensorflow as tf\ny = tf.keras.layers.Dense\n") == [2]
    assert tf_keras_lines("from tensorflow import keras\n") == [0]


_HEAVY = (
    "tensorflow",
    "keras",
    "jax",
    "tensorflow_text",
    "tensorflow_model_optimization",
    "duckdb",
)


def _loaded_after(statements: str, **environment: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{statements}\nimport sys; print(*sys.modules)"],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return {name for name in done.stdout.split() if name in _HEAVY}


def test_importing_the_package_loads_nothing_heavy():
    statements = (
        "import convert_tf, convert_tf.metrics, convert_tf.data.threads, convert_tf.data.packing\n"
        "assert convert_tf.ModelConfig().embedding_dim == 512\n"
        "assert convert_tf.__version__\n"
        "convert_tf.recall_at_k([1, 2], 1)"
    )
    assert _loaded_after(statements) == set()


def test_the_light_runtime_loads_without_tensorflow():
    assert _loaded_after("from convert_tf import client, light") == set()


def test_workers_of_a_cluster_read_without_tensorflow():
    pytest.importorskip("apache_beam")
    assert _loaded_after("from convert_tf.data import beam_steps") == set()


def test_the_network_runs_without_tensorflow():
    """Everything that a JAX machine trains with imports without TensorFlow."""
    statements = (
        "from convert_tf import callbacks, checkpoint, encoders, trainer, quantization\n"
        "from convert_tf import pretraining_run, ranker_training\n"
        "from convert_tf.data import mine"
    )
    assert _loaded_after(statements, KERAS_BACKEND="jax") == {"keras", "jax"}


def test_public_names_exist_and_unknown_ones_do_not():
    for name in dir(convert_tf):
        assert getattr(convert_tf, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = convert_tf.nonsense
