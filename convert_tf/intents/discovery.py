"""Groups of messages that no intent answers: candidates for new intents.

A sample of the messages is grouped by Ward's method on their encodings, and k-means moves messages
to nearer groups. All other messages go to the nearest group.

Reference: Ward, "Hierarchical grouping to optimize an objective function", 1963.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

from convert_tf.intents.lexical import word_terms
from convert_tf.intents.messages import batches, counted_messages, encode_of, shuffled, unsure
from convert_tf.numerics.vectors import unit_rows
from convert_tf.storage.messages import shortened

# With this limit half of the messages of unknown intents are unsure, and one in nine of the others
# (docs/lab).
MIN_CONFIDENCE = 0.8
MIN_SIZE = 5
# Ward's method compares all pairs: 10,000 messages take 400 MB and half a minute.
_SAMPLE = 8_000
# Intents explain about half of the variance of encodings, whatever the encoder and the data.
_EXPLAINED = 0.52
_WORDS = 5
_NAMED = 3  # words of a suggested label
CENTRAL = 5
_MAX_TEXT = 90  # characters
_DIGITS = 4
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:50em;margin:2em auto;padding:0 1em}"
    "section{border-top:1px solid #ccc}h2{font-size:1.1em;margin-bottom:0}p{margin:.3em 0}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}}"
)

Discovery = dict[str, Any]


class Groups(NamedTuple):
    """Groups of vectors.

    Attributes:
      numbers: int `[n]`, the group of each vector.
      centres: float `[groups, dim]`, mean vectors of length 1.
    """

    numbers: np.ndarray
    centres: np.ndarray


def discover_intents(
    texts: Iterable[str],
    encoder: Any = None,
    *,
    classifier: Any = None,
    num_groups: int | None = None,
    min_size: int = MIN_SIZE,
    min_confidence: float = MIN_CONFIDENCE,
    masks: bool = False,
    seed: int = 0,
) -> Discovery:
    """Group messages so that each group may be a new intent.

    Args:
      texts: messages of a log; empty ones are left out, and equal ones are encoded once.
      encoder: as in `IntentClassifier`; unused with a classifier, whose encodings are grouped.
      classifier: an `IntentClassifier`, a `MultiIntentClassifier` or an `IntentFile`; messages that
        it answers surely are left out.
      num_groups: how many groups; None chooses.
      min_size: smaller groups are left out.
      min_confidence: the least probability of a sure answer.
      masks: whether numbers and e-mail addresses are masked, before anything else happens.
      seed: of the sample that is grouped.

    Returns:
      `messages`, how many there are; `unsure`, how many no intent answers surely; `left_out`, how
      many of these are in small groups; `groups`, the largest first, each with `label` (a
      suggestion), `size`, `share` of all messages, `cohesion` (the mean cosine of its messages to
      its centre), `words` that tell it apart, and `texts`, its distinct messages in the sample, the
      most central first; with a classifier also `nearest`, with `intent` and `cosine`.

    Raises:
      ValueError: there are fewer distinct messages than groups, or all are answered surely.
    """
    encode = encode_of(encoder, classifier)
    counts = counted_messages(texts, masks=masks)
    found = _unsure_batches(shuffled([*counts], seed), encode, classifier, min_confidence)
    sample: list[str] = []
    parts: list[np.ndarray] = []
    for chosen, vectors in found:
        sample += chosen
        parts.append(vectors)
        if len(sample) >= _SAMPLE:
            break
    least = max(2, num_groups or 0)
    if len(sample) < least:
        which = "" if classifier is None else " that no intent answers surely"
        raise ValueError(
            f"There are {len(sample)} different messages{which}, fewer than the {least} groups. "
            "Pass a longer log, or ask for fewer groups."
        )
    groups = group_vectors(np.concatenate(parts), num_groups)
    num_groups = len(groups.centres)
    sizes = _sizes(groups.numbers, sample, counts, num_groups)
    for others, vectors in found:
        numbers = (vectors @ groups.centres.T).argmax(axis=1)
        sizes += _sizes(numbers, others, counts, num_groups)
    cosines = (unit_rows(np.concatenate(parts)) * groups.centres[groups.numbers]).sum(axis=1)
    rows = []
    for number, words in enumerate(telling_words(sample, groups.numbers)):
        places = np.flatnonzero(groups.numbers == number)
        places = places[np.argsort(-cosines[places], kind="stable")]
        row: dict[str, Any] = {
            "cohesion": round(float(cosines[places].mean()), _DIGITS),
            "words": words,
            "texts": [sample[place] for place in places.tolist()],
            "size": int(sizes[number]),
            "share": round(float(sizes[number] / counts.total()), _DIGITS),
        }
        if classifier is not None:
            nearest = unit_rows(classifier.parts_.centroids) @ groups.centres[number]
            best = int(nearest.argmax())
            cosine = round(float(nearest[best]), _DIGITS)
            row["nearest"] = {"intent": str(classifier.classes_[best]), "cosine": cosine}
        rows.append(row)
    rows = sorted((row for row in rows if row["size"] >= min_size), key=lambda row: -row["size"])
    _add_labels(rows)
    return {
        "messages": counts.total(),
        "unsure": int(sizes.sum()),
        "left_out": int(sizes.sum()) - sum(row["size"] for row in rows),
        "groups": rows,
    }


def _unsure_batches(
    texts: Sequence[str], encode: Any, classifier: Any, min_confidence: float
) -> Iterator[tuple[list[str], np.ndarray]]:
    """Yield texts that are not answered surely, and their vectors."""
    for chosen in batches(texts):
        if classifier is not None:
            is_unsure = unsure(classifier, chosen, min_confidence)
            chosen = [text for text, is_kept in zip(chosen, is_unsure, strict=True) if is_kept]
        if chosen:
            yield chosen, encode(chosen)


def group_vectors(vectors: np.ndarray, num_groups: int | None = None) -> Groups:
    """Group vectors by Ward's method, then by k-means.

    Args:
      vectors: float `[n, dim]`, two or more.
      num_groups: how many; None for the fewest that explain 52 % of the variance, corrected for the
        number of groups as an adjusted R² is.
    """
    from scipy.cluster.hierarchy import fcluster, linkage
    from sklearn.cluster import KMeans

    points = np.asarray(vectors, np.float64)
    tree = linkage(points, "ward")
    if num_groups is None:
        num_groups = _chosen_number(tree[:, 2], points)
    numbers = np.unique(fcluster(tree, num_groups, "maxclust"), return_inverse=True)[1]
    centres = _means(points, numbers)
    numbers = KMeans(len(centres), init=centres, n_init=1).fit_predict(points)
    numbers = np.unique(numbers, return_inverse=True)[1]
    return Groups(numbers, unit_rows(_means(points, numbers)))


def _chosen_number(heights: np.ndarray, points: np.ndarray) -> int:
    """Return the number of groups, from the heights of the merges of Ward's method."""
    # Each merge adds half of its squared height to the sum of squares within groups.
    within = np.concatenate([[0.0], np.cumsum(heights**2 / 2)])
    merges = np.arange(1, len(points))
    variance = points.var(axis=0).sum() * len(points) / (len(points) - 1)
    is_enough = within[1:] / merges <= (1 - _EXPLAINED) * variance
    return len(points) - int(merges[is_enough].max(initial=0))


def _means(points: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    return np.stack([points[numbers == number].mean(axis=0) for number in range(numbers.max() + 1)])


def _sizes(
    numbers: np.ndarray, texts: Sequence[str], counts: Mapping[str, int], num_groups: int
) -> np.ndarray:
    return np.bincount(numbers, [counts[text] for text in texts], num_groups)


def telling_words(texts: Sequence[str], numbers: np.ndarray) -> list[list[str]]:
    """Return the words that tell each group apart from the others, the best first.

    A word counts by the share of the group's texts with it, times the logarithm of how much larger
    that share is than the share of all texts.

    Args:
      texts: messages.
      numbers: int `[texts]`, the group of each, from 0 without gaps.
    """
    terms = [{*word_terms(text)} for text in texts]
    overall = Counter(word for own in terms for word in own)
    found = []
    for number in range(int(numbers.max()) + 1):
        places = np.flatnonzero(numbers == number)
        inside = Counter(word for place in places for word in terms[place])
        scores = {
            word: count / len(places) * np.log(count * len(texts) / (len(places) * overall[word]))
            for word, count in inside.items()
        }
        best = sorted(scores, key=lambda word: (-scores[word], word))
        found.append(best[:_WORDS])
    return found


def _add_labels(rows: Sequence[dict[str, Any]]) -> None:
    """Name each group after its words; a second group of that name gets a number."""
    names: Counter[str] = Counter()
    for row in rows:
        name = "_".join(row["words"][:_NAMED]) or "group"
        names[name] += 1
        row["label"] = name if names[name] == 1 else f"{name}_{names[name]}"


def discovery_text(found: Discovery, *, shown: int = 10) -> str:
    """Return the largest groups for a terminal."""
    lines = [discovery_summary(found)]
    for row in found["groups"][:shown]:
        lines.append(f"\n{row['size']:6,}  {', '.join(row['words'])}{_nearest_text(row)}")
        lines += [f"        {shortened(text, _MAX_TEXT)}" for text in row["texts"][:CENTRAL]]
    return "\n".join(lines)


def discovery_summary(found: Discovery) -> str:
    """Return how many messages there are, and in how many groups."""
    return (
        f"{found['messages']:,} messages, {found['unsure']:,} to group, {len(found['groups'])} "
        f"groups; {found['left_out']:,} messages are in smaller groups"
    )


def _nearest_text(row: Mapping[str, Any]) -> str:
    nearest = row.get("nearest")
    return f"; nearest intent {nearest['intent']} ({nearest['cosine']:.2f})" if nearest else ""


def discovery_page(found: Discovery) -> str:
    """Return an HTML page of the groups, which loads nothing from elsewhere."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><meta charset="utf-8"><title>Groups of messages</title>',
        f"<style>{_STYLE}</style>",
        f"<h1>Groups of messages</h1><p>{escape(discovery_summary(found))}.</p>",
    ]
    for row in found["groups"]:
        facts = f"{row['size']:,} messages, cohesion {row['cohesion']:.2f}{_nearest_text(row)}"
        central, others = row["texts"][:CENTRAL], row["texts"][CENTRAL:]
        parts += [
            f"<section><h2>{escape(', '.join(row['words']) or row['label'])}</h2>",
            f"<p>{escape(facts)}</p>{_listed(central)}",
        ]
        if others:
            parts.append(f"<details><summary>{len(others):,} more</summary>{_listed(others)}")
            parts.append("</details>")
        parts.append("</section>")
    return "\n".join([*parts, "</html>", ""])


def _listed(texts: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>"
