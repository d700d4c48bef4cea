"""Hard negatives: the wrong candidates that a trained bi- or poly-encoder ranks highest."""

import numpy as np

from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.checkpoints.ranker import initial_ranker, load_ranker
from convert_tf.checkpoints.vocabulary import check_same_vocabulary, vocabulary_path
from convert_tf.config.head import HeadConfig
from convert_tf.data.ranking_batches import RankingExamples
from convert_tf.ranking.checkpoint import encode_context_vectors, encode_pool


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
            "Mining needs candidates that are wrong for a context. Received: "
            f"{len(choices)} different right ones in all. Use more data."
        )
    candidates = encode_pool(ranker, examples.pool)[choices]
    vectors, masks = encode_context_vectors(ranker, examples.contexts)
    mined = np.empty((examples.num_examples, top), np.int64)
    for start in range(0, examples.num_examples, contexts_at_once):
        part = slice(start, start + contexts_at_once)
        scores = np.array(ranker.score_encoded(vectors[part], masks[part], candidates))
        for row, right in enumerate(rights[part]):
            scores[row, np.isin(choices, right)] = -np.inf
        best = np.argpartition(-scores, top - 1, axis=1)[:, :top]
        order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1, kind="stable")
        mined[part] = choices[np.take_along_axis(best, order, axis=1)]
    return mined
