"""Commands start without the optional libraries of TensorFlow and Keras, and can import them."""

import subprocess
import sys

import pytest
from support.commands import ROOT, own_environment
from support.processes import ON_JAX

START = """
import sys
from convert_tf.numerics.imports import skip_optional_imports
skip_optional_imports()
skip_optional_imports()
"""
LIBRARIES = ("jax", "matplotlib", "sklearn")


@pytest.mark.parametrize(
    ("module", "variables", "expected"), [("tensorflow", {}, set()), ("keras", ON_JAX, {"jax"})]
)
def test_optional_libraries_are_imported_when_they_are_needed(module, variables, expected):
    program = f"""{START}
import {module}
print(*({{*{LIBRARIES}}} & {{*sys.modules}}))
import jax, matplotlib.pyplot, sklearn.svm
print(len([each for each in sys.meta_path if "convert_tf" in type(each).__module__]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT, env={**own_environment(), **variables}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    imported, finders = done.stdout.splitlines()
    assert ({*imported.split()}, finders) == (expected, "1")
