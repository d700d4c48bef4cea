"""Writes modules: a checkpoint as a TF Hub module that needs neither to be loaded.

A module is a SavedModel with its signatures, its vocabulary, and a card beside them. It is written
whole or not at all.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from convert_tf.checkpoint import (
    CONFIG_FILE,
    TRAINING_FILE,
    CheckpointError,
    check_vocabulary,
    load_checkpoint,
    training_facts,
)
from convert_tf.config import MAX_TOKENS
from convert_tf.encoder_module import EncoderModule, MultiContextEncoderModule
from convert_tf.model_card import CARD_FILE, encoder_card
from convert_tf.stored_weights import WeightsError
from convert_tf.text.tokenizer import load_tokenizer


class ExportError(ValueError):
    """A module that cannot be written."""


class TwoShards(tf.train.experimental.ShardingCallback):
    """Writes variables as two files, cut where half of the bytes are.

    Clients of the original modules look for `variables.data-00000-of-00002` and `-00001-of-00002`.
    TensorFlow's `MaxShardSizePolicy` takes a size, not a number: how many files come out depends on
    the order of the tensors, and it cuts single tensors to fill a file. Here each is whole.
    """

    @property
    def description(self) -> str:
        return "Two shards of about equal size."

    def __call__(self, shardable_tensors: Sequence[Any]) -> list[Mapping[str, Any]]:
        def size(tensor: Any) -> int:
            if tensor.dtype == tf.string:  # the object graph, whose size is not known while saving
                return 0
            return tensor.shape.num_elements() * tensor.dtype.size

        shards: list[dict[str, Any]] = [{}, {}]
        filled = [0, 0]
        for tensor in sorted(shardable_tensors, key=size, reverse=True):
            smaller = filled.index(min(filled))
            filled[smaller] += size(tensor)
            slices = shards[smaller].setdefault(tensor.checkpoint_key, {})
            slices[tensor.slice_spec] = tensor.tensor
        return list(shards)


def export_module(
    checkpoint: str | os.PathLike,
    output: str | os.PathLike,
    *,
    network_bits: int = 16,
    max_tokens: int = MAX_TOKENS,
    notes: str = "",
    overwrite: bool = False,
) -> Path:
    """Writes the module of an encoder's checkpoint, with a model card.

    Args:
      checkpoint: a model directory.
      output: the module's folder; its parents are made, and a link is followed.
      network_bits: 16 or 8, of the network's weights in the file.
      max_tokens: longest sequence, in subwords, that the network reads.
      notes: Markdown that joins the model card: where the data are from, how good it is.
      overwrite: whether a folder of that name is replaced.

    Returns:
      `output`.

    Raises:
      ExportError: `output` exists, or cannot be written.
      CheckpointError: the checkpoint is incomplete, damaged, or its vocabulary is another one.
      ValueError: another argument is out of range.
    """
    check_output(output, overwrite=overwrite)
    encoder, vocabulary = load_checkpoint(checkpoint)
    config = encoder.config
    tokenizer = load_tokenizer(vocabulary, num_oov_buckets=config.num_oov_buckets)
    check_vocabulary(tokenizer, config)
    kind = MultiContextEncoderModule if config.multi_context else EncoderModule
    try:
        module = kind(encoder, tokenizer, network_bits=network_bits, max_tokens=max_tokens)
    except WeightsError as error:
        raise CheckpointError(f"{os.fspath(checkpoint)}: {error}") from error
    facts = training_facts(checkpoint)

    def card(sizes: Mapping[str, int]) -> str:
        return encoder_card(
            config,
            facts,
            max_tokens=max_tokens,
            network_bits=network_bits,
            sizes=sizes,
            notes=notes,
        )

    beside = {
        CONFIG_FILE: config.to_json(),
        TRAINING_FILE: json.dumps(_published(facts), indent=2) + "\n",
    }
    return write_module(module, output, card=card, beside=beside, overwrite=overwrite)


def _published(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of the training, without where its maker keeps files."""
    names = ("precision", "train", "evaluation", "vocabulary_sha256")
    turn_prefixes = facts.get("data", {}).get("turn_prefixes", False)
    return {
        **{name: facts[name] for name in names if name in facts},
        "data": {"turn_prefixes": turn_prefixes},
    }


def check_output(output: str | os.PathLike, *, overwrite: bool) -> None:
    """Raises `ExportError` where a module cannot be written for what is there already."""
    output = Path(os.path.abspath(output))
    if output.exists() and not overwrite:
        raise ExportError(
            f"A module is written to a new folder. Received: {str(output)!r}, which exists. "
            "Choose another --output, or pass --overwrite."
        )
    if output.exists() and not output.is_dir():
        raise ExportError(
            f"A module is a folder. Received: {str(output)!r}, a file. Choose another --output."
        )


def write_module(
    module: Any,
    output: str | os.PathLike,
    *,
    card: Callable[[Mapping[str, int]], str],
    beside: Mapping[str, str] | None = None,
    overwrite: bool = False,
) -> Path:
    """Writes a `tf.Module` with `signatures` as a folder, whole or not at all.

    Args:
      module: what is saved.
      output: the folder; its parents are made, and a link is followed.
      card: from the bytes of each file of the module to the text of its card.
      beside: further files of the folder, their texts by name.
      overwrite: whether a folder of that name is replaced.

    Returns:
      `output`, absolute.

    Raises:
      ExportError: `output` exists, or cannot be written.
    """
    check_output(output, overwrite=overwrite)
    output = Path(os.path.abspath(output))
    place = Path(os.path.realpath(output))
    temporary = place.with_name(f".{place.name}.new-{os.getpid()}")
    replaced = place.with_name(f".{place.name}.old-{os.getpid()}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        options = tf.saved_model.SaveOptions(experimental_sharding_callback=TwoShards())
        tf.saved_model.save(module, str(temporary), signatures=module.signatures, options=options)
        for name, text in (beside or {}).items():
            (temporary / name).write_text(text, encoding="utf-8")
        (temporary / CARD_FILE).write_text(card(_sizes(temporary)), encoding="utf-8")
        if place.exists():
            os.rename(place, replaced)
        os.rename(temporary, place)
    except (OSError, tf.errors.OpError) as error:
        if replaced.exists():
            os.rename(replaced, place)
        reason = getattr(error, "strerror", None) or getattr(error, "message", None) or error
        raise ExportError(
            f"A module must be written whole. Received: {reason}, at {str(output)!r}. Nothing new "
            "was left under that name; free some space or choose another folder."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    shutil.rmtree(replaced, ignore_errors=True)
    return output


def _sizes(folder: Path) -> dict[str, int]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
