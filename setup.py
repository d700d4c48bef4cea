"""Support tools that call setup.py. The package is described in pyproject.toml."""

from setuptools import setup

setup()
