"""What a ranker is trained and evaluated on: a candidates file, or a folder of records."""

import itertools
import os
from collections.abc import Iterator

import numpy as np

from convert_tf.config.head import RankerTraining
from convert_tf.data.candidates import CandidateExample, read_candidates
from convert_tf.data.packing import TokenIds
from convert_tf.data.ranking_batches import NegativeSampler, RankingExamples
from convert_tf.metrics import BLOCK_SIZE
from convert_tf.training.ranker.mining import mine_negatives

MINED = 100  # the best wrong candidates, from which negatives are drawn
_DEV_LIST = 20  # candidates of a context where records are ranked by a cross-encoder


def read_examples(
    data: str, split: str, *, max_examples: int | None = None
) -> Iterator[CandidateExample]:
    """The examples of a candidates file, or of a split of a folder of records.

    Args:
      data: the file, or the folder, whose responses are each the one candidate of their context.
      split: of a folder.
      max_examples: stop after this many.

    Raises:
      ValueError: there are none, or they are damaged.
      OSError: the file cannot be read.
    """
    if not os.path.isdir(data):
        yield from itertools.islice(read_candidates(data), max_examples)
        return
    from convert_tf.data.turns import read_turns

    for record in read_turns(data, split, max_examples=max_examples):
        yield CandidateExample(record.turns, (record.response,), (0,))


def with_dev_candidates(examples: RankingExamples, *, is_joint: bool) -> RankingExamples:
    """Examples with candidates to rank: those given, or those of other examples.

    Records give the right candidate only. A bi- or poly-encoder then ranks it among the right ones
    of its block of 100 examples; a cross-encoder, which reads each pair anew, among 20.

    Raises:
      ValueError: there are too few examples for that.
    """
    if any(len(own) > 1 for own in examples.candidates):
        return examples
    size = _DEV_LIST if is_joint else BLOCK_SIZE
    usable = examples.num_examples // size * size
    if not usable:
        raise ValueError(
            f"Ranking among {size} needs at least {size} examples. Received: "
            f"{examples.num_examples} on the dev data. Use more."
        )
    right = np.concatenate(examples.candidates[:usable]).reshape(-1, size)
    splits = examples.contexts.row_splits[: usable + 1]
    candidates, labels = [], []
    for block in right:
        for own in block:
            # A text that is right for several contexts of the block is one candidate of each.
            texts = np.unique(block)
            candidates.append(texts)
            labels.append(np.flatnonzero(texts == own))
    contexts = TokenIds(examples.contexts.flat[: splits[-1]], splits)
    return RankingExamples(contexts, examples.pool, candidates, labels)


def open_sampler(
    examples: RankingExamples, config: RankerTraining, init_from: str
) -> NegativeSampler | None:
    if config.negatives_from == "in_batch":
        return None
    mined = None
    if config.negatives_from == "mined":
        top = max(MINED, config.negatives)
        mined = mine_negatives(config.mined_with, examples, top=top, vocabulary_of=init_from)
    return NegativeSampler(
        examples, source=config.negatives_from, count=config.negatives, mined=mined
    )
