"""Write an encoder as a TF Hub module, an ONNX file, or a folder for Hugging Face programs.

```
convert-tf export --encoder runs/convert --output runs/convert/module/1
convert-tf export --encoder runs/poly --output runs/poly/module/1
convert-tf export --encoder runs/convert --output convert.onnx
convert-tf export --encoder runs/convert --format huggingface --output my-encoder
convert-tf export --encoder tuned --format huggingface --output tuned-for-all
convert-tf export --encoder runs/convert --format static --texts texts.txt --output static
```

The model card is `MODEL_CARD.md` in a module, and `README.md` in a Hugging Face folder.
sentence-transformers, SetFit, fastembed and transformers.js can open a Hugging Face folder. If you
train the folder further with one of these programs, you can export it again in any format.

`--format static` stores one vector per subword. The vectors are fitted to the encoder's vectors for
your texts. model2vec and sentence-transformers can open this format. Static vectors are less
accurate, but encoding a text takes microseconds.

Flags:
  encoder: Encoder (a released name, a run, a module or a Hugging Face folder), or the run of a
    ranker.
  output: Folder or file x.onnx to write.
  format: What to write. Default: onnx if --output ends with .onnx, otherwise module.
  max_tokens: Maximum number of tokens per text; longer texts are cut. Default: 512, or the limit of
    --encoder if it is a module.
  network_bits: Bits per weight of the network: 16 (default) or 8 in a module, 8 (default) or 32 in
    x.onnx.
  notes: Markdown file to add to the model card, for example about the data. Default for a Hugging
    Face folder: the notes in the module's card.
  texts: Texts for fitting --format static, one per line or in a table. Use tens of thousands of
    texts similar to those that you will encode.
  overwrite: Replace an existing --output.
"""

from pathlib import Path
from typing import Any

from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.cli.flags import NEEDED, Define, UsageError, check_read, same

_EXPORTED = (Kind.DUAL_ENCODER, Kind.RANKER, Kind.ENCODER_MODULE, Kind.HUGGING_FACE_ENCODER)
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
        raise UsageError("--format static needs --texts to fit the vectors to")
    texts = [*filled_texts(Texts(values.texts))]
    return export_static(values.encoder, values.output, texts, overwrite=values.overwrite)


def _network(values: Any) -> Path:
    # A wrong folder raises an error here, before TensorFlow is imported.
    kind_of(values.encoder, *_EXPORTED)
    from convert_tf.export.model import export_model

    return export_model(
        values.encoder,
        values.output,
        format=values.format or "",
        network_bits=int(values.network_bits) if values.network_bits else None,
        notes=_notes(values.notes) if values.notes else "",
        **same(values, "max_tokens overwrite"),
    )


def _notes(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path!r} is not UTF-8 ({error}). Save it as UTF-8.") from error
