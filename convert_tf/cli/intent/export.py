"""Write an intent classifier and its encoder as one file, for onnxruntime and numpy.

```
convert-tf intent export --model model/ --output intents.onnx
convert-tf intent predict --model intents.onnx --input texts.txt
```

`--serving_module` of `convert-tf intent train` writes a SavedModel instead.

Flags:
  output: File to write, x.onnx.
  network_bits: Bits per weight of the encoder. If the model was trained with a released name or an
    .onnx file, the bits and the answers stay the same. If it was trained with a module, 8 bits make
    the file smaller and faster, but about 2 in 100 answers differ. With 32 bits, an answer may
    differ only if two intents are equally probable.
  overwrite: Replace an existing file.
"""

from typing import Any

from convert_tf.cli.flags import NEEDED, Define, define_model, loaded_classifier


def define_flags(define: Define) -> None:
    define_model(define)
    define("output", NEEDED)
    define("network_bits", "8", choices=["32", "8"])
    define("overwrite", False)


def run(values: Any) -> None:
    from convert_tf.intents.one_file import export_one_file

    path = export_one_file(
        loaded_classifier(values),
        values.output,
        network_bits=int(values.network_bits),
        overwrite=values.overwrite,
    )
    print(f"wrote {path}, {path.stat().st_size / 1e6:.1f} MB")
