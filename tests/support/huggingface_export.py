"""A tiny encoder exported to a Hugging Face folder and to `.onnx` files."""

from support.made_once import made_once

from convert_tf import export_model

MAX_TOKENS = 20


def exported_folder():
    """Return a folder with a run, its export `hf`, and 32-bit and 8-bit `.onnx` files."""

    def make(folder):
        from support.tiny_checkpoint import write_checkpoint

        run = write_checkpoint(folder / "run", similarity_dim=5)
        options = {"max_tokens": MAX_TOKENS}
        export_model(run, folder / "hf", format="huggingface", notes="## Ours", **options)
        export_model(run, folder / "encoder.onnx", network_bits=32, **options)
        export_model(run, folder / "encoder8.onnx", network_bits=8, **options)

    return made_once("huggingface", make)
