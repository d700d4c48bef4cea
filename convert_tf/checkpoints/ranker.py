"""The model directory of a ranker: as a dual encoder's, with the head in `config.json`, too."""

import dataclasses
import os
from pathlib import Path
from typing import Any

from convert_tf.checkpoints import folder as checkpoint
from convert_tf.checkpoints.bert import load_bert
from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.checkpoints.vocabulary import checked_vocabulary
from convert_tf.config.head import HeadConfig
from convert_tf.config.ranker import RankerConfig
from convert_tf.models.joint_trunk import ConvertTrunk
from convert_tf.models.losses import annealed_scale
from convert_tf.models.ranker import RankerModel, make_ranker


def load_ranker_config(folder: str | os.PathLike) -> RankerConfig:
    """The configuration of a ranker's model directory.

    Raises:
      CheckpointError: the folder is something else.
    """
    return checkpoint.read_config(folder, RankerConfig.from_json, Kind.RANKER)


def load_ranker(folder: str | os.PathLike, *, dtype: str = "float32") -> tuple[RankerModel, Path]:
    """A trained ranker and the path of its vocabulary.

    Args:
      folder: a ranker's model directory.
      dtype: precision policy of its computations.

    Raises:
      CheckpointError: the folder is incomplete or damaged, or its vocabulary was exchanged.
    """
    config = load_ranker_config(folder)
    vocabulary = checked_vocabulary(folder, config)
    ranker = make_ranker(config, dtype=dtype)
    checkpoint.load_weights(ranker, folder)
    return ranker, vocabulary


def trained_scale(folder: str | os.PathLike) -> float:
    """The factor of the cosines that a dual encoder's best weights were trained with.

    Without facts about its training it is the paper's last one, √encoding_dim.
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
    """A ranker to be fine-tuned from a trained model.

    Args:
      folder: a dual encoder's model directory, whose scale the head takes over where its own is 0;
        or a ranker's, of which the trunk is taken, and the head where it has the same shapes; or a
        BERT-shaped trunk's.
      head: of the new ranker.
      **options: see `make_ranker`.

    Returns:
      The ranker and the path of its vocabulary.

    Raises:
      CheckpointError: the folder is incomplete or damaged.
    """
    kind = kind_of(folder)
    if kind is Kind.RANKER:
        source, vocabulary = load_ranker(folder)
        scale = head.scale or source.config.head.scale
        config = RankerConfig(source.config.model, _scaled(head, scale), source.config.trunk)
        ranker = make_ranker(config, **options)
        _copy_weights(source.trunk, ranker.trunk)
        if ranker.candidate_trunk is not None:
            _copy_weights(source.candidate_trunk or source.trunk, ranker.candidate_trunk)
        _copy_weights(source.head, ranker.head)
        return ranker, vocabulary
    if kind in (Kind.BERT, Kind.HUGGING_FACE):
        bert, vocabulary = load_bert(folder)
        config = RankerConfig(bert.config, _scaled(head, head.scale or 1.0), "bert")
        ranker = make_ranker(config, **options)
        for trunk in filter(None, (ranker.trunk, ranker.candidate_trunk)):
            _copy_weights(bert, trunk)
        return ranker, vocabulary
    encoder, vocabulary = checkpoint.load_checkpoint(folder)
    config = RankerConfig(encoder.config, _scaled(head, head.scale or trained_scale(folder)))
    ranker = make_ranker(config, **options)
    for target in (ranker.trunk, ranker.candidate_trunk):
        if isinstance(target, ConvertTrunk):
            _copy_weights(encoder, target.encoder)
    return ranker, vocabulary


def _scaled(head: HeadConfig, scale: float) -> HeadConfig:
    return dataclasses.replace(head, scale=float(scale))


def _copy_weights(source: Any, target: Any) -> None:
    """Copies the variables that both have, by their paths and shapes."""
    known = {v.path: v for v in source.variables}
    for variable in target.variables:
        found = known.get(variable.path)
        if found is not None and found.shape == variable.shape and found.dtype == variable.dtype:
            variable.assign(found)
