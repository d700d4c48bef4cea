"""Write the files that the page in `web/` loads: an 8-bit model and its tokenizer, compressed.

    python scripts/web_assets.py --encoder hub_modules/convert_small/3 --output web/dist

`make web` runs this script if the module or the code that writes the files has changed.
"""

import argparse
import gzip
import json
import tempfile
from pathlib import Path

from convert_tf.encoding.backends.onnx import OnnxBackend
from convert_tf.export.onnx.writing import export_onnx
from convert_tf.storage.files import write_file
from convert_tf.text.characters import TABLES
from convert_tf.text.vocabulary import read_vocabulary


def tokenizer_data(module: Path, facts: dict) -> dict:
    """Return the data from which `Tokenizer` in web/src/tokenizer.ts is constructed."""
    return {
        "subwords": read_vocabulary(module / "assets" / "vocab.txt"),
        "numOovBuckets": facts["num_oov_buckets"],
        "maxTokens": facts["max_tokens"],
        **TABLES,
    }


def write_assets(module: Path, output: Path) -> None:
    """Write the compressed model and tokenizer of a module to a folder.

    The model is written last, because `make web` takes the files for complete if it is there.

    Raises:
      ValueError: if the module reads earlier turns, for which the page has no input.
    """
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        model = export_onnx(module, Path(work) / "model.onnx")
        backend = OnnxBackend(model)
        if backend.reads_history:
            raise ValueError(
                f"{str(module)!r} reads earlier turns, which the page cannot pass to it. Choose a "
                "single-context module."
            )
        text = json.dumps(tokenizer_data(module, backend.facts), ensure_ascii=False)
        write_file(output / "tokenizer.json.gz", gzip.compress(text.encode("utf-8"), 9, mtime=0))
        write_file(output / "model.onnx.gz", gzip.compress(model.read_bytes(), 9, mtime=0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--encoder", type=Path, required=True, help="folder of a module")
    parser.add_argument("--output", type=Path, required=True, help="folder of the page")
    given = parser.parse_args()
    write_assets(given.encoder, given.output)


if __name__ == "__main__":
    main()
