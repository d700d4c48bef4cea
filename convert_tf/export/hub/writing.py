"""Write a checkpoint as a TF Hub module, which needs neither the checkpoint nor this package.

A module is the folder of a SavedModel with signatures, a vocabulary and a card. The folder is
written atomically.
"""

import contextlib
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from convert_tf.checkpoints.facts import (
    READ_TOKENS,
    TRAINING_FILE,
    data_facts,
    read_tokens,
    shown_name,
    training_facts,
)
from convert_tf.checkpoints.kinds import CONFIG_FILE, MODULE_FILES, Kind, kind_of
from convert_tf.checkpoints.loading import load_ranker
from convert_tf.checkpoints.vocabulary import fitting_tokenizer
from convert_tf.config.model import MAX_TOKENS
from convert_tf.export.cards import CARD_FILE, encoder_card, ranker_card
from convert_tf.export.hub.encoder_module import EncoderModule, MultiContextEncoderModule
from convert_tf.export.hub.portable import save_portable
from convert_tf.export.hub.ranker_module import RankerModule, make_ranker_module
from convert_tf.export.opening import opened_source
from convert_tf.storage.checksums import record_checksums
from convert_tf.storage.folders import OutputFolder
from convert_tf.storage.json_text import written_json


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
      checkpoint: the folder of an encoder or a ranker.
      output: the module's folder. Missing parent folders are created. If `output` is a link, the
        folder that it points to is written.
      network_bits: number of bits per stored weight of the network: 16, 8 or 32.
      max_tokens: maximum number of tokens per text. The limits of a ranker apply if they are lower.
        If None, 512, or the limit of `checkpoint` if it is a module.
      notes: Markdown for the model card, such as data sources and accuracy.
      overwrite: whether to replace an existing folder.

    Returns:
      The absolute path of `output`.

    Raises:
      CheckpointError: if the checkpoint is incomplete or damaged, or was trained with another
        vocabulary.
      ValueError: if `output` exists, another argument is out of range, or a weight is NaN,
        infinite or too large for 16 bits.
      OSError: if `output` cannot be written.
    """
    target = OutputFolder(output, replaceable=MODULE_FILES, overwrite=overwrite)
    kind = kind_of(checkpoint)
    parts = _ranker_parts if kind is Kind.RANKER else _encoder_parts
    with contextlib.ExitStack() as opened:
        module, card, extra_files = parts(checkpoint, network_bits, max_tokens, opened)
        folder = opened.enter_context(target.open())
        earlier = Path(checkpoint) if kind.is_module else None
        save_portable(module, folder, signatures=module.signatures, earlier=earlier)
        for name, text in extra_files.items():
            (folder / name).write_text(text, encoding="utf-8")
        sizes = _sizes(folder)
        record_checksums(folder, sizes)  # no checksum for the card, because users may extend it
        text = card(sizes=sizes, network_bits=network_bits, notes=notes)
        (folder / CARD_FILE).write_text(text, encoding="utf-8")
    return Path(os.path.abspath(output))


# The parts of an export: the module, the function that makes its card, and further files by name.
_Parts = tuple[EncoderModule | RankerModule, Callable[..., str], dict[str, str]]


def _encoder_parts(
    checkpoint: str | os.PathLike,
    network_bits: int,
    max_tokens: int | None,
    opened: contextlib.ExitStack,
) -> _Parts:
    source = opened.enter_context(opened_source(checkpoint, max_tokens, as_keras=True))
    config = source.encoder.config
    kind = MultiContextEncoderModule if config.multi_context else EncoderModule
    module = kind(
        source.encoder,
        fitting_tokenizer(source.vocabulary, config),
        network_bits=network_bits,
        max_tokens=source.max_tokens,
        similarity_map=source.similarity_map,
    )
    published = written_json(_published(source.training, source.max_tokens))
    files = {CONFIG_FILE: config.to_json(), TRAINING_FILE: published}
    return module, partial(encoder_card, "module", source), files


def _ranker_parts(
    checkpoint: str | os.PathLike,
    network_bits: int,
    max_tokens: int | None,
    _: contextlib.ExitStack,
) -> _Parts:
    facts = training_facts(checkpoint)
    max_tokens = read_tokens(facts, max_tokens)
    ranker, vocabulary = load_ranker(checkpoint)
    tokenizer = fitting_tokenizer(vocabulary, ranker.config.model)
    module = make_ranker_module(ranker, tokenizer, network_bits=network_bits, max_tokens=max_tokens)
    card = partial(
        ranker_card,
        ranker.config,
        facts,
        context_tokens=module.context_tokens,
        candidate_tokens=module.candidate_tokens,
    )
    return module, card, {}


def _published(facts: Mapping[str, Any], max_tokens: int) -> dict[str, Any]:
    """Return the facts about training to publish with a module, without the paths of files.

    If another module is exported from this module, these facts are enough to write the same card.
    """
    names = (
        *("precision", "parameters", "train", "evaluation", "similarity", "opposites"),
        *("vocabulary_sha256", "ranking_joined_sources"),
    )
    described = {name: facts[name] for name in names if name in facts}
    if max_tokens != MAX_TOKENS:
        described[READ_TOKENS] = max_tokens
    for role in ("teacher", "ranking_teacher", "initial_weights"):
        if facts.get(role):
            described[role] = shown_name(facts[role])
    data = {"turn_prefixes": False, **data_facts(facts)}
    if folder := data.pop("data", None):
        data["data"] = Path(folder).name
    of_data = ("data", "train_examples", "first_train_example", "source_shares", "turn_prefixes")
    return {**described, "data": {name: data[name] for name in of_data if name in data}}


def _sizes(folder: Path) -> dict[str, int]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
