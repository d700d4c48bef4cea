"""Writes a checkpoint as a TF Hub module, or as one file for the light runtime.

`python export.py --checkpoint runs/convert --output runs/convert/module/1`
`python export.py --checkpoint runs/poly --output runs/poly/module/1`
`python export.py --checkpoint runs/convert --output convert.onnx`
"""

import sys
from pathlib import Path

from absl import app, flags, logging

from convert_tf.config import MAX_TOKENS

_CHECKPOINT = flags.DEFINE_string("checkpoint", None, "Folder that train.py wrote.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "Folder of the module, or x.onnx.", required=True)
_MAX_TOKENS = flags.DEFINE_integer("max_tokens", MAX_TOKENS, "Longer texts are cut, in subwords.")
_NETWORK_BITS = flags.DEFINE_enum(
    "network_bits",
    None,
    ["32", "16", "8"],
    "Bits of the network's weights: 16 (default) or 8 in a module, 8 (default) or 32 in x.onnx.",
)
_NOTES = flags.DEFINE_string(
    "notes", None, "A file of Markdown that joins the model card: data, licences, results."
)
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Replace --output where it exists.")


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"Flags are given as --name=value. Received: {argv[1:]}.")
    is_onnx = _OUTPUT.value.endswith(".onnx")
    if is_onnx:
        from convert_tf.onnx_export import export_onnx as export
    else:
        from convert_tf.ranker_checkpoint import is_ranker

        if is_ranker(_CHECKPOINT.value):
            from convert_tf.ranker_export import export_ranker as export
        else:
            from convert_tf.hub import export_module as export

    logging.set_verbosity(logging.WARNING)  # TensorFlow tells of each tensor it renames

    try:
        path = export(
            _CHECKPOINT.value,
            _OUTPUT.value,
            network_bits=int(_NETWORK_BITS.value or (8 if is_onnx else 16)),
            max_tokens=_MAX_TOKENS.value,
            notes=Path(_NOTES.value).read_text(encoding="utf-8") if _NOTES.value else "",
            overwrite=_OVERWRITE.value,
        )
    except (ValueError, OSError) as error:
        sys.exit(f"export.py: {' '.join(str(error).split())}")
    files = [path] if is_onnx else [each for each in path.rglob("*") if each.is_file()]
    print(f"wrote {path}, {sum(each.stat().st_size for each in files) / 1e6:.1f} MB")


if __name__ == "__main__":
    app.run(main)
