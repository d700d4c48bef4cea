r"""Write test cases for the page: texts with their token ids, and some with their vectors.

    python scripts/web_cases.py --encoder hub_modules/convert_small/3 \
        --output web/build --texts 100000

Half of the texts come from sample dumps. The other half are random characters from all scripts,
including characters that need special treatment when texts are lower-cased or split, and unpaired
surrogates.
"""

import argparse
import itertools
import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

from convert_tf import SentenceEncoder
from convert_tf.corpora.sample import SampleThreads
from convert_tf.encoding.backends.onnx import OnnxBackend
from convert_tf.export.onnx.writing import export_onnx
from convert_tf.storage.files import write_file
from convert_tf.storage.json_text import whole_characters

# fmt: off
_ODD = [
    "Σ", "ς", "σ", "İ", "ı", "ß", "\ufe4f", "\ufe4e", "\0", " ", "  ", "\u3000", "\u00ad", "\u0307",
    "'", "-", ".", ",", "\n", "\t", "é", "e\u0301", "½", "👍🏽", "\ud83d", "\udc4d", "1", "0000",
    "a", "THE", "\u00a0", "\r\n", "\u200b", "\u200d", "\ufe0f", "❤", "ｆｕｌｌ", "𝐛", "ﬁ", "…",
    "²", "\u2011", "\u0301\u0323" * 20, "\uff9e",
]
_RANGES = [
    (32, 127), (0, 0x250), (0x370, 0x530), (0, 0x10000), (0x10000, 0x110000), (0x4E00, 0x9FFF),
    (0x2000, 0x2070), (0xFF00, 0xFFF0), (0x1D400, 0x1D800),
]
# fmt: on
_VECTORS = 40


def sample_texts(seed: int) -> Iterator[str]:
    """Yield titles and comments of sample dumps without end."""
    for one in itertools.count(seed):
        for submission, comments in SampleThreads(one).generate(500):
            yield submission["title"]
            yield from (comment["body"] for comment in comments)


def random_text(generator: random.Random) -> str:
    """Return random characters from one range, mixed with unusual ones."""
    low, high = generator.choice(_RANGES)
    parts = []
    for _ in range(generator.randint(0, 40)):
        kind = generator.random()
        parts.append(
            generator.choice(_ODD) if kind < 0.25 else " " if kind < 0.35
            else chr(generator.randrange(low, high))
        )  # fmt: skip
    if generator.random() < 0.01:  # longer than the network reads
        parts *= 60
    # Adjacent surrogates of a pair are one character in JavaScript.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def write_cases(module: Path, output: Path, *, number: int) -> None:
    """Write `ids.json` and `vectors.json` with cases of this number of texts."""
    generator = random.Random(0)
    texts = [*itertools.islice(sample_texts(1), number // 2)]
    texts += [random_text(generator) for _ in range(number - len(texts))]
    with tempfile.TemporaryDirectory() as work:
        path = export_onnx(module, Path(work) / "model.onnx")
        backend = OnnxBackend(path)
        ids, splits = backend.token_ids([whole_characters(text).encode() for text in texts])
        own = [ids[start:end].tolist() for start, end in itertools.pairwise(splits)]
        some = [text for text in texts[:: max(1, len(texts) // _VECTORS)] if len(text) < 200]
        encoder = SentenceEncoder(backend)
        kinds = ["sentence", "context", "response"]
        if backend.facts["similarity_dim"]:
            kinds.append("similarity")
        vectors = {kind: next(encoder.iter_encode(some, kind=kind)).tolist() for kind in kinds}
    output.mkdir(parents=True, exist_ok=True)
    # ASCII with escapes preserves unpaired surrogates.
    write_file(output / "ids.json", json.dumps({"texts": texts, "ids": own}))
    write_file(output / "vectors.json", json.dumps({"texts": some, "vectors": vectors}))
    print(f"wrote {output}: ids of {len(texts):,} texts, vectors of {len(some)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--encoder", type=Path, required=True, help="folder of a module")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--texts", type=int, default=100_000)
    given = parser.parse_args()
    write_cases(given.encoder, given.output, number=given.texts)


if __name__ == "__main__":
    main()
