"""The vocabulary of a model: where it is, whether it is the right one, its tokenizer."""

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
from convert_tf.text.vocabulary import SETTINGS_FILE, read_vocabulary

if TYPE_CHECKING:
    from convert_tf.text.tokenizer import Tokenizer

VOCABULARY_FILES = {
    "subword": "vocab.txt",
    "sentencepiece": "vocab.model",
    "wordpiece": "vocab.txt",
}


def vocabulary_path(
    folder: str | os.PathLike, config: ModelConfig | RankerConfig | BertConfig
) -> Path:
    """Where the vocabulary of a model directory, or of a module, is."""
    folder = Path(folder) / "assets" if kind_of(folder).is_module else Path(folder)
    return folder / VOCABULARY_FILES[config.tokenizer]


def checked_vocabulary(
    folder: str | os.PathLike, config: ModelConfig | RankerConfig | BertConfig
) -> Path:
    """The vocabulary of a model directory, or of a module.

    Raises:
      CheckpointError: it is missing, or not the one that the model was trained with.
    """
    path = vocabulary_path(folder, config)
    found = file_checksum(path) if path.is_file() else None
    check_files(folder, SETTINGS_FILE, error=CheckpointError)
    if found is None or training_facts(folder).get("vocabulary_sha256", found) != found:
        raise CheckpointError(
            "A checkpoint must hold the vocabulary it was trained with. Received: "
            f"{str(path)!r}, which is {'missing' if found is None else 'another one'}. Put the "
            "right file there."
        )
    return path


def check_same_vocabulary(
    given: str | os.PathLike, own: str | os.PathLike, *, rule: str, remedy: str
) -> None:
    """Raises `CheckpointError` unless two vocabulary files hold the same.

    Args:
      given: what was asked for.
      own: what it must be; it may be missing.
      rule: why, a sentence without its full stop.
      remedy: what to do, a sentence.
    """
    if not Path(own).is_file():
        raise CheckpointError(f"{rule}. Received: {str(own)!r}, which is missing. {remedy}")
    if Path(given).read_bytes() != Path(own).read_bytes():
        raise CheckpointError(
            f"{rule}. Received: another vocabulary, {str(given)!r}, which differs from "
            f"{str(own)!r}. {remedy}"
        )


def fitting_tokenizer(
    vocabulary: str | os.PathLike, config: ModelConfig | BertConfig
) -> "Tokenizer":
    """The tokenizer of a model's vocabulary, for graphs; needs TensorFlow.

    Raises:
      CheckpointError: it has other ids than the model has rows for.
    """
    from convert_tf.text.loading import load_tokenizer

    tokenizer = load_tokenizer(vocabulary, num_oov_buckets=config.num_oov_buckets)
    _check_fits(tokenizer, config)
    return tokenizer


def plain_tokenizer(
    vocabulary: str | os.PathLike, config: ModelConfig | BertConfig
) -> "Tokenizer | PlainTokenizer":
    """A tokenizer with `flat_ids`; needs TensorFlow for other vocabularies than of subwords.

    Raises:
      CheckpointError: it has other ids than the model has rows for.
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
            "The vocabulary must be the one that the model was made for: tokenizer, entries and "
            f"hash buckets {expected}. Received: {received}. Use the vocabulary in the folder of "
            "the checkpoint."
        )
