"""Warn if a vocabulary lacks most tokens of the texts."""

import os
import warnings
from pathlib import Path

import numpy as np

MAX_SHARE = 0.5
SAMPLE = 1024  # number of examples whose tokens are checked


def checked_share(
    ids: np.ndarray,
    vocabulary: str | os.PathLike[str],
    *,
    tokenizer: str,
    vocab_size: int,
    what: str,
) -> float:
    """Return the share of unknown tokens, and warn if it is more than half.

    Args:
      ids: the token ids of the texts, `[tokens]`.
      vocabulary: the vocabulary file.
      tokenizer: name of the tokenizer. A WordPiece vocabulary has an entry for unknown words.
      vocab_size: number of vocabulary entries. Ids that are not below this number stand for unknown
        tokens.
      what: description of the texts for the warning, such as "the texts of data/".
    """
    unknown = ids >= vocab_size
    if tokenizer == "wordpiece":
        entries = Path(vocabulary).read_text(encoding="utf-8").split("\n")
        unknown |= ids == entries.index("[UNK]")
    share = round(float(np.mean(unknown)), 4) if len(ids) else 0.0
    warn_of_unknown(share, vocabulary, what)
    return share


def warn_of_unknown(share: float, vocabulary: str | os.PathLike[str], what: str) -> None:
    """Warn if more than half of the tokens are unknown.

    Args:
      share: the share of unknown tokens, from 0 to 1.
      vocabulary: the vocabulary file.
      what: description of the texts for the warning, such as "the texts of data/".
    """
    if share > MAX_SHARE:
        warnings.warn(
            f"{share:.0%} of the tokens of {what} are unknown to {os.fspath(vocabulary)}. Check "
            "that this vocabulary was made for such texts, or learn one with convert-tf "
            "vocabulary.",
            stacklevel=2,
        )
