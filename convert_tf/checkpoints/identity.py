"""The identity of the encoder that made some vectors: its checksum, its form and its name.

Indexes, classifiers, arrays from `convert-tf embed` and reports from `convert-tf intent monitor`
store this identity. The `.onnx` file of a released encoder may be written by different versions of
convert_tf. The identity depends only on the weights, the maximum length of texts, the bits per
weight and the exporter, so it stays the same until the exporter changes.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from convert_tf.checkpoints.facts import module_form
from convert_tf.checkpoints.kinds import (
    CONFIG_FILE,
    SAFETENSORS_FILE,
    TOKENIZER_FILE,
    Kind,
    kind_of,
    model_checksum,
)
from convert_tf.checkpoints.released import ALL_RELEASES, EXPORTER, ONNX_SUFFIX
from convert_tf.storage.checksums import fingerprint

ORIGIN_KEY = "origin"  # in the metadata of an .onnx file, the last entry before the checksum
_ORIGIN = re.compile(rb"([0-9a-f]{64}) (onnx-\d+-\d+-\d+)")
_TAIL_BYTES = 256  # enough bytes for the entry `ORIGIN_KEY` and the checksum
_DIGITS = 16  # number of digits of the checksum in a fingerprint


class EncoderIdentity(NamedTuple):
    """The identity of an encoder. Equal identities mean equal vectors up to rounding.

    Attributes:
      checksum: SHA-256 of weights and vocabulary, in hexadecimal digits. An `.onnx` file has the
        checksum of the model it was exported from.
      form: `"onnx-8-512-3"` for an 8-bit `.onnx` file that reads 512 tokens and was written by
        version 3 of the exporter; `"module-60"` for a module that reads 60 tokens; `"folder-60"`
        for a Hugging Face folder whose limit was lowered to 60 tokens; `""` for runs, for modules
        that read 512 tokens and for other folders.
    """

    checksum: str
    form: str

    @property
    def name(self) -> str:
        """Name and version of a released model, such as `"convert_small/1"`; otherwise `""`."""
        return next(
            (
                f"{name}/{version}"
                for name, versions in ALL_RELEASES.items()
                for version, release in versions.items()
                if release.weights == self.checksum
            ),
            "",
        )

    @property
    def fingerprint(self) -> str:
        """A short text that is different for each encoder."""
        return "-".join(filter(None, [self.checksum[:_DIGITS], self.form]))

    def __str__(self) -> str:
        if not self.name:
            return f"an unreleased model (checksum {self.fingerprint})"
        if not self.form:
            return f"{self.name} as a module"
        match self.form.split("-"):
            case ["onnx", bits, tokens, exporter]:
                return f"{self.name} as {bits}-bit ONNX ({tokens} tokens, exporter {exporter})"
            case ["module", tokens]:
                return f"{self.name} as a module ({tokens} tokens)"
        return f"{self.name} ({self.form})"  # written by an earlier version

    def to_json(self) -> dict[str, str]:
        """Return the identity for a JSON file."""
        return {**self._asdict(), "name": self.name}


def identity_of(path: str | os.PathLike[str]) -> EncoderIdentity:
    """Return the identity of a module, a run, a Hugging Face folder or an `.onnx` file.

    Raises:
      OSError: if a file cannot be read.
      ValueError: if the `training.json` of a module is damaged or missing, or a file with a limit
        in a Hugging Face folder is damaged.
    """
    path = os.fspath(path)
    if path.endswith(ONNX_SUFFIX) and (origin := _origin_of(path)):
        return origin
    return EncoderIdentity(model_checksum(path), module_form(path))


def identity_from_json(described: Any) -> EncoderIdentity | None:
    """Return the identity described in a JSON file; None if there is no valid identity.

    Args:
      described: the value in the JSON file, as from `EncoderIdentity.to_json`.
    """
    if not isinstance(described, Mapping):
        return None
    checksum, form = described.get("checksum"), described.get("form")
    if not isinstance(checksum, str) or not isinstance(form, str):
        return None
    return EncoderIdentity(checksum, form)


def origin_text(source: str | os.PathLike[str], *, network_bits: int, max_tokens: int) -> str:
    """Return the metadata value of `ORIGIN_KEY` for the `.onnx` file of a run or module.

    Args:
      source: the run, module or Hugging Face folder that is exported.
      network_bits: number of bits per weight of the exported network.
      max_tokens: maximum number of tokens per text that the network reads.
    """
    checksum = model_checksum(source)
    if kind_of(source) is Kind.HUGGING_FACE_ENCODER:
        # The network is exported from these files. Files in `onnx/` may have older weights.
        names = (CONFIG_FILE, TOKENIZER_FILE, SAFETENSORS_FILE)
        checksum = fingerprint((name, Path(source) / name) for name in names)
    return f"{checksum} onnx-{network_bits}-{max_tokens}-{EXPORTER}"


def _origin_of(path: str) -> EncoderIdentity | None:
    with open(path, "rb") as file:
        file.seek(max(os.path.getsize(path) - _TAIL_BYTES, 0))
        match = _ORIGIN.search(file.read())
    return EncoderIdentity(*(group.decode() for group in match.groups())) if match else None
