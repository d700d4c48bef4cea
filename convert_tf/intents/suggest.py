"""Suggest which messages from a log to label next.

Reference: Zhdanov, "Diverse mini-batch active learning", 2019 (arXiv 1901.05954).
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from convert_tf.intents.messages import counted_messages, encode_of, in_batches, masked, shuffled
from convert_tf.text.characters import fold

BUDGET = 100
_LEAST_WEIGHT = 1e-6
_CANDIDATES = 20  # number of candidates per suggested message


def suggest_messages(
    texts: Iterable[str],
    encoder: Any = None,
    *,
    classifier: Any = None,
    budget: int = BUDGET,
    mask: bool = False,
    seed: int = 0,
) -> list[str]:
    """Return the messages to label next.

    The messages with the least certain answers become candidates, twenty times as many as `budget`.
    k-means divides the candidates into `budget` groups, giving more weight to messages with less
    certain answers. The most central message of each group is suggested. Without a classifier,
    candidates are drawn at random and have equal weights. A message that equals one of the
    classifier's examples is never suggested.

    Args:
      texts: messages from a log.
      encoder, classifier, mask: as in `discover_intents`.
      budget: number of messages to suggest.
      seed: seed for the draw and for k-means.

    Returns:
      `budget` distinct messages, with the least certain answer first.

    Raises:
      ValueError: if there are fewer than `budget` distinct messages that are not examples.
    """
    from sklearn.cluster import KMeans

    encode = encode_of(encoder, classifier)
    examples = _example_texts(classifier, mask)
    counts = counted_messages(texts, mask=mask)
    messages = shuffled([text for text in counts if _plain(text) not in examples], seed)
    if len(messages) < budget:
        which = " that are not examples yet" if examples else ""
        number = f"{len(messages)} different message{'s' * (len(messages) != 1)}"
        raise ValueError(
            f"The log has {number}{which}, fewer than the budget of {budget}. Label them "
            "all, or pass a longer log."
        )
    sureness = np.zeros(len(messages))
    if classifier is not None:
        leads = classifier.decision.leads
        parts = [leads(classifier.predict_proba(part)) for part in in_batches(messages)]
        sureness = np.concatenate(parts)
    places = np.argsort(sureness, kind="stable")[: _CANDIDATES * budget]
    vectors = encode([messages[place] for place in places])
    weights = np.maximum(1 - sureness[places], _LEAST_WEIGHT)
    groups = KMeans(budget, n_init=1, random_state=seed).fit(vectors, sample_weight=weights)
    central: list[int] = []
    for distances in groups.transform(vectors).T:
        # No message is suggested twice, even if it is the most central message of two groups.
        distances[central] = np.inf
        central.append(int(distances.argmin()))
    return [messages[places[place]] for place in sorted(central)]  # the least certain first


def _plain(text: str) -> str:
    """Normalise the characters and the case of a text, for comparisons."""
    return fold(text).lower()


def _example_texts(classifier: Any, mask: bool) -> set[str]:
    """Return the texts of the examples that a classifier keeps, normalised by `_plain`."""
    examples = getattr(classifier, "examples_", None)
    texts = [] if examples is None else [text.strip() for text in examples.texts]
    return {_plain(masked(text) if mask else text) for text in texts}
