"""The model directory of a ranker: as a dual encoder's, with the head in `config.json`, too."""

import hashlib
import os
from pathlib import Path
from typing import Any

from convert_tf import checkpoint
from convert_tf.bert_checkpoint import is_bert, load_bert
from convert_tf.checkpoint import CheckpointError
from convert_tf.head_config import HeadConfig
from convert_tf.losses import annealed_scale
from convert_tf.rankers import Ranker, RankerConfig, make_ranker


def is_ranker(folder: str | os.PathLike) -> bool:
    """Whether a folder is the model directory of a ranker, rather than of a dual encoder."""
    path = Path(folder) / checkpoint.CONFIG_FILE
    try:
        RankerConfig.from_json(path.read_text())
    except (OSError, ValueError):
        return False
    return True


def load_ranker_config(folder: str | os.PathLike) -> RankerConfig:
    """The configuration of a ranker's model directory.

    Raises:
      CheckpointError: the folder is something else.
    """
    path = Path(folder) / checkpoint.CONFIG_FILE
    try:
        return RankerConfig.from_json(path.read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(
            "A ranker is a folder that train.py --head wrote. "
            f"Received: {str(folder)!r} ({error}). Name such a folder."
        ) from error


def load_ranker(folder: str | os.PathLike, *, dtype: str = "float32") -> tuple[Ranker, Path]:
    """A trained ranker and the path of its vocabulary.

    Args:
      folder: a ranker's model directory.
      dtype: precision policy of its computations.

    Raises:
      CheckpointError: the folder is incomplete or damaged, or its vocabulary was exchanged.
    """
    config = load_ranker_config(folder)
    vocabulary = checkpoint.vocabulary_path(folder, config)  # type: ignore[arg-type]
    trained_with = checkpoint.training_facts(folder).get("vocabulary_sha256")
    found = hashlib.sha256(vocabulary.read_bytes()).hexdigest() if vocabulary.is_file() else None
    if found is None or trained_with not in (None, found):
        raise CheckpointError(
            "A ranker must hold the vocabulary it was trained with. Received: "
            f"{str(vocabulary)!r}, which is {'missing' if found is None else 'another one'}. "
            "Put the right file there."
        )
    ranker = make_ranker(config, dtype=dtype)
    checkpoint.load_weights(ranker, folder)  # type: ignore[arg-type]
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
) -> tuple[Ranker, Path]:
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
    if is_ranker(folder):
        source, vocabulary = load_ranker(folder)
        scale = head.scale or source.config.head.scale
        config = RankerConfig(source.config.model, _scaled(head, scale), source.config.trunk)
        ranker = make_ranker(config, **options)
        _copy_weights(source.trunk, ranker.trunk)
        if ranker.candidate_trunk is not None:
            _copy_weights(source.candidate_trunk or source.trunk, ranker.candidate_trunk)
        _copy_weights(source.head, ranker.head)
        return ranker, vocabulary
    if is_bert(folder):
        bert, vocabulary = load_bert(folder)
        config = RankerConfig(bert.config, _scaled(head, head.scale or 1.0), "bert")
        ranker = make_ranker(config, **options)
        for trunk in filter(None, (ranker.trunk, ranker.candidate_trunk)):
            _copy_weights(bert, trunk)
        return ranker, vocabulary
    encoder, vocabulary = checkpoint.load_checkpoint(folder)
    config = RankerConfig(encoder.config, _scaled(head, head.scale or trained_scale(folder)))
    ranker = make_ranker(config, **options)
    for trunk in filter(None, (ranker.trunk, ranker.candidate_trunk)):
        _copy_weights(encoder, trunk.encoder)
    return ranker, vocabulary


def _scaled(head: HeadConfig, scale: float) -> HeadConfig:
    return HeadConfig.from_dict({**head.to_dict(), "scale": float(scale)})


def _copy_weights(source: Any, target: Any) -> None:
    """Copies the variables that both have, by their paths and shapes."""
    known = {v.path: v for v in source.variables}
    for variable in target.variables:
        found = known.get(variable.path)
        if found is not None and found.shape == variable.shape and found.dtype == variable.dtype:
            variable.assign(found)
