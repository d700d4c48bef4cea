"""Export a checkpoint as a TF Hub module, an `.onnx` file, or a Hugging Face folder."""

import os
from collections.abc import Callable
from pathlib import Path

from convert_tf.checkpoints.facts import training_facts, unknown_in_training
from convert_tf.data.unknown_tokens import warn_of_unknown

FORMATS = ("module", "onnx", "huggingface")


def export_model(
    checkpoint: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    format: str = "",
    network_bits: int | None = None,
    max_tokens: int | None = None,
    notes: str = "",
    overwrite: bool = False,
) -> Path:
    """Export a checkpoint, with a model card.

    A warning is printed if most tokens of the training texts were unknown.

    Args:
      checkpoint: the run of a dual encoder or a ranker, a module, or a Hugging Face folder, which
        another program may have trained further.
      output: the file or folder to write. ONNX files are named `x.onnx` and need a dual encoder
        with a subword vocabulary. The other formats are folders.
      format: `module`, `onnx` or `huggingface`. If None, `onnx` if `output` ends with `.onnx`,
        otherwise `module`.
      network_bits: number of bits per stored weight of the network: 16, 8 or 32 in a module, 8 or
        32 in an `.onnx` file. Defaults to 16 for a module and 8 for an `.onnx` file. It must be
        None for a Hugging Face folder, which contains both a 32-bit and an 8-bit network.
      max_tokens: maximum number of tokens per text. If None, 512, or the limit of `checkpoint` if
        it is a module.
      notes: Markdown to add to the model card.
      overwrite: whether to replace an existing `output`.

    Returns:
      `output`.

    Raises:
      ValueError: if `output` exists, the checkpoint is damaged, or an argument is invalid.

    Example:
      export_model("runs/convert", "hub_modules/mine/1")
      export_model("runs/convert", "mine.onnx", network_bits=32)
      export_model("runs/convert", "mine-huggingface", format="huggingface")
    """
    is_onnx = Path(output).suffix == ".onnx"
    format = format or ("onnx" if is_onnx else "module")
    if (format == "onnx") != is_onnx or (is_onnx and os.fspath(output).endswith(os.sep)):
        raise ValueError(
            f"{os.fspath(output)!r} does not fit the format {format}: ONNX files are named "
            "x.onnx, and other formats are folders without this suffix. Change the output or the "
            "format."
        )
    if format == "huggingface" and network_bits is not None:
        raise ValueError(
            f"A Hugging Face folder contains both a 32-bit and an 8-bit network. Received: "
            f"network_bits={network_bits}. Omit network_bits."
        )
    share = unknown_in_training(training_facts(checkpoint))
    warn_of_unknown(share, checkpoint, "the texts that it was trained on")
    bits = {} if network_bits is None else {"network_bits": network_bits}
    return _exporter(format)(
        checkpoint, output, max_tokens=max_tokens, notes=notes, overwrite=overwrite, **bits
    )


def _exporter(format: str) -> Callable[..., Path]:
    """Return the function that exports to a format."""
    if format == "onnx":
        from convert_tf.export.onnx.writing import export_onnx

        return export_onnx
    if format == "huggingface":
        from convert_tf.export.huggingface.writing import export_huggingface

        return export_huggingface
    if format == "module":
        from convert_tf.export.hub.writing import export_module

        return export_module
    raise ValueError(f"format must be one of {', '.join(FORMATS)}. Received: {format!r}.")
