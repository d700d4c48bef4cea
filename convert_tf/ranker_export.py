"""Writes a ranker's checkpoint as a TF Hub module."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from convert_tf.checkpoint import CheckpointError, check_vocabulary, training_facts
from convert_tf.config import MAX_TOKENS
from convert_tf.cross_ranker_module import CrossRankerModule
from convert_tf.encoding_ranker_module import EncodingRankerModule
from convert_tf.hub import check_output, write_module
from convert_tf.ranker_card import ranker_card
from convert_tf.ranker_checkpoint import load_ranker
from convert_tf.ranker_module import RankerModule
from convert_tf.rankers import Ranker
from convert_tf.stored_weights import WeightsError
from convert_tf.text.tokenizer import Tokenizer, load_tokenizer


def make_ranker_module(ranker: Ranker, tokenizer: Tokenizer, **kwargs: Any) -> RankerModule:
    """The module of a ranker, of the class that its head wants; arguments as in `RankerModule`."""
    kind = CrossRankerModule if ranker.is_joint else EncodingRankerModule
    return kind(ranker, tokenizer, **kwargs)


def export_ranker(
    checkpoint: str | os.PathLike,
    output: str | os.PathLike,
    *,
    network_bits: int = 16,
    max_tokens: int = MAX_TOKENS,
    notes: str = "",
    overwrite: bool = False,
) -> Path:
    """Writes the module of a ranker's checkpoint, with a model card.

    Args:
      checkpoint: a model directory that `train.py --head` wrote.
      output: the module's folder; its parents are made, and a link is followed.
      network_bits: 16 or 8, of the weights in the file.
      max_tokens: longest texts, where the ranker's own limits are not lower.
      notes: Markdown that joins the model card: where the data are from, how good it is.
      overwrite: whether a folder of that name is replaced.

    Returns:
      `output`.

    Raises:
      ExportError: `output` exists, or cannot be written.
      CheckpointError: the checkpoint is incomplete, damaged, or its vocabulary is another one.
      ValueError: another argument is out of range.
    """
    check_output(output, overwrite=overwrite)
    ranker, vocabulary = load_ranker(checkpoint)
    config = ranker.config
    tokenizer = load_tokenizer(vocabulary, num_oov_buckets=config.model.num_oov_buckets)
    check_vocabulary(tokenizer, config.model)
    try:
        module = make_ranker_module(
            ranker, tokenizer, network_bits=network_bits, max_tokens=max_tokens
        )
    except WeightsError as error:
        raise CheckpointError(f"{os.fspath(checkpoint)}: {error}") from error
    facts = training_facts(checkpoint)

    def card(sizes: Mapping[str, int]) -> str:
        return ranker_card(
            config,
            facts,
            context_tokens=module.context_tokens,
            candidate_tokens=module.candidate_tokens,
            network_bits=network_bits,
            sizes=sizes,
            notes=notes,
        )

    return write_module(module, output, card=card, overwrite=overwrite)
