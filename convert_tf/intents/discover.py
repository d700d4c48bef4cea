"""Group messages that a classifier does not answer confidently. Each group may be a new intent.

Ward's method groups the encodings of a sample of messages, and k-means then moves messages to
nearer groups. The messages outside the sample are added to the nearest group.

Reference: Ward, "Hierarchical grouping to optimize an objective function", 1963.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from convert_tf.intents.lexical import word_terms
from convert_tf.intents.messages import (
    CENTRAL,
    COMPARED,
    MAX_TEXT,
    MIN_CONFIDENCE,
    Report,
    counted_messages,
    encode_of,
    in_batches,
    masked,
    rest_text,
    shuffled,
    unsure,
)
from convert_tf.intents.predictor import rounded
from convert_tf.numerics.vectors import unit_rows
from convert_tf.storage.messages import listed, shortened

MIN_SIZE = 3
# Ward's method compares all pairs of messages: 10,000 messages take 400 MB and half a minute.
_SAMPLE = 8_000
# Intents explain about half of the variance of encodings, for every tested encoder and data set.
_EXPLAINED = 0.52
# Messages without a confident answer scatter a little more than examples do. docs/lab/intents.md
# compares values of this factor.
_MORE_SCATTER = 1.05
# The scatter is measured if there are this many examples, not counting the first of each intent.
_ENOUGH_EXAMPLES = 20
_WORDS, _NAMED = 5, 3  # number of words that describe a group, and of words in a suggested label
# Two groups are the same if the cosine of their centres is at least this.
SAME_GROUP = 0.8


def discover_intents(
    texts: Iterable[str],
    encoder: Any = None,
    *,
    classifier: Any = None,
    num_groups: int | None = None,
    min_size: int = MIN_SIZE,
    min_confidence: float = MIN_CONFIDENCE,
    mask: bool = False,
    seed: int = 0,
    earlier: Sequence[Mapping[str, Any]] | None = None,
) -> Report:
    """Group messages so that each group may be a new intent.

    Args:
      texts: messages from a log. Empty messages are left out, and equal messages are encoded once.
      encoder: as in `IntentClassifier`. It is ignored if a classifier is given, because the
        classifier's encodings are then used.
      classifier: an `IntentClassifier`, a `MultiIntentClassifier` or an `IntentFile`. Messages that
        the classifier answers confidently are left out. If None, all messages are grouped.
      num_groups: number of groups. If None, the number is chosen automatically. With a classifier
        that keeps its examples, the variance within the groups is then about the same as within
        the classifier's intents.
      min_size: minimum number of messages in a group. Messages in smaller groups are leftovers.
      min_confidence: minimum probability of a confident answer.
      mask: whether to mask numbers and e-mail addresses before anything else, in messages, in the
        classifier's examples and in the texts of `earlier`. Labels of `earlier` are not masked.
      seed: seed for the sample that is grouped.
      earlier: the `groups` and the `gone` groups of an earlier result, each with `group`, `label`
        and `texts`; None if there is no earlier result. A group gets the number and label of an
        earlier group if the cosine between the centres of the two is at least 0.8. Groups are
        paired so that the sum of these cosines is as large as possible.

    Returns:
      A dict with
      - `messages`: the number of messages;
      - `unsure`: the number of messages to group: all messages or, with a classifier, the messages
        that it does not answer confidently;
      - `left_out`: the number of these messages that are in small groups;
      - `leftovers`: the distinct texts of the sample that are in small groups, ordered by group;
      - `groups`: a dict for each group, the largest first, with the entries below;
      - `gone`: the earlier groups that no longer exist (only with `earlier`).

      Each group has
      - `group`: the number of the group, starting at 1;
      - `is_new`: whether no earlier group was paired with this group;
      - `label`: a suggested label, or the label of the earlier group;
      - `size`: the number of its messages;
      - `share`: the share of all messages that are in this group;
      - `cohesion`: the mean cosine between its messages and its centre;
      - `words`: words that describe the group;
      - `texts`: its distinct messages in the sample, the most central first;
      - `nearest`: the `intent` nearest to the group and its `cosine` (only with a classifier).

    Raises:
      ValueError: if there are fewer distinct messages than groups, or all are answered confidently.
    """
    encode = encode_of(encoder, classifier)
    if earlier is not None and mask:
        earlier = [{**row, "texts": [*dict.fromkeys(map(masked, row["texts"]))]} for row in earlier]
    counts = counted_messages(texts, mask=mask)
    batches = _unsure_batches(shuffled([*counts], seed), encode, classifier, min_confidence)
    sample, vectors = _sampled(batches)
    least = max(2, num_groups or 0)
    if len(sample) < least:
        which = "" if classifier is None else " without a confident answer"
        number = f"{len(sample)} different message{'s' * (len(sample) != 1)}"
        raise ValueError(
            f"The log has {number}{which}, and {least} groups need at least {least}. "
            f"Pass a longer log{', or ask for fewer groups' * (least > 2)}."
        )
    scatter = None if classifier is None else _scatter_of(classifier, seed, mask=mask)
    numbers, centres = group_vectors(vectors, num_groups, scatter=scatter)

    def sizes_of(groups: np.ndarray, messages: Sequence[str]) -> np.ndarray:
        return np.bincount(groups, [counts[message] for message in messages], len(centres))

    sizes = sizes_of(numbers, sample)
    for chosen, encoded in batches:  # messages outside of the sample
        sizes += sizes_of((encoded @ centres.T).argmax(axis=1), chosen)
    rows = _rows(sample, vectors, numbers, centres, sizes, counts.total(), classifier)
    places = [place for place, row in enumerate(rows) if row["size"] >= min_size]
    places.sort(key=lambda place: -rows[place]["size"])
    groups = [rows[place] for place in places]
    gone = _take_earlier(groups, centres[places], earlier or (), encode)
    _label_groups(groups, earlier or ())
    return {
        "messages": counts.total(),
        "unsure": int(sizes.sum()),
        "left_out": int(sizes.sum()) - sum(row["size"] for row in groups),
        "leftovers": [text for row in rows if row["size"] < min_size for text in row["texts"]],
        "groups": groups,
        **({} if earlier is None else {"gone": gone}),
    }


def _take_earlier(
    groups: Sequence[dict[str, Any]],
    centres: np.ndarray,
    earlier: Sequence[Mapping[str, Any]],
    encode: Any,
) -> list[Mapping[str, Any]]:
    """Add `group` and `is_new` to each group, and the earlier `label` to groups that are not new.

    Args:
      groups: the groups, without labels.
      centres: the centres of the groups, float `[groups, dim]`, normalised to length 1.
      earlier: as in `discover_intents`.
      encode: function from texts to vectors.

    Returns:
      The earlier groups that no longer exist.
    """
    from scipy.optimize import linear_sum_assignment

    former: dict[int, Mapping[str, Any]] = {}
    if groups and earlier:
        cosines = centres @ centres_of(earlier, encode).T
        cosines[cosines < SAME_GROUP] = 0
        pairs = zip(*linear_sum_assignment(cosines, maximize=True), strict=True)
        former = {place: earlier[other] for place, other in pairs if cosines[place, other]}
    number = max((row["group"] for row in earlier), default=0)
    for place, row in enumerate(groups):
        row["is_new"] = place not in former
        if row["is_new"]:
            number += 1
            row["group"] = number
        else:
            row |= {name: former[place][name] for name in ("group", "label")}
    taken = {row["group"] for row in groups}
    return [row for row in earlier if row["group"] not in taken]


def centres_of(groups: Iterable[Mapping[str, Any]], encode: Any) -> np.ndarray:
    """Return the mean vector of each group's `texts`, scaled to length 1: `[groups, dim]`."""
    return unit_rows(np.stack([encode(row["texts"]).mean(axis=0) for row in groups]))


def _rows(
    sample: Sequence[str],
    vectors: np.ndarray,
    numbers: np.ndarray,
    centres: np.ndarray,
    sizes: np.ndarray,
    total: int,
    classifier: Any,
) -> list[dict[str, Any]]:
    """Return the groups for the result of `discover_intents`, without labels.

    Args:
      sample: the texts in the sample.
      vectors: the vectors of these texts.
      numbers: the number of each text's group.
      centres: centres of the groups, float `[groups, dim]`, normalised to length 1.
      sizes: number of messages in each group, float `[groups]`.
      total: number of all messages.
      classifier: as in `discover_intents`.
    """
    cosines = (unit_rows(vectors) * centres[numbers]).sum(axis=1)
    rows = []
    for number, words in enumerate(_telling_words(sample, numbers)):
        places = np.flatnonzero(numbers == number)
        places = places[np.argsort(-cosines[places], kind="stable")]
        row: dict[str, Any] = {
            "cohesion": rounded(cosines[places].mean()),
            "words": words,
            "texts": [sample[place] for place in places.tolist()],
            "size": int(sizes[number]),
            "share": rounded(sizes[number] / total),
        }
        if classifier is not None:
            nearest = unit_rows(classifier.parts_.centroids) @ centres[number]
            intent = str(classifier.classes_[nearest.argmax()])
            row["nearest"] = {"intent": intent, "cosine": rounded(nearest.max())}
        rows.append(row)
    return rows


def _sampled(batches: Iterable[tuple[list[str], np.ndarray]]) -> tuple[list[str], np.ndarray]:
    """Take batches until the sample is large enough, and return their texts and vectors."""
    sample: list[str] = []
    vectors = [np.zeros((0, 0), np.float32)]
    for texts, encodings in batches:
        sample += texts
        vectors.append(encodings)
        if len(sample) >= _SAMPLE:
            break
    return sample, np.concatenate(vectors[1:] or vectors)


def _label_groups(groups: list[dict[str, Any]], earlier: Sequence[Mapping[str, Any]]) -> None:
    """Label each new group with its first words, and add a number if this label is taken."""
    taken = {row["label"] for row in earlier}
    for row in groups:
        if row["is_new"]:
            name = label = "_".join(row["words"][:_NAMED]) or "group"
            number = 1
            while label in taken:
                number += 1
                label = f"{name}_{number}"
            taken.add(label)
            row["label"] = label


def _unsure_batches(
    texts: Sequence[str], encode: Any, classifier: Any, min_confidence: float
) -> Iterator[tuple[list[str], np.ndarray]]:
    """Yield batches of texts that the classifier does not answer confidently, and their vectors."""
    for chosen in in_batches(texts):
        if classifier is not None:
            is_unsure = unsure(classifier, chosen, min_confidence)
            chosen = [text for text, is_kept in zip(chosen, is_unsure, strict=True) if is_kept]
        if chosen:
            yield chosen, encode(chosen)


def _scatter_of(classifier: Any, seed: int, *, mask: bool = False) -> float | None:
    """Return the variance within a classifier's intents, measured on at most 2,000 examples.

    With `mask`, examples are masked, as messages are. Equal examples of an intent count once, as
    equal messages do.

    Returns:
      The mean squared distance between an example and the mean of its intent, corrected for the
      number of intents; None if there are too few examples.
    """
    examples = getattr(classifier, "examples_", None)
    if examples is None:
        return None
    pairs = (
        (masked(text) if mask else text, label)
        for text, label in zip(*examples, strict=True)
        if label != classifier.decision.out_of_scope_label
    )
    rows = [*dict.fromkeys(pairs)]
    order = np.random.default_rng(seed).permutation(len(rows))[:COMPARED]
    labels = [rows[place][1] for place in order]
    num_free = len(labels) - len({*labels})
    if num_free < _ENOUGH_EXAMPLES:
        return None
    vectors = np.asarray(classifier.encode([rows[place][0] for place in order]), np.float64)
    numbers = np.unique([*map(str, labels)], return_inverse=True)[1]
    return float(((vectors - _means(vectors, numbers)[numbers]) ** 2).sum() / num_free)


def group_vectors(
    vectors: np.ndarray, num_groups: int | None = None, *, scatter: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Group vectors by Ward's method, then by k-means.

    Args:
      vectors: at least two vectors, float `[n, dim]`.
      num_groups: number of groups. If None, it is the smallest number for which the variance within
        groups is at most 1.05 times `scatter`, or at most 48 % of the variance of all vectors if
        `scatter` is None. As in an adjusted R², the variance is corrected for the number of groups.
      scatter: the variance within a classifier's intents, from `_scatter_of`; or None.

    Returns:
      A tuple of the group of each vector, int `[n]`, and the mean vectors of the groups, float
      `[groups, dim]`, normalised to length 1.
    """
    from scipy.cluster.hierarchy import fcluster, linkage
    from sklearn.cluster import KMeans

    points = np.asarray(vectors, np.float64)
    tree = linkage(points, "ward")
    if num_groups is None:
        variance = points.var(axis=0, ddof=1).sum()
        allowed = (1 - _EXPLAINED) * variance if scatter is None else _MORE_SCATTER * scatter
        num_groups = _chosen_number(tree[:, 2], allowed)
    centres = _means(points, fcluster(tree, num_groups, "maxclust") - 1)
    numbers = KMeans(len(centres), init=centres, n_init=1).fit_predict(points)
    numbers = np.unique(numbers, return_inverse=True)[1]  # equal vectors may leave groups empty
    return numbers, unit_rows(_means(points, numbers))


def _chosen_number(heights: np.ndarray, allowed: float) -> int:
    """Return the smallest number of groups whose variance within groups is `allowed` or less.

    `heights` are the heights at which Ward's method merges groups, float `[points - 1]`.
    """
    # Each merge adds half of its squared height to the sum of squares within groups.
    within = np.cumsum(heights**2 / 2)
    merges = np.arange(1, len(heights) + 1)
    is_enough = within / merges <= allowed
    return len(heights) + 1 - int(merges[is_enough].max(initial=0))


def _means(points: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    return np.stack([points[numbers == number].mean(axis=0) for number in range(numbers.max() + 1)])


def _telling_words(texts: Sequence[str], numbers: np.ndarray) -> list[list[str]]:
    """Return the words that distinguish each group from the other groups, the best words first.

    The score of a word is the share of the group's texts that contain the word, times the logarithm
    of the ratio between this share and the word's share in all texts.

    Args:
      texts: messages.
      numbers: int `[texts]`, the group of each text, numbered from 0 without gaps.
    """
    terms = [{*word_terms(text)} for text in texts]
    overall = Counter(word for words in terms for word in words)
    telling = []
    for number in range(numbers.max() + 1):
        places = np.flatnonzero(numbers == number)
        inside = Counter(word for place in places for word in terms[place])
        scores = {
            word: count / len(places) * np.log(count * len(texts) / (len(places) * overall[word]))
            for word, count in inside.items()
        }
        telling.append(sorted(scores, key=lambda word: (-scores[word], word))[:_WORDS])
    return telling


def discovery_text(report: Report, *, shown: int = 10) -> str:
    """Format the largest groups for a terminal."""
    lines = [grouping_summary(report)]
    for row in report["groups"][:shown]:
        lines.append(f"\n{row['size']:6,}  {group_title(report, row)}{nearest_text(row)}")
        lines += [f"        {shortened(text, MAX_TEXT)}" for text in row["texts"][:CENTRAL]]
    lines += rest_text(report["groups"], shown)
    return "\n".join(lines)


def grouping_summary(report: Report) -> str:
    """Return a sentence with the numbers of messages and groups."""
    return (
        f"{report['messages']:,} messages, {report['unsure']:,} to group, {len(report['groups'])} "
        f"groups; {report['left_out']:,} messages are in smaller groups{_gone_text(report)}"
    )


def _gone_text(report: Report) -> str:
    """Return a clause that says how many earlier groups still exist, and which are gone."""
    if "gone" not in report:
        return ""
    number = sum(not row["is_new"] for row in report["groups"])
    gone = [f"{row['group']} {row['label']}" for row in report["gone"]]
    return f"; {number} groups are known, {len(gone)} gone" + f": {listed(gone)}" * bool(gone)


def group_title(report: Report, row: Mapping[str, Any]) -> str:
    """Return a group's words, after its number and earlier label if there is an earlier result."""
    words = ", ".join(row["words"])
    if "gone" not in report:
        return words or str(row["label"])
    return f"{row['group']} {'new' if row['is_new'] else row['label']}: {words}"


def nearest_text(row: Mapping[str, Any]) -> str:
    """Return a clause that names the intent nearest to a group; `""` without a classifier."""
    nearest = row.get("nearest")
    return f"; nearest intent {nearest['intent']} ({nearest['cosine']:.2f})" if nearest else ""
