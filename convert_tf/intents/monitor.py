"""Report what users asked a classifier in a period, and what changed since an earlier period."""

import dataclasses
import math
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from convert_tf.intents.discover import MIN_SIZE, SAME_GROUP, centres_of, discover_intents
from convert_tf.intents.folder import for_json
from convert_tf.intents.head import head_arrays
from convert_tf.intents.lexical import lexical_arrays
from convert_tf.intents.messages import (
    CENTRAL,
    COMPARED,
    MAX_TEXT,
    MIN_CONFIDENCE,
    Report,
    counted_messages,
    in_batches,
    rest_text,
    shuffled,
    unsure,
)
from convert_tf.intents.predictor import rounded
from convert_tf.numerics.vectors import unit_rows
from convert_tf.storage.checksums import checksum
from convert_tf.storage.json_text import written_json
from convert_tf.storage.messages import shortened

_SIGNIFICANCE = 0.01
# Messages are grouped anew in each period, and groups may be split or joined differently. So the
# shares of groups vary more than in random draws, and the standard errors of shares are doubled.
_GROUP_ERROR = 2.0
# A message is far from the examples if its cosine to the nearest example is below this quantile of
# the examples' cosines to their nearest other example.
_FAR_SHARE = 0.1
# Significance level of the test for the two shares `unsure` and `far`. Of the comparisons of two
# periods in which nothing has changed, one in 25 gives a false alarm.
_ALARM = 0.04
# Names of these two shares in `changes`. The parentheses distinguish them from intents.
_SHARES = {"unsure": "(not answered surely)", "far": "(far from the examples)"}


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
      texts: messages from a period, such as a week.
      classifier: an `IntentClassifier`, a `MultiIntentClassifier` or an `IntentFile`.
      since: the result of this function for an earlier period; None if there is nothing to compare.
        If another classifier made it, nothing is compared, and a warning says so. There is also a
        warning if an earlier version made it, because it then does not name its classifier.
      min_size, min_confidence, mask: as in `discover_intents`.
      seed: seed for the samples.

    Returns:
      A dict with
      - `messages`: the number of messages;
      - `mask`, `min_confidence`, `min_size`: the options; `mask` says whether messages and examples
        were masked;
      - `classifier`: a checksum of the classifier's weights, intents and thresholds;
      - `unsure`: the number of messages that the classifier does not answer confidently;
      - `far`: the number of messages that are farther from the nearest example than nine out of ten
        examples are from the nearest other example; None if the classifier has no examples;
      - `intents`: the number of messages by intent. A message with several intents is counted for
        each of them;
      - `drift`: a comparison of messages with examples; None if the classifier has no examples.
        `farther` is the probability that a message is farther from the nearest example than an
        example is from the nearest other example. `p_value` is the p-value of a Mann-Whitney test
        in which copies of a message count once;
      - `groups`: groups of unsure messages, each a dict with `label`, `words`, `size`, `share` and
        five `texts`. If periods are compared, each group also has `before`, the share of the same
        group in the earlier period, or 0 if it did not exist;
      - `changes`: the significant changes (only if periods are compared), each a dict with `name`,
        `before`, `now` and `p_value`.

      Changes are found by a test of two proportions with Bonferroni correction. The shares `unsure`
      and `far` come first, under the names `(not answered surely)` and `(far from the examples)`.
      They are tested at a significance level of 4 %. Intents and groups follow, the largest change
      first, including groups that no longer exist. They are tested at 1 %. Standard errors for
      groups are doubled, because messages are grouped anew in each period.

    Raises:
      ValueError: if there are no messages, or `since` is not a result of this function or was
        computed with other values of `mask`, `min_confidence` or `min_size`.
    """
    options: dict[str, Any] = {"mask": mask, "min_confidence": min_confidence, "min_size": min_size}
    classifier_checksum = _checksum_of(classifier)
    if since is not None:
        _check_comparable(since, options)
        since = since if _may_be_of(since, classifier_checksum) else None
    counts = counted_messages(texts, mask=mask)
    messages = shuffled([*counts], seed)
    intents = Counter({str(label): 0 for label in classifier.classes_})
    rejected: list[str] = []
    examples = _example_vectors(classifier, mask, seed)
    cosines: list[float] = []  # cosine between each message and the nearest example
    for chosen in in_batches(messages):
        is_unsure = unsure(classifier, chosen, min_confidence)
        answers = classifier.predict(chosen)
        if examples is not None:
            to_examples = unit_rows(classifier.encode(chosen)) @ examples.T
            cosines += to_examples.max(axis=1).tolist()
        for text, answer, is_rejected in zip(chosen, answers, is_unsure, strict=True):
            for intent in answer if classifier.decision.has_several else [answer]:
                intents[str(intent)] += counts[text]
            rejected += [text] * (counts[text] if is_rejected else 0)
    far = drift = None
    if examples is not None:
        between = _cosines_between(examples)
        is_far = np.array(cosines) < np.quantile(between, _FAR_SHARE)
        far = sum(counts[messages[place]] for place in np.flatnonzero(is_far))
        drift = _drift(between, np.array(cosines), [counts[message] for message in messages])
    report: Report = {
        "messages": counts.total(),
        **options,
        "classifier": classifier_checksum,
        "unsure": len(rejected),
        "far": far,
        "intents": dict(intents),
        "drift": drift,
        "groups": _groups(rejected, counts.total(), classifier=classifier, seed=seed, **options),
    }
    if since is not None:
        gone = _add_earlier_shares(report["groups"], since, classifier.encode)
        report["changes"] = _changes(report, since, gone)
        for row in report["groups"]:
            row["before"] = rounded(row["before"])
    return report


def _groups(rejected: list[str], total: int, **options: Any) -> list[dict[str, Any]]:
    """Group the messages without a confident answer. `total` is the number of all messages."""
    if len({*rejected}) < 2:
        return []
    return [
        {
            **{name: row[name] for name in ("label", "words", "size")},
            "share": rounded(row["size"] / total),
            "texts": row["texts"][:CENTRAL],
        }
        for row in discover_intents(rejected, **options)["groups"]
    ]


def _check_report(report: Any) -> None:
    """Raise `ValueError` if the earlier report is incomplete, for example because it was edited."""

    def check(is_right: bool, message: str) -> None:
        if not is_right:
            raise ValueError(
                f"The earlier report {message}. Pass an unedited report from `convert-tf intent "
                "monitor`."
            )

    def is_number(value: Any) -> bool:
        is_real = isinstance(value, (int, float)) and not isinstance(value, bool)
        return is_real and 0 <= value < math.inf

    check(isinstance(report, Mapping), "is not a JSON object")
    for name in ("messages", "intents", "groups"):
        check(name in report, f"has no {name!r}")
    messages, intents, groups = report["messages"], report["intents"], report["groups"]
    check(is_number(messages) and messages > 0, f"has an invalid number 'messages': {messages!r}")
    check(isinstance(intents, Mapping), "has no object 'intents'")
    for name, count in intents.items():
        check(is_number(count) and count <= messages, f"has {count!r} messages of intent {name!r}")
    for name in _SHARES:  # None, or missing in reports of earlier versions
        count = report.get(name)
        is_count = count is None or (is_number(count) and count <= messages)
        check(is_count, f"has {count!r} messages in {name!r}")
    check(isinstance(groups, list), "has no list 'groups'")
    for number, row in enumerate(groups, 1):
        place = f"group {number}"
        check(
            isinstance(row, Mapping) and isinstance(row.get("label"), str),
            f"has no 'label' in {place}",
        )
        check(
            is_number(row.get("share")) and row["share"] <= 1,
            f"has no 'share' from 0 to 1 in {place}",
        )
        size = row.get("size", 0)
        check(is_number(size) and size <= messages, f"has {size!r} messages in {place}")
        texts = row.get("texts")
        are_texts = isinstance(texts, list) and all(isinstance(text, str) for text in texts)
        check(bool(are_texts and texts), f"has no 'texts' to compare in {place}")


def _check_comparable(since: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Raise `ValueError` unless an earlier report is complete and was made with these options."""
    _check_report(since)
    if missing := sorted(options.keys() - since.keys()):
        raise ValueError(
            f"An earlier version made this report, without {', '.join(missing)}. Make it again "
            "from the same messages, or omit --since."
        )
    for name, value in options.items():
        if since[name] != value:
            raise ValueError(
                f"The earlier report was made with {name}={since[name]}, and this one would "
                f"be made with {name}={value}, so they cannot be compared. Use the same value "
                f"of --{name} for both, or omit --since."
            )


def _may_be_of(since: Mapping[str, Any], classifier_checksum: str) -> bool:
    """Return whether an earlier report may be of this classifier, and warn if it is not certain.

    It may be if an earlier version made it, without a checksum of the classifier.
    """
    if since.get("classifier") == classifier_checksum:
        return True
    is_unknown = "classifier" not in since
    warnings.warn(
        "The earlier report does not say which classifier made it. If it was another classifier, "
        "the changes may come from the classifiers and not from the messages."
        if is_unknown
        else "The earlier report was made with another classifier, so its shares of intents, "
        "groups, unsure messages and messages far from the examples are not compared. To compare "
        "them, run intent monitor on the earlier messages with this classifier.",
        stacklevel=3,
    )
    return is_unknown


def _checksum_of(classifier: Any) -> str:
    """Return a checksum of everything that answers depend on, except the encoder.

    It stays the same if the classifier is saved and loaded, or exported to an `.onnx` file.
    """
    head, lexical, centroids = classifier.parts_
    arrays = {**head_arrays(head), "centroids": centroids}
    arrays |= {} if lexical is None else lexical_arrays(lexical)
    described = {
        "decision": dataclasses.asdict(classifier.decision),
        "mixture": classifier.mixture_._asdict(),
    }
    values = (np.asarray(arrays[name]).tobytes() for name in sorted(arrays))
    return checksum([written_json(described, default=for_json).encode(), *values])


def _example_vectors(classifier: Any, mask: bool, seed: int) -> np.ndarray | None:
    """Return unit vectors of at most 2,000 examples; None if there are fewer than two examples.

    With `mask`, examples are masked as messages are. Equal examples count once, because the nearest
    example of a repeated example would be its copy.
    """
    examples = getattr(classifier, "examples_", None)
    texts: list[str] = [] if examples is None else examples.texts
    if any(map(str.strip, texts)):
        texts = [*counted_messages(texts, mask=mask)]
    if len(texts) < 2:
        return None
    return unit_rows(classifier.encode(shuffled(texts, seed)[:COMPARED]))


def _cosines_between(examples: np.ndarray) -> np.ndarray:
    """Return the cosine of each example to the nearest other example: float `[examples]`."""
    between = examples @ examples.T
    np.fill_diagonal(between, -1)
    return between.max(axis=1)  # type: ignore[no-any-return]


def _drift(between: np.ndarray, cosines: np.ndarray, numbers: Sequence[int]) -> dict[str, float]:
    """Return the entry `drift` of a report.

    Copies of a message are not independent, so the test compares distinct messages, at most 2,000
    of them.

    Args:
      between: the cosine between each example and the nearest other example.
      cosines: the cosine between each distinct message and the nearest example, in random order.
      numbers: how often each message was sent.
    """
    from scipy.stats import mannwhitneyu

    ordered = np.sort(between)
    # An example with an equal cosine counts half.
    places = np.searchsorted(ordered, cosines), np.searchsorted(ordered, cosines, "right")
    farther = np.average(1 - np.mean(places, axis=0) / len(between), weights=numbers)
    test = mannwhitneyu(between, cosines[:COMPARED], alternative="greater")
    return {"farther": rounded(farther), "p_value": float(test.pvalue)}


def _add_earlier_shares(
    groups: Sequence[dict[str, Any]], since: Mapping[str, Any], encode: Any
) -> list[Mapping[str, Any]]:
    """Add `before` to each group: the share of the nearest earlier group, or 0 if none is close.

    The shares are not rounded.

    Returns:
      The earlier groups that no longer exist, because no present group is close to them.
    """
    earlier = since["groups"]
    cosines = np.zeros((len(groups), len(earlier)))
    if cosines.size:
        cosines = centres_of(groups, encode) @ centres_of(earlier, encode).T
    is_same = cosines >= SAME_GROUP
    for place, row in enumerate(groups):
        nearest = earlier[cosines[place].argmax()] if is_same[place].any() else {"share": 0.0}
        row["before"] = _share_of(nearest, since)
    return [earlier[place] for place in np.flatnonzero(~is_same.any(axis=0)).tolist()]


def _share_of(group: Mapping[str, Any], report: Mapping[str, Any]) -> float:
    """Return a group's share of the messages. It is exact, unlike the group's rounded `share`."""
    share = group["size"] / report["messages"] if "size" in group else group["share"]
    return float(share)


def _changes(
    report: Report, since: Mapping[str, Any], gone: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the significant changes. `gone` are the earlier groups that no longer exist."""
    numbers = np.array([since["messages"], report["messages"]])
    before, now = since["intents"], report["intents"]
    rows = [
        (name, before.get(name, 0) / numbers[0], now.get(name, 0) / numbers[1])
        for name in now | before
    ]
    groups = [(row["label"], row["before"], _share_of(row, report)) for row in report["groups"]]
    groups += [(row["label"], _share_of(row, since), 0.0) for row in gone]
    num_tests = len(rows) + len(groups)
    changes = _tested(rows, numbers, _SIGNIFICANCE, num_tests)
    changes += _tested(groups, numbers, _SIGNIFICANCE, num_tests, error_factor=_GROUP_ERROR)
    changes.sort(key=lambda row: -abs(row["now"] - row["before"]))
    shares = []
    for key, name in _SHARES.items():
        if since.get(key) is not None and report[key] is not None:
            shares.append((name, *([since[key], report[key]] / numbers).tolist()))
        elif report[key] is not None:
            warnings.warn(
                f"The earlier report has no number {key!r}, so this share is not compared: {name}. "
                "To compare it, make the earlier report again.",
                stacklevel=3,
            )
    return _tested(shares, numbers, _ALARM, len(shares)) + changes


def _tested(
    rows: Sequence[tuple[str, float, float]],
    numbers: np.ndarray,
    significance: float,
    num_tests: int,
    *,
    error_factor: float = 1.0,
) -> list[dict[str, Any]]:
    """Return the rows whose two shares differ significantly in a test of two proportions.

    Args:
      rows: tuples of a name, the earlier share and the present share.
      numbers: the numbers of messages in the earlier and the present period, `[2]`.
      significance: maximum p-value after Bonferroni correction.
      num_tests: number of tests, for the correction.
      error_factor: factor for the standard errors, which are first computed for random draws.
    """
    changes = []
    for name, before, now in rows:
        pooled = np.average([before, now], weights=numbers)
        error = error_factor * np.sqrt(pooled * (1 - pooled) * (1 / numbers).sum())
        p_value = num_tests * math.erfc(abs(now - before) / max(error, 1e-12) / math.sqrt(2))
        if p_value < significance:
            shares = {"before": rounded(before), "now": rounded(now)}
            changes.append({"name": name, **shares, "p_value": p_value})
    return changes


def monitoring_text(report: Report, *, shown: int = 10) -> str:
    """Format the result of `monitor_messages` for a terminal."""
    total, drift = report["messages"], report["drift"]
    far = "" if report["far"] is None else f", {report['far'] / total:.1%} far from the examples"
    lines = [f"{total:,} messages, {report['unsure'] / total:.1%} not answered surely{far}"]
    if drift is not None:
        has_drifted = drift["farther"] > 0.5 and drift["p_value"] < _SIGNIFICANCE
        verdict = ": the messages have drifted" if has_drifted else ""
        lines.append(
            f"{drift['farther']:.0%} farther from the examples than examples are from one another, "
            f"p = {drift['p_value']:.2g}{verdict}"
        )
    lines.append("\nintents:")
    ordered = sorted(report["intents"].items(), key=lambda item: -item[1])
    lines += [f"  {count / total:6.1%}  {intent}" for intent, count in ordered[:shown]]
    lines += rest_text(ordered, shown)
    lines.append("\ngroups that no intent answers:")
    for row in report["groups"][:shown]:
        before = f", before {row['before']:.1%}" if "before" in row else ""
        lines.append(f"  {row['share']:6.1%}{before}  {', '.join(row['words'])}")
        lines.append(f"          {shortened(row['texts'][0], MAX_TEXT)}")
    lines += rest_text(report["groups"], shown)
    if "changes" in report:
        lines.append("\nclear changes:")
        lines += [
            f"  {row['before']:6.1%} → {row['now']:.1%}  {row['name']}"
            for row in report["changes"][:shown]
        ] or ["  none"]
    return "\n".join(lines)
