"""Read the maximum length of texts from the files in a Hugging Face folder."""

from pathlib import Path
from typing import Any

from convert_tf.checkpoints.kinds import CONFIG_FILE
from convert_tf.storage.json_text import json_file
from convert_tf.storage.messages import shortened

# The tokenizer and the prompt each put one token before a text, to select the kind of vector.
PREFIX_TOKENS = 2
# The entry in config.json with the number of tokens before each text that its limit includes.
PREFIX_TOKENS_KEY = "prefix_tokens"
# Files for other programs, and their entries with the maximum number of tokens.
LIMIT_FILES = {
    "sentence_bert_config.json": "max_seq_length",
    "tokenizer_config.json": "model_max_length",
}
_CONFIG_LIMIT = "max_position_embeddings"


def folder_max_tokens(folder: Path, config: dict[str, Any]) -> int:
    """Return the maximum number of subwords per text, the smallest limit in a folder's files.

    If a user lowers `max_seq_length` in sentence-transformers, `config.json` keeps the old limit.

    Args:
      folder: a folder from `convert-tf export --format huggingface`.
      config: content of its `config.json`.

    Raises:
      ValueError: if a file is damaged, or a limit leaves no room for a text.
    """
    most, special = _config_limit(config)
    limits = [most]
    for name, entry in LIMIT_FILES.items():
        limit = file_limit(folder / name, entry, special)
        # Other programs count all tokens, but earlier versions of convert_tf left out two of them.
        if limit is not None and limit < most and not special:
            limit = file_limit(folder / name, entry, PREFIX_TOKENS)
        if limit is not None:
            limits.append(limit)
    return min(limits)


def lowered_max_tokens(folder: Path) -> int | None:
    """Return the maximum number of subwords per text if it is below the limit in `config.json`.

    Args:
      folder: a folder from `convert-tf export --format huggingface`.

    Raises:
      ValueError: as for `folder_max_tokens`.
    """
    config = json_file(folder / CONFIG_FILE)
    tokens = folder_max_tokens(folder, config)
    return tokens if tokens < _config_limit(config)[0] else None


def file_limit(path: Path, entry: str, special_tokens: int) -> int | None:
    """Return the maximum number of subwords per text from a file for other programs.

    Args:
      path: a JSON file, which may be missing.
      entry: the entry with the maximum number of tokens. It may be a float without a fraction, such
        as 1e30.
      special_tokens: number of special tokens that the entry includes.

    Returns:
      The number without special tokens; None if the file or the entry is missing.

    Raises:
      ValueError: if the file is not a JSON object, or the entry is not a whole number above
        `special_tokens`.
    """
    settings = json_file(path) if path.is_file() else {}
    if not isinstance(settings, dict):
        raise ValueError(f"{str(path)!r} is not a JSON object")
    most = settings.get(entry)
    if most is None:
        return None
    is_whole = type(most) is int or (isinstance(most, float) and most.is_integer())
    if not is_whole or most <= special_tokens:
        raise ValueError(
            f"{entry} in {path.name} must be a whole number above {special_tokens}. "
            f"Received: {shortened(repr(most), 100)}"
        )
    return int(most) - special_tokens


def _config_limit(config: dict[str, Any]) -> tuple[int, int]:
    """Return the limit in `config.json` without special tokens, and the number of these tokens."""
    # Earlier versions of convert_tf wrote limits without the tokens before a text.
    special = config.get(PREFIX_TOKENS_KEY, 0)
    if type(special) is not int or special < 0:
        raise ValueError(f"{CONFIG_FILE} has {PREFIX_TOKENS_KEY}: {special!r}")
    most = config.get(_CONFIG_LIMIT)
    if type(most) is not int or not special < most < 2**31:
        raise ValueError(f"{CONFIG_FILE} has {_CONFIG_LIMIT}: {most!r}")
    return most - special, special
