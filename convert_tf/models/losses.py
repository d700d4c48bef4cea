"""The response-ranking loss, as pure functions."""

from typing import Any

from keras import ops

from convert_tf.layers.side_network import l2_normalize


def in_batch_softmax_losses(
    scores: Any, label_smoothing: float = 0.2, *, is_candidate: Any = None
) -> Any:
    """Cross-entropy of picking each context's own response among the batch's.

    The positive has probability 1 − `label_smoothing`; each of the K − 1 negatives has
    `label_smoothing` / (K − 1).

    Args:
      scores: float `[batch, K]`, K at least the batch; row i scores context i with every response,
        its own at i.
      label_smoothing: probability given to the negatives, in [0, 1).
      is_candidate: bool `[batch, K]`, false where a response is no negative of a context, true for
        each context's own; all are when None.

    Returns:
      float32 `[batch]`, in nats.

    Reference: arXiv 1911.03688 §2.1 equation 1, §3.1 footnote 7.
    """
    scores = ops.cast(scores, "float32")
    if is_candidate is None:
        candidates = ops.cast(ops.shape(scores)[1], "float32")
        log_probability = ops.log_softmax(scores, axis=-1)
    else:
        candidates = ops.sum(ops.cast(is_candidate, "float32"), axis=-1)
        log_probability = ops.log_softmax(ops.where(is_candidate, scores, -1e30), axis=-1)
        # Where masked, the logarithm is as large as the mask's.
        log_probability = ops.where(is_candidate, log_probability, 0.0)
    positive = ops.diagonal(log_probability)
    negatives = ops.sum(log_probability, axis=-1) - positive
    share = label_smoothing / ops.maximum(candidates - 1.0, 1.0)
    return -((1.0 - label_smoothing) * positive + share * negatives)


def taught_ranking_losses(scores: Any, teacher_scores: Any, *, is_candidate: Any = None) -> Any:
    """Cross-entropy of a model's choice of a response with the choice of a teacher.

    Args:
      scores: float `[batch, K]`, the model's of each context with every response.
      teacher_scores: float `[batch, K]`, the teacher's; the softmax of a row is what is learnt.
      is_candidate: bool `[batch, K]`, false where a response is left out of a context's choice,
        which none has all of; all are in it when None.

    Returns:
      float32 `[batch]`, in nats: the entropy of the teacher's choice where the two are equal.

    Reference: arXiv 1503.02531 §2, with T of 1 on scores that have their scale.
    """
    scores, teacher_scores = (ops.cast(own, "float32") for own in (scores, teacher_scores))
    if is_candidate is not None:
        scores = ops.where(is_candidate, scores, -1e30)
        teacher_scores = ops.where(is_candidate, teacher_scores, -1e30)
    log_probability = ops.log_softmax(scores, axis=-1)
    if is_candidate is not None:
        # Where masked, the logarithm is as large as the mask's.
        log_probability = ops.where(is_candidate, log_probability, 0.0)
    return -ops.sum(ops.softmax(teacher_scores, axis=-1) * log_probability, axis=-1)


def intent_losses(vectors: Any, groups: Any, names: Any, *, scale: Any) -> Any:
    """How much closer texts of other intents are than those of one's own: supervised contrast.

    Texts whose labels have the same name in different sources may mean the same, and are no
    negatives of one another; nor are texts without a label of any.

    Args:
      vectors: float `[texts, dim]`, of any length.
      groups: int32 `[texts]`, equal within an intent; −1 for no label.
      names: int32 `[texts]`, equal where the labels are called the same.
      scale: factor of the cosines.

    Returns:
      `(losses, has_loss)`: float32 `[texts]`, in nats, 0 where no other text has the intent; and
      bool `[texts]`, where one has.

    Reference: arXiv 2004.11362 §3.2.2 equation 2 (L_out), with 1/τ as `scale`.
    """
    unit = l2_normalize(vectors)
    scores = ops.cast(scale, "float32") * ops.matmul(unit, ops.transpose(unit))
    places = ops.arange(ops.shape(groups)[0])
    is_other = places[:, None] != places[None, :]
    has_labels = ops.logical_and(groups[:, None] >= 0, groups[None, :] >= 0)
    is_positive = ops.logical_and(groups[:, None] == groups[None, :], has_labels)
    is_positive = ops.logical_and(is_positive, is_other)
    is_negative = ops.logical_and(names[:, None] != names[None, :], has_labels)
    is_candidate = ops.logical_or(is_positive, is_negative)
    log_probability = ops.log_softmax(ops.where(is_candidate, scores, -1e30), axis=-1)
    positives = ops.cast(is_positive, "float32")
    number = ops.sum(positives, axis=-1)
    total = ops.sum(ops.where(is_positive, log_probability, 0.0), axis=-1)
    return -total / ops.maximum(number, 1.0), number > 0


def distinct_responses(own: Any, groups: Any) -> Any:
    """Which responses of a batch are negatives of which contexts: all but equal ones.

    Args:
      own: int32 `[batch]`, of the contexts' own responses; equal numbers stand for equal texts.
      groups: int32 `[K]`, of all responses, the own ones first.

    Returns:
      bool `[batch, K]`: at [i, j] whether response j is the own one of i or another text than it.
    """
    rows, columns = ops.arange(ops.shape(own)[0]), ops.arange(ops.shape(groups)[0])
    return ops.logical_or(own[:, None] != groups[None, :], rows[:, None] == columns[None, :])


def annealed_scale(step: Any, *, start: float, end: float, anneal_steps: int) -> Any:
    """The factor of the cosine at a step: linear from `start` to `end` over `anneal_steps`.

    Args:
      step: number or scalar tensor, steps done so far.
      start: factor at step 0.
      end: factor from `anneal_steps` on.
      anneal_steps: steps; 0 gives `end` from the start.

    Returns:
      float32 scalar.

    Reference: arXiv 1911.03688 §2.1, "Input-Response Interaction".
    """
    if anneal_steps == 0:
        return ops.convert_to_tensor(end, dtype="float32")
    progress = ops.minimum(ops.cast(step, "float32") / float(anneal_steps), 1.0)
    return start + (end - start) * progress


def candidate_softmax_loss(
    scores: Any, labels: Any, candidate_mask: Any, label_smoothing: float = 0.0
) -> Any:
    """Mean cross-entropy of picking each context's right candidate among its own.

    The positive has probability 1 − `label_smoothing`; the negatives share the rest equally.

    Args:
      scores: float `[batch, candidates]`.
      labels: int `[batch]`, the right candidate's column.
      candidate_mask: bool `[batch, candidates]`, false where there is none.
      label_smoothing: probability given to the negatives, in [0, 1).

    Returns:
      float32 scalar, in nats per context.

    Reference: arXiv 1905.01969 §4.2, §4.3.
    """
    real = ops.cast(candidate_mask, "float32")
    scores = ops.where(candidate_mask, ops.cast(scores, "float32"), -1e30)
    log_probability = ops.log_softmax(scores, axis=-1)
    is_right = ops.one_hot(labels, ops.shape(scores)[1], dtype="float32")
    # Where masked, the logarithm is as large as the mask's: it must not be multiplied by 0 alone.
    log_probability = ops.where(candidate_mask, log_probability, 0.0)
    positive = ops.sum(log_probability * is_right, axis=-1)
    negatives = ops.sum(log_probability * real, axis=-1) - positive
    share = label_smoothing / ops.maximum(ops.sum(real, axis=-1) - 1.0, 1.0)
    return -ops.mean((1.0 - label_smoothing) * positive + share * negatives)
