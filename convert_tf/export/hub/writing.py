"""Write a checkpoint as a TF Hub module, which needs neither the checkpoint nor this package.

A module is a SavedModel with its signatures, its vocabulary and a card. It is written whole or not
at all.
"""

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from convert_tf.checkpoints.facts import (
    READ_TOKENS,
    TRAINING_FILE,
    data_facts,
    read_tokens,
    training_facts,
)
from convert_tf.checkpoints.folder import (
    CONFIG_FILE,
    CheckpointError,
    load_checkpoint,
    load_similarity_map,
    shown_name,
)
from convert_tf.checkpoints.kinds import MODULE_FILES, Kind, kind_of
from convert_tf.checkpoints.ranker import load_ranker
from convert_tf.checkpoints.vocabulary import fitting_tokenizer
from convert_tf.config.model import MAX_TOKENS
from convert_tf.export.cards import CARD_FILE, encoder_card, ranker_card
from convert_tf.export.hub.encoder_module import EncoderModule, MultiContextEncoderModule
from convert_tf.export.hub.portable import save_portable
from convert_tf.export.hub.ranker_module import make_ranker_module
from convert_tf.export.hub.weights import WeightsError
from convert_tf.storage.checksums import record_checksums
from convert_tf.storage.folders import OutputFolder
from convert_tf.storage.json_text import written_json


class ExportError(ValueError):
    """Error: a module cannot be written."""


def export_module(
    checkpoint: str | os.PathLike,
    output: str | os.PathLike,
    *,
    network_bits: int = 16,
    max_tokens: int | None = None,
    notes: str = "",
    overwrite: bool = False,
) -> Path:
    """Write the module of an encoder or a ranker, with a model card.

    Args:
      checkpoint: a model directory.
      output: the module's folder; its parents are created, and a link is followed.
      network_bits: 16, 8 or 32 bits for the weights of the network in the file.
      max_tokens: maximum number of tokens of a text, unless a ranker's own limits are lower. None
        for 512, or for the value of `checkpoint` if it is a module.
      notes: Markdown for the model card, such as data sources and accuracy.
      overwrite: whether an existing folder is replaced.

    Returns:
      `output`, absolute.

    Raises:
      ExportError: if `output` exists, or cannot be written.
      CheckpointError: if the checkpoint is incomplete or damaged, or has another vocabulary.
      ValueError: if another argument is out of range.
    """
    _module_folder(output, overwrite=overwrite)  # fails before the work begins
    make = _ranker_parts if kind_of(checkpoint) is Kind.RANKER else _encoder_parts
    try:
        max_tokens = read_tokens(training_facts(checkpoint), max_tokens)
        parts = make(checkpoint, network_bits=network_bits, max_tokens=max_tokens)
    except WeightsError as error:
        raise CheckpointError(f"{os.fspath(checkpoint)}: {error}") from error
    card = functools.partial(parts.card, network_bits=network_bits, notes=notes)
    return _write_module(
        parts.module, output, card=card, extra_files=parts.extra_files, overwrite=overwrite
    )


class _Parts(NamedTuple):
    """The parts of a module's folder; `card` takes `network_bits`, `sizes` and `notes`."""

    module: Any
    card: Callable[..., str]
    extra_files: dict[str, str]


def _encoder_parts(checkpoint: str | os.PathLike, **options: int) -> _Parts:
    encoder, vocabulary = load_checkpoint(checkpoint)
    config = encoder.config
    tokenizer = fitting_tokenizer(vocabulary, config)
    kind = MultiContextEncoderModule if config.multi_context else EncoderModule
    similarity_map = load_similarity_map(checkpoint)
    module = kind(encoder, tokenizer, similarity_map=similarity_map, **options)
    facts = training_facts(checkpoint)
    extra_files = {
        CONFIG_FILE: config.to_json(),
        TRAINING_FILE: written_json(_published(facts, module.max_tokens)),
    }
    card = functools.partial(
        encoder_card,
        config,
        facts,
        max_tokens=module.max_tokens,
        similarity_dim=0 if similarity_map is None else similarity_map.shape[1],
    )
    return _Parts(module, card, extra_files)


def _ranker_parts(checkpoint: str | os.PathLike, **options: int) -> _Parts:
    ranker, vocabulary = load_ranker(checkpoint)
    tokenizer = fitting_tokenizer(vocabulary, ranker.config.model)
    module = make_ranker_module(ranker, tokenizer, **options)
    card = functools.partial(
        ranker_card,
        ranker.config,
        training_facts(checkpoint),
        context_tokens=module.context_tokens,
        candidate_tokens=module.candidate_tokens,
    )
    return _Parts(module, card, {})


def _published(facts: Mapping[str, Any], max_tokens: int) -> dict[str, Any]:
    """Return the facts of training for publication, without paths of files.

    A module that is made from this one has the same card.
    """
    names = (
        *("precision", "parameters", "train", "evaluation", "similarity", "vocabulary_sha256"),
        "ranking_joined_sources",
    )
    found = {name: facts[name] for name in names if name in facts}
    if max_tokens != MAX_TOKENS:
        found[READ_TOKENS] = max_tokens
    for role in ("teacher", "ranking_teacher"):
        if facts.get(role):
            found[role] = Path(facts[role]).name
    if facts.get("initial_weights"):
        found["initial_weights"] = shown_name(facts["initial_weights"])
    data = data_facts(facts)
    of_data = ("train_examples", "first_train_example", "source_shares")
    return {
        **found,
        "data": {
            **({"data": Path(data["data"]).name} if data.get("data") else {}),
            **{name: data[name] for name in of_data if name in data},
            "turn_prefixes": data.get("turn_prefixes", False),
        },
    }


def _module_folder(output: str | os.PathLike, *, overwrite: bool) -> OutputFolder:
    """Return the folder of a module; raise `ExportError` if it may not be written."""
    try:
        return OutputFolder(output, replaceable=MODULE_FILES, overwrite=overwrite)
    except ValueError as error:
        raise ExportError(str(error)) from error


def _write_module(
    module: Any,
    output: str | os.PathLike,
    *,
    card: Callable[..., str],
    extra_files: Mapping[str, str],
    overwrite: bool = False,
) -> Path:
    """Write a `tf.Module` with `signatures` as a folder, whole or not at all.

    Args:
      module: the module to save.
      output: the folder; its parents are created, and a link is followed.
      card: from `sizes`, the bytes of each file of the module, to the text of its card.
      extra_files: texts of further files in the folder, by name.
      overwrite: whether an existing folder is replaced.

    Returns:
      `output`, absolute.

    Raises:
      ExportError: if `output` exists, or cannot be written.
    """
    try:
        with _module_folder(output, overwrite=overwrite).open() as folder:
            save_portable(module, folder, signatures=module.signatures)
            for name, text in extra_files.items():
                (folder / name).write_text(text, encoding="utf-8")
            sizes = _sizes(folder)
            record_checksums(folder, sizes)  # not of the card, which users may extend
            (folder / CARD_FILE).write_text(card(sizes=sizes), encoding="utf-8")
    except (OSError, tf.errors.OpError) as error:
        reason = getattr(error, "strerror", None) or getattr(error, "message", None) or error
        raise ExportError(
            f"The module could not be written to {os.fspath(output)!r}: {reason}. Nothing was left "
            "under that name. Free some space, or choose another folder."
        ) from error
    return Path(os.path.abspath(output))


def _sizes(folder: Path) -> dict[str, int]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
