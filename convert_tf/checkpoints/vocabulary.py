"""Vocabularies of models: their paths, checks and tokenizers."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from convert_tf.checkpoints.facts import training_facts
from convert_tf.checkpoints.kinds import CheckpointError, kind_of
from convert_tf.config.bert import BertConfig
from convert_tf.config.model import ModelConfig
from convert_tf.config.ranker import RankerConfig
from convert_tf.storage.checksums import check_files, file_checksum
from convert_tf.text.plain_tokenizer import PlainTokenizer
from convert_tf.text.vocabulary import SETTINGS_FILE, VOCABULARY_FILES, read_vocabulary

if TYPE_CHECKING:
    from convert_tf.text.tokenizer import Tokenizer


def vocabulary_path(
    folder: str | os.PathLike, config: ModelConfig | RankerConfig | BertConfig
) -> Path:
    """Return the path of the vocabulary of a run or module."""
    folder = Path(folder) / "assets" if kind_of(folder).is_module else Path(folder)
    return folder / VOCABULARY_FILES[config.tokenizer]


def checked_vocabulary(
    folder: str | os.PathLike, config: ModelConfig | RankerConfig | BertConfig
) -> Path:
    """Return the path of the vocabulary of a run or module, after checking the file.

    Raises:
      ValueError: if the file is missing, or is not the vocabulary that the model was trained with.
    """
    path = vocabulary_path(folder, config)
    sha256 = file_checksum(path) if path.is_file() else None
    check_files(folder, SETTINGS_FILE)
    if sha256 is None:
        raise CheckpointError(f"{str(path)!r} is missing. Copy the model's vocabulary there.")
    if training_facts(folder).get("vocabulary_sha256", sha256) != sha256:
        raise CheckpointError(
            f"{str(path)!r} is not the vocabulary that the model was trained with. Copy the "
            "correct file there."
        )
    return path


def check_same_vocabulary(
    given: str | os.PathLike, expected: str | os.PathLike, *, rule: str, remedy: str
) -> None:
    """Check that two vocabulary files are equal.

    Args:
      given: the file to check.
      expected: the file that it must be equal to.
      rule: sentence that says why they must be equal, without its full stop.
      remedy: sentence that says what to do if they are not equal.

    Raises:
      ValueError: if the files differ, or the expected file is missing.
    """
    if not Path(expected).is_file():
        raise CheckpointError(f"{rule}. {str(expected)!r} is missing. {remedy}")
    if Path(given).read_bytes() != Path(expected).read_bytes():
        raise CheckpointError(f"{rule}. {str(given)!r} differs from {str(expected)!r}. {remedy}")


def fitting_tokenizer(
    vocabulary: str | os.PathLike, config: ModelConfig | BertConfig
) -> "Tokenizer":
    """Return the tokenizer of a model as TensorFlow ops.

    Raises:
      ValueError: if the vocabulary does not fit the configuration of the model.
    """
    from convert_tf.text.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(vocabulary, num_oov_buckets=config.num_oov_buckets)
    _check_fits(tokenizer, config)
    return tokenizer


def plain_tokenizer(
    vocabulary: str | os.PathLike, config: ModelConfig | BertConfig
) -> "Tokenizer | PlainTokenizer":
    """Return the tokenizer of a model, without TensorFlow if it is a subword tokenizer.

    Raises:
      ValueError: if the vocabulary does not fit the configuration of the model.
    """
    if config.tokenizer != "subword":
        return fitting_tokenizer(vocabulary, config)
    subwords = read_vocabulary(vocabulary)
    tokenizer = PlainTokenizer(subwords, num_oov_buckets=config.num_oov_buckets)
    _check_fits(tokenizer, config)
    return tokenizer


def _check_fits(tokenizer: "Tokenizer | PlainTokenizer", config: ModelConfig | BertConfig) -> None:
    received = (tokenizer.name, tokenizer.vocab_size, tokenizer.num_oov_buckets)
    expected = (config.tokenizer, config.vocab_size, config.num_oov_buckets)
    if received != expected:
        raise CheckpointError(
            f"The vocabulary does not fit the model: it has {received} (tokenizer, entries, hash "
            f"buckets), but the model needs {expected}. Use the vocabulary in the model's folder."
        )
