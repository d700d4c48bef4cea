"""Losses for encoders and rankers, as pure functions."""

from typing import Any

from keras import ops

from convert_tf.layers.side_network import l2_normalize


def _log_softmax(scores: Any, is_candidate: Any) -> Any:
    """Return the log-softmax over the candidates in each row, float32. Other entries are 0."""
    if is_candidate is None:
        return ops.log_softmax(scores, axis=-1)
    log_probability = ops.log_softmax(ops.where(is_candidate, scores, -1e30), axis=-1)
    # Masked entries are about −1e30. They become 0, so that they do not affect sums.
    return ops.where(is_candidate, log_probability, 0.0)


def softmax_losses(
    scores: Any, label_smoothing: float = 0.2, *, labels: Any = None, is_candidate: Any = None
) -> Any:
    """Return the cross-entropy of picking each context's correct response among its candidates.

    The target probability of the correct response is 1 − `label_smoothing`. The other candidates
    share `label_smoothing` equally.

    Args:
      scores: scores of K responses for each context, float `[batch, K]`.
      label_smoothing: total target probability of the wrong candidates, in [0, 1).
      labels: column of each context's correct response, int `[batch]`. By default it is column i
        for context i, as for the responses in a batch.
      is_candidate: bool `[batch, K]`, false where a response is not a candidate for a context. It
        must be true for the correct responses. If None, all responses are candidates.

    Returns:
      The loss of each context, float32 `[batch]`, in nats.

    Reference: arXiv 1911.03688 §2.1 equation 1, §3.1 footnote 7; arXiv 1905.01969 §4.2, §4.3.
    """
    log_probability = _log_softmax(ops.cast(scores, "float32"), is_candidate)
    if labels is None:
        right = ops.diagonal(log_probability)
    else:
        is_right = ops.one_hot(labels, ops.shape(scores)[1], dtype="float32")
        right = ops.sum(log_probability * is_right, axis=-1)
    candidates = ops.cast(ops.shape(scores)[1], "float32")
    if is_candidate is not None:
        candidates = ops.sum(ops.cast(is_candidate, "float32"), axis=-1)
    wrong = ops.sum(log_probability, axis=-1) - right
    share = label_smoothing / ops.maximum(candidates - 1.0, 1.0)
    return -((1.0 - label_smoothing) * right + share * wrong)


def taught_ranking_losses(scores: Any, teacher_scores: Any, *, is_candidate: Any = None) -> Any:
    """Return the cross-entropy between a teacher's and a model's distributions over responses.

    Args:
      scores: the model's score of each response for each context, float `[batch, K]`.
      teacher_scores: the teacher's scores, float `[batch, K]`. Their softmax is the target.
      is_candidate: bool `[batch, K]`, false where a response is left out for a context. Each row
        must have at least one true entry. If None, all responses are used.

    Returns:
      The loss of each context, float32 `[batch]`, in nats. The minimum is the entropy of the
      teacher's distribution.

    Reference: arXiv 1503.02531 §2, with temperature 1.
    """
    teacher_scores = ops.cast(teacher_scores, "float32")
    if is_candidate is not None:
        teacher_scores = ops.where(is_candidate, teacher_scores, -1e30)
    log_probability = _log_softmax(ops.cast(scores, "float32"), is_candidate)
    return -ops.sum(ops.softmax(teacher_scores, axis=-1) * log_probability, axis=-1)


def intent_losses(vectors: Any, groups: Any, names: Any, *, scale: Any) -> Any:
    """Return the supervised contrastive loss for texts with intent labels.

    For each text, texts with the same intent are positives, and texts with other intents are
    negatives. Labels with the same name in different data sets may have the same meaning, so texts
    with such labels are neither positives nor negatives. Texts without a label are ignored.

    Args:
      vectors: vectors of the texts, float `[texts, dim]`. They need not be normalised.
      groups: number of each text's intent, int32 `[texts]`. Intents of different data sets have
        different numbers. A text without a label has −1.
      names: number of each text's label name, int32 `[texts]`. Equal names have equal numbers, even
        in different data sets.
      scale: factor for the cosines.

    Returns:
      A tuple `(losses, has_loss)`. `losses`, float32 `[texts]`, is the loss of each text in nats.
      `has_loss`, bool `[texts]`, is true where another text has the same intent. Elsewhere the loss
      is 0.

    Reference: arXiv 2004.11362 §3.2.2 equation 2 (L_out), with 1/τ as `scale`.
    """
    unit = l2_normalize(vectors)
    scores = ops.cast(scale, "float32") * ops.matmul(unit, ops.transpose(unit))
    indices = ops.arange(ops.shape(groups)[0])
    is_other = indices[:, None] != indices[None, :]
    has_labels = ops.logical_and(groups[:, None] >= 0, groups[None, :] >= 0)
    is_positive = ops.logical_and(groups[:, None] == groups[None, :], has_labels)
    is_positive = ops.logical_and(is_positive, is_other)
    is_negative = ops.logical_and(names[:, None] != names[None, :], has_labels)
    log_probability = _log_softmax(scores, ops.logical_or(is_positive, is_negative))
    positives = ops.cast(is_positive, "float32")
    num_positives = ops.sum(positives, axis=-1)
    total = ops.sum(log_probability * positives, axis=-1)
    return -total / ops.maximum(num_positives, 1.0), num_positives > 0


def opposite_losses(
    anchors: Any, paraphrases: Any, opposites: Any, *, scale: Any, is_candidate: Any = None
) -> Any:
    """Return the cross-entropy of picking a text's paraphrase among paraphrases and opposites.

    Args:
      anchors, paraphrases, opposites: vectors of the texts, float `[triplets, dim]`. They need not
        be normalised.
      scale: factor for the cosines.
      is_candidate: bool `[triplets, 2 × triplets]`, false where a text is not a candidate, as
        returned by `paraphrase_candidates`. The columns are the paraphrases, then the opposites.
        If None, all texts are candidates.

    Returns:
      The loss of each triplet, float32 `[triplets]`, in nats.

    Reference: arXiv 1705.00652 §4.4; arXiv 2104.08821 §4 equation 5, without second encodings of
    the anchors.
    """
    candidates = l2_normalize(ops.concatenate([paraphrases, opposites]))
    cosines = ops.matmul(l2_normalize(anchors), ops.transpose(candidates))
    return softmax_losses(ops.cast(scale, "float32") * cosines, 0.0, is_candidate=is_candidate)


def paraphrase_candidates(anchors: Any, paraphrases: Any, opposites: Any) -> Any:
    """Return which texts are candidates when the paraphrase of each anchor must be picked.

    Apart from the paraphrase itself, texts equal to the anchor or its paraphrase are left out.

    Args:
      anchors, paraphrases, opposites: a number for each text, int32 `[triplets]`. Equal texts must
        have equal numbers.

    Returns:
      A mask, bool `[triplets, 2 × triplets]`, true for candidates. The columns are the paraphrases,
      then the opposites.
    """
    groups = ops.concatenate([paraphrases, opposites])
    is_right = ops.arange(ops.shape(anchors)[0])[:, None] == ops.arange(ops.shape(groups)[0])[None]
    is_other = ops.logical_and(
        anchors[:, None] != groups[None, :], paraphrases[:, None] != groups[None, :]
    )
    return ops.logical_or(is_other, is_right)


def distinct_responses(positive_groups: Any, groups: Any) -> Any:
    """Find copies of each context's correct response, which must not be used as negatives.

    Args:
      positive_groups: a number for each context's correct response, int32 `[batch]`. Responses with
        equal texts have equal numbers.
      groups: a number for each response, int32 `[K]`. The correct responses come first.

    Returns:
      A mask, bool `[batch, K]`, false at [i, j] if response j is a copy of the correct response to
      context i.
    """
    rows, columns = ops.arange(ops.shape(positive_groups)[0]), ops.arange(ops.shape(groups)[0])
    is_other_text = positive_groups[:, None] != groups[None, :]
    return ops.logical_or(is_other_text, rows[:, None] == columns[None, :])


def annealed_scale(step: Any, *, start: float, end: float, anneal_steps: int) -> Any:
    """Return the factor for the cosines at a step.

    The factor changes linearly from `start` to `end`.

    Args:
      step: number of finished steps, as a number or a scalar tensor.
      start: factor at step 0.
      end: factor from step `anneal_steps` on.
      anneal_steps: number of steps over which the factor changes. If 0, the factor is `end` from
        the start.

    Returns:
      The factor, a float32 scalar.

    Reference: arXiv 1911.03688 §2.1, "Input-Response Interaction".
    """
    if anneal_steps == 0:
        return ops.convert_to_tensor(end, dtype="float32")
    progress = ops.minimum(ops.cast(step, "float32") / float(anneal_steps), 1.0)
    return start + (end - start) * progress
