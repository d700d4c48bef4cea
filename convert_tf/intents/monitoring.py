"""Report the messages of a period, and what has changed."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from convert_tf.intents.discovery import CENTRAL, MIN_CONFIDENCE, MIN_SIZE, discover_intents
from convert_tf.intents.messages import batches, counted_messages, shuffled, unsure
from convert_tf.numerics.vectors import unit_rows
from convert_tf.storage.messages import shortened

SIGNIFICANCE = 0.01
SAME_GROUP = 0.8  # cosine of the centres of a group and of an earlier one
_COMPARED = 2_000  # messages and examples whose distances are compared
_MAX_TEXT = 90  # characters
_DIGITS = 4

Monitoring = dict[str, Any]


def monitor_messages(
    texts: Iterable[str],
    classifier: Any,
    *,
    since: Mapping[str, Any] | None = None,
    min_size: int = MIN_SIZE,
    min_confidence: float = MIN_CONFIDENCE,
    masks: bool = False,
    seed: int = 0,
) -> Monitoring:
    """Count the intents of messages, and compare the messages with the training data.

    Args:
      texts: messages of a period, for example of a week.
      classifier: an `IntentClassifier` or an `IntentFile`.
      since: the result for an earlier period.
      min_size, min_confidence, masks: as in `discover_intents`.
      seed: of samples.

    Returns:
      `messages`, how many there are; `unsure`, how many no intent answers surely; `intents`, how
      many have which intent; `drift`, None without examples, else `farther`, how often a message is
      farther from the nearest example than an example is from the nearest other one, and `p_value`
      of the Mann-Whitney test that this is no more than chance; `groups` of unsure messages, each
      with `label`, `words`, `size`, `share` and five `texts`. With `since`, groups also have
      `before`, the share of the same group, or 0; and `changes` has the intents and groups whose
      share changed, by a test of two proportions at 1 % after Bonferroni's correction, the largest
      change first, each with `name`, `before`, `now` and `p_value`.

    Raises:
      ValueError: there is no message.
    """
    counts = counted_messages(texts, masks=masks)
    messages = shuffled([*counts], seed)
    intents = {str(label): 0 for label in classifier.classes_}
    kept: list[str] = []
    for chosen in batches(messages):
        is_unsure = unsure(classifier, chosen, min_confidence)
        for text, intent, has_none in zip(
            chosen, classifier.predict(chosen), is_unsure, strict=True
        ):
            intents[str(intent)] = intents.get(str(intent), 0) + counts[text]
            kept += [text] * (counts[text] if has_none else 0)
    total = counts.total()
    found: Monitoring = {
        "messages": total,
        "unsure": len(kept),
        "intents": intents,
        "drift": _drift(messages, classifier, seed),
        "groups": _groups(kept, classifier, total, min_size, min_confidence, seed),
    }
    if since is not None:
        _add_earlier_shares(found["groups"], since["groups"], classifier.encode)
        found["changes"] = _changes(found, since)
    return found


def _drift(messages: Sequence[str], classifier: Any, seed: int) -> dict[str, float] | None:
    """Compare the cosines of messages and of examples to the nearest other example."""
    from scipy.stats import mannwhitneyu

    examples = getattr(classifier, "examples_", None)
    if examples is None or len(examples.texts) < 2:
        return None
    references = unit_rows(classifier.encode(shuffled(examples.texts, seed)[:_COMPARED]))
    own = references @ references.T
    np.fill_diagonal(own, -1)
    cosines = (unit_rows(classifier.encode(messages[:_COMPARED])) @ references.T).max(axis=1)
    test = mannwhitneyu(own.max(axis=1), cosines, alternative="greater")
    farther = float(test.statistic) / (len(own) * len(cosines))
    return {"farther": round(farther, _DIGITS), "p_value": float(test.pvalue)}


def _groups(
    texts: Sequence[str],
    classifier: Any,
    total: int,
    min_size: int,
    min_confidence: float,
    seed: int,
) -> list[dict[str, Any]]:
    if len({*texts}) < 2:
        return []
    found = discover_intents(
        texts, classifier=classifier, min_size=min_size, min_confidence=min_confidence, seed=seed
    )
    names = ("label", "words", "size")
    return [
        {
            **{name: row[name] for name in names},
            "share": round(row["size"] / total, _DIGITS),
            "texts": row["texts"][:CENTRAL],
        }
        for row in found["groups"]
    ]


def _add_earlier_shares(
    groups: Sequence[dict[str, Any]], earlier: Sequence[Mapping[str, Any]], encode: Any
) -> None:
    """Add the share of the nearest earlier group, if it is near enough to be the same."""

    def centres(rows: Sequence[Mapping[str, Any]]) -> np.ndarray:
        return unit_rows(np.stack([encode(row["texts"]).mean(axis=0) for row in rows]))

    cosines = centres(groups) @ centres(earlier).T if groups and earlier else None
    for place, row in enumerate(groups):
        row["before"] = 0.0
        if cosines is not None and cosines[place].max() >= SAME_GROUP:
            row["before"] = earlier[int(cosines[place].argmax())]["share"]


def _changes(found: Monitoring, since: Mapping[str, Any]) -> list[dict[str, Any]]:
    from scipy.stats import norm

    numbers = np.array([since["messages"], found["messages"]])
    rows = [
        (name, since["intents"].get(name, 0) / numbers[0], count / numbers[1])
        for name, count in found["intents"].items()
    ]
    rows += [(row["label"], row["before"], row["share"]) for row in found["groups"]]
    changes = []
    for name, before, now in rows:
        pooled = (before * numbers[0] + now * numbers[1]) / numbers.sum()
        error = np.sqrt(pooled * (1 - pooled) * (1 / numbers).sum())
        p_value = float(2 * norm.sf(abs(now - before) / max(error, 1e-12))) * len(rows)
        if p_value < SIGNIFICANCE:
            shares = {"before": round(before, _DIGITS), "now": round(now, _DIGITS)}
            changes.append({"name": name, **shares, "p_value": p_value})
    return sorted(changes, key=lambda row: -abs(row["now"] - row["before"]))


def monitoring_text(found: Monitoring, *, shown: int = 10) -> str:
    """Return the result for a terminal."""
    total = found["messages"]
    lines = [f"{total:,} messages, {found['unsure'] / total:.1%} not answered surely"]
    drift = found["drift"]
    if drift is not None:
        is_clear = drift["p_value"] < SIGNIFICANCE
        lines.append(
            f"{drift['farther']:.0%} farther from the examples than examples from one another, "
            f"p = {drift['p_value']:.2g}" + (": the messages have drifted" if is_clear else "")
        )
    lines.append("\nintents:")
    ordered = sorted(found["intents"].items(), key=lambda item: -item[1])
    lines += [f"  {count / total:6.1%}  {intent}" for intent, count in ordered[:shown]]
    lines.append("\ngroups that no intent answers:")
    for row in found["groups"][:shown]:
        before = f", before {row['before']:.1%}" if "before" in row else ""
        lines.append(f"  {row['share']:6.1%}{before}  {', '.join(row['words'])}")
        lines.append(f"          {shortened(row['texts'][0], _MAX_TEXT)}")
    if "changes" in found:
        lines.append("\nclear changes:")
        lines += [
            f"  {row['before']:6.1%} → {row['now']:.1%}  {row['name']}"
            for row in found["changes"][:shown]
        ] or ["  none"]
    return "\n".join(lines)
