"""Loading of rankers, and rankers that start from another trained model."""

import dataclasses
import os
from pathlib import Path
from typing import Any

from convert_tf.checkpoints import folder as checkpoint
from convert_tf.checkpoints.bert import load_bert
from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.checkpoints.vocabulary import checked_vocabulary
from convert_tf.config.ranker import HeadConfig, RankerConfig
from convert_tf.models.losses import annealed_scale
from convert_tf.models.ranker import ConvertTrunk, RankerModel, make_ranker


def load_ranker_config(folder: str | os.PathLike) -> RankerConfig:
    """Return the configuration of a ranker.

    Raises:
      CheckpointError: if the folder is not the run of a ranker.
    """
    return checkpoint.read_config(folder, RankerConfig.from_json, Kind.RANKER)


def load_ranker(folder: str | os.PathLike, *, dtype: str = "float32") -> tuple[RankerModel, Path]:
    """Load a trained ranker.

    Args:
      folder: the run of a ranker.
      dtype: precision policy of its computations.

    Returns:
      The ranker and the path of its vocabulary.

    Raises:
      CheckpointError: if the folder is incomplete or damaged, or has another vocabulary.
    """
    config = load_ranker_config(folder)
    vocabulary = checked_vocabulary(folder, config)
    ranker = make_ranker(config, dtype=dtype)
    checkpoint.load_weights(ranker, folder)
    return ranker, vocabulary


def trained_scale(folder: str | os.PathLike) -> float:
    """Return the factor of the cosines with which a dual encoder's best weights were trained.

    If it was not recorded, this is √encoding_dim, the paper's final factor.
    """
    facts = checkpoint.training_facts(folder)
    encoding_dim = checkpoint.load_config(folder).encoding_dim
    train: dict[str, Any] = facts.get("train") or {}
    end = train.get("scale_end") or encoding_dim**0.5
    step = (facts.get("evaluation") or {}).get("step")
    if step is None:
        return float(end)
    scale = annealed_scale(
        step,
        start=train.get("scale_start", 1.0),
        end=end,
        anneal_steps=train.get("scale_anneal_steps", 0),
    )
    return float(scale)


def initial_ranker(
    folder: str | os.PathLike, head: HeadConfig, **options: Any
) -> tuple[RankerModel, Path]:
    """Return a ranker that starts from a trained model.

    Args:
      folder: run or module of a dual encoder, run of a ranker, or BERT-like trunk. From a ranker,
        the weights of the head are copied too if they have the same shapes.
      head: configuration of the new head. A scale of 0 is replaced by that of the trained model.
      **options: see `make_ranker`.

    Returns:
      The ranker and the path of its vocabulary.

    Raises:
      CheckpointError: if the folder is incomplete or damaged.
    """
    kind = kind_of(folder)
    if kind is Kind.RANKER:
        source, vocabulary = load_ranker(folder)
        scale = head.scale or source.config.head.scale
        config = RankerConfig(source.config.model, _with_scale(head, scale), source.config.trunk)
        ranker = make_ranker(config, **options)
        _copy_weights(source.trunk, ranker.trunk)
        if ranker.candidate_trunk is not None:
            _copy_weights(source.candidate_trunk or source.trunk, ranker.candidate_trunk)
        _copy_weights(source.head, ranker.head)
        return ranker, vocabulary
    if kind in (Kind.BERT, Kind.HUGGING_FACE):
        bert, vocabulary = load_bert(folder)
        config = RankerConfig(bert.config, _with_scale(head, head.scale or 1.0), "bert")
        ranker = make_ranker(config, **options)
        for trunk in filter(None, (ranker.trunk, ranker.candidate_trunk)):
            _copy_weights(bert, trunk)
        return ranker, vocabulary
    encoder, vocabulary = checkpoint.load_checkpoint(folder)
    config = RankerConfig(encoder.config, _with_scale(head, head.scale or trained_scale(folder)))
    ranker = make_ranker(config, **options)
    for target in (ranker.trunk, ranker.candidate_trunk):
        if isinstance(target, ConvertTrunk):
            _copy_weights(encoder, target.encoder)
    return ranker, vocabulary


def _with_scale(head: HeadConfig, scale: float) -> HeadConfig:
    return dataclasses.replace(head, scale=float(scale))


def _copy_weights(source: Any, target: Any) -> None:
    """Copy variables with the same path, shape and dtype."""
    sources = {v.path: v for v in source.variables}
    for variable in target.variables:
        value = sources.get(variable.path)
        if value is not None and value.shape == variable.shape and value.dtype == variable.dtype:
            variable.assign(value)
