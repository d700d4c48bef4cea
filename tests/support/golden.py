"""Golden vectors of the released encoders, for 1,000 texts of many kinds.

`python tests/support/golden.py` adds missing entries to `golden.json` for a new version of an
encoder. It never replaces an entry, because the vectors of a released version must not change. Only
the entries of `.onnx` files are rewritten if the version number of their exporter has changed.

Token ids are compared exactly. Vectors are compared by a checksum of their 16-bit values in each
block of texts. On another processor or with other libraries, sums are rounded differently, so each
vector also has a sketch: its dot products with fixed directions, divided by its length. A sketch
may differ by the tolerance for the processor.
"""

import base64
import json
import random
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

FILE = Path(__file__).resolve().parents[1] / "export" / "golden.json"
BLOCK, COUNT, DIRECTIONS = 50, 1_000, 6
KINDS = ("sentence", "context", "response", "similarity")  # assigned to the blocks in turn
# The largest allowed difference of a sketch, in standard deviations of its values: for float32, for
# 8-bit on the processor that wrote it (0.06 with other thread counts), and 8-bit on another one.
FLOAT_TOLERANCE = 2e-3
TOLERANCES = {"same": 0.1, "other": 0.25}


def make_texts() -> list[str]:
    """Return texts of many kinds: conversation, odd spellings, numbers, scripts, long texts."""
    from convert_tf.corpora.sample import sample_texts

    rng = random.Random(20261128)
    talk = [*islice(sample_texts(seed=7), 500)]
    words = sorted({word for text in talk for word in text.split()})
    scripts = [(0x00C0, 0x17F), (0x370, 0x3FF), (0x400, 0x4FF), (0x5D0, 0x5EA), (0x620, 0x64A),
               (0x904, 0x939), (0xE01, 0xE30), (0x3041, 0x3096), (0x4E00, 0x9FA5), (0xAC00, 0xD7A3),
               (0x1F300, 0x1F64F), (0xFF01, 0xFF5E), (0x2000, 0x206F), (0x20, 0x7E)]  # fmt: skip

    def letters(low: int, high: int) -> str:
        return "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 12)))

    def odd() -> Iterator[str]:
        while True:
            text = rng.choice(talk)
            place = rng.randrange(len(text))
            yield text.upper()
            yield text[:place] + text[place + 1 :]
            yield f"{text[:place]}\u00ad{text[place:]}\t"
            yield "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text)
            yield f"{rng.randrange(10**9):,} {rng.random():.3f} +{rng.randrange(10**11)} 12:30"
            yield f"https://example.com/{rng.choice(words)}?q={rng.randrange(999)} x@y.org"
            yield " ".join(letters(*rng.choice(scripts)) for _ in range(rng.randint(1, 6)))
            yield " ".join(rng.choices(words, k=rng.randint(1, 60)))

    texts = [*talk, "", " ", "\ufeff", "a", "word " * 700, "﹏", "\U0001f600" * 40]
    return [*texts, *islice(odd(), COUNT - len(texts))]


def blocks(texts: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the kind of vectors and the texts of each block."""
    for number in range(0, len(texts), BLOCK):
        yield KINDS[number // BLOCK % len(KINDS)], texts[number : number + BLOCK]


def checksum_of(array: np.ndarray) -> str:
    from convert_tf.storage.checksums import checksum

    return checksum([np.ascontiguousarray(array).tobytes()])[:12]


def sketch_of(vectors: np.ndarray) -> np.ndarray:
    """Return float16 `[texts, DIRECTIONS]`, with values of about 1 for random vectors."""
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (vectors.shape[1], DIRECTIONS))
    lengths = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-6)
    return (vectors / lengths @ signs).astype(np.float16)


def token_checksums(vocabulary: Path, num_oov_buckets: int, texts: list[str]) -> list[str]:
    """Return one checksum of token ids for each block."""
    from convert_tf.text.plain_tokenizer import PlainTokenizer
    from convert_tf.text.vocabulary import read_vocabulary

    tokenizer = PlainTokenizer(read_vocabulary(vocabulary), num_oov_buckets=num_oov_buckets)
    sums = []
    for _, block in blocks(texts):
        ids, splits = tokenizer.flat_ids([text.encode() for text in block], max_tokens=512)
        sums.append(checksum_of(np.concatenate([ids.ravel(), splits.ravel()]).astype(np.int64)))
    return sums


def vectors_of(encoder: object, texts: list[str]) -> list[np.ndarray]:
    """Return the vectors of each block of texts."""
    return [encoder.encode(block, kind=kind) for kind, block in blocks(texts)]


def processor() -> str:
    """Return how this processor multiplies bytes, which affects rounding."""
    from convert_tf.numerics.processor import adds_products_of_bytes

    return "sums of four products" if adds_products_of_bytes() else "sums of two products"


def described(vectors: list[np.ndarray]) -> dict[str, object]:
    """Return the entry of `golden.json` for the vectors of all blocks."""
    sketches = np.concatenate([*map(sketch_of, vectors)])
    return {
        "processor": processor(),
        "checksums": [checksum_of(block.astype(np.float16)) for block in vectors],
        "sketches": base64.b64encode(sketches.tobytes()).decode(),
    }


def differences(known: dict[str, object], vectors: list[np.ndarray]) -> dict[int, float]:
    """Return the largest difference of a sketch for each block whose checksum differs."""
    flat = np.frombuffer(base64.b64decode(known["sketches"]), np.float16).astype(np.float32)
    sketches = flat.reshape(-1, BLOCK, DIRECTIONS)
    return {
        number: float(np.abs(sketch_of(block).astype(np.float32) - sketches[number]).max())
        for number, block in enumerate(vectors)
        if checksum_of(block.astype(np.float16)) != known["checksums"][number]
    }


def main() -> None:
    from convert_tf import SentenceEncoder
    from convert_tf.checkpoints.configs import load_config
    from convert_tf.checkpoints.released import EXPORTER, RELEASED, module_path

    golden = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {"texts": make_texts()}
    texts = golden["texts"]
    for name, version in RELEASED.items():
        entry = golden.setdefault(f"{name}/{version}", {})
        folder = Path(module_path(f"{name}/{version}"))
        buckets = load_config(folder).num_oov_buckets
        tokens = token_checksums(folder / "assets" / "vocab.txt", buckets, texts)
        entry.setdefault("tokens", tokens)
        if "module" not in entry:
            module = SentenceEncoder(folder, compute_dtype="float32")
            entry["module"] = described(vectors_of(module, texts))
        if entry.get("onnx", {}).get("exporter") != EXPORTER:
            encoder = SentenceEncoder(f"{name}/{version}")
            entry["onnx"] = {"exporter": EXPORTER, **described(vectors_of(encoder, texts))}
        FILE.write_text(json.dumps(golden, ensure_ascii=True, indent=1) + "\n")
        print(f"{name}/{version}", file=sys.stderr)


if __name__ == "__main__":
    main()
