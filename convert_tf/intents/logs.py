"""Messages of a log: which to label next, groups that no intent answers, and what has changed.

To find groups, a sample of the messages is grouped by Ward's method on their encodings, and k-means
moves messages to nearer groups. All other messages go to the nearest group.

Reference: Ward, "Hierarchical grouping to optimize an objective function", 1963; Zhdanov, "Diverse
mini-batch active learning", 2019 (arXiv 1901.05954).
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from convert_tf.intents.encodings import IntentEncodings, encodes
from convert_tf.intents.lexical import word_terms
from convert_tf.intents.predictor import rounded
from convert_tf.numerics.vectors import unit_rows
from convert_tf.storage.messages import shortened
from convert_tf.storage.progress import Progress

BUDGET = 100
# With this limit half of the messages of unknown intents are unsure, and one in nine of the others
# (docs/lab).
MIN_CONFIDENCE = 0.8
MIN_SIZE = 3
_MESSAGES_AT_ONCE = 4096
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]*\w")
# A word with a digit and those that follow: a telephone number, an account, a date.
_NUMBER = re.compile(r"\+?\w*\d\w*(?:[ .,:/()+-]+\w*\d\w*)*")
_LEAST_WEIGHT = 1e-6
_CANDIDATES = 20  # for each message that is suggested
# Ward's method compares all pairs: 10,000 messages take 400 MB and half a minute.
_SAMPLE = 8_000
# Intents explain about half of the variance of encodings, whatever the encoder and the data.
_EXPLAINED = 0.52
# Messages that no intent answers surely scatter a little more than examples do (docs/lab).
_MORE_SCATTER = 1.05
_ENOUGH_EXAMPLES = 20  # beyond one of each intent, to know how much intents scatter
_WORDS, _NAMED = 5, 3  # words that tell a group apart, and words of a suggested label
_CENTRAL = 5  # messages of a group that are shown
_MAX_TEXT = 90  # characters
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:50em;margin:2em auto;padding:0 1em}"
    "section{border-top:1px solid #ccc}h2{font-size:1.1em;margin-bottom:0}p{margin:.3em 0}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}}"
)
_SIGNIFICANCE = 0.01
# Each period is grouped anew, and its groups may be split or joined in another way. So their shares
# vary more than shares of random messages do: standard errors of groups count twice.
_GROUP_ERROR = 2.0
_SAME_GROUP = 0.8  # cosine of the centres of a group and of an earlier one
_COMPARED = 2_000  # messages and examples whose distances are compared
_FAR_SHARE = 0.1  # of the examples are this far from the nearest other one
# Two shares are tested, so about one of 25 pairs of equal weeks is a false alarm.
_ALARM = 0.04
# Names of these shares in `changes`. Parentheses keep them apart from intents.
_SHARES = {"unsure": "(not answered surely)", "far": "(far from the examples)"}

Report = dict[str, Any]


def masked(text: str) -> str:
    """Return the text with `[email]` and `[number]` in place of e-mail addresses and numbers."""
    return _NUMBER.sub("[number]", _EMAIL.sub("[email]", text))


def counted_messages(texts: Iterable[str], *, mask: bool = False) -> Counter[str]:
    """Count each distinct message, without white space around it.

    Args:
      texts: messages; empty ones are left out.
      mask: whether numbers and e-mail addresses are masked.

    Raises:
      ValueError: no message is left.
    """
    filled = (text.strip() for text in texts)
    counts = Counter(masked(text) if mask else text for text in filled if text)
    if not counts:
        raise ValueError("There are no messages: all lines are empty. Pass another log.")
    return counts


def _shuffled(texts: Sequence[str], seed: int) -> list[str]:
    return [texts[place] for place in np.random.default_rng(seed).permutation(len(texts))]


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield 4,096 texts at a time, and show progress."""
    with Progress("messages", total=len(texts)) as progress:
        for start in range(0, len(texts), _MESSAGES_AT_ONCE):
            chosen = list(texts[start : start + _MESSAGES_AT_ONCE])
            yield chosen
            progress.add(len(chosen))


def _encode_of(encoder: Any, classifier: Any) -> Callable[[list[str]], np.ndarray]:
    """Return the function that encodes messages: the classifier's, or one for comparing texts.

    Raises:
      ValueError: if both are None.
    """
    if classifier is not None:
        return classifier.encode  # type: ignore[no-any-return]
    if encoder is None:
        raise ValueError("encoder or classifier is needed. Pass one of them.")
    encoders = IntentEncodings(encoder).encoders
    kind = "similarity" if encodes(encoders, "similarity") else "sentence"
    return IntentEncodings(encoders, kind=kind, max_texts=0)


def leads(classifier: Any, texts: Sequence[str]) -> np.ndarray:
    """Return how sure the answers are: float `[texts]`; see `convert_tf.intents.decision`."""
    leads: np.ndarray = classifier.decision.leads(classifier.predict_proba(texts))
    return leads


def unsure(classifier: Any, texts: Sequence[str], min_confidence: float) -> np.ndarray:
    """Return which texts a classifier does not answer surely.

    Args:
      classifier: an `IntentClassifier`, a `MultiIntentClassifier` or an `IntentFile`.
      texts: messages, none empty.
      min_confidence: the least probability of a sure answer.

    Returns:
      bool `[texts]`: texts without an intent, and those with a lower probability.
    """
    outside = classifier.decision.out_of_scope_label
    has_none = [answer == outside for answer in classifier.predict(texts).tolist()]
    return np.array(has_none) | (classifier.predict_proba(texts).max(axis=1) < min_confidence)


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
    suggested. Without a classifier messages are drawn at random, and weigh equally.

    Args:
      texts: messages of a log.
      encoder, classifier, mask: as in `discover_intents`.
      budget: how many messages can be labelled.
      seed: of the draw and of k-means.

    Returns:
      `budget` different messages, the least sure first.

    Raises:
      ValueError: there are fewer distinct messages than `budget`.
    """
    from sklearn.cluster import KMeans

    encode = _encode_of(encoder, classifier)
    messages = _shuffled([*counted_messages(texts, mask=mask)], seed)
    if len(messages) < budget:
        raise ValueError(
            f"There are {len(messages)} different messages, fewer than the budget of {budget}. "
            "Label them all, or pass a longer log."
        )
    sureness = np.zeros(len(messages))
    if classifier is not None:
        sureness = np.concatenate([leads(classifier, part) for part in _batches(messages)])
    places = np.argsort(sureness, kind="stable")[: _CANDIDATES * budget]
    vectors = encode([messages[place] for place in places])
    weights = np.maximum(1 - sureness[places], _LEAST_WEIGHT)
    groups = KMeans(budget, n_init=1, random_state=seed).fit(vectors, sample_weight=weights)
    central: list[int] = []
    for distances in groups.transform(vectors).T:
        distances[central] = np.inf  # a message may be the most central one of two groups
        central.append(int(distances.argmin()))
    return [messages[places[place]] for place in sorted(central)]  # the least sure first


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
) -> Report:
    """Group messages so that each group may be a new intent.

    Args:
      texts: messages of a log; empty ones are left out, and equal ones are encoded once.
      encoder: as in `IntentClassifier`; unused with a classifier, whose encodings are grouped.
      classifier: an `IntentClassifier`, a `MultiIntentClassifier` or an `IntentFile`; messages that
        it answers surely are left out.
      num_groups: how many groups; None chooses. With a classifier that keeps its examples, groups
        scatter as its intents do.
      min_size: messages of smaller groups are leftovers.
      min_confidence: the least probability of a sure answer.
      mask: whether numbers and e-mail addresses are masked, before anything else happens.
      seed: of the sample that is grouped.

    Returns:
      `messages`, how many there are; `unsure`, how many no intent answers surely; `left_out`, how
      many of these are in small groups; `leftovers`, the distinct texts of small groups in the
      sample, texts of a group next to each other; `groups`, the largest first, each with `label` (a
      suggestion), `size`, `share` of all messages, `cohesion` (the mean cosine of its messages to
      its centre), `words` that tell it apart, and `texts`, its distinct messages in the sample, the
      most central first; with a classifier also `nearest`, with `intent` and `cosine`.

    Raises:
      ValueError: there are fewer distinct messages than groups, or all are answered surely.
    """
    encode = _encode_of(encoder, classifier)
    counts = counted_messages(texts, mask=mask)
    batches = _unsure_batches(_shuffled([*counts], seed), encode, classifier, min_confidence)
    sample, vectors = _sampled(batches)
    least = max(2, num_groups or 0)
    if len(sample) < least:
        which = "" if classifier is None else " that no intent answers surely"
        raise ValueError(
            f"The log has {len(sample)} different messages{which}, and {least} groups need "
            f"{least} or more. Pass a longer log{', or ask for fewer groups' * (least > 2)}."
        )
    scatter = None if classifier is None else _scatter_of(classifier, seed)
    numbers, centres = group_vectors(vectors, num_groups, scatter=scatter)

    def sizes_of(groups: np.ndarray, messages: Sequence[str]) -> np.ndarray:
        return np.bincount(groups, [counts[message] for message in messages], len(centres))

    sizes = sizes_of(numbers, sample)
    for chosen, encoded in batches:  # messages outside of the sample
        sizes += sizes_of((encoded @ centres.T).argmax(axis=1), chosen)
    cosines = (unit_rows(vectors) * centres[numbers]).sum(axis=1)
    groups: list[dict[str, Any]] = []
    leftovers: list[str] = []
    for number, words in enumerate(_telling_words(sample, numbers)):
        places = np.flatnonzero(numbers == number)
        places = places[np.argsort(-cosines[places], kind="stable")]
        row: dict[str, Any] = {
            "cohesion": rounded(cosines[places].mean()),
            "words": words,
            "texts": [sample[place] for place in places],
            "size": int(sizes[number]),
            "share": rounded(sizes[number] / counts.total()),
        }
        if classifier is not None:
            nearest = unit_rows(classifier.parts_.centroids) @ centres[number]
            intent = str(classifier.classes_[nearest.argmax()])
            row["nearest"] = {"intent": intent, "cosine": rounded(nearest.max())}
        if row["size"] >= min_size:
            groups.append(row)
        else:
            leftovers += row["texts"]
    groups.sort(key=lambda row: -row["size"])
    _label_groups(groups)
    return {
        "messages": counts.total(),
        "unsure": int(sizes.sum()),
        "left_out": int(sizes.sum()) - sum(row["size"] for row in groups),
        "leftovers": leftovers,
        "groups": groups,
    }


def _sampled(batches: Iterable[tuple[list[str], np.ndarray]]) -> tuple[list[str], np.ndarray]:
    """Return texts and vectors of the first batches, enough for a sample."""
    sample: list[str] = []
    vectors = [np.zeros((0, 0), np.float32)]
    for texts, encodings in batches:
        sample += texts
        vectors.append(encodings)
        if len(sample) >= _SAMPLE:
            break
    return sample, np.concatenate(vectors[1:] or vectors)


def _label_groups(groups: list[dict[str, Any]]) -> None:
    """Add a `label` to each group: its first words, and a number if another has the same ones."""
    names: Counter[str] = Counter()
    for row in groups:
        name = "_".join(row["words"][:_NAMED]) or "group"
        names[name] += 1
        row["label"] = name if names[name] == 1 else f"{name}_{names[name]}"


def _unsure_batches(
    texts: Sequence[str], encode: Any, classifier: Any, min_confidence: float
) -> Iterator[tuple[list[str], np.ndarray]]:
    """Yield texts that are not answered surely, and their vectors."""
    for chosen in _batches(texts):
        if classifier is not None:
            is_unsure = unsure(classifier, chosen, min_confidence)
            chosen = [text for text, is_kept in zip(chosen, is_unsure, strict=True) if is_kept]
        if chosen:
            yield chosen, encode(chosen)


def _scatter_of(classifier: Any, seed: int) -> float | None:
    """Return the mean variance within the intents of a classifier, by 2,000 examples at most.

    Returns:
      The mean squared distance of examples to the mean of their intent, corrected for the number of
      intents; None without enough examples.
    """
    examples = getattr(classifier, "examples_", None)
    if examples is None:
        return None
    rows = [
        (text, label)
        for text, label in zip(*examples, strict=True)
        if label != classifier.decision.out_of_scope_label
    ]
    order = np.random.default_rng(seed).permutation(len(rows))[:_COMPARED]
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
      vectors: float `[n, dim]`, two or more.
      num_groups: how many; None for the fewest whose variance within groups is small enough: 1.05
        times `scatter`, or without it 48 % of the variance of all vectors. The variance is
        corrected for the number of groups as an adjusted R² is.
      scatter: the variance within known intents.

    Returns:
      The group of each vector, int `[n]`, and mean vectors of length 1, float `[groups, dim]`.
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

    `heights` are those of the merges of Ward's method, float `[points - 1]`.
    """
    # Each merge adds half of its squared height to the sum of squares within groups.
    within = np.cumsum(heights**2 / 2)
    merges = np.arange(1, len(heights) + 1)
    is_enough = within / merges <= allowed
    return len(heights) + 1 - int(merges[is_enough].max(initial=0))


def _means(points: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    return np.stack([points[numbers == number].mean(axis=0) for number in range(numbers.max() + 1)])


def _telling_words(texts: Sequence[str], numbers: np.ndarray) -> list[list[str]]:
    """Return the words that tell each group apart from the others, the best first.

    A word counts by the share of the group's texts with it, times the logarithm of how much larger
    that share is than the share of all texts.

    Args:
      texts: messages.
      numbers: int `[texts]`, the group of each, from 0 without gaps.
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
    """Return the largest groups for a terminal."""
    lines = [_summary(report)]
    for row in report["groups"][:shown]:
        lines.append(f"\n{row['size']:6,}  {', '.join(row['words'])}{_nearest_text(row)}")
        lines += [f"        {shortened(text, _MAX_TEXT)}" for text in row["texts"][:_CENTRAL]]
    return "\n".join(lines)


def _summary(report: Report) -> str:
    return (
        f"{report['messages']:,} messages, {report['unsure']:,} to group, {len(report['groups'])} "
        f"groups; {report['left_out']:,} messages are in smaller groups"
    )


def _nearest_text(row: Mapping[str, Any]) -> str:
    nearest = row.get("nearest")
    return f"; nearest intent {nearest['intent']} ({nearest['cosine']:.2f})" if nearest else ""


def discovery_page(report: Report) -> str:
    """Return an HTML page of the groups, which loads nothing from elsewhere."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><meta charset="utf-8"><title>Groups of messages</title>',
        f"<style>{_STYLE}</style>",
        f"<h1>Groups of messages</h1><p>{escape(_summary(report))}.</p>",
    ]
    for row in report["groups"]:
        facts = f"{row['size']:,} messages, cohesion {row['cohesion']:.2f}{_nearest_text(row)}"
        central, others = row["texts"][:_CENTRAL], row["texts"][_CENTRAL:]
        parts.append(f"<section><h2>{escape(', '.join(row['words']) or row['label'])}</h2>")
        parts.append(f"<p>{escape(facts)}</p>{_html_list(central)}")
        if others:
            parts.append(f"<details><summary>{len(others):,} more</summary>{_html_list(others)}")
            parts.append("</details>")
        parts.append("</section>")
    if leftovers := report["leftovers"]:
        parts.append(f"<section><h2>Smaller groups</h2>{_html_list(leftovers)}</section>")
    return "\n".join([*parts, "</html>", ""])


def _html_list(texts: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>"


def monitor_messages(
    texts: Iterable[str],
    classifier: Any,
    *,
    since: Mapping[str, Any] | None = None,
    min_size: int = MIN_SIZE,
    min_confidence: float = MIN_CONFIDENCE,
    mask: bool = False,
    seed: int = 0,
) -> Report:
    """Count the intents of messages, and compare the messages with the training data.

    Args:
      texts: messages of a period, for example of a week.
      classifier: an `IntentClassifier` or an `IntentFile`.
      since: the result for an earlier period.
      min_size, min_confidence, mask: as in `discover_intents`.
      seed: of samples.

    Returns:
      `messages`, how many there are; `unsure`, how many no intent answers surely; `far`, how many
      are farther from the nearest example than nine of ten examples are from theirs; `intents`,
      how many have which intent;
      `drift`, None without examples, else `farther`, how often a message is farther from the
      nearest example than an example is from the nearest other one, and `p_value` of the
      Mann-Whitney test that this is no more than chance; `groups` of unsure messages, each with
      `label`, `words`, `size`, `share` and five `texts`. `far` is None without examples.

      With `since`, groups also have `before`, the share of the same group, or 0. `changes` has what
      changed by a test of two proportions, each with `name`, `before`, `now` and `p_value` after
      Bonferroni's correction. Standard errors of groups count twice, because groups are made anew
      in each period. First come the shares `unsure` and `far` (significant at 4 %), under
      the names `(not answered surely)` and `(far from the examples)`. Then come intents and groups
      (significant at 1 %), those that are gone too, the largest change first.

    Raises:
      ValueError: there is no message, or `since` is no such result.
    """
    if since is not None:
        _check_report(since)
    counts = counted_messages(texts, mask=mask)
    messages = _shuffled([*counts], seed)
    intents = Counter({str(label): 0 for label in classifier.classes_})
    rejected: list[str] = []
    examples = _example_vectors(classifier, seed)
    far_cosine = 0.0 if examples is None else np.quantile(_cosines_between(examples), _FAR_SHARE)
    num_far = 0
    for chosen in _batches(messages):
        is_unsure = unsure(classifier, chosen, min_confidence)
        answers = classifier.predict(chosen)
        if examples is not None:
            is_far = _nearest_cosines(classifier, chosen, examples) < far_cosine
            num_far += sum(counts[text] for text, far in zip(chosen, is_far, strict=True) if far)
        for text, intent, is_rejected in zip(chosen, answers, is_unsure, strict=True):
            intents[str(intent)] += counts[text]
            rejected += [text] * (counts[text] if is_rejected else 0)
    groups = []
    if len({*rejected}) > 1:
        groups = discover_intents(
            rejected,
            classifier=classifier,
            min_size=min_size,
            min_confidence=min_confidence,
            seed=seed,
        )["groups"]
    report: Report = {
        "messages": counts.total(),
        "unsure": len(rejected),
        "far": None if examples is None else num_far,
        "intents": dict(intents),
        "drift": None if examples is None else _drift(messages, classifier, examples),
        "groups": [
            {
                **{name: row[name] for name in ("label", "words", "size")},
                "share": rounded(row["size"] / counts.total()),
                "texts": row["texts"][:_CENTRAL],
            }
            for row in groups
        ],
    }
    if since is not None:
        gone = _add_earlier_shares(report["groups"], since["groups"], classifier.encode)
        report["changes"] = _changes(report, since, gone)
    return report


def _check_report(report: Any) -> None:
    """Raise `ValueError` if a report for `since` lacks something, for example after an edit."""

    def check(is_right: bool, message: str) -> None:
        if not is_right:
            raise ValueError(f"The earlier report {message}. Pass one of intent monitor, unedited.")

    def is_number(value: Any) -> bool:
        is_real = isinstance(value, (int, float)) and not isinstance(value, bool)
        return is_real and 0 <= value < math.inf

    check(isinstance(report, Mapping), "is no JSON object")
    for name in ("messages", "intents", "groups"):
        check(name in report, f"has no {name!r}")
    messages, intents, groups = report["messages"], report["intents"], report["groups"]
    check(is_number(messages) and messages > 0, f"has no number of 'messages': {messages!r}")
    check(isinstance(intents, Mapping), "has no object 'intents'")
    for name, count in intents.items():
        check(is_number(count) and count <= messages, f"has {count!r} messages of intent {name!r}")
    for name in _SHARES:  # None, or not there in reports of earlier versions
        count = report.get(name)
        is_count = count is None or (is_number(count) and count <= messages)
        check(is_count, f"has {count!r} messages in {name!r}")
    check(isinstance(groups, list), "has no list 'groups'")
    for number, row in enumerate(groups, 1):
        place = f"has in group {number} no"
        check(isinstance(row, Mapping) and isinstance(row.get("label"), str), f"{place} 'label'")
        check(is_number(row.get("share")) and row["share"] <= 1, f"{place} 'share' from 0 to 1")
        texts = row.get("texts")
        are_texts = isinstance(texts, list) and all(isinstance(text, str) for text in texts)
        check(bool(are_texts and texts), f"{place} 'texts', with which groups are compared")


def _example_vectors(classifier: Any, seed: int) -> np.ndarray | None:
    """Return vectors of at most 2,000 examples, of length 1; None if there are fewer than two."""
    examples = getattr(classifier, "examples_", None)
    if examples is None or len(examples.texts) < 2:
        return None
    return unit_rows(classifier.encode(_shuffled(examples.texts, seed)[:_COMPARED]))


def _cosines_between(examples: np.ndarray) -> np.ndarray:
    """Return the cosine of each example to the nearest other one: float `[examples]`."""
    between = examples @ examples.T
    np.fill_diagonal(between, -1)
    return between.max(axis=1)  # type: ignore[no-any-return]


def _nearest_cosines(classifier: Any, texts: list[str], examples: np.ndarray) -> np.ndarray:
    """Return the cosine of each text to the nearest example: float `[texts]`."""
    return (unit_rows(classifier.encode(texts)) @ examples.T).max(axis=1)


def _drift(messages: list[str], classifier: Any, examples: np.ndarray) -> dict[str, float]:
    """Compare the cosines of messages and of examples to the nearest other example."""
    from scipy.stats import mannwhitneyu

    between = _cosines_between(examples)
    cosines = _nearest_cosines(classifier, messages[:_COMPARED], examples)
    test = mannwhitneyu(between, cosines, alternative="greater")
    farther = test.statistic / (len(between) * len(cosines))
    return {"farther": rounded(farther), "p_value": float(test.pvalue)}


def _add_earlier_shares(
    groups: Sequence[dict[str, Any]], earlier: Sequence[Mapping[str, Any]], encode: Any
) -> list[Mapping[str, Any]]:
    """Add the share of the nearest earlier group, if it is near enough to be the same.

    Returns:
      The earlier groups that are gone: no group is near enough.
    """
    centres, earlier_centres = (
        [unit_rows(encode(row["texts"]).mean(axis=0)) for row in rows] for rows in (groups, earlier)
    )
    for row, centre in zip(groups, centres, strict=True):
        cosines = [float(centre @ other) for other in earlier_centres]
        is_known = max(cosines, default=-1) >= _SAME_GROUP
        row["before"] = earlier[int(np.argmax(cosines))]["share"] if is_known else 0.0
    return [
        row
        for row, other in zip(earlier, earlier_centres, strict=True)
        if max((float(centre @ other) for centre in centres), default=-1) < _SAME_GROUP
    ]


def _changes(
    report: Report, since: Mapping[str, Any], gone: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return what differs clearly; `gone` are earlier groups."""
    numbers = np.array([since["messages"], report["messages"]])
    counts = [since["intents"], report["intents"]]
    rows = [
        (
            name,
            *(count.get(name, 0) / number for count, number in zip(counts, numbers, strict=True)),
        )
        for name in {**counts[1], **counts[0]}
    ]
    groups = [(row["label"], row["before"], row["share"]) for row in report["groups"]]
    groups += [(row["label"], row["share"], 0.0) for row in gone]
    number = len(rows) + len(groups)
    changes = _tested(rows, numbers, _SIGNIFICANCE / number)
    changes += _tested(groups, numbers, _SIGNIFICANCE / number, error_factor=_GROUP_ERROR)
    for row in changes:
        row["p_value"] *= number
    changes.sort(key=lambda row: -abs(row["now"] - row["before"]))
    shares = [
        (name, *([since[key], report[key]] / numbers).tolist())
        for key, name in _SHARES.items()
        if since.get(key) is not None and report[key] is not None
    ]
    first = _tested(shares, numbers, _ALARM / max(len(shares), 1))
    for row in first:
        row["p_value"] *= len(shares)
    return first + changes


def _tested(
    rows: Sequence[tuple[str, float, float]],
    numbers: np.ndarray,
    significance: float,
    *,
    error_factor: float = 1.0,
) -> list[dict[str, Any]]:
    """Return the rows whose two shares differ, by a test of two proportions.

    Args:
      rows: name, earlier share and present share.
      numbers: how many messages the periods have, `[2]`.
      significance: highest p-value.
      error_factor: factor of the standard error of random draws.
    """
    changes = []
    for name, before, now in rows:
        pooled = np.average([before, now], weights=numbers)
        error = error_factor * np.sqrt(pooled * (1 - pooled) * (1 / numbers).sum())
        p_value = math.erfc(abs(now - before) / max(error, 1e-12) / math.sqrt(2))
        if p_value < significance:
            shares = {"before": rounded(before), "now": rounded(now)}
            changes.append({"name": name, **shares, "p_value": p_value})
    return changes


def monitoring_text(report: Report, *, shown: int = 10) -> str:
    """Return the result for a terminal."""
    total, drift = report["messages"], report["drift"]
    far = "" if report["far"] is None else f", {report['far'] / total:.1%} far from the examples"
    lines = [f"{total:,} messages, {report['unsure'] / total:.1%} not answered surely{far}"]
    if drift is not None:
        verdict = ": the messages have drifted" if drift["p_value"] < _SIGNIFICANCE else ""
        lines.append(
            f"{drift['farther']:.0%} farther from the examples than examples from one another, "
            f"p = {drift['p_value']:.2g}{verdict}"
        )
    lines.append("\nintents:")
    ordered = sorted(report["intents"].items(), key=lambda item: -item[1])
    lines += [f"  {count / total:6.1%}  {intent}" for intent, count in ordered[:shown]]
    lines.append("\ngroups that no intent answers:")
    for row in report["groups"][:shown]:
        before = f", before {row['before']:.1%}" if "before" in row else ""
        lines.append(f"  {row['share']:6.1%}{before}  {', '.join(row['words'])}")
        lines.append(f"          {shortened(row['texts'][0], _MAX_TEXT)}")
    if "changes" in report:
        lines.append("\nclear changes:")
        lines += [
            f"  {row['before']:6.1%} → {row['now']:.1%}  {row['name']}"
            for row in report["changes"][:shown]
        ] or ["  none"]
    return "\n".join(lines)
