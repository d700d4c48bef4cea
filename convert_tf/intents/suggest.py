"""Which messages of a log to label next.

Reference: Zhdanov, "Diverse mini-batch active learning", 2019 (arXiv 1901.05954).
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from convert_tf.intents.messages import counted_messages, encode_of, in_batches, masked, shuffled
from convert_tf.text.characters import fold

BUDGET = 100
_LEAST_WEIGHT = 1e-6
_CANDIDATES = 20  # for each message that is suggested


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

    k-means makes `budget` groups of the twenty times as many messages that the classifier is least
    sure of; the less sure, the more a message weighs. The most central message of each group is
    suggested. Without a classifier messages are drawn at random, and weigh equally. Examples that
    the classifier keeps are not suggested.

    Args:
      texts: messages of a log.
      encoder, classifier, mask: as in `discover_intents`.
      budget: how many messages can be labelled.
      seed: of the draw and of k-means.

    Returns:
      `budget` different messages, the least sure first.

    Raises:
      ValueError: there are fewer distinct messages than `budget` that are no examples.
    """
    from sklearn.cluster import KMeans

    encode = encode_of(encoder, classifier)
    examples = _example_texts(classifier, mask)
    counts = counted_messages(texts, mask=mask)
    messages = shuffled([text for text in counts if _plain(text) not in examples], seed)
    if len(messages) < budget:
        which = " that are not examples yet" if examples else ""
        raise ValueError(
            f"There are {len(messages)} different messages{which}, fewer than the budget of "
            f"{budget}. Label them all, or pass a longer log."
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
        distances[central] = np.inf  # a message may be the most central one of two groups
        central.append(int(distances.argmin()))
    return [messages[places[place]] for place in sorted(central)]  # the least sure first


def _plain(text: str) -> str:
    """Return the text in the characters and the case in which texts are compared."""
    return fold(text).lower()


def _example_texts(classifier: Any, mask: bool) -> set[str]:
    """Return the plain texts of the examples that a classifier keeps."""
    examples = getattr(classifier, "examples_", None)
    texts = [] if examples is None else [text.strip() for text in examples.texts]
    return {_plain(masked(text) if mask else text) for text in texts}
