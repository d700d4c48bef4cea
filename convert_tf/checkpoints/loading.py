"""Load trained models of any kind, and rankers that start from another trained model."""

import dataclasses
import os
from pathlib import Path
from typing import Any

from convert_tf.checkpoints import folder as checkpoint
from convert_tf.checkpoints.bert import load_bert
from convert_tf.checkpoints.configs import load_config, read_config
from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.checkpoints.released import model_path
from convert_tf.config.ranker import HeadConfig, RankerConfig
from convert_tf.models.bert import BertTrunk
from convert_tf.models.encoder import DualEncoder
from convert_tf.models.heads import CrossHead
from convert_tf.models.losses import annealed_scale
from convert_tf.models.ranker import ConvertTrunk, RankerModel, make_ranker


def load_model(
    folder: str | os.PathLike[str], *, dtype: str = "float32"
) -> tuple[checkpoint.Model, Path]:
    """Load a trained model as a Keras model.

    Args:
      folder: a run, the module of an encoder, the name of a released encoder, or the folder of a
        Hugging Face BERT.
      dtype: precision policy of the model's computations.

    Returns:
      The model (`DualEncoder`, `RankerModel` or `BertTrunk`) and the path of its vocabulary, which
      `convert_tf.text.tokenizer.load_tokenizer` takes.

    Raises:
      ValueError: if the folder is not a model, is incomplete or damaged, or its vocabulary is not
        the one that the model was trained with.

    Example:
      ranker, vocabulary = load_model("runs/poly")
    """
    folder = model_path(folder, wants_module=True)
    kind = kind_of(
        folder, Kind.DUAL_ENCODER, Kind.ENCODER_MODULE, Kind.RANKER, Kind.BERT, Kind.HUGGING_FACE
    )
    if kind is Kind.RANKER:
        return load_ranker(folder, dtype=dtype)
    if kind in (Kind.BERT, Kind.HUGGING_FACE):
        return load_bert(folder, dtype=dtype)
    return checkpoint.load_checkpoint(folder, dtype=dtype)


def load_ranker_config(folder: str | os.PathLike) -> RankerConfig:
    """Return the configuration of a ranker.

    Raises:
      ValueError: if the folder is not the run of a ranker.
    """
    return read_config(folder, RankerConfig.from_json, Kind.RANKER)


def load_ranker(folder: str | os.PathLike, *, dtype: str = "float32") -> tuple[RankerModel, Path]:
    """Load a trained ranker.

    Args:
      folder: the run of a ranker.
      dtype: precision policy of the ranker's computations.

    Returns:
      The ranker and the path of its vocabulary.

    Raises:
      ValueError: if the folder is incomplete or damaged, or its vocabulary is not the one that the
        ranker was trained with.
    """
    return checkpoint.with_weights(make_ranker(load_ranker_config(folder), dtype=dtype), folder)


def trained_scale(folder: str | os.PathLike) -> float:
    """Return the scale by which cosines were multiplied when the best weights were trained.

    If the scale was not recorded, return √encoding_dim, the final scale in the paper.

    Args:
      folder: run or module of a dual encoder.
    """
    facts = checkpoint.training_facts(folder)
    encoding_dim = load_config(folder).encoding_dim
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
      folder: the run or module of a dual encoder, the run of a ranker, or a BERT-like trunk. If it
        is a ranker, the factor that its outputs are rescaled by is copied too, and so are weights
        of its head if they have the same shapes.
      head: configuration of the new head. A scale of 0 is replaced by the scale of the trained
        model. Any other scale also replaces what that model has learned about its scale.
      **options: see `make_ranker`.

    Returns:
      The ranker and the path of its vocabulary.

    Raises:
      ValueError: if the folder is incomplete or damaged.
    """
    source, vocabulary = load_model(folder)
    trunks: tuple[Any, Any] = (source, source)
    if isinstance(source, RankerModel):
        config = source.config
        trunks = source.trunk, source.candidate_trunk or source.trunk
    elif isinstance(source, BertTrunk):
        config = RankerConfig(source.config, dataclasses.replace(head, scale=1.0), "bert")
    else:
        scale = head.scale or trained_scale(folder)
        config = RankerConfig(source.config, dataclasses.replace(head, scale=scale))
    scaled = dataclasses.replace(head, scale=float(head.scale or config.head.scale))
    ranker = make_ranker(dataclasses.replace(config, head=scaled), **options)
    for trunk, target in zip(trunks, (ranker.trunk, ranker.candidate_trunk), strict=True):
        if isinstance(trunk, DualEncoder) and isinstance(target, ConvertTrunk):
            target = target.encoder
        if target is not None:
            _copy_weights(trunk, target)
    if isinstance(source, RankerModel):
        ranker.output_factor.assign(source.output_factor)
        _copy_weights(source.head, ranker.head)
        if head.scale and not isinstance(ranker.head, CrossHead):
            ranker.head.log_scale.assign(0.0)
    return ranker, vocabulary


def _copy_weights(source: Any, target: Any) -> None:
    """Copy the values of variables that have the same path, shape and dtype."""
    sources = {v.path: v for v in source.variables}
    for variable in target.variables:
        value = sources.get(variable.path)
        if value is not None and value.shape == variable.shape and value.dtype == variable.dtype:
            variable.assign(value)
