"""Whether a vocabulary is one for the texts: most of their tokens are entries of it."""

import os
import warnings

import numpy as np

from convert_tf.data.batches import Examples

MAX_SHARE = 0.5
_SAMPLE = 1024  # examples


def unknown_share(examples: Examples, vocab_size: int) -> float:
    """The share of tokens that are unknown, of the first examples of a split.

    Args:
      examples: the split.
      vocab_size: entries of the vocabulary; ids behind them are shared by unknown tokens.

    Raises:
      ValueError: what is stored is damaged.
    """
    stop = min(_SAMPLE, examples.num_examples)
    if not stop:
        return 0.0
    ids = examples.token_ids(examples.load(np.array([0]), np.array([stop]))).flat
    return float(np.mean(ids >= vocab_size)) if len(ids) else 0.0


def warn_of_unknown(share: float, vocabulary: str | os.PathLike[str], what: str) -> None:
    """Says so where most tokens are unknown.

    Args:
      share: of unknown tokens.
      vocabulary: the file.
      what: the texts are, as "the texts of data/".
    """
    if share > MAX_SHARE:
        warnings.warn(
            f"{share:.0%} of the tokens of {what} are unknown to {os.fspath(vocabulary)}. Check "
            "that it is the vocabulary for them, or learn one with convert-tf vocabulary.",
            stacklevel=2,
        )
