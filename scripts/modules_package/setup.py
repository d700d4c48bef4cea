"""Package the released modules, which `scripts/release.py` first copies to this folder."""

from setuptools import setup

setup(
    name="convert-tf-modules",
    version="1",
    description="The modules convert_small and convert of convert_tf, as files",
    license="Apache-2.0",
    packages=["convert_tf_modules"],
    package_data={"convert_tf_modules": ["**/*"]},
    python_requires=">=3.10",
)
