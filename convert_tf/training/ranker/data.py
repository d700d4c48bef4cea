"""The data for fine-tuning a ranker: examples, candidates and negatives."""

import os

import numpy as np

from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.checkpoints.vocabulary import check_same_vocabulary
from convert_tf.config.ranker import HeadConfig, RankerConfig, RankerTraining
from convert_tf.data.candidates import read_examples
from convert_tf.data.negatives import HardNegatives
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
from convert_tf.training.teaching.vectors import first_places

_DEV_LIST = 20  # candidates per context when a cross-encoder is evaluated on records


class RankerData:
    """The data for a run that fine-tunes a ranker.

    Args:
      config: training options.
      ranker: configuration of the ranker.
      vocabulary: vocabulary file of the ranker.

    Attributes:
      config: the options, with default intervals filled in.
      examples: the training examples.
      dev: the examples for evaluation, with candidates to rank.
      unknown_share: share of unknown tokens in the first training examples.
      batches: endless training batches.

    Raises:
      ValueError: if there are too few examples, they are damaged or have another vocabulary, or an
        example has no negatives.
      OSError: if a file cannot be read.
    """

    def __init__(
        self, config: RankerTraining, ranker: RankerConfig, vocabulary: str | os.PathLike[str]
    ) -> None:
        def opened(data: str, split: str, max_examples: int | None) -> RankingExamples:
            return open_examples(
                data, split, ranker, vocabulary=vocabulary, max_examples=max_examples
            )

        self.examples = opened(config.data, "train", config.max_examples or None)
        self.dev = with_dev_candidates(
            opened(config.dev_data, "dev", config.eval_examples),
            is_joint=ranker.head.head == "cross",
        )
        first = self.examples.contexts
        self.unknown_share = checked_share(
            first.flat[: first.row_splits[:SAMPLE][-1]],
            vocabulary,
            tokenizer=ranker.tokenizer,
            vocab_size=ranker.model.vocab_size,
            what=f"the texts of {config.data}",
        )
        self.config = config.of_examples(self.examples.num_examples)
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
        """Return up to `number` first contexts as padded token ids: int32 `[contexts, tokens]`."""
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
    """Open a candidates file, records or token ids for a ranker.

    Reading token ids does not need TensorFlow. Token ids do not record where turns end, so their
    contexts have no earlier turns.

    Args:
      data: the file or the folder.
      split: name of the folder's split. Ignored for a file.
      config: configuration of the ranker.
      vocabulary: vocabulary file of the ranker.
      max_examples: maximum number of examples to read; None for all.

    Raises:
      ValueError: if there are no examples, an example is damaged, or the token ids have another
        vocabulary.
      OSError: if the file cannot be read.
    """
    head = config.head
    if kind_of(data) is Kind.TOKEN_IDS:
        folder = ArrayFolder(data)
        check_same_vocabulary(
            folder.vocabulary,
            vocabulary,
            rule="A ranker needs token ids made with its vocabulary",
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
        contexts.texts("context", numbers),
        responses.texts("response", chosen),
        [*places[:, None]],
        [*np.zeros((len(numbers), 1), np.int64)],
    )


def with_dev_candidates(examples: RankingExamples, *, is_joint: bool) -> RankingExamples:
    """Return examples with candidates to rank: the given ones, or responses from other examples.

    Records have no wrong candidates. For records, a bi- or poly-encoder ranks the responses in a
    block of 100 examples. A cross-encoder, which must read every pair, ranks the responses in a
    block of 20 examples.

    Raises:
      ValueError: if there are fewer examples than a block needs.
    """
    if any(len(given) > 1 for given in examples.candidates):
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
        # A text that is the right response for several contexts becomes a single candidate.
        texts, places = np.unique(block, return_inverse=True)
        candidates += [texts] * size
        labels += [*places[:, None]]
    contexts = examples.contexts.take(np.arange(usable))
    return RankingExamples(contexts, examples.pool, candidates, labels)


def open_sampler(examples: RankingExamples, config: RankerTraining) -> NegativeSampler | None:
    """Return the negative sampler, or None if a batch's other responses are the negatives.

    Raises:
      ValueError: if an example has no wrong candidate, or negatives were mined from other data.
    """
    if config.negatives_from == "in_batch":
        return None
    mined = _mined_places(examples, config) if config.negatives_from == "mined" else None
    return NegativeSampler(
        examples, source=config.negatives_from, count=config.negatives, mined=mined
    )


def _mined_places(examples: RankingExamples, config: RankerTraining) -> np.ndarray:
    """Return mined negatives, int64 `[examples, mined]`: indices into the pool, or −1."""
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
    places = np.concatenate(examples.candidates)  # each example of token ids has one response
    is_there = (mined >= 0) & (mined < number)  # --max_examples may exclude some mined examples
    return np.where(is_there, places[np.where(is_there, mined, 0)], -1)
