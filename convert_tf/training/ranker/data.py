"""Data for fine-tuning a ranker: examples, candidates and negatives."""

import os

import numpy as np

from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.checkpoints.vocabulary import check_same_vocabulary
from convert_tf.config.ranker import HeadConfig, RankerConfig, RankerTraining
from convert_tf.data.candidates import read_examples
from convert_tf.data.negatives import HardNegatives
from convert_tf.data.packing import TokenIds, joined_ranges
from convert_tf.data.ranking_batches import (
    NegativeSampler,
    RankingBatches,
    RankingExamples,
    padded,
    tokenize_examples,
)
from convert_tf.data.token_arrays import ArrayFolder
from convert_tf.data.unknown_tokens import SAMPLE, checked_share
from convert_tf.metrics import BLOCK_SIZE
from convert_tf.ranking.checkpoint import make_tokenize, pad_multiple
from convert_tf.storage.folders import put_aside
from convert_tf.training.encoder.data import check_same_buckets
from convert_tf.training.teaching.vectors import first_places

_DEV_LIST = 20  # number of candidates per context in the evaluation of a cross-encoder on records


class RankerData:
    """Data of a run that fine-tunes a ranker.

    Args:
      config: training options.
      ranker: configuration of the ranker.
      vocabulary: vocabulary file of the ranker.

    Attributes:
      config: training options, with the number of steps and the intervals filled in.
      examples: training examples.
      dev: examples for evaluation, with candidates to rank.
      unknown_share: share of unknown tokens in the first training examples.
      batches: endless iterator over the training batches.

    Raises:
      ValueError: if there are too few examples, the examples are damaged or were made with another
        vocabulary, or an example has no negatives.
      OSError: if a file cannot be read.
    """

    def __init__(
        self,
        config: RankerTraining,
        ranker: RankerConfig,
        vocabulary: str | os.PathLike[str],
        *,
        shortens_warmup: bool = True,
    ) -> None:
        def opened(data: str, split: str, max_examples: int | None) -> RankingExamples:
            return open_examples(
                data, split, ranker, vocabulary=vocabulary, max_examples=max_examples
            )

        self.examples = opened(config.data, "train", config.max_examples or None)
        given = opened(config.dev_data, "dev", config.eval_examples)
        self.dev = with_dev_candidates(given, is_joint=ranker.head.head == "cross")
        first = self.examples.contexts
        self.unknown_share = checked_share(
            first.flat[: first.row_splits[:SAMPLE][-1]],
            vocabulary,
            tokenizer=ranker.tokenizer,
            vocab_size=ranker.model.vocab_size,
            what=f"the texts of {config.data}",
        )
        self.config = config.of_examples(
            self.examples.num_examples, shortens_warmup=shortens_warmup
        )
        if self.config.warmup_steps < config.warmup_steps:
            print(
                f"one pass has only {self.config.steps:,} steps, so the warm-up takes "
                f"{self.config.warmup_steps:,} instead of {config.warmup_steps:,}"
            )
        self._padding_id = ranker.model.num_ids
        self.batches = RankingBatches(
            self.examples,
            batch_size=config.batch_size,
            padding_id=self._padding_id,
            seed=config.seed,
            sampler=open_sampler(self.examples, config),
            pad_multiple=pad_multiple(),
        )

    def first_contexts(self, number: int) -> np.ndarray:
        """Return the token ids of the first `number` contexts, padded: int32 `[contexts, tokens]`.

        There are fewer rows if there are fewer training examples.
        """
        numbers = np.arange(min(number, self.examples.num_examples))
        return padded(self.examples.contexts, numbers, self._padding_id)


def open_examples(
    data: str,
    split: str,
    config: RankerConfig,
    *,
    vocabulary: str | os.PathLike[str],
    max_examples: int | None,
) -> RankingExamples:
    """Open a file of candidates, or a folder of records or token ids, for a ranker.

    Reading token ids does not need TensorFlow. Token ids do not record where turns end, so contexts
    from token ids have no earlier turns. Long contexts keep their last tokens, as from records.
    Only `convert-tf tokenize` has cut texts at their end, to its --max_tokens.

    Args:
      data: path of the file or the folder.
      split: split of the folder to read. Ignored for a file.
      config: configuration of the ranker.
      vocabulary: vocabulary file of the ranker.
      max_examples: maximum number of examples to read, or None for all.

    Raises:
      ValueError: if there are no examples, an example is damaged, or the token ids were made with
        another vocabulary or another number of hash buckets.
      OSError: if a file cannot be read.
    """
    head = config.head
    if kind_of(data) is Kind.TOKEN_IDS:
        folder = ArrayFolder(data)
        check_same_vocabulary(
            folder.vocabulary,
            vocabulary,
            rule="A ranker needs token ids made with its vocabulary",
            remedy="Write the token ids again with `convert-tf tokenize` and the ranker's "
            "vocabulary.",
        )
        check_same_buckets(folder, config.model)
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
    limits = (folder.max_tokens, min(head.max_candidate_tokens, folder.max_tokens))
    contexts, responses = (folder.open(split, max_tokens=limit) for limit in limits)
    numbers = np.arange(min(max_examples or contexts.num_examples, contexts.num_examples))
    if not len(numbers):
        raise ValueError(f"The split {split} in {folder.folder!r} has no examples.")
    first = first_places(responses, ("response",), numbers)
    chosen, places = np.unique(first, return_inverse=True)
    return RankingExamples(
        _last_tokens(contexts.texts("context", numbers), head.max_context_tokens),
        responses.texts("response", chosen),
        [*places[:, None]],
        [*np.zeros((len(numbers), 1), np.int64)],
    )


def _last_tokens(texts: TokenIds, max_tokens: int) -> TokenIds:
    """Cut long texts to their last `max_tokens` tokens."""
    lengths = np.minimum(texts.lengths, max_tokens)
    flat = texts.flat[joined_ranges(texts.row_splits[1:] - lengths, lengths)]
    return TokenIds(flat, np.cumsum(np.concatenate([[0], lengths])))


def with_dev_candidates(examples: RankingExamples, *, is_joint: bool) -> RankingExamples:
    """Return the examples with candidates to rank.

    If at least half of the examples have wrong candidates, or if there are too few examples for a
    block, the examples with wrong candidates are returned, and the number of the others is printed.
    Otherwise, the examples are divided into blocks, and the candidates for a context are the
    responses of its block. If some examples have wrong candidates,
    these are then ignored, and the number of such examples is printed. If an example has several
    correct responses, the block contains the first one. The others are not counted as wrong if they
    are in the block too. A block has 100 examples for a bi- or poly-encoder. It has only 20 for a
    cross-encoder, which must read every pair.

    Args:
      examples: examples of the dev data.
      is_joint: whether the ranker is a cross-encoder, which reads context and candidate jointly.

    Raises:
      ValueError: if no example has wrong candidates and there are too few examples for one block.
    """
    total = examples.num_examples
    has_wrong = np.array(
        [not np.isin(given, examples.right(i)).all() for i, given in enumerate(examples.candidates)]
    )
    number = int(has_wrong.sum())
    if number == total:
        return examples
    size = _DEV_LIST if is_joint else BLOCK_SIZE
    if 2 * number >= total or (number and total < size):
        print(
            f"{total - number:,} of {total:,} dev examples are left out: they have no wrong "
            "candidates"
        )
        return _chosen(examples, np.flatnonzero(has_wrong))
    if number:
        print(
            f"only {number:,} of {total:,} dev examples have wrong candidates. These candidates "
            "are ignored: the candidates for a context are the responses of other examples"
        )
    usable = total // size * size
    if not usable:
        raise ValueError(
            f"Ranking among {size} candidates needs at least {size} dev examples. Received: "
            f"{total}. Use more examples."
        )
    candidates, labels = [], []
    for start in range(0, usable, size):
        block = [examples.right(i) for i in range(start, start + size)]
        # A text that is the correct response for several contexts becomes a single candidate.
        texts = np.unique([right[0] for right in block])
        candidates += [texts] * size
        labels += [np.flatnonzero(np.isin(texts, right)) for right in block]
    contexts = examples.contexts.take(np.arange(usable))
    return RankingExamples(contexts, examples.pool, candidates, labels)


def _chosen(examples: RankingExamples, numbers: np.ndarray) -> RankingExamples:
    """Return the examples with the given numbers, with the same pool of candidates."""
    return RankingExamples(
        examples.contexts.take(numbers),
        examples.pool,
        [examples.candidates[i] for i in numbers],
        [examples.labels[i] for i in numbers],
    )


def open_sampler(examples: RankingExamples, config: RankerTraining) -> NegativeSampler | None:
    """Return a sampler of negatives, or None if the other responses in the batch are the negatives.

    Raises:
      ValueError: if an example has no wrong candidate, or the negatives were mined from other data.
    """
    if config.negatives_from == "in_batch":
        return None
    mined = _mined_places(examples, config) if config.negatives_from == "mined" else None
    if mined is not None and mined.shape[1] < config.negatives:
        print(
            f"{config.hard_negatives} has only {mined.shape[1]} mined negatives per pair, but "
            f"--negatives is {config.negatives}: the others are random responses"
        )
    return NegativeSampler(
        examples, source=config.negatives_from, count=config.negatives, mined=mined
    )


def _mined_places(examples: RankingExamples, config: RankerTraining) -> np.ndarray:
    """Return the mined negatives as indices into the pool of candidates.

    The result is int64 `[examples, mined]`. It is −1 where an example has fewer negatives.
    """
    if kind_of(config.data) is not Kind.TOKEN_IDS:
        raise ValueError(
            f"--hard_negatives needs token ids as --data, but {config.data!r} contains none. "
            + (
                put_aside(config.data)
                or "Write token ids with `convert-tf tokenize`, mine negatives from them with "
                "`convert-tf mine`, and pass the token ids as --data."
            )
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
    places = np.concatenate(examples.candidates)  # each example of token ids has one response
    is_there = (mined >= 0) & (mined < number)  # --max_examples may leave out mined examples
    return np.where(is_there, places[np.where(is_there, mined, 0)], -1)
