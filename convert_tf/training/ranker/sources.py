"""What a ranker is trained and evaluated on: a candidates file, records, or token ids."""

import itertools
import os
from collections.abc import Iterator

import numpy as np

from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.checkpoints.ranker import initial_ranker, load_ranker
from convert_tf.checkpoints.vocabulary import check_same_vocabulary, vocabulary_path
from convert_tf.config.head import HeadConfig, RankerTraining
from convert_tf.config.ranker import RankerConfig
from convert_tf.data.candidates import CandidateExample, read_candidates
from convert_tf.data.mining import best_wrong, padded_columns
from convert_tf.data.packing import TokenIds, join_texts
from convert_tf.data.ranking_batches import NegativeSampler, RankingExamples, tokenize_examples
from convert_tf.data.token_arrays import ArrayFolder
from convert_tf.metrics import BLOCK_SIZE
from convert_tf.ranking.checkpoint import encode_context_vectors, encode_pool, make_tokenize
from convert_tf.training.teaching.texts import first_places

MINED = 100  # the best wrong candidates, from which negatives are drawn
_DEV_LIST = 20  # candidates of a context where records are ranked by a cross-encoder


def open_examples(
    data: str,
    split: str,
    config: RankerConfig,
    *,
    vocabulary: str | os.PathLike[str],
    max_examples: int | None,
) -> RankingExamples:
    """The examples of a candidates file, of records or of token ids, as a ranker reads them.

    Token ids need no TensorFlow. Their contexts have no earlier turns, as they do not store where
    a turn ends.

    Args:
      data: the file or the folder.
      split: of a folder.
      config: the ranker's.
      vocabulary: the ranker's.
      max_examples: only the first ones, this many; None for all.

    Raises:
      ValueError: there are none, they are damaged, or token ids are of another vocabulary.
      OSError: the file cannot be read.
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
    first = first_places(
        responses, ("response",), numbers, np.zeros(len(numbers), bool), across_columns=True
    )
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
    from convert_tf.data.record_examples import read_turns

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
            f"Ranking among {size} needs at least {size} dev examples. Received: "
            f"{examples.num_examples}. Use more."
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


def mine_negatives(
    folder: str,
    examples: RankingExamples,
    *,
    top: int,
    vocabulary_of: str,
    contexts_at_once: int = 64,
) -> np.ndarray:
    """The best wrong candidates of each context, among the right candidates of all.

    Args:
      folder: model directory of a dual encoder, or of a bi or poly ranker.
      examples: token ids.
      top: how many of each context; fewer where the data has fewer.
      vocabulary_of: the model directory whose vocabulary made the token ids.
      contexts_at_once: contexts whose scores are in memory together.

    Returns:
      int64 `[examples, top]`, places in the pool, the best first; none is right for its context.

    Raises:
      ValueError: the two vocabularies differ, or the data has no wrong candidate.
    """
    if kind_of(folder) is Kind.RANKER:
        ranker, vocabulary = load_ranker(folder)
    else:
        ranker, vocabulary = initial_ranker(folder, HeadConfig())
    check_same_vocabulary(
        vocabulary,
        vocabulary_path(vocabulary_of, ranker.config),
        rule="Negatives are mined by a model of the same vocabulary",
        remedy="Name another model.",
    )
    rights = [examples.right(i) for i in range(examples.num_examples)]
    choices = np.unique(np.concatenate(rights))
    most_right = max(map(len, rights))
    top = min(top, len(choices) - most_right)
    if top < 1:
        raise ValueError(
            "Mining needs candidates that are wrong for a context, and the data has "
            f"{len(choices)} different right ones in all. Use more data."
        )
    candidates = encode_pool(ranker, examples.pool)[choices]
    vectors, masks = encode_context_vectors(ranker, examples.contexts)
    mined = np.empty((examples.num_examples, top), np.int64)
    for start in range(0, examples.num_examples, contexts_at_once):
        part = slice(start, start + contexts_at_once)
        some = ranker.score_encoded(vectors[part], masks[part], candidates)
        scores = np.full((len(some), padded_columns(len(choices))), -np.inf, np.float32)
        scores[:, : len(choices)] = some
        rows, columns = np.nonzero([np.isin(choices, right) for right in rights[part]])
        best, _ = best_wrong(scores, top, right=(rows, columns))
        mined[part] = choices[best]
    return mined
