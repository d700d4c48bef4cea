"""Make the rankers of an evaluation, models and baselines, from their names."""

import itertools
import os
from collections.abc import Sequence
from typing import Any

from convert_tf.data.candidates import joined_context, last_turn, read_candidates
from convert_tf.encoding.sentence_encoder import SentenceEncoder
from convert_tf.ranking.encoders import KINDS, EncoderRanker, open_encoder
from convert_tf.ranking.lexical import Bm25Ranker, TfIdfRanker
from convert_tf.ranking.protocol import TextRanker, Turns
from convert_tf.ranking.vectors import MapRanker, SimRanker, fit_mapping

LEXICAL = {"tfidf": TfIdfRanker, "bm25": Bm25Ranker}
# Variants of MAP: the score, and the name of the row.
MAPS = {"map": ("cosine", "MAP"), "map_dot": ("dot", "MAP by dot product,")}
VECTOR = ("sim", *MAPS)
BASELINES = (*LEXICAL, *VECTOR)
HISTORY = ("own", "joined", "none")

Pairs = tuple[list[Turns], list[str]]


def visible_turns(turns: Turns, history: str) -> Turns:
    """Return the turns of a context that rankers may read."""
    return turns[-1:] if history == "none" else turns


def read_training_pairs(data: str, max_examples: int, *, history: str = "own") -> Pairs:
    """Read contexts and right responses to fit baselines on.

    Args:
      data: folder of records, whose train split is read, or file of candidates.
      max_examples: largest number of examples.
      history: one of `HISTORY`.

    Raises:
      ValueError: if there are no examples.
    """
    found: list[tuple[Turns, str]] = []
    if os.path.isdir(data):
        from convert_tf.data.records import read_turns

        for record in read_turns(data, "train", max_examples=max_examples):
            found.append((record.turns, record.response))
    else:
        for example in itertools.islice(read_candidates(data), max_examples):
            found.append((example.turns, example.candidates[example.labels[0]]))
    turns, responses = zip(*found, strict=True)
    return [visible_turns(own, history) for own in turns], list(responses)


def vector_rankers(
    names: Sequence[str],
    vectors: str,
    encoder: SentenceEncoder,
    pairs: Pairs | None,
    *,
    settings: dict[str, Any],
    **options: Any,
) -> list[EncoderRanker]:
    """Make the baselines `sim` and `map` with the vectors of one encoder.

    Args:
      names: names of baselines; others are ignored.
      vectors: name of the encoder in the rows.
      encoder: the encoder.
      pairs: training pairs for MAP.
      settings: facts about the encoder for the rows.
      **options: options of `EncoderRanker`.
    """
    rankers: list[EncoderRanker] = []
    if "sim" in names:
        rankers.append(SimRanker(encoder, f"SIM {vectors}", **options))
    if wanted := [MAPS[name] for name in MAPS if name in names]:
        assert pairs is not None
        contexts, responses = pairs
        plain = EncoderRanker(encoder, **options)
        encoded = plain.encode_contexts(contexts), plain.encode_candidates(responses)
        for score, called in wanted:
            mapping = fit_mapping(*encoded, score=score)
            rankers.append(MapRanker(encoder, f"{called} {vectors}", mapping=mapping, **options))
    for ranker in rankers:
        ranker.settings |= settings
    return rankers


def check_baselines(
    names: Sequence[str], vectors: Sequence[str], *, train_data: str | None
) -> None:
    """Check the names of baselines and what they need. Arguments are those of `baseline_rankers`.

    Raises:
      ValueError: if a name is unknown, a baseline lacks what it needs, or no baseline uses
        `vectors`.
    """
    if unknown := [name for name in names if name not in BASELINES]:
        raise ValueError(
            f"Unknown baselines: {', '.join(unknown)}. Choose from {', '.join(BASELINES)}."
        )
    if any(name in VECTOR for name in names) != bool(vectors):
        raise ValueError(
            "--vectors and the baselines that use them (sim, map, map_dot) go together. Received: "
            f"baselines {', '.join(names) or 'none'}, vectors {', '.join(vectors) or 'none'}."
        )
    if {*names} - {"sim"} and train_data is None:
        raise ValueError("tfidf, bm25 and map need training examples. Pass --train_data.")


def baseline_rankers(
    names: Sequence[str],
    vectors: Sequence[str],
    *,
    train_data: str | None,
    train_examples: int,
    signature: str | None,
    history: str,
) -> list[TextRanker]:
    """Fit baselines, whose names and needs `check_baselines` has checked.

    Args:
      names: names from `BASELINES`.
      vectors: encoders for `sim` and `map`.
      train_data: data to fit on (`read_training_pairs`); None if no baseline is fitted.
      train_examples: largest number of examples of `train_data`.
      signature: signature of `vectors` for both contexts and responses; None for one of each.
      history: one of `HISTORY`.
    """
    joins_turns = history == "joined"
    read = joined_context if joins_turns else last_turn
    pairs, settings = None, {}
    if train_data is not None and {*names} - {"sim"}:
        pairs = read_training_pairs(train_data, train_examples, history=history)
        settings = {"train_data": train_data, "train_examples": len(pairs[0])}
    rankers: list[TextRanker] = []
    for name in names:
        if pairs and name in LEXICAL:
            contexts, responses = pairs
            ranker = LEXICAL[name](map(read, contexts), responses, read_context=read)
            ranker.settings |= settings
            rankers.append(ranker)
    for folder in vectors:
        rankers += vector_rankers(
            names,
            folder,
            open_encoder(folder, keeps_newest=joins_turns),
            pairs,
            settings={"vectors": folder, "signature": signature, **settings},
            kinds=KINDS if signature is None else (signature, signature),
            joins_turns=joins_turns,
        )
    return rankers
