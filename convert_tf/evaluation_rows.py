"""The rankers that an evaluation compares: checkpoints, modules and baselines, from their names."""

import itertools
import os
from collections.abc import Sequence
from typing import Any

from convert_tf.baselines import Bm25Ranker, LexicalRanker, TfIdfRanker
from convert_tf.data.candidates import joined_context, last_turn, read_candidates
from convert_tf.text_encoders import (
    PRECISIONS,
    CheckpointEncoder,
    ModuleEncoder,
    TextEncoder,
    encoder_ranker,
)
from convert_tf.text_ranker import EncodingRanker, TextRanker, Turns
from convert_tf.vector_baselines import MapRanker, SimRanker, fit_mapping

LEXICAL: dict[str, type[Bm25Ranker] | type[TfIdfRanker]] = {
    "tfidf": TfIdfRanker,
    "bm25": Bm25Ranker,
}
VECTOR = ("sim", "map")
BASELINES = (*LEXICAL, *VECTOR)
HISTORY = ("own", "joined", "none")
MODULE_FILE = "saved_model.pb"

Pairs = tuple[list[Turns], list[str]]


def visible_turns(turns: Turns, history: str) -> Turns:
    """The turns that whoever ranks is given."""
    return turns[-1:] if history == "none" else turns


def read_training_pairs(data: str, max_examples: int, *, history: str = "own") -> Pairs:
    """Contexts and right responses that baselines are fitted on.

    Args:
      data: folder of records, whose train split is read, or a file of given candidates.
      max_examples: read at most this many, from the first on.
      history: one of `HISTORY`.

    Raises:
      ValueError: there are none.
    """
    found: list[tuple[Turns, str]] = []
    if os.path.isdir(data):
        from convert_tf.data.turns import read_turns

        for record in read_turns(data, "train", max_examples=max_examples):
            found.append((record.turns, record.response))
    else:
        for example in itertools.islice(read_candidates(data), max_examples):
            found.append((example.turns, example.candidates[example.labels[0]]))
    turns, responses = zip(*found, strict=True)
    return [visible_turns(own, history) for own in turns], list(responses)


def checkpoint_ranker(folder: str, *, precision: str, joins_turns: bool) -> TextRanker:
    """A row of a trained dual encoder, or of a ranker, which reads all turns joined.

    Args:
      folder: a model directory.
      precision: policy of its computations.
      joins_turns: whether a single-context dual encoder reads all turns, joined.
    """
    from convert_tf.ranker_checkpoint import is_ranker

    if is_ranker(folder):
        from convert_tf.ranker_texts import RankerTexts

        texts: Any = RankerTexts(folder, name=folder, dtype=precision)
        texts.settings = {"checkpoint": folder, "precision": precision}
        return texts
    encoder = CheckpointEncoder(folder, precision=precision, keeps_newest=joins_turns)
    ranker = encoder_ranker(folder, encoder, joins_turns=joins_turns)
    ranker.settings = {"checkpoint": folder, "precision": precision}
    return ranker


def module_ranker(folder: str, *, joins_turns: bool) -> TextRanker:
    """A row of an exported module; see `checkpoint_ranker`."""
    from convert_tf.module_ranker import ModuleRanker, is_ranker_module

    if is_ranker_module(folder):
        return ModuleRanker(folder)
    ranker = encoder_ranker(folder, ModuleEncoder(folder), joins_turns=joins_turns)
    ranker.settings = {"module": folder}
    return ranker


def vector_encoder(folder: str, *, signature: str | None, joins_turns: bool) -> TextEncoder:
    """The vectors of SIM and MAP: of a module, or of a checkpoint in float32.

    Args:
      folder: a module or a model directory.
      signature: of a module, for contexts and responses alike.
      joins_turns: whether contexts are all turns, joined.

    Raises:
      ValueError: it is neither, or a signature was given for a checkpoint.
    """
    if os.path.exists(os.path.join(folder, MODULE_FILE)):
        return ModuleEncoder(folder, signature=signature)
    if signature is not None:
        raise ValueError(
            f"Modules have signatures, checkpoints have none. Received: {signature!r} for "
            f"{folder!r}. Leave --vector_signature out, or name modules."
        )
    return CheckpointEncoder(folder, keeps_newest=joins_turns)


def lexical_rankers(
    names: Sequence[str], pairs: Pairs, *, joins_turns: bool
) -> list[LexicalRanker]:
    """Rows of `tfidf` and `bm25`, fitted on training pairs."""
    read = joined_context if joins_turns else last_turn
    contexts, responses = pairs
    return [
        LEXICAL[name](map(read, contexts), responses, read_context=read)
        for name in names
        if name in LEXICAL
    ]


def vector_rankers(
    names: Sequence[str],
    vectors: str,
    encoder: TextEncoder,
    pairs: Pairs | None,
    *,
    joins_turns: bool = False,
    settings: dict[str, Any] | None = None,
) -> list[EncodingRanker]:
    """Rows of `sim` and `map` over one encoder's vectors.

    Args:
      names: which of them.
      vectors: the encoder's name, for those of the rows.
      encoder: what encodes.
      pairs: what MAP learns from.
      joins_turns: whether an encoder of one text gets all turns, joined.
      settings: what the rows say of the vectors.
    """
    plain = encoder_ranker(vectors, encoder, joins_turns=joins_turns)
    rankers: list[EncodingRanker] = []
    if "sim" in names:
        rankers.append(SimRanker(f"SIM {vectors}", plain.encode_contexts, plain.encode_candidates))
    if "map" in names:
        assert pairs is not None
        contexts, responses = pairs
        mapping = fit_mapping(plain.encode_contexts(contexts), plain.encode_candidates(responses))
        rankers.append(
            MapRanker(
                f"MAP {vectors}", plain.encode_contexts, plain.encode_candidates, mapping=mapping
            )
        )
    for ranker in rankers:
        ranker.settings = {**(settings or {}), **ranker.settings}
    return rankers


def model_rankers(
    checkpoints: Sequence[str],
    modules: Sequence[str],
    *,
    precision: str = "float32",
    joins_turns: bool = False,
) -> list[TextRanker]:
    """Rows of models.

    Args:
      checkpoints: model directories.
      modules: exported modules.
      precision: policy of the checkpoints' computations.
      joins_turns: whether a single-context model reads all turns, joined.

    Raises:
      ValueError: a precision that is none, or that nothing has; a damaged folder.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision is one of {', '.join(PRECISIONS)}. Received: {precision!r}.")
    if precision != "float32" and not checkpoints:
        raise ValueError(
            f"A module computes in its own precision. Received: --precision={precision} without "
            "--checkpoint. Leave it out, or pass --checkpoint."
        )
    return [
        *(
            checkpoint_ranker(folder, precision=precision, joins_turns=joins_turns)
            for folder in checkpoints
        ),
        *(module_ranker(folder, joins_turns=joins_turns) for folder in modules),
    ]


def baseline_rankers(
    names: Sequence[str],
    vectors: Sequence[str],
    *,
    train_data: str | None,
    train_examples: int,
    signature: str | None,
    history: str = "own",
) -> list[TextRanker]:
    """Rows of baselines, fitted.

    Args:
      names: some of `BASELINES`.
      vectors: modules or model directories, for `sim` and `map`.
      train_data: see `read_training_pairs`; None where nothing is fitted.
      train_examples: how many of them, at most.
      signature: see `vector_encoder`.
      history: one of `HISTORY`.

    Raises:
      ValueError: an unknown name, a baseline without what it needs, or vectors without a baseline.
    """
    joins_turns = history == "joined"
    if unknown := [name for name in names if name not in BASELINES]:
        raise ValueError(
            f"Baselines are {', '.join(BASELINES)}. Received: {', '.join(unknown)}. "
            "Pass some of those."
        )
    if any(name in VECTOR for name in names) != bool(vectors):
        raise ValueError(
            "sim and map compare the vectors of an encoder. Received: "
            f"baselines {', '.join(names) or 'none'} with vectors {', '.join(vectors) or 'none'}. "
            "Pass --baselines sim,map together with --vectors."
        )
    pairs = None
    if {*names} - {"sim"}:
        if train_data is None:
            raise ValueError(
                "tfidf, bm25 and map are fitted on training examples. Received: none. "
                "Pass --train_data."
            )
        pairs = read_training_pairs(train_data, train_examples, history=history)
    settings = {"train_data": train_data, "train_examples": len(pairs[0]) if pairs else 0}
    rankers: list[TextRanker] = []
    for ranker in lexical_rankers(names, pairs, joins_turns=joins_turns) if pairs else []:
        ranker.settings |= settings
        rankers.append(ranker)
    for folder in vectors:
        encoder = vector_encoder(folder, signature=signature, joins_turns=joins_turns)
        own = {"vectors": folder, "signature": signature}
        for row in vector_rankers(
            names, folder, encoder, pairs, joins_turns=joins_turns, settings=own
        ):
            if isinstance(row, MapRanker):
                row.settings |= settings
            rankers.append(row)
    return rankers
