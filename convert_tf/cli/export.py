"""Write an encoder as a TF Hub module, an ONNX file, or a folder for Hugging Face programs.

```
convert-tf export --encoder runs/convert --output runs/convert/module/1
convert-tf export --encoder runs/poly --output runs/poly/module/1
convert-tf export --encoder runs/convert --output convert.onnx
convert-tf export --encoder runs/convert --format huggingface --output my-encoder
convert-tf export --encoder tuned --format huggingface --output tuned-for-all
convert-tf export --encoder runs/convert --format static --texts texts.txt --output static
```

The model card of a module is `MODEL_CARD.md`, that of a Hugging Face folder is `README.md`.
sentence-transformers, SetFit, fastembed and transformers.js open a Hugging Face folder. A folder
that one of them trained further can be exported again, in all forms. The format static has a vector
for each subword, fitted to the encoder's vectors of your texts. model2vec and sentence-transformers
open it. It is less accurate and takes microseconds.

Flags:
  encoder: Encoder: a released name, a run, a module or a Hugging Face folder. Rankers too.
  output: Folder or file x.onnx to write.
  format: What to write. Default: onnx if --output ends with .onnx, otherwise module.
  max_tokens: Texts are cut to this many tokens. Default: 512, or the limit of a module.
  network_bits: Bits of the network's weights: 16 (default) or 8 in a module, 8 (default) or 32 in
    x.onnx.
  notes: Markdown file to add to the model card, for example about the data. Default for a Hugging
    Face folder: the notes in the card of the module.
  texts: Texts to fit --format static on, one per line or a table: tens of thousands like yours.
  overwrite: Replace an existing --output.
"""

from pathlib import Path
from typing import Any

from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.cli.flags import NEEDED, Define, UsageError, check_read, same

_EXPORTED = (
    Kind.DUAL_ENCODER,
    Kind.RANKER,
    Kind.ENCODER_MODULE,
    Kind.RANKER_MODULE,
    Kind.HUGGING_FACE_ENCODER,
)
REPLACED = ("", "**/*")
OF_MODULES = ("encoder",)  # because an .onnx file cannot be exported again


def define_flags(define: Define) -> None:
    define("encoder", NEEDED)
    define("output", NEEDED)
    define("format", None, choices=["module", "onnx", "huggingface", "static"])
    define("max_tokens", None, kind=int)
    define("network_bits", None, choices=["32", "16", "8"])
    define("notes", None)
    define("texts", None)
    define("overwrite", False)


def run(values: Any) -> None:
    if values.format == "static":
        check_read(values, {"with --format static": ("max_tokens", "network_bits", "notes")})
        path = _static(values)
    else:
        check_read(values, {"without --format static": ("texts",)})
        path = _network(values)
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    print(f"wrote {path}, {sum(file.stat().st_size for file in files) / 1e6:.1f} MB")


def _static(values: Any) -> Path:
    from convert_tf.export.static import export_static
    from convert_tf.readers.texts import Texts, filled_texts

    if values.texts is None:
        raise UsageError("--format static needs --texts to fit the vectors on")
    texts = [*filled_texts(Texts(values.texts))]
    return export_static(values.encoder, values.output, texts, overwrite=values.overwrite)


def _network(values: Any) -> Path:
    kind_of(values.encoder, *_EXPORTED)  # before TensorFlow is asked for
    from convert_tf.export.model import export_model

    return export_model(
        values.encoder,
        values.output,
        format=values.format or "",
        network_bits=int(values.network_bits) if values.network_bits else None,
        notes=Path(values.notes).read_text(encoding="utf-8") if values.notes else "",
        **same(values, "max_tokens overwrite"),
    )
