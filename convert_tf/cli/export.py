"""Write an encoder as a TF Hub module, an ONNX file, or a folder for Hugging Face programs.

```
convert-tf export --encoder runs/convert --output runs/convert/module/1
convert-tf export --encoder runs/poly --output runs/poly/module/1
convert-tf export --encoder runs/convert --output convert.onnx
convert-tf export --encoder runs/convert --format huggingface --output my-encoder
convert-tf export --encoder tuned --format huggingface --output tuned-for-all
```

The model card of a module is `MODEL_CARD.md`, that of a Hugging Face folder is `README.md`.
sentence-transformers, SetFit, fastembed and transformers.js open a Hugging Face folder. A folder
that one of them trained further can be exported again, in all forms.

Flags:
  encoder: Encoder: a released name, a run, a module or a Hugging Face folder. Rankers too.
  output: Folder or file x.onnx to write.
  format: What to write. Default: onnx if --output ends with .onnx, otherwise module.
  max_tokens: Texts are cut to this many tokens. Default: 512, or the limit of a module.
  network_bits: Bits of the network's weights: 16 (default) or 8 in a module, 8 (default) or 32 in
    x.onnx.
  notes: Markdown file to add to the model card, for example about the data. Default for a Hugging
    Face folder: the notes in the card of the module.
  overwrite: Replace an existing --output.
"""

from pathlib import Path
from typing import Any

from convert_tf.cli.flags import NEEDED, Define, same

REPLACED = ("", "**/*")
OF_MODULES = ("encoder",)  # because an .onnx file cannot be exported again


def define_flags(define: Define) -> None:
    define("encoder", NEEDED)
    define("output", NEEDED)
    define("format", None, choices=["module", "onnx", "huggingface"])
    define("max_tokens", None, kind=int)
    define("network_bits", None, choices=["32", "16", "8"])
    define("notes", None)
    define("overwrite", False)


def run(values: Any) -> None:
    from convert_tf.export.model import export_model

    path = export_model(
        values.encoder,
        values.output,
        format=values.format or "",
        network_bits=int(values.network_bits) if values.network_bits else None,
        notes=Path(values.notes).read_text(encoding="utf-8") if values.notes else "",
        **same(values, "max_tokens overwrite"),
    )
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    print(f"wrote {path}, {sum(each.stat().st_size for each in files) / 1e6:.1f} MB")
