"""Writes a checkpoint as a TF Hub module.

`python export.py --checkpoint runs/convert --output hub_modules/convert/1`
"""

import sys

from absl import app, flags, logging

_CHECKPOINT = flags.DEFINE_string("checkpoint", None, "Folder that train.py wrote.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "Folder of the module.", required=True)
_MAX_TOKENS = flags.DEFINE_integer("max_tokens", 512, "Longer texts are cut, in subwords.")
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Replace --output where it exists.")


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"Flags are given as --name=value. Received: {argv[1:]}.")
    from convert_tf.hub import export_module

    logging.set_verbosity(logging.WARNING)  # TensorFlow tells of each tensor it renames

    try:
        folder = export_module(
            _CHECKPOINT.value,
            _OUTPUT.value,
            max_tokens=_MAX_TOKENS.value,
            overwrite=_OVERWRITE.value,
        )
    except (ValueError, OSError) as error:
        sys.exit(f"export.py: {' '.join(str(error).split())}")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"wrote {folder}, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    app.run(main)
