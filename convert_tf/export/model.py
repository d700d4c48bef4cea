"""A checkpoint as what others load: a TF Hub module, or one `.onnx` file."""

import os
from pathlib import Path

from convert_tf.checkpoints.facts import training_facts, unknown_in_training
from convert_tf.config.model import MAX_TOKENS
from convert_tf.data.unknown_tokens import warn_of_unknown


def export_model(
    checkpoint: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    network_bits: int | None = None,
    max_tokens: int = MAX_TOKENS,
    notes: str = "",
    overwrite: bool = False,
) -> Path:
    """Writes what a checkpoint holds, with a model card.

    Warns where most tokens of the texts that it was trained on were unknown.

    Args:
      checkpoint: a model directory of a dual encoder or a ranker.
      output: `x.onnx`, which takes a dual encoder with a subword vocabulary, or the folder of a
        module.
      network_bits: of the network's weights: 16, 8 or 32 in a module, 8 or 32 in an `.onnx` file;
        None for the first of them.
      max_tokens: longest text, in tokens, that the network reads.
      notes: Markdown that joins the model card.
      overwrite: whether what has that name is replaced.

    Returns:
      `output`.

    Raises:
      ValueError: `output` exists, the checkpoint is damaged, or an argument is out of range.

    Example:
      export_model("runs/convert", "hub_modules/mine/1")
      export_model("runs/convert", "mine.onnx", network_bits=32)
    """
    name = os.fspath(output)
    if name.rstrip(os.sep).endswith(".onnx") and (name.endswith(os.sep) or os.path.isdir(name)):
        raise ValueError(
            f"{name!r} names a folder, but .onnx means a file. Omit the {os.sep!r} to write a "
            "file, or choose another name for the folder of a module."
        )
    if name.endswith(".onnx"):
        from convert_tf.export.onnx.writing import export_onnx as export
    else:
        from convert_tf.export.hub.writing import export_module as export
    share = unknown_in_training(training_facts(checkpoint))
    warn_of_unknown(share, checkpoint, "the texts that it was trained on")
    bits = {} if network_bits is None else {"network_bits": network_bits}
    return export(
        checkpoint, output, max_tokens=max_tokens, notes=notes, overwrite=overwrite, **bits
    )
