"""Find overlapping intents, likely labelling errors and duplicates in labelled texts."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from convert_tf.intents.data import LabelledTexts, distinct_examples
from convert_tf.intents.encodings import IntentEncodings
from convert_tf.intents.examples import (
    check_at_least_two,
    check_equally_many,
    checked_texts,
    listed_labels,
    plain,
)
from convert_tf.intents.multi import split_labels, truth_of
from convert_tf.intents.predictor import rounded
from convert_tf.numerics.vectors import unit_rows
from convert_tf.storage.messages import shortened

_NEAREST = 3  # nearness to an intent: the mean cosine to this number of its nearest examples
_DUPLICATE_COSINE = 0.95
_ROWS_AT_ONCE = 2048
_MAX_LISTED = 200
_EXAMPLES = 3
_MAX_TEXT = 70  # maximum number of characters of a text in a printed line

Inspection = dict[str, Any]


def inspect_examples(
    encodings: IntentEncodings, data: LabelledTexts, *, label_separator: str | None = None
) -> Inspection:
    """Look for overlapping intents, mislabelled examples, and duplicates across intents.

    An example's nearness to an intent is its mean cosine to the three nearest other examples of
    this intent. An example is a suspect if another intent is nearer than its own. Texts with the
    same label that differ only in case, white space or invisible characters count as one example.

    Args:
      encodings: the object that encodes the texts, with one encoder or several.
      data: labelled texts of at least two intents.
      label_separator: the separator between labels, if texts may have several intents. Such a text
        is an example of each of its intents. None if each text has one intent.

    Returns:
      A dict with
      - `examples`: the number of distinct examples;
      - `intents`: a dict for each intent with the number of its `examples` and `own`, the share of
        them that are nearest to this intent (None for a single example), the smallest share first;
      - `overlaps`: a dict for each pair of `intents` with `examples`, `texts` and `share`, the
        share of the pair's examples that are nearer to the other intent, the largest share first;
      - `suspects`: a dict for each suspect with its `number` (the position of its first copy in
        `data`, starting at 0), `text`, `label`, `nearest` (the nearest intent) and `margin`, the
        largest margin first;
      - `duplicates`: pairs of texts with different labels and a cosine of at least 0.95, each a
        dict with `texts`, `labels` and `cosine`;
      - `num_suspects`, `num_duplicates`: the total numbers. Only the first 200 suspects and the
        first 200 duplicates are returned.

    Raises:
      ValueError: if there are fewer than two intents, a text is empty, or the numbers of texts and
        labels differ.
    """
    data = LabelledTexts(checked_texts(data.texts), listed_labels(data.labels))
    check_equally_many(*data)
    sets: list[tuple[str, ...]] = [(str(plain(label)),) for label in data.labels]
    if label_separator is not None:
        # The order of the labels has no meaning.
        sets = [tuple(sorted({*labels})) for labels in split_labels(data.labels, label_separator)]
    # A copy of a mislabelled example would otherwise be the nearest example of the wrong intent.
    first, _ = distinct_examples(data.texts, sets)
    numbers = first.tolist()
    data = LabelledTexts(*([part[i] for i in numbers] for part in data))
    sets = [sets[i] for i in numbers]
    names = sorted({label for labels in sets for label in labels})
    check_at_least_two(names)
    truth = truth_of(sets, np.array(names))
    places, labels = np.nonzero(truth)  # an example is a text and one of its intents
    texts = [data.texts[place] for place in places]
    # The concatenated vectors of several encoders do not have length 1.
    nearness, near_pairs = compared_examples(unit_rows(encodings(data.texts)), truth)
    to_own = nearness[places, labels]
    others = np.where(truth, -np.inf, nearness)[places]
    nearest, margins = others.argmax(axis=1), others.max(axis=1) - to_own
    is_suspect = np.isfinite(to_own) & (margins > 0)
    suspects = [int(i) for i in np.argsort(-margins, kind="stable") if is_suspect[i]]
    pairs = sorted(near_pairs, key=lambda pair: -pair[2])
    return {
        "examples": len(data.texts),
        "intents": _intents(names, labels, to_own, is_suspect),
        "overlaps": _overlaps(names, labels, nearest, suspects, texts),
        "suspects": [
            {
                "number": numbers[places[i]],
                "text": texts[i],
                "label": names[labels[i]],
                "nearest": names[nearest[i]],
                "margin": rounded(margins[i]),
            }
            for i in suspects[:_MAX_LISTED]
        ],
        "num_suspects": len(suspects),
        "duplicates": [
            {
                "texts": [data.texts[place] for place in pair],
                "labels": [" + ".join(sets[place]) for place in pair],
                "cosine": rounded(cosine),
            }
            for *pair, cosine in pairs[:_MAX_LISTED]
        ],
        "num_duplicates": len(pairs),
    }


def compared_examples(
    vectors: np.ndarray, truth: np.ndarray
) -> tuple[np.ndarray, list[tuple[int, int, float]]]:
    """Compare each example with all others.

    Args:
      vectors: float `[n, dim]`, encodings of the examples, normalised to length 1.
      truth: bool `[n, intents]`, the intents of each example.

    Returns:
      A tuple of two values. The first is the nearness of each example to each intent, float32
      `[n, intents]`. An example is not compared with itself, and the nearness to an intent without
      other examples is minus infinity. The second is a list of pairs of close texts with different
      intents, as tuples of two indices and the cosine.
    """
    nearness = np.full(truth.shape, -np.inf, np.float32)
    pairs = []
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        cosines = vectors[start : start + _ROWS_AT_ONCE] @ vectors.T
        for row, second in zip(*np.nonzero(cosines >= _DUPLICATE_COSINE), strict=True):
            first = start + int(row)
            if first < second and (truth[first] != truth[second]).any():
                pairs.append((first, int(second), float(cosines[row, second])))
        np.fill_diagonal(cosines[:, start:], np.nan)  # an example is not compared with itself
        for of_intent, has_intent in zip(nearness[start:].T, truth.T, strict=True):
            highest = -np.sort(-cosines[:, has_intent], axis=1)[:, :_NEAREST]  # NaN comes last
            has_other = ~np.isnan(highest[:, 0])
            of_intent[: len(cosines)][has_other] = np.nanmean(highest[has_other], axis=1)
    return nearness, pairs


def _intents(
    names: Sequence[str], labels: np.ndarray, nearness: np.ndarray, is_suspect: np.ndarray
) -> list[dict[str, Any]]:
    rows = []
    for intent, name in enumerate(names):
        members = labels == intent
        is_alone = not np.isfinite(nearness[members]).any()
        share = None if is_alone else rounded(1 - is_suspect[members].mean())
        rows.append({"intent": name, "examples": int(members.sum()), "own": share})
    return sorted(rows, key=lambda row: (row["own"] is None, row["own"]))


def _overlaps(
    names: Sequence[str],
    labels: np.ndarray,
    nearest: np.ndarray,
    suspects: Sequence[int],
    texts: Sequence[str],
) -> list[dict[str, Any]]:
    pairs: dict[tuple[int, ...], list[int]] = {}
    for i in suspects:
        pairs.setdefault(tuple(sorted((int(labels[i]), int(nearest[i])))), []).append(i)
    sizes = np.bincount(labels, minlength=len(names))
    rows = [
        {
            "intents": [names[first], names[second]],
            "examples": len(places),
            "share": rounded(len(places) / int(sizes[first] + sizes[second])),
            "texts": [texts[i] for i in places[:_EXAMPLES]],
        }
        for (first, second), places in pairs.items()
    ]
    return sorted(rows, key=lambda row: -row["share"])


def inspection_text(report: Inspection, *, shown: int = 10) -> str:
    """Format the first findings of each kind for a terminal."""
    lines = [f"{report['examples']:,} examples of {len(report['intents'])} intents"]
    lines.append(f"\nintents that overlap ({len(report['overlaps'])} pairs):")
    for row in report["overlaps"][:shown]:
        first, second = row["intents"]
        lines.append(f"  {100 * row['share']:5.1f} %  {first} / {second}")
        lines += [f"           {shortened(text, _MAX_TEXT)}" for text in row["texts"]]
    lines.append(f"\nexamples that look mislabelled ({report['num_suspects']}):")
    for row in report["suspects"][:shown]:
        names = f"{row['label']} → {row['nearest']}"
        lines.append(f"  {row['margin']:5.2f}  {names}: {shortened(row['text'], _MAX_TEXT)}")
    lines.append(f"\nnear duplicates across intents ({report['num_duplicates']}):")
    for row in report["duplicates"][:shown]:
        for label, text in zip(row["labels"], row["texts"], strict=True):
            lines.append(f"  {row['cosine']:5.2f}  {label}: {shortened(text, _MAX_TEXT)}")
    return "\n".join(lines)
