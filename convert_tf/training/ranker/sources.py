"""Training and evaluation data of rankers: a candidates file, records, or token ids."""

import itertools
import os
from collections.abc import Iterator

import numpy as np

from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.checkpoints.vocabulary import check_same_vocabulary
from convert_tf.config.head import HeadConfig, RankerTraining
from convert_tf.config.ranker import RankerConfig
from convert_tf.data.candidates import CandidateExample, read_candidates
from convert_tf.data.negatives import HardNegatives
from convert_tf.data.packing import join_texts
from convert_tf.data.ranking_batches import NegativeSampler, RankingExamples, tokenize_examples
from convert_tf.data.token_arrays import ArrayFolder
from convert_tf.metrics import BLOCK_SIZE
from convert_tf.ranking.checkpoint import make_tokenize
from convert_tf.training.teaching.texts import first_places

_DEV_LIST = 20  # candidates of a context where records are ranked by a cross-encoder


def open_examples(
    data: str,
    split: str,
    config: RankerConfig,
    *,
    vocabulary: str | os.PathLike[str],
    max_examples: int | None,
) -> RankingExamples:
    """Open a candidates file, records or token ids for a ranker.

    Token ids need no TensorFlow. They do not store where a turn ends, so their contexts have no
    earlier turns.

    Args:
      data: the file or the folder.
      split: split of a folder.
      config: configuration of the ranker.
      vocabulary: vocabulary of the ranker.
      max_examples: number of examples to read; None for all.

    Raises:
      ValueError: if there are no examples, they are damaged, or the token ids have another
        vocabulary.
      OSError: if the file cannot be read.
    """
    head = config.head
    if kind_of(data) is Kind.TOKEN_IDS:
        folder = ArrayFolder(data)
        check_same_vocabulary(
            folder.vocabulary,
            vocabulary,
            rule="A ranker reads token ids of its own vocabulary",
            remedy="Write them again with `convert-tf tokenize` and that vocabulary.",
        )
        return _stored_examples(folder, split, head, max_examples)
    return tokenize_examples(
        read_examples(data, split, max_examples=max_examples),
        make_tokenize(vocabulary, config),
        max_context_tokens=head.max_context_tokens,
        max_candidate_tokens=head.max_candidate_tokens,
    )


def _stored_examples(
    folder: ArrayFolder, split: str, head: HeadConfig, max_examples: int | None
) -> RankingExamples:
    limits = (head.max_context_tokens, head.max_candidate_tokens)
    contexts, responses = (
        folder.open(split, max_tokens=min(limit, folder.max_tokens)) for limit in limits
    )
    numbers = np.arange(min(max_examples or contexts.num_examples, contexts.num_examples))
    if not len(numbers):
        raise ValueError(f"{folder.folder!r} has no example in the split {split}.")
    first = first_places(responses, ("response",), numbers)
    chosen, places = np.unique(first, return_inverse=True)
    return RankingExamples(
        join_texts([contexts.texts("context", numbers)]),
        join_texts([responses.texts("response", chosen)]),
        [*places[:, None]],
        [*np.zeros((len(numbers), 1), np.int64)],
    )


def read_examples(
    data: str, split: str, *, max_examples: int | None = None
) -> Iterator[CandidateExample]:
    """Read the examples of a candidates file, or of a split of a folder of records.

    Args:
      data: the file, or the folder. In a folder, the response is the only candidate of a context.
      split: split of a folder.
      max_examples: number of examples to read; None for all.

    Raises:
      ValueError: if there are no examples, or they are damaged.
      OSError: if the file cannot be read.
    """
    if not os.path.isdir(data):
        yield from itertools.islice(read_candidates(data), max_examples)
        return
    from convert_tf.data.records import read_turns

    for record in read_turns(data, split, max_examples=max_examples):
        yield CandidateExample(record.turns, (record.response,), (0,))


def with_dev_candidates(examples: RankingExamples, *, is_joint: bool) -> RankingExamples:
    """Return examples with candidates to rank: the given ones, or those of other examples.

    Records only have the right candidate. A bi- or poly-encoder then ranks the right candidates of
    a block of 100 examples. A cross-encoder, which reads each pair, ranks those of 20.

    Raises:
      ValueError: if there are fewer examples than a block.
    """
    if any(len(own) > 1 for own in examples.candidates):
        return examples
    size = _DEV_LIST if is_joint else BLOCK_SIZE
    usable = examples.num_examples // size * size
    if not usable:
        raise ValueError(
            f"Ranking among {size} needs at least {size} dev examples. Received: "
            f"{examples.num_examples}. Use more."
        )
    right = np.concatenate(examples.candidates[:usable]).reshape(-1, size)
    candidates, labels = [], []
    for block in right:
        for own in block:
            # If several contexts of the block have the same right text, it is one candidate.
            texts = np.unique(block)
            candidates.append(texts)
            labels.append(np.flatnonzero(texts == own))
    contexts = examples.contexts.take(np.arange(usable))
    return RankingExamples(contexts, examples.pool, candidates, labels)


def open_sampler(examples: RankingExamples, config: RankerTraining) -> NegativeSampler | None:
    """Return the sampler of negatives; None to use the other responses of the batch.

    Raises:
      ValueError: if an example has no wrong candidate, or negatives were mined from other data.
    """
    if config.negatives_from == "in_batch":
        return None
    mined = None
    if config.negatives_from == "mined":
        mined = _mined_places(examples, config)
    return NegativeSampler(
        examples, source=config.negatives_from, count=config.negatives, mined=mined
    )


def _mined_places(examples: RankingExamples, config: RankerTraining) -> np.ndarray:
    """Return int64 `[examples, mined]`, indices into the pool; −1 if fewer were mined."""
    if kind_of(config.data) is not Kind.TOKEN_IDS:
        raise ValueError(
            f"Mined negatives go with token ids (--hard_negatives), and {config.data!r} holds "
            "none. Write token ids with `convert-tf tokenize`, mine negatives from them with "
            "`convert-tf mine`, and pass them as --data."
        )
    folder = ArrayFolder(config.data)
    negatives = HardNegatives(
        config.hard_negatives,
        folder.open("train", max_tokens=folder.max_tokens),
        per_pair=1,
        seed=config.seed,
    )
    number = examples.num_examples
    mined = negatives.numbers(np.arange(number))
    places = np.concatenate(examples.candidates)  # token ids have one response each
    is_there = (mined >= 0) & (mined < number)  # --max_examples may have left some out
    return np.where(is_there, places[np.where(is_there, mined, 0)], -1)
